"""Seconds of whole requests."""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch

from benchmarks.embedded.bench import ALL_CONTROLS, Bench
from cosmos_transfer.training.data import HELD_OUT_SEEDS

TIMED_STEPS, TIMED_RUNS = 12, 3
LEAST_GUIDANCE = 1.5  # what a checkpoint without guidance of its own is timed with


def run_timing(bench: Bench) -> dict[str, Any]:
    """Controls, encoding, 12 steps with guidance, decoding; fewer where a checkpoint takes fewer.

    A distilled checkpoint is timed as it is shipped, its few steps without the pass for guidance.
    """
    info = bench.pipeline.checkpoint.info
    steps, guidance = TIMED_STEPS, max(info.guidance_scale, LEAST_GUIDANCE)
    if info.num_inference_steps < TIMED_STEPS:
        steps, guidance = info.num_inference_steps, info.guidance_scale
    clip, seconds, stages = bench.clip(HELD_OUT_SEEDS[0]), [], []
    for _ in range(1 + TIMED_RUNS):
        started = time.perf_counter()
        made = bench.pipeline(
            video=clip.simulator,
            prompt=clip.prompt,
            controls=clip.controls(ALL_CONTROLS),
            num_inference_steps=steps,
            guidance_scale=guidance,
        )
        seconds.append(time.perf_counter() - started)
        stages.append(made.record.timings_s)
    warm, warm_stages = seconds[1:], stages[1:]
    return {
        "seconds": round(statistics.median(warm), 3),
        "fastest": round(min(warm), 3),
        "slowest": round(max(warm), 3),
        "stages": {
            stage: round(statistics.median(each[stage] for each in warm_stages), 4)
            for stage in warm_stages[0]
        },
        "steps": steps,
        "guidance_scale": guidance,
        "size": str(clip.size),
        "num_frames": len(made.frames),
        "runs": TIMED_RUNS,
        "threads": torch.get_num_threads(),
    }
