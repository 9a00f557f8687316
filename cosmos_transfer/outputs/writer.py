"""Writing clips: exact size, exact times, under a temporary name until complete.

``h264`` is for watching (8-bit 4:2:0, or 4:4:4 where a side is odd, BT.709, index first);
``ffv1`` and ``rgb`` are lossless; ``png`` is a folder of pictures with their times beside them.
Nothing is overwritten unless asked, and nothing half-written is left behind.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shutil
import tempfile
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.video.reformatter import ColorRange, Colorspace, Interpolation
from jaxtyping import UInt8
from PIL import Image

from cosmos_transfer.errors import ConfigError, MediaError, ShapeError, explain
from cosmos_transfer.inputs.video import TIMES_FILE, check_frames, uniform_times

_PICTURE_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".webp"})
_SLUG_BYTES = 80
_HASH_DIGITS = 8
# A fixed number, so that the same frames give the same bytes on every machine.
_THREADS = 4
# Colours keep their mean when the colour planes are halved (see inputs/colors.py).
_EXACT = (
    Interpolation.BICUBIC
    | Interpolation.ACCURATE_RND
    | Interpolation.FULL_CHR_H_INP
    | Interpolation.BITEXACT
)
_MAX_TIMESCALE = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Encoder:
    """How a codec is written: file endings (the first is the default), FFmpeg's settings."""

    suffixes: tuple[str, ...]
    encoder: str
    pixel_format: str
    options: tuple[tuple[str, str], ...] = ()


_ENCODERS: dict[str, _Encoder] = {
    "h264": _Encoder(
        suffixes=(".mp4", ".mov", ".mkv"),
        encoder="libx264",
        pixel_format="yuv420p",
        options=(("preset", "medium"), ("crf", "16")),
    ),
    "ffv1": _Encoder(
        suffixes=(".mp4", ".mkv"),
        encoder="ffv1",
        pixel_format="bgr0",
        options=(("level", "3"), ("slicecrc", "1")),
    ),
    "rgb": _Encoder(
        suffixes=(".mp4", ".mov", ".mkv"),
        encoder="libx264rgb",
        pixel_format="rgb24",
        options=(("preset", "veryfast"), ("crf", "0")),
    ),
}
_FFV1_SMALLEST_SLICED = 16
_CONTAINERS = {".mp4": "mp4", ".mov": "mov", ".mkv": "matroska"}


def write_clip(
    path: str | Path,
    frames: np.ndarray,
    *,
    times: Sequence[Fraction] | None = None,
    rate: Fraction | int,
    codec: str = "h264",
    overwrite: bool = False,
    is_still: bool = False,
) -> Path:
    """Write frames and return where they went.

    Args:
        path: A file name with or without its ending. A single frame under a picture's name is
            written as that picture. For the codec ``png`` of a clip: a folder.
        frames: sRGB.
        times: When each frame is shown, in seconds from 0; a constant ``rate`` unless given.
        rate: Frames per second; the length of the last frame.
        codec: See the module.
        overwrite: Replace a file that is there.
        is_still: Write the only frame as a PNG.

    Raises:
        MediaError: The file is there already, or cannot be written.
        ConfigError: The name's ending does not fit the codec, or the times fit no clock.
    """
    path = Path(path)
    check_frames(frames, where=str(path))
    rate = Fraction(rate)
    times = uniform_times(len(frames), rate) if times is None else tuple(times)
    _check_times(path, times, len(frames))
    suffix = path.suffix.lower()
    if is_still or (suffix in _PICTURE_SUFFIXES and len(frames) == 1):
        if len(frames) != 1:
            raise ShapeError(
                explain(
                    str(path),
                    expected="one frame for a still",
                    got=f"{len(frames)}",
                    do="Write a clip, or pass one frame.",
                )
            )
        target = _still_target(path)
        with complete_file(target, overwrite=overwrite) as unfinished:
            options: dict[str, Any] = {} if target.suffix.lower() == ".png" else {"quality": 95}
            form = Image.registered_extensions()[target.suffix.lower()]
            Image.fromarray(frames[0]).save(unfinished, format=form, **options)
        return target
    return write_blocks(path, [frames], times=times, rate=rate, codec=codec, overwrite=overwrite)


