"""Dividing a loaded model over a job, and what a job needs to know of it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from cosmos_transfer.model.controlled import ControlledModel
from cosmos_transfer.parallel.control import run_branches
from cosmos_transfer.parallel.job import Job
from cosmos_transfer.parallel.mesh import ModelFacts


def divide(model: ControlledModel, job: Job, device: torch.device) -> None:
    """Let a model do this process' part; once, after loading."""
    if job.size("control") > 1:
        model.run_branches = partial(run_branches, job, device=device)
    if job.shape.context > 1:
        from cosmos_transfer.parallel.context import divide_tokens

        divide_tokens(model, job)


def parallel_facts(model: ControlledModel, num_controls: int, *, is_guided: bool) -> ModelFacts:
    """What choosing a mesh needs to know."""
    config: Any = model.transformer.config
    heads = None
    if hasattr(model.transformer, "transformer_blocks"):
        heads = int(config.num_attention_heads)
    return ModelFacts(num_heads=heads, num_controls=num_controls, is_guided=is_guided)


def share_arrays(job: Job, arrays: Sequence[np.ndarray] | None) -> tuple[np.ndarray, ...] | None:
    """The first process' arrays (uint8, then float64), on all; None where it has none.

    Args:
        job: The processes.
        arrays: Two arrays on the first process, or None; not read on the others.
    """
    device = torch.device(job.mesh.device_type)
    header = torch.zeros(7, dtype=torch.int64, device=device)
    if job.rank == 0 and arrays is not None:
        shapes = [*arrays[0].shape, *arrays[1].shape]
        header = torch.tensor([1, *shapes], dtype=torch.int64, device=device)
    is_there, *shapes = job.from_first(header).tolist()
    if not is_there:
        return None
    shared = []
    for index, (shape, dtype) in enumerate(
        ((shapes[:4], torch.uint8), (shapes[4:], torch.float64))
    ):
        tensor = torch.empty(shape, dtype=dtype, device=device)
        if job.rank == 0 and arrays is not None:
            tensor = torch.from_numpy(np.ascontiguousarray(arrays[index])).to(device)
        shared.append(job.from_first(tensor).cpu().numpy())
    return tuple(shared)
