"""One file a sampler, one signature: ``sample(denoiser, latents, sigmas, *, on_step=None)``.

``sigmas`` decrease strictly and end in 0, or above it for a run that is to be carried on;
``latents`` are noisy at ``sigmas[0]`` and come back, in their own dtype, denoised to the last
one. ``on_step`` is called with the number of steps done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from itertools import pairwise
from typing import Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from cosmos_transfer.diffusion.denoiser import Denoiser
from cosmos_transfer.errors import ConfigError, explain

SAMPLERS = ("euler", "heun", "heun_edm", "res2ab", "unipc")


@runtime_checkable
class Sampler(Protocol):
    """A way to integrate a denoiser from noise to clean latents."""

    def __call__(
        self,
        denoiser: Denoiser,
        latents: Float[Tensor, "b c t h w"],
        sigmas: Sequence[float],
        *,
        on_step: Callable[[int], None] | None = None,
    ) -> Float[Tensor, "b c t h w"]:
        """Follow ``sigmas`` from ``latents`` to their end."""
        ...


def get_sampler(name: str) -> Sampler:
    """The sampler of that name; its file is imported now, not before."""
    if name not in SAMPLERS:
        raise ConfigError(
            explain(
                "sampler",
                expected="one of " + ", ".join(SAMPLERS),
                got=f"{name!r}",
                do="Choose one of these names.",
            )
        )
    sampler: Sampler = import_module(f"{__name__}.{name}").sample
    return sampler


def check_sigmas(sigmas: Sequence[float]) -> None:
    """Refuse a grid that no sampler can follow."""
    decreasing = all(before > after for before, after in pairwise(sigmas))
    if len(sigmas) < 2 or not decreasing or not 0.0 <= sigmas[-1] < sigmas[0] <= 1.0:
        raise ConfigError(
            explain(
                "sigmas",
                expected="at least two, strictly decreasing within [0, 1]",
                got=f"{[round(sigma, 6) for sigma in sigmas]}",
                do="Build them with diffusion.noise_schedule.",
            )
        )
