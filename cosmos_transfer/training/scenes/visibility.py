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
from .primitives import NUM_FACES, Primitive, cross
from .scene import Scene

NEAR_M = 0.2  # nothing is ever this close to a camera
# An edge joins two corners whose numbers differ in one bit.
BOX_EDGES = np.array([(i, i | bit) for i in range(8) for bit in (1, 2, 4) if not i & bit])


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
    """Return the rows and columns a primitive touches in any frame; None if it never does."""
    seen = camera.to_camera(np.broadcast_to(primitive.corners, (camera.num_frames, 8, 3)))
    in_front = seen[..., 2] >= NEAR_M
    points = seen[in_front]
    if not in_front.all():
        points = np.concatenate([points, _cut_edges(seen)])
        if not len(points):
            return None
    x, y, z = points.T
    columns = x / z * rays.focal_px + 0.5 * rays.width
    rows = y / z * rays.focal_px + 0.5 * rays.height
    left, right = max(int(columns.min()) - 1, 0), min(int(columns.max()) + 2, rays.width)
    top, bottom = max(int(rows.min()) - 1, 0), min(int(rows.max()) + 2, rays.height)
    if left >= right or top >= bottom:
        return None
    return slice(top, bottom), slice(left, right)


def _cut_edges(corners: Float[np.ndarray, "f 8 3"]) -> Float[np.ndarray, "p 3"]:
    """Return where the edges of boxes pierce the near plane."""
    start, end = corners[:, BOX_EDGES[:, 0]], corners[:, BOX_EDGES[:, 1]]
    pierces = (start[..., 2] < NEAR_M) != (end[..., 2] < NEAR_M)
    start, end = start[pierces], end[pierces]
    share = (NEAR_M - start[:, 2:]) / (end[:, 2:] - start[:, 2:])
    points = start + share * (end - start)
    points[:, 2] = NEAR_M
    return points


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
