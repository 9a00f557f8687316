"""Is an output as sharp as a true render, and as steady in time?

Sharpness is the mean gradient energy of coded luma (``metrics.frames.gradient_energy``); flicker is
the mean absolute difference, in grey levels, between a point and where the true motion says it has
gone (``metrics.video.flicker``), over points that stay in view. Both are given as ratios to the
true render of the same scene and look: of the means over clips, and per clip (median and mean).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.embedded.bench import ALL_CONTROLS, Bench
from benchmarks.statistics import mean_over_clips, ratio_of_means
from cosmos_transfer.metrics.frames import gradient_energy
from cosmos_transfer.metrics.video import flicker, visible_next


def run_sharpness(bench: Bench) -> dict[str, Any]:
    """Gradient energy and flicker of outputs with all four controls, over those of true renders."""
    energies: list[tuple[float, float]] = []
    flickers: list[tuple[float, float]] = []
    followed: list[float] = []
    for clip in bench.progress("sharpness"):
        pair = bench.generate(clip, ALL_CONTROLS), clip.true_render
        visible = visible_next(clip.motion, clip.depth, clip.class_ids)
        followed.append(float(visible.mean()))
        energies.append((gradient_energy(pair[0]), gradient_energy(pair[1])))
        flickers.append(
            (
                flicker(pair[0], clip.motion, visible=visible),
                flicker(pair[1], clip.motion, visible=visible),
            )
        )
    return {
        "gradient_energy": compare(energies),
        "flicker": compare(flickers),
        "share_followed": mean_over_clips(followed).as_mapping(),
    }


def compare(pairs: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """Means of outputs and of true renders, and the ratios between them."""
    outputs, truths = (list(side) for side in zip(*pairs, strict=True))
    ratios = [output / truth for output, truth in pairs]
    return {
        "output": mean_over_clips(outputs).as_mapping(),
        "true_render": mean_over_clips(truths).as_mapping(),
        "ratio": ratio_of_means(outputs, truths).as_mapping(),
        "per_clip_median": round(float(np.median(ratios)), 5),
        "per_clip_mean": mean_over_clips(ratios).as_mapping(),
        "per_clip": [round(ratio, 4) for ratio in ratios],
    }
