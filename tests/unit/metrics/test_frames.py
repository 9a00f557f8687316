from __future__ import annotations

import cv2
import numpy as np
import pytest

from cosmos_transfer.errors import NumericsError, ShapeError
from cosmos_transfer.metrics.frames import PSNR_CEILING_DB, gradient_energy, psnr, ssim


def clip(seed: int = 0, shape: tuple[int, ...] = (2, 16, 20, 3)) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def test_psnr_of_a_known_error():
    black = np.zeros((1, 4, 4, 3), np.uint8)
    assert psnr(black + np.uint8(1), black) == pytest.approx(48.1308, abs=1e-4)
    assert psnr(black + np.uint8(255), black) == 0.0


def test_psnr_pools_the_error_before_the_logarithm():
    black = np.zeros((2, 4, 4, 3), np.uint8)
    one_wrong = black.copy()
    one_wrong[1] = 10
    assert psnr(one_wrong, black) == pytest.approx(10 * np.log10(255**2 / 50))


def test_psnr_of_identical_clips_is_the_ceiling():
    assert psnr(clip(), clip()) == PSNR_CEILING_DB


def test_psnr_of_a_region_ignores_the_rest():
    a, b = clip(0), clip(0)
    b[:, :8] = 0
    region = np.zeros(a.shape[:3], bool)
    region[:, 8:] = True
    assert psnr(a, b, region=region) == PSNR_CEILING_DB
    assert psnr(a, b, region=~region) < 15
    with pytest.raises(NumericsError, match="at least one pixel"):
        psnr(a, b, region=np.zeros_like(region))
    with pytest.raises(ShapeError, match="region"):
        psnr(a, b, region=region[:1])


def test_ssim_is_one_for_identical_and_near_zero_for_unrelated_clips():
    assert ssim(clip(), clip()) == pytest.approx(1.0)
    assert abs(ssim(clip(0), clip(1))) < 0.1


def test_ssim_of_flat_clips_is_a_number():
    flat = np.full((1, 8, 8, 3), 7, np.uint8)
    assert ssim(flat, flat) == pytest.approx(1.0)


def test_clips_that_do_not_fit_are_refused_with_both_shapes():
    with pytest.raises(ShapeError, match=r"\(2, 16, 20, 3\), got \(1, 16, 20, 3\)"):
        psnr(clip()[:1], clip())
    with pytest.raises(ShapeError, match="7x7"):
        ssim(clip(shape=(1, 6, 20, 3)), clip(shape=(1, 6, 20, 3)))
    with pytest.raises(NumericsError, match="at least one frame"):
        psnr(clip()[:0], clip()[:0])


def test_gradient_energy_of_a_known_ramp():
    ramp = np.zeros((2, 4, 5, 3), np.uint8)
    ramp[:] = (np.arange(5) * 51)[None, None, :, None]  # a fifth of the range a pixel
    assert gradient_energy(ramp) == pytest.approx(0.04)
    assert gradient_energy(ramp.transpose(0, 2, 1, 3)) == pytest.approx(0.04)
    assert gradient_energy(np.full((1, 3, 3, 3), 200, np.uint8)) == 0.0


def test_gradient_energy_falls_with_blur_and_rises_with_noise():
    rng = np.random.default_rng(0)
    picture = (rng.random((1, 4, 5, 3)) * 200).astype(np.uint8).repeat(8, 1).repeat(8, 2)
    blurred = np.stack([cv2.GaussianBlur(frame, (0, 0), 1.0) for frame in picture])
    noisy = (picture + rng.integers(0, 40, picture.shape)).astype(np.uint8)
    assert gradient_energy(blurred) < 0.6 * gradient_energy(picture)
    assert gradient_energy(noisy) > gradient_energy(picture)


def test_gradient_energy_needs_two_pixels_each_way():
    with pytest.raises(ShapeError, match="2x2"):
        gradient_energy(np.zeros((1, 1, 9, 3), np.uint8))
