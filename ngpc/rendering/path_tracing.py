"""Light in a cloud, by following paths: what a volume field learns from and is measured against.

The medium scatters evenly in all directions, with one albedo; light comes from the sky alone, a
smooth one that is brightest around a hazy sun. Colours are linear radiance.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from ngpc.geometry.boxes import unit_cube_span

ALBEDO = 0.95
GROUND, HORIZON, ZENITH = (0.10, 0.09, 0.08), (0.38, 0.48, 0.62), (0.07, 0.17, 0.42)
SUN, SUN_DIRECTION, SUN_SHARPNESS = (1.7, 1.45, 1.1), (0.75, -0.35, 0.55), 2.5
SURE_BOUNCES = 6  # after these a path goes on by chance
GO_ON = 0.85
MAX_BOUNCES = 200


def sky(directions: Float[Tensor, "p 3"]) -> Float[Tensor, "p 3"]:
    """Radiance from outside, looking along unit directions."""
    height = directions[:, 2:]
    ground, horizon, zenith, sun = (
        directions.new_tensor(each) for each in (GROUND, HORIZON, ZENITH, SUN)
    )
    above = horizon + (zenith - horizon) * height.clamp(0.0, 1.0).sqrt()
    backdrop = ground + (above - ground) * torch.sigmoid(10.0 * height)
    towards = torch.nn.functional.normalize(directions.new_tensor(SUN_DIRECTION), dim=0)
    lobe = torch.exp(SUN_SHARPNESS * (directions @ towards - 1.0))[:, None]
    return backdrop + sun * lobe


def lookup(grid: Float[Tensor, "x y z"], positions: Float[Tensor, "p 3"]) -> Float[Tensor, " p"]:
    """Values between the vertices of a grid over the unit cube, linear along each axis."""
    size = torch.tensor(grid.shape, device=grid.device)
    located = positions * (size - 1)
    cell = located.to(torch.int64).clamp_min(0).minimum(size - 2)
    share = located - cell
    strides = torch.tensor([size[1] * size[2], size[2], 1], device=grid.device)
    start = (cell * strides).sum(dim=1)
    flat = grid.reshape(-1)
    total = torch.zeros_like(located[:, 0])
    for corner in range(8):
        weight, index = torch.ones_like(total), start
        for axis in range(3):
            if corner >> axis & 1:
                weight, index = weight * share[:, axis], index + strides[axis]
            else:
                weight = weight * (1.0 - share[:, axis])
        total = total + weight * flat[index]
    return total


@torch.no_grad()
def trace_paths(
    density: Float[Tensor, "x y z"],
    origins: Float[Tensor, "p 3"],
    directions: Float[Tensor, "p 3"],
    *,
    generator: torch.Generator,
) -> Float[Tensor, "p 3"]:
    """One estimate of the radiance that arrives at each origin from each direction, without bias.

    Args:
        density: Optical depth per side of the cube, on a grid over it.
        origins: In the unit cube's coordinates, inside or outside of it.
        directions: Of length 1, the way one looks.
        generator: Decides every path.

    Source:
        Woodcock et al., delta tracking: flights through a medium as dense as the densest place,
        with collisions that count only as often as the place is dense.
    """
    device = density.device
    majorant = float(density.max())
    radiance = torch.zeros_like(origins)
    near, far = unit_cube_span(origins, directions)
    missed = far <= near
    radiance[missed] = sky(directions[missed])
    path = torch.nonzero(~missed)[:, 0]
    place = origins[path] + near[path, None] * directions[path]
    heading, throughput = directions[path], torch.ones(len(path), device=device)
    bounces = torch.zeros(len(path), dtype=torch.int64, device=device)
    while len(path):
        chance = torch.rand(len(path), 3, generator=generator).to(device)
        place = place - (torch.log1p(-chance[:, 0]) / majorant)[:, None] * heading
        is_out = ((place < 0.0) | (place > 1.0)).any(dim=1)
        radiance[path[is_out]] = throughput[is_out, None] * sky(heading[is_out])
        is_in = ~is_out
        path, place, heading = path[is_in], place[is_in], heading[is_in]
        throughput, bounces, chance = throughput[is_in], bounces[is_in], chance[is_in]
        is_real = chance[:, 1] * majorant < lookup(density, place)
        hit = torch.nonzero(is_real)[:, 0]
        throughput[hit] *= ALBEDO
        bounces[hit] += 1
        heading = heading.clone()
        heading[hit] = random_directions(len(hit), generator).to(device)
        may_end = is_real & (bounces > SURE_BOUNCES)
        ends = (may_end & (chance[:, 2] > GO_ON)) | (bounces > MAX_BOUNCES)
        throughput = torch.where(may_end, throughput / GO_ON, throughput)
        stays = ~ends
        path, place, heading = path[stays], place[stays], heading[stays]
        throughput, bounces = throughput[stays], bounces[stays]
    return radiance


def random_directions(number: int, generator: torch.Generator) -> Float[Tensor, "n 3"]:
    """Unit vectors, all directions alike."""
    normal = torch.randn(number, 3, generator=generator)
    return torch.nn.functional.normalize(normal, dim=1)
