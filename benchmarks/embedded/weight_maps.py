"""Edge control on the left half alone: where does edge F1 change?"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.embedded.bench import Bench
from benchmarks.held_out import HeldOutClip
from benchmarks.statistics import change_ratio, mean_over_clips
from cosmos_transfer.errors import NumericsError
from cosmos_transfer.metrics.control import edge_f1

MASK_CLIPS = 24


def run_mask(bench: Bench) -> dict[str, Any]:
    """Edge F1 on either half with the edge control on the left half only, against no control."""
    height, width = bench.clips[0].simulator.shape[1:3]
    left = np.zeros((height, width), dtype=np.float32)
    left[:, : width // 2] = 1.0
    results: dict[str, Any] = {}
    changes: dict[int, list[tuple[float, float]]] = {0: [], 1: []}
    for clip in bench.progress("mask", MASK_CLIPS):
        without = bench.generate(clip, {})
        masked = bench.generate(clip, {"edge": {"weight": 1.0, "mask": left}})
        for tolerance, each in changes.items():
            try:
                each.append(half_changes(masked, without, clip, tolerance))
            except NumericsError:  # a half without any edge in the control
                continue
    for tolerance, each in changes.items():
        on_left, on_right = (list(side) for side in zip(*each, strict=True))
        results["edge_f1" if tolerance == 0 else "edge_f1_1px"] = {
            "change_left": mean_over_clips(on_left).as_mapping(),
            "change_right": mean_over_clips(on_right).as_mapping(),
            "ratio": change_ratio(on_left, on_right).as_mapping(),
            "num_clips": len(each),
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
