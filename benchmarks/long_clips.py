"""Seams of long clips, and memory by length.

    python -m benchmarks.long_clips seams              8 held-out clips of 41 frames
    python -m benchmarks.long_clips memory             200 frames beside 2,000

``seams``   Seam ratio: the mean absolute difference between the two frames at a chunk's border,
            over the median of the same difference elsewhere in the clip; the mean over borders and
            clips. Where chunks are cross-faded the largest difference of the fade counts, its ends
            included. Beside it the same over what nine in ten of the other differences stay below:
            where a model moves in steps of a latent frame, one difference in four is large inside
            a chunk as well. The median ratio of the true renders, which have no seams, stands
            beside both: scenes do not move evenly. Error of a kept region (the left third) in the
            first and the last chunk.
``memory``  Peak resident memory and seconds of a clip written by ``TransferPipeline.write`` in a
            process of its own, edge and blur extracted, for two lengths.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from benchmarks.held_out import held_out_clip
from benchmarks.results_file import hardware, write_results
from cosmos_transfer.outputs.writer import write_clip
from cosmos_transfer.pipeline import TransferPipeline
from cosmos_transfer.training.data import HELD_OUT_SEEDS

CONTROLS: Mapping[str, float] = {"edge": 0.25, "depth": 0.25, "seg": 0.25, "vis": 0.25}
NUM_FRAMES = 41  # five chunks of nine that share one
WAYS: Mapping[str, Mapping[str, Any]] = {
    "overlap 0": {"overlap": 0},
    "overlap 1": {"overlap": 1},
    "overlap 5, 1 inherited, 4 cross-faded": {"overlap": 5, "inherit": 1},
    "overlap 5, all inherited": {"overlap": 5},
    "overlap 5, anchored": {"overlap": 5, "anchor": True},
}
UPPER = 90  # per cent; a model whose latent frames are steps changes in one frame of four
MEMORY_FRAMES = (200, 2_000)


def border_differences(
    frames: np.ndarray, chunks: Sequence[Mapping[str, int]]
) -> tuple[list, list]:
    """Differences at every border, and everywhere else, in grey levels."""
    change = [
        float(np.abs(after.astype(np.int16) - before).mean()) for before, after in pairwise(frames)
    ]
    borders, at_border = [], set()
    for chunk in chunks[1:]:
        first = chunk["start"] + chunk["num_inherited"]
        places = range(first, first + chunk.get("num_blended", 0) + 1)
        at_border |= set(places)
        borders.append(max(change[place - 1] for place in places))
    return borders, [value for index, value in enumerate(change, 1) if index not in at_border]


def ratios(frames: np.ndarray, chunks: Sequence[Mapping[str, int]]) -> tuple[float, float]:
    """The seam ratio of one clip; and over what nine in ten other differences stay below."""
    borders, others = border_differences(frames, chunks)
    return (
        float(np.mean(borders) / np.median(others)),
        float(np.mean(borders) / np.percentile(others, UPPER)),
    )


def run_seams(
    num_clips: int, steps: int, guidance_scale: float | None, names: Sequence[str]
) -> dict[str, Any]:
    pipeline = TransferPipeline.from_pretrained("embedded", device="cpu", show_progress=False)
    info = pipeline.checkpoint.info
    clips = [
        held_out_clip(seed, size=info.native_size, num_frames=NUM_FRAMES)
        for seed in HELD_OUT_SEEDS[:num_clips]
    ]
    keep = np.zeros((info.native_size.height, info.native_size.width), np.float32)
    keep[:, : info.native_size.width // 3] = 1.0
    rows: dict[str, Any] = {}
    for name in names:
        settings = WAYS[name]
        made, own = [], []
        for clip in tqdm(clips, desc=name, unit="clip"):
            output = pipeline(
                video=clip.simulator,
                prompt=clip.prompt,
                controls=clip.controls(CONTROLS),
                num_inference_steps=steps,
                guidance_scale=guidance_scale,
                episode=clip.seed,
                **settings,
            )
            made.append(ratios(output.frames, output.record.chunks))
            own.append(ratios(clip.true_render, output.record.chunks))
        rows[name] = {
            "seam_ratio": float(np.mean(made, axis=0)[0]),
            "over_upper_tenth": float(np.mean(made, axis=0)[1]),
            "of_true_renders": float(np.mean(own, axis=0)[0]),
            "chunks": len(output.record.chunks),
            "per_clip": [round(each[0], 4) for each in made],
        }
        print(f"{name}: {rows[name]}", flush=True)
    clip = clips[0]
    kept = pipeline(
        video=clip.simulator, prompt=clip.prompt, controls=clip.controls(CONTROLS), keep=keep,
        num_inference_steps=steps, guidance_scale=guidance_scale, episode=clip.seed,
    )  # fmt: skip
    region = np.s_[:, :, : info.native_size.width // 3]
    error = (kept.frames[region].astype(float) - clip.simulator[region]) ** 2
    native = info.native_frames
    return {
        "benchmark": "long_clips_seams",
        "hardware": hardware(),
        "checkpoint": {"id": info.id, "sha256": dict(info.sha256)},
        "settings": {"num_clips": num_clips, "num_frames": NUM_FRAMES, "steps": steps,
                     "guidance_scale": guidance_scale or info.guidance_scale,
                     "size": str(info.native_size), "chunk_frames": native},
        "ways": rows,
        "kept_region_mse": {"first chunk": float(error[:native].mean()),
                            "last chunk": float(error[-native:].mean())},
    }  # fmt: skip


_WRITE = """
import json, resource, sys, time
from cosmos_transfer.inputs.request import request_from_mapping
from cosmos_transfer.inputs.validate import check_request
from cosmos_transfer.pipeline import TransferPipeline

