"""What training the embedded checkpoint has cost: hours and floating-point operations.

Usage:
    python -m benchmarks.training_cost [--plot docs/images/training_curve.png]

Reads ``benchmarks/results/training_embedded.jsonl``, a line every fifty steps: the phase, the size
of its clips, steps, latent frames (at most) and seconds since the start of the first, loss.
Operations are torch's count for a forward pass at one latent frame, all four controls, times three
for a step, times the latent frames seen; the encoder of prompts, drawing and encoding clips are not
in it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from cosmos_transfer.shapes import Size
from cosmos_transfer.training.networks import new_networks

CURVE = Path(__file__).parent / "results" / "training_embedded.jsonl"
SMOOTHING = 7
"""Lines of the curve in a running mean."""


def main() -> None:
    """Print the cost of every phase, and plot the losses if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plot", type=Path)
    arguments = parser.parse_args()
    phases = read_phases(CURVE)
    before = {"step": 0, "latent_frames": 0, "elapsed_s": 0.0}
    total_flops = 0.0
    for number, lines in phases.items():
        last = lines[-1]
        size = Size(*last["size"])
        steps, frames, seconds = (last[name] - before[name] for name in before)
        flops = 3.0 * forward_flops(size) * frames
        total_flops += flops
        print(
            f"phase {number}: {steps} steps at {size.height}x{size.width}, {frames} latent frames, "
            f"{seconds / 3600.0:.2f} h, {flops:.2e} FLOP, "
            f"loss {np.mean([line['loss'] for line in lines[-SMOOTHING:]]):.3f}"
        )
        before = {name: last[name] for name in before}
    print(f"total: {before['elapsed_s'] / 3600.0:.1f} h, {total_flops:.2e} FLOP")
    if arguments.plot is not None:
        plot(phases, arguments.plot)


def read_phases(path: Path) -> dict[int, list[dict[str, Any]]]:
    """Phase -> its lines in order."""
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return {number: list(group) for number, group in groupby(lines, lambda line: line["phase"])}


def forward_flops(size: Size) -> float:
    """Of the denoiser for one latent frame with all branches, as torch counts."""
    networks = new_networks().eval()
    strides = networks.autoencoder.strides
    rows, columns = size.height // strides.space, size.width // strides.space
    latents = torch.zeros(1, networks.autoencoder.latent_channels, 1, rows, columns)
    controls = {
        name: torch.zeros(1, networks.autoencoder.control_channels, 1, rows, columns)
        for name in networks.model.branches
    }
    tokens = rows * columns // int(np.prod(networks.model.patch[1:]))
    weights = {name: torch.full((1, tokens), 0.25) for name in controls}
    text = torch.zeros(1, 16, networks.text_encoder.settings.width)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        networks.model(latents, torch.ones(1), text, controls, weights, 0)
    return float(counter.get_total_flops())


def plot(phases: dict[int, list[dict[str, Any]]], path: Path) -> None:
    """Loss by hours, a colour a phase."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 3.6), dpi=120, layout="constrained")
    for number, lines in phases.items():
        hours = [line["elapsed_s"] / 3600.0 for line in lines]
        losses = [line["loss"] for line in lines]
        (drawn,) = axes.plot(hours, losses, linewidth=0.7, alpha=0.35)
        axes.plot(hours, running_mean(losses), color=drawn.get_color(), label=f"phase {number}")
    axes.set(xlabel="hours on two cores", ylabel="training loss", ylim=(0.3, 1.0))
    axes.legend(ncols=3, frameon=False, loc="upper right")
    axes.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def running_mean(values: Sequence[float]) -> list[float]:
    """Mean of each value and its neighbours on both sides, as many as there are."""
    reach = SMOOTHING // 2
    return [
        float(np.mean(values[max(0, index - reach) : index + reach + 1]))
        for index in range(len(values))
    ]


if __name__ == "__main__":
    main()
