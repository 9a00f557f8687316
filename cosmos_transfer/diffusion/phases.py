"""Controls that act during a part of the denoising steps.

The first steps decide what is where, the last ones what it looks like. A control with
``steps = (0, 0.5)`` acts in the first half; where several controls say something of the kind, the
steps fall into phases, each with the controls that act in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from cosmos_transfer.diffusion.denoiser import Denoiser

# Shares are written in decimals: a third of 12 steps is 0.3333 to the one who writes it.
ROUNDING = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """Neighbouring steps, ``first`` to ``last``, in which the same controls act."""

    first: int
    last: int
    acts: tuple[bool, ...]


def plan_phases(
    steps: Sequence[tuple[float, float] | None], num_inference_steps: int
) -> tuple[Phase, ...]:
    """The phases of a run.

    Step ``i`` of ``n`` covers the shares from ``i / n`` to ``(i + 1) / n``; a control acts in the
    steps that lie within its own.

    Args:
        steps: Per control the shares between which it acts; None is always.
        num_inference_steps: Steps of the run.

    Source:
        ``control_guidance_start`` and ``_end`` of diffusers mean the same.
    """
    phases: list[Phase] = []
    for step in range(num_inference_steps):
        begin, end = step / num_inference_steps, (step + 1) / num_inference_steps
        acts = tuple(
            share is None or (begin >= share[0] - ROUNDING and end <= share[1] + ROUNDING)
            for share in steps
        )
        if phases and phases[-1].acts == acts:
            phases[-1] = Phase(first=phases[-1].first, last=step, acts=acts)
        else:
            phases.append(Phase(first=step, last=step, acts=acts))
    return tuple(phases)


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
