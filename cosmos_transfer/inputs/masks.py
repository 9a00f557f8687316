"""Masks and weight maps: where a control acts, from 0 (not at all) to 1 (fully).

White applies. Grey levels are kept, never thresholded. Alpha is read where it varies within the
clip (or is 0 throughout), otherwise luma (0.299 R + 0.587 G + 0.114 B); 16-bit pictures are read
at full depth. Arrays are booleans, 0 to 1, 0 to 255 or 0 to 65535; which of them it was stands in
:attr:`Mask.read_as`. A still is one frame, and stands for every frame of a clip.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float, Float32

from cosmos_transfer.errors import ConfigError, MediaError, ShapeError, explain
from cosmos_transfer.inputs.media import (
    ARRAY_SUFFIXES,
    IMAGE_SUFFIXES,
    Array,
    decode_video,
    media_kind,
    open_picture,
    picture_frames,
    read_array,
    read_picture,
    stream_info,
)
from cosmos_transfer.inputs.series import list_series
from cosmos_transfer.shapes import Size

log = logging.getLogger(__name__)

_LUMA = np.array([0.299, 0.587, 0.114], dtype=np.float32)
BINARY_THRESHOLD = 0.5
"""Where ``binary`` draws the line in a soft mask; the line itself is white."""
# Fractions above 1 are levels of 255 only where they come near to it: 100 might be percent.
_LEVELS_ABOVE = 100.0
_ALPHA_FORMATS = ("rgba", "argb", "bgra", "abgr", "yuva", "gbrap", "ya8", "ya16")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Mask:
    """Values in [0, 1], and how they were read: ``luma``, ``alpha``, ``0 to 255``, ...; one frame
    for a still."""

    values: Float32[np.ndarray, "f h w"]
    read_as: str


def read_mask(
    source: str | Path | np.ndarray,
    *,
    invert: bool = False,
    binary: bool = False,
    where: str = "mask",
) -> Float32[np.ndarray, "f h w"]:
    """The values of :func:`open_mask`."""
    return open_mask(source, invert=invert, binary=binary, where=where).values


def open_mask(
    source: str | Path | np.ndarray,
    *,
    invert: bool = False,
    binary: bool = False,
    where: str = "mask",
) -> Mask:
    """Read a mask from a picture, a video, a folder, an array file, or an array.

    Args:
        source: A path, or an array ``f h w`` (or ``h w``): booleans, fractions in [0, 1], 8-bit or
            16-bit numbers, or other numbers from 0 to 255. Whole-number masks that hold only 0
            and 1 are taken as off and on.
        invert: Black applies instead of white.
        binary: Grey from :data:`BINARY_THRESHOLD` on becomes white, below it black; before
            ``invert``.
        where: What errors call an array.

    Raises:
        ConfigError: Values outside [0, 1] or not finite, or a file that could run code.
        MediaError: The file is missing or cannot be decoded.
        ShapeError: The array is not ``f h w``, or frames differ in size.
    """
    mask = _from_array(source, where) if isinstance(source, np.ndarray) else _read(Path(source))
    values, said = mask.values, [mask.read_as]
    if binary:
        values = (values >= BINARY_THRESHOLD).astype(np.float32)
        said.append(f"white from {BINARY_THRESHOLD:g} on")
    if invert:
        values = np.float32(1.0) - values
        said.append("inverted")
    return replace(mask, values=values, read_as=", ".join(said))


def _from_array(array: Array, where: str) -> Mask:
    if array.ndim == 4 and array.shape[-1] == 1:
        array = array[..., 0]
    if array.ndim == 4 and array.shape[-1] in {3, 4} and array.dtype == np.uint8:
        return _stack(where, map(_layers, array))
    if array.ndim == 2:
        array = array[None]
    if array.ndim != 3 or 0 in array.shape:
        raise ShapeError(
            explain(
                where,
                expected="a mask of shape frames x height x width",
                got=f"shape {array.shape}",
                do="Put the time axis first and drop the colour axis.",
            )
        )
    return _scaled(array, where=where)


def mask_coverage(mask: Float[np.ndarray, "f h w"]) -> float:
    """The share of the clip that the mask covers: its mean."""
    return float(mask.mean(dtype=np.float64))


def check_not_empty(mask: Float[np.ndarray, "f h w"], *, where: str, allow_empty: bool) -> None:
    """Refuse a mask that selects nothing, unless that was meant.

    An empty mask never means everywhere.
    """
    if mask.any() or allow_empty:
        return
    raise ConfigError(
        explain(
            where,
            expected="at least one pixel above 0",
            got="none (it selects nothing)",
            do="Check it (white applies, invert turns it round), or set allow_empty: true.",
        )
    )


# One frame as luma and alpha, both in [0, 1]; None where every pixel is opaque.
_Layers = tuple[Array, Array | None]


def _read(path: Path) -> Mask:
    if path.suffix.lower() in {".pt", ".pth", ".pkl", ".pickle"}:
        raise ConfigError(
            explain(
                str(path),
                expected="a picture, a video, a folder, .npy, .npz or .safetensors",
                got=f"{path.suffix}, which can run code when opened",
                do="Save it with numpy.save.",
            )
        )
    kind = media_kind(path)
    if kind == "array":
        return _from_array(read_array(path), str(path))
    if kind == "video":
        info = stream_info(path)
        wanted = "rgba" if info.pixel_format.startswith(_ALPHA_FORMATS) else "rgb24"
        if info.pixel_format.startswith("gray") and not info.pixel_format.endswith("gray"):
            wanted = "gray16le"
        return _stack(str(path), map(_layers, _video_pixels(path, wanted)))
    if kind == "folder":
        files = list_series(path, (*IMAGE_SUFFIXES, *ARRAY_SUFFIXES), what="mask pictures").files
        return _stack(str(path), (layers for file in files for layers in _file_layers(file)))
    return _stack(str(path), _picture_layers(path))


def _video_pixels(path: Path, wanted: str) -> Iterator[Array]:
    for frame in decode_video(path, wanted):
        assert frame.pixels is not None
        yield frame.pixels


def _file_layers(file: Path) -> Iterator[_Layers]:
    """The one frame of a file in a folder."""
    if file.suffix.lower() in ARRAY_SUFFIXES:
        frames: list[_Layers] = [(m, None) for m in _from_array(read_array(file), str(file)).values]
    else:
        frames = list(_picture_layers(file))
    if len(frames) != 1:
        raise ShapeError(
            explain(str(file), expected="one frame", got=f"{len(frames)}", do="Split the frames.")
        )
    yield frames[0]


def _picture_layers(path: Path) -> Iterator[_Layers]:
    """A still at full depth, or each frame of an animation."""
    with open_picture(path) as picture:
        is_animation = getattr(picture, "n_frames", 1) > 1
        is_opaque_grey = picture.mode in {"1", "L"} and "transparency" not in picture.info
        is_deep = picture.mode in {"F", "I"} or picture.mode.startswith("I;16")
    if is_deep:
        yield _scaled(read_picture(path)[None], where=str(path)).values[0], None
        return
    if is_opaque_grey and not is_animation:  # a large map need not stand in memory in colour
        yield _layers(read_picture(path, mode="L"))
        return
    for frame, _ in picture_frames(path, "RGBA"):
        yield _layers(frame)


def _layers(pixels: Array) -> _Layers:
    """Luma and alpha of 8-bit colour, or of 8-bit or 16-bit grey."""
    top = np.float32(65535 if pixels.dtype == np.uint16 else 255)
    if pixels.ndim == 2:
        return pixels.astype(np.float32) / top, None
    rgb = pixels[..., :3]
    if (rgb == rgb[..., :1]).all():
        # Exact for grey: the luma weights sum to one only up to rounding.
        luma = rgb[..., 0].astype(np.float32) / top
    else:
        luma = np.clip(rgb.astype(np.float32) @ _LUMA / top, 0, 1)
    if pixels.shape[-1] == 3 or (pixels[..., 3] == 255).all():
        return luma, None
    return luma, pixels[..., 3].astype(np.float32) / top


def _stack(where: str, frames: Iterator[_Layers]) -> Mask:
    lumas: list[Array] = []
    alphas: list[Array | None] = []
    for luma, alpha in frames:
        if lumas and luma.shape != lumas[0].shape:
            raise ShapeError(
                explain(
                    where,
                    expected=f"every frame to be {Size(*lumas[0].shape)}, like the first",
                    got=f"{Size(*luma.shape)} at frame {len(lumas)}",
                    do="Scale the frames to one size.",
                )
            )
        lumas.append(luma)
        alphas.append(alpha)
    if not lumas:
        raise MediaError(
            explain(where, expected="at least one frame", got="none", do="Write the mask again.")
        )
    if any(alpha is not None for alpha in alphas):
        opaque = np.ones_like(lumas[0])
        mask = np.stack([opaque if alpha is None else alpha for alpha in alphas])
        if mask.min() != mask.max() or not mask.any():
            return Mask(values=mask, read_as="alpha")
    return _zero_and_one(np.stack(lumas), where)


def _zero_and_one(mask: Float32[np.ndarray, "f h w"], where: str) -> Mask:
    """Files that say 1 (of 255) for on: brought to 1."""
    top = np.float32(1 / 255)
    if mask.max() == top and len(np.unique(mask)) <= 2 and not mask.min():
        log.warning("%s: holds only 0 and 1 of 255; taken as off and on", where)
        return Mask(values=mask * np.float32(255), read_as="off and on")
    return Mask(values=mask, read_as="luma")


def _scaled(array: Array, *, where: str) -> Mask:
    """Booleans, whole numbers or fractions to [0, 1]."""
    if array.dtype == np.bool_:
        return Mask(values=array.astype(np.float32), read_as="off and on")
    if array.dtype.kind in "iu":
        low, high = int(array.min()), int(array.max())
        if low >= 0 and high <= 1:
            return Mask(values=array.astype(np.float32), read_as="off and on")
        if array.dtype in (np.uint8, np.uint16):
            return _levels(array, int(np.iinfo(array.dtype).max))
        if low >= 0 and high <= 255:
            return _levels(array, 255)
        raise _out_of_range(where, float(low), float(high))
    if array.dtype.kind != "f":
        raise ShapeError(
            explain(where, expected="numbers", got=str(array.dtype), do="Save it as float32.")
        )
    low_f, high_f = float(array.min()), float(array.max())
    # NaN fails every comparison.
    if low_f >= 0.0 and high_f <= 1.0:
        return Mask(values=array.astype(np.float32), read_as="0 to 1")
    if low_f >= 0.0 and _LEVELS_ABOVE < high_f <= 255.0 and np.median(array[array > 0]) > 1.0:
        log.warning("%s: holds %g to %g; taken as 0 to 255", where, low_f, high_f)
        return _levels(array, 255)
    raise _out_of_range(where, low_f, high_f)


def _levels(array: Array, top: int) -> Mask:
    """Levels from 0 to ``top`` as fractions."""
    values = (array.astype(np.float64) / top).astype(np.float32)
    return Mask(values=values, read_as=f"0 to {top}")


def _out_of_range(where: str, low: float, high: float) -> ConfigError:
    return ConfigError(
        explain(
            where,
            expected="finite values in [0, 1]",
            got=f"{low:g} to {high:g}",
            do="Scale them to 0 (off) .. 1 (full strength).",
        )
    )
