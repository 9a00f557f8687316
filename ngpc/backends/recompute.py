"""Gradients by running a definition again: how hand-written kernels get second derivatives.

A kernel's own backward returns numbers, not a graph. Where the caller asks for a graph
(``create_graph=True``), the gradient is taken through the definition instead, which autograd can
differentiate again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def gradients_by_definition(
    definition: Callable[..., Tensor],
    inputs: Sequence[Tensor],
    upstream: Tensor,
    is_wanted: Sequence[bool],
) -> tuple[Tensor | None, ...]:
    """Run ``definition`` on ``inputs`` and pull ``upstream`` back to those that are wanted.

    For the backward of an autograd function. The result carries a graph exactly where autograd is
    recording, that is where the caller asked for second derivatives.
    """
    is_recording = torch.is_grad_enabled()
    with torch.enable_grad():
        # Views, so that a path from one input to another outside this function does not count.
        leaves = [
            tensor.view_as(tensor)
            if is_recording
            else tensor.detach().requires_grad_(wanted and tensor.is_floating_point())
            for tensor, wanted in zip(inputs, is_wanted, strict=True)
        ]
        outputs = definition(*leaves)
        wanted_leaves = [leaf for leaf, wanted in zip(leaves, is_wanted, strict=True) if wanted]
        found = iter(
            torch.autograd.grad(
                outputs, wanted_leaves, upstream, create_graph=is_recording, allow_unused=True
            )
        )
    return tuple(next(found) if wanted else None for wanted in is_wanted)
