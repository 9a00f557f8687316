from __future__ import annotations

import pytest
import torch

from cosmos_transfer.diffusion.guidance import Guided
from cosmos_transfer.diffusion.noise_schedule import flow_sigmas
from cosmos_transfer.diffusion.samplers import get_sampler
from cosmos_transfer.diffusion.step_cache import DEFAULT_THRESHOLD, StepCache
from cosmos_transfer.errors import ConfigError
from tests.support.numerics import assert_agrees, relative_rms

LATENTS = torch.linspace(-2.0, 2.0, 48, dtype=torch.float64).reshape(1, 2, 3, 2, 4)


class Counting:
    """A smooth denoiser that counts; towards ``mean``."""

    def __init__(self, mean=0.7):
        self.mean, self.calls = mean, 0

    def __call__(self, noisy, sigma):
        self.calls += 1
        variance = (1 - sigma) ** 2 * 0.25 + sigma**2
        centred = noisy - (1 - sigma) * self.mean
        return self.mean + (1 - sigma) * 0.25 / variance * centred


def run(threshold, *, steps=12, sampler="heun"):
    plain, cached = Counting(), Counting()
    cache = StepCache(cached, threshold)
    sigmas = flow_sigmas(steps)
    whole = get_sampler(sampler)(plain, LATENTS, sigmas)
    saved = get_sampler(sampler)(cache, LATENTS, sigmas)
    return whole, saved, plain, cached, cache


def test_a_threshold_of_zero_changes_nothing_to_the_last_bit():
    whole, saved, plain, cached, cache = run(0.0)
    assert torch.equal(whole, saved)
    assert plain.calls == cached.calls == cache.num_calls == cache.num_evaluations


def test_a_second_order_sampler_needs_half_the_evaluations():
    whole, saved, plain, cached, cache = run(DEFAULT_THRESHOLD)
    assert cache.num_calls == plain.calls == 23
    assert cached.calls == cache.num_evaluations
    assert plain.calls / cached.calls > 1.5
    assert_agrees(saved, whole, rms=0.1)


def test_a_large_threshold_is_felt():
    whole, saved, *_ = run(0.9)
    assert relative_rms(saved, whole) > 0.02


def test_the_two_passes_of_guidance_share_nothing():
    conditional, unconditional = Counting(0.7), Counting(-0.7)
    caches = StepCache(conditional, 0.3), StepCache(unconditional, 0.3)
    guided = Guided(*caches, 2.0)
    alone = StepCache(Counting(0.7), 0.3), StepCache(Counting(-0.7), 0.3)
    for sigma in (0.9, 0.8, 0.75, 0.7):
        got = guided(LATENTS, sigma)
        c, u = (each(LATENTS, sigma) for each in alone)
        assert torch.equal(got, u + 2.0 * (c - u))
    assert all(2 <= each.num_evaluations < 4 for each in caches)


def test_the_network_runs_until_its_speed_is_known():
    cache = StepCache(Counting(), 0.99)
    for sigma in (0.9, 0.8):
        cache(LATENTS, sigma)
    assert cache.num_evaluations == 2


def test_a_straight_velocity_is_foretold_exactly():
    def straight(noisy, sigma):
        return noisy - sigma * (3.0 + 0.5 * sigma) * torch.ones_like(noisy)

    cache = StepCache(straight, 0.9)
    got = [cache(LATENTS, sigma) for sigma in (0.9, 0.8, 0.5, 0.3)]
    assert cache.num_evaluations == 2
    assert_agrees(got[-1], straight(LATENTS, 0.3), rms=1e-12)


def test_small_steps_add_up():
    cache = StepCache(Counting(), 0.1)
    for i in range(20):
        cache(LATENTS, 0.9 - 0.04 * i)
    assert 2 < cache.num_evaluations < 20


@pytest.mark.parametrize("threshold", [-0.1, 1.0, float("nan")])
def test_a_threshold_that_means_nothing_is_refused(threshold):
    with pytest.raises(ConfigError, match="step_cache"):
        StepCache(Counting(), threshold)
