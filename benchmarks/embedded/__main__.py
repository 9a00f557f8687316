"""The command: measures the parts asked for, writes the results, prints the report."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

import benchmarks.embedded as page
from benchmarks.embedded.arm_scene import why_not
from benchmarks.embedded.bench import Bench, Settings
from benchmarks.embedded.clip_log import ClipLog, log_path
from benchmarks.embedded.measure import measure_clips
from benchmarks.embedded.parts import PARTS
from benchmarks.embedded.timing import run_timing
from benchmarks.report import against, report, write_readme
from benchmarks.results_file import FOLDER, REPOSITORY, hardware, write_results
from cosmos_transfer.model.checkpoint import EMBEDDED, PACKAGED
from cosmos_transfer.training.data import HELD_OUT_SEEDS

log = logging.getLogger(__name__)

NAMES = (*PARTS, "timing")


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command's arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.embedded", description=(page.__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--clips", type=int, default=48, help="how many held-out clips")
    parser.add_argument("--steps", type=int, help="sampling steps; the checkpoint's own by default")
    parser.add_argument(
        "--only",
        type=_parts,
        metavar="PART,PART",
        help="parts to run, all if absent: " + ", ".join(NAMES),
    )
    parser.add_argument("--checkpoint", default="embedded", help="name or folder")
    parser.add_argument(
        "--predictors",
        help="checkpoint whose predictors judge; if absent embedded's for a packaged one, the "
        "checkpoint's own for a folder",
    )
    parser.add_argument("--device", default="auto")
    parser.add_argument("--workers", type=int, default=1, help="processes that measure clips")
    parser.add_argument(
        "--threads", type=int, help="threads of the timing, and of one worker; torch's if absent"
    )
    parser.add_argument(
        "--minutes", type=float, help="begin no clip after this; the report is of those measured"
    )
    parser.add_argument(
        "--kept",
        type=Path,
        default=REPOSITORY / "runs/bench",
        help="folder for the classifier, and for what was measured of every clip: a run that was "
        "stopped, or is asked for more clips or parts, goes on from there",
    )
    parser.add_argument("--results", type=Path, help="folder for the results instead of the usual")
    return parser.parse_args(argv)


def _parts(text: str) -> list[str]:
    asked = text.split(",")
    if unknown := [name for name in asked if name not in NAMES]:
        raise argparse.ArgumentTypeError(
            f"expected some of {', '.join(NAMES)}, got {', '.join(unknown)}"
        )
    return asked


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run the parts asked for; returns what goes into the results file."""
    started = time.monotonic()
    asked = arguments.only or NAMES
    settings = Settings(
        checkpoint=arguments.checkpoint,
        judge=arguments.predictors or _usual_judge(arguments.checkpoint),
        device=arguments.device,
        steps=arguments.steps,
        threads=arguments.threads if arguments.workers == 1 else 1,
        folder=arguments.kept,
    )
    bench = settings.load()
    info = bench.pipeline.checkpoint.info
    kept = ClipLog(log_path(settings, info))
    parts = {name: part for name, part in PARTS.items() if name in asked}
    if "mujoco" in parts and (reason := why_not()):
        log.error("the part mujoco is left out: no scene can be rendered: %s", reason)
        del parts["mujoco"]
    if any(name in parts for name in ("classifier", "diversity", "seeds", "regions")):
        _ = bench.classifier  # trained once, before there are several processes
    measure_clips(
        parts,
        HELD_OUT_SEEDS[: arguments.clips],
        kept,
        bench=bench,
        settings=settings,
        workers=arguments.workers,
        until=started + 60.0 * arguments.minutes if arguments.minutes else float("inf"),
    )
    results: dict[str, Any] = {
        "benchmark": "embedded",
        "hardware": hardware(),
        "device": str(bench.pipeline.device),
        "checkpoint": {"id": info.id, "sha256": dict(info.sha256)},
        "settings": {
            "num_clips": arguments.clips,
            "size": str(info.native_size),
            "num_frames": info.native_frames,
            "steps": arguments.steps or info.num_inference_steps,
            "guidance_scale": info.guidance_scale,
            "sampler": info.sampler,
        },
        "clips_measured": {},
        "seconds_per_clip": {},
    }
    for name, part in parts.items():
        seeds = HELD_OUT_SEEDS[: min(arguments.clips, part.most)]
        values = [kept.values[name][seed] for seed in seeds if kept.has(name, seed)]
        if said := [each for each in values if each is not None]:
            results[name] = part.summarise(said)
            results["clips_measured"][name] = len(said)
            spent = [kept.values[f"seconds {name}"][seed] for seed in seeds if kept.has(name, seed)]
            results["seconds_per_clip"][name] = round(sum(spent) / len(spent), 2)
    if "table" in results:
        results["settings"]["num_clips"] = results["clips_measured"]["table"]
        results["table"]["floors"] = _floors(bench)
    if "timing" in asked:
        if arguments.threads is not None:
            torch.set_num_threads(arguments.threads)
        results["timing"] = run_timing(bench)
    return results


def _usual_judge(checkpoint: str) -> str:
    return EMBEDDED if checkpoint in PACKAGED else checkpoint


def _floors(bench: Bench) -> Mapping[str, Any]:
    floors = {
        "mask_miou": bench.predictors.seg.floor,
        "depth_si_rmse": bench.predictors.depth.floor,
    }
    return {name: None if floor is None else asdict(floor) for name, floor in floors.items()}


def main(argv: Sequence[str] | None = None) -> None:
    """Run, write the results, and print the report."""
    arguments = parse(argv)
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)  # every clip has a sky
    results = run(arguments)
    folder = arguments.results or FOLDER
    path = write_results(results, folder)
    if arguments.results is None:
        write_readme()
    print(report(results, against(results, folder)))
    print(f"\nresults: {path}")


if __name__ == "__main__":
    main()
