"""Guidance parallelism: the conditional pass on one half of the processes, the other on the rest.

Each process runs one pass and receives the other's result, so a step exchanges one tensor of the
latents' size. The combination is the one of :mod:`cosmos_transfer.diffusion.guidance`, to the last
bit: every process ends each step with the same latents.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from cosmos_transfer.parallel.job import Job


@dataclass(frozen=True, slots=True)
class OwnPass:
    """This process' pass; called like a denoiser, it gives the guided estimate."""

    job: Job
    denoiser: Callable[[Tensor, float], Tensor]
    guidance_scale: float

    def __call__(
        self, noisy_latents: Float[Tensor, "b c t h w"], sigma: float
    ) -> Float[Tensor, "b c t h w"]:
        """Estimate the clean latents: ``u + guidance_scale * (c - u)``."""
        own = self.denoiser(noisy_latents, sigma)
        conditional, unconditional = self.job.gather(own, "guidance")
        return unconditional + self.guidance_scale * (conditional - unconditional)
