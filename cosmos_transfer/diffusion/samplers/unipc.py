"""UniPC: a multistep predictor and corrector, one call a step; what Cosmos 2.5 is run with.

The integrator is diffusers' ``UniPCMultistepScheduler`` in its flow form, second order with the
``bh2`` variant, which are the settings of the published pipeline.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float
from torch import Tensor

from cosmos_transfer.diffusion.denoiser import Denoiser
from cosmos_transfer.diffusion.samplers import check_sigmas
from cosmos_transfer.errors import ConfigError, explain


def sample(
    denoiser: Denoiser,
    latents: Float[Tensor, "b c t h w"],
    sigmas: Sequence[float],
    *,
    on_step: Callable[[int], None] | None = None,
) -> Float[Tensor, "b c t h w"]:
    """Follow ``sigmas`` with UniPC.

    A first sigma of exactly 1 is lowered by 1e-6, because the method works with the logarithm of
    the signal-to-noise ratio.

    Raises:
        ConfigError: The sigmas do not end in 0.

    Source:
        Zhao et al., arXiv:2302.04867.
    """
    from diffusers import UniPCMultistepScheduler

    check_sigmas(sigmas)
    if sigmas[-1] != 0.0:
        raise ConfigError(
            explain(
                "sampler unipc",
                expected="sigmas that end in 0",
                got=f"{sigmas[-1]}",
                do="Use the euler or heun sampler for a run that stops early.",
            )
        )
    scheduler = UniPCMultistepScheduler(
        prediction_type="sample",  # the denoiser's output is what the method integrates
        use_flow_sigmas=True,
        solver_order=2,
        solver_type="bh2",
        final_sigmas_type="zero",
    )
    scheduler.set_timesteps(sigmas=np.asarray(sigmas[:-1]), device=latents.device)
    scheduler.set_begin_index(0)
    for step, timestep in enumerate(scheduler.timesteps):
        denoised = denoiser(latents, scheduler.sigmas[step].item())
        latents = scheduler.step(denoised, timestep, latents, return_dict=False)[0]
        if on_step is not None:
            on_step(step + 1)
    return latents
