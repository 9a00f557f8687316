from __future__ import annotations

import cv2
import numpy as np
import pytest

from cosmos_transfer.controls.edge import canny_edges, edge_picture, extract_edge
from cosmos_transfer.errors import ConfigError, NumericsError, ShapeError
from cosmos_transfer.metrics.control import (
    blur_ssim,
    class_ious,
    depth_si_rmse,
    edge_f1,
    edge_scores,
    mask_miou,
)
from cosmos_transfer.metrics.frames import ssim


def boxes(shift: int = 0, num_frames: int = 2) -> np.ndarray:
    frames = np.full((num_frames, 40, 56, 3), 30, np.uint8)
    for index, frame in enumerate(frames):
        frame[8:28, 10 + index + shift : 34 + index + shift] = (220, 200, 60)
    return frames


def smooth_noise(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    frames = rng.integers(0, 256, (2, 40, 56, 3), dtype=np.uint8)
    blurred = [cv2.GaussianBlur(f, (0, 0), 6) for f in frames]
    return np.stack([cv2.normalize(f, np.empty_like(f), 0, 255, cv2.NORM_MINMAX) for f in blurred])


# ------------------------------------------------------------------------------------------ edges
def test_a_clip_agrees_with_its_own_edges_completely():
    frames = boxes()
    assert edge_f1(frames, extract_edge(frames)) == 1.0
    assert edge_f1(frames, canny_edges(frames)) == 1.0


def test_one_pixel_of_shift_is_a_miss_unless_tolerated():
    control = extract_edge(boxes())
    moved = boxes(shift=1)
    strict = edge_scores(moved, control)
    assert strict.f1 < 0.8
    assert edge_f1(moved, control, tolerance=1) == 1.0
    assert edge_f1(boxes(shift=3), control, tolerance=1) < 1.0


def test_f1_is_the_harmonic_mean_of_counted_pixels():
    frames = boxes()
    edges = canny_edges(frames)
    half = edges.copy()
    half[1] = False
    scores = edge_scores(frames, half)
    assert scores.recall == 1.0
    assert scores.precision == half.sum() / edges.sum()
    assert scores.f1 == pytest.approx(2 * scores.precision / (1 + scores.precision))


def test_thresholds_are_arguments():
    faint = np.full((1, 20, 20, 3), 100, np.uint8)
    faint[0, 5:15, 5:15] = 115
    control = edge_picture(canny_edges(faint, lower=20, upper=50))
    assert edge_f1(faint, control) == 0.0
    assert edge_f1(faint, control, lower=20, upper=50) == 1.0


def test_an_output_without_edges_scores_nothing():
    flat = np.full_like(boxes(), 128)
    assert edge_scores(flat, extract_edge(boxes())).f1 == 0.0
    disjoint = np.zeros(boxes().shape[:3], bool)
    disjoint[:, -1, -1] = True
    assert edge_f1(boxes(), disjoint) == 0.0


def test_a_control_without_edges_is_refused_and_never_nan():
    with pytest.raises(NumericsError, match="at least one edge"):
        edge_f1(boxes(), np.zeros_like(boxes()))


def test_edge_inputs_that_do_not_fit_are_refused():
    with pytest.raises(ShapeError, match="edge F1"):
        edge_f1(boxes(), extract_edge(boxes())[:1])
    with pytest.raises(ConfigError, match="tolerance"):
        edge_f1(boxes(), extract_edge(boxes()), tolerance=-1)


# ------------------------------------------------------------------------------------------- blur
def test_blur_ssim_ignores_grain_and_sees_layout():
    clean = smooth_noise(0)
    grain = np.random.default_rng(1).integers(-12, 13, clean.shape)
    grainy = np.clip(clean.astype(int) + grain, 0, 255).astype(np.uint8)
    assert blur_ssim(clean, clean) == pytest.approx(1.0)
    assert ssim(grainy, clean) < 0.9
    assert blur_ssim(grainy, clean) > 0.95
    assert blur_ssim(smooth_noise(2), clean) < 0.6


def test_blur_ssim_refuses_a_flat_reference_and_names_the_frame():
    reference = smooth_noise(0)
    reference[1] = 9
    with pytest.raises(NumericsError, match="frame 1"):
        blur_ssim(smooth_noise(0), reference)


# ------------------------------------------------------------------------------------------ depth
def ramp_depth() -> np.ndarray:
    return np.linspace(1, 5, 2 * 6 * 8, dtype=np.float32).reshape(2, 6, 8)


def test_depth_up_to_scale_is_no_error_even_if_the_scale_changes_per_frame():
    depth = ramp_depth()
    scaled = depth * np.array([0.3, 7.0], np.float32)[:, None, None]
    assert depth_si_rmse(scaled, depth) == pytest.approx(0.0, abs=1e-6)


def test_depth_error_of_a_known_residual():
    truth = np.full((1, 2, 5), 2.0, np.float32)
    estimate = truth.copy()
    estimate[0, 0, 0] = 3.0  # the median scale stays 1: one residual of 1 in ten pixels
    assert depth_si_rmse(estimate, truth) == pytest.approx(np.sqrt(0.1))


def test_depth_residuals_are_clipped():
    truth = np.full((1, 2, 5), 2.0, np.float32)
    estimate = truth.copy()
    estimate[0, 0, 0] = 1000.0
    assert depth_si_rmse(estimate, truth) == pytest.approx(np.sqrt(10.0))


@pytest.mark.parametrize("hole", [np.nan, np.inf, 0.0, -1.0])
def test_invalid_given_depth_is_left_out(hole):
    truth = ramp_depth()
    truth[:, :3] = hole
    assert depth_si_rmse(ramp_depth(), truth) == pytest.approx(0.0, abs=1e-6)


def test_an_estimate_with_holes_cannot_pass_for_a_good_one():
    estimate = ramp_depth()
    estimate[1, :2] = np.nan
    with pytest.raises(NumericsError, match="frame 1"):
        depth_si_rmse(estimate, ramp_depth())


def test_a_frame_without_valid_depth_is_refused():
    truth = ramp_depth()
    truth[0] = np.nan
    with pytest.raises(NumericsError, match="frame 0"):
        depth_si_rmse(ramp_depth(), truth)


# ----------------------------------------------------------------------------------------- masks
def test_miou_is_the_mean_over_classes_of_spatiotemporal_iou():
    truth = np.zeros((2, 4, 4), np.int32)
    truth[:, :, 2:] = 5
    ids = truth.copy()
    ids[1, :, 2:] = 0  # class 5: 8 of 16; class 0: 16 of 24
    assert class_ious(ids, truth) == {0: pytest.approx(16 / 24), 5: pytest.approx(0.5)}
    assert mask_miou(ids, truth) == pytest.approx((16 / 24 + 0.5) / 2)


def test_a_class_present_in_one_only_counts_as_zero():
    truth = np.zeros((1, 2, 2), np.int32)
    ids = truth.copy()
    ids[0, 0, 0] = 3
    assert class_ious(ids, truth) == {0: pytest.approx(0.75), 3: 0.0}


def test_miou_range_and_ignored_ids():
    truth = np.array([[[1, 1, 2, 0]]], np.int32)
    assert mask_miou(truth, truth) == 1.0
    ids = np.array([[[1, 1, 2, 2]]], np.int32)
    assert mask_miou(ids, truth) < 1.0
    assert mask_miou(ids, truth, ignored=(0,)) == 1.0
    with pytest.raises(NumericsError, match="only ignored ids"):
        mask_miou(ids, truth, ignored=(0, 1, 2))
    with pytest.raises(ShapeError, match="mask mIoU"):
        mask_miou(ids[:, :, :2], truth)