def write_blocks(
    path: str | Path,
    blocks: Iterable[np.ndarray],
    *,
    times: Sequence[Fraction],
    rate: Fraction | int,
    codec: str = "h264",
    overwrite: bool = False,
) -> Path:
    """Write a clip whose frames come in blocks, such as ``inputs.video.stream_frames`` gives.

    One block is held at a time. Nothing is left behind where the blocks end early.

    Args:
        path: As for :func:`write_clip`.
        blocks: Frames in their order, f h w 3 uint8; every block of the same size.
        times: When each frame is shown, in seconds from 0.
        rate: Frames per second; the length of the last frame.
        codec: See the module.
        overwrite: Replace a file that is there.

    Raises:
        MediaError: The file is there already, or cannot be written.
        ConfigError: The name's ending does not fit the codec, or the times fit no clock.
        ShapeError: More or fewer frames than times, or of different sizes.
    """
    path, rate, times = Path(path), Fraction(rate), tuple(times)
    _check_times(path, times, len(times))
    frames = _counted(path, blocks, len(times))
    if codec == "png":
        return _write_folder(path, frames, times, rate, overwrite=overwrite)
    target = _video_target(path, codec)
    with complete_file(target, overwrite=overwrite) as unfinished:
        _encode(unfinished, target.suffix.lower(), frames, times, rate, _ENCODERS[codec])
    return target


def _counted(
    path: Path, blocks: Iterable[np.ndarray], num_frames: int
) -> Iterator[UInt8[np.ndarray, "_ _ 3"]]:
    """Frame after frame, as many as there are times and all of one size."""
    count, shape = 0, None
    for block in blocks:
        check_frames(block, where=str(path))
        for frame in block:
            shape = shape or frame.shape
            if frame.shape != shape:
                raise ShapeError(
                    explain(
                        str(path),
                        expected=f"frames of one size ({shape[1]}x{shape[0]})",
                        got=f"{frame.shape[1]}x{frame.shape[0]} at frame {count}",
                        do="Scale all blocks to one size.",
                    )
                )
            count += 1
            if count <= num_frames:
                yield frame
    if count != num_frames:
        raise ShapeError(
            explain(
                str(path),
                expected=f"one frame for each of {num_frames} times",
                got=f"{count}",
                do="Give as many times as frames.",
            )
        )


def check_destination(
    path: str | Path, *, codec: str, overwrite: bool = False, is_still: bool = False
) -> None:
    """Refuse early, before a clip is made, what :func:`write_clip` and its record would refuse.

    Creates nothing.

    Args:
        path: As for :func:`write_clip`.
        codec: See the module.
        overwrite: Files that are there will be replaced.
        is_still: The clip is one picture.

    Raises:
        MediaError: The name of the clip or of its record is taken, or the folder cannot be written.
        ConfigError: No such codec.
    """
    path = Path(path)
    if codec == "png" and not is_still:
        target = _folder_target(path)
        _refuse_folder(target, overwrite=overwrite)
        stem = target.name
    else:
        target = _still_target(path) if is_still else _video_target(path, codec)
        _refuse_existing(target, overwrite=overwrite)
        stem = target.stem
    _refuse_existing(target.with_name(f"{stem}.json"), overwrite=overwrite)
    nearest = next(each for each in path.absolute().parents if os.path.exists(each))
    if not nearest.is_dir():
        raise _unwritable(path, NotADirectoryError(f"{nearest}, which is not a folder"))
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise _unwritable(path, PermissionError(f"no permission to write into {nearest}"))


def slug(text: str) -> str:
    """A file name for any text: at most 80 bytes, safe everywhere, different for different text.

    Letters and digits of any script are kept, everything else becomes a dash; a hash of the whole
    text follows.
    """
    raw = text.encode("utf-8", "surrogatepass")
    digest = hashlib.sha256(raw).hexdigest()[:_HASH_DIGITS]
    folded = unicodedata.normalize("NFKC", raw.decode("utf-8", "replace")).casefold()
    words = re.sub(r"[^\w]+|_+", "-", folded).strip("-")
    room = _SLUG_BYTES - _HASH_DIGITS - 1
    kept = words.encode("utf-8")[:room].decode("utf-8", "ignore").strip("-")
    return f"{kept}-{digest}" if kept else digest


