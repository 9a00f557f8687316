"""Samplers against the Gaussian case, where denoiser and solution are closed forms.

Clean latents N(mean, s^2): a noisy latent has mean (1 - sigma) * mean and variance
v(sigma) = (1 - sigma)^2 s^2 + sigma^2, the expected clean latents are
mean + (1 - sigma) s^2 / v * (x - (1 - sigma) mean), and the flow carries the standardised latent
(x - (1 - sigma) mean) / sqrt(v) along unchanged.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from cosmos_transfer.diffusion.noise_schedule import flow_sigmas, karras_sigmas
from cosmos_transfer.diffusion.samplers import SAMPLERS, get_sampler
from cosmos_transfer.errors import ConfigError
from tests.support.numerics import assert_agrees, relative_rms

MEAN, STD = 0.7, 0.5
LATENTS = torch.linspace(-2.0, 2.0, 24, dtype=torch.float64).reshape(1, 2, 3, 2, 2)


def variance(sigma):
    return (1.0 - sigma) ** 2 * STD**2 + sigma**2


def gaussian_denoiser(noisy_latents, sigma):
    centred = noisy_latents - (1.0 - sigma) * MEAN
    return MEAN + (1.0 - sigma) * STD**2 / variance(sigma) * centred


def exact_solution(latents, sigma, sigma_next):
    standard = (latents - (1.0 - sigma) * MEAN) / math.sqrt(variance(sigma))
    return (1.0 - sigma_next) * MEAN + math.sqrt(variance(sigma_next)) * standard


def order_of_convergence(name, steps=(16, 32, 64, 128)):
    errors = [
        relative_rms(
            get_sampler(name)(gaussian_denoiser, LATENTS, flow_sigmas(n, shift=1.0)),
            exact_solution(LATENTS, 1.0, 0.0),
        )
        for n in steps
    ]
    return -np.polyfit(np.log(steps), np.log(errors), 1)[0]


def test_the_closed_form_solves_the_flow():
    sigma, step = 0.6, 1e-5
    velocity = (LATENTS - gaussian_denoiser(LATENTS, sigma)) / sigma
    numeric = (
        exact_solution(LATENTS, sigma, sigma + step) - exact_solution(LATENTS, sigma, sigma - step)
    ) / (2 * step)
    assert_agrees(numeric, velocity, rms=1e-8)


@pytest.mark.parametrize(("name", "order"), [("euler", 1.0), ("heun", 2.0)])
def test_order_of_convergence(name, order):
    assert order_of_convergence(name) == pytest.approx(order, abs=0.1)


@pytest.mark.parametrize("name", ["heun_edm", "res2ab"])
def test_order_of_convergence_over_the_ratio_of_noise_to_signal(name):
    # Both step along the ratio: refine Karras' spacing of it, and stop above zero.
    steps, errors = (16, 32, 64, 128), []
    for num_steps in steps:
        sigmas = karras_sigmas(num_steps + 1, sigma_max=80.0, sigma_min=0.02)[:-1]
        result = get_sampler(name)(gaussian_denoiser, LATENTS, sigmas)
        errors.append(relative_rms(result, exact_solution(LATENTS, sigmas[0], sigmas[-1])))
    slope = -np.polyfit(np.log(steps), np.log(errors), 1)[0]
    assert slope == pytest.approx(2.0, abs=0.15), errors


def test_unipc_converges_at_least_at_second_order_in_log_snr():
    # The method integrates over log((1 - sigma) / sigma): refine evenly there, between fixed ends.
    # Its float32 sigmas and the last step floor the error near 1e-7.
    steps, errors = (20, 40, 80), []
    for num_steps in steps:
        log_snr = np.linspace(-4.0, 8.0, num_steps)
        sigmas = [*(1.0 / (1.0 + np.exp(log_snr))).tolist(), 0.0]
        result = get_sampler("unipc")(gaussian_denoiser, LATENTS, sigmas)
        errors.append(relative_rms(result, exact_solution(LATENTS, sigmas[0], 0.0)))
    slope = -np.polyfit(np.log(steps), np.log(errors), 1)[0]
    assert slope > 1.9, errors


def test_a_sampler_with_a_wrong_step_loses_its_order():
    def late(noisy_latents, sigma):
        return gaussian_denoiser(noisy_latents, sigma * 0.99)

    exact = exact_solution(LATENTS, 1.0, 0.0)
    result = get_sampler("heun")(late, LATENTS, flow_sigmas(128, shift=1.0))
    assert relative_rms(result, exact) > 1e-3


@pytest.mark.parametrize("name", ["euler", "heun", "heun_edm", "res2ab"])
def test_the_last_step_returns_the_denoised_latents_exactly(name):
    calls = []

    def denoiser(noisy_latents, sigma):
        calls.append(torch.sin(noisy_latents / sigma))
        return calls[-1]

    result = get_sampler(name)(denoiser, LATENTS, flow_sigmas(5, shift=3.0))
    assert torch.equal(result, calls[-1])


@pytest.mark.parametrize("name", SAMPLERS)
def test_one_step_is_one_call_of_the_denoiser(name):
    sigmas = []

    def denoiser(noisy_latents, sigma):
        sigmas.append(sigma)
        return gaussian_denoiser(noisy_latents, sigma)

    result = get_sampler(name)(denoiser, LATENTS, flow_sigmas(1, shift=1.0))
    assert len(sigmas) == 1
    assert_agrees(result, gaussian_denoiser(LATENTS, sigmas[0]), rms=1e-6)


@pytest.mark.parametrize(
    ("name", "calls_per_run"),
    [("euler", 4), ("heun", 7), ("heun_edm", 6), ("res2ab", 4), ("unipc", 4)],
)
def test_number_of_calls_and_progress(name, calls_per_run):
    calls, steps = [], []

    def denoiser(noisy_latents, sigma):
        calls.append(sigma)
        return gaussian_denoiser(noisy_latents, sigma)

    get_sampler(name)(denoiser, LATENTS, flow_sigmas(4), on_step=steps.append)
    assert len(calls) == calls_per_run
    assert steps == [1, 2, 3, 4]


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_latents_keep_their_dtype_and_are_not_written_to(name, dtype):
    latents = LATENTS.to(dtype)
    before = latents.clone()
    assert get_sampler(name)(gaussian_denoiser, latents, flow_sigmas(3)).dtype == dtype
    assert torch.equal(latents, before)


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("sigmas", [(1.0,), (0.5, 0.5, 0.0), (0.2, 0.4, 0.0), (1.5, 0.0)])
def test_a_grid_that_cannot_be_followed_is_refused(name, sigmas):
    with pytest.raises(ConfigError, match="sigmas: expected at least two"):
        get_sampler(name)(gaussian_denoiser, LATENTS, sigmas)


def test_a_run_may_stop_above_zero():
    result = get_sampler("heun")(gaussian_denoiser, LATENTS, np.linspace(1.0, 0.5, 65).tolist())
    assert_agrees(result, exact_solution(LATENTS, 1.0, 0.5), rms=1e-4)
    with pytest.raises(ConfigError, match="unipc"):
        get_sampler("unipc")(gaussian_denoiser, LATENTS, (1.0, 0.5))


def test_an_unknown_sampler_is_named():
    with pytest.raises(ConfigError, match="'dpm'"):
        get_sampler("dpm")
