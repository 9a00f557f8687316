from __future__ import annotations

import pytest
import torch

from cosmos_transfer.diffusion.guidance import Guided
from cosmos_transfer.errors import ConfigError
from tests.support.numerics import assert_agrees

NOISY = torch.linspace(-1.0, 1.0, 12, dtype=torch.float64).reshape(1, 1, 3, 2, 2)


def conditional(noisy_latents, sigma):
    return noisy_latents * (1.0 - sigma) + 1.0


def unconditional(noisy_latents, sigma):
    return noisy_latents * (1.0 - sigma) ** 2 - 2.0


def never(noisy_latents, sigma):
    raise AssertionError("the unconditional denoiser was called")


def test_a_scale_of_one_never_calls_the_unconditional_denoiser():
    guided = Guided(conditional, never, 1.0)
    assert torch.equal(guided(NOISY, 0.3), conditional(NOISY, 0.3))


def test_a_scale_of_zero_is_the_unconditional_estimate():
    assert_agrees(
        Guided(conditional, unconditional, 0.0)(NOISY, 0.3), unconditional(NOISY, 0.3), rms=1e-15
    )


def test_our_scale_is_nvidias_plus_one():
    sigma, nvidia_scale = 0.4, 3.0
    c = (NOISY - conditional(NOISY, sigma)) / sigma
    u = (NOISY - unconditional(NOISY, sigma)) / sigma
    velocity = c + nvidia_scale * (c - u)
    guided = Guided(conditional, unconditional, nvidia_scale + 1.0)(NOISY, sigma)
    assert_agrees(guided, NOISY - sigma * velocity, rms=1e-14)


@pytest.mark.parametrize("scale", [-1.0, float("nan"), float("inf")])
def test_impossible_scales_are_refused(scale):
    with pytest.raises(ConfigError, match="guidance_scale"):
        Guided(conditional, unconditional, scale)


def test_guidance_without_an_unconditional_denoiser_is_refused():
    with pytest.raises(ConfigError, match="without an unconditional"):
        Guided(conditional, None, 2.0)
