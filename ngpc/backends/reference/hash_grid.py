"""Multi-resolution grid encoding: hash, dense and tiled.

Conventions, all tiny-cuda-nn's:

* A position ``x`` in the unit cube lies at ``scale * x + 0.5`` in a level's grid. The half shifts
  the levels' vertices against each other, and puts the corner cells' far vertices one past the
  last: those wrap into the table like any other index.
* Coordinates are unsigned 32-bit numbers and wrap; positions outside the cube are allowed, and
  alias. Up to 2^31 cells from the origin the result is defined.
* Corner ``i`` of a cell takes the upper vertex along axis ``d`` where bit ``d`` of ``i`` is set.
* Features of all levels stand side by side, coarse to fine.

Precision: grid coordinates are computed as one fused multiply-add, rounded once to single
precision (to double where the positions or the table are double); features are summed in that
precision, whatever that of the table, and come out in the table's.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from ngpc.config import Interpolation
from ngpc.shapes import GridLayout, GridLevel

HASH_PRIMES = (1, 2654435761, 805459861, 3674653429)  # one per axis
UINT32 = 2**32 - 1


def encode_grid(
    positions: Float[Tensor, "p x"],
    table: Float[Tensor, "e v"],
    *,
    layout: GridLayout,
    interpolation: Interpolation,
) -> Float[Tensor, "p d"]:
    """Look up the features of each position on every level, mixed between the cell's vertices.

    Differentiable twice with respect to positions and table. With ``nearest`` the derivative with
    respect to positions is zero.

    Source:
        Müller et al., Instant neural graphics primitives, section 3; tiny-cuda-nn,
        ``encodings/grid.h``.
    """
    double = torch.float64 in (positions.dtype, table.dtype)
    compute_dtype = torch.float64 if double else torch.float32
    level_tables = table.split([level.num_entries for level in layout.levels])
    features = []
    for level, level_table in zip(layout.levels, level_tables, strict=True):
        located = grid_coordinates(positions, level, compute_dtype)
        cell = located.detach().floor()
        fraction = located - cell
        vertices = cell.to(torch.int64)
        if interpolation is Interpolation.NEAREST:
            indices = vertex_indices(vertices, level).unsqueeze(1)
            # A derivative of zero rather than none, so that callers need no special case.
            weights = 1.0 + 0.0 * fraction.sum(dim=1, keepdim=True)
        else:
            indices = torch.stack(
                [vertex_indices(vertices + offset, level) for offset in _corners(vertices)], dim=1
            )
            weights = _corner_weights(fraction, interpolation)
        entries = level_table.index_select(0, indices.flatten())
        entries = entries.to(compute_dtype).unflatten(0, indices.shape)
        features.append((weights.unsqueeze(2) * entries).sum(dim=1))
    return torch.cat(features, dim=1).to(table.dtype)


def gather_picked_vertices(
    positions: Float[Tensor, "p x"],
    table: Float[Tensor, "e v"],
    samples: Float[Tensor, "p l"],
    *,
    layout: GridLayout,
    interpolation: Interpolation,
) -> Float[Tensor, "p d"]:
    """The features of one vertex of each position's cell, picked by a number in [0, 1) per level.

    Along every axis the upper vertex is taken where the number is below its weight. One number
    serves all axes, as in tiny-cuda-nn: each axis is picked as often as it weighs, but the axes are
    not independent.

    Source:
        tiny-cuda-nn, ``kernel_grid_backward`` (``stochastic_interpolation``).
    """
    double = torch.float64 in (positions.dtype, table.dtype)
    compute_dtype = torch.float64 if double else torch.float32
    level_tables = table.split([level.num_entries for level in layout.levels])
    features = []
    for level_index, (level, level_table) in enumerate(
        zip(layout.levels, level_tables, strict=True)
    ):
        located = grid_coordinates(positions.detach(), level, compute_dtype)
        cell = located.floor()
        upper = located - cell
        if interpolation is Interpolation.SMOOTHSTEP:
            upper = upper * upper * (3.0 - 2.0 * upper)
        is_upper = samples[:, level_index : level_index + 1].to(compute_dtype) < upper
        vertices = cell.to(torch.int64)
        if interpolation is not Interpolation.NEAREST:
            vertices = vertices + is_upper.to(torch.int64)
        features.append(level_table.index_select(0, vertex_indices(vertices, level)))
    return torch.cat(features, dim=1)


def grid_coordinates(
    positions: Float[Tensor, "p x"], level: GridLevel, dtype: torch.dtype
) -> Float[Tensor, "p x"]:
    """Where positions lie in a level's grid: ``scale * x + 0.5``, rounded once."""
    # The product of two single-precision numbers is exact in double: rounding the sum afterwards
    # is what a fused multiply-add does.
    return (positions.to(torch.float64) * level.scale + 0.5).to(dtype)


def vertex_indices(vertices: Int64[Tensor, "p x"], level: GridLevel) -> Int64[Tensor, " p"]:
    """Which row of the level's own table belongs to each vertex.

    Vertices are numbered along the first axis, then the second, and so on; where the table is
    shorter, by the hash: the exclusive or of coordinates times primes. Either number wraps at the
    end of the table.
    """
    index = torch.zeros_like(vertices[:, 0])
    stride = 1
    for axis in range(vertices.shape[1]):
        if level.is_hashed:
            index = index ^ (vertices[:, axis] * HASH_PRIMES[axis])
        else:
            index = index + vertices[:, axis] * stride
            stride *= level.resolution
    return (index & UINT32) % level.num_entries


def _corners(vertices: Int64[Tensor, "p x"]) -> list[Int64[Tensor, " x"]]:
    num_dims = vertices.shape[1]
    return [
        vertices.new_tensor([corner >> axis & 1 for axis in range(num_dims)])
        for corner in range(2**num_dims)
    ]


def _corner_weights(
    fraction: Float[Tensor, "p x"], interpolation: Interpolation
) -> Float[Tensor, "p corners"]:
    upper = fraction
    if interpolation is Interpolation.SMOOTHSTEP:
        upper = fraction * fraction * (3.0 - 2.0 * fraction)
    weights = torch.ones_like(upper[:, :1])
    for axis in range(upper.shape[1]):
        along = upper[:, axis : axis + 1]
        weights = torch.cat([weights * (1.0 - along), weights * along], dim=1)
    return weights
