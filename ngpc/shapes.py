"""Axis letters, and the sizes of a multi-resolution grid, in numbers that need no tensor.

Axis letters used in annotations: ``p`` points, ``x`` space dimensions, ``l`` levels,
``e`` table entries, ``v`` features per entry, ``d`` width, ``h w`` height and width,
``c`` channels.

A grid is a stack of levels, coarse to fine. A level of resolution ``r`` has ``r`` vertices along
each axis of the unit cube, and owns a run of entries in one shared table. When the run is shorter
than the ``r ** x`` vertices, several vertices share an entry: found by a hash (``hash``) or by
repeating the pattern (``tiled``).

The numbers are those of tiny-cuda-nn, which computes resolutions in single precision; the same
roundings are made here, because a resolution off by one moves every later level in the table.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from enum import StrEnum

from ngpc.errors import ConfigError, explain

GRID_DIMS = (2, 3, 4)
GRID_FEATURES = (1, 2, 4, 8)
MAX_LEVELS = 128
MAX_DENSE_ENTRIES = 2**31 - 1
ENTRY_MULTIPLE = 8  # tables start at aligned addresses
LAYER_MULTIPLE = 16  # matrices are padded to the tile of a tensor core


class GridKind(StrEnum):
    """How the vertices of a level find their table entries."""

    HASH = "hash"
    DENSE = "dense"
    TILED = "tiled"


def round_up(size: int, multiple: int) -> int:
    """The smallest multiple of ``multiple`` that is at least ``size``."""
    return -(-size // multiple) * multiple


def to_float32(value: float) -> float:
    """The nearest single-precision number, as a Python float; infinity beyond its range."""
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


def level_scale(level_index: int, *, base_resolution: int, per_level_scale: float) -> float:
    """What positions in the unit cube are multiplied by to become grid coordinates.

    One less than the number of vertices: ``b ** level * base_resolution - 1``, rounded to single
    precision after every operation.
    """
    log2_growth = to_float32(math.log2(to_float32(per_level_scale)))
    exponent = to_float32(level_index * log2_growth)
    growth = math.inf if exponent >= 128.0 else to_float32(2.0**exponent)
    return to_float32(to_float32(growth * base_resolution) - 1.0)


def largest_walkable_resolution(num_dims: int) -> int:
    """The largest ``r`` whose ``r ** num_dims`` vertices can be numbered in 32 bits."""
    resolution = int((2**32 - 1) ** (1.0 / num_dims)) + 1
    while resolution**num_dims > 2**32 - 1:
        resolution -= 1
    return resolution


@dataclass(frozen=True, slots=True, kw_only=True)
class GridLevel:
    """One level: where its vertices lie, and which run of the table it owns."""

    scale: float
    resolution: int
    offset: int
    num_entries: int
    is_hashed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GridLayout:
    """All levels of a grid. Levels lie one after the other in one table of ``num_entries`` rows."""

    kind: GridKind
    num_dims: int
    features_per_level: int
    log2_table_size: int
    base_resolution: int
    per_level_scale: float
    levels: tuple[GridLevel, ...]

    @property
    def num_levels(self) -> int:
        """How many levels there are."""
        return len(self.levels)

    @property
    def num_entries(self) -> int:
        """Rows of the shared table."""
        return self.levels[-1].offset + self.levels[-1].num_entries

    @property
    def num_features(self) -> int:
        """Width of an encoded position: the levels' features, coarse to fine."""
        return self.num_levels * self.features_per_level

    @property
    def num_parameters(self) -> int:
        """Numbers in the table."""
        return self.num_entries * self.features_per_level


def grid_layout(
    *,
    kind: GridKind,
    num_dims: int,
    num_levels: int,
    features_per_level: int,
    log2_table_size: int,
    base_resolution: int,
    per_level_scale: float,
) -> GridLayout:
    """Lay out the levels of a grid.

    Raises:
        ConfigError: a dimension the definition does not cover, or a level too fine to number.

    Source:
        tiny-cuda-nn, ``encodings/grid.h`` (offset table) and ``grid_index``.
    """
    if num_dims not in GRID_DIMS:
        raise ConfigError(
            explain(
                "grid",
                expected="2, 3 or 4 space dimensions",
                got=f"{num_dims}",
                do="Encode the first two to four columns, or use a frequency encoding.",
            )
        )
    walkable = largest_walkable_resolution(num_dims)
    levels: list[GridLevel] = []
    offset = 0
    for level_index in range(num_levels):
        scale = level_scale(
            level_index, base_resolution=base_resolution, per_level_scale=per_level_scale
        )
        if scale >= 2**31:
            raise ConfigError(
                explain(
                    f"grid level {level_index}",
                    expected="fewer than 2^31 vertices along an axis",
                    got=f"{scale:.3g}",
                    do="Lower num_levels or per_level_scale.",
                )
            )
        resolution = math.ceil(scale) + 1
        if kind is not GridKind.HASH and resolution > walkable:
            raise ConfigError(
                explain(
                    f"{kind} grid level {level_index}",
                    expected=f"at most {walkable} vertices along each of {num_dims} axes",
                    got=f"{resolution}",
                    do="Lower num_levels or per_level_scale, or use kind='hash'.",
                )
            )
        num_vertices = resolution**num_dims
        num_entries = round_up(min(num_vertices, MAX_DENSE_ENTRIES), ENTRY_MULTIPLE)
        if kind is GridKind.HASH:
            num_entries = min(num_entries, 2**log2_table_size)
        elif kind is GridKind.TILED:
            num_entries = min(num_entries, base_resolution**num_dims)
        levels.append(
            GridLevel(
                scale=scale,
                resolution=resolution,
                offset=offset,
                num_entries=num_entries,
                is_hashed=kind is GridKind.HASH and num_entries < num_vertices,
            )
        )
        offset += num_entries
    return GridLayout(
        kind=kind,
        num_dims=num_dims,
        features_per_level=features_per_level,
        log2_table_size=log2_table_size,
        base_resolution=base_resolution,
        per_level_scale=per_level_scale,
        levels=tuple(levels),
    )


def layer_shapes(
    *, num_inputs: int, num_outputs: int, width: int, num_hidden_layers: int
) -> tuple[tuple[int, int], ...]:
    """Rows and columns of each matrix of a perceptron, inputs and outputs padded to 16.

    ``(width, padded inputs)``, then ``num_hidden_layers - 1`` times ``(width, width)``, then
    ``(padded outputs, width)``; without hidden layers one ``(padded outputs, padded inputs)``.

    Source:
        tiny-cuda-nn, ``networks/fully_fused_mlp.h``; its parameter vector holds these matrices
        row by row, in this order.
    """
    padded_inputs = round_up(num_inputs, LAYER_MULTIPLE)
    padded_outputs = round_up(num_outputs, LAYER_MULTIPLE)
    if num_hidden_layers == 0:
        return ((padded_outputs, padded_inputs),)
    hidden = ((width, width),) * (num_hidden_layers - 1)
    return ((width, padded_inputs), *hidden, (padded_outputs, width))
