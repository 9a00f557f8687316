"""Euler: one straight step along the velocity per sigma. First order, one call a step."""

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
    """Follow ``sigmas`` with Euler's method.

    A step ``x + (sigma_next - sigma) * (x - denoised) / sigma`` is written as a move towards the
    denoised latents, which makes a last step to 0 return them exactly.
    """
    check_sigmas(sigmas)
    for step, (sigma, sigma_next) in enumerate(pairwise(sigmas)):
        denoised = denoiser(latents, sigma)
        latents = denoised + (sigma_next / sigma) * (latents - denoised)
        if on_step is not None:
            on_step(step + 1)
    return latents
