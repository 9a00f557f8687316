"""The multi-resolution grid as a module that owns its table."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ngpc.backends.registry import AUTO
from ngpc.config import GridConfig
from ngpc.encodings.padding import PaddedEncoding
from ngpc.ops.hash_grid import encode_grid, encode_grid_stochastic

INITIAL_RANGE = 1e-4


class HashGrid(PaddedEncoding):
    """Features of positions in the unit cube, from trained tables (hash, dense or tiled).

    ``table`` holds the levels one after the other, ``e v``; read row by row it is tiny-cuda-nn's
    parameter vector of the same configuration.
    """

    config: GridConfig

    padding_value = 0.0
    """What fills up the features before a perceptron: zeros, so that padding has no effect."""

    def __init__(
        self,
        config: GridConfig,
        *,
        num_dims: int,
        generator: torch.Generator | None = None,
        backend: str = AUTO,
    ) -> None:
        """Make a table of small random features, drawn on the CPU from ``generator``."""
        super().__init__()
        self.config = config
        self.backend = backend
        self.layout = config.layout(num_dims)
        table = torch.empty(self.layout.num_entries, self.layout.features_per_level)
        self.table = nn.Parameter(
            table.uniform_(-INITIAL_RANGE, INITIAL_RANGE, generator=generator)
        )

    @property
    def num_outputs(self) -> int:
        """Width of an encoded position."""
        return self.layout.num_features

    @property
    def output_multiple(self) -> int:
        """Features of a level: where a composite lets a grid begin."""
        return self.layout.features_per_level

    def forward(
        self, positions: Float[Tensor, "p x"], *, generator: torch.Generator | None = None
    ) -> Float[Tensor, "p d"]:
        """Encode positions in the unit cube.

        Args:
            positions: Outside the cube the grid repeats in disorder.
            generator: Picks the vertices that stochastic interpolation sends gradients to; None
                takes torch's own.
        """
        if self.config.stochastic_interpolation and self.table.requires_grad:
            samples = torch.rand(
                (len(positions), self.layout.num_levels),
                generator=generator,
                device=positions.device,
                dtype=torch.float32,
            )
            return encode_grid_stochastic(
                positions,
                self.table,
                samples,
                layout=self.layout,
                interpolation=self.config.interpolation,
                backend=self.backend,
            )
        return encode_grid(
            positions,
            self.table,
            layout=self.layout,
            interpolation=self.config.interpolation,
            backend=self.backend,
        )
