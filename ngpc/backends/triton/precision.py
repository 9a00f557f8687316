"""Which precisions the kernels take, and how each is launched."""

from __future__ import annotations

import torch
from torch import Tensor

from ngpc.errors import ConfigError, explain

PRECISIONS = (torch.float32, torch.float16, torch.bfloat16)

LAUNCH_OPTIONS: dict[str, int] = {
    "enable_fp_fusion": True,  # said, because Triton's default changes in 3.10
}


def points_per_program(bits: int) -> int:
    """Points that go through a perceptron together: as many as fit without spilling registers."""
    return 16 if bits == 32 else 64


def num_warps(bits: int) -> int:
    """Warps that share a perceptron's block; single precision multiplies in registers."""
    return 8 if bits == 32 else 4


def check_precision(where: str, *tensors: Tensor) -> None:
    """Refuse what the kernels would round in silence.

    Raises:
        ConfigError: a tensor in another precision, double above all.
    """
    for tensor in tensors:
        if tensor.dtype not in PRECISIONS:
            raise ConfigError(
                explain(
                    f"backend 'triton', {where}",
                    expected="float32, float16 or bfloat16",
                    got=str(tensor.dtype).removeprefix("torch."),
                    do="Use backend='reference' for double precision.",
                )
            )