def _check_times(path: Path, times: Sequence[Fraction], num_frames: int) -> None:
    if len(times) != num_frames:
        raise ShapeError(
            explain(
                str(path),
                expected=f"one time per frame ({num_frames})",
                got=f"{len(times)}",
                do="Pass the input clip's own times.",
            )
        )
    if times[0] != 0 or any(b <= a for a, b in pairwise(times)):
        raise ConfigError(
            explain(
                str(path),
                expected="times that start at 0 and increase",
                got=", ".join(str(t) for t in times[:4]) + (" ..." if times[4:] else ""),
                do="Pass the input clip's own times.",
            )
        )


def _video_target(path: Path, codec: str) -> Path:
    if codec not in _ENCODERS:
        raise ConfigError(
            explain(
                "output_codec",
                expected=", ".join((*_ENCODERS, "png")),
                got=repr(codec),
                do="Choose one of them.",
            )
        )
    suffixes = _ENCODERS[codec].suffixes
    suffix = path.suffix.lower()
    if suffix in suffixes:
        return path
    known = {*_CONTAINERS, *_PICTURE_SUFFIXES, ".avi", ".webm", ".gif", ".npy", ".npz", ".json"}
    if suffix in known:
        raise ConfigError(
            explain(
                str(path),
                expected=f"a name ending in {' or '.join(suffixes)} for the codec {codec}",
                got=path.suffix,
                do="Rename it, or choose another codec (h264, ffv1, rgb, png).",
            )
        )
    return _with_ending(path, suffixes[0])


def _still_target(path: Path) -> Path:
    return path if path.suffix.lower() in _PICTURE_SUFFIXES else _with_ending(path, ".png")


def _folder_target(path: Path) -> Path:
    known = path.suffix.lower() in {*_CONTAINERS, *_PICTURE_SUFFIXES}
    return path.with_suffix("") if known else path


def _with_ending(path: Path, ending: str) -> Path:
    """The path with a known ending replaced; a dot inside a name ("v1.5") is not an ending."""
    if path.suffix.lower() in {*_CONTAINERS, *_PICTURE_SUFFIXES}:
        return path.with_suffix(ending)
    return path.with_name(path.name + ending)


@contextmanager
def complete_file(path: Path, *, overwrite: bool) -> Iterator[Path]:
    """A temporary path that becomes ``path`` when the block ends well, and vanishes otherwise."""
    _refuse_existing(path, overwrite=overwrite)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(
            prefix=f".{path.name[:40]}.", suffix=".part", dir=path.parent
        )
        os.close(handle)
    except OSError as error:
        raise _unwritable(path, error) from error
    unfinished = Path(name)
    try:
        yield unfinished
        # mkstemp makes files that only their owner can read.
        unfinished.chmod(0o666 & ~_umask())
        if overwrite:
            unfinished.replace(path)
        else:
            # Fails where replace would overwrite a file that appeared meanwhile.
            os.link(unfinished, path)
    except FileExistsError:
        _refuse_existing(path, overwrite=False)
        raise
    except (OSError, av.error.FFmpegError) as error:
        if isinstance(error, MediaError):
            raise
        raise _unwritable(path, error) from error
    finally:
        unfinished.unlink(missing_ok=True)


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


def _refuse_existing(path: Path, *, overwrite: bool) -> None:
    if path.exists() and (not overwrite or path.is_dir()):
        raise MediaError(
            explain(
                str(path),
                expected="a name that is free",
                got="a folder" if path.is_dir() else "a file that is there already",
                do="Choose another name, or replace it: output.overwrite=true, show --overwrite, in"
                " Python overwrite=True.",
            )
        )


def _refuse_folder(path: Path, *, overwrite: bool) -> None:
    if path.exists() and not (overwrite and _is_our_folder(path)):
        raise MediaError(
            explain(
                str(path),
                expected="a folder name that is free",
                got="something that is there already",
                do="Choose another name; output.overwrite=true (in Python overwrite=True) replaces"
                " a folder of frames.",
            )
        )


def _unwritable(path: Path, error: Exception) -> MediaError:
    reason = " ".join(str(error).split()) or type(error).__name__
    return MediaError(
        explain(
            str(path),
            expected="a place that can be written",
            got=reason,
            do="Check the folder's permissions and the free space.",
        )
    )


