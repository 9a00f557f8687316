"""Cameras, as the command line asks for them."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from ngpc.data.posed_images import read_posed_images
from ngpc.errors import ConfigError, MediaError, explain
from ngpc.geometry.boxes import Box
from ngpc.geometry.cameras import Intrinsics, opengl_to_opencv
from ngpc.geometry.paths import orbit, pinhole, resized

AWAY = 1.9  # sides of the box between a camera and the middle of the box, unless told
PATHS = ("orbit", "dataset")


def pose_around(box: Box | None, *, elevation_deg: float) -> Float[np.ndarray, "4 4"]:
    """A camera that sees all of a box (None: the unit cube) from the front left."""
    box = box or Box(corner=(0.0, 0.0, 0.0), side=1.0)
    return orbit(
        target=_middle(box),
        radius=AWAY * box.side,
        elevation_deg=elevation_deg,
        num_frames=1,
        start_deg=-60.0,
    )[0]


def cameras_of(
    arguments: argparse.Namespace, box: Box, view: Mapping[str, Any]
) -> tuple[Intrinsics, list[Float[np.ndarray, "4 4"]]]:
    """The camera and the poses that ``ngpc render`` was asked for.

    Args:
        arguments: ``path``, ``data``, ``frames``, ``height``, ``width``, ``radius``,
            ``elevation``, ``start``, ``sweep``.
        box: What the field covers.
        view: How its pictures were taken, where it was trained on pictures.

    Raises:
        ConfigError: a count or size that leaves nothing to do.
        MediaError: a path that cannot be read.
    """
    for name in ("frames", "height", "width"):
        value = getattr(arguments, name)
        if value is not None and value < 1:
            raise ConfigError(
                explain(f"--{name}", expected="at least 1", got=str(value), do="Correct it.")
            )
    if arguments.path == "dataset":
        if arguments.data is None:
            raise ConfigError(
                explain("--path dataset", expected="--data", got="none", do="Name the posed set.")
            )
        posed = read_posed_images(arguments.data)
        views = posed.views[: arguments.frames] if arguments.frames else posed.views
        camera = views[0].intrinsics
        poses = [each.camera_to_world for each in views]
    elif arguments.path == "orbit":
        camera = _camera_of(view)
        poses = orbit(
            target=view.get("target", _middle(box)),
            radius=_or(arguments.radius, view.get("radius"), AWAY * box.side),
            elevation_deg=_or(arguments.elevation, view.get("elevation_deg"), 25.0),
            num_frames=arguments.frames or 24,
            start_deg=arguments.start,
            sweep_deg=arguments.sweep,
        )
    else:
        camera = _camera_of(view)
        poses = read_path(Path(arguments.path))
        poses = poses[: arguments.frames] if arguments.frames else poses
    height = arguments.height or (
        camera.height
        if arguments.width is None
        else max(1, round(arguments.width * camera.height / camera.width))
    )
    width = arguments.width or max(1, round(height * camera.width / camera.height))
    return _fitted(camera, height=height, width=width), poses


def read_path(path: Path) -> list[Float[np.ndarray, "4 4"]]:
    """The poses of a JSON file: ``frames``, each with a ``transform_matrix`` as transforms.json.

    Raises:
        MediaError: it is no such file.
    """
    try:
        frames = json.loads(path.read_text(encoding="utf-8"))["frames"]
        poses = [np.asarray(each["transform_matrix"], dtype=np.float64) for each in frames]
    except (OSError, UnicodeDecodeError, ValueError, KeyError, TypeError) as error:
        raise MediaError(
            explain(
                str(path),
                expected=f"{', '.join(PATHS)}, or a JSON file of frames with a transform_matrix",
                got=" ".join(str(error).split())[:120],
                do="Mend the file, or name one of the two.",
            )
        ) from error
    if not poses or any(each.shape != (4, 4) or not np.isfinite(each).all() for each in poses):
        raise MediaError(
            explain(
                str(path),
                expected="at least one frame, each with a matrix of 4x4 finite numbers",
                got=f"{len(poses)} frames",
                do="Mend the file.",
            )
        )
    return [opengl_to_opencv(each) for each in poses]


def _fitted(camera: Intrinsics, *, height: int, width: int) -> Intrinsics:
    """The camera at another size; another aspect ratio shows more or less, and bends nothing."""
    scale = height / camera.height
    same = resized(camera, height=height, width=max(1, round(camera.width * scale)))
    shift = (width - same.width) / 2.0
    return dataclasses.replace(
        same,
        width=width,
        focal_x=camera.focal_x * scale,
        focal_y=camera.focal_y * scale,
        centre_x=camera.centre_x * scale + shift,
    )


def _camera_of(view: Mapping[str, Any]) -> Intrinsics:
    if "focal_x" not in view:
        return pinhole(height=256, width=256, horizontal_fov_deg=40.0)
    return Intrinsics(
        height=int(view["height"]),
        width=int(view["width"]),
        focal_x=float(view["focal_x"]),
        focal_y=float(view["focal_y"]),
        centre_x=float(view["centre_x"]),
        centre_y=float(view["centre_y"]),
    )


def _middle(box: Box) -> list[float]:
    return [value + box.side / 2.0 for value in box.corner]


def _or(*values: float | None) -> float:
    """The first that is given."""
    return next(float(value) for value in values if value is not None)
