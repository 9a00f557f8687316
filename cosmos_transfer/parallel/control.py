"""Control parallelism: each process runs some of the branches, and all receive every result.

Results are summed on every process in the order of the controls, as one process would, so that the
sum is the same to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor

from cosmos_transfer.parallel.job import Job


def run_branches(
    job: Job, branches: Mapping[str, Callable[[], list[Tensor]]], device: torch.device
) -> Iterator[list[Tensor]]:
    """Weighted residuals of every control, in order; see ``ControlledModel.run_branches``.

    Args:
        job: Its ``control`` axis divides the branches.
        branches: By control, what runs its branch.
        device: Where results are received.
    """
    count, place = job.size("control"), job.place("control")
    own = {
        index: torch.stack(run())
        for index, run in enumerate(branches.values())
        if index % count == place
    }
    for index in range(len(branches)):
        owner = index % count
        stacked = own.get(index)
        # Shape and dtype first: a process without a branch of its own knows neither.
        header = torch.zeros(5, dtype=torch.int64, device=device)
        if stacked is not None:
            header = torch.tensor([*stacked.shape, _DTYPES.index(stacked.dtype)], device=device)
        job.spread(header, "control", owner)
        if stacked is None:
            *shape, dtype = header.tolist()
            stacked = torch.empty(shape, dtype=_DTYPES[dtype], device=device)
        yield list(job.spread(stacked, "control", owner).unbind(0))


_DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
