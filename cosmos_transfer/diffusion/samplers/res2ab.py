"""RES 2ab: a second-order exponential multistep method, one call a step; Cosmos-Transfer1's own.

Second-order Adams-Bashforth in the logarithm of the signal-to-noise ratio. It is stated for
``x = clean + ratio * noise``; the flow's latents are that times ``1 - sigma``, with
``ratio = sigma / (1 - sigma)``, and the update is written for them.
"""

from __future__ import annotations

import math
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
    """Follow ``sigmas`` with RES 2ab; a last step to 0 returns the denoised latents exactly.

    Cosmos-Transfer1 counts that last call apart from its 35 steps; here it is the 36th.

    Source:
        Zhang et al., arXiv:2308.02157, with the coefficients of Cosmos-Transfer1's sampler.
    """
    check_sigmas(sigmas)
    before: tuple[Tensor, float] | None = None
    for step, (sigma, sigma_next) in enumerate(pairwise(sigmas)):
        denoised = denoiser(latents, sigma)
        if sigma_next == 0.0:
            latents = denoised
        elif before is None or before[1] == 1.0:
            # The first step, or one whose predecessor has no finite place on the log scale.
            latents = denoised + (sigma_next / sigma) * (latents - denoised)
        else:
            latents = _second_order(latents, sigma, sigma_next, denoised, before)
        before = (denoised, sigma)
        if on_step is not None:
            on_step(step + 1)
    return latents


def _second_order(
    latents: Tensor,
    sigma: float,
    sigma_next: float,
    denoised: Tensor,
    before: tuple[Tensor, float],
) -> Tensor:
    denoised_before, sigma_before = before
    step = _log_ratio(sigma) - _log_ratio(sigma_next)
    step_before = _log_ratio(sigma_before) - _log_ratio(sigma)
    phi_1 = -math.expm1(-step) / step
    phi_2 = (1.0 - phi_1) / step
    of_before = -phi_2 * step / step_before
    of_this = phi_1 - of_before
    kept = sigma_next / sigma  # exp(-step), in the scale of the flow
    moved = step * (of_this * denoised + of_before * denoised_before)
    return kept * latents + (1.0 - sigma_next) * moved


def _log_ratio(sigma: float) -> float:
    return math.log(sigma / (1.0 - sigma))