def _encode(
    path: Path,
    suffix: str,
    frames: Iterator[UInt8[np.ndarray, "h w 3"]],
    times: Sequence[Fraction],
    rate: Fraction,
    how: _Encoder,
) -> None:
    first = next(frames)
    frames = chain([first], frames)
    height, width = first.shape[:2]
    pixel_format = how.pixel_format
    if pixel_format == "yuv420p" and (height % 2 or width % 2):
        # Half-size colour planes need even sides; full-size ones bring the exact size back.
        pixel_format = "yuv444p"
    scale, ticks = _clock(path, times, rate, suffix)
    is_yuv = pixel_format.startswith("yuv")
    options = {"movflags": "+faststart"} if suffix != ".mkv" else {}
    with av.open(str(path), "w", format=_CONTAINERS[suffix], options=options) as container:
        codec_options = dict(how.options)
        if how.encoder == "ffv1" and min(height, width) < _FFV1_SMALLEST_SLICED:
            codec_options = {"level": "1"}  # FFmpeg cuts version 3 into slices, and refuses these
        stream: Any = container.add_stream(how.encoder, rate=rate, options=codec_options)
        stream.width, stream.height, stream.pix_fmt = width, height, pixel_format
        stream.time_base = stream.codec_context.time_base = Fraction(1, scale)
        stream.codec_context.thread_count = _THREADS
        if is_yuv:
            context = stream.codec_context
            context.colorspace = context.color_primaries = Colorspace.ITU709
            context.color_trc = 13  # IEC 61966-2-1, sRGB
            context.color_range = ColorRange.MPEG
        for index, pixels in enumerate(frames):
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels), format="rgb24")
            if is_yuv:
                frame = frame.reformat(
                    format=pixel_format,
                    dst_colorspace=Colorspace.ITU709,
                    dst_color_range=ColorRange.MPEG,
                    interpolation=_EXACT,
                )
            frame.pts = ticks[index]
            frame.duration = ticks[index + 1] - ticks[index]
            frame.time_base = Fraction(1, scale)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


def _clock(
    path: Path, times: Sequence[Fraction], rate: Fraction, suffix: str
) -> tuple[int, list[int]]:
    """Ticks per second that make every time whole; each frame's tick and the last one's end."""
    end = times[-1] + 1 / rate
    if suffix == ".mkv":
        # Matroska counts milliseconds. A constant rate can be read back exactly all the same.
        if tuple(times) != uniform_times(len(times), rate) and any(
            (t * 1000).denominator != 1 for t in times
        ):
            raise ConfigError(
                explain(
                    str(path),
                    expected="times in whole milliseconds or a constant rate, for Matroska",
                    got=f"{times[1]} s for the second frame",
                    do="Name the file .mp4.",
                )
            )
        return rate.numerator, [round(t * rate.numerator) for t in (*times, end)]
    scale = math.lcm(*(t.denominator for t in times), rate.numerator)
    if scale > _MAX_TIMESCALE:
        scale = math.lcm(*(t.denominator for t in times))
    if scale > _MAX_TIMESCALE:
        raise ConfigError(
            explain(
                str(path),
                expected=f"frame times that are whole on one clock of at most {_MAX_TIMESCALE} Hz",
                got="times that share no such clock",
                do="Round the times to microseconds.",
            )
        )
    ticks = [int(t * scale) for t in times]
    return scale, [*ticks, max(ticks[-1] + 1, round(end * scale))]


def _write_folder(
    path: Path,
    frames: Iterator[UInt8[np.ndarray, "h w 3"]],
    times: Sequence[Fraction],
    rate: Fraction,
    *,
    overwrite: bool,
) -> Path:
    path = _folder_target(path)
    _refuse_folder(path, overwrite=overwrite)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(prefix=f".{path.name[:40]}.", dir=path.parent))
    except OSError as error:
        raise _unwritable(path, error) from error
    try:
        for index, pixels in enumerate(frames):
            Image.fromarray(pixels).save(unfinished / f"{index:06d}.png")
        told = {"rate": str(rate), "times": [str(t) for t in times]}
        (unfinished / TIMES_FILE).write_text(json.dumps(told) + "\n", encoding="utf-8")
        unfinished.chmod(0o777 & ~_umask())
        if path.exists():
            shutil.rmtree(path)
        unfinished.rename(path)
    except OSError as error:
        raise _unwritable(path, error) from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return path


def _is_our_folder(path: Path) -> bool:
    """Whether a folder holds nothing but frames and times that this module wrote."""
    return path.is_dir() and all(
        p.name == TIMES_FILE or re.fullmatch(r"\d{6}\.png", p.name) for p in path.iterdir()
    )
