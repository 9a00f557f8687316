"""How much of a light a solid hides.

A shadow's strength grows with the length of the light's path inside the solid, from none at the
silhouette to full over about one footprint: soft, anti-aliased edges from a single ray.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from .primitives import Primitive, Shape, cross
from .scene import Scene
from .surfaces import Surfaces


def sunlight_reaching(
    scene: Scene,
    surfaces: Surfaces,
    samples: Int[np.ndarray, " n"],
    towards_light: Float[np.ndarray, "3 #n"],
    reach_m: Float[np.ndarray, " #n"],
) -> Float[np.ndarray, " n"]:
    """Return the share of light that arrives at some samples.

    Args:
        samples: Indices into `surfaces`; they should face the light.
        towards_light: Unit direction per sample, or one for all.
        reach_m: Distance to the light; what lies beyond it casts no shadow.
    """
    footprint = surfaces.footprint[samples]
    start = surfaces.position[:, samples] + surfaces.normal[:, samples] * (0.01 + 0.3 * footprint)
    frame = surfaces.frame[samples]
    softness = np.minimum(footprint * 1.5, 1.0) + np.float32(0.01)
    light = np.ones(len(samples), dtype=np.float32)
    for primitive in scene.primitives:
        if primitive.casts_shadow:
            _shade(primitive, frame, start, towards_light, reach_m, softness, light)
    return light


def _shade(
    primitive: Primitive,
    frame: Int[np.ndarray, " n"],
    start: Float[np.ndarray, "3 n"],
    towards_light: Float[np.ndarray, "3 #n"],
    reach_m: Float[np.ndarray, " #n"],
    softness: Float[np.ndarray, " n"],
    light: Float[np.ndarray, " n"],
) -> None:
    """Multiply `light` by what passes one primitive."""
    centre = primitive.position.T[:, frame] if primitive.moves else primitive.position.T
    radius = primitive.bounding_radius
    dx, dy, dz = centre[0] - start[0], centre[1] - start[1], centre[2] - start[2]
    along = dx * towards_light[0] + dy * towards_light[1] + dz * towards_light[2]
    aside = dx * dx + dy * dy + dz * dz - along * along
    is_close = (aside < np.float32(radius * radius)) & (along > np.float32(-radius))
    chosen = np.flatnonzero(is_close)
    if not len(chosen):
        return
    one_light = towards_light.shape[1] == 1
    directions = towards_light if one_light else towards_light[:, chosen]
    pose = frame[chosen] if primitive.moves else np.zeros(1, dtype=np.intp)
    rotation = primitive.rotation[pose]
    offset = start[:, chosen] - primitive.position[pose].T
    origin = tuple((rotation[:, :, axis].T * offset).sum(axis=0) for axis in range(3))
    direction = tuple((rotation[:, :, axis].T * directions).sum(axis=0) for axis in range(3))
    crossing = cross(primitive, origin, direction)
    limit = reach_m if len(reach_m) == 1 else reach_m[chosen]
    inside = np.minimum(crossing.leave, limit) - np.maximum(crossing.entry, 0.0)
    soft = softness[chosen]
    if primitive.shape is Shape.SPHERE:
        soft = soft * 2.0  # paths lengthen fast near a sphere's silhouette
    light[chosen] *= 1.0 - np.clip(inside / soft, 0.0, 1.0)
