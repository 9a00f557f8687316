"""Several processes of one job on this machine, over gloo; what each of them returned."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def start_ranks(
    module: str, count: int, folder: Path, *arguments: str, hosts: tuple[str, ...] = ()
) -> list[subprocess.Popen[bytes]]:
    """Start ``python -m module folder arguments`` on every rank; stderr goes to ``<rank>.err``."""
    port, processes = free_port(), []
    for rank in range(count):
        environment = os.environ | {
            "RANK": str(rank),
            "WORLD_SIZE": str(count),
            "LOCAL_RANK": str(rank),
            "MASTER_ADDR": hosts[0] if hosts else "127.0.0.1",
            "MASTER_PORT": str(port),
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(ROOT),
        }
        processes.append(
            subprocess.Popen(
                [sys.executable, "-m", module, str(folder), *arguments],
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=(folder / f"{rank}.err").open("wb"),
            )
        )
    return processes


def run_ranks(module: str, count: int, folder: Path, *arguments: str) -> list[dict[str, object]]:
    """Run to the end, and load what each rank saved as ``<rank>.pt``."""
    processes = start_ranks(module, count, folder, *arguments)
    codes = [process.wait() for process in processes]
    told = "\n".join((folder / f"{rank}.err").read_text()[-3000:] for rank in range(count))
    assert codes == [0] * count, told
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(count)]
