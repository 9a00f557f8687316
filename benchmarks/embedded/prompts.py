"""The same clip and noise under other prompts: darker at night, whiter in snow?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.embedded.bench import ALL_CONTROLS, Bench, Part
from benchmarks.statistics import mean_over_clips

PROMPTED = ("night", "day", "snow")  # of the six looks; there is no snow indoors
LEAST_WHITE, LARGEST_SPREAD = 160, 45  # of 255: darkest channel, and difference to the brightest


def measure_prompts(bench: Bench, seed: int) -> dict[str, dict[str, float]]:
    """Night, day and snow prompts on the same clip and noise, and its true renders under them."""
    clip, ground = bench.clip(seed), bench.clip(seed).ground()
    looks = {name: look for name, look in bench.looks(seed).items() if name in PROMPTED}
    made = {
        name: bench.generate(clip, ALL_CONTROLS, prompt=look.prompt) for name, look in looks.items()
    }
    true = {name: look.render for name, look in looks.items()}
    return {
        "outputs": look_statistics(made, ground),
        "true renders": look_statistics(true, ground),
    }


def summarise_prompts(clips: Sequence[Mapping[str, Mapping[str, float]]]) -> dict[str, Any]:
    """In how many clips the looks point the right way."""
    return {name: count_right([clip[name] for clip in clips]) for name in clips[0]}


def look_statistics(looks: Mapping[str, np.ndarray], ground: np.ndarray) -> dict[str, float]:
    """Mean luminance under every look, and the share of white on the ground in day and snow."""
    found = {f"luminance_{name}": luminance(frames) for name, frames in looks.items()}
    if "snow" in looks:
        found |= {f"white_{name}": white_share(looks[name], ground) for name in ("day", "snow")}
    return found


def luminance(frames: np.ndarray) -> float:
    """Mean luma (ITU-R BT.601), 0 to 255."""
    return float((frames @ np.array([0.299, 0.587, 0.114])).mean())


def white_share(frames: np.ndarray, ground: np.ndarray) -> float:
    """Of the ground's pixels, the share that is bright and has no colour."""
    darkest, brightest = frames.min(axis=-1), frames.max(axis=-1)
    is_white = (darkest > LEAST_WHITE) & (brightest - darkest < LARGEST_SPREAD)
    return float(is_white[ground].mean())


def count_right(clips: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """In how many clips night is darker than day and snow whiter than day, with the means."""
    snowy = [clip for clip in clips if "white_snow" in clip]
    names = sorted({name for clip in clips for name in clip})
    return {
        "night_darker": sum(c["luminance_night"] < c["luminance_day"] for c in clips),
        "num_clips": len(clips),
        "snow_whiter": sum(c["white_snow"] > c["white_day"] for c in snowy),
        "num_driving": len(snowy),
        "means": {
            name: mean_over_clips([c[name] for c in clips if name in c]).as_mapping()
            for name in names
        },
    }


PROMPTS = Part(measure=measure_prompts, summarise=summarise_prompts)
