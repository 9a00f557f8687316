"""Multi-resolution grid encoding, on whichever backend is asked for."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

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
