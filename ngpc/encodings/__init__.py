"""Modules that turn positions into features, and own what is trained of that."""

from __future__ import annotations

import torch

from ngpc.backends.registry import AUTO
from ngpc.config import EncodingConfig, FrequencyConfig
from ngpc.encodings.frequency import Frequency
from ngpc.encodings.hash_grid import HashGrid

__all__ = ["Encoding", "Frequency", "HashGrid", "make_encoding"]

Encoding = HashGrid | Frequency


def make_encoding(
    config: EncodingConfig,
    *,
    num_dims: int,
    generator: torch.Generator | None = None,
    backend: str = AUTO,
) -> Encoding:
    """Build the encoding that a configuration describes."""
    if isinstance(config, FrequencyConfig):
        return Frequency(config, num_dims=num_dims, backend=backend)
    return HashGrid(config, num_dims=num_dims, generator=generator, backend=backend)
