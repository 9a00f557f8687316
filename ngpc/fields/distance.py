"""A surface as a signed distance: positive outside, in sides of the field's box."""

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
from ngpc.fields.field_files import StoredField, box_from_json, box_to_json
from ngpc.fields.flat import EncodedPerceptron
from ngpc.fields.growth import directions_of_growth
from ngpc.geometry.boxes import Box

NORMAL_STEP = 1.0 / 96.0  # of the central differences, in sides of the box: about a fine cell


class DistanceField(StoredField):
    """A signed distance at every position of the unit cube."""

    FORMAT = "ngpc distance field 1"

    def __init__(
        self,
        *,
        box: Box,
        encoding: EncodingConfig,
        network: MlpConfig,
        generator: torch.Generator | None = None,
        backend: str = AUTO,
    ) -> None:
        """Make an untrained field of the cube of the world that ``box`` is."""
        super().__init__()
        self.box = box
        self.encoding_config = encoding
        self.network_config = network
        self.inner = EncodedPerceptron(
            encoding, network, num_inputs=3, num_outputs=1, generator=generator, backend=backend
        )

    def forward(self, positions: Float[Tensor, "p 3"]) -> Float[Tensor, " p"]:
        """The distance at each position of the unit cube."""
        return self.inner(positions)[:, 0]

    def normals(self, positions: Float[Tensor, "p 3"]) -> Float[Tensor, "p 3"]:
        """Unit directions in which the distance grows, by central differences."""
        return directions_of_growth(self, positions, step=NORMAL_STEP)

    def description(self) -> dict[str, Any]:
        """All that rebuilds the field but its parameters."""
        return {
            "box": box_to_json(self.box),
            "encoding": encoding_to_json(self.encoding_config),
            "network": network_to_json(self.network_config),
        }

    @classmethod
    def from_description(
        cls, description: Mapping[str, Any], *, backend: str = AUTO
    ) -> DistanceField:
        """An untrained field that fits the parameters."""
        return cls(
            box=box_from_json(description["box"]),
            encoding=encoding_from_json(description["encoding"]),
            network=network_from_json(description["network"]),
            backend=backend,
        )
