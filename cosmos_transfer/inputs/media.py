"""Opening pictures, videos and arrays: one frame at a time, upright, with exact times.

Files are recognised by their first bytes, not by their names. Rotation (a video's display
matrix, a picture's EXIF tag) is applied here, once; what leaves this module is upright and
carries no tag. Times are seconds as fractions, on the file's own clock.
"""

from __future__ import annotations

import logging
import re
import struct
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import av
import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError
from safetensors import SafetensorError
from safetensors.numpy import load_file

from cosmos_transfer.errors import MediaError, explain
from cosmos_transfer.inputs.colors import FrameColors
from cosmos_transfer.inputs.containers import declared_end, is_open_ended
from cosmos_transfer.inputs.series import is_pattern, require_exists
from cosmos_transfer.shapes import Size

log = logging.getLogger(__name__)

MediaKind = Literal["video", "image", "folder", "array"]
Array = np.ndarray[Any, np.dtype[Any]]

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff")
ARRAY_SUFFIXES = (".npy", ".npz")
# What Pillow's decoders raise on damaged files, and what NumPy and zipfile do.
_DAMAGED_PICTURE = (
    UnidentifiedImageError,
    OSError,
    SyntaxError,
    ValueError,
    EOFError,
    IndexError,
    OverflowError,
    MemoryError,
    struct.error,
    zlib.error,
)
_DAMAGED_ARRAY = (
    ValueError,
    OSError,
    EOFError,
    KeyError,
    SyntaxError,
    OverflowError,
    MemoryError,
    NotImplementedError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
    tokenize.TokenError,
    SafetensorError,
)
# Pillow's own limit against decompression bombs; stated here because users meet it.
MAX_PICTURE_PIXELS = 178_956_970


def media_kind(path: Path) -> MediaKind:
    """What the path holds, by its first bytes. A glob counts as a folder."""
    if is_pattern(path):
        return "folder"
    require_exists(path, what="a video, a picture, a folder of pictures or an array")
    if path.is_dir():
        return "folder"
    try:
        with path.open("rb") as file:
            head = file.read(16)
    except OSError as error:
        raise unreadable(path, error) from error
    if not head:
        raise MediaError(
            explain(
                str(path),
                expected="a video, a picture or an array",
                got="an empty file (0 bytes)",
                do="Write it again; the program that made it may have failed.",
            )
        )
    if head.startswith(b"\x93NUMPY") or (head.startswith(b"PK\x03\x04") and _is_npz(path)):
        return "array"
    pictures = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF8", b"BM", b"II*\x00", b"MM\x00*")
    if head.startswith(pictures) or (head[:4] == b"RIFF" and head[8:12] == b"WEBP"):
        return "image"
    if path.suffix.lower() == ".safetensors":
        return "array"
    return "video"


def _is_npz(path: Path) -> bool:
    return zipfile.is_zipfile(path) and path.suffix.lower() != ".pt"


def unreadable(path: Path, error: Exception) -> MediaError:
    """The error for a file that is there and cannot be decoded."""
    reason = " ".join(str(error).split()).replace(f": '{path}'", "")
    # FFmpeg's own error numbers are large and mean nothing to a reader.
    reason = re.sub(r"^\[Errno \d{4,}\] ", "", reason)
    return MediaError(
        explain(
            str(path),
            expected="a file that can be read and decoded",
            got=reason or type(error).__name__,
            do="Check that it plays elsewhere; copy or encode it again.",
        )
    )


# ---------------------------------------------------------------------------- pictures


