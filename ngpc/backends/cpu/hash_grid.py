"""Multi-resolution grid encoding by compiled kernels.

Three functions are enough for derivatives of any order. With ``E`` the encoding, ``P`` its gradient
with respect to positions and ``G`` the one with respect to the table, all for an upstream ``u``:
``G`` is linear in ``u``, and its adjoint is ``E`` itself; the derivatives of ``P`` are ``E``, ``G``
and ``P`` along a direction in space. Only third derivatives through positions go back to the
definition.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ngpc.backends import reference
from ngpc.backends.cpu.library import call
from ngpc.backends.recompute import gradients_by_definition
from ngpc.config import Interpolation
from ngpc.shapes import GridLayout

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

    Sums are made in float32, in an order that depends neither on the number of threads nor on the
    run. Half-precision tables are converted first. Double precision runs through the definition.

    Source:
        Müller et al., Instant neural graphics primitives, section 3.
    """
    if torch.float64 in (positions.dtype, table.dtype):
        return reference.encode_grid(positions, table, layout=layout, interpolation=interpolation)
    # Kernels compute in float32; autograd converts the gradients back.
    grid = _Grid(layout, interpolation)
    encoded: Tensor = _Values.apply(positions.float(), table.float(), grid)
    return encoded.to(table.dtype)


class _Grid:
    """A layout as the kernels read it."""

    def __init__(self, layout: GridLayout, interpolation: Interpolation) -> None:
        self.layout = layout
        self.interpolation = interpolation
        self.has_slopes = interpolation is not Interpolation.NEAREST
        self._scales, self._levels = _level_tables(layout)
        self._struct = _Struct(
            layout.num_levels, layout.num_dims, layout.features_per_level,
            INTERPOLATION_CODES[interpolation], self._scales.data_ptr(), self._levels.data_ptr(),
        )  # fmt: skip

    def values(self, positions: Tensor, table: Tensor, directions: Tensor | None = None) -> Tensor:
        """``E``: features, or their derivative along a direction for each point."""
        shape = (len(positions), self.layout.num_features)
        if len(positions) == 0 or (directions is not None and not self.has_slopes):
            return positions.new_zeros(shape)
        values = positions.new_empty(shape)
        call("ngpc_grid_values", self._struct, *_contiguous(positions, directions, table),
             values, num_points=len(positions))  # fmt: skip
        return values

    def position_gradient(
        self, positions: Tensor, table: Tensor, upstream: Tensor, directions: Tensor | None = None
    ) -> Tensor:
        """``P``: upstream pulled back to positions, or the derivative of that along directions."""
        gradient = torch.zeros_like(positions, memory_format=torch.contiguous_format)
        if len(positions) and self.has_slopes:
            call("ngpc_grid_position_gradient", self._struct,
                 *_contiguous(positions, directions, table, upstream), gradient,
                 num_points=len(positions))  # fmt: skip
        return gradient

    def table_gradient(
        self, positions: Tensor, upstream: Tensor, directions: Tensor | None = None
    ) -> Tensor:
        """``G``: upstream pulled back to the table, or the derivative of that along directions."""
        shape = (self.layout.num_entries, self.layout.features_per_level)
        if len(positions) == 0 or (directions is not None and not self.has_slopes):
            return positions.new_zeros(shape)
        gradient = positions.new_empty(
            shape
        )  # the kernel fills it, each level on the thread that needs it
        call("ngpc_grid_table_gradient", self._struct,
             *_contiguous(positions, directions, upstream), gradient,
             num_points=len(positions))  # fmt: skip
        return gradient

    def definition(self, positions: Tensor, table: Tensor) -> Tensor:
        """What :meth:`values` is accused of matching."""
        return reference.encode_grid(
            positions, table, layout=self.layout, interpolation=self.interpolation
        )


class _Struct(ctypes.Structure):
    """``NgpcGrid`` of ``src/grid.cpp``."""

    _fields_ = (
        ("num_levels", ctypes.c_int32),
        ("num_dims", ctypes.c_int32),
        ("num_features", ctypes.c_int32),
        ("interpolation", ctypes.c_int32),
        ("scales", ctypes.c_void_p),
        ("levels", ctypes.c_void_p),
    )


class _Values(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, positions: Tensor, table: Tensor, grid: _Grid) -> Tensor:
        ctx.save_for_backward(positions, table)
        ctx.grid = grid
        return grid.values(positions, table)

    @staticmethod
    def backward(ctx: Any, *upstreams: Tensor) -> tuple[Tensor | None, ...]:
        positions, table = ctx.saved_tensors
        needs_positions, needs_table, _ = ctx.needs_input_grad
        return (
            _PositionGradient.apply(positions, table, upstreams[0], ctx.grid)
            if needs_positions
            else None,
            _TableGradient.apply(positions, upstreams[0], ctx.grid) if needs_table else None,
            None,
        )


class _TableGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, positions: Tensor, upstream: Tensor, grid: _Grid) -> Tensor:
        ctx.save_for_backward(positions, upstream)
        ctx.grid = grid
        return grid.table_gradient(positions, upstream)

    @staticmethod
    def backward(ctx: Any, *upstreams: Tensor) -> tuple[Tensor | None, ...]:
        positions, upstream = ctx.saved_tensors
        (change,) = upstreams  # of the table
        needs_positions, needs_upstream, _ = ctx.needs_input_grad
        return (
            _PositionGradient.apply(positions, change, upstream, ctx.grid)
            if needs_positions
            else None,
            _Values.apply(positions, change, ctx.grid) if needs_upstream else None,
            None,
        )


class _PositionGradient(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, positions: Tensor, table: Tensor, upstream: Tensor, grid: _Grid
    ) -> Tensor:
        ctx.save_for_backward(positions, table, upstream)
        ctx.grid = grid
        return grid.position_gradient(positions, table, upstream)

    @staticmethod
    def backward(ctx: Any, *upstreams: Tensor) -> tuple[Tensor | None, ...]:
        positions, table, upstream = ctx.saved_tensors
        grid: _Grid = ctx.grid
        (directions,) = upstreams
        is_needed = ctx.needs_input_grad[:3]
        if torch.is_grad_enabled():
            return (
                *gradients_by_definition(
                    lambda x, t, u: _slope_by_definition(grid, x, t, u),
                    (positions, table, upstream),
                    directions,
                    is_needed,
                ),
                None,
            )
        return (
            grid.position_gradient(positions, table, upstream, directions)
            if is_needed[0]
            else None,
            grid.table_gradient(positions, upstream, directions) if is_needed[1] else None,
            grid.values(positions, table, directions) if is_needed[2] else None,
            None,
        )


def _slope_by_definition(grid: _Grid, positions: Tensor, table: Tensor, upstream: Tensor) -> Tensor:
    if not positions.requires_grad:
        positions = positions.detach().requires_grad_()
    (slope,) = torch.autograd.grad(
        grid.definition(positions, table), positions, upstream, create_graph=True
    )
    return slope


def _contiguous(*tensors: Tensor | None) -> list[Tensor | None]:
    return [None if tensor is None else tensor.contiguous() for tensor in tensors]


@lru_cache(maxsize=64)
def _level_tables(layout: GridLayout) -> tuple[Tensor, Tensor]:
    """Scales, and (resolution, offset, entries, is hashed) of each level."""
    levels = [
        [level.resolution, level.offset, level.num_entries, int(level.is_hashed)]
        for level in layout.levels
    ]
    scales = torch.tensor([level.scale for level in layout.levels], dtype=torch.float64)
    return scales, torch.tensor(levels, dtype=torch.int64)
