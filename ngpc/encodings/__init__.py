"""Modules that turn positions into features, and own what is trained of that."""

from __future__ import annotations

import torch

from ngpc.backends.registry import AUTO
from ngpc.config import (
    CompositeConfig,
    EncodingConfig,
    FrequencyConfig,
    GridConfig,
    IdentityConfig,
    OneBlobConfig,
    SphericalHarmonicsConfig,
    TriangleWaveConfig,
)
from ngpc.encodings.composite import Composite
from ngpc.encodings.frequency import Frequency
from ngpc.encodings.hash_grid import HashGrid
from ngpc.encodings.padding import PaddedEncoding
from ngpc.encodings.pointwise import Identity, OneBlob, SphericalHarmonics, TriangleWave

__all__ = [
    "Composite",
    "Frequency",
    "HashGrid",
    "Identity",
    "OneBlob",
    "PaddedEncoding",
    "SphericalHarmonics",
    "TriangleWave",
    "make_encoding",
]


def make_encoding(
    config: EncodingConfig,
    *,
    num_dims: int,
    generator: torch.Generator | None = None,
    backend: str = AUTO,
) -> PaddedEncoding:
    """Build the encoding that a configuration describes, for positions of ``num_dims`` columns.

    Raises:
        ConfigError: the configuration does not fit that number of coordinates.
    """
    match config:
        case GridConfig():
            return HashGrid(config, num_dims=num_dims, generator=generator, backend=backend)
        case FrequencyConfig():
            return Frequency(config, num_dims=num_dims, backend=backend)
        case TriangleWaveConfig():
            return TriangleWave(config, num_dims=num_dims)
        case OneBlobConfig():
            return OneBlob(config, num_dims=num_dims)
        case SphericalHarmonicsConfig():
            return SphericalHarmonics(config, num_dims=num_dims)
        case IdentityConfig():
            return Identity(config, num_dims=num_dims)
        case CompositeConfig():
            used = [
                (part, (begin, size))
                for part, (begin, size) in zip(config.parts, config.ranges(num_dims), strict=True)
                if size > 0
            ]
            modules = [
                make_encoding(part.encoding, num_dims=size, generator=generator, backend=backend)
                for part, (_, size) in used
            ]
            return Composite(config, modules, [coordinates for _, coordinates in used])
