"""``transforms.json`` of nerf-synthetic, instant-ngp and nerfstudio: what it says, as typed values.

Poses come out with OpenCV axes and in the file's own world units; :mod:`ngpc.geometry.cameras`
says the conventions. Pictures are found here and read when they are wanted. Keys that bend rays
(``k1`` and its kin, fisheye) are refused unless they are zero, by name.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from PIL import Image as PillowImage
from PIL import UnidentifiedImageError

from ngpc.errors import MediaError, explain
from ngpc.geometry.boxes import Box, cube_around
from ngpc.geometry.cameras import Intrinsics, opengl_to_opencv

EXTENSIONS = (".png", ".jpg", ".jpeg", ".exr")  # in the order they are tried
DISTORTIONS = ("k1", "k2", "k3", "k4", "p1", "p2")
INSTANT_NGP_SCALE, INSTANT_NGP_OFFSET = 0.33, 0.5  # world to unit cube, where a file is silent
PINHOLES = ("OPENCV", "PINHOLE", "SIMPLE_PINHOLE")


@dataclass(frozen=True, slots=True, kw_only=True)
class PosedImage:
    """One view: where its picture lies, and the camera that took it."""

    path: Path
    camera_to_world: Float[np.ndarray, "4 4"]
    """OpenCV axes, world units of the file."""
    intrinsics: Intrinsics
    depth_path: Path | None = None
    segmentation_path: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PosedImages:
    """All views of one file."""

    views: tuple[PosedImage, ...]
    aabb_scale: float
    """Side of the scene's box, in unit cubes; 1 where the file is silent."""
    path: Path
    box: Box
    """What a field of it covers, in world units: see :func:`read_posed_images`."""
    depth_scale: float | None = None
    """World units to one of a stored depth; None where the file does not say."""
    labels: Mapping[int, str] = field(default_factory=dict)
    """Names of the ids in segmentations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedViews:
    """Pictures of equal size, stacked."""

    rgba_srgb: Float[np.ndarray, "n h w 4"]
    """float32 in [0, 1], not premultiplied; alpha is 1 where a picture has none."""
    ids: Int[np.ndarray, "n h w"] | None
    """None where a view has no segmentation."""
    depth: Float[np.ndarray, "n h w"] | None
    """World units along the camera's axis, 0 where unknown; None where a view has none."""


def read_posed_images(path: Path) -> PosedImages:
    """Read a ``transforms*.json``, or the one in a folder.

    The box is instant-ngp's where the file has one of its keys (``scale``, ``offset``,
    ``aabb_scale``) or is nerf-synthetic's: a cube of side ``aabb_scale / scale`` around the point
    that comes to lie in the middle of the unit cube. nerfstudio's files have no such keys, and any
    units: there it is the cube around the cameras, half as wide again.

    Raises:
        MediaError: The file or a picture is missing, or a key cannot be honoured.
    """
    if path.is_dir():
        path = _only_transforms(path)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise _refused(str(path), "a transforms.json", str(error), "Mend the file.") from error
    frames = content.get("frames") if isinstance(content, dict) else None
    if not isinstance(frames, list) or not frames:
        raise _refused(str(path), "a list of frames", "none", "Name a transforms.json.")
    views = tuple(
        _view(path, f"{path}, frame {index}", content, frame) for index, frame in enumerate(frames)
    )
    scale = _number(str(path), content, "aabb_scale", 1.0)
    assert scale is not None, "it has a default"
    depth_scale = _number(str(path), content, "integer_depth_scale", None)
    return PosedImages(
        views=views,
        aabb_scale=scale,
        path=path,
        box=_box(str(path), content, views, scale),
        depth_scale=depth_scale,
        labels=_labels(str(path), content.get("labels", {})),
    )


