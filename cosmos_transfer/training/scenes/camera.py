"""A pinhole camera that moves, and the rays through its pixels.

World axes: x right, y away from the viewer, z up; metres. Camera axes are OpenCV's (x right,
y down, z forward). Pixel centres lie at +0.5. A ray direction has a camera z of one, so that the
distance along it *is* planar depth in metres.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

# Where a pixel is sampled, in pixels from its centre: the centre itself, then a 2x2 grid.
SAMPLE_OFFSETS = ((0.0, 0.0), (-0.25, -0.25), (0.25, -0.25), (-0.25, 0.25), (0.25, 0.25))


@dataclass(frozen=True, slots=True, kw_only=True)
class Camera:
    """One pose per frame behind a fixed lens with square pixels."""

    position: Float[np.ndarray, "f 3"]
    camera_to_world: Float[np.ndarray, "f 3 3"]  # columns are the camera axes in the world
    fov_rad: float  # across the width

    @property
    def num_frames(self) -> int:
        """How many poses there are."""
        return len(self.position)

    def focal_px(self, width: int) -> float:
        """Return the focal length in pixels for images of this width."""
        return 0.5 * width / float(np.tan(0.5 * self.fov_rad))

    def to_camera(self, points: Float[np.ndarray, "f p 3"]) -> Float[np.ndarray, "f p 3"]:
        """Express world points, given per frame, in the camera's axes."""
        offset = points - self.position[:, None]
        return np.matmul(offset, self.camera_to_world)


def look_at(
    position: Float[np.ndarray, "f 3"], target: Float[np.ndarray, "f 3"], fov_rad: float
) -> Camera:
    """Point an upright camera from each position to each target."""
    forward = target - position
    forward /= np.linalg.norm(forward, axis=-1, keepdims=True)
    right = np.cross(forward, np.array([0.0, 0.0, 1.0]))
    right /= np.linalg.norm(right, axis=-1, keepdims=True)
    down = np.cross(forward, right)
    camera_to_world = np.stack([right, down, forward], axis=-1)
    return Camera(
        position=position.astype(np.float32),
        camera_to_world=camera_to_world.astype(np.float32),
        fov_rad=fov_rad,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RayGrid:
    """Ray directions in camera axes at every sample of every pixel; z is one."""

    x: Float[np.ndarray, "s w"]
    y: Float[np.ndarray, "s h"]
    focal_px: float

    @property
    def height(self) -> int:
        """Rows of the image."""
        return self.y.shape[1]

    @property
    def width(self) -> int:
        """Columns of the image."""
        return self.x.shape[1]


def cast_rays(camera: Camera, height: int, width: int) -> RayGrid:
    """Lay rays through the samples of an image of this size."""
    focal_px = camera.focal_px(width)
    offsets = np.array(SAMPLE_OFFSETS)
    columns = np.arange(width) + 0.5 - 0.5 * width
    rows = np.arange(height) + 0.5 - 0.5 * height
    x = (columns + offsets[:, :1]) / focal_px
    y = (rows + offsets[:, 1:]) / focal_px
    return RayGrid(x=x.astype(np.float32), y=y.astype(np.float32), focal_px=focal_px)
