"""Which cells of the unit cube hold matter, so that rays need not look elsewhere."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ngpc.errors import ConfigError, explain

LARGEST_RESOLUTION = 256  # its cells are numbered in single precision


class OccupancyGrid(nn.Module):
    """``resolution ** 3`` cells with the largest density seen in each lately.

    At first every cell counts as occupied. A cell is occupied where its density, over one step of
    a ray, stops more than ``threshold`` of the light, or more than the mean cell does.

    Source:
        Müller et al., Instant neural graphics primitives, appendix C; values here are densities,
        not densities times steps.
    """

    density: Float[Tensor, " z"]
    is_occupied: Bool[Tensor, " z"]

    def __init__(self, *, resolution: int) -> None:
        """Make a grid of cells that are all occupied.

        Raises:
            ConfigError: more than 256 cells along an axis.
        """
        super().__init__()
        if not 1 <= resolution <= LARGEST_RESOLUTION:
            raise ConfigError(
                explain(
                    "occupancy resolution",
                    expected=f"1 to {LARGEST_RESOLUTION} cells along an axis",
                    got=str(resolution),
                    do="64 is usual.",
                )
            )
        self.resolution = resolution
        self.register_buffer("density", torch.zeros(resolution**3))
        self.register_buffer("is_occupied", torch.ones(resolution**3, dtype=torch.bool))

    @property
    def share(self) -> float:
        """How much of the cube is occupied."""
        return float(self.is_occupied.float().mean())

    def cell_index(self, positions: Float[Tensor, "*n 3"]) -> Int[Tensor, "*n"]:
        """The cell of each position; outside of the cube, the nearest one."""
        cell = (positions * self.resolution).floor_().clamp_(0, self.resolution - 1)
        # Numbers of cells are whole floats: exact up to 2^24, and quicker than integers.
        strides = cell.new_tensor([self.resolution**2, self.resolution, 1.0])
        return torch.mv(cell.reshape(-1, 3), strides).to(torch.int64).reshape(cell.shape[:-1])

    def lookup(self, positions: Float[Tensor, "*n 3"]) -> Bool[Tensor, "*n"]:
        """Whether the cells of positions are occupied."""
        return self.is_occupied[self.cell_index(positions)]

    def positions_in(
        self, cells: Int[Tensor, " n"], jitter: Float[Tensor, "n 3"]
    ) -> Float[Tensor, "n 3"]:
        """A place within each cell; ``jitter`` in [0, 1) says where."""
        x = torch.div(cells, self.resolution**2, rounding_mode="floor")
        y = torch.div(cells, self.resolution, rounding_mode="floor") % self.resolution
        corner = torch.stack([x, y, cells % self.resolution], dim=1)
        return (corner + jitter) / self.resolution

    def update(
        self,
        cells: Int[Tensor, " n"],
        density: Float[Tensor, " n"],
        *,
        decay: float,
        step: float,
        threshold: float = 0.01,
    ) -> None:
        """Let all cells fade, raise those looked at to what was found, and decide anew."""
        self.density *= decay
        self.density[cells] = torch.maximum(self.density[cells], density)
        limit = min(threshold / step, float(self.density.mean()))
        self.is_occupied.copy_(self.density > limit)
