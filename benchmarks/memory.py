"""The memory plan against what a process really took, on a processor.

    python -m benchmarks.memory                   about three minutes

Every case runs in a process of its own, which reports its peak resident size; the plan is made in
another. Cases: the embedded model, and a random model of 400 million parameters in diffusers'
layout, plain and under every option that exists on a processor.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from benchmarks.results_file import FOLDER, hardware, write_results
from cosmos_transfer.offload.options import MemoryOptions
from cosmos_transfer.planning import memory
from cosmos_transfer.planning.networks import networks_of
from cosmos_transfer.planning.workload import workload_of

# A grid on which activations and the autoencoder weigh something beside the weights.
SIZE, FRAMES = (160, 288), 5
BIG = {
    "num_attention_heads": 16,
    "attention_head_dim": 64,
    "num_layers": 21,
    "text_embed_dim": 256,
    "adaln_lora_dim": 64,
    "crossattn_proj_in_channels": 512,
    "encoder_hidden_states_channels": 256,
    "img_context_dim_out": 1024,
    "controlnet_block_every_n": 7,
}
CASES: tuple[tuple[str, str, MemoryOptions], ...] = (
    ("embedded", "embedded", MemoryOptions()),
    ("400M", "big", MemoryOptions()),
    ("400M tile", "big", MemoryOptions(tile=True)),
    ("400M fp8", "big", MemoryOptions(fp8=True)),
    ("400M stream", "big", MemoryOptions(offload="stream")),
    ("400M tile stream", "big", MemoryOptions(tile=True, offload="stream")),
)
RUN = """
import json, sys
import numpy as np, torch
from pathlib import Path
torch.set_num_threads(1)
from cosmos_transfer.model.checkpoint import load_checkpoint
from cosmos_transfer.model.prompt_cache import CachedTextEncoder
from cosmos_transfer.offload.options import MemoryOptions
from cosmos_transfer.pipeline import TransferPipeline
from dataclasses import replace
case = json.loads(sys.argv[1])
checkpoint = load_checkpoint(
    case["checkpoint"], with_text_encoder=case["checkpoint"] == "embedded",
    memory=MemoryOptions(**case["options"]), controls=("edge",), local_files_only=True,
)
class Encoder:
    def encode(self, prompts): return torch.zeros(len(prompts), 512, case["text_width"])
    def unknown_words(self, prompt): return ()
if checkpoint.text_encoder is None:
    checkpoint = replace(checkpoint, text_encoder=Encoder())
pipeline = TransferPipeline(checkpoint, device=torch.device("cpu"), show_progress=False)
video = np.random.default_rng(0).integers(0, 255, (case["frames"], *case["size"], 3), np.uint8)
pipeline(prompt="snow", video=video, controls={"edge": 1.0}, num_inference_steps=1,
         guidance_scale=2.0, resolution="input")
from cosmos_transfer.planning.memory import peak_resident_bytes
print(json.dumps(peak_resident_bytes()))
"""


def write_big(folder: Path) -> int:
    """A random checkpoint of 400 M parameters, its autoencoder as published; returns the count."""
    from cosmos_transfer.model.architectures import TRANSFER2_5_2B, build_base, build_branch
    from cosmos_transfer.model.diffusers_compat import AutoencoderKLWan

    base = build_base(TRANSFER2_5_2B, **BIG)
    shared = {k: v for k, v in BIG.items() if k not in ("num_layers", "controlnet_block_every_n")}
    branch = build_branch(TRANSFER2_5_2B, **shared, model_channels=1024, n_controlnet_blocks=3)
    for network, part in ((base, "transformer"), (branch, "controlnet_edge")):
        network.save_pretrained(folder / part)  # type: ignore[operator]
    AutoencoderKLWan().save_pretrained(folder / "vae")
    return sum(p.numel() for each in (base, branch) for p in each.parameters())


def measure(checkpoint: str, options: MemoryOptions, work: memory.Workload, width: int) -> int:
    """Peak resident bytes of a process that generates."""
    case = {
        "checkpoint": checkpoint,
        "options": {"tile": options.tile, "fp8": options.fp8, "offload": options.offload},
        "frames": work.num_frames,
        "size": [work.size.height, work.size.width],
        "text_width": width,
    }
    done = subprocess.run(
        [sys.executable, "-c", RUN, json.dumps(case)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return int(json.loads(done.stdout.splitlines()[-1]))


def run() -> dict[str, Any]:
    """Plan and measure every case."""
    processes = {family: memory.process_bytes(family) for family in ("embedded", "2.5")}
    rows: dict[str, Any] = {}
    with TemporaryDirectory() as temporary:
        num_parameters = write_big(Path(temporary))
        for name, which, options in CASES:
            checkpoint = "embedded" if which == "embedded" else temporary
            size = None if which == "embedded" else SIZE
            frames = None if which == "embedded" else FRAMES
            work = workload_of(checkpoint, size=size, num_frames=frames, num_controls=1)
            networks = networks_of(checkpoint, ("edge",), torch.float32)
            found = memory.count(networks, work, dtype=torch.float32)
            planned = memory.plan(
                found,
                options,
                on_gpu=False,
                with_text_encoder=which == "embedded",
                process_bytes=processes[networks.family],
            )
            width = 512 if which != "embedded" else networks.text_width
            measured = measure(checkpoint, options, work, width)
            rows[name] = {
                "planned_mb": planned.peak / 1e6,
                "measured_mb": measured / 1e6,
                "error": planned.peak / measured - 1,
                "worst_stage": max(planned.stages, key=lambda stage: stage.total).name,
            }
            print(name, rows[name], flush=True)
    return {
        "benchmark": "memory",
        "hardware": hardware(),
        "process_mb": {family: each / 1e6 for family, each in processes.items()},
        "num_parameters": num_parameters,
        "cases": rows,
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Run, write the results, print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory")
    parser.add_argument("--results", type=Path, default=FOLDER)
    arguments = parser.parse_args(argv)
    results = run()
    path = write_results(results, arguments.results)
    print(f"the process alone, MB: {results['process_mb']}; planned and measured peaks in MB")
    for name, row in results["cases"].items():
        print(
            f"{name:<18} {row['planned_mb']:8.0f} {row['measured_mb']:8.0f} {row['error']:+7.1%}  "
            f"worst: {row['worst_stage']}"
        )
    print(f"\nresults: {path}")


if __name__ == "__main__":
    main()
