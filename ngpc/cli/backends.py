"""``ngpc backends``."""

from __future__ import annotations

import argparse

from ngpc.backends.registry import BACKENDS, Backend

DEVICE_TYPES = ("cpu", "cuda")


def backends_command(arguments: argparse.Namespace) -> int:
    """List the backends that exist, and for each device whether they can run here or why not."""
    del arguments
    for backend in BACKENDS:
        print(f"{backend.name}: {backend.summary}")
        for device_type in DEVICE_TYPES:
            reason = why_not(backend, device_type)
            print(f"  {device_type:<5} {'yes' if reason is None else f'no, {reason}'}")
    return 0


def why_not(backend: Backend, device_type: str) -> str | None:
    """Why a backend cannot run on such a device here: its own reasons, then the machine's."""
    reason = backend.why_unavailable(device_type)
    if reason is None and device_type == "cuda":
        import torch

        if not torch.cuda.is_available():
            return "torch finds no CUDA device on this machine"
    return reason
