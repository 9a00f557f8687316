from __future__ import annotations

import cv2
import numpy as np
import pytest

from cosmos_transfer.controls.vis import blur_settings, extract_vis
from cosmos_transfer.errors import ConfigError

PRESETS = ("very_low", "low", "medium", "high", "very_high")


def noise(height: int, width: int, num_frames: int = 1) -> np.ndarray:
    rng = np.random.default_rng(1)
    return rng.integers(0, 256, (num_frames, height, width, 3), dtype=np.uint8)


def detail(frames: np.ndarray) -> float:
    """Mean absolute difference of neighbouring pixels."""
    return float(np.abs(np.diff(frames.astype(np.int16), axis=2)).mean())


@pytest.mark.parametrize(
    ("preset", "shrink", "down_up"),
    [("very_low", 1, 4), ("low", 4, 4), ("medium", 2, 10), ("high", 1, 16), ("very_high", 4, 16)],
)
def test_at_720_the_settings_are_the_published_ones(preset, shrink, down_up):
    settings = blur_settings(preset, height=720, width=1280)
    assert (settings.shrink, settings.down_up) == (shrink, down_up)
    assert (settings.diameter, settings.sigma_space) == (30, 100.0)


def test_at_720_medium_is_the_published_recipe_step_by_step():
    frame = noise(720, 736)[0]
    small = cv2.resize(frame, (368, 360), interpolation=cv2.INTER_AREA)
    smooth = cv2.bilateralFilter(small, 30, 150, 100)
    smooth = cv2.resize(smooth, (736, 720), interpolation=cv2.INTER_LINEAR)
    down = cv2.resize(smooth, (74, 72), interpolation=cv2.INTER_CUBIC)
    expected = cv2.resize(down, (736, 720), interpolation=cv2.INTER_CUBIC)
    np.testing.assert_array_equal(extract_vis(frame[None])[0], expected)


@pytest.mark.parametrize("preset", PRESETS)
def test_at_64x96_the_factor_is_at_least_two_and_the_clip_is_blurred(preset):
    assert blur_settings(preset, height=64, width=96).down_up >= 2
    frames = noise(64, 96)
    assert detail(extract_vis(frames, preset)) < 0.5 * detail(frames)


@pytest.mark.parametrize("short_side", [8, 64, 96, 256, 480, 720, 1080])
def test_factors_keep_their_order_at_every_size(short_side):
    settings = [blur_settings(p, height=short_side, width=2 * short_side) for p in PRESETS]
    factors = [s.down_up for s in settings]
    assert factors == sorted(factors)
    assert factors[0] < factors[2] < factors[3]


def test_twice_the_size_doubles_every_length():
    small = blur_settings("high", height=720, width=1280)
    large = blur_settings("high", height=1440, width=2560)
    assert large.down_up == 2 * small.down_up
    assert large.diameter * large.shrink == 2 * small.diameter * small.shrink
    assert large.sigma_space * large.shrink == 2 * small.sigma_space * small.shrink


def test_extraction_is_deterministic_and_a_flat_frame_stays_flat():
    frames = noise(33, 47)
    np.testing.assert_array_equal(extract_vis(frames), extract_vis(frames.copy()))
    flat = np.full((1, 33, 47, 3), (10, 120, 250), dtype=np.uint8)
    np.testing.assert_array_equal(extract_vis(flat), flat)


@pytest.mark.parametrize("size", [(1, 1), (1, 9), (2, 3), (17, 5)])
def test_tiny_frames_work(size):
    assert extract_vis(noise(*size), "very_high").shape == (1, *size, 3)


def test_an_unknown_preset_lists_the_known_ones():
    with pytest.raises(ConfigError, match="very_low, low, medium, high, very_high"):
        extract_vis(noise(8, 8), "extreme")
