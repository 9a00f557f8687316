from __future__ import annotations

from itertools import pairwise

import pytest
from diffusers import UniPCMultistepScheduler
from hypothesis import given
from hypothesis import strategies as st

from cosmos_transfer.diffusion.noise_schedule import checkpoint_sigmas, flow_sigmas, karras_sigmas
from cosmos_transfer.errors import ConfigError
from tests.support.numerics import assert_agrees


@given(num_steps=st.integers(1, 60), shift=st.floats(0.2, 20.0))
def test_flow_sigmas_fall_from_one_to_exactly_zero(num_steps, shift):
    sigmas = flow_sigmas(num_steps, shift=shift)
    assert len(sigmas) == num_steps + 1
    assert sigmas[0] == pytest.approx(1.0)
    assert sigmas[-1] == 0.0
    assert all(before > after for before, after in pairwise(sigmas))


def test_shift_moves_the_middle_towards_noise():
    assert flow_sigmas(2, shift=1.0) == (1.0, 0.5, 0.0)
    assert flow_sigmas(2, shift=3.0) == (1.0, 0.75, 0.0)


@pytest.mark.parametrize("num_steps", [1, 2, 7, 36])
def test_karras_sigmas_are_those_of_the_published_scheduler(num_steps):
    scheduler = UniPCMultistepScheduler(
        use_karras_sigmas=True,
        use_flow_sigmas=True,
        prediction_type="flow_prediction",
        sigma_max=200.0,
        sigma_min=0.01,
    )
    scheduler.set_timesteps(num_steps)
    # Both computed in float64; the scheduler keeps float32.
    assert_agrees(karras_sigmas(num_steps), scheduler.sigmas, rms=1e-7)


def test_a_checkpoint_chooses_its_grid():
    assert checkpoint_sigmas(5, shift=3.0, karras=None) == flow_sigmas(5, shift=3.0)
    assert checkpoint_sigmas(5, shift=3.0, karras=(80.0, 0.002)) == karras_sigmas(
        5, sigma_max=80.0, sigma_min=0.002
    )


@pytest.mark.parametrize("karras", [None, (80.0, 0.002)])
@pytest.mark.parametrize("start", [0.3, 0.9])
def test_a_run_from_a_clip_starts_where_it_is_told_and_spends_every_step(karras, start):
    sigmas = checkpoint_sigmas(7, shift=5.0, karras=karras, start=start)
    assert len(sigmas) == 8
    assert sigmas[0] == pytest.approx(start, rel=1e-12)
    assert sigmas[-1] == 0.0
    assert all(before > after for before, after in pairwise(sigmas))


def test_a_start_beyond_the_checkpoints_own_changes_nothing():
    whole = checkpoint_sigmas(7, shift=5.0, karras=(80.0, 0.002))
    assert checkpoint_sigmas(7, shift=5.0, karras=(80.0, 0.002), start=0.999) == whole


@pytest.mark.parametrize("start", [0.0, -0.1, 1.1, float("nan")])
def test_a_strength_that_is_no_place_in_the_flow_is_refused(start):
    with pytest.raises(ConfigError, match="strength: expected a number above 0"):
        checkpoint_sigmas(7, shift=5.0, karras=None, start=start)


def test_impossible_grids_are_refused():
    with pytest.raises(ConfigError, match="num_inference_steps: expected at least 1, got 0"):
        flow_sigmas(0)
    with pytest.raises(ConfigError, match="shift"):
        flow_sigmas(4, shift=float("nan"))
    with pytest.raises(ConfigError, match="sigma_min"):
        karras_sigmas(4, sigma_max=1.0, sigma_min=2.0)
