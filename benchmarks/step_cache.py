"""What the step cache saves on the embedded model, and what it costs in fidelity.

    python -m benchmarks.step_cache             48 clips, the default threshold and two others

Every clip is made without the cache and with it, from the same noise, with all four controls at
0.25. Network evaluations are counted, both passes; every metric of ``benchmarks.embedded`` is
taken of both, and the ratio of the means is printed.
"""

from __future__ import annotations

import argparse
import logging
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from benchmarks.embedded.bench import ALL_CONTROLS
from benchmarks.embedded.fidelity import METRICS, Yardstick
from benchmarks.held_out import native_clips
from benchmarks.results_file import FOLDER, hardware, write_results
from cosmos_transfer.diffusion.step_cache import DEFAULT_THRESHOLD
from cosmos_transfer.metrics.predictors import load_predictors
from cosmos_transfer.pipeline import GeneratedClip, TransferPipeline


def run(num_clips: int, thresholds: Sequence[float]) -> dict[str, Any]:
    """Generate, count and measure."""
    pipeline = TransferPipeline.from_pretrained(show_progress=False)
    predictors = load_predictors("embedded")
    clips = native_clips(pipeline.checkpoint.info, num_clips)
    yardsticks = [Yardstick(clip, predictors) for clip in clips]
    rows: dict[str, Any] = {}
    plain: list[np.ndarray] = []
    for threshold in (0.0, *thresholds):
        scores, ran, asked, errors = [], 0, 0, []
        for index, clip in enumerate(tqdm(clips, desc=f"threshold {threshold}", unit="clip")):
            made = pipeline(
                video=clip.simulator,
                prompt=clip.prompt,
                controls=clip.controls(ALL_CONTROLS),
                episode=clip.seed,
                step_cache=threshold,
            )
            scores.append(yardsticks[index].measure(made.frames))
            if threshold == 0.0:
                plain.append(made.frames)
                continue
            each = _counts(made)
            ran, asked = ran + each[0], asked + each[1]
            errors.append(float(np.mean((made.frames - plain[index].astype(float)) ** 2)))
        rows[str(threshold)] = {
            "metrics": {name: float(np.mean([s[name] for s in scores])) for name in METRICS},
            "evaluations": ran,
            "calls": asked,
            "psnr_db": 10 * float(np.log10(255**2 / np.mean(errors))) if errors else None,
        }
    whole = rows["0.0"]["metrics"]
    for row in rows.values():
        row["ratio"] = {name: row["metrics"][name] / whole[name] for name in METRICS}
    info = pipeline.checkpoint.info
    return {
        "benchmark": "step_cache",
        "hardware": hardware(),
        "checkpoint": {"id": info.id, "sha256": dict(info.sha256)},
        "settings": {
            "num_clips": num_clips,
            "steps": info.num_inference_steps,
            "sampler": info.sampler,
            "guidance_scale": info.guidance_scale,
        },
        "thresholds": rows,
    }


def _counts(made: GeneratedClip) -> tuple[int, int]:
    (said,) = re.findall(r"the network ran (\d+) of (\d+)", " ".join(made.record.notes))
    return int(said[0]), int(said[1])


def text(results: dict[str, Any]) -> str:
    """The results as a table."""
    lines = [f"{'threshold':>10} {'fewer':>6} {'PSNR':>6}  " + "  ".join(METRICS)]
    for threshold, row in results["thresholds"].items():
        fewer = row["calls"] / row["evaluations"] if row["evaluations"] else 1.0
        psnr = "" if row["psnr_db"] is None else f"{row['psnr_db']:.1f}"
        ratios = "  ".join(f"{row['ratio'][name]:>{len(name)}.3f}" for name in METRICS)
        lines.append(f"{threshold:>10} {fewer:>5.2f}x {psnr:>6}  {ratios}")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    """Run, write the results, print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.step_cache")
    parser.add_argument("--clips", type=int, default=48)
    parser.add_argument("--threshold", type=float, action="append", help="others than the usual")
    parser.add_argument("--results", type=Path, default=FOLDER)
    arguments = parser.parse_args(argv)
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)
    with torch.inference_mode():
        results = run(arguments.clips, arguments.threshold or (0.1, DEFAULT_THRESHOLD, 0.25))
    path = write_results(results, arguments.results)
    print(text(results))
    print(f"\nresults: {path}")


if __name__ == "__main__":
    main()
