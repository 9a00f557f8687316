"""Reuse of a network's output where its input has hardly moved: a step cache for our loop.

One :class:`StepCache` holds the memory of one pass. The conditional and the unconditional pass see
different inputs and each has its own; a chunk starts with new ones. It changes the result a little
and is therefore off by default; the record says when it was used.

A sampler of second order calls the network twice at the same sigma, at a predicted and at the
corrected latents; those two are closest, and the cache mostly saves the second of them.

Source:
    The idea of TeaCache (arXiv:2411.19108): skip while the accumulated relative change of the
    input stays under a threshold. The velocity is what is kept: it changes least along a flow.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from jaxtyping import Float
from torch import Tensor

from cosmos_transfer.diffusion.denoiser import Denoiser
from cosmos_transfer.errors import ConfigError, explain

DEFAULT_THRESHOLD = 0.05
"""Relative change of the latents, summed since the last evaluation, below which it is reused."""


@dataclass(slots=True)
class StepCache:
    """A denoiser that remembers its last velocity.

    ``num_calls`` counts what the sampler asked, ``num_evaluations`` what the network was run for.
    """

    denoiser: Denoiser
    threshold: float
    num_calls: int = 0
    num_evaluations: int = 0
    _velocity: Tensor | None = field(default=None, repr=False)
    _seen: Tensor | None = field(default=None, repr=False)
    _moved: float = 0.0

    def __post_init__(self) -> None:
        """Refuse a threshold that means nothing."""
        if not 0.0 <= self.threshold < 1.0:
            raise ConfigError(
                explain(
                    "step_cache",
                    expected="a number from 0 (off) up to 1",
                    got=f"{self.threshold}",
                    do=f"{DEFAULT_THRESHOLD} is the default.",
                )
            )

    def __call__(
        self, noisy_latents: Float[Tensor, "b c t h w"], sigma: float
    ) -> Float[Tensor, "b c t h w"]:
        """Estimate the clean latents, from memory where nothing much has changed."""
        self.num_calls += 1
        if self._velocity is not None and self._seen is not None:
            change = (noisy_latents - self._seen).float().norm()
            self._moved += float(change / self._seen.float().norm().clamp_min(1e-12))
            self._seen = noisy_latents
            if self._moved < self.threshold:
                return noisy_latents - sigma * self._velocity
        denoised = self.denoiser(noisy_latents, sigma)
        self.num_evaluations += 1
        self._velocity = (noisy_latents - denoised) / sigma
        self._seen, self._moved = noisy_latents, 0.0
        return denoised
