"""Sizes of grids and perceptrons, against published counts."""

from __future__ import annotations

import math

import pytest

from ngpc.config import GridConfig, MlpConfig
from ngpc.errors import ConfigError
from ngpc.shapes import GridKind, largest_walkable_resolution, layer_shapes, to_float32


def num_weights(config: MlpConfig, num_inputs: int, num_outputs: int) -> int:
    shapes = layer_shapes(
        num_inputs=num_inputs,
        num_outputs=num_outputs,
        width=config.width,
        num_hidden_layers=config.num_hidden_layers,
    )
    return sum(rows * columns for rows, columns in shapes)


def test_a_published_snapshot_has_the_number_of_parameters_we_compute() -> None:
    # instant-ngp issue 845: 13,084,640 parameters for aabb_scale 4. That version padded the three
    # colours to 8 rows, today's to 16: 8 * 64 more.
    growth = math.exp(math.log(2048 * 4 / 16) / 15)
    grid = GridConfig(per_level_scale=growth).layout(3)
    density = num_weights(MlpConfig(width=64, num_hidden_layers=1), 32, 16)
    colour = num_weights(MlpConfig(width=64, num_hidden_layers=2), 32, 3)
    assert grid.num_parameters + density + colour == 13_084_640 + 8 * 64


def test_the_dense_grid_of_instant_ngp_spans_16_to_173_vertices() -> None:
    config = GridConfig(kind=GridKind.DENSE, num_levels=8, per_level_scale=1.405)
    layout = config.layout(3)
    assert (layout.levels[0].resolution, layout.levels[-1].resolution) == (16, 173)
    assert round(layout.num_entries / 1e6, 2) == 8.16


def test_two_tiled_levels_of_128_vertices_hold_33_million_numbers() -> None:
    config = GridConfig(
        kind=GridKind.TILED,
        num_levels=2,
        features_per_level=8,
        base_resolution=128,
        per_level_scale=1.0,
    )
    assert config.layout(3).num_parameters == 2 * 128**3 * 8


def test_doubling_levels_have_exactly_doubling_resolutions() -> None:
    levels = GridConfig(num_levels=8).layout(2).levels
    assert [level.resolution for level in levels] == [16 * 2**i for i in range(8)]
    assert [level.scale for level in levels] == [16 * 2**i - 1 for i in range(8)]


def test_a_level_is_hashed_only_where_its_vertices_outnumber_its_rows() -> None:
    levels = GridConfig(num_levels=3, log2_table_size=10, base_resolution=16).layout(2).levels
    assert [(level.num_entries, level.is_hashed) for level in levels] == [
        (256, False),
        (1024, False),
        (1024, True),
    ]


def test_levels_lie_one_after_the_other() -> None:
    layout = GridConfig(num_levels=5, log2_table_size=8, per_level_scale=1.3).layout(3)
    for lower, upper in zip(layout.levels[:-1], layout.levels[1:], strict=True):
        assert upper.offset == lower.offset + lower.num_entries
    assert layout.num_entries == sum(level.num_entries for level in layout.levels)


@pytest.mark.parametrize(("num_dims", "largest"), [(2, 65535), (3, 1625), (4, 255)])
def test_the_largest_resolution_that_32_bits_can_number(num_dims: int, largest: int) -> None:
    assert largest_walkable_resolution(num_dims) == largest


@pytest.mark.parametrize("kind", [GridKind.DENSE, GridKind.TILED])
def test_a_level_too_fine_to_number_is_refused(kind: GridKind) -> None:
    config = GridConfig(kind=kind, num_levels=2, base_resolution=128, per_level_scale=2.0)
    with pytest.raises(ConfigError, match=r"level 1: expected at most 255 .*, got 256\. Lower"):
        config.layout(4)


def test_a_level_finer_than_any_integer_is_refused() -> None:
    with pytest.raises(ConfigError, match="fewer than 2\\^31 vertices"):
        GridConfig(num_levels=128).layout(2)


@pytest.mark.parametrize("num_dims", [1, 5])
def test_other_dimensions_are_refused(num_dims: int) -> None:
    with pytest.raises(ConfigError, match="2, 3 or 4"):
        GridConfig().layout(num_dims)


def test_layers_are_padded_at_both_ends_and_not_between() -> None:
    shapes = layer_shapes(num_inputs=3, num_outputs=1, width=20, num_hidden_layers=3)
    assert shapes == ((20, 16), (20, 20), (20, 20), (16, 20))
    assert layer_shapes(num_inputs=17, num_outputs=3, width=64, num_hidden_layers=0) == ((16, 32),)


def test_single_precision_rounding() -> None:
    assert to_float32(0.1) == 0.10000000149011612
    assert to_float32(1e39) == math.inf
