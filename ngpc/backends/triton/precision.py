"""Which precisions the kernels take."""

from __future__ import annotations

import torch
from torch import Tensor

from ngpc.errors import ConfigError, explain

PRECISIONS = (torch.float32, torch.float16, torch.bfloat16)


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
