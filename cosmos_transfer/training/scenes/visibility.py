"""Which surface each ray meets first.

Every pixel is traced at its centre and at a 2x2 grid (`camera.SAMPLE_OFFSETS`). A surface key is
`primitive * NUM_FACES + face`; -1 is the sky. Pixels whose five keys agree are shaded once, at the
centre; the others at their four grid samples, whose mean is the anti-aliased colour.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from .camera import Camera, RayGrid
from .primitives import NUM_FACES, Primitive, Shape, cross
from .scene import Scene

NEAR_M = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Visibility:
    """First hits at the five samples of every pixel; the centre is sample 0."""

    depth: Float[np.ndarray, "s f h w"]  # planar, metres; infinite in the sky
    key: Int[np.ndarray, "s f h w"]
    is_edge: Bool[np.ndarray, "f h w"]

    def primitive_index(self) -> Int[np.ndarray, "f h w"]:
        """Return the primitive at each pixel centre; -1 is the sky."""
        return self.key[0] // NUM_FACES


def trace(scene: Scene, rays: RayGrid) -> Visibility:
    """Find the nearest surface along every ray of every frame."""
    shape = (rays.x.shape[0], scene.camera.num_frames, rays.height, rays.width)
    depth = np.full(shape, np.inf, dtype=np.float32)
    key = np.full(shape, -1, dtype=np.int16)
    for index, primitive in enumerate(scene.primitives):
        window = screen_window(primitive, scene.camera, rays)
        if window is not None:
            _trace_primitive(index, primitive, scene.camera, rays, window, depth, key)
    is_edge = (key[1:] != key[0]).any(axis=0)
    return Visibility(depth=depth, key=key, is_edge=is_edge)


def screen_window(
    primitive: Primitive, camera: Camera, rays: RayGrid
) -> tuple[slice, slice] | None:
    """Return the rows and columns that a primitive may touch in any frame; None if it never does."""
    corners = _bounding_corners(primitive)  # g p 3
    seen = camera.to_camera(np.broadcast_to(corners, (camera.num_frames, *corners.shape[1:])))
    z = seen[..., 2]
    if (z < NEAR_M).all():
        return None
    if (z < NEAR_M).any():
        return slice(0, rays.height), slice(0, rays.width)
    columns = seen[..., 0] / z * rays.focal_px + 0.5 * rays.width
    rows = seen[..., 1] / z * rays.focal_px + 0.5 * rays.height
    left, right = max(int(columns.min()) - 1, 0), min(int(columns.max()) + 2, rays.width)
    top, bottom = max(int(rows.min()) - 1, 0), min(int(rows.max()) + 2, rays.height)
    if left >= right or top >= bottom:
        return None
    return slice(top, bottom), slice(left, right)


def _bounding_corners(primitive: Primitive) -> Float[np.ndarray, "g 8 3"]:
    x, y, z = primitive.half_size
    if primitive.shape is Shape.SPHERE:
        y = z = x
    elif primitive.shape is Shape.CYLINDER:
        y = x
    elif primitive.shape is Shape.RECTANGLE:
        z = 0.0
    signs = np.array([(a, b, c) for a in (-1, 1) for b in (-1, 1) for c in (-1, 1)])
    local = (signs * np.array([x, y, z])).astype(np.float32)
    return np.matmul(local, primitive.rotation.transpose(0, 2, 1)) + primitive.position[:, None]


def _trace_primitive(
    index: int,
    primitive: Primitive,
    camera: Camera,
    rays: RayGrid,
    window: tuple[slice, slice],
    depth: Float[np.ndarray, "s f h w"],
    key: Int[np.ndarray, "s f h w"],
) -> None:
    """Overwrite `depth` and `key` where this primitive is nearer than what was there."""
    rows, columns = window
    world_to_local = primitive.rotation.transpose(0, 2, 1)
    offset = (camera.position - primitive.position)[..., None]
    local_origin = np.matmul(world_to_local, offset)[..., 0]  # f 3
    camera_to_local = np.matmul(world_to_local, camera.camera_to_world)  # f 3 3
    x = rays.x[:, None, None, columns]
    y = rays.y[:, None, rows, None]
    direction = []
    for axis in range(3):
        gain = camera_to_local[None, :, axis, :, None, None]  # 1 f 3 1 1
        direction.append((gain[:, :, 0] * x + gain[:, :, 2]) + gain[:, :, 1] * y)
    origin = tuple(local_origin[None, :, axis, None, None] for axis in range(3))
    crossing = cross(primitive, origin, tuple(direction))

    nearest = depth[:, :, rows, columns]
    is_nearer = (crossing.entry < nearest) & (crossing.entry > NEAR_M)
    np.copyto(nearest, crossing.entry, where=is_nearer)
    surface_key = np.asarray(crossing.face + np.int16(index * NUM_FACES), dtype=np.int16)
    np.copyto(key[:, :, rows, columns], surface_key, where=is_nearer)
