from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from cosmos_transfer.controls.edge import extract_edge
from cosmos_transfer.errors import NumericsError
from cosmos_transfer.inputs.depth import DepthClip
from cosmos_transfer.inputs.segmentation import SegmentationClip
from cosmos_transfer.inputs.video import VideoClip
from cosmos_transfer.metrics.evaluate import (
    GivenControls,
    evaluate_clip,
    mask_agreement,
)
from cosmos_transfer.metrics.predictors import Floor

SHAPE = (3, 32, 48)
NAMES = {1: "road", 2: "car", 3: "unicorn"}


def picture() -> np.ndarray:
    frames = np.full((*SHAPE, 3), 40, dtype=np.uint8)
    frames[:, 8:24, 12:36] = (200, 180, 60)
    return frames


def clip(frames: np.ndarray) -> VideoClip:
    times = tuple(Fraction(n, 8) for n in range(len(frames)))
    return VideoClip(frames=frames, times=times, rate=Fraction(8))


def segmentation(unicorn_columns: int = 4) -> SegmentationClip:
    ids = np.ones(SHAPE, dtype=np.int32)
    ids[:, 16:] = 2
    ids[:, :, :unicorn_columns] = 3
    return SegmentationClip(ids=ids, names=NAMES)


class Estimator:
    """Says what it is told to."""

    def __init__(self, answer, floor: Floor | None = None, names: dict[int, str] | None = None):
        self.answer = answer
        if floor is not None:
            self.floor = floor
        if names is not None:
            self.names = names

    def __call__(self, clip: VideoClip):
        return self.answer


def test_only_what_is_given_is_measured() -> None:
    report = evaluate_clip(clip(picture()), GivenControls(reference=picture()))
    assert report.values == {"blur_ssim": 1.0}
    assert report.left_out == {}


def test_all_metrics_of_a_perfect_output() -> None:
    depth = np.full(SHAPE, 2.0, dtype=np.float32)
    depth[:, :4] = np.inf
    floor = Floor(
        metric="depth_si_rmse", mean=0.5, standard_error=0.1, num_clips=48, measured_on="scenes"
    )
    given = GivenControls(
        edge=extract_edge(picture()),
        reference=picture(),
        depth=depth,
        segmentation=segmentation(),
        seams=[1],
    )
    estimators = {
        "depth": Estimator(DepthClip(metres=np.full(SHAPE, 7.0, dtype=np.float32)), floor),
        "seg": Estimator(segmentation()),
    }
    report = evaluate_clip(clip(picture()), given, estimators=estimators)
    assert report.left_out == {}
    assert report.values["edge_f1"] == report.values["edge_f1_1px"] == 1.0
    assert report.values["mask_miou"] == report.values["blur_ssim"] == 1.0
    assert report.values["depth_si_rmse"] == 0.0
    assert report.values["seam_ratio"] == 1.0
    assert report.floors == {"depth_si_rmse": floor}
    (line,) = [line for line in report.lines() if "floor" in line]
    assert "0.5000" in line
    assert "n=48" in line


def test_without_an_estimator_the_metric_is_left_out() -> None:
    given = GivenControls(depth=np.ones(SHAPE, dtype=np.float32), segmentation=segmentation())
    report = evaluate_clip(clip(picture()), given)
    assert report.values == {}
    assert set(report.left_out) == {"depth_si_rmse", "mask_miou"}
    assert "an estimator to find it" in report.left_out["mask_miou"]


def test_classes_that_the_estimator_cannot_know_do_not_count() -> None:
    given = segmentation(unicorn_columns=12)
    found = given.ids.copy()
    found[found == 3] = 1  # it says road where the unicorn is
    answer = SegmentationClip(ids=found, names={1: "road", 2: "car"})
    knows = Estimator(answer, names={1: "road", 2: "car"})
    report = evaluate_clip(
        clip(picture()), GivenControls(segmentation=given), estimators={"seg": knows}
    )
    assert report.values["mask_miou"] == 1.0
    # One that does not say what it knows is held to every class.
    asked = Estimator(answer)
    report = evaluate_clip(
        clip(picture()), GivenControls(segmentation=given), estimators={"seg": asked}
    )
    assert report.values["mask_miou"] < 0.8


def test_a_picture_of_unknown_classes_is_left_out() -> None:
    given = segmentation(unicorn_columns=25)
    with pytest.raises(NumericsError, match=r"at least 50% of the pixels .* got 48%"):
        mask_agreement(given, given, {"road", "car"})
    assert mask_agreement(given, given, set(NAMES.values())) == 1.0
