"""Where rays meet the surface of a distance field."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ngpc.fields.distance import DistanceField
from ngpc.geometry.boxes import unit_cube_span

HIT = 2e-4  # distance that counts as the surface, in sides of the box
AMBIENT = 0.25
LIGHT = (-0.4, -0.5, 0.75)  # towards the light


@dataclass(frozen=True, slots=True, kw_only=True)
class SurfaceHits:
    """One entry a ray; where it misses, distance is 0 and the normal is 0 too."""

    is_hit: Bool[Tensor, " r"]
    distance: Float[Tensor, " r"]
    """Along the ray, in sides of the box."""
    normals: Float[Tensor, "r 3"]


@torch.no_grad()
def trace_spheres(
    field: DistanceField,
    origins: Float[Tensor, "r 3"],
    directions: Float[Tensor, "r 3"],
    *,
    max_steps: int = 96,
    relaxation: float = 0.9,
) -> SurfaceHits:
    """Step along every ray by the distance there, until it is small or the ray leaves the cube.

    Args:
        field: What to meet.
        origins: In the unit cube's coordinates, inside or outside of it.
        directions: Of length 1.
        max_steps: Steps after which a ray counts as a miss.
        relaxation: Share of the distance that is stepped; a trained distance is not exact.
    """
    near, far = unit_cube_span(origins, directions)
    distance = near.clone()
    is_hit = torch.zeros(len(origins), dtype=torch.bool, device=origins.device)
    active = torch.nonzero(far > near)[:, 0]
    for _ in range(max_steps):
        if len(active) == 0:
            break
        positions = origins[active] + distance[active, None] * directions[active]
        value = field(positions.clamp(0.0, 1.0))
        found = value < HIT
        is_hit[active[found]] = True
        active, value = active[~found], value[~found]
        distance[active] += relaxation * value
        active = active[distance[active] < far[active]]
    normals = torch.zeros_like(origins)
    met = torch.nonzero(is_hit)[:, 0]
    normals[met] = field.normals(origins[met] + distance[met, None] * directions[met])
    return SurfaceHits(is_hit=is_hit, distance=torch.where(is_hit, distance, 0.0), normals=normals)


def shade(hits: SurfaceHits, *, background: float = 1.0) -> Float[Tensor, "r 3"]:
    """Matt grey under one light, in [0, 1]; ``background`` where nothing is met."""
    light = torch.nn.functional.normalize(hits.normals.new_tensor(LIGHT), dim=0)
    diffuse = (hits.normals @ light).clamp_min(0.0)
    grey = AMBIENT + (0.95 - AMBIENT) * diffuse
    return torch.where(hits.is_hit, grey, background)[:, None].expand(-1, 3)
