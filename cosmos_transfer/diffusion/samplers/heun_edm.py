"""Heun's method as EDM runs it: along the ratio of noise to signal instead of the flow's sigma.

The same second order as ``heun``, with its steps straight in another scale: use it where a
checkpoint was tuned with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from jaxtyping import Float
from torch import Tensor

from cosmos_transfer.diffusion.denoiser import Denoiser
from cosmos_transfer.diffusion.samplers import check_sigmas


def sample(
    denoiser: Denoiser,
    latents: Float[Tensor, "b c t h w"],
    sigmas: Sequence[float],
    *,
    on_step: Callable[[int], None] | None = None,
) -> Float[Tensor, "b c t h w"]:
    """Follow ``sigmas``; a last step to 0 is Euler's. A first step from pure noise is Euler's too.

    Source:
        Karras et al., arXiv:2206.00364, algorithm 1.
    """
    check_sigmas(sigmas)
    for step, (sigma, sigma_next) in enumerate(pairwise(sigmas)):
        denoised = denoiser(latents, sigma)
        predicted = denoised + (sigma_next / sigma) * (latents - denoised)
        if sigma_next > 0.0 and sigma < 1.0:
            # With x = latents / (1 - sigma) and dx/dratio = (x - denoised) / ratio.
            ratio, ratio_next = sigma / (1.0 - sigma), sigma_next / (1.0 - sigma_next)
            x = latents / (1.0 - sigma)
            slope = (x - denoised) / ratio
            there = (predicted / (1.0 - sigma_next) - denoiser(predicted, sigma_next)) / ratio_next
            x = x + (ratio_next - ratio) * 0.5 * (slope + there)
            latents = x * (1.0 - sigma_next)
        else:
            latents = predicted
        if on_step is not None:
            on_step(step + 1)
    return latents
