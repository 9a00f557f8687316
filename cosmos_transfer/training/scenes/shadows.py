"""How much of a light solids hide.

A shadow's strength grows with the length of the light's path inside the solid, from none at the
silhouette to full over about one footprint: soft, anti-aliased edges from a single ray.

Seen from the light, each solid covers a small part of the picture; only samples there are tested.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from .primitives import Primitive, Shape, cross
from .scene import Scene
from .surfaces import Surfaces
from .vectors import offset_from, turn_to_local


@dataclass(frozen=True, slots=True, kw_only=True)
class DistantLight:
    """The sun: all light travels one way."""

    towards: Float[np.ndarray, " 3"]

    def project(self, points: Float[np.ndarray, "3 n"]) -> tuple[np.ndarray, np.ndarray]:
        """Look from the light: lay points on a plane across it."""
        side = np.cross(self.towards, np.array([0.31, 0.17, 0.93], dtype=np.float32))
        above = np.cross(self.towards, side)
        return side @ points, above @ points

    def directions(self, points: Float[np.ndarray, "3 n"]) -> tuple[np.ndarray, np.ndarray]:
        """Return unit vectors to the light, and the distance to it in metres."""
        return self.towards[:, None], np.array([np.inf], dtype=np.float32)


@dataclass(frozen=True, slots=True, kw_only=True)
class HangingLamp:
    """A lamp above everything it lights."""

    position: Float[np.ndarray, " 3"]

    def project(self, points: Float[np.ndarray, "3 n"]) -> tuple[np.ndarray, np.ndarray]:
        """Look down from the lamp: lay points on a plane below it."""
        below = np.maximum(self.position[2] - points[2], 0.03)
        return (points[0] - self.position[0]) / below, (points[1] - self.position[1]) / below

    def directions(self, points: Float[np.ndarray, "3 n"]) -> tuple[np.ndarray, np.ndarray]:
        """Return unit vectors to the light, and the distance to it in metres."""
        offset = self.position[:, None] - points
        distance = np.sqrt(offset[0] ** 2 + offset[1] ** 2 + offset[2] ** 2)
        return offset / distance, distance


def light_reaching(
    scene: Scene,
    surfaces: Surfaces,
    samples: Int[np.ndarray, " n"],
    source: DistantLight | HangingLamp,
) -> Float[np.ndarray, " n"]:
    """Return the share of a source's light that arrives at samples which face it."""
    footprint = surfaces.footprint[samples]
    lift = 0.01 + 0.3 * footprint  # off the surface that the sample lies on
    start = surfaces.position[:, samples] + surfaces.normal[:, samples] * lift
    frame = surfaces.frame[samples]
    softness = np.minimum(footprint * 1.5, 1.0) + np.float32(0.01)
    across, along = source.project(start)
    light = np.ones(len(samples), dtype=np.float32)
    casters = [primitive for primitive in scene.primitives if primitive.casts_shadow]
    corners = [primitive.corners.reshape(-1, 3) for primitive in casters]
    first = np.cumsum([0] + [len(points) for points in corners[:-1]])
    corner_across, corner_along = source.project(np.concatenate(corners).T)
    low_across = np.minimum.reduceat(corner_across, first)
    high_across = np.maximum.reduceat(corner_across, first)
    low_along = np.minimum.reduceat(corner_along, first)
    high_along = np.maximum.reduceat(corner_along, first)
    for index, primitive in enumerate(casters):
        is_close = (across > low_across[index]) & (across < high_across[index])
        is_close &= (along > low_along[index]) & (along < high_along[index])
        chosen = np.flatnonzero(is_close)
        if len(chosen):
            passing = _light_past(
                primitive, frame[chosen], start[:, chosen], source, softness[chosen]
            )
            light[chosen] *= passing
    return light


def _light_past(
    primitive: Primitive,
    frame: Int[np.ndarray, " n"],
    start: Float[np.ndarray, "3 n"],
    source: DistantLight | HangingLamp,
    softness: Float[np.ndarray, " n"],
) -> Float[np.ndarray, " n"]:
    """Return the share of light that passes one primitive."""
    towards, distance = source.directions(start)
    origin = turn_to_local(primitive, frame, offset_from(primitive, frame, start))
    direction = turn_to_local(primitive, frame, towards)
    crossing = cross(primitive, origin, direction)
    inside = np.minimum(crossing.leave, distance) - np.maximum(crossing.entry, 0.0)
    if primitive.shape is Shape.SPHERE:
        softness = softness * 2.0  # paths lengthen fast near a sphere's silhouette
    return 1.0 - np.clip(inside / softness, 0.0, 1.0)
