"""How far apart outputs of six prompts lie, beside true renders of the six; and of six seeds.

The distance is ``attributes.distance``, the mean over all pairs. All four controls act, so the
scene and, over prompts, the noise are the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.embedded.attributes import mean_pairwise, right
from benchmarks.embedded.bench import ALL_CONTROLS, Bench, Part
from benchmarks.statistics import mean_over_clips, ratio_of_means

NUM_SEEDS = 6


def measure_prompt_diversity(bench: Bench, seed: int) -> dict[str, Any]:
    """Mean distances over the six looks, and whether the classifier reads them."""
    clip, looks, classifier = bench.clip(seed), bench.looks(seed), bench.classifier
    outputs = {
        name: bench.generate(clip, ALL_CONTROLS, prompt=look.prompt) for name, look in looks.items()
    }
    renders = {name: look.render for name, look in looks.items()}
    found: dict[str, Any] = {}
    for side, each in (("outputs", outputs), ("true_renders", renders)):
        found[side] = mean_pairwise([classifier.directions(frames) for frames in each.values()])
        read = [right(classifier.read(each[n]), look.attributes) for n, look in looks.items()]
        found[f"read_{side}"] = [sum(sum(r.values()) for r in read), sum(len(r) for r in read)]
    return found


def measure_seed_diversity(bench: Bench, seed: int) -> float:
    """The mean distance over six seeds of the clip's own prompt."""
    clip = bench.clip(seed)
    outputs = [bench.generate(clip, ALL_CONTROLS, variant=variant) for variant in range(NUM_SEEDS)]
    return mean_pairwise([bench.classifier.directions(frames) for frames in outputs])


def summarise_prompt_diversity(clips: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Means over clips, their ratio, and how many attributes were read right."""
    sides = {side: [clip[side] for clip in clips] for side in ("outputs", "true_renders")}
    return {
        "distance": {side: mean_over_clips(each).as_mapping() for side, each in sides.items()},
        "ratio": ratio_of_means(sides["outputs"], sides["true_renders"]).as_mapping(),
        "attributes_read": {
            side: [sum(clip[f"read_{side}"][i] for clip in clips) for i in range(2)]
            for side in sides
        },
        "num_clips": len(clips),
    }


def summarise_seed_diversity(clips: Sequence[float]) -> dict[str, Any]:
    """The mean over clips, and the least."""
    return {
        "distance": mean_over_clips(clips).as_mapping(),
        "least": round(min(clips), 6),
        "num_clips": len(clips),
    }


DIVERSITY = Part(measure=measure_prompt_diversity, summarise=summarise_prompt_diversity, most=24)
SEEDS = Part(measure=measure_seed_diversity, summarise=summarise_seed_diversity, most=8)
