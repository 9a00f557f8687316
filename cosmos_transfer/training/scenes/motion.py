"""Where each visible point goes in the next frame's image."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from .camera import RayGrid
from .scene import Scene
from .visibility import Visibility

FARTHEST_M = 1.0e5  # stands in for the sky's infinite distance


def image_motion(
    scene: Scene, rays: RayGrid, visibility: Visibility
) -> Float[np.ndarray, "g h w 2"]:
    """Return motion in pixels (x, y) from each frame to the next; one frame less than the clip."""
    camera = scene.camera
    shape = (camera.num_frames - 1, rays.height, rays.width, 2)
    motion = np.zeros(shape, dtype=np.float32)
    primitive_index = visibility.primitive_index()
    moving = [index for index, primitive in enumerate(scene.primitives) if primitive.moves]
    x = np.broadcast_to(rays.x[0], shape[1:3])
    y = np.broadcast_to(rays.y[0][:, None], shape[1:3])
    ray = np.stack([x, y, np.ones_like(x)])
    for frame in range(shape[0]):
        depth = np.minimum(visibility.depth[0, frame], np.float32(FARTHEST_M))
        seen = (ray * depth).reshape(3, -1)
        point = camera.camera_to_world[frame] @ seen + camera.position[frame][:, None]
        index_here = primitive_index[frame].reshape(-1)
        for index in moving:
            chosen = np.flatnonzero(index_here == index)
            if len(chosen):
                primitive = scene.primitives[index]
                offset = point[:, chosen] - primitive.position[frame][:, None]
                local = primitive.rotation[frame].T @ offset
                moved = primitive.rotation[frame + 1] @ local
                point[:, chosen] = moved + primitive.position[frame + 1][:, None]
        offset = point - camera.position[frame + 1][:, None]
        next_seen = camera.camera_to_world[frame + 1].T @ offset
        z = np.maximum(next_seen[2], np.float32(1e-3))
        moved_x = (next_seen[0] / z).reshape(x.shape) - x
        moved_y = (next_seen[1] / z).reshape(x.shape) - y
        motion[frame] = np.stack([moved_x, moved_y], axis=-1) * np.float32(rays.focal_px)
    return motion
