"""A cloud as density and the light scattered at every place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ngpc.backends.registry import AUTO
from ngpc.config import (
    EncodingConfig,
    MlpConfig,
    encoding_from_json,
    encoding_to_json,
    network_from_json,
    network_to_json,
)
from ngpc.fields.field_files import StoredField
from ngpc.fields.flat import EncodedPerceptron
from ngpc.geometry.occupancy import OccupancyGrid


class VolumeField(StoredField):
    """Density and scattered radiance in the unit cube, the same in all directions.

    ``optical_depth`` is that across the cube where the density is 1. Radiance is linear.
    """

    FORMAT = "ngpc volume field 1"

    def __init__(
        self,
        *,
        optical_depth: float,
        encoding: EncodingConfig,
        network: MlpConfig,
        occupancy_resolution: int,
        generator: torch.Generator | None = None,
        backend: str = AUTO,
    ) -> None:
        """Make an untrained field."""
        super().__init__()
        self.optical_depth = optical_depth
        self.encoding_config, self.network_config = encoding, network
        self.inner = EncodedPerceptron(
            encoding, network, num_inputs=3, num_outputs=4, generator=generator, backend=backend
        )
        self.occupancy = OccupancyGrid(resolution=occupancy_resolution)

    def forward(self, positions: Float[Tensor, "p 3"]) -> Float[Tensor, "p 4"]:
        """Density as a share of the densest place, and red, green, blue; free to be negative."""
        return self.inner(positions)

    def medium(
        self, positions: Float[Tensor, "p 3"]
    ) -> tuple[Float[Tensor, " p"], Float[Tensor, "p 3"]]:
        """Optical depth per side of the cube, and scattered radiance; neither below 0."""
        outputs = self(positions).clamp_min(0.0)
        return outputs[:, 0] * self.optical_depth, outputs[:, 1:]

    def description(self) -> dict[str, Any]:
        """All that rebuilds the field but its parameters."""
        return {
            "optical_depth": self.optical_depth,
            "encoding": encoding_to_json(self.encoding_config),
            "network": network_to_json(self.network_config),
            "occupancy_resolution": self.occupancy.resolution,
        }

    @classmethod
    def from_description(
        cls, description: Mapping[str, Any], *, backend: str = AUTO
    ) -> VolumeField:
        """An untrained field that fits the parameters."""
        return cls(
            optical_depth=float(description["optical_depth"]),
            encoding=encoding_from_json(description["encoding"]),
            network=network_from_json(description["network"]),
            occupancy_resolution=int(description["occupancy_resolution"]),
            backend=backend,
        )
