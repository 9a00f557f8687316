"""How well the embedded model follows controls, prompts and masks on held-out clips; how fast.

    python -m benchmarks.embedded                          all, 48 clips (make bench-embedded)
    python -m benchmarks.embedded --clips 4 --only table   a quick look

Four parts, each of which ``--only`` can pick:

``table``   Every metric against the given controls, for outputs made with no control, with all four
            at 0.25, with each alone at 1; beside them the **true render** of the scene, and a
            **shuffled** one, of another scene of the same family (chance). Then the share of the
            gap closed: (with - without) / (true - without).
``prompts`` The same clip and seed under a night, a day and a snow prompt, with all four controls at
            0.25: is night darker than day, is the ground whiter in snow (driving clips)? True
            renders under the same looks are asked the same.
``mask``    Edge control with weight 1 on the left half and 0 on the right: how much edge F1 changes
            on either half, against no control.
``timing``  Seconds for 12 steps with guidance and all four controls, after one warm-up.

All outputs of one clip start from the same noise. Depth and masks of an output are found by the
checkpoint's predictors; their error on true renders is the floor. The input of blur SSIM is the
clip that went in, the simulator's view, in whose flat colours no render is: a true render is far
from 1 there. A second column holds outputs against the true render of the look that the prompt
names, where the true render is 1; it is what the published metric's input, a real video, is to us.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from benchmarks.held_out import HeldOutClip, as_clip, held_out_clips, shuffled
from benchmarks.report import report, write_readme
from benchmarks.results_file import hardware, write_results
from benchmarks.statistics import change_ratio, gap_share, mean_over_clips
from cosmos_transfer.errors import NumericsError
from cosmos_transfer.metrics.control import blur_ssim, edge_f1
from cosmos_transfer.metrics.evaluate import evaluate_clip
from cosmos_transfer.metrics.predictors import Predictors, load_predictors
from cosmos_transfer.pipeline import TransferPipeline

PARTS = ("table", "prompts", "mask", "timing")
METRICS = (
    "edge_f1",
    "edge_f1_1px",
    "mask_miou",
    "depth_si_rmse",
    "blur_ssim",
    "blur_ssim_render",
)
ALL_CONTROLS: Mapping[str, float] = {"edge": 0.25, "depth": 0.25, "seg": 0.25, "vis": 0.25}
CONDITIONS: Mapping[str, Mapping[str, float]] = {
    "no controls": {},
    "all four at 0.25": ALL_CONTROLS,
    "edge at 1": {"edge": 1.0},
    "depth at 1": {"depth": 1.0},
    "seg at 1": {"seg": 1.0},
    "vis at 1": {"vis": 1.0},
}
TRUE, SHUFFLED, WITHOUT = "true render", "shuffled true render", "no controls"
PROMPTED: Mapping[str, Mapping[str, str]] = {
    "night": {"time_of_day": "night", "weather": "clear"},
    "day": {"time_of_day": "day", "weather": "clear"},
    "snow": {"time_of_day": "day", "weather": "snow"},
}
LEAST_WHITE, LARGEST_SPREAD = 160, 45  # of 255: darkest channel, and difference to the brightest
TIMED_STEPS, TIMED_RUNS = 12, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What every part needs."""

    pipeline: TransferPipeline
    clips: Sequence[HeldOutClip]
    steps: int | None

    def generate(
        self, clip: HeldOutClip, weights: Mapping[str, Any], prompt: str | None = None
    ) -> np.ndarray:
        """The frames that a request for this clip comes to; one noise a clip."""
        made = self.pipeline(
            video=clip.simulator,
            prompt=prompt or clip.prompt,
            controls=clip.controls(weights),
            num_inference_steps=self.steps,
            episode=clip.seed,
        )
        return made.frames


def measure(frames: np.ndarray, clip: HeldOutClip, predictors: Predictors) -> dict[str, float]:
    """Every metric of some frames against a clip's controls.

    Raises:
        NumericsError: One of them is undefined; a mean over fewer clips would compare different
            ones.
    """
    report = evaluate_clip(
        as_clip(frames), clip.given, estimators={"depth": predictors.depth, "seg": predictors.seg}
    )
    if report.left_out:
        raise NumericsError(f"clip {clip.seed}: {report.left_out}")
    values = dict(report.values) | {"blur_ssim_render": blur_ssim(frames, clip.true_render)}
    return {name: values[name] for name in METRICS}


def run_table(bench: Bench, predictors: Predictors) -> dict[str, Any]:
    """Metrics of every condition, and the shares of the gap closed."""
    scores: dict[str, list[dict[str, float]]] = {TRUE: [], SHUFFLED: []}
    for clip, other in zip(bench.clips, shuffled(bench.clips), strict=True):
        scores[TRUE].append(measure(clip.true_render, clip, predictors))
        scores[SHUFFLED].append(measure(other.true_render, clip, predictors))
    for name, weights in CONDITIONS.items():
        scores[name] = [
            measure(bench.generate(clip, weights), clip, predictors)
            for clip in tqdm(bench.clips, desc=name, unit="clip")
        ]
    return table_from_scores(scores) | {
        "floors": {
            "mask_miou": None if predictors.seg.floor is None else asdict(predictors.seg.floor),
            "depth_si_rmse": (
                None if predictors.depth.floor is None else asdict(predictors.depth.floor)
            ),
        },
        "per_clip": {
            name: {metric: [round(score[metric], 5) for score in each] for metric in METRICS}
            for name, each in scores.items()
        },
    }


