"""What one rank runs: cases by name, their latents saved for the test to compare.

    python -m tests.support.rank_cases FOLDER CASE ...

A case is ``model:mesh``; with ``WORLD_SIZE=1`` and the mesh ``one`` it is what a single process
makes. ``odd`` has 27 tokens, ``three_heads`` three heads.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
from torch import Tensor

from cosmos_transfer.diffusion.guidance import Guided
from cosmos_transfer.diffusion.noise_schedule import flow_sigmas
from cosmos_transfer.diffusion.samplers import get_sampler
from cosmos_transfer.model.controlled import ControlledModel
from cosmos_transfer.parallel.apply import divide
from cosmos_transfer.parallel.guidance import OwnPass
from cosmos_transfer.parallel.job import Job, joined
from cosmos_transfer.parallel.mesh import MeshShape
from tests.support import tiny
from tests.support.tiny import randn

MESHES = {
    "guidance": MeshShape(guidance=2),
    "control": MeshShape(control=2),
    "ulysses": MeshShape(ulysses=2),
    "ring": MeshShape(ring=2),
    "guidance_ulysses": MeshShape(guidance=2, ulysses=2),
    "ring_ulysses": MeshShape(ring=2, ulysses=2),
    "guidance_control": MeshShape(guidance=2, control=2),
}
GRIDS = {"odd": (3, 6, 6)}  # 3 x 3 x 3 tokens; otherwise
GRID = (3, 8, 8)  # 3 x 4 x 4
CONTROLS = ("edge", "depth")
NUM_CHUNKS = 3


def build(name: str) -> ControlledModel:
    if name == "three_heads":
        tiny.HEADS = 3
    model = tiny.transfer2_5_model(CONTROLS)
    tiny.HEADS = 4
    if name == "per_frame":  # frames that are given are told to be clean: time differs by token
        model.clean_sigma = 0.01
    return model


@torch.no_grad()
def sample_chunks(model: ControlledModel, grid: tuple[int, int, int], job: Job | None) -> Tensor:
    """Three chunks with guidance, two branches and soft maps; each inherits a latent frame."""
    frames, rows, columns = grid
    num_tokens = frames * (rows // 2) * (columns // 2)
    prompts = [randn(1, tiny.TEXT_TOKENS, tiny.TEXT_CHANNELS_2_5, seed=seed) for seed in (1, 2)]
    made, before = [], None
    for chunk in range(NUM_CHUNKS):
        controls = {
            name: randn(1, 16, frames, rows, columns, seed=10 * chunk + index)
            for index, name in enumerate(CONTROLS)
        }
        generator = torch.Generator().manual_seed(chunk)
        weights = torch.rand(len(CONTROLS), 1, num_tokens, generator=generator)
        given = None if before is None else (before, 1)
        passes = [
            model.conditioned_on(tokens, controls, weights, given)
            for index, tokens in enumerate(prompts)
            if job is None or job.size("guidance") == 1 or job.place("guidance") == index
        ]
        if len(passes) == 1:
            assert job is not None
            denoiser = OwnPass(job, passes[0], 1.5)
        else:
            denoiser = Guided(passes[0], passes[1], 1.5)
        noise = randn(1, 16, frames, rows, columns, seed=100 + chunk)
        latents = get_sampler("euler")(denoiser, noise, flow_sigmas(2))
        made.append(latents)
        before = latents[:, :, -1:]
    return torch.cat(made, dim=2)


def main() -> None:
    folder, *cases = sys.argv[1:]
    rank = int(os.environ["RANK"])
    results: dict[str, Tensor] = {}
    for number, case in enumerate(cases):
        name, mesh = case.split(":")
        grid = GRIDS.get(name, GRID)
        if mesh == "one":
            results[case] = sample_chunks(build(name), grid, None)
            continue
        # One job after another in the same processes: ports are taken in turn.
        os.environ["MASTER_PORT"] = str(int(os.environ["MASTER_PORT"]) + (number > 0))
        with joined(MESHES[mesh], torch.device("cpu")) as job:
            model = build(name)
            divide(model, job, torch.device("cpu"))
            results[case] = sample_chunks(model, grid, job)
            results[f"{case} bytes"] = torch.tensor(job.bytes_sent)
    torch.save(results, Path(folder, f"{rank}.pt"))


if __name__ == "__main__":
    main()
