"""Classifier-free guidance: move from the unconditional estimate past the conditional one.

``guidance_scale`` is the field's: 1 is off, 0 would be the unconditional estimate. NVIDIA's g, in
``v = c + g * (c - u)``, is ours minus one. Denoised latents and velocity are related linearly at
a given sigma, so guiding one guides the other by the same amount.
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from cosmos_transfer.diffusion.denoiser import Denoiser
from cosmos_transfer.errors import ConfigError, explain


@dataclass(frozen=True, slots=True)
class Guided:
    """A denoiser guided away from another one.

    With a scale of 1 the unconditional denoiser is never called, and may be absent.
    """

    conditional: Denoiser
    unconditional: Denoiser | None
    guidance_scale: float

    def __post_init__(self) -> None:
        """Refuse a scale that cannot be acted on."""
        if not 0.0 <= self.guidance_scale < float("inf"):
            raise ConfigError(
                explain(
                    "guidance_scale",
                    expected="a finite number of at least 0",
                    got=f"{self.guidance_scale}",
                    do="1 switches guidance off.",
                )
            )
        if self.guidance_scale != 1.0 and self.unconditional is None:
            raise ConfigError(
                explain(
                    "guidance_scale",
                    expected="1 without an unconditional denoiser",
                    got=f"{self.guidance_scale}",
                    do="Pass the unconditional denoiser.",
                )
            )

    def __call__(
        self, noisy_latents: Float[Tensor, "b c t h w"], sigma: float
    ) -> Float[Tensor, "b c t h w"]:
        """Estimate the clean latents: ``u + guidance_scale * (c - u)``."""
        conditional = self.conditional(noisy_latents, sigma)
        if self.guidance_scale == 1.0 or self.unconditional is None:
            return conditional
        unconditional = self.unconditional(noisy_latents, sigma)
        return unconditional + self.guidance_scale * (conditional - unconditional)
