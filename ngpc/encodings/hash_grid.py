"""The multi-resolution grid as a module that owns its table."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ngpc.backends.registry import AUTO
from ngpc.config import GridConfig
from ngpc.ops.hash_grid import encode_grid

INITIAL_RANGE = 1e-4


class HashGrid(nn.Module):
    """Features of positions in the unit cube, from trained tables (hash, dense or tiled).

    ``table`` holds the levels one after the other, ``e v``; read row by row it is tiny-cuda-nn's
    parameter vector of the same configuration.
    """

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

    def forward(self, positions: Float[Tensor, "p x"]) -> Float[Tensor, "p d"]:
        """Encode positions in the unit cube."""
        return encode_grid(
            positions,
            self.table,
            layout=self.layout,
            interpolation=self.config.interpolation,
            backend=self.backend,
        )