def table_from_scores(scores: Mapping[str, Sequence[Mapping[str, float]]]) -> dict[str, Any]:
    """Means with standard errors, and the share of the gap that each condition closed."""
    by_metric = {
        name: {metric: [score[metric] for score in each] for metric in METRICS}
        for name, each in scores.items()
    }
    rows = {
        name: {metric: mean_over_clips(values).as_mapping() for metric, values in each.items()}
        for name, each in by_metric.items()
    }
    shares = {
        name: {
            metric: gap_share(
                by_metric[name][metric], by_metric[WITHOUT][metric], by_metric[TRUE][metric]
            ).as_mapping()
            for metric in METRICS
        }
        for name in by_metric
        if name not in (TRUE, SHUFFLED, WITHOUT)
    }
    return {"rows": rows, "shares": shares}


def run_prompts(bench: Bench) -> dict[str, Any]:
    """Night, day and snow prompts on the same clip and noise."""
    made: list[dict[str, float]] = []
    true: list[dict[str, float]] = []
    for clip in tqdm(bench.clips, desc="prompts", unit="clip"):
        wanted = {
            name: clip.under(**_fitting(attributes, clip.family))
            for name, attributes in PROMPTED.items()
            if name != "snow" or clip.family == "driving"
        }
        outputs = {
            name: bench.generate(clip, ALL_CONTROLS, prompt=prompt)
            for name, (prompt, _) in wanted.items()
        }
        made.append(look_statistics(outputs, clip.ground()))
        true.append(look_statistics({name: r for name, (_, r) in wanted.items()}, clip.ground()))
    return {"outputs": count_right(made), "true renders": count_right(true)}


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


def run_mask(bench: Bench) -> dict[str, Any]:
    """Edge F1 on either half with the edge control on the left half only, against no control."""
    height, width = bench.clips[0].simulator.shape[1:3]
    left = np.zeros((height, width), dtype=np.float32)
    left[:, : width // 2] = 1.0
    results: dict[str, Any] = {}
    changes: dict[int, list[tuple[float, float]]] = {0: [], 1: []}
    for clip in tqdm(bench.clips, desc="mask", unit="clip"):
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


def run_timing(bench: Bench) -> dict[str, Any]:
    """Seconds of whole requests: controls, encoding, 12 steps, decoding."""
    info = bench.pipeline.checkpoint.info
    guidance = info.guidance_scale if info.guidance_scale > 1.0 else 1.5
    clip, seconds, stages = bench.clips[0], [], []
    for _ in range(1 + TIMED_RUNS):
        started = time.perf_counter()
        made = bench.pipeline(
            video=clip.simulator,
            prompt=clip.prompt,
            controls=clip.controls(ALL_CONTROLS),
            num_inference_steps=TIMED_STEPS,
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
        "steps": TIMED_STEPS,
        "guidance_scale": guidance,
        "num_frames": len(made.frames),
        "runs": TIMED_RUNS,
    }


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command's arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.embedded", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--clips", type=int, default=48, help="how many held-out clips")
    parser.add_argument("--steps", type=int, help="sampling steps; the checkpoint's own by default")
    parser.add_argument(
        "--only", choices=PARTS, action="append", help="parts to run; all if absent"
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
    parts = arguments.only or PARTS
    pipeline = TransferPipeline.from_pretrained(
        arguments.checkpoint, device=arguments.device, show_progress=False
    )
    clips = list(held_out_clips(arguments.clips))
    bench = Bench(pipeline=pipeline, clips=clips, steps=arguments.steps)
    info = pipeline.checkpoint.info
    results: dict[str, Any] = {
        "benchmark": "embedded",
        "hardware": hardware(),
        "device": str(pipeline.device),
        "checkpoint": {"id": info.id, "sha256": dict(info.sha256)},
        "settings": {
            "num_clips": len(clips),
            "seeds": [clip.seed for clip in clips],
            "steps": arguments.steps or info.num_inference_steps,
            "guidance_scale": info.guidance_scale,
            "sampler": info.sampler,
        },
    }
    if "table" in parts:
        predictors = load_predictors(arguments.predictors or arguments.checkpoint)
        results["table"] = run_table(bench, predictors)
    if "prompts" in parts:
        results["prompts"] = run_prompts(bench)
    if "mask" in parts:
        results["mask"] = run_mask(bench)
    if "timing" in parts:
        results["timing"] = run_timing(bench)
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


def _part(frames: np.ndarray, columns: slice) -> np.ndarray:
    return np.ascontiguousarray(frames[:, :, columns])


def _fitting(attributes: Mapping[str, str], family: str) -> dict[str, str]:
    """The attributes that a family has: there is no weather indoors."""
    return {name: v for name, v in attributes.items() if name != "weather" or family == "driving"}


if __name__ == "__main__":
    main()
