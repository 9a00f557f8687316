"""Depth: metres along the optical axis in, the near-is-bright picture of the Cosmos controls out.

Inside, depth is float32 metres ``f h w`` with NaN where there is no reading. The picture has one
normalisation for the whole clip, taken over finite values, so that a thing entering the view does
not change the brightness of the rest. No reading, and sky, are black, as far away is.

Units: ``m``, ``mm``, ``kitti256`` (1/256 m, 0 invalid), ``tum5000`` (1/5000 m), ``carla24``
(24 bits in R, G, B, R lowest; 1 km is sky), ``mujoco01`` (a depth buffer, 0 at the near plane and
1 at the far plane), ``lerobot12`` (12-bit codes of logarithmic steps from 0.01 m to 10 m, 0
invalid), ``relative`` (a picture without a unit, taken as it is).
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32, Num, UInt8

from cosmos_transfer.errors import ConfigError, MediaError, ShapeError, explain
from cosmos_transfer.inputs.exr import EXR_SUFFIX, is_exr, read_exr
from cosmos_transfer.inputs.media import (
    ARRAY_SUFFIXES,
    IMAGE_SUFFIXES,
    Array,
    MediaKind,
    decode_video,
    media_kind,
    read_array,
    read_picture,
    stream_info,
)
from cosmos_transfer.inputs.series import list_series
from cosmos_transfer.shapes import Size

log = logging.getLogger(__name__)

_UNITS_PER_METRE = {"m": 1.0, "mm": 1000.0, "kitti256": 256.0, "tum5000": 5000.0}
DEPTH_UNITS = (*_UNITS_PER_METRE, "carla24", "mujoco01", "lerobot12", "relative")
CHANNEL_ORDERS = ("rgb", "bgr")
# LeRobot's depth videos: codes of log(metres + shift), from the nearest to the farthest depth.
_LEROBOT_NEAR, _LEROBOT_FAR, _LEROBOT_SHIFT, _LEROBOT_TOP = 0.01, 10.0, 3.5, 4095
# The wrong order of CARLA's channels makes neighbours differ by this many times more, at least.
_ROUGHER = 8.0
_CARLA_SKY = 999.0
_NEAR_PERCENTILE, _FAR_PERCENTILE = 1.0, 99.0
# Percentiles over more values than this are taken over evenly spaced ones.
_MAX_SAMPLES = 4_000_000
# Outside this range a median depth is more likely a wrong unit than a scene.
_PLAUSIBLE_METRES = (0.02, 300.0)
_LOSSLESS = frozenset({"ffv1", "png", "rawvideo", "tiff"})
_EVERY_UNIT = f"Set unit to {', '.join(DEPTH_UNITS[:-1])} or {DEPTH_UNITS[-1]}."


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DepthClip:
    """Metres, NaN where invalid; at least one finite value.

    Where the unit is ``relative``, ``brightness`` is the picture that was given, and ``metres``
    is its inverse: ordered and smooth like depth, with scale and offset unknown.
    """

    metres: Float32[np.ndarray, "f h w"]
    brightness: UInt8[np.ndarray, "f h w"] | None = None
    near: float | None = None
    far: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def num_frames(self) -> int:
        """How many frames there are."""
        return len(self.metres)

    @property
    def size(self) -> Size:
        """Height and width."""
        return Size(*self.metres.shape[1:])

    @property
    def is_relative(self) -> bool:
        """Whether the depth has no unit."""
        return self.brightness is not None

    @property
    def invalid_share(self) -> float:
        """The share of pixels without a reading."""
        return float(np.isnan(self.metres).mean())


def depth_picture(depth: DepthClip | np.ndarray) -> UInt8[np.ndarray, "f h w 3"]:
    """The control picture: ``(1/z - 1/z_far) / (1/z_near - 1/z_far)``, clipped to [0, 1].

    ``z_near`` and ``z_far`` are the clip's 1st and 99th percentile of finite depth, or the
    ``near`` and ``far`` that were given. A clip at one single depth is mid-grey. Brightness that
    was given as relative depth is not touched.
    """
    if isinstance(depth, np.ndarray):
        depth = DepthClip(metres=np.asarray(depth, dtype=np.float32))
    if depth.brightness is not None:
        return np.repeat(depth.brightness[..., None], 3, axis=-1)
    low, high = depth_range(depth)
    picture = np.zeros((*depth.metres.shape, 3), dtype=np.uint8)
    for metres, shown in zip(depth.metres, picture, strict=True):
        known = np.isfinite(metres)
        inverse = 1.0 / metres[known].astype(np.float64)
        if high > low:
            bright = (inverse - 1.0 / high) / (1.0 / low - 1.0 / high)
        else:
            bright = np.full_like(inverse, 0.5)
        shown[known] = np.rint(255 * np.clip(bright, 0.0, 1.0))[:, None].astype(np.uint8)
    return picture


def depth_range(depth: DepthClip) -> tuple[float, float]:
    """The nearest and farthest depth of the picture, in metres."""
    if depth.near is not None and depth.far is not None:
        return depth.near, depth.far
    flat = depth.metres.reshape(-1)
    flat = flat[:: max(1, flat.size // _MAX_SAMPLES)]
    finite = flat[np.isfinite(flat)]
    if not finite.size:
        finite = depth.metres[np.isfinite(depth.metres)]
    low, high = np.percentile(finite.astype(np.float64), (_NEAR_PERCENTILE, _FAR_PERCENTILE))
    near = depth.near if depth.near is not None else float(low)
    far = depth.far if depth.far is not None else float(high)
    return near, max(near, far)


def read_depth(
    path: str | Path,
    *,
    unit: str | None = None,
    kind: str = "planar",
    invalid: Sequence[float | int] = (0.0, math.inf, math.nan),
    near: float | int | None = None,
    far: float | int | None = None,
    direction: str = "near_bright",
    intrinsics: Sequence[float | int] | None = None,
    channel_order: str = "rgb",
    extent: float | int | None = None,
    flip_vertical: bool = False,
) -> DepthClip:
    """Read depth from a folder or glob, a picture (EXR too), a ``.npy``/``.npz``, or a video.

    Args:
        path: 16-bit or float pictures, arrays ``f h w``, CARLA pictures, lossless 16-bit video; or,
            for ``relative``, anything 8-bit, lossy video included.
        unit: See the module. May be left out for 8-bit pictures (relative) and for
            floating-point data (metres); never for 16-bit data.
        kind: "planar" (distance along the optical axis) or "ray" (distance to the camera centre,
            such as Isaac's ``distance_to_camera``), which needs ``intrinsics``.
        invalid: Raw values that mean no reading; infinite and NaN always do.
        near: Metres; the near plane for ``mujoco01``, the nearest code for ``lerobot12``, otherwise
            the brightest end of the picture.
        far: Metres; the far plane for ``mujoco01``, the farthest code for ``lerobot12``, otherwise
            the darkest end of the picture.
        direction: For ``relative``: "near_bright" or "near_dark".
        intrinsics: fx, fy, cx, cy in pixels; pixel centres at +0.5.
        channel_order: For ``carla24``: "rgb" for files, "bgr" for the sensor's raw_data (BGRA).
        extent: For ``mujoco01``: the model's ``stat.extent``, where near and far are the model's
            ``znear`` and ``zfar``, which count in extents.
        flip_vertical: The rows run from the bottom up, as in raw OpenGL buffers.

    Raises:
        ConfigError: The unit is missing or does not fit the file.
        MediaError: The file is missing or unreadable, or holds no reading at all.
        ShapeError: Not one depth per pixel, or frames of different sizes.
    """
    path = Path(path)
    media = depth_media_kind(path)
    frames: Iterator[Array]
    if media == "video":
        frames = _video_frames(path, unit)
    elif media == "array":
        frames = iter(_array_frames(path, read_array(path), unit))
    elif media == "folder":
        suffixes = (*IMAGE_SUFFIXES, *ARRAY_SUFFIXES, EXR_SUFFIX)
        files = list_series(path, suffixes, what="depth frames").files
        frames = (_one_frame(file, unit) for file in files)
    else:
        frames = iter([read_exr(path) if is_exr(path) else read_picture(path)])
    raw = _stacked(path, frames, unit)
    return depth_from_array(
        raw,
        unit=unit,
        kind=kind,
        invalid=invalid,
        near=near,
        far=far,
        direction=direction,
        intrinsics=intrinsics,
        channel_order=channel_order,
        extent=extent,
        flip_vertical=flip_vertical,
        where=str(path),
    )


def depth_media_kind(path: Path) -> MediaKind:
    """Like :func:`~cosmos_transfer.inputs.media.media_kind`; an EXR is a picture here."""
    return "image" if path.is_file() and is_exr(path) else media_kind(path)


def depth_from_array(
    raw: Num[np.ndarray, "..."],
    *,
    unit: str | None = None,
    kind: str = "planar",
    invalid: Sequence[float | int] = (0.0, math.inf, math.nan),
    near: float | int | None = None,
    far: float | int | None = None,
    direction: str = "near_bright",
    intrinsics: Sequence[float | int] | None = None,
    channel_order: str = "rgb",
    extent: float | int | None = None,
    flip_vertical: bool = False,
    where: str = "depth",
) -> DepthClip:
    """The same for raw values in memory: ``f h w``, ``h w``, ``f h w 1``, or coloured for CARLA."""
    raw = _with_time(raw, unit, where)
    unit = _settled_unit(raw, unit, where)
    if flip_vertical:
        raw = raw[:, ::-1]
    if unit == "relative":
        return _relative(raw, direction, where)
    notes: list[str] = []
    if unit == "carla24":
        metres = carla_metres(raw, channel_order=channel_order, where=where)
        no_reading = metres > _CARLA_SKY
        notes += _other_order(raw, metres, channel_order, where)
    else:
        if raw.ndim == 4:
            raw = _one_channel(raw, unit, where)
        is_coded = unit in ("mujoco01", "lerobot12")
        metres = raw.astype(np.float64 if is_coded else np.float32)
        no_reading = _is_any(raw, invalid)
        if unit == "mujoco01":
            no_reading = ~np.isfinite(raw) | (raw >= 1.0)  # 0 is the near plane, 1 is nothing hit
            metres = _from_depth_buffer(metres, near, far, extent, where)
            near = far = None
        elif unit == "lerobot12":
            metres = _from_lerobot_codes(metres, near, far, where)
            near = far = None
        else:
            with np.errstate(invalid="ignore", over="ignore"):  # what overflows is no reading
                metres /= np.float32(_UNITS_PER_METRE[unit])  # divided: 1500 mm are 1.5 m exactly
    with np.errstate(invalid="ignore"):
        no_reading |= ~np.isfinite(metres) | (metres <= 0)
    metres = metres.astype(np.float32)
    metres[no_reading] = np.nan
    share = float(no_reading.mean())
    if share == 1.0:
        raise MediaError(
            explain(
                where,
                expected="at least one finite depth",
                got="none: every pixel is NaN, infinite, not above 0, or marked invalid",
                do="Check the file, the unit and the invalid values.",
            )
        )
    if kind == "ray":
        metres = _planar(metres, intrinsics, where)
    if share:
        notes.append(f"{share:.2%} of the depth pixels have no reading; they are drawn as far away")
    if lost := int(no_reading.all(axis=(1, 2)).sum()):
        notes.append(f"{lost} depth frames have no reading at all")
    notes += _plausible(metres)
    for note in notes:
        log.warning("%s: %s", where, note)
    return DepthClip(
        metres=metres,
        near=None if near is None else float(near),
        far=None if far is None else float(far),
        notes=tuple(notes),
    )


def carla_metres(
    raw: UInt8[np.ndarray, "f h w c"], *, channel_order: str = "rgb", where: str
) -> Array:
    """Metres of CARLA's 24-bit depth: ``1000 (R + 256 G + 65536 B) / (2^24 - 1)``."""
    if channel_order not in CHANNEL_ORDERS:
        raise ConfigError(
            explain(
                "channel_order",
                expected=" or ".join(CHANNEL_ORDERS),
                got=repr(channel_order),
                do="Files hold rgb; the sensor's raw_data holds bgr.",
            )
        )
    if raw.ndim != 4 or raw.shape[-1] not in {3, 4} or raw.dtype != np.uint8:
        raise _not_depth(where, "8-bit R, G, B for the unit carla24", raw)
    channels = (0, 1, 2) if channel_order == "rgb" else (2, 1, 0)
    red, green, blue = (raw[..., channel].astype(np.float64) for channel in channels)
    inside = (raw[..., :3] != 255).any(-1) & (raw[..., :3] != 0).any(-1)
    grey = (raw[..., 0] == raw[..., 1]) & (raw[..., 1] == raw[..., 2])
    if inside.any() and grey[inside].all():
        raise ConfigError(
            explain(
                where,
                expected="CARLA's raw 24-bit depth",
                got="grey pictures, which are its logarithmic view and cannot be undone",
                do="Save the sensor's raw image, or set unit: relative with direction: near_dark.",
            )
        )
    metres: Array = 1000.0 * (red + 256.0 * green + 65536.0 * blue) / (2**24 - 1)
    return metres


def _other_order(raw: Array, metres: Array, channel_order: str, where: str) -> list[str]:
    """A note where the other order of channels would give a far smoother picture."""
    other = "bgr" if channel_order == "rgb" else "rgb"
    middle = len(raw) // 2
    one = carla_metres(raw[middle : middle + 1], channel_order=other, where=where)
    steps = [float(np.abs(np.diff(each, axis=-1)).mean()) for each in (metres[middle], one[0])]
    if raw.shape[2] < 2 or steps[0] <= _ROUGHER * steps[1]:
        return []
    return [f"neighbours differ by {steps[0]:.3g} m on average; channel_order may be {other}"]


# ---------------------------------------------------------------------------- reading


def _video_frames(path: Path, unit: str | None) -> Iterator[Array]:
    info = stream_info(path)
    bits = re.match(r"gray(\d+)", info.pixel_format)
    deep = bits is not None
    lossless = info.codec in _LOSSLESS or (info.codec == "h264" and info.pixel_format == "gbrp")
    if unit in {"carla24", "mm", "kitti256", "tum5000"} and not (lossless or deep):
        raise ConfigError(
            explain(
                str(path),
                expected=f"lossless pictures for depth in {unit}",
                got=f"a lossy video ({info.codec}, {info.pixel_format})",
                do="Give PNG or NPY frames, or unit: relative if near is bright.",
            )
        )
    depth_in_bits = 12 if unit == "lerobot12" else 16
    if (bits is None and unit == "lerobot12") or (bits and int(bits.group(1)) != depth_in_bits):
        raise ConfigError(
            explain(
                str(path),
                expected="12-bit grey video"
                if unit == "lerobot12"
                else "8-bit or 16-bit grey video",
                got=info.pixel_format,
                do="Set unit: lerobot12 for LeRobot's 12-bit depth; otherwise decode it to PNG or "
                "NPY frames in millimetres first.",
            )
        )
    wanted = f"gray{depth_in_bits}le" if deep else "rgb24" if unit == "carla24" else "gray"
    for frame in decode_video(path, wanted):
        assert frame.pixels is not None
        yield frame.pixels


def _one_frame(file: Path, unit: str | None) -> Array:
    if is_exr(file):
        return read_exr(file)
    if file.suffix.lower() not in ARRAY_SUFFIXES:
        return read_picture(file)
    frames = _array_frames(file, read_array(file), unit)
    if len(frames) != 1:
        raise ShapeError(
            explain(
                str(file),
                expected="one frame (height x width)",
                got=f"{len(frames)} frames",
                do="Point at the array itself instead of its folder.",
            )
        )
    frame: Array = frames[0]
    return frame


def _array_frames(path: Path, array: Array, unit: str | None) -> Array:
    return _with_time(array, unit, str(path))


def _stacked(path: Path, frames: Iterator[Array], unit: str | None) -> Array:
    kept: list[Array] = []
    for frame in frames:
        if kept and frame.shape != kept[0].shape:
            raise ShapeError(
                explain(
                    str(path),
                    expected=f"every frame to be {Size(*kept[0].shape[:2])}, like the first",
                    got=f"{Size(*frame.shape[:2])} at frame {len(kept)}",
                    do="Render all frames at one size.",
                )
            )
        kept.append(frame)
    if not kept:
        raise MediaError(
            explain(str(path), expected="at least one frame", got="none", do="Write it again.")
        )
    return np.stack(kept)


# ---------------------------------------------------------------------------- meaning


def _with_time(raw: Array, unit: str | None, where: str) -> Array:
    """``f h w`` or ``f h w c``, whatever axes were left out."""
    if raw.dtype.kind not in "uif" or 0 in raw.shape:
        raise _not_depth(where, "numbers of shape frames x height x width", raw)
    coloured = raw.dtype == np.uint8 and raw.ndim >= 3 and raw.shape[-1] in {3, 4}
    if raw.ndim == 4 and raw.shape[-1] == 1:
        raw = raw[..., 0]
    if raw.ndim == 2 or (raw.ndim == 3 and coloured and unit in {"carla24", "relative", None}):
        raw = raw[None]
    if raw.ndim == 3 or (raw.ndim == 4 and coloured):
        return raw
    raise _not_depth(where, "numbers of shape frames x height x width", raw)


def _settled_unit(raw: Array, unit: str | None, where: str) -> str:
    if unit is None:
        if raw.dtype == np.uint8:
            return "relative"
        if raw.dtype.kind == "f":
            return "m"
        raise ConfigError(
            explain(
                where,
                expected=f"a unit for {raw.dtype} depth",
                got="none",
                do=f"{_EVERY_UNIT}",
            )
        )
    if unit not in DEPTH_UNITS:
        raise ConfigError(
            explain("unit", expected=", ".join(DEPTH_UNITS), got=repr(unit), do=_EVERY_UNIT)
        )
    if raw.dtype == np.uint8 and unit in {"mm", "kitti256", "tum5000", "mujoco01", "lerobot12"}:
        raise ConfigError(
            explain(
                where,
                expected=f"more than 8 bits for depth in {unit}",
                got="8-bit pictures",
                do="Save 16-bit PNG or float arrays, or set unit: relative.",
            )
        )
    return unit


def _one_channel(raw: Array, unit: str, where: str) -> Array:
    """Grey that was saved as colour."""
    if not (raw[..., :3] == raw[..., :1]).all():
        raise _not_depth(where, f"one value per pixel for the unit {unit}", raw)
    grey: Array = raw[..., 0]
    return grey


def _is_any(raw: Array, invalid: Sequence[float | int]) -> Array:
    found = np.zeros(raw.shape, dtype=bool)
    for value in invalid:
        if math.isfinite(value):
            found |= raw == value
    if raw.dtype.kind == "f":
        found |= ~np.isfinite(raw)
    return found


def _from_depth_buffer(
    buffer: Array,
    near: float | int | None,
    far: float | int | None,
    extent: float | int | None,
    where: str,
) -> Array:
    """``z = near / (1 - d (1 - near / far))``: OpenGL's buffer with 0 near and 1 far."""
    if near is None or far is None or not 0 < near < far:
        raise ConfigError(
            explain(
                where,
                expected="near and far in metres for the unit mujoco01",
                got=f"near {near}, far {far}",
                do="Set near to znear * extent and far to zfar * extent of the model, or to znear "
                "and zfar and extent as well.",
            )
        )
    if extent is not None:
        near, far = near * extent, far * extent
    finite = buffer[np.isfinite(buffer)]
    if finite.size and (finite.min() < 0 or finite.max() > 1):
        raise ConfigError(
            explain(
                where,
                expected="a depth buffer in [0, 1] for the unit mujoco01",
                got=f"{finite.min():g} to {finite.max():g}",
                do="Set unit: m if these are metres already (mujoco.Renderer gives metres).",
            )
        )
    metres: Array = near / (1.0 - buffer * (1.0 - near / far))
    return metres


def _from_lerobot_codes(
    codes: Array, near: float | int | None, far: float | int | None, where: str
) -> Array:
    """``z = exp(log(near + s) + q / 4095 (log(far + s) - log(near + s))) - s``, s = 3.5 m.

    Source:
        LeRobot, depth features of datasets (codes after BEHAVIOR-1K's ``quantize_depth``).
    """
    low = _LEROBOT_NEAR if near is None else float(near)
    high = _LEROBOT_FAR if far is None else float(far)
    finite = codes[np.isfinite(codes)]
    if finite.size and (finite.min() < 0 or finite.max() > _LEROBOT_TOP):
        raise ConfigError(
            explain(
                where,
                expected=f"codes from 0 to {_LEROBOT_TOP} for the unit lerobot12",
                got=f"{finite.min():g} to {finite.max():g}",
                do="Set unit: mm for 16-bit millimetres.",
            )
        )
    first, last = math.log(low + _LEROBOT_SHIFT), math.log(high + _LEROBOT_SHIFT)
    metres: Array = np.exp(first + codes / _LEROBOT_TOP * (last - first)) - _LEROBOT_SHIFT
    return metres


def _planar(
    metres: Float32[np.ndarray, "f h w"],
    intrinsics: Sequence[float | int] | None,
    where: str,
) -> Float32[np.ndarray, "f h w"]:
    """Distance to the camera centre -> distance along the optical axis."""
    if intrinsics is None:
        raise ConfigError(
            explain(
                where,
                expected="intrinsics (fx, fy, cx, cy) for depth of kind ray",
                got="none",
                do="Set intrinsics, or give planar depth (distance_to_image_plane).",
            )
        )
    fx, fy, cx, cy = intrinsics
    if fx <= 0 or fy <= 0:
        raise ConfigError(
            explain(
                "intrinsics",
                expected="focal lengths above 0",
                got=f"{fx:g}, {fy:g}",
                do="Give fx, fy, cx, cy in pixels.",
            )
        )
    height, width = metres.shape[1:]
    x = (np.arange(width) + 0.5 - cx) / fx
    y = (np.arange(height) + 0.5 - cy) / fy
    slant = np.sqrt(1.0 + x[None, :] ** 2 + y[:, None] ** 2)
    return (metres / slant).astype(np.float32)


def _relative(raw: Array, direction: str, where: str) -> DepthClip:
    if raw.ndim == 4:
        # A coloured depth view (turbo, viridis) has no brightness to read.
        spread = np.ptp(raw[..., :3].astype(np.int16), axis=-1)
        if np.mean(spread > 24) > 0.05:
            raise _not_depth(where, "grey pictures for the unit relative", raw)
        brightness = raw[..., :3].mean(axis=-1).round().astype(np.uint8)
    elif raw.dtype == np.uint8:
        brightness = raw
    elif raw.dtype == np.uint16:
        brightness = ((raw.astype(np.uint32) * 255 + 32767) // 65535).astype(np.uint8)
    elif raw.dtype.kind == "f":
        finite = raw[np.isfinite(raw)].astype(np.float64)
        if not finite.size:
            raise MediaError(
                explain(
                    where,
                    expected="at least one finite depth",
                    got="none: every pixel is NaN or infinite",
                    do="Check the file.",
                )
            )
        low, high = np.percentile(finite, (_NEAR_PERCENTILE, _FAR_PERCENTILE))
        unit_range = np.clip((raw.astype(np.float64) - low) / max(high - low, 1e-12), 0, 1)
        brightness = np.rint(255 * np.nan_to_num(unit_range)).astype(np.uint8)
    else:
        raise _not_depth(where, "8-bit, 16-bit or floating-point relative depth", raw)
    if direction == "near_dark":
        brightness = np.uint8(255) - brightness
    with np.errstate(divide="ignore"):
        metres = np.where(brightness > 0, 255.0 / brightness, np.nan).astype(np.float32)
    return DepthClip(metres=metres, brightness=np.ascontiguousarray(brightness))


def _plausible(metres: Float32[np.ndarray, "f h w"]) -> list[str]:
    flat = metres.reshape(-1)[:: max(1, metres.size // 100_000)]
    finite = flat[np.isfinite(flat)]
    if not finite.size:
        return []
    median = float(np.median(finite))
    low, high = _PLAUSIBLE_METRES
    if low <= median <= high:
        return []
    return [f"the median depth is {median:g} m; check the unit"]


def _not_depth(where: str, expected: str, raw: Any) -> ShapeError:
    return ShapeError(
        explain(
            where,
            expected=expected,
            got=f"shape {raw.shape} {raw.dtype}",
            do="Save one depth per pixel, time axis first.",
        )
    )
