"""How the time of a frame splits into encoding, perceptrons and the rest, on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ngpc.encodings.padding import PaddedEncoding
from ngpc.errors import ShapeError, explain
from ngpc.hardware.model import Breakdown
from ngpc.networks.fused_mlp import FusedMLP


@dataclass(slots=True)
class _Stopwatch:
    """Seconds spent in the outermost of a group of modules."""

    device: torch.device
    seconds: float = 0.0
    depth: int = 0
    started: float = 0.0

    def now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def before(self, *_call: Any) -> None:
        if self.depth == 0:
            self.started = self.now()
        self.depth += 1

    def after(self, *_call: Any) -> None:
        self.depth -= 1
        if self.depth == 0:
            self.seconds += self.now() - self.started


def measure_frame(
    field: nn.Module, render: Callable[[], object], *, num_frames: int = 3
) -> Breakdown:
    """Render frames and say what one takes, part by part.

    The first frame warms up and does not count; of the others the one with the smallest total is
    returned, the one that the machine disturbed least.

    Args:
        field: What is rendered; its encodings and perceptrons are timed where they are called.
        render: Renders one frame.
        num_frames: Frames that count.

    Raises:
        ShapeError: the field has no encoding or no perceptron.
    """
    device = next(field.parameters()).device
    encodings = [each for each in field.modules() if isinstance(each, PaddedEncoding)]
    networks = [each for each in field.modules() if isinstance(each, FusedMLP)]
    if not encodings or not networks:
        raise ShapeError(
            explain(
                "measure_frame",
                expected="a field with an encoding and a perceptron",
                got=type(field).__name__,
                do="Give a field of ngpc.",
            )
        )
    render()
    found: list[Breakdown] = []
    for _ in range(num_frames):
        encoding, mlp = _Stopwatch(device), _Stopwatch(device)
        with ExitStack() as hooks:
            for watch, modules in ((encoding, encodings), (mlp, networks)):
                for module in modules:
                    hooks.enter_context(_removed(module.register_forward_pre_hook(watch.before)))
                    hooks.enter_context(_removed(module.register_forward_hook(watch.after)))
            started = encoding.now()
            render()
            total = encoding.now() - started
        found.append(
            Breakdown(
                encoding_s=encoding.seconds,
                mlp_s=mlp.seconds,
                rest_s=max(0.0, total - encoding.seconds - mlp.seconds),
            )
        )
    return min(found, key=lambda each: each.total_s)


def _removed(handle: Any) -> AbstractContextManager[Any]:
    """A hook's handle, which is a context manager that removes the hook at its end."""
    context: AbstractContextManager[Any] = handle
    return context
