"""Clips: uint8 frames with the exact time of each, read from whatever holds them.

Frames are counted by decoding, never taken from a header. Times are seconds as fractions and
start at 0; a variable frame rate keeps its times. Rotation and EXIF tags are applied once.
Frames are ``f h w c`` uint8 sRGB.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice, pairwise
from pathlib import Path
from typing import Literal

import cv2
import numpy as np
from jaxtyping import Int, Num, UInt8
from PIL import Image

from cosmos_transfer.errors import ConfigError, MediaError, ShapeError, explain
from cosmos_transfer.inputs.json_files import read_json
from cosmos_transfer.inputs.media import (
    ARRAY_SUFFIXES,
    IMAGE_SUFFIXES,
    Array,
    MediaKind,
    decode_video,
    media_kind,
    picture_frames,
    picture_size,
    read_array,
    read_picture,
    stream_info,
)
from cosmos_transfer.inputs.series import list_series
from cosmos_transfer.shapes import Size

log = logging.getLogger(__name__)

# What pictures without a clock are given: NVIDIA's own default for Cosmos-Transfer.
DEFAULT_RATE = Fraction(24)
# A folder of frames written by outputs/writer.py keeps its times here.
TIMES_FILE = "times.json"

Resampling = Literal["area", "linear", "nearest", "lanczos"]
LengthPolicy = Literal["refuse", "trim", "hold", "loop"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class VideoClip:
    """Frames and when each is shown. At least one frame; times strictly increase from 0."""

    frames: UInt8[np.ndarray, "f h w 3"]
    times: tuple[Fraction, ...]
    rate: Fraction
    path: Path | None = None
    is_still: bool = False

    def __post_init__(self) -> None:
        where = str(self.path or "clip")
        check_frames(self.frames, where=where)
        if len(self.times) != self.num_frames:
            raise ShapeError(
                explain(
                    where,
                    expected=f"one time per frame ({self.num_frames})",
                    got=f"{len(self.times)}",
                    do="Give as many times as frames.",
                )
            )
        if self.times[0] != 0 or any(b <= a for a, b in pairwise(self.times)):
            raise ConfigError(
                explain(
                    where,
                    expected="frame times that start at 0 and increase",
                    got=", ".join(str(t) for t in self.times[:4]) + " ...",
                    do="Subtract the first time, and drop frames shown at the same moment.",
                )
            )

    @property
    def num_frames(self) -> int:
        """How many frames there are."""
        return len(self.frames)

    @property
    def size(self) -> Size:
        """Height and width."""
        return Size(*self.frames.shape[1:3])


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipInfo:
    """What a clip is, found by decoding it without keeping its frames."""

    num_frames: int
    size: Size
    rate: Fraction
    times: tuple[Fraction, ...]
    kind: Literal["video", "still", "animation", "folder", "array"]


def check_frames(frames: object, *, where: str) -> None:
    """Refuse anything but at least one ``h w 3`` uint8 frame."""
    if not isinstance(frames, np.ndarray):
        got = type(frames).__name__
    elif frames.ndim != 4 or frames.shape[-1] != 3 or frames.dtype != np.uint8:
        got = f"shape {frames.shape} {frames.dtype}"
    elif 0 in frames.shape:
        got = f"nothing in it (shape {frames.shape})"
    else:
        return
    raise ShapeError(
        explain(
            where,
            expected="at least one frame, as uint8 frames x height x width x 3",
            got=got,
            do="Convert to 8-bit RGB with the time axis first.",
        )
    )


def uniform_times(num_frames: int, rate: Fraction) -> tuple[Fraction, ...]:
    """Times of a constant frame rate."""
    return tuple(i / rate for i in range(num_frames))


def clip_from_array(frames: Array, *, rate: Fraction | int | None = None) -> VideoClip:
    """A clip in memory, at a constant rate (24 frames a second unless said)."""
    check_frames(frames, where="video")
    rate = Fraction(rate or DEFAULT_RATE)
    return VideoClip(frames=frames, times=uniform_times(len(frames), rate), rate=rate)


def read_clip(
    path: str | Path,
    *,
    max_frames: int | None = None,
    rate: Fraction | int | None = None,
    size: Size | None = None,
) -> VideoClip:
    """Read a clip from a video, a still, an animation, a folder of pictures or an array.

    Args:
        path: A video file; a picture (PNG, JPEG, WebP, ...; one frame, ``is_still``); a GIF; a
            folder of numbered pictures, or a glob naming one series in it; a ``.npy``/``.npz`` of
            shape f h w 3 uint8.
        max_frames: Read only that many frames from the start.
        rate: Frames per second for inputs without a clock (folders, arrays: 24 unless given).
            Where the input has a clock, it is overridden: frame i is shown at i / rate.
        size: Scale every frame to it (area means) as it is read, so that a long clip never stands
            in memory at its full size.

    Raises:
        MediaError: The file is missing, damaged or empty, or frames are missing from a folder.
        ShapeError: Frames of different sizes, or an array of another shape.
    """
    path = Path(path)
    kind = media_kind(path)
    seconds: list[Fraction | None] = []
    kept = list(islice(_each_frame(path, kind, seconds, size), max_frames))
    if not kept:
        raise no_frames(path)
    frames = np.stack(kept)
    times: Sequence[Fraction] | None = None
    clock: Fraction | None = None
    if kind == "folder":
        times, clock = _folder_clock(path, len(_pictures_of(path)))
    elif kind == "image":
        times = [each for each in seconds if each is not None]
    elif kind == "video":
        times, clock = regular_times(seconds, path=path)
    is_still = kind == "image" and len(frames) == 1
    if rate is not None or times is None:
        clock = Fraction(rate or clock or DEFAULT_RATE)
        times = uniform_times(len(frames), clock)
    times = tuple(times[: len(frames)])
    return VideoClip(
        frames=frames,
        times=times,
        rate=clock or nominal_rate(times),
        path=path,
        is_still=is_still,
    )


def stream_frames(
    path: str | Path, *, size: Size | None = None, block_frames: int = 32
) -> Iterator[UInt8[np.ndarray, "f h w 3"]]:
    """The frames of a clip in blocks, so that a long one never stands in memory whole.

    The frames are those of :func:`read_clip`; :func:`probe_clip` tells their number and times.

    Args:
        path: As for :func:`read_clip`.
        size: Scale every frame to it (area means).
        block_frames: Frames of every block but the last, which may be shorter.

    Raises:
        MediaError: As :func:`read_clip`; faults of later frames come when they are reached.
        ShapeError: Frames of different sizes, or an array of another shape.
    """
    path = Path(path)
    frames = _each_frame(path, media_kind(path), [], size)
    is_empty = True
    while block := list(islice(frames, block_frames)):
        is_empty = False
        yield np.stack(block)
    if is_empty:
        raise no_frames(path)


def probe_clip(path: str | Path, *, rate: Fraction | int | None = None) -> ClipInfo:
    """Count, size and times of a clip, by decoding it; frames are not kept."""
    path = Path(path)
    kind = media_kind(path)
    times: Sequence[Fraction] | None = None
    clock: Fraction | None = None
    found: Literal["video", "still", "animation", "folder", "array"]
    if kind == "array":
        frames = _array_frames(path, read_array(path))
        num_frames, size, found = len(frames), Size(*frames.shape[1:3]), "array"
    elif kind == "folder":
        files = _pictures_of(path)
        size = _same_size(path, (Size(*_still_size(file)) for file in files))
        num_frames, found = len(files), "folder"
        times, clock = _folder_clock(path, num_frames)
    elif kind == "image":
        pairs = [(pixels.shape[:2], time) for pixels, time in picture_frames(path, "RGB")]
        size = _same_size(path, (Size(*shape) for shape, _ in pairs))
        num_frames, found = len(pairs), "still" if len(pairs) == 1 else "animation"
        times = [time for _, time in pairs]
    else:
        raw: list[Fraction | None] = []
        sizes: list[Size] = []
        for frame in decode_video(path, None):
            raw.append(frame.seconds)
            sizes.append(Size(frame.height, frame.width))
        size = _same_size(path, iter(sizes))
        num_frames, found = len(raw), "video"
        times, clock = regular_times(raw, path=path)
    if rate is not None or times is None:
        clock = Fraction(rate or clock or DEFAULT_RATE)
        times = uniform_times(num_frames, clock)
    return ClipInfo(
        num_frames=num_frames,
        size=size,
        rate=clock or nominal_rate(times),
        times=tuple(times),
        kind=found,
    )


def read_still(path: Path) -> Num[np.ndarray, "h w 3"]:
    """One frame of a folder: a picture, or an ``h w 3`` array."""
    if path.suffix.lower() in ARRAY_SUFFIXES:
        frames = _array_frames(path, read_array(path))
        if len(frames) != 1:
            raise ShapeError(
                explain(
                    str(path),
                    expected="one frame (height x width x 3)",
                    got=f"{len(frames)} frames",
                    do="Point at the array itself instead of its folder.",
                )
            )
        return frames[0]
    return read_picture(path, mode="RGB")


def _still_size(path: Path) -> tuple[int, int]:
    if path.suffix.lower() in ARRAY_SUFFIXES:
        height, width = read_still(path).shape[:2]
        return height, width
    return picture_size(path)


def _array_frames(path: Path, array: Array) -> UInt8[np.ndarray, "f h w 3"]:
    if array.ndim == 3 and array.shape[-1] == 3 and array.dtype == np.uint8:
        array = array[None]
    check_frames(array, where=str(path))
    return array


def _pictures_of(path: Path) -> tuple[Path, ...]:
    return list_series(path, (*IMAGE_SUFFIXES, *ARRAY_SUFFIXES), what="pictures").files


def _each_frame(
    path: Path, kind: MediaKind, seconds: list[Fraction | None], size: Size | None
) -> Iterator[UInt8[np.ndarray, "h w 3"]]:
    """Frame after frame, scaled to ``size``; one of another size than the first is refused.

    Times, where the path holds them, are appended to ``seconds``.
    """
    first: Size | None = None
    for index, (own, pixels) in enumerate(_frames_and_sizes(path, kind, seconds, size)):
        first = first or own
        if own != first:
            raise _uneven(path, first, own, index)
        yield pixels if size is None else resize_frames(pixels[None], size, how="area")[0]


def _frames_and_sizes(
    path: Path, kind: MediaKind, seconds: list[Fraction | None], size: Size | None
) -> Iterator[tuple[Size, UInt8[np.ndarray, "h w 3"]]]:
    """Every frame's own size and its pixels; a video's may already be scaled to ``size``."""
    if kind == "video":
        for frame in decode_video(path, "rgb24", size=size):
            seconds.append(frame.seconds)
            assert frame.pixels is not None
            yield Size(frame.height, frame.width), frame.pixels
        return
    frames: Iterable[Array]
    if kind == "array":
        frames = _array_frames(path, read_array(path, mapped=True))
    elif kind == "folder":
        frames = map(read_still, _pictures_of(path))
    else:
        frames = _timed(picture_frames(path, "RGB"), seconds)
    for pixels in frames:
        yield Size(*pixels.shape[:2]), pixels


def _timed(
    frames: Iterator[tuple[Array, Fraction]], seconds: list[Fraction | None]
) -> Iterator[Array]:
    for pixels, time in frames:
        seconds.append(time)
        yield pixels


def _same_size(path: Path, sizes: Iterator[Size]) -> Size:
    first: Size | None = None
    for index, size in enumerate(sizes):
        first = first or size
        if size != first:
            raise _uneven(path, first, size, index)
    if first is None:
        raise no_frames(path)
    return first


def _uneven(path: Path, first: Size, other: Size, index: int) -> ShapeError:
    return ShapeError(
        explain(
            str(path),
            expected=f"every frame to be {first}, like the first",
            got=f"{other} at frame {index}",
            do="Scale the frames to one size.",
        )
    )


def no_frames(path: Path) -> MediaError:
    """The error for a file from which no frame could be decoded."""
    return MediaError(
        explain(
            str(path),
            expected="at least one frame",
            got="none that decodes",
            do="Check that it plays elsewhere; encode it again.",
        )
    )


# ---------------------------------------------------------------------------- times


def regular_times(
    raw: Sequence[Fraction | None], *, path: Path
) -> tuple[tuple[Fraction, ...], Fraction]:
    """Times from 0 and the frame rate, from what the container gave.

    Matroska and WebM round times to a millisecond; where a constant rate explains them to within
    one tick, that rate's exact times are returned. Missing or repeated times fall back to the
    stream's average rate.
    """
    if not raw:
        raise no_frames(path)
    info = stream_info(path)
    average = Fraction(info.average_rate) if info.average_rate else DEFAULT_RATE
    if len(raw) == 1:
        return (Fraction(0),), average
    known = [t for t in raw if t is not None]
    if len(known) < len(raw) or any(b <= a for a, b in pairwise(known)):
        log.warning(
            "%s: frame times are missing or repeat; taken as %s frames a second", path, average
        )
        return uniform_times(len(raw), average), average
    times = tuple(t - known[0] for t in known)
    constant = 1 / (times[1] - times[0])
    if times == uniform_times(len(times), constant):
        return times, constant
    tick = info.time_base
    for candidate in (average, nearest_rate(Fraction(len(times) - 1) / times[-1])):
        grid = uniform_times(len(times), candidate)
        if all(abs(t - g) <= tick for t, g in zip(times, grid, strict=True)):
            return grid, candidate
    return times, nominal_rate(times)


def nominal_rate(times: Sequence[Fraction]) -> Fraction:
    """Frames per second over the whole clip, as a simple fraction."""
    if len(times) < 2:
        return DEFAULT_RATE
    return nearest_rate(Fraction(len(times) - 1) / (times[-1] - times[0]))


def nearest_rate(rate: Fraction) -> Fraction:
    """``rate``, or the whole or NTSC rate (n x 1000/1001) that lies within 0.01 % of it."""
    for candidate in (Fraction(round(rate)), Fraction(round(rate * 1001 / 1000) * 1000, 1001)):
        if candidate and abs(rate / candidate - 1) < Fraction(1, 10_000):
            return candidate
    return rate.limit_denominator(1001)


def _folder_clock(
    path: Path, num_frames: int
) -> tuple[tuple[Fraction, ...] | None, Fraction | None]:
    """The times our own writer left beside the frames, if it wrote this folder."""
    file = path / TIMES_FILE
    if not file.is_file():
        return None, None
    told = read_json(file, what="the times of a folder's frames")
    try:
        times = tuple(Fraction(t) for t in told["times"])
        rate = Fraction(told["rate"])
    except (ValueError, KeyError, TypeError, ZeroDivisionError) as error:
        raise MediaError(
            explain(
                str(file),
                expected="{'rate': 'n/d', 'times': ['n/d', ...]}",
                got=f"something else ({error})",
                do="Delete it to give the folder a constant rate.",
            )
        ) from error
    if len(times) != num_frames:
        raise MediaError(
            explain(
                str(file),
                expected=f"a time for each of the {num_frames} frames",
                got=f"{len(times)}",
                do="Delete it to give the folder a constant rate.",
            )
        )
    return times, rate


# ---------------------------------------------------------------------------- size and length


def resize_frames(
    frames: Num[np.ndarray, "f h w *c"], size: Size, *, how: Resampling
) -> Num[np.ndarray, "f h2 w2 *c"]:
    """Scale every frame to ``size``.

    ``nearest`` keeps values (use it for ids); pixel centres are at +0.5 and the arithmetic is in
    whole numbers. ``area`` averages when shrinking and interpolates when growing; ``lanczos`` is
    anti-aliased in both directions.
    """
    num_frames, height, width = frames.shape[:3]
    if (height, width) == (size.height, size.width):
        return frames
    if how == "nearest":
        rows = (2 * np.arange(size.height) + 1) * height // (2 * size.height)
        columns = (2 * np.arange(size.width) + 1) * width // (2 * size.width)
        return frames[:, rows[:, None], columns]
    out = np.empty((num_frames, size.height, size.width, *frames.shape[3:]), frames.dtype)
    target = (size.width, size.height)
    grows = size.height > height or size.width > width
    flag = cv2.INTER_LINEAR if how == "linear" or grows else cv2.INTER_AREA
    for source, kept in zip(frames, out, strict=True):
        if how == "lanczos":
            kept[:] = _lanczos(source, target)
        else:
            cv2.resize(np.ascontiguousarray(source), target, dst=kept, interpolation=flag)
    return out


def _lanczos(frame: Array, target: tuple[int, int]) -> Array:
    if frame.ndim == 3 and frame.dtype != np.uint8:
        return np.stack([_lanczos(frame[..., c], target) for c in range(frame.shape[-1])], axis=-1)
    return np.asarray(Image.fromarray(frame).resize(target, Image.Resampling.LANCZOS))


def common_length(counts: Sequence[int], length_policy: str) -> int:
    """How long the job is: as the main clip (first of ``counts``), or as the shortest."""
    return min(counts) if length_policy == "trim" else counts[0]


def match_length(
    num_frames: int, wanted: int, policy: str, *, where: str, reference: str = "the clip"
) -> Int[np.ndarray, " f"]:
    """Which frames of a clip of ``num_frames`` stand for ``wanted`` frames.

    ``trim`` cuts what is too long, ``hold`` repeats the last frame, ``loop`` starts again;
    ``hold`` and ``loop`` cut what is too long as well.

    Raises:
        ShapeError: The lengths differ and the policy does not cover it.
    """
    if num_frames == wanted:
        return np.arange(wanted)
    if policy == "refuse" or (policy == "trim" and num_frames < wanted):
        raise ShapeError(
            explain(
                where,
                expected=f"{wanted} frames to match {reference}",
                got=f"{num_frames}",
                do="Give clips of one length, or set length_policy to trim, hold or loop.",
            )
        )
    index = np.arange(wanted)
    return index % num_frames if policy == "loop" else np.minimum(index, num_frames - 1)


# ---------------------------------------------------------------------------- identity


def file_sha256(path: str | Path) -> str:
    """SHA-256 of a file; of a folder (or glob), over the names and contents of its files."""
    path = Path(path)
    if path.is_file():
        with path.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    digest = hashlib.sha256()
    inside = path.rglob("*") if path.is_dir() else path.parent.glob(path.name)
    for file in sorted(p for p in inside if p.is_file()):
        digest.update(file.relative_to(path if path.is_dir() else path.parent).as_posix().encode())
        digest.update(b"\0")
        digest.update(bytes.fromhex(file_sha256(file)))
    return digest.hexdigest()
