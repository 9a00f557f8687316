"""What the tasks share: random numbers, Adam, and runs that go on where they stopped."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save
from torch import nn

from ngpc.config import AdamConfig
from ngpc.data.images import replace_file
from ngpc.data.tensor_files import read_tensors
from ngpc.errors import CheckpointError, ConfigError, explain

CHECKPOINT_FORMAT = "ngpc training 1"


def derived_seed(seed: int, *stream: int) -> int:
    """A seed that depends on another and on its use, and on nothing before it."""
    derived = np.random.SeedSequence([seed, *stream]).generate_state(1, np.uint64)[0]
    return int(derived) & (2**63 - 1)


def derived_generator(seed: int, *stream: int) -> torch.Generator:
    """A generator on the CPU from :func:`derived_seed`."""
    return torch.Generator().manual_seed(derived_seed(seed, *stream))


def make_adam(module: nn.Module, config: AdamConfig) -> torch.optim.Adam:
    """Adam, with L2 regularisation of matrices alone; tables of grids have names with ``table``."""
    tables: list[nn.Parameter] = []
    matrices: list[nn.Parameter] = []
    for name, parameter in module.named_parameters():
        (tables if name.endswith("table") else matrices).append(parameter)
    groups = [
        {"params": matrices, "weight_decay": config.l2_reg},
        {"params": tables, "weight_decay": 0.0},
    ]
    return torch.optim.Adam(
        [group for group in groups if group["params"]],
        lr=config.learning_rate,
        betas=(config.beta1, config.beta2),
        eps=config.epsilon,
        fused=True,
    )


def decayed(learning_rate: float, step_index: int, num_steps: int) -> float:
    """The rate of a step: constant for the first half, then falling to a thirtieth."""
    progress = step_index / max(1, num_steps)
    return learning_rate * 30.0 ** -max(0.0, 2.0 * progress - 1.0)


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Give all parameters one rate."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def refuse_unless_finite(loss: float, *, where: str) -> None:
    """Stop a run that left the finite numbers.

    Raises:
        ConfigError: it did.
    """
    if not math.isfinite(loss):
        raise ConfigError(
            explain(
                where,
                expected="a finite error",
                got=f"{loss}",
                do="Lower optimizer.learning_rate.",
            )
        )


def run_steps(
    module: nn.Module,
    step_loss: Callable[[int], tuple[torch.Tensor, float]],
    *,
    where: str,
    adam: AdamConfig,
    num_steps: int,
    settings: dict[str, Any],
    after_step: Callable[[int], None] | None = None,
    extra: Mapping[str, torch.Tensor] | None = None,
    on_step: Callable[[int, float], None] | None = None,
    checkpoint: Path | None = None,
    checkpoint_every: int = 200,
) -> tuple[float, ...]:
    """Train a module with Adam, from where the checkpoint left it; the error of every step run.

    Args:
        module: What is trained.
        step_loss: From a step's index the loss and the error to report. Where nothing can be
            learned from a step the loss asks for no gradient, and no update is made.
        where: What messages call this.
        adam: Rates and moments.
        num_steps: Of the whole run.
        settings: As JSON takes them; a checkpoint of a run with others is refused.
        after_step: Called with the index behind each update.
        extra: Tensors that the steps change in place; kept in the checkpoint and put back.
        on_step: Called after each step with its index and its error.
        checkpoint: Where the run is kept; a file that is there is gone on with.
        checkpoint_every: Steps between two writings of it; it is written after the last, too.

    Raises:
        ConfigError: training left the finite numbers.
        CheckpointError: the checkpoint is of a run with other settings.
    """
    optimizer = make_adam(module, adam)
    extra = extra or {}
    first = 0
    if checkpoint is not None and checkpoint.exists():
        first, kept = load_training(checkpoint, module, optimizer, settings=settings)
        for name, value in extra.items():
            value.copy_(kept[name])
    errors = []
    for step_index in range(first, num_steps):
        set_learning_rate(optimizer, decayed(adam.learning_rate, step_index, num_steps))
        loss, error = step_loss(step_index)
        optimizer.zero_grad(set_to_none=True)
        if loss.requires_grad:
            loss.backward()
            optimizer.step()
        errors.append(error)
        refuse_unless_finite(error, where=f"{where} step {step_index}")
        if after_step is not None:
            after_step(step_index)
        if on_step is not None:
            on_step(step_index, error)
        is_last = step_index + 1 == num_steps
        if checkpoint is not None and ((step_index + 1) % checkpoint_every == 0 or is_last):
            save_training(
                checkpoint,
                module,
                optimizer,
                step_index=step_index + 1,
                settings=settings,
                extra=extra,
            )
    return tuple(errors)


def save_training(
    path: Path,
    module: nn.Module,
    optimizer: torch.optim.Adam,
    *,
    step_index: int,
    settings: dict[str, Any],
    extra: Mapping[str, torch.Tensor],
) -> None:
    """Write parameters, Adam's moments and the next step. The file appears complete or not."""
    tensors = {f"module.{name}": value for name, value in module.state_dict().items()}
    tensors |= {f"extra.{name}": value for name, value in extra.items()}
    for index, state in optimizer.state_dict()["state"].items():
        tensors |= {f"adam.{index}.{name}": value for name, value in state.items()}
    header = {
        "format": CHECKPOINT_FORMAT,
        "step": str(step_index),
        "settings": json.dumps(settings, sort_keys=True),
    }
    contiguous = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    replace_file(path, save(contiguous, header))


def load_training(
    path: Path,
    module: nn.Module,
    optimizer: torch.optim.Adam,
    *,
    settings: dict[str, Any],
) -> tuple[int, dict[str, torch.Tensor]]:
    """Put a run back where :func:`save_training` left it; the next step, and the extra tensors.

    Raises:
        MediaError: there is no such file.
        CheckpointError: it is of a run with other settings.
    """
    metadata, tensors = read_tensors(
        path, CHECKPOINT_FORMAT, what="a stopped run", writer="`ngpc fit`"
    )
    if metadata["settings"] != json.dumps(settings, sort_keys=True):
        raise CheckpointError(
            explain(
                str(path),
                expected="a run with the settings of this one",
                got="other settings",
                do="Give the settings it was started with, or start in another folder.",
            )
        )
    state = optimizer.state_dict()
    state["state"] = {}
    for name, value in tensors.items():
        if name.startswith("adam."):
            _, index, key = name.split(".")
            state["state"].setdefault(int(index), {})[key] = value
    module.load_state_dict(_part(tensors.items(), "module."))
    optimizer.load_state_dict(state)
    return int(metadata["step"]), _part(tensors.items(), "extra.")


def _part(tensors: Iterable[tuple[str, torch.Tensor]], prefix: str) -> dict[str, torch.Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors if name.startswith(prefix)}
