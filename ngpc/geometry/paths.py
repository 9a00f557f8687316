"""Camera paths: poses one after the other. OpenCV axes, world up is +z."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from ngpc.errors import ConfigError, explain
from ngpc.geometry.cameras import Intrinsics

UP = (0.0, 0.0, 1.0)


def look_at(
    position: Sequence[float] | np.ndarray, target: Sequence[float] | np.ndarray
) -> Float[np.ndarray, "4 4"]:
    """``camera_to_world`` of a camera at ``position`` that looks at ``target``, upright.

    Raises:
        ConfigError: the two are the same point.
    """
    forward = np.asarray(target, dtype=np.float64) - np.asarray(position, dtype=np.float64)
    length = float(np.linalg.norm(forward))
    if length == 0.0:
        raise ConfigError(
            explain(
                "look_at",
                expected="a camera away from its target",
                got=f"both at {np.asarray(position).tolist()}",
                do="Move one of them.",
            )
        )
    forward /= length
    right = np.cross(forward, UP)
    if np.linalg.norm(right) < 1e-6:  # straight up or down: any upright will do
        right = np.array([1.0, 0.0, 0.0])
    right /= np.linalg.norm(right)
    pose = np.eye(4)
    pose[:3, :3] = np.stack([right, np.cross(forward, right), forward], axis=1)
    pose[:3, 3] = position
    return pose


def orbit(
    *,
    target: Sequence[float] | np.ndarray,
    radius: float,
    elevation_deg: float,
    num_frames: int,
    start_deg: float = 0.0,
    sweep_deg: float = 360.0,
) -> list[Float[np.ndarray, "4 4"]]:
    """Poses on a circle around a target.

    A whole turn ends one step before its start, so that the clip loops; less than a turn has its
    last frame at its end.
    """
    is_whole = math.isclose(abs(sweep_deg), 360.0)
    steps = num_frames if is_whole else max(1, num_frames - 1)
    poses = []
    for frame_index in range(num_frames):
        azimuth = math.radians(start_deg + sweep_deg * frame_index / steps)
        elevation = math.radians(elevation_deg)
        offset = np.array(
            [
                math.cos(azimuth) * math.cos(elevation),
                math.sin(azimuth) * math.cos(elevation),
                math.sin(elevation),
            ]
        )
        poses.append(look_at(np.asarray(target) + radius * offset, target))
    return poses


def pinhole(*, height: int, width: int, horizontal_fov_deg: float) -> Intrinsics:
    """A camera with square pixels, its principal point in the middle."""
    focal = width / 2.0 / math.tan(math.radians(horizontal_fov_deg) / 2.0)
    return Intrinsics(
        height=height,
        width=width,
        focal_x=focal,
        focal_y=focal,
        centre_x=width / 2.0,
        centre_y=height / 2.0,
    )


def resized(intrinsics: Intrinsics, *, height: int, width: int) -> Intrinsics:
    """The same view in another number of pixels."""
    across, down = width / intrinsics.width, height / intrinsics.height
    return Intrinsics(
        height=height,
        width=width,
        focal_x=intrinsics.focal_x * across,
        focal_y=intrinsics.focal_y * down,
        centre_x=intrinsics.centre_x * across,
        centre_y=intrinsics.centre_y * down,
    )
