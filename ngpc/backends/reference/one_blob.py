"""One-blob encoding: how much of a small kernel around each coordinate falls into each bin."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def encode_one_blob(positions: Float[Tensor, "p x"], *, num_bins: int) -> Float[Tensor, "p d"]:
    """Integrate a quartic kernel as wide as two bins over the bins of the unit interval.

    The interval is a circle: what the kernel loses at one end it gains at the other, so that the
    bins of a coordinate in [0, 1] sum to one.

    Source:
        Müller et al., Neural importance sampling, section 4.3; the quartic kernel and the wrapping
        are those of tiny-cuda-nn, ``encodings/oneblob.h``.
    """
    bins = torch.arange(num_bins + 1, dtype=positions.dtype, device=positions.device)
    offsets = bins / num_bins - positions.unsqueeze(2)  # p x edges
    below_edge = sum(_quartic_cdf((offsets + turn) * num_bins) for turn in (-1.0, 0.0, 1.0))
    assert isinstance(below_edge, Tensor)
    return (below_edge[..., 1:] - below_edge[..., :-1]).flatten(start_dim=1)


def _quartic_cdf(u: Float[Tensor, "p x k"]) -> Float[Tensor, "p x k"]:
    """The integral of ``15/16 (1 - u^2)^2`` up to ``u``."""
    # Clamped before the polynomial, so that both derivatives vanish outside the kernel.
    u = u.clamp(-1.0, 1.0)
    square = u * u
    return 0.5 + 15.0 / 16.0 * u * (1.0 - 2.0 / 3.0 * square + 0.2 * square * square)
