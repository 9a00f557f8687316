"""The cube of the world that a field covers, and where rays are inside it.

A field lives in the unit cube. Between it and the world there is a shift and one scale for all
axes, so that directions are the same in both and lengths differ by the side of the box.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ngpc.errors import ConfigError, explain


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A cube: its lowest corner and its side, in world units."""

    corner: tuple[float, float, float]
    side: float

    def __post_init__(self) -> None:
        """Refuse a cube without volume."""
        is_finite = len(self.corner) == 3 and all(math.isfinite(value) for value in self.corner)
        if not (is_finite and math.isfinite(self.side) and self.side > 0):
            raise ConfigError(
                explain(
                    "box",
                    expected="a finite corner and a side above 0",
                    got=f"{self.corner}, {self.side}",
                    do="Give corner x y z and the side.",
                )
            )

    def to_unit(self, points: Float[np.ndarray, "*n 3"]) -> Float[np.ndarray, "*n 3"]:
        """World to unit cube."""
        return (points - np.asarray(self.corner)) / self.side

    def to_world(self, points: Float[np.ndarray, "*n 3"]) -> Float[np.ndarray, "*n 3"]:
        """Unit cube to world."""
        return points * self.side + np.asarray(self.corner)


def cube_around(points: Float[np.ndarray, "n 3"], *, margin: float) -> Box:
    """The smallest cube around points, wider by a share ``margin`` of its side on every side."""
    low, high = points.min(axis=0), points.max(axis=0)
    side = float((high - low).max()) * (1.0 + 2.0 * margin)
    corner = (low + high) / 2.0 - side / 2.0
    return Box(corner=(float(corner[0]), float(corner[1]), float(corner[2])), side=side)


def unit_cube_span(
    origins: Float[Tensor, "r 3"], directions: Float[Tensor, "r 3"]
) -> tuple[Float[Tensor, " r"], Float[Tensor, " r"]]:
    """Where rays enter and leave the unit cube, as multiples of ``directions``.

    Never behind the origin; a ray that misses leaves where it enters.
    """
    # A direction along an axis divides by zero: infinities sort themselves out, 0/0 must not be.
    tiny = torch.where(directions < 0, -1e-12, 1e-12)
    inverse = 1.0 / torch.where(directions.abs() < 1e-12, tiny, directions)
    first, second = -origins * inverse, (1.0 - origins) * inverse
    near = torch.minimum(first, second).amax(dim=1).clamp_min(0.0)
    far = torch.maximum(first, second).amin(dim=1)
    return near, torch.maximum(far, near)
