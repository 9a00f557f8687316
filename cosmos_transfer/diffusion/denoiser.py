"""What samplers know of a model: noisy latents and their sigma in, denoised latents out."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor


@runtime_checkable
class Denoiser(Protocol):
    """The expected clean latents behind noisy ones, everything else already bound."""

    def __call__(
        self, noisy_latents: Float[Tensor, "b c t h w"], sigma: float
    ) -> Float[Tensor, "b c t h w"]:
        """Estimate the clean latents of ``(1 - sigma) * clean + sigma * noise``."""
        ...