def load_views(posed: PosedImages) -> LoadedViews:
    """Read the pictures, and segmentations and depths where every view has one.

    Raises:
        MediaError: A picture cannot be read, or is of another size than its camera or the others.
    """
    size = {(view.intrinsics.height, view.intrinsics.width) for view in posed.views}
    if len(size) > 1:
        raise _refused(
            str(posed.path), "pictures of one size", f"{len(size)} sizes", "Bring them to one size."
        )
    height, width = size.pop()
    pictures = [_pixels(view.path, (height, width)) for view in posed.views]
    paths = [view.segmentation_path for view in posed.views]
    ids = None
    if all(path is not None for path in paths):
        read = [_pixels(path, (height, width), is_id=True) for path in paths if path is not None]
        ids = np.stack(read).astype(np.int64)
    depths = [view.depth_path for view in posed.views]
    depth = None
    if posed.depth_scale is not None and all(path is not None for path in depths):
        read = [_pixels(path, (height, width), is_id=True) for path in depths if path is not None]
        depth = np.stack(read).astype(np.float32) * np.float32(posed.depth_scale)
    return LoadedViews(rgba_srgb=np.stack(pictures), ids=ids, depth=depth)


def _pixels(path: Path, size: tuple[int, int], *, is_id: bool = False) -> np.ndarray:
    """``h w 4`` colours in [0, 1], or ``h w`` whole numbers as they are stored."""
    try:
        with PillowImage.open(path) as opened:
            opened.load()
            pixels = np.asarray(opened if is_id else opened.convert("RGBA"))
    except (OSError, UnidentifiedImageError, ValueError) as error:
        raise _refused(str(path), "a picture", str(error)[:80], "Mend it.") from error
    if pixels.shape[:2] != size or (is_id and pixels.ndim != 2):
        raise _refused(
            str(path),
            f"{size[1]}x{size[0]} pixels" + (" of one channel" if is_id else ""),
            f"shape {pixels.shape}",
            "Correct w and h, or the picture.",
        )
    return pixels if is_id else pixels.astype(np.float32) / np.float32(255.0)


def _box(
    where: str, content: Mapping[str, Any], views: Sequence[PosedImage], aabb_scale: float
) -> Box:
    is_scaled = any(key in content for key in ("scale", "offset", "aabb_scale"))
    is_synthetic = "camera_angle_x" in content and "fl_x" not in content
    if not (is_scaled or is_synthetic):
        places = np.stack([view.camera_to_world[:3, 3] for view in views])
        if np.ptp(places, axis=0).max() > 0:
            return cube_around(places, margin=0.25)
    scale = _number(where, content, "scale", INSTANT_NGP_SCALE)
    offset = content.get("offset", INSTANT_NGP_OFFSET)
    is_vector = isinstance(offset, list) and len(offset) == 3
    offsets = [
        _or(_number(where, {"offset": value}, "offset", None), INSTANT_NGP_OFFSET)
        for value in (offset if is_vector else [offset] * 3)
    ]
    if not scale or scale < 0 or aabb_scale <= 0:
        raise _refused(where, "scale and aabb_scale above 0", f"{scale}, {aabb_scale}", "Mend it.")
    side = aabb_scale / scale
    x, y, z = ((0.5 - value) / scale - side / 2.0 for value in offsets)
    return Box(corner=(x, y, z), side=side)


def _labels(where: str, content: object) -> dict[int, str]:
    if not isinstance(content, dict) or not all(
        key.isdecimal() and int(key) > 0 and isinstance(name, str) for key, name in content.items()
    ):
        raise _refused(
            f"{where}, labels", "ids above 0 and their names", repr(content)[:80], "Mend it."
        )
    return {int(key): name for key, name in content.items()}


def _only_transforms(folder: Path) -> Path:
    for name in ("transforms.json", "transforms_train.json"):
        if (folder / name).is_file():
            return folder / name
    raise _refused(
        str(folder), "transforms.json or transforms_train.json", "neither", "Name the file."
    )


