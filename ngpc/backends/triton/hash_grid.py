"""Multi-resolution grid encoding by fused kernels."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
import triton
from jaxtyping import Float
from torch import Tensor

from ngpc.backends import reference
from ngpc.backends.recompute import gradients_by_definition
from ngpc.backends.triton import grid_kernels as kernels
from ngpc.backends.triton.precision import LAUNCH_OPTIONS, check_precision
from ngpc.config import Interpolation
from ngpc.shapes import GridLayout

BLOCK = 256
POSITION_BLOCK = 128  # all levels' corners at once: fewer points, so that registers suffice
INTERPOLATION_CODES = {
    Interpolation.NEAREST: 0,
    Interpolation.LINEAR: 1,
    Interpolation.SMOOTHSTEP: 2,
}


def encode_grid(
    positions: Float[Tensor, "p x"],
    table: Float[Tensor, "e v"],
    *,
    layout: GridLayout,
    interpolation: Interpolation,
) -> Float[Tensor, "p d"]:
    """Look up the features of each position on every level, mixed between the cell's vertices.

    First derivatives come from kernels and are summed in float32 in no fixed order; second ones go
    through the definition.

    Raises:
        ConfigError: positions or table in double precision.

    Source:
        Müller et al., Instant neural graphics primitives, section 3.
    """
    check_precision("encode_grid", positions, table)
    encoded: Tensor = _EncodeGrid.apply(positions, table, layout, interpolation)
    return encoded


class _EncodeGrid(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        positions: Tensor,
        table: Tensor,
        layout: GridLayout,
        interpolation: Interpolation,
    ) -> Tensor:
        ctx.save_for_backward(positions, table)
        ctx.layout, ctx.interpolation = layout, interpolation
        positions, table = positions.contiguous(), table.contiguous()
        outputs = positions.new_empty((len(positions), layout.num_features), dtype=table.dtype)
        if len(positions):
            grid = (triton.cdiv(len(positions), BLOCK), layout.num_levels)
            with torch.cuda.device_of(positions):
                kernels.encode_kernel[grid](
                    positions, table, outputs, *_on_device(layout, positions.device),
                    len(positions), **_constants(layout, interpolation),
                    block=BLOCK, **LAUNCH_OPTIONS,
                )  # fmt: skip
        return outputs

    @staticmethod
    def backward(ctx: Any, *upstreams: Tensor) -> tuple[Tensor | None, ...]:
        positions, table = ctx.saved_tensors
        layout, interpolation = ctx.layout, ctx.interpolation
        needs_positions, needs_table = ctx.needs_input_grad[:2]
        if torch.is_grad_enabled():
            return (
                *gradients_by_definition(
                    lambda x, t: reference.encode_grid(
                        x, t, layout=layout, interpolation=interpolation
                    ),
                    (positions, table),
                    upstreams[0],
                    (needs_positions, needs_table),
                ),
                None,
                None,
            )
        position_gradient = table_gradient = None
        arguments = (positions.contiguous(), table.contiguous(), upstreams[0].contiguous())
        if needs_positions:
            position_gradient = _position_gradient(*arguments, layout, interpolation)
        if needs_table:
            table_gradient = _table_gradient(*arguments, layout, interpolation)
        return position_gradient, table_gradient, None, None


def _position_gradient(
    positions: Tensor,
    table: Tensor,
    upstream: Tensor,
    layout: GridLayout,
    interpolation: Interpolation,
) -> Tensor:
    gradient = torch.zeros(positions.shape, dtype=torch.float32, device=positions.device)
    if len(positions) and interpolation is not Interpolation.NEAREST:
        with torch.cuda.device_of(positions):
            kernels.position_gradient_kernel[(triton.cdiv(len(positions), POSITION_BLOCK),)](
                positions, table, upstream, gradient, *_on_device(layout, positions.device),
                len(positions), **_constants(layout, interpolation),
                block=POSITION_BLOCK, **LAUNCH_OPTIONS,
            )  # fmt: skip
    return gradient.to(positions.dtype)


def _table_gradient(
    positions: Tensor,
    table: Tensor,
    upstream: Tensor,
    layout: GridLayout,
    interpolation: Interpolation,
) -> Tensor:
    gradient = torch.zeros(table.shape, dtype=torch.float32, device=table.device)
    if len(positions):
        grid = (triton.cdiv(len(positions), BLOCK), layout.num_levels)
        with torch.cuda.device_of(positions):
            kernels.table_gradient_kernel[grid](
                positions, upstream, gradient, *_on_device(layout, positions.device),
                len(positions), **_constants(layout, interpolation),
                    block=BLOCK, **LAUNCH_OPTIONS,
            )  # fmt: skip
    return gradient.to(table.dtype)


def _constants(layout: GridLayout, interpolation: Interpolation) -> dict[str, int]:
    return {
        "num_levels": layout.num_levels,
        "num_dims": layout.num_dims,
        "num_features": layout.features_per_level,
        "interpolation": INTERPOLATION_CODES[interpolation],
    }


@lru_cache(maxsize=64)
def _on_device(layout: GridLayout, device: torch.device) -> tuple[Tensor, Tensor]:
    """Scales, and (resolution, offset, entries, is hashed) of each level."""
    levels = [
        [level.resolution, level.offset, level.num_entries, int(level.is_hashed)]
        for level in layout.levels
    ]
    scales = torch.tensor([level.scale for level in layout.levels], dtype=torch.float32)
    return scales.to(device), torch.tensor(levels, dtype=torch.int64).to(device)
