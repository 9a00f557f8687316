"""Pinhole cameras: OpenCV axes (x right, y down, z forward), ``camera_to_world``, world units.

Pixel centres lie at +0.5: the centre of the first pixel is (0.5, 0.5), and the middle of an image
``w`` wide is ``w / 2``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from ngpc.errors import ShapeError, explain


@dataclass(frozen=True, slots=True, kw_only=True)
class Intrinsics:
    """Focal lengths and principal point, in pixels, of an image of this size."""

    height: int
    width: int
    focal_x: float
    focal_y: float
    centre_x: float
    centre_y: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Rays:
    """Origins and unit directions, in world units."""

    origins: Float[np.ndarray, "r 3"]
    directions: Float[np.ndarray, "r 3"]


def opengl_to_opencv(camera_to_world: Float[np.ndarray, "4 4"]) -> Float[np.ndarray, "4 4"]:
    """Turn a pose with OpenGL axes (y up, z back) into one with OpenCV's; its own inverse."""
    return camera_to_world * np.array([1.0, -1.0, -1.0, 1.0])


def camera_rays(intrinsics: Intrinsics, camera_to_world: Float[np.ndarray, "4 4"]) -> Rays:
    """One ray through the centre of every pixel, row by row.

    Raises:
        ShapeError: The pose is not a rotation and a place.
    """
    rotation = camera_to_world[:3, :3]
    if not np.allclose(rotation.T @ rotation, np.eye(3), atol=1e-3):
        raise ShapeError(
            explain(
                "camera_to_world",
                expected="three axes of length 1 at right angles",
                got=np.array2string(rotation, precision=3).replace("\n", ""),
                do="Give a rotation without scale in the first three columns.",
            )
        )
    rows, columns = np.mgrid[: intrinsics.height, : intrinsics.width]
    x = (columns + 0.5 - intrinsics.centre_x) / intrinsics.focal_x
    y = (rows + 0.5 - intrinsics.centre_y) / intrinsics.focal_y
    in_camera = np.stack([x, y, np.ones_like(x)], axis=-1).reshape(-1, 3)
    in_camera /= np.linalg.norm(in_camera, axis=-1, keepdims=True)
    directions = in_camera @ rotation.T
    return Rays(
        origins=np.broadcast_to(camera_to_world[:3, 3], directions.shape).copy(),
        directions=directions,
    )
