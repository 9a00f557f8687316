"""A scene as density and colour at every place, colour also by direction; classes if it has any."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ngpc.backends.registry import AUTO
from ngpc.config import (
    Activation,
    EncodingConfig,
    MlpConfig,
    SphericalHarmonicsConfig,
    encoding_from_json,
    encoding_to_json,
    network_from_json,
    network_to_json,
)
from ngpc.encodings.pointwise import SphericalHarmonics
from ngpc.fields.field_files import StoredField, box_from_json, box_to_json
from ngpc.fields.flat import EncodedPerceptron
from ngpc.fields.growth import directions_of_growth
from ngpc.geometry.boxes import Box
from ngpc.geometry.occupancy import OccupancyGrid
from ngpc.networks.fused_mlp import FusedMLP

NUM_LATENT = 16  # outputs of the first network; the first of them is the logarithm of density
LARGEST_LOG_DENSITY = 12.0
NORMAL_STEP = 1.0 / 64.0  # of the central differences: density is rough over shorter lengths


class RadianceField(StoredField):
    """Density, colour and class probabilities in the unit cube; lengths are sides of the box.

    ``labels`` are the names of ids that are told apart; an id that is none of them is 0, nothing.
    ``view`` says how the pictures it was trained on were taken, for cameras of its own.
    """

    FORMAT = "ngpc radiance field 1"

    def __init__(
        self,
        *,
        box: Box,
        encoding: EncodingConfig,
        density_network: MlpConfig,
        colour_network: MlpConfig,
        occupancy_resolution: int,
        labels: Mapping[int, str] | None = None,
        view: Mapping[str, Any] | None = None,
        generator: torch.Generator | None = None,
        backend: str = AUTO,
    ) -> None:
        """Make an untrained field of the cube of the world that ``box`` is."""
        super().__init__()
        self.box = box
        self.labels = dict(labels or {})
        self.view = dict(view or {})
        self.encoding_config = encoding
        self.density_config, self.colour_config = density_network, colour_network
        self.density_net = EncodedPerceptron(
            encoding,
            density_network,
            num_inputs=3,
            num_outputs=NUM_LATENT,
            generator=generator,
            backend=backend,
        )
        self.directions = SphericalHarmonics(SphericalHarmonicsConfig(degree=4))
        self.colour_net = FusedMLP(
            colour_network,
            num_inputs=NUM_LATENT + self.directions.num_outputs,
            num_outputs=3,
            generator=generator,
            backend=backend,
        )
        self.class_net = None
        if self.labels:
            self.class_net = FusedMLP(
                MlpConfig(width=16, num_hidden_layers=1),
                num_inputs=NUM_LATENT,
                num_outputs=len(self.labels),
                generator=generator,
                backend=backend,
            )
        self.occupancy = OccupancyGrid(resolution=occupancy_resolution)

    def latent(self, positions: Float[Tensor, "p 3"]) -> Float[Tensor, "p k"]:
        """What density, colour and class are made of."""
        return self.density_net(positions)

    def density_of(self, latent: Float[Tensor, "p k"]) -> Float[Tensor, " p"]:
        """Optical depth per side of the box."""
        return torch.exp(latent[:, 0].clamp(max=LARGEST_LOG_DENSITY))

    def density(self, positions: Float[Tensor, "p 3"]) -> Float[Tensor, " p"]:
        """Optical depth per side of the box, from positions."""
        return self.density_of(self.latent(positions))

    def colour_of(
        self, latent: Float[Tensor, "p k"], directions: Float[Tensor, "p 3"]
    ) -> Float[Tensor, "p 3"]:
        """sRGB in [0, 1], as seen along unit directions."""
        encoded = self.directions((directions + 1.0) / 2.0).to(latent.dtype)
        return self.colour_net(torch.cat([latent, encoded], dim=1))

    def class_probabilities_of(self, latent: Float[Tensor, "p k"]) -> Float[Tensor, "p _c"]:
        """One column per label, in the order of ``labels``."""
        assert self.class_net is not None, "only for fields with labels"
        return torch.softmax(self.class_net(latent), dim=1)

    def normals(self, positions: Float[Tensor, "p 3"]) -> Float[Tensor, "p 3"]:
        """Unit directions in which the density falls, by central differences."""
        return -directions_of_growth(
            lambda places: self.latent(places)[:, 0], positions, step=NORMAL_STEP
        )

    def description(self) -> dict[str, Any]:
        """All that rebuilds the field but its parameters."""
        return {
            "box": box_to_json(self.box),
            "encoding": encoding_to_json(self.encoding_config),
            "density_network": network_to_json(self.density_config),
            "colour_network": network_to_json(self.colour_config),
            "occupancy_resolution": self.occupancy.resolution,
            "labels": {str(key): name for key, name in self.labels.items()},
            "view": self.view,
        }

    @classmethod
    def from_description(
        cls, description: Mapping[str, Any], *, backend: str = AUTO
    ) -> RadianceField:
        """An untrained field that fits the parameters."""
        return cls(
            box=box_from_json(description["box"]),
            encoding=encoding_from_json(description["encoding"]),
            density_network=network_from_json(description["density_network"]),
            colour_network=network_from_json(description["colour_network"]),
            occupancy_resolution=int(description["occupancy_resolution"]),
            labels={int(key): str(name) for key, name in description["labels"].items()},
            view=description["view"],
            backend=backend,
        )


def default_networks() -> tuple[MlpConfig, MlpConfig]:
    """Density and colour, small enough for a CPU."""
    return (
        MlpConfig(width=64, num_hidden_layers=1),
        MlpConfig(width=64, num_hidden_layers=1, output_activation=Activation.SIGMOID),
    )