@contextmanager
def open_picture(path: Path) -> Iterator[Image.Image]:
    """A Pillow picture whose faults come out as :class:`MediaError`."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with Image.open(path) as picture:
                yield picture
    except Image.DecompressionBombError as error:
        raise MediaError(
            explain(
                str(path),
                expected=f"a picture of at most {MAX_PICTURE_PIXELS:,} pixels",
                got="a larger one",
                do="Scale it down or cut it into tiles.",
            )
        ) from error
    except _DAMAGED_PICTURE as error:
        if isinstance(error, MediaError):
            raise
        raise unreadable(path, error) from error


def read_picture(path: Path, *, mode: str | None = None) -> Array:
    """The pixels of a still, upright; values and bit depth as in the file unless a mode is given.

    ``mode`` is one of Pillow's (``"RGB"``, ``"RGBA"``, ``"L"``). Sixteen-bit grey comes back as
    uint16 when no mode is given, and scaled to eight bits when one is. Without a mode, palette
    pictures come back as their indices.
    """
    with open_picture(path) as picture:
        upright = ImageOps.exif_transpose(picture)
        if mode is None:
            pixels = np.asarray(upright)
            return _integers_of_sixteen_bits(upright.mode, pixels)
        return convert_picture(path, upright, mode)


def convert_picture(path: Path, picture: Image.Image, mode: str) -> Array:
    """An open picture's pixels in an eight-bit mode."""
    if picture.mode in {"I;16", "I;16L", "I;16B", "I"}:
        sixteen = _integers_of_sixteen_bits(picture.mode, np.asarray(picture))
        if sixteen.dtype == np.uint16:
            eight = ((sixteen.astype(np.uint32) * 255 + 32767) // 65535).astype(np.uint8)
            picture = Image.fromarray(eight)
    if picture.mode in {"F", "I"}:
        raise MediaError(
            explain(
                str(path),
                expected="an 8-bit or 16-bit picture",
                got=f"one of {'floating-point' if picture.mode == 'F' else '32-bit'} values",
                do="Convert it to 8-bit RGB; depth in metres goes to controls.depth.",
            )
        )
    return np.asarray(picture.convert(mode))


def _integers_of_sixteen_bits(mode: str, pixels: Array) -> Array:
    if mode.startswith("I;16"):
        return pixels.astype(np.uint16)
    if mode == "I" and pixels.size and pixels.min() >= 0 and pixels.max() <= 65535:
        return pixels.astype(np.uint16)
    return pixels


def picture_frames(path: Path, mode: str) -> Iterator[tuple[Array, Fraction]]:
    """The frames of a still or an animation (GIF, WebP, PNG) with their start times."""
    with open_picture(path) as picture:
        start = Fraction(0)
        for index in range(getattr(picture, "n_frames", 1)):
            picture.seek(index)
            duration = picture.info.get("duration") or 0
            upright = ImageOps.exif_transpose(picture)
            yield convert_picture(path, upright, mode), start
            # Viewers show a frame without a duration for a tenth of a second.
            start += Fraction(duration).limit_denominator(1000) / 1000 or Fraction(1, 10)


def picture_size(path: Path) -> tuple[int, int]:
    """Height and width of a still when upright, from its header alone."""
    with open_picture(path) as picture:
        width, height = picture.size
        if picture.getexif().get(0x0112, 1) in {5, 6, 7, 8}:
            width, height = height, width
        return height, width


# ---------------------------------------------------------------------------- arrays


def read_array(path: Path, *, mapped: bool = False) -> Array:
    """A ``.npy``, or the only array of a ``.npz`` or ``.safetensors``; pickles are refused.

    ``mapped`` leaves a ``.npy`` on disk until its values are asked for; they are read-only.
    """
    arrays = read_arrays(path, mapped=mapped)
    if len(arrays) != 1 and "arr_0" not in arrays:
        raise MediaError(
            explain(
                str(path),
                expected="one array (or one called arr_0)",
                got=f"{len(arrays)} ({', '.join(list(arrays)[:4])})",
                do="Save the one that is meant with numpy.save.",
            )
        )
    return arrays.get("arr_0", next(iter(arrays.values())))


def read_arrays(path: Path, *, mapped: bool = False) -> dict[str, Array]:
    """All arrays of a ``.npy`` (called arr_0), ``.npz`` or ``.safetensors``, by name.

    Raises:
        MediaError: Damaged, of another kind, or holding pickled objects, which can run code.
    """
    try:
        if path.suffix.lower() == ".safetensors":
            return dict(load_file(path))
        is_plain = path.suffix.lower() == ".npy"
        mode: Literal["r"] | None = "r" if mapped and is_plain else None
        loaded = np.load(path, allow_pickle=False, mmap_mode=mode)
        if isinstance(loaded, np.ndarray):
            return {"arr_0": loaded}
        with loaded:
            return {name: loaded[name] for name in loaded.files}
    except _DAMAGED_ARRAY as error:
        if "pickle" in str(error).lower() or "python objects" in str(error).lower():
            raise MediaError(
                explain(
                    str(path),
                    expected="an array of plain numbers",
                    got="pickled Python objects, which can run code",
                    do="Save it with numpy.save as a numeric array.",
                )
            ) from error
        raise unreadable(path, error) from error


# ---------------------------------------------------------------------------- videos


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamInfo:
    """What a container says about its first video stream, before anything is decoded."""

    codec: str
    pixel_format: str
    average_rate: Fraction | None
    time_base: Fraction


@dataclass(slots=True, kw_only=True)
class VideoFrame:
    """One decoded frame: its upright size, its pixels if asked for, and its time."""

    height: int
    width: int
    seconds: Fraction | None
    pixels: Array | None


def stream_info(path: Path) -> StreamInfo:
    """The first video stream's codec, pixel format and clock."""
    with _open_video(path) as container:
        stream = _video_stream(path, container)
        return StreamInfo(
            codec=stream.codec_context.name,
            pixel_format=str(stream.codec_context.pix_fmt),
            average_rate=stream.average_rate or stream.guessed_rate,
            time_base=stream.time_base or Fraction(1, 1000),
        )


def decode_video(
    path: Path, pixel_format: str | None, *, size: Size | None = None
) -> Iterator[VideoFrame]:
    """Decode the first video stream frame by frame, in the caller's own thread.

    ``pixel_format`` is FFmpeg's name for the wanted layout ("rgb24", "gray", "gray16le", "rgba"),
    or None to decode without converting. ``size`` scales the upright frame to it by area means
    where that is quicker before it becomes RGB (``colors.FrameColors.convert``); other frames come
    at their own size. A frame's ``height`` and ``width`` are its own, upright.
    """
    num_corrupt = 0
    try:
        with _open_video(path) as container:
            stream = _video_stream(path, container)
            _check_whole(path, stream)
            # Decoding whole frames in parallel swallows errors: a damaged clip would come back
            # shorter without a word. Work on the frames is what runs in parallel (parallel.py).
            stream.thread_type = "SLICE"
            stream.codec_context.thread_count = 1
            aspect = stream.codec_context.sample_aspect_ratio
            if aspect and aspect != 1:
                log.warning(
                    "%s: pixels are not square (%s); they are taken as square", path, aspect
                )
            colors = FrameColors()
            for frame in container.decode(stream):
                num_corrupt += bool(frame.is_corrupt)
                turn = _upright(path, frame)
                swaps = _swaps_axes(frame)
                height, width = frame.height, frame.width
                if swaps:
                    height, width = width, height
                pixels = None
                if pixel_format is not None:
                    stored = Size(size.width, size.height) if size and swaps else size
                    pixels = turn(colors.convert(frame, pixel_format, stored))
                seconds = None
                if frame.pts is not None and frame.time_base is not None:
                    seconds = frame.pts * frame.time_base
                yield VideoFrame(height=height, width=width, seconds=seconds, pixels=pixels)
    except av.error.FFmpegError as error:
        raise unreadable(path, error) from error
    if num_corrupt:
        log.warning(
            "%s: %d frames are damaged; they were decoded as well as they go", path, num_corrupt
        )


@contextmanager
def _open_video(path: Path) -> Iterator[Any]:
    try:
        container = av.open(str(path))
    except (av.error.FFmpegError, OSError, ValueError) as error:
        raise unreadable(path, error) from error
    with container:
        yield container


def _check_whole(path: Path, stream: Any) -> None:
    """Refuse a file that ends before its headers say, or before the last frame of its index."""
    listed = max((entry.pos + entry.size for entry in stream.index_entries), default=0)
    end = max(listed, declared_end(path) or 0)
    size = path.stat().st_size
    if end > size:
        raise MediaError(
            explain(
                str(path),
                expected=f"a whole file (its headers reach to byte {end:,})",
                got=f"one that ends at byte {size:,}",
                do="Copy or download it again.",
            )
        )
    if is_open_ended(path):
        log.warning(
            "%s: in fragments, without an index; whether the last ones are missing cannot be told",
            path,
        )


def _video_stream(path: Path, container: Any) -> Any:
    streams = [each for each in container.streams.video if each.codec_context is not None]
    if not streams:
        raise MediaError(
            explain(
                str(path),
                expected="a video stream of a known codec",
                got="a file without one",
                do="Point at a video, a picture or a folder of pictures.",
            )
        )
    return streams[0]


def _display_matrix(frame: Any) -> tuple[int, int, int, int] | None:
    """``(a, b, c, d)`` of the matrix that maps stored (x, y) to shown (a x + c y, b x + d y)."""
    data = frame.side_data.get("DISPLAYMATRIX")
    if data is None:
        return None
    a, b, _, c, d = (int(v) for v in np.frombuffer(data, dtype=np.int32)[:5])
    return a, b, c, d


def _swaps_axes(frame: Any) -> bool:
    matrix = _display_matrix(frame)
    return matrix is not None and abs(matrix[1]) > abs(matrix[0])


def _upright(path: Path, frame: Any) -> Callable[[Array], Array]:
    """The turn and mirror that the display matrix asks for."""
    matrix = _display_matrix(frame)
    if matrix is None:
        return lambda pixels: pixels
    a, b, c, d = matrix
    small, large = sorted((abs(a) + abs(d), abs(b) + abs(c)))
    if small > large * 1e-3:
        raise MediaError(
            explain(
                str(path),
                expected="a rotation tag of a multiple of 90 degrees",
                got=f"{frame.rotation} degrees",
                do="Encode the clip upright.",
            )
        )
    swap = abs(b) > abs(a)
    flip_x, flip_y = (c < 0, b < 0) if swap else (a < 0, d < 0)

    def turn(pixels: Array) -> Array:
        turned = pixels.swapaxes(0, 1) if swap else pixels
        if flip_x:
            turned = turned[:, ::-1]
        return np.ascontiguousarray(turned[::-1] if flip_y else turned)

    return turn
