"""Every metric against the given controls, and the share of the gap that each condition closes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.embedded.bench import ALL_CONTROLS, SHUFFLED, TRUE, WITHOUT, Bench, Part
from benchmarks.held_out import HeldOutClip, as_clip, partner
from benchmarks.statistics import gap_share, mean_over_clips
from cosmos_transfer.errors import NumericsError
from cosmos_transfer.metrics.control import bilateral, blurred_ssim
from cosmos_transfer.metrics.evaluate import evaluate_clip
from cosmos_transfer.metrics.predictors import Predictors

METRICS = (
    "edge_f1",
    "edge_f1_1px",
    "mask_miou",
    "depth_si_rmse",
    "blur_ssim",
    "blur_ssim_render",
)
CONDITIONS: Mapping[str, Mapping[str, float]] = {
    WITHOUT: {},
    "all four at 0.25": ALL_CONTROLS,
    "edge at 1": {"edge": 1.0},
    "depth at 1": {"depth": 1.0},
    "seg at 1": {"seg": 1.0},
    "vis at 1": {"vis": 1.0},
}


class Yardstick:
    """What the frames of one clip are held against; its own blurs are made once."""

    def __init__(self, clip: HeldOutClip, predictors: Predictors) -> None:
        self.seed = clip.seed
        self.given = replace(clip.given, reference=None)  # blur SSIM is taken below
        self.estimators = {"depth": predictors.depth, "seg": predictors.seg}
        self.blurred = {
            "blur_ssim": bilateral(clip.simulator),
            "blur_ssim_render": bilateral(clip.true_render),
        }

    def measure(self, frames: np.ndarray) -> dict[str, float]:
        """Every metric of some frames against the clip's controls.

        Raises:
            NumericsError: One of them is undefined; a mean over fewer clips would compare
                different ones.
        """
        report = evaluate_clip(as_clip(frames), self.given, estimators=self.estimators)
        if report.left_out:
            raise NumericsError(f"clip {self.seed}: {report.left_out}")
        blurred = bilateral(frames)
        values = dict(report.values) | {
            name: blurred_ssim(blurred, reference) for name, reference in self.blurred.items()
        }
        return {name: values[name] for name in METRICS}


def measure_table(bench: Bench, seed: int) -> dict[str, dict[str, float]]:
    """Every metric of the true render, of another clip's, and of the output of every condition."""
    clip = bench.clip(seed)
    yardstick = Yardstick(clip, bench.predictors)
    frames = {TRUE: clip.true_render, SHUFFLED: bench.render(partner(seed)).true_render}
    frames |= {name: bench.generate(clip, weights) for name, weights in CONDITIONS.items()}
    return {name: yardstick.measure(each) for name, each in frames.items()}


def summarise_table(clips: Sequence[Mapping[str, Mapping[str, float]]]) -> dict[str, Any]:
    """Means with standard errors, and the share of the gap that each condition closed."""
    by_metric = {
        name: {metric: [clip[name][metric] for clip in clips] for metric in METRICS}
        for name in clips[0]
    }
    rows = {
        name: {metric: mean_over_clips(values).as_mapping() for metric, values in each.items()}
        for name, each in by_metric.items()
    }
    shares = {
        name: {
            metric: gap_share(
                by_metric[name][metric], by_metric[WITHOUT][metric], by_metric[TRUE][metric]
            ).as_mapping()
            for metric in METRICS
        }
        for name in by_metric
        if name not in (TRUE, SHUFFLED, WITHOUT)
    }
    per_clip = {
        name: {metric: [round(value, 5) for value in values] for metric, values in each.items()}
        for name, each in by_metric.items()
    }
    return {"rows": rows, "shares": shares, "per_clip": per_clip}


TABLE = Part(measure=measure_table, summarise=summarise_table)
