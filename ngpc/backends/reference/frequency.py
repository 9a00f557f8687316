"""Frequency encoding: sines and cosines of each coordinate at octaves."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor


def encode_frequency(
    positions: Float[Tensor, "p x"], *, num_frequencies: int
) -> Float[Tensor, "p d"]:
    """Give ``sin(pi 2^k x), cos(pi 2^k x)`` for each coordinate, and in it for each octave ``k``.

    The angle is taken modulo one turn before it is multiplied by pi, which is exact; the textbook
    form loses all digits of high octaves in low precision
    (``test_frequency_matches_the_textbook_form``).

    Source:
        tiny-cuda-nn, ``encodings/frequency.h``; Mildenhall et al., NeRF, equation 4.
    """
    octaves = 2.0 ** torch.arange(num_frequencies, dtype=positions.dtype, device=positions.device)
    half_turns = positions.unsqueeze(2) * octaves  # p x k
    half_turns = half_turns - 2.0 * torch.round(half_turns.detach() / 2.0)
    angles = math.pi * half_turns
    return torch.stack([angles.sin(), angles.cos()], dim=3).flatten(start_dim=1)
