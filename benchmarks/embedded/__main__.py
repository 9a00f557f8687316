"""The command: runs the parts asked for, writes the results, prints the report."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

import benchmarks.embedded as page
from benchmarks.embedded.bench import Bench
from benchmarks.embedded.fidelity import run_table
from benchmarks.embedded.prompts import run_prompts
from benchmarks.embedded.sharpness import run_sharpness
from benchmarks.embedded.timing import run_timing
from benchmarks.embedded.weight_maps import run_mask
from benchmarks.held_out import native_clips
from benchmarks.report import report, write_readme
from benchmarks.results_file import hardware, write_results
from cosmos_transfer.pipeline import TransferPipeline

PARTS: Mapping[str, Callable[[Bench], dict[str, Any]]] = {
    "table": run_table,
    "prompts": run_prompts,
    "mask": run_mask,
    "sharpness": run_sharpness,
    "timing": run_timing,
}


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command's arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.embedded", description=(page.__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--clips", type=int, default=48, help="how many held-out clips")
    parser.add_argument("--steps", type=int, help="sampling steps; the checkpoint's own by default")
    parser.add_argument(
        "--only",
        choices=list(PARTS),
        action="append",
        metavar="PART",
        help="parts to run, all if absent: " + ", ".join(PARTS),
    )
    parser.add_argument("--checkpoint", default="embedded", help="name or folder")
    parser.add_argument(
        "--predictors", help="checkpoint whose predictors judge; the same if absent"
    )
    parser.add_argument("--device", default="auto")
    parser.add_argument("--results", type=Path, help="folder for the results instead of the usual")
    return parser.parse_args(argv)


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run the parts asked for; returns what goes into the results file."""
    asked = arguments.only or list(PARTS)
    pipeline = TransferPipeline.from_pretrained(
        arguments.checkpoint, device=arguments.device, show_progress=False
    )
    info = pipeline.checkpoint.info
    clips = native_clips(info, arguments.clips)
    bench = Bench(
        pipeline=pipeline,
        clips=clips,
        steps=arguments.steps,
        judge=arguments.predictors or arguments.checkpoint,
    )
    results: dict[str, Any] = {
        "benchmark": "embedded",
        "hardware": hardware(),
        "device": str(pipeline.device),
        "checkpoint": {"id": info.id, "sha256": dict(info.sha256)},
        "settings": {
            "num_clips": len(clips),
            "seeds": [clip.seed for clip in clips],
            "size": str(info.native_size),
            "num_frames": info.native_frames,
            "steps": arguments.steps or info.num_inference_steps,
            "guidance_scale": info.guidance_scale,
            "sampler": info.sampler,
        },
        "part_seconds": {},
    }
    for name, run_part in PARTS.items():
        if name in asked:
            started = time.perf_counter()
            results[name] = run_part(bench)
            results["part_seconds"][name] = round(time.perf_counter() - started, 1)
    return results


def main(argv: Sequence[str] | None = None) -> None:
    """Run, write the results, and print the report."""
    arguments = parse(argv)
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)  # every clip has a sky
    with torch.inference_mode():
        results = run(arguments)
    if arguments.results is None:
        path = write_results(results)
        write_readme()
    else:
        path = write_results(results, arguments.results)
    print(report(results))
    print(f"\nresults: {path}")


if __name__ == "__main__":
    main()
