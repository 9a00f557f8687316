"""The noise a chunk starts from: a function of its position, not of what ran before.

Drawn on the CPU in float32 from NumPy's ``SeedSequence``, so that neither the device, nor the
batch, nor the number of processes changes it, and neighbouring seeds share nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from cosmos_transfer.errors import ConfigError, explain


def chunk_noise(
    shape: Sequence[int], *, seed: int, episode: int = 0, variant: int = 0, chunk: int = 0
) -> Float[Tensor, "*shape"]:
    """Standard normal noise of one chunk of one clip.

    Args:
        shape: Size of the latents of one clip; stack several clips' noise for a batch.
        seed: The request's seed, at least 0.
        episode: Which episode of a data set.
        variant: Which look of the same clip.
        chunk: Index of the chunk in a long video.

    Raises:
        ConfigError: A number below 0 or too large.
    """
    for name, value, bits in (
        ("seed", seed, 64),
        ("episode", episode, 32),
        ("variant", variant, 32),
        ("chunk", chunk, 32),
    ):
        if not 0 <= value < 2**bits:
            raise ConfigError(
                explain(
                    name,
                    expected=f"a whole number from 0 to 2**{bits} - 1",
                    got=f"{value}",
                    do="Choose one in that range.",
                )
            )
    # A spawn key is kept apart from the seed's own words, so that no seed can imitate a position.
    sequence = np.random.SeedSequence(seed, spawn_key=(episode, variant, chunk))
    generator = np.random.Generator(np.random.PCG64(sequence))
    return torch.from_numpy(generator.standard_normal(tuple(shape), dtype=np.float32))
