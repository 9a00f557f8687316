"""Outputs on scenes of another simulator, over what the simulator's own frames score.

Six scenes of ``arm_scene`` under six looks, all four controls at 0.25. Edges of the simulator's own
frames are the control, so they score 1; its masks are found by the same predictor as the outputs'.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.embedded.arm_scene import render_scene
from benchmarks.embedded.bench import ALL_CONTROLS, Bench, Part
from benchmarks.held_out import HeldOutClip, as_clip
from benchmarks.statistics import mean_over_clips, ratio_of_means
from cosmos_transfer.errors import NumericsError
from cosmos_transfer.metrics.evaluate import evaluate_clip
from cosmos_transfer.training.scenes import describe_look, draw_look

METRICS = ("edge_f1", "edge_f1_1px", "mask_miou", "depth_si_rmse")
OURS, OWN, WITHOUT = "outputs", "simulator's own frames", "no controls"
FIRST_EPISODE = 900  # noise of their own


def mujoco_clip(bench: Bench, number: int) -> HeldOutClip:
    """A scene as a clip with a drawn look and its prompt; there is no true render of it."""
    info = bench.pipeline.checkpoint.info
    found = render_scene(number, info.native_size, info.native_frames)
    rng = np.random.default_rng(number)
    look = draw_look(rng, "tabletop")
    return HeldOutClip(
        seed=FIRST_EPISODE + number,
        family="tabletop",
        look=look,
        prompt=describe_look(look, rng),
        simulator=found.frames,
        true_render=found.frames,
        depth=found.depth,
        class_ids=found.class_ids,
        motion=np.zeros((len(found.frames) - 1, *found.frames.shape[1:3], 2), np.float32),
    )


def measure_mujoco(bench: Bench, number: int) -> dict[str, dict[str, float]]:
    """Metrics of the output, of one without controls, and of the simulator's own frames."""
    clip = mujoco_clip(bench, number)
    given = replace(clip.given, reference=None)
    estimators = {"depth": bench.predictors.depth, "seg": bench.predictors.seg}
    found = {}
    for name, frames in (
        (OURS, bench.generate(clip, ALL_CONTROLS)),
        (WITHOUT, bench.generate(clip, {})),
        (OWN, clip.simulator),
    ):
        report = evaluate_clip(as_clip(frames), given, estimators=estimators)
        if report.left_out:
            raise NumericsError(f"MuJoCo scene {number}: {report.left_out}")
        found[name] = {metric: report.values[metric] for metric in METRICS}
    return found


def summarise_mujoco(clips: Sequence[Mapping[str, Mapping[str, float]]]) -> dict[str, Any]:
    """Means, and outputs' over the simulator's own frames'."""
    by = {n: {m: [clip[n][m] for clip in clips] for m in METRICS} for n in (OURS, WITHOUT, OWN)}
    return {
        "rows": {
            name: {metric: mean_over_clips(values).as_mapping() for metric, values in each.items()}
            for name, each in by.items()
        },
        "ratios": {m: ratio_of_means(by[OURS][m], by[OWN][m]).as_mapping() for m in METRICS},
        "num_clips": len(clips),
    }


MUJOCO = Part(measure=measure_mujoco, summarise=summarise_mujoco, most=6)
