"""Faster ways to run the same networks: compiled blocks, CUDA graphs, another attention kernel.

Blocks of one network are alike, so one of them is compiled and serves all: seconds instead of the
minutes that a whole network takes. ``reduce-overhead`` also records CUDA graphs, which pays where a
step is short (small grids, few tokens); shapes must stay the same from step to step, as they do
within a request.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from cosmos_transfer.errors import ConfigError, explain
from cosmos_transfer.model.controlled import ControlledModel

COMPILE_MODES = ("none", "default", "reduce-overhead", "max-autotune")


def speed_up(model: ControlledModel, *, compile: str = "none", attention: str | None = None) -> int:
    """Make a loaded model run faster.

    Args:
        model: In diffusers' classes.
        compile: How its blocks are compiled; see the module.
        attention: A backend of diffusers' dispatcher, such as ``flash`` or ``_native_cudnn``. It
            holds for the whole process, which is what diffusers offers for Cosmos.

    Returns:
        How many blocks were compiled.

    Raises:
        ConfigError: An unknown mode or backend, or networks without blocks.
    """
    if compile not in COMPILE_MODES:
        raise ConfigError(
            explain(
                "model.compile",
                expected="one of " + ", ".join(COMPILE_MODES),
                got=repr(compile),
                do="default is right for large clips.",
            )
        )
    if attention is not None:
        _set_attention(model.transformer, attention)
    if compile == "none":
        return 0
    blocks = list(_blocks(model))
    if not blocks:
        raise ConfigError(
            explain(
                "model.compile",
                expected="a network of transformer blocks",
                got=type(model.transformer).__name__,
                do="Leave it out; the embedded model takes less time than compiling would.",
            )
        )
    for block in blocks:
        block.compile(mode=None if compile == "default" else compile, dynamic=False)
    return len(blocks)


def _set_attention(transformer: Any, backend: str) -> None:
    setter = getattr(transformer, "set_attention_backend", None)
    try:
        if setter is None:
            raise ValueError("its networks do not use diffusers' attention")
        setter(backend)
    except (ValueError, RuntimeError, ImportError) as error:
        raise ConfigError(
            explain(
                "model.attention",
                expected="a backend that diffusers has and this machine can run",
                got=f"{backend!r} ({' '.join(str(error).split())[:160]})",
                do="native is always there.",
            )
        ) from error


def _blocks(model: ControlledModel) -> Iterator[nn.Module]:
    yield from getattr(model.transformer, "transformer_blocks", ())
    for branch in model.branches.values():
        yield from getattr(branch, "control_blocks", ())


def compiled_graphs() -> int:
    """How many graphs compilation has made in this process so far."""
    return int(torch._dynamo.utils.counters["stats"].get("unique_graphs", 0))
