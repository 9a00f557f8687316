from __future__ import annotations

import numpy as np
import pytest

from cosmos_transfer.outputs.keep import keep_region, kept_metrics

RNG = np.random.default_rng(0)
MADE = RNG.integers(0, 256, (2, 5, 7, 3), dtype=np.uint8)
INPUT = RNG.integers(0, 256, (2, 5, 7, 3), dtype=np.uint8)


def test_white_is_the_input_and_black_is_what_was_made() -> None:
    mask = np.zeros((2, 5, 7), np.float32)
    mask[0, 1:3] = 1.0
    kept = keep_region(MADE, INPUT, mask)
    assert np.array_equal(kept[mask == 1], INPUT[mask == 1])
    assert np.array_equal(kept[mask == 0], MADE[mask == 0])
    assert kept_metrics(kept, INPUT, mask) == {"share": round(14 / 70, 6), "psnr_db": None}


def test_grey_blends() -> None:
    mask = np.full((2, 5, 7), 0.25, np.float32)
    expected = np.rint(0.75 * MADE + 0.25 * INPUT)
    assert np.abs(keep_region(MADE, INPUT, mask) - expected).max() <= 1


def test_psnr_is_over_the_kept_pixels_alone() -> None:
    mask = np.zeros((2, 5, 7), np.float32)
    mask[:, 2] = 1.0
    frames = INPUT.copy()
    frames[:, 3] = 255 - frames[:, 3]  # not kept: does not count
    frames[:, 2, :, 0] = np.where(INPUT[:, 2, :, 0] < 250, INPUT[:, 2, :, 0] + 4, 246)
    error = frames[:, 2].astype(float) - INPUT[:, 2]
    expected = 10 * np.log10(255**2 / np.mean(error**2))
    assert kept_metrics(frames, INPUT, mask)["psnr_db"] == pytest.approx(expected, abs=1e-3)


def test_nothing_kept_has_no_psnr() -> None:
    nothing = np.zeros((2, 5, 7), np.float32)
    assert kept_metrics(MADE, INPUT, nothing) == {"share": 0.0, "psnr_db": None}
