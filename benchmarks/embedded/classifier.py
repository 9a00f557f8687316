"""Does a classifier trained on true renders read the prompt's attributes off outputs?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.embedded.attributes import ATTRIBUTES, right
from benchmarks.embedded.bench import ALL_CONTROLS, Bench, Part
from benchmarks.statistics import mean_over_clips, ratio_of_means

SIDES = ("outputs", "true_renders")


def measure_classifier(bench: Bench, seed: int) -> dict[str, dict[str, bool]]:
    """What is read right off the output with all four controls, and off the true render."""
    clip = bench.clip(seed)
    frames = (bench.generate(clip, ALL_CONTROLS), clip.true_render)
    wanted = clip.look.attributes()
    return {
        side: right(bench.classifier.read(each), wanted)
        for side, each in zip(SIDES, frames, strict=True)
    }


def summarise_classifier(clips: Sequence[Mapping[str, Mapping[str, bool]]]) -> dict[str, Any]:
    """Accuracy by attribute and over all of them, and outputs' over true renders'."""
    shares = {side: [_share(clip[side]) for clip in clips] for side in SIDES}
    by_attribute = {}
    for name in ATTRIBUTES:
        having = [clip for clip in clips if name in clip[SIDES[0]]]
        if having:
            by_attribute[name] = {
                side: sum(clip[side][name] for clip in having) for side in SIDES
            } | {"num_clips": len(having)}
    return {
        "accuracy": {side: mean_over_clips(each).as_mapping() for side, each in shares.items()},
        "ratio": ratio_of_means(shares["outputs"], shares["true_renders"]).as_mapping(),
        "attributes": by_attribute,
        "per_clip": {side: [round(share, 4) for share in each] for side, each in shares.items()},
    }


def _share(found: Mapping[str, bool]) -> float:
    return sum(found.values()) / len(found)


CLASSIFIER = Part(measure=measure_classifier, summarise=summarise_classifier)
