"""Controls that act during a part of the denoising steps, or change over them.

The first steps decide what is where, the last ones what it looks like. A control with
``steps = (0, 0.5)`` acts in the first half; one with ``step_ramp = (1, 0)`` fades out from the
first of its steps to the last. The steps fall into phases in which nothing changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from cosmos_transfer.diffusion.denoiser import Denoiser
from cosmos_transfer.inputs.request import acting_steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """Neighbouring steps, ``first`` to ``last``, and per control the factor of its weight there:
    0 where it does not act."""

    first: int
    last: int
    factors: tuple[float, ...]

    @property
    def is_plain(self) -> bool:
        """Whether every control acts with its own weight."""
        return all(factor == 1.0 for factor in self.factors)


def plan_phases(
    steps: Sequence[tuple[float, float] | None],
    num_inference_steps: int,
    ramps: Sequence[tuple[float, float] | None] | None = None,
) -> tuple[Phase, ...]:
    """The phases of a run.

    Args:
        steps: Per control the shares between which it acts; None is always.
        num_inference_steps: Steps of the run.
        ramps: Per control the factor in its first step and in its last, linear in between; None is
            1 throughout.

    Source:
        ``control_guidance_start`` and ``_end`` of diffusers mean the same.
    """
    by_control = [
        _factors(share, ramp, num_inference_steps)
        for share, ramp in zip(steps, ramps or [None] * len(steps), strict=True)
    ]
    phases: list[Phase] = []
    for step in range(num_inference_steps):
        factors = tuple(each[step] for each in by_control)
        if phases and phases[-1].factors == factors:
            phases[-1] = Phase(first=phases[-1].first, last=step, factors=factors)
        else:
            phases.append(Phase(first=step, last=step, factors=factors))
    return tuple(phases)


def _factors(
    share: tuple[float, float] | None, ramp: tuple[float, float] | None, num_steps: int
) -> list[float]:
    """The factor of one control's weight at every step."""
    acting = acting_steps(share, num_steps)
    factors = [0.0] * num_steps
    first, last = ramp or (1.0, 1.0)
    for place, step in enumerate(acting):
        along = place / max(len(acting) - 1, 1)
        factors[step] = first + along * (last - first)
    return factors


@dataclass(frozen=True, slots=True)
class Phased:
    """A denoiser for every phase, each down to the sigma of the phase's last step."""

    denoisers: tuple[tuple[float, Denoiser], ...]

    def __call__(
        self, noisy_latents: Float[Tensor, "b c t h w"], sigma: float
    ) -> Float[Tensor, "b c t h w"]:
        """Estimate the clean latents with the denoiser of the phase that sigma lies in."""
        for lowest, denoiser in self.denoisers:
            if sigma >= lowest:
                return denoiser(noisy_latents, sigma)
        return self.denoisers[-1][1](noisy_latents, sigma)
