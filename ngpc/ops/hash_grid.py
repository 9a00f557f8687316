"""Multi-resolution grid encoding, on whichever backend is asked for."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ngpc.backends import reference
from ngpc.backends.recompute import gradients_by_definition
from ngpc.backends.registry import AUTO, load_backend
from ngpc.config import Interpolation
from ngpc.errors import ShapeError, explain
from ngpc.shapes import GridLayout


def encode_grid(
    positions: Float[Tensor, "*_shape"],
    table: Float[Tensor, "*_shape"],
    *,
    layout: GridLayout,
    interpolation: Interpolation = Interpolation.LINEAR,
    backend: str = AUTO,
) -> Float[Tensor, "p d"]:
    """Encode positions with a multi-resolution grid. Any number of points, none included.

    Args:
        positions: ``p x``, in the unit cube; outside it the grid repeats in disorder.
        table: ``e v``, the levels' entries one after the other.
        layout: Where each level lies in the table.
        interpolation: Between the vertices of a cell.
        backend: A name out of ``ngpc backends``, or ``auto``.

    Returns:
        The levels' features side by side, coarse to fine, in the precision of the table.

    Raises:
        ShapeError: positions or table do not fit the layout.
    """
    if positions.ndim != 2 or positions.shape[1] != layout.num_dims:
        raise ShapeError(
            explain(
                "encode_grid positions",
                expected=f"shape (points, {layout.num_dims})",
                got=f"{tuple(positions.shape)}",
                do="Flatten leading axes and give one column per dimension of the grid.",
            )
        )
    if tuple(table.shape) != (layout.num_entries, layout.features_per_level):
        raise ShapeError(
            explain(
                "encode_grid table",
                expected=f"shape ({layout.num_entries}, {layout.features_per_level})",
                got=f"{tuple(table.shape)}",
                do="Build the table from the same layout.",
            )
        )
    implementation = load_backend(backend, positions.device.type)
    return implementation.encode_grid(positions, table, layout=layout, interpolation=interpolation)


def encode_grid_stochastic(
    positions: Float[Tensor, "*_shape"],
    table: Float[Tensor, "*_shape"],
    samples: Float[Tensor, "p l"],
    *,
    layout: GridLayout,
    interpolation: Interpolation = Interpolation.LINEAR,
    backend: str = AUTO,
) -> Float[Tensor, "p d"]:
    """Encode as :func:`encode_grid` does, but give the table's gradient to one vertex of each cell.

    Only the first derivative with respect to the table differs; it scatters to one row instead of
    all corners of a cell.

    Args:
        positions: ``p x``, in the unit cube.
        table: ``e v``, the levels' entries one after the other.
        samples: Uniform random numbers in [0, 1), one per position and level; they pick the vertex.
        layout: Where each level lies in the table.
        interpolation: Between the vertices of a cell.
        backend: A name out of ``ngpc backends``, or ``auto``.

    Raises:
        ShapeError: positions, table or samples do not fit the layout.
    """
    if tuple(samples.shape) != (len(positions), layout.num_levels):
        raise ShapeError(
            explain(
                "encode_grid_stochastic samples",
                expected=f"shape ({len(positions)}, {layout.num_levels})",
                got=f"{tuple(samples.shape)}",
                do="Draw one number per position and level.",
            )
        )
    encoded: Tensor = _StochasticGrid.apply(
        positions, table, samples, layout, interpolation, backend
    )
    return encoded


class _StochasticGrid(torch.autograd.Function):
    """The values and position gradients of the grid, the table gradient of the picked vertices."""

    @staticmethod
    def forward(
        ctx: Any,
        positions: Tensor,
        table: Tensor,
        samples: Tensor,
        layout: GridLayout,
        interpolation: Interpolation,
        backend: str,
    ) -> Tensor:
        ctx.save_for_backward(positions, table, samples)
        ctx.settings = {"layout": layout, "interpolation": interpolation}
        ctx.backend = backend
        return encode_grid(positions, table, **ctx.settings, backend=backend)

    @staticmethod
    def backward(ctx: Any, *upstreams: Tensor) -> tuple[Tensor | None, ...]:
        positions, table, samples = ctx.saved_tensors
        (upstream,) = upstreams
        position_gradient = table_gradient = None
        if ctx.needs_input_grad[0]:
            position_gradient, _ = gradients_by_definition(
                lambda x, t: encode_grid(x, t, **ctx.settings, backend=ctx.backend),
                (positions, table),
                upstream,
                (True, False),
            )
        if ctx.needs_input_grad[1]:
            (table_gradient,) = gradients_by_definition(
                lambda t: reference.gather_picked_vertices(positions, t, samples, **ctx.settings),
                (table,),
                upstream,
                (True,),
            )
        return position_gradient, table_gradient, None, None, None, None
