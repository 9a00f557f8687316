"""Every metric against the given controls, and the share of the gap that each condition closes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from benchmarks.embedded.bench import ALL_CONTROLS, SHUFFLED, TRUE, WITHOUT, Bench
from benchmarks.held_out import HeldOutClip, as_clip, shuffled
from benchmarks.statistics import gap_share, mean_over_clips
from cosmos_transfer.errors import NumericsError
from cosmos_transfer.metrics.control import blur_ssim
from cosmos_transfer.metrics.evaluate import evaluate_clip
from cosmos_transfer.metrics.predictors import Predictors, load_predictors

METRICS = (
    "edge_f1",
    "edge_f1_1px",
    "mask_miou",
    "depth_si_rmse",
    "blur_ssim",
    "blur_ssim_render",
)
CONDITIONS: Mapping[str, Mapping[str, float]] = {
    "no controls": {},
    "all four at 0.25": ALL_CONTROLS,
    "edge at 1": {"edge": 1.0},
    "depth at 1": {"depth": 1.0},
    "seg at 1": {"seg": 1.0},
    "vis at 1": {"vis": 1.0},
}


def measure(frames: np.ndarray, clip: HeldOutClip, predictors: Predictors) -> dict[str, float]:
    """Every metric of some frames against a clip's controls.

    Raises:
        NumericsError: One of them is undefined; a mean over fewer clips would compare different
            ones.
    """
    report = evaluate_clip(
        as_clip(frames), clip.given, estimators={"depth": predictors.depth, "seg": predictors.seg}
    )
    if report.left_out:
        raise NumericsError(f"clip {clip.seed}: {report.left_out}")
    values = dict(report.values) | {"blur_ssim_render": blur_ssim(frames, clip.true_render)}
    return {name: values[name] for name in METRICS}


def run_table(bench: Bench) -> dict[str, Any]:
    """Metrics of every condition, and the shares of the gap closed."""
    predictors = load_predictors(bench.judge)
    scores: dict[str, list[dict[str, float]]] = {TRUE: [], SHUFFLED: []}
    for clip, other in zip(bench.clips, shuffled(bench.clips), strict=True):
        scores[TRUE].append(measure(clip.true_render, clip, predictors))
        scores[SHUFFLED].append(measure(other.true_render, clip, predictors))
    for name, weights in CONDITIONS.items():
        scores[name] = [
            measure(bench.generate(clip, weights), clip, predictors)
            for clip in bench.progress(name)
        ]
    return table_from_scores(scores) | {
        "floors": {
            "mask_miou": None if predictors.seg.floor is None else asdict(predictors.seg.floor),
            "depth_si_rmse": (
                None if predictors.depth.floor is None else asdict(predictors.depth.floor)
            ),
        },
        "per_clip": {
            name: {metric: [round(score[metric], 5) for score in each] for metric in METRICS}
            for name, each in scores.items()
        },
    }


def table_from_scores(scores: Mapping[str, Sequence[Mapping[str, float]]]) -> dict[str, Any]:
    """Means with standard errors, and the share of the gap that each condition closed."""
    by_metric = {
        name: {metric: [score[metric] for score in each] for metric in METRICS}
        for name, each in scores.items()
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
    return {"rows": rows, "shares": shares}
