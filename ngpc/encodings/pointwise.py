"""Encodings without parameters: triangle waves, one-blob, spherical harmonics, identity."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from ngpc.config import (
    IdentityConfig,
    OneBlobConfig,
    SphericalHarmonicsConfig,
    TriangleWaveConfig,
)
from ngpc.encodings.padding import PaddedEncoding
from ngpc.errors import ConfigError, explain
from ngpc.ops.pointwise import (
    encode_one_blob,
    encode_spherical_harmonics,
    encode_triangle_wave,
)


class TriangleWave(PaddedEncoding):
    """Triangle waves of each coordinate at octaves."""

    config: TriangleWaveConfig

    def __init__(self, config: TriangleWaveConfig, *, num_dims: int) -> None:
        """Encode positions of ``num_dims`` coordinates."""
        super().__init__()
        self.config = config
        self.num_dims = num_dims

    @property
    def num_outputs(self) -> int:
        """Width of an encoded position."""
        return self.num_dims * self.config.num_frequencies

    def forward(self, positions: Float[Tensor, "p x"]) -> Float[Tensor, "p d"]:
        """Encode positions of any range."""
        return encode_triangle_wave(positions, num_frequencies=self.config.num_frequencies)


class OneBlob(PaddedEncoding):
    """A soft histogram of each coordinate over the unit interval."""

    config: OneBlobConfig

    def __init__(self, config: OneBlobConfig, *, num_dims: int) -> None:
        """Encode positions of ``num_dims`` coordinates."""
        super().__init__()
        self.config = config
        self.num_dims = num_dims

    @property
    def num_outputs(self) -> int:
        """Width of an encoded position."""
        return self.num_dims * self.config.num_bins

    def forward(self, positions: Float[Tensor, "p x"]) -> Float[Tensor, "p d"]:
        """Encode positions in the unit cube."""
        return encode_one_blob(positions, num_bins=self.config.num_bins)


class SphericalHarmonics(PaddedEncoding):
    """Real spherical harmonics of a direction given as ``(v + 1) / 2``."""

    config: SphericalHarmonicsConfig

    is_padded_in_front = True

    def __init__(self, config: SphericalHarmonicsConfig, *, num_dims: int = 3) -> None:
        """Encode directions; there are three coordinates to one."""
        super().__init__()
        if num_dims != 3:
            raise ConfigError(
                explain(
                    "SphericalHarmonics",
                    expected="3 coordinates",
                    got=f"{num_dims}",
                    do="Give a direction; in a composite set n_dims_to_encode to 3.",
                )
            )
        self.config = config

    @property
    def num_outputs(self) -> int:
        """Width of an encoded direction."""
        return self.config.degree**2

    def forward(self, directions: Float[Tensor, "p 3"]) -> Float[Tensor, "p d"]:
        """Encode directions."""
        return encode_spherical_harmonics(directions, degree=self.config.degree)


class Identity(PaddedEncoding):
    """Each coordinate times a number plus a number."""

    config: IdentityConfig

    def __init__(self, config: IdentityConfig, *, num_dims: int) -> None:
        """Pass on positions of ``num_dims`` coordinates."""
        super().__init__()
        self.config = config
        self.num_dims = num_dims

    @property
    def num_outputs(self) -> int:
        """Width of an encoded position: its number of coordinates."""
        return self.num_dims

    def forward(self, positions: Float[Tensor, "p x"]) -> Float[Tensor, "p x"]:
        """Scale and shift positions."""
        return positions * self.config.scale + self.config.offset
