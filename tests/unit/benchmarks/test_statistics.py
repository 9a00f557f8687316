from __future__ import annotations

import numpy as np
import pytest

from benchmarks.statistics import change_ratio, gap_share, mean_over_clips, ratio_of_means


def test_the_mean_and_its_standard_error() -> None:
    estimate = mean_over_clips([1.0, 2.0, 3.0, 4.0])
    assert estimate.value == 2.5
    assert estimate.standard_error == pytest.approx(np.std([1, 2, 3, 4], ddof=1) / 2)
    assert mean_over_clips([3.0]).standard_error == 0.0


@pytest.mark.parametrize(
    ("with_controls", "share"), [(0.2, 0.0), (0.8, 1.0), (0.5, 0.5), (0.1, -1 / 6), (0.95, 1.25)]
)
def test_the_share_of_a_gap(with_controls: float, share: float) -> None:
    estimate = gap_share([with_controls] * 5, [0.2] * 5, [0.8] * 5)
    assert estimate.value == pytest.approx(share)
    assert estimate.standard_error == pytest.approx(0.0, abs=1e-12)


def test_the_share_holds_where_less_is_better() -> None:
    assert gap_share([2.0, 2.0], [4.0, 4.0], [1.0, 1.0]).value == pytest.approx(2 / 3)


def test_the_share_is_of_means_not_a_mean_of_shares() -> None:
    # The second clip has almost no gap: its own share would be 100.
    estimate = gap_share([0.5, 0.3], [0.1, 0.2], [0.9, 0.201])
    assert estimate.value == pytest.approx(0.25 / 0.4005, rel=1e-6)


def test_the_bootstrap_error_is_that_of_the_mean() -> None:
    rng = np.random.default_rng(1)
    with_controls = rng.normal(0.5, 0.2, 400)
    estimate = gap_share(with_controls, np.zeros(400), np.ones(400))
    assert estimate.value == pytest.approx(with_controls.mean())
    assert estimate.standard_error == pytest.approx(0.2 / 20, rel=0.12)


def test_clips_are_resampled_whole() -> None:
    # Hard clips are hard for all three: the share is the same in each and must have no error.
    scale = np.linspace(0.1, 1.0, 30)
    estimate = gap_share(0.6 * scale, 0.2 * scale, 1.0 * scale)
    assert estimate.value == pytest.approx(0.5)
    assert estimate.standard_error < 1e-9


def test_the_ratio_of_changes() -> None:
    estimate = change_ratio([0.3, 0.5], [-0.05, -0.05])
    assert estimate.value == pytest.approx(8.0)
    assert estimate.standard_error > 0


def test_a_ratio_of_means_is_not_the_mean_of_ratios() -> None:
    estimate = ratio_of_means([1.0, 9.0], [1.0, 3.0])
    assert estimate.value == pytest.approx(2.5)
    assert ratio_of_means([2.0] * 4, [4.0] * 4).standard_error == 0.0
