"""Densities along rays to opacities, colours and depths."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ngpc.rendering.marching import Samples

HALF = math.log(2.0)  # optical depth that stops half of the light


@dataclass(frozen=True, slots=True, kw_only=True)
class Compositing:
    """How much each sample adds to its ray."""

    samples: Samples
    weights: Float[Tensor, " p"]
    optical_depth: Float[Tensor, " p"]
    """Between the ray's start and the sample's stretch."""
    thickness: Float[Tensor, " p"]
    """Optical depth of the stretch itself."""

    def sum(self, values: Float[Tensor, "p c"]) -> Float[Tensor, "r c"]:
        """Weighted sum over each ray's samples."""
        total = values.new_zeros(self.samples.num_rays, values.shape[1])
        weighted = self.weights[:, None].to(values.dtype) * values
        return total.index_add(0, self.samples.ray_index, weighted)

    @property
    def opacity(self) -> Float[Tensor, " r"]:
        """How much of the light each ray loses."""
        return self.sum(torch.ones_like(self.weights)[:, None])[:, 0]

    @torch.no_grad()
    def median_distance(self) -> Float[Tensor, " r"]:
        """Where half of the light is lost; 0 on rays that let more than half through."""
        after = self.optical_depth + self.thickness
        is_there = (self.optical_depth < HALF) & (after >= HALF)
        share = (HALF - self.optical_depth) / self.thickness.clamp_min(1e-12)
        distance = self.samples.distance + (share - 0.5) * self.samples.step
        found = distance.new_zeros(self.samples.num_rays)
        found[self.samples.ray_index[is_there]] = distance[is_there]
        return found


def composite(samples: Samples, density: Float[Tensor, " p"]) -> Compositing:
    """Weights of samples: what the stretches before let through, times what this one stops.

    Source:
        Max, Optical models for direct volume rendering; Mildenhall et al., NeRF, equation 3.
    """
    thickness = density * samples.step
    # Summed over all rays at once, in double, then counted from each ray's first sample.
    before = (torch.cumsum(thickness.double(), dim=0) - thickness.double()).clamp_min(0.0)
    if len(samples):
        is_first = torch.ones_like(samples.ray_index, dtype=torch.bool)
        is_first[1:] = samples.ray_index[1:] != samples.ray_index[:-1]
        run = torch.cumsum(is_first, dim=0) - 1
        before = before - before[is_first][run]
    optical_depth = before.to(density.dtype).clamp_min(0.0)
    weights = torch.exp(-optical_depth) * -torch.expm1(-thickness)
    return Compositing(
        samples=samples, weights=weights, optical_depth=optical_depth, thickness=thickness
    )
