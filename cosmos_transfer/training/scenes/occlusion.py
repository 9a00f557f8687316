"""Soft darkening where solids stand close to a surface; the same under every look."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from .primitives import Shape
from .scene import Scene
from .surfaces import Surfaces
from .vectors import dot, offset_from

# Roles large enough to be worth it, and round enough to be treated as spheres.
ROLES = frozenset({"object", "robot", "robot joint", "gripper", "car paint", "leaves"})


def ambient_reaching(scene: Scene, surfaces: Surfaces) -> Float[np.ndarray, " n"]:
    """Return the share of ambient light that nearby solids leave, each taken for a sphere.

    Source:
        A sphere of radius r at distance d hides cos(angle) * r^2 / d^2 of a surface's hemisphere.
    """
    light = np.ones(len(surfaces.order), dtype=np.float32)
    index_of = np.zeros(len(surfaces.order), dtype=np.int32)
    for index, span in surfaces.primitive_slices.items():
        index_of[span] = index
    for index, primitive in enumerate(scene.primitives):
        if primitive.finish.role not in ROLES:
            continue
        x, y, z = primitive.half_size
        radius = x if primitive.shape is Shape.SPHERE else float(np.cbrt(x * y * z))
        reach = np.float32(3.0 * radius)
        low = primitive.position.min(axis=0) - reach
        high = primitive.position.max(axis=0) + reach
        is_close = index_of != index
        for axis in range(3):
            is_close &= surfaces.position[axis] > low[axis]
            is_close &= surfaces.position[axis] < high[axis]
        chosen = np.flatnonzero(is_close)
        if not len(chosen):
            continue
        offset = offset_from(primitive, surfaces.frame[chosen], surfaces.position[:, chosen])
        near = np.maximum(dot(offset, offset), np.float32(radius**2))
        facing = np.clip(-dot(surfaces.normal[:, chosen], offset) / np.sqrt(near), 0.0, 1.0)
        hidden = facing * (np.float32(radius**2) / near - np.float32(1.0 / 9.0))
        light[chosen] *= 1.0 - 0.85 * np.maximum(hidden, 0.0)
    return light
