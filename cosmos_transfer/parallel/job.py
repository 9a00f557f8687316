"""Joining the other processes of a job, and noticing when one of them is gone.

``torchrun`` (or any launcher that sets ``RANK``, ``WORLD_SIZE``, ``MASTER_ADDR`` and
``MASTER_PORT``) starts the same command on every process; :func:`join` finds the others. From then
on each process gives a sign of life every second. One that gives none for
:data:`PATIENCE_S` seconds is named, and the job ends: no process waits for ever in an exchange that
the dead one would have had to take part in.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from cosmos_transfer.errors import explain
from cosmos_transfer.parallel.mesh import MeshShape

BEAT_S = 1.0
PATIENCE_S = 20.0
_PREFIX_STORE: Any = dist.PrefixStore  # type: ignore[attr-defined]
EXCHANGE_TIMEOUT_S = 600.0
"""A process that lives may take so long over its part of a step."""
DEAD_RANK = 1
"""Exit code of a process whose job ended because another one died."""


def num_processes() -> int:
    """How many processes the launcher started; 1 without one."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def own_rank() -> int:
    """The number of this process among them."""
    return int(os.environ.get("RANK", "0"))


@dataclass(slots=True, eq=False)
class Job:
    """This process among the others.

    ``groups`` holds, per axis of the mesh, the processes that differ from this one along that axis
    alone, and ``places`` this one's place among them. ``bytes_sent`` counts what this process has
    handed to exchanges, for comparison with what the plan predicts.
    """

    shape: MeshShape
    rank: int
    mesh: Any
    watch: Watch
    bytes_sent: int = field(default=0)

    def size(self, axis: str) -> int:
        """Processes along an axis."""
        return int(getattr(self.shape, axis))

    def place(self, axis: str) -> int:
        """This process' place along an axis."""
        return int(self.mesh[axis].get_local_rank())

    def group(self, axis: str) -> Any:
        """The processes along an axis."""
        return self.mesh[axis].get_group()

    def gather(self, own: Tensor, axis: str) -> list[Tensor]:
        """Every process' tensor along an axis, in order; all of one shape."""
        own = own.contiguous()
        gathered = [torch.empty_like(own) for _ in range(self.size(axis))]
        self.count(own, copies=self.size(axis) - 1)
        dist.all_gather(gathered, own, group=self.group(axis))
        return gathered

    def spread(self, tensor: Tensor, axis: str, owner: int) -> Tensor:
        """The owner's tensor, on all processes along an axis; the others pass one of its shape."""
        if self.place(axis) == owner:
            self.count(tensor, copies=self.size(axis) - 1)
        group = self.group(axis)
        dist.broadcast(tensor, dist.get_global_rank(group, owner), group=group)
        return tensor

    def from_first(self, tensor: Tensor) -> Tensor:
        """Rank 0's tensor, on all processes; the others pass one of its shape."""
        dist.broadcast(tensor, 0)
        return tensor

    def count(self, tensor: Tensor, *, copies: int) -> None:
        """Add to the traffic."""
        self.bytes_sent += copies * tensor.numel() * tensor.element_size()


def join(shape: MeshShape, device: torch.device) -> Job:
    """Find the other processes, and watch over them.

    Args:
        shape: The mesh; checked by ``mesh.check_mesh``.
        device: What this process computes on; on CUDA, its own card is made current.
    """
    if device.type == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    if not dist.is_initialized():
        dist.init_process_group(
            "nccl" if device.type == "cuda" else "gloo",
            timeout=timedelta(seconds=EXCHANGE_TIMEOUT_S),
        )
    mesh = dist.device_mesh.init_device_mesh(
        device.type,
        (shape.guidance, shape.control, shape.ring, shape.ulysses),
        mesh_dim_names=("guidance", "control", "ring", "ulysses"),
    )
    watch = Watch(dist.get_rank(), dist.get_world_size())
    watch.start()
    return Job(shape, dist.get_rank(), mesh, watch)


@contextmanager
def joined(shape: MeshShape, device: torch.device) -> Iterator[Job]:
    """:func:`join`, and leave at the end.

    An exchange that breaks off because another process died is not reported as such: the watch
    names the process, and ends this one.
    """
    job = join(shape, device)
    try:
        yield job
        dist.barrier()  # the first may still be writing
    except RuntimeError:
        job.watch.wait_for_the_dead()
        raise
    job.watch.stop()
    dist.barrier()  # the store goes with the process that holds it
    dist.destroy_process_group()


class Watch:
    """Signs of life of all processes, and the end of this one when they stop.

    Args:
        rank: This process.
        count: How many there are.
    """

    def __init__(self, rank: int, count: int) -> None:
        self._rank = rank
        self._others = [other for other in range(count) if other != rank]
        self._store: Any = _PREFIX_STORE("watch", _store())
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin; in a thread of its own."""
        self._thread.start()

    def stop(self) -> None:
        """This process is done: the others need not hear from it again."""
        self._is_over.set()
        self._thread.join()
        self._store.add(f"done/{self._rank}", 1)

    def wait_for_the_dead(self) -> None:
        """Give the watch the time to find out which process broke an exchange off."""
        time.sleep(PATIENCE_S + 5 * BEAT_S)

    def _run(self) -> None:
        heard = {other: (0, time.monotonic()) for other in self._others}
        while not self._is_over.wait(BEAT_S):
            try:
                self._store.add(f"beat/{self._rank}", 1)
                for other in self._others:
                    beat = self._store.add(f"beat/{other}", 0)
                    if beat != heard[other][0] or self._store.add(f"done/{other}", 0):
                        heard[other] = (beat, time.monotonic())
            except RuntimeError:  # it lives in rank 0, or in its launcher
                if not self._is_over.is_set():
                    _end(0)
            for other, (_, since) in heard.items():
                if time.monotonic() - since > PATIENCE_S:
                    _end(other)


def _store() -> Any:
    """The processes' common store, over a connection of the watch's own where there can be one."""
    store = dist.distributed_c10d._get_default_store()
    while isinstance(store, _PREFIX_STORE):
        store = store.underlying_store
    return store.clone() if hasattr(store, "clone") else store


def _end(rank: int) -> None:
    message = explain(
        f"rank {rank}",
        expected="a sign of life every second",
        got=f"none for {PATIENCE_S:g} s" if rank else "none, and it holds the job's store",
        do="Look for its own last words; started again, the same command goes on behind the chunks"
        " that were finished.",
    )
    print(message, file=sys.__stderr__, flush=True)
    os._exit(DEAD_RANK)
