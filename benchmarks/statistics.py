"""Means with their standard errors over clips, and the share of a gap that was closed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

NUM_RESAMPLES = 2_000


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number and its standard error over clips."""

    value: float
    standard_error: float

    def as_mapping(self) -> dict[str, float]:
        """Plain values for JSON."""
        return {name: round(value, 5) for name, value in asdict(self).items()}


def mean_over_clips(values: Sequence[float]) -> Estimate:
    """The mean, and the standard error of the mean (0 for a single clip)."""
    array = np.asarray(values, dtype=np.float64)
    error = array.std(ddof=1) / len(array) ** 0.5 if len(array) > 1 else 0.0
    return Estimate(float(array.mean()), float(error))


def gap_share(
    with_controls: Sequence[float],
    without_controls: Sequence[float],
    true_render: Sequence[float],
    *,
    num_resamples: int = NUM_RESAMPLES,
    seed: int = 0,
) -> Estimate:
    """(with - without) / (true - without), of means over clips, with a bootstrap standard error.

    0: the controls changed nothing; 1: as good as a true render. It holds for metrics where less is
    better as it does for the others. Clips are resampled whole, so that the three means of a
    resample come from the same clips.
    """
    values = np.stack([with_controls, without_controls, true_render]).astype(np.float64)
    return _of_resamples(values, _share, num_resamples, seed)


def change_ratio(
    first: Sequence[float], second: Sequence[float], *, num_resamples: int = NUM_RESAMPLES
) -> Estimate:
    """How many times larger the mean change ``first`` is than ``second``, signs aside."""
    values = np.stack([first, second]).astype(np.float64)
    return _of_resamples(values, _ratio, num_resamples, 0)


def ratio_of_means(
    first: Sequence[float], second: Sequence[float], *, num_resamples: int = NUM_RESAMPLES
) -> Estimate:
    """The mean of ``first`` over that of ``second``, with a bootstrap standard error over clips."""
    values = np.stack([first, second]).astype(np.float64)
    return _of_resamples(values, lambda means: _divide(means[0], means[1]), num_resamples, 0)


def _of_resamples(values: np.ndarray, statistic, num_resamples: int, seed: int) -> Estimate:
    num_clips = values.shape[1]
    draws = np.random.default_rng(seed).integers(num_clips, size=(num_resamples, num_clips))
    resampled = statistic(values[:, draws].mean(axis=-1))
    # A resample whose denominator vanishes says nothing; the spread of the rest is robust to it
    # when measured by quantiles: half the central 68.3 % is one standard error of a Gaussian.
    low, high = np.nanquantile(resampled, (0.1587, 0.8413))
    return Estimate(float(statistic(values.mean(axis=-1))), float(high - low) / 2.0)


def _share(means: np.ndarray) -> np.ndarray:
    with_controls, without_controls, true_render = means
    return _divide(with_controls - without_controls, true_render - without_controls)


def _ratio(means: np.ndarray) -> np.ndarray:
    return _divide(np.abs(means[0]), np.abs(means[1]))


def _divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(b == 0.0, np.nan, a / b)
