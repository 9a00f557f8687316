"""Is an output as sharp as a true render, and as steady in time?

Sharpness is the mean gradient energy of coded luma (``metrics.frames.gradient_energy``); flicker is
the mean absolute difference, in grey levels, between a point and where the true motion says it has
gone (``metrics.video.flicker``), over points that stay in view. Both are given as ratios to the
true render of the same scene and look: of the means over clips, and per clip (median and mean).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.embedded.bench import ALL_CONTROLS, Bench, Part
from benchmarks.statistics import mean_over_clips, ratio_of_means
from cosmos_transfer.metrics.frames import gradient_energy
from cosmos_transfer.metrics.video import flicker, visible_next


def measure_sharpness(bench: Bench, seed: int) -> dict[str, Any]:
    """Gradient energy and flicker of the output with all four controls and of the true render."""
    clip = bench.clip(seed)
    pair = bench.generate(clip, ALL_CONTROLS), clip.true_render
    visible = visible_next(clip.motion, clip.depth, clip.class_ids)
    return {
        "gradient_energy": [gradient_energy(frames) for frames in pair],
        "flicker": [flicker(frames, clip.motion, visible=visible) for frames in pair],
        "share_followed": float(visible.mean()),
    }


def summarise_sharpness(clips: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Means and ratios."""
    return {
        "gradient_energy": compare([clip["gradient_energy"] for clip in clips]),
        "flicker": compare([clip["flicker"] for clip in clips]),
        "share_followed": mean_over_clips([c["share_followed"] for c in clips]).as_mapping(),
    }


def compare(pairs: Sequence[Sequence[float]]) -> dict[str, Any]:
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


SHARPNESS = Part(measure=measure_sharpness, summarise=summarise_sharpness)
