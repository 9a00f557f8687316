"""The reference grid encoding against a scalar loop that shares no code with it."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

import numpy as np
import pytest
import torch

from ngpc.backends.reference import hash_grid as definition
from ngpc.config import GridConfig, Interpolation
from ngpc.ops import encode_grid
from ngpc.shapes import GridKind, GridLayout
from tests.parity.ngpc.scalar_grid import ScalarGrid
from tests.support.numerics import assert_agrees

EPS64 = torch.finfo(torch.float64).eps
EPS32 = torch.finfo(torch.float32).eps
TIGHT = {"rtol": 1e-4, "atol": 1e-6}  # torch's default would pass a gradient off by 0.1 %


def make_case(
    kind: str = "hash",
    *,
    num_dims: int = 3,
    features: int = 2,
    per_level_scale: float = 1.447,
    dtype: torch.dtype = torch.float64,
    num_points: int = 31,
) -> tuple[ScalarGrid, GridLayout, torch.Tensor, torch.Tensor]:
    scalar = ScalarGrid(
        kind=kind,
        num_dims=num_dims,
        num_levels=4,
        features=features,
        log2_table_size=9,
        base_resolution=5,
        per_level_scale=per_level_scale,
    )
    layout = GridConfig(
        kind=GridKind(kind),
        num_levels=4,
        features_per_level=features,
        log2_table_size=9,
        base_resolution=5,
        per_level_scale=per_level_scale,
    ).layout(num_dims)
    generator = torch.Generator().manual_seed(1)
    table = torch.randn(
        layout.num_entries, layout.features_per_level, dtype=dtype, generator=generator
    )
    positions = torch.rand(num_points, num_dims, dtype=dtype, generator=generator)
    # Corners of the cube, and points outside it, where tables wrap.
    positions[0], positions[1], positions[2], positions[3] = 0.0, 1.0, -0.3, 1.7
    return scalar, layout, positions, table


@pytest.mark.parametrize("interpolation", list(Interpolation))
@pytest.mark.parametrize("num_dims", [2, 3, 4])
@pytest.mark.parametrize("kind", ["hash", "dense", "tiled"])
def test_every_grid_equals_the_scalar_loop(
    kind: str, num_dims: int, interpolation: Interpolation
) -> None:
    scalar, layout, positions, table = make_case(kind, num_dims=num_dims, per_level_scale=1.3)
    encoded = encode_grid(positions, table, layout=layout, interpolation=interpolation)
    expected = scalar.encode(positions.numpy(), table.numpy(), interpolation.value)
    assert_agrees(encoded, expected, rms=2 * EPS64)


@pytest.mark.parametrize("features", [1, 2, 4, 8])
def test_every_number_of_features_equals_the_scalar_loop(features: int) -> None:
    scalar, layout, positions, table = make_case(features=features)
    encoded = encode_grid(positions, table, layout=layout)
    assert_agrees(encoded, scalar.encode(positions.numpy(), table.numpy(), "linear"), rms=2 * EPS64)


def test_half_of_the_levels_are_hashed_in_the_cases_above() -> None:
    _, layout, _, _ = make_case()
    assert [level.is_hashed for level in layout.levels] == [False, False, True, True]


def test_single_precision_equals_the_scalar_loop_on_fine_levels() -> None:
    scalar = ScalarGrid(
        kind="hash",
        num_dims=2,
        num_levels=16,
        features=1,
        log2_table_size=12,
        base_resolution=16,
        per_level_scale=1.7,
    )
    layout = GridConfig(features_per_level=1, log2_table_size=12, per_level_scale=1.7).layout(2)
    positions, table = torch.rand(60, 2), torch.randn(layout.num_entries, 1)
    encoded = encode_grid(positions, table, layout=layout)
    expected = scalar.encode(positions.numpy(), table.numpy(), "linear")
    assert_agrees(encoded, expected, rms=2 * EPS32)


def test_coordinates_are_the_nearest_single_precision_numbers() -> None:
    level = GridConfig().layout(2).levels[0]
    positions = torch.rand(500, 2) * 0.1
    found = definition.grid_coordinates(positions, level, torch.float32).numpy()
    scale = Fraction(level.scale)
    exact = [scale * Fraction(x) + Fraction(1, 2) for x in positions.flatten().tolist()]
    for coordinate, truth in zip(found.flatten(), exact, strict=True):
        error = abs(Fraction(float(coordinate)) - truth)
        for direction in (-np.inf, np.inf):
            neighbour = np.nextafter(coordinate, np.float32(direction))
            assert error <= abs(Fraction(float(neighbour)) - truth)
    # A product and a sum rounded apart miss some of them, so this test tells the two apart.
    apart = positions.numpy() * np.float32(level.scale) + np.float32(0.5)
    assert (apart != found).mean() > 0.05


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_low_precision_tables_lose_only_the_final_rounding(dtype: torch.dtype) -> None:
    scalar, layout, positions, table = make_case(dtype=torch.float32)
    table = table.to(dtype)
    encoded = encode_grid(positions, table, layout=layout)
    assert encoded.dtype == dtype
    expected = scalar.encode(positions.numpy(), table.double().numpy(), "linear")
    assert_agrees(encoded, expected, rms=0.5 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("kind", ["hash", "dense", "tiled"])
def test_rows_equal_unsigned_32_bit_arithmetic(kind: str) -> None:
    scalar, layout, _, _ = make_case(kind)
    vertices = torch.tensor([[0, 0, 0], [1, 2, 3], [15, 15, 15], [16, 0, 16], [-1, 2, -70000]])
    for level_index, level in enumerate(layout.levels):
        rows = definition.vertex_indices(vertices, level) + level.offset
        expected = [scalar.row(level_index, tuple(vertex)) for vertex in vertices.tolist()]
        assert rows.tolist() == expected


def test_hash_of_a_vertex_worked_by_hand() -> None:
    # 2 * 2654435761 = 1013904226, 3 * 805459861 = 2416379583, both modulo 2^32;
    # 1 xor the first xor the second = 2892625372.
    layout = GridConfig(num_levels=1, log2_table_size=31, base_resolution=2000).layout(3)
    (level,) = layout.levels
    assert level.is_hashed
    assert definition.vertex_indices(torch.tensor([[1, 2, 3]]), level).item() == (
        2892625372 % 2**31
    )


def test_dense_vertices_are_numbered_first_axis_fastest() -> None:
    (level,) = GridConfig(kind=GridKind.DENSE, num_levels=1, base_resolution=7).layout(3).levels
    assert definition.vertex_indices(torch.tensor([[1, 2, 3]]), level).item() == 1 + 2 * 7 + 3 * 49


def test_linear_interpolation_reproduces_a_linear_function() -> None:
    (level,) = (layout := GridConfig(num_levels=1, base_resolution=9, features_per_level=1)
                .layout(2)).levels  # fmt: skip
    rows = torch.arange(level.num_entries)
    column, row = rows % 9, rows // 9
    # Vertices lie at (index - 0.5) / scale: the half-cell shift.
    table = ((column - 0.5) / level.scale + 2 * (row - 0.5) / level.scale).double().unsqueeze(1)
    positions = torch.rand(50, 2, dtype=torch.float64) * (1.0 - 0.6 / level.scale)
    expected = positions[:, :1] + 2 * positions[:, 1:]
    assert_agrees(encode_grid(positions, table, layout=layout), expected, rms=4 * EPS64)


# ------------------------------------------------------------------------------------- planted bugs


def _corners_in_reverse(vertices: torch.Tensor) -> list[torch.Tensor]:
    return [corner.flip(0) for corner in _true_corners(vertices)]


_true_corners = definition._corners


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        pytest.param("HASH_PRIMES", (1, 2654435761, 805459867, 3674653429), id="prime-off-by-6"),
        pytest.param("HASH_PRIMES", (2654435761, 1, 805459861, 3674653429), id="primes-swapped"),
        pytest.param("_corners", _corners_in_reverse, id="corners-in-reverse"),
    ],
)
def test_a_planted_bug_is_caught(name: str, wrong: object, monkeypatch: pytest.MonkeyPatch) -> None:
    scalar, layout, positions, table = make_case()
    expected = scalar.encode(positions.numpy(), table.numpy(), "linear")
    monkeypatch.setattr(definition, name, wrong)
    encoded = encode_grid(positions, table, layout=layout)
    with pytest.raises(AssertionError, match="relative RMS"):
        assert_agrees(encoded, expected, rms=2 * EPS64)


@pytest.mark.parametrize("change", ["scale", "resolution", "num_entries"])
def test_a_level_off_by_a_little_is_caught(change: str) -> None:
    scalar, layout, positions, table = make_case()
    expected = scalar.encode(positions.numpy(), table.numpy(), "linear")
    first, second, *rest = layout.levels
    planted = {
        "scale": dataclasses.replace(second, scale=second.scale * (1 + 1e-6)),
        "resolution": dataclasses.replace(second, resolution=second.resolution + 1),
        "num_entries": dataclasses.replace(second, num_entries=second.num_entries - 1),
    }[change]
    wrong = dataclasses.replace(layout, levels=(first, planted, *rest))
    encoded = definition.encode_grid(
        positions, table[: sum(level.num_entries for level in wrong.levels)],
        layout=wrong, interpolation=Interpolation.LINEAR,
    )  # fmt: skip
    with pytest.raises(AssertionError, match="relative RMS"):
        assert_agrees(encoded, expected, rms=2 * EPS64)


# ---------------------------------------------------------------------------------------- gradients


@pytest.mark.parametrize("interpolation", list(Interpolation))
def test_table_gradient_equals_the_scalar_loop(interpolation: Interpolation) -> None:
    scalar, layout, positions, table = make_case()
    table.requires_grad_()
    encoded = encode_grid(positions, table, layout=layout, interpolation=interpolation)
    upstream = torch.randn_like(encoded)
    (gradient,) = torch.autograd.grad(encoded, table, upstream)
    expected = scalar.table_gradient(
        positions.numpy(), len(table), upstream.numpy(), interpolation.value
    )
    assert_agrees(gradient, expected, rms=2 * EPS64)


@pytest.mark.parametrize("interpolation", [Interpolation.LINEAR, Interpolation.SMOOTHSTEP])
@pytest.mark.parametrize("num_dims", [2, 3])
def test_both_derivatives_of_the_grid(num_dims: int, interpolation: Interpolation) -> None:
    layout = GridConfig(
        num_levels=2,
        features_per_level=1,
        log2_table_size=4,
        base_resolution=2,
        per_level_scale=2.5,
    ).layout(num_dims)
    assert layout.levels[-1].is_hashed
    table = torch.randn(layout.num_entries, 1, dtype=torch.float64, requires_grad=True)
    # Derivatives jump at cell faces: keep away from them by far more than the probing step.
    offsets = torch.rand(2, num_dims, dtype=torch.float64)
    positions = 0.1 + 0.8 * offsets
    for level in layout.levels:
        fraction = (positions * level.scale + 0.5) % 1.0
        assert fraction.min() > 1e-3
        assert fraction.max() < 1 - 1e-3
    positions.requires_grad_()

    def encode(positions: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        return encode_grid(positions, table, layout=layout, interpolation=interpolation)

    assert torch.autograd.gradcheck(encode, (positions, table), **TIGHT)
    assert torch.autograd.gradgradcheck(encode, (positions, table), **TIGHT)


def test_gradcheck_catches_a_gradient_off_by_a_tenth_of_a_percent() -> None:
    class Planted(torch.autograd.Function):
        @staticmethod
        def forward(ctx, values):
            return values.clone()

        @staticmethod
        def backward(ctx, upstream):
            return 1.001 * upstream

    layout = GridConfig(num_levels=1, base_resolution=3, features_per_level=1).layout(2)
    table = torch.randn(layout.num_entries, 1, dtype=torch.float64, requires_grad=True)
    positions = torch.rand(5, 2, dtype=torch.float64)
    with pytest.raises(RuntimeError, match="Jacobian mismatch"):
        torch.autograd.gradcheck(
            lambda table: Planted.apply(encode_grid(positions, table, layout=layout)),
            (table,),
            **TIGHT,
        )


def test_an_eikonal_term_reaches_the_table() -> None:
    _, layout, positions, table = make_case()
    positions.requires_grad_()
    table.requires_grad_()
    distance = encode_grid(positions, table, layout=layout).sum(dim=1)
    (slope,) = torch.autograd.grad(distance.sum(), positions, create_graph=True)
    (gradient,) = torch.autograd.grad(((slope.norm(dim=1) - 1) ** 2).mean(), table)
    assert gradient.abs().max() > 0


def test_nearest_gives_positions_a_derivative_of_zero() -> None:
    _, layout, positions, table = make_case()
    positions.requires_grad_()
    encoded = encode_grid(positions, table, layout=layout, interpolation=Interpolation.NEAREST)
    (gradient,) = torch.autograd.grad(encoded.sum(), positions)
    assert torch.equal(gradient, torch.zeros_like(positions))


# -------------------------------------------------------------------------------------- any input


@pytest.mark.parametrize("num_points", [0, 1, 127, 257])
def test_a_batch_of_any_size_equals_its_points_one_by_one(num_points: int) -> None:
    _, layout, _, table = make_case(dtype=torch.float32)
    positions = torch.rand(num_points, 3)
    table.requires_grad_()
    encoded = encode_grid(positions, table, layout=layout)
    assert encoded.shape == (num_points, layout.num_features)
    encoded.sum().backward()
    assert torch.isfinite(table.grad).all()
    for point in range(0, num_points, 50):
        alone = encode_grid(positions[point : point + 1], table, layout=layout)
        assert torch.equal(alone[0], encoded[point])


def test_strided_inputs_give_the_same_bits() -> None:
    _, layout, positions, table = make_case(dtype=torch.float32)
    wide = torch.stack([positions, positions + 7], dim=2).transpose(0, 1)
    strided_positions = wide[:, :, 0].T
    strided_table = torch.stack([table, -table], dim=2)[:, :, 0]
    assert not strided_positions.is_contiguous()
    assert not strided_table.is_contiguous()
    upstream = torch.randn(layout.num_features, len(positions)).T
    results = []
    for x, t in ((positions, table), (strided_positions, strided_table)):
        x, t = x.clone(memory_format=torch.preserve_format), t.detach().requires_grad_()
        encoded = encode_grid(x, t, layout=layout)
        (gradient,) = torch.autograd.grad(encoded, t, upstream)
        results.append((encoded, gradient))
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])