video, out, steps, checkpoint = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
pipeline = TransferPipeline.from_pretrained(checkpoint, device="cpu", show_progress=False)
request = request_from_mapping({"video": video, "prompt": "a snowy street at night",
    "controls": {"edge": 0.5, "vis": 0.5}, "num_inference_steps": steps, "guidance_scale": 1.0,
    "resolution": "input"})
started = time.perf_counter()
pipeline.write(check_request(request, pipeline.checkpoint.info), out, resume=True)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({"peak_bytes": peak, "seconds": time.perf_counter() - started}))
"""


def run_memory(steps: int, checkpoint: str) -> dict[str, Any]:
    rows = {}
    with tempfile.TemporaryDirectory() as folder:
        clip = held_out_clip(HELD_OUT_SEEDS[0], size=_native_size(), num_frames=40)
        for count in MEMORY_FRAMES:
            there_and_back = np.concatenate([clip.simulator, clip.simulator[::-1]])
            frames = np.resize(there_and_back, (count, *clip.simulator.shape[1:]))
            video = write_clip(Path(folder, f"{count}.mp4"), frames, rate=24)
            done = subprocess.run(
                [sys.executable, "-c", _WRITE, str(video), str(Path(folder, f"out{count}")),
                 str(steps), checkpoint], capture_output=True, text=True, check=True,
            )  # fmt: skip
            rows[str(count)] = json.loads(done.stdout.splitlines()[-1])
            print(count, rows[str(count)], flush=True)
    short, long = (rows[str(count)]["peak_bytes"] for count in MEMORY_FRAMES)
    return {
        "benchmark": "long_clips_memory",
        "hardware": hardware(),
        "settings": {
            "steps": steps,
            "controls": ["edge", "vis"],
            "checkpoint": Path(checkpoint).name,
        },
        "lengths": rows,
        "ratio": long / short,
    }


def _native_size() -> Any:
    from cosmos_transfer.model.checkpoint import checkpoint_info

    return checkpoint_info("embedded").native_size


def main(argv: Sequence[str] | None = None) -> None:
    """Run, write the results, print them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.long_clips")
    parser.add_argument("what", choices=("seams", "memory"))
    parser.add_argument("--clips", type=int, default=8)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--guidance-scale", type=float)
    parser.add_argument("--way", choices=WAYS, action="append", help="all unless given")
    parser.add_argument("--checkpoint", default="embedded", help="memory: name or folder")
    arguments = parser.parse_args(argv)
    results = (
        run_seams(
            arguments.clips, arguments.steps, arguments.guidance_scale, arguments.way or list(WAYS)
        )
        if arguments.what == "seams"
        else run_memory(arguments.steps, arguments.checkpoint)
    )
    print(json.dumps({key: results[key] for key in results if key != "checkpoint"}, indent=1))
    print(f"results: {write_results(results)}")


if __name__ == "__main__":
    main()