def _view(path: Path, where: str, content: Mapping[str, Any], frame: object) -> PosedImage:
    if not isinstance(frame, dict) or not isinstance(frame.get("file_path"), str):
        raise _refused(where, "a file_path", repr(frame)[:80], "Name the picture.")
    try:
        pose = np.asarray(frame.get("transform_matrix"), dtype=np.float64)
    except (TypeError, ValueError):
        pose = np.empty(0)
    if pose.shape == (3, 4):
        pose = np.vstack([pose, [0.0, 0.0, 0.0, 1.0]])
    if pose.shape != (4, 4) or not np.isfinite(pose).all():
        raise _refused(
            where, "a transform_matrix of 4x4 finite numbers", f"shape {pose.shape}", "Mend it."
        )
    picture = _picture(path.parent, where, frame["file_path"])
    depth = frame.get("depth_path", frame.get("depth_file_path"))
    ids = frame.get("segmentation_path")
    return PosedImage(
        path=picture,
        camera_to_world=opengl_to_opencv(pose),
        intrinsics=_intrinsics(where, {**content, **frame}, picture),
        depth_path=_picture(path.parent, where, depth) if isinstance(depth, str) else None,
        segmentation_path=_picture(path.parent, where, ids) if isinstance(ids, str) else None,
    )


def _picture(folder: Path, where: str, name: str) -> Path:
    for extension in ("", *EXTENSIONS):
        candidate = folder / f"{name}{extension}"
        if candidate.is_file():
            return candidate
    raise _refused(where, f"a picture {name}", "none beside the file", "Copy it there.")


def _intrinsics(where: str, keys: Mapping[str, Any], picture: Path) -> Intrinsics:
    bent = [key for key in DISTORTIONS if _number(where, keys, key, 0.0)]
    model = keys.get("camera_model", "OPENCV")
    if bent or keys.get("is_fisheye") or model not in PINHOLES:
        got = ", ".join(bent) or ("is_fisheye" if keys.get("is_fisheye") else str(model))
        raise _refused(where, "a pinhole camera", got, "Undistort the pictures first.")
    width, height = _number(where, keys, "w", None), _number(where, keys, "h", None)
    if width is None or height is None:
        try:
            with PillowImage.open(picture) as opened:
                width, height = (float(size) for size in opened.size)
        except (OSError, UnidentifiedImageError) as error:
            raise _refused(where, "a picture or w and h", str(error), "Give w and h.") from error
    focal_x = _focal(where, keys, "x", width)
    focal_y = _focal(where, keys, "y", height)
    if focal_x is None and focal_y is None:
        raise _refused(
            where, "camera_angle_x, x_fov or fl_x", "no field of view", "Add one of the three."
        )
    if focal_x is None:
        focal_x = focal_y
    if focal_y is None:
        focal_y = focal_x
    assert focal_x is not None, "one of the two is known"
    assert focal_y is not None, "one of the two is known"
    return Intrinsics(
        height=int(height),
        width=int(width),
        focal_x=focal_x,
        focal_y=focal_y,
        centre_x=_or(_number(where, keys, "cx", None), width / 2),
        centre_y=_or(_number(where, keys, "cy", None), height / 2),
    )


def _focal(where: str, keys: Mapping[str, Any], axis: str, size: float) -> float | None:
    focal = _number(where, keys, f"fl_{axis}", None)
    angle_rad = _number(where, keys, f"camera_angle_{axis}", None)
    degrees = _number(where, keys, f"{axis}_fov", None)
    if angle_rad is None and degrees is not None:
        angle_rad = math.radians(degrees)
    if focal is None and angle_rad is not None and 0 < angle_rad < math.pi:
        focal = size / 2 / math.tan(angle_rad / 2)
    if (focal is None and angle_rad is not None) or (focal is not None and focal <= 0):
        raise _refused(
            where, "a field of view between 0 and 180 degrees", str(angle_rad), "Mend it."
        )
    return focal


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


def _number(where: str, keys: Mapping[str, Any], key: str, default: float | None) -> float | None:
    value = keys.get(key, default)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise _refused(f"{where}, {key}", "a finite number", repr(value), "Mend it.")
    return float(value)


def _refused(where: str, expected: str, got: str, do: str) -> MediaError:
    return MediaError(explain(where, expected=expected, got=got, do=do))
