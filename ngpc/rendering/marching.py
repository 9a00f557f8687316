"""Samples along rays, packed: those of all rays in one list, none where nothing is.

Axis letters: ``r`` rays, ``p`` samples. Samples are sorted by ray, then by distance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ngpc.geometry.boxes import unit_cube_span
from ngpc.geometry.occupancy import OccupancyGrid


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Packed samples of a bundle of rays."""

    ray_index: Int[Tensor, " p"]
    distance: Float[Tensor, " p"]
    """Of the middle of the sample's stretch."""
    positions: Float[Tensor, "p 3"]
    num_rays: int
    step: float
    """Length of every sample's stretch."""

    def __len__(self) -> int:
        return len(self.ray_index)


@torch.no_grad()
def march(
    occupancy: OccupancyGrid,
    origins: Float[Tensor, "r 3"],
    directions: Float[Tensor, "r 3"],
    *,
    step: float,
    jitter: Float[Tensor, " r"] | None = None,
) -> Samples:
    """Cut every ray into stretches of equal length and keep those in occupied cells.

    Args:
        occupancy: Cells that hold matter.
        origins: In the unit cube's coordinates.
        directions: Of length 1.
        step: Length of a stretch.
        jitter: In [0, 1), shifts each ray's stretches; None puts samples at their middles.
    """
    near, far = unit_cube_span(origins, directions)
    longest = float((far - near).max()) if len(near) else 0.0
    count = math.ceil(longest / step)
    shift = torch.full_like(near, 0.5) if jitter is None else jitter
    along = (torch.arange(count, device=near.device) + shift[:, None]) * step + near[:, None]
    positions = origins[:, None] + along[:, :, None] * directions[:, None]
    is_kept = (along < far[:, None]) & occupancy.lookup(positions)
    ray_index, _ = torch.nonzero(is_kept, as_tuple=True)
    return Samples(
        ray_index=ray_index,
        distance=along[is_kept],
        positions=positions[is_kept].clamp_(0.0, 1.0),
        num_rays=len(origins),
        step=step,
    )
