"""Edge control on the left half alone: where does edge F1 change?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.embedded.bench import Bench, Part
from benchmarks.held_out import HeldOutClip
from benchmarks.statistics import change_ratio, mean_over_clips
from cosmos_transfer.errors import NumericsError
from cosmos_transfer.metrics.control import edge_f1

TOLERANCES = {"edge_f1": 0, "edge_f1_1px": 1}


def measure_mask(bench: Bench, seed: int) -> dict[str, tuple[float, float]] | None:
    """How much edge F1 rises on either half with the edge control on the left half only."""
    clip = bench.clip(seed)
    left = np.zeros((clip.size.height, clip.size.width), dtype=np.float32)
    left[:, : clip.size.width // 2] = 1.0
    without = bench.generate(clip, {})
    masked = bench.generate(clip, {"edge": {"weight": 1.0, "mask": left}})
    try:
        return {
            name: half_changes(masked, without, clip, tolerance)
            for name, tolerance in TOLERANCES.items()
        }
    except NumericsError:  # a half without any edge in the control
        return None


def summarise_mask(clips: Sequence[Mapping[str, tuple[float, float]]]) -> dict[str, Any]:
    """Mean changes, and how many times larger the left one is."""
    results = {}
    for name in TOLERANCES:
        on_left, on_right = (list(side) for side in zip(*(c[name] for c in clips), strict=True))
        results[name] = {
            "change_left": mean_over_clips(on_left).as_mapping(),
            "change_right": mean_over_clips(on_right).as_mapping(),
            "ratio": change_ratio(on_left, on_right).as_mapping(),
            "num_clips": len(clips),
        }
    return results


def half_changes(
    masked: np.ndarray, without: np.ndarray, clip: HeldOutClip, tolerance: int
) -> tuple[float, float]:
    """How much edge F1 rises on the left half and on the right."""
    edge = clip.given.edge
    assert edge is not None
    middle = edge.shape[2] // 2
    left, right = (
        edge_f1(_part(masked, half), _part(edge, half), tolerance=tolerance)
        - edge_f1(_part(without, half), _part(edge, half), tolerance=tolerance)
        for half in (slice(None, middle), slice(middle, None))
    )
    return left, right


def _part(frames: np.ndarray, columns: slice) -> np.ndarray:
    return np.ascontiguousarray(frames[:, :, columns])


MASK = Part(measure=measure_mask, summarise=summarise_mask, most=24)
