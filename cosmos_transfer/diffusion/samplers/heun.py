"""Heun: Euler's step, then the mean of the velocities at both ends. Second order, two calls."""

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
    """Follow ``sigmas`` with Heun's method; a last step to 0 is Euler's and ends exactly there.

    Source:
        Karras et al., arXiv:2206.00364, algorithm 1, in the flow's terms.
    """
    check_sigmas(sigmas)
    for step, (sigma, sigma_next) in enumerate(pairwise(sigmas)):
        denoised = denoiser(latents, sigma)
        predicted = denoised + (sigma_next / sigma) * (latents - denoised)
        if sigma_next > 0.0:
            velocity = (latents - denoised) / sigma
            velocity_next = (predicted - denoiser(predicted, sigma_next)) / sigma_next
            latents = latents + (sigma_next - sigma) * 0.5 * (velocity + velocity_next)
        else:
            latents = predicted
        if on_step is not None:
            on_step(step + 1)
    return latents
