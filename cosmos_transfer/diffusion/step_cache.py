"""Steps without the network where its output can be foretold: a step cache for our loop.

Along a flow the velocity changes slowly and nearly straight in sigma. From the last two times the
network ran, the cache knows how fast; while the change it foretells since the last run stays under
a threshold, it continues the line instead of running the network.

One :class:`StepCache` holds the memory of one pass. The conditional and the unconditional pass see
different inputs and each has its own; a chunk starts with new ones. It changes the result a little
and is therefore off by default; the record says when it was used, and how often the network ran.

Source:
    The ideas of TeaCache (arXiv:2411.19108: skip by accumulated change) and TaylorSeer
    (arXiv:2503.06923: continue instead of repeat), applied to the whole network's velocity.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from jaxtyping import Float
from torch import Tensor

from cosmos_transfer.diffusion.denoiser import Denoiser
from cosmos_transfer.errors import ConfigError, explain

DEFAULT_THRESHOLD = 0.15
"""Foretold relative change of the velocity since the network last ran, below which it rests."""


@dataclass(slots=True)
class StepCache:
    """A denoiser that continues the line of its last two velocities.

    ``num_calls`` counts what the sampler asked, ``num_evaluations`` what the network was run for.
    """

    denoiser: Denoiser
    threshold: float
    num_calls: int = 0
    num_evaluations: int = 0
    _last: tuple[float, Tensor] | None = field(default=None, repr=False)
    _slope: Tensor | None = field(default=None, repr=False)  # change of the velocity per sigma
    _speed: float = 0.0  # its size over the velocity's

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
        """Estimate the clean latents, without the network where its output can be foretold."""
        self.num_calls += 1
        if self._last is not None and self._slope is not None:
            at, velocity = self._last
            if abs(sigma - at) * self._speed < self.threshold:
                return noisy_latents - sigma * (velocity + (sigma - at) * self._slope)
        denoised = self.denoiser(noisy_latents, sigma)
        self.num_evaluations += 1
        self._remember(sigma, (noisy_latents - denoised) / sigma)
        return denoised

    def _remember(self, sigma: float, velocity: Tensor) -> None:
        if self._last is not None and self._last[0] != sigma:
            before, velocity_before = self._last
            self._slope = (velocity - velocity_before) / (sigma - before)
            size = velocity.float().norm().clamp_min(1e-12)
            self._speed = float(self._slope.float().norm() / size)
        self._last = (sigma, velocity)
