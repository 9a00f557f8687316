"""Triangle-wave encoding: the frequency encoding with straight lines for sines."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def encode_triangle_wave(
    positions: Float[Tensor, "p x"], *, num_frequencies: int
) -> Float[Tensor, "p d"]:
    """Give a triangle wave in [-1, 1] per coordinate and octave; octave ``k`` has period 2^(1-k).

    Each octave is shifted by another quarter of its period, so that their zeros do not coincide.

    Source:
        Müller et al., Real-time neural radiance caching, section 3.3; the phases are those of
        tiny-cuda-nn, ``encodings/triangle_wave.h``.
    """
    octaves = torch.arange(num_frequencies, dtype=positions.dtype, device=positions.device)
    phase = positions.unsqueeze(2) * 2.0 ** (octaves - 1.0) + 0.25 * octaves  # p x k
    within_period = phase - phase.detach().floor()
    return (4.0 * (within_period - 0.5).abs() - 1.0).flatten(start_dim=1)
