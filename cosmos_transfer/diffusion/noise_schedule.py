"""Decreasing grids of sigma, from (nearly) pure noise to 0, in plain Python numbers.

``sigma`` is the flow's: 1 is pure noise, 0 is clean. Every grid has ``num_steps + 1`` entries and
ends in 0, so that one step is one call of the denoiser for a first-order sampler.
"""

from __future__ import annotations

from cosmos_transfer.errors import ConfigError, explain

# The exponent of Karras et al., arXiv:2206.00364, equation 5.
KARRAS_EXPONENT = 7.0


def flow_sigmas(num_steps: int, *, shift: float = 1.0, start: float = 1.0) -> tuple[float, ...]:
    """Even steps in sigma from ``start`` to 0, moved towards noise by ``shift``.

    Args:
        num_steps: Steps of the sampler.
        shift: 1 leaves the steps even; larger values spend more of them at high noise, which
            larger pictures need: ``sigma -> shift * sigma / (1 + (shift - 1) * sigma)``.
        start: The first sigma, after the shift; below 1 for a run that starts from a clip.

    Source:
        Stable Diffusion 3, arXiv:2403.03206, equation 23.
    """
    _check_num_steps(num_steps)
    if not shift > 0.0:
        raise ConfigError(
            explain("shift", expected="a number above 0", got=f"{shift}", do="1 means no shift.")
        )
    check_strength(start)
    first = 1.0 if start == 1.0 else start / (shift - (shift - 1.0) * start)
    even = (first * (1.0 - i / num_steps) for i in range(num_steps + 1))
    return tuple(shift * sigma / (1.0 + (shift - 1.0) * sigma) for sigma in even)


def karras_sigmas(
    num_steps: int, *, sigma_max: float = 200.0, sigma_min: float = 0.01
) -> tuple[float, ...]:
    """The grid of the published Cosmos 2.5 scheduler: Karras' spacing of noise-to-signal ratios.

    Args:
        num_steps: Steps of the sampler.
        sigma_max: Largest ratio of noise to signal (unbounded, unlike the flow's sigma).
        sigma_min: Smallest ratio before the final 0.

    Returns:
        The flow's sigmas ``ratio / (1 + ratio)``.

    Source:
        arXiv:2206.00364, equation 5; the ratios are mapped as in diffusers'
        UniPCMultistepScheduler with ``use_karras_sigmas`` and ``use_flow_sigmas``.
    """
    _check_num_steps(num_steps)
    if not 0.0 < sigma_min < sigma_max:
        raise ConfigError(
            explain(
                "noise schedule",
                expected="0 < sigma_min < sigma_max",
                got=f"sigma_min={sigma_min}, sigma_max={sigma_max}",
                do="Swap or correct them.",
            )
        )
    first, last = sigma_max ** (1 / KARRAS_EXPONENT), sigma_min ** (1 / KARRAS_EXPONENT)
    ratios = (
        (first + (last - first) * i / max(num_steps - 1, 1)) ** KARRAS_EXPONENT
        for i in range(num_steps)
    )
    return (*(ratio / (1.0 + ratio) for ratio in ratios), 0.0)


def checkpoint_sigmas(
    num_steps: int,
    *,
    shift: float,
    karras: tuple[float, float] | None,
    start: float = 1.0,
) -> tuple[float, ...]:
    """The grid a checkpoint asks for.

    Args:
        num_steps: Steps of the sampler.
        shift: The shift of even steps; not used with ``karras``.
        karras: Largest and smallest ratio of noise to signal, where the checkpoint was
            published with Karras' spacing.
        start: The first sigma where it is to be lower than the checkpoint's own; see
            :func:`start_latents`. All ``num_steps`` steps are spent below it.
    """
    check_strength(start)
    if karras is None:
        return flow_sigmas(num_steps, shift=shift, start=start)
    sigma_max, sigma_min = karras
    if start < 1.0:
        sigma_max = min(sigma_max, start / (1.0 - start))
    return karras_sigmas(num_steps, sigma_max=sigma_max, sigma_min=sigma_min)


def check_strength(strength: float) -> None:
    """Refuse a first sigma that is no place in the flow.

    Raises:
        ConfigError: Not in (0, 1].
    """
    if not 0.0 < strength <= 1.0:
        raise ConfigError(
            explain(
                "strength",
                expected="a number above 0 and at most 1",
                got=f"{strength}",
                do="1 starts from noise alone; a ratio r of noise to signal is r / (1 + r).",
            )
        )


def _check_num_steps(num_steps: int) -> None:
    if num_steps < 1:
        raise ConfigError(
            explain(
                "num_inference_steps", expected="at least 1", got=f"{num_steps}", do="Ask for more."
            )
        )
