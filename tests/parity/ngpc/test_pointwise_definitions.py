"""Triangle waves, one-blob, spherical harmonics and composites against textbook forms."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from scipy.special import sph_harm_y

from ngpc.config import encoding_from_json
from ngpc.encodings import make_encoding
from ngpc.errors import ConfigError, ShapeError
from ngpc.ops import encode_one_blob, encode_spherical_harmonics, encode_triangle_wave
from tests.support.numerics import assert_agrees

EPS64 = torch.finfo(torch.float64).eps
TIGHT = {"rtol": 1e-4, "atol": 1e-6}


def unit_directions(num_points: int) -> torch.Tensor:
    directions = torch.randn(num_points, 3, dtype=torch.float64)
    return directions / directions.norm(dim=1, keepdim=True)


def textbook_harmonics(directions: torch.Tensor, degree: int) -> list[list[float]]:
    """Real harmonics out of scipy's complex ones, with the Condon-Shortley phase kept."""
    rows = []
    for x, y, z in directions.tolist():
        polar, azimuth = math.acos(z), math.atan2(y, x)
        row = []
        for band in range(degree):
            for m in range(-band, band + 1):
                value = sph_harm_y(band, abs(m), polar, azimuth)
                part = value.imag if m < 0 else value.real
                row.append(part * (math.sqrt(2.0) if m else 1.0))
        rows.append(row)
    return rows


def test_harmonics_equal_the_textbook_on_the_sphere() -> None:
    directions = unit_directions(50)
    encoded = encode_spherical_harmonics((directions + 1) / 2, degree=8)
    assert_agrees(encoded, textbook_harmonics(directions, 8), rms=1e-13)


def test_harmonics_off_the_sphere_are_tiny_cuda_nns_polynomials() -> None:
    positions = torch.rand(20, 3, dtype=torch.float64)
    x, y, z = (2 * positions - 1).unbind(1)
    encoded = encode_spherical_harmonics(positions, degree=5)
    for column, expected in {
        0: 0.28209479177387814 * torch.ones_like(x),
        1: -0.48860251190291987 * y,
        3: -0.48860251190291987 * x,
        6: 0.94617469575755997 * z**2 - 0.31539156525251999,
        9: 0.59004358992664352 * y * (-3 * x**2 + y**2),
        13: 0.45704579946446572 * x * (1 - 5 * z**2),
        22: 0.47308734787878004 * (x**2 - y**2) * (7 * z**2 - 1),
    }.items():
        assert_agrees(encoded[:, column], expected, rms=1e-14)


def textbook_triangle(x: float, octave: int) -> float:
    """A cosine's straight-line twin: 1 at whole periods, -1 halfway."""
    phase = (x * 2.0**octave / 2.0 + octave / 4.0) % 1.0
    return 1.0 - 4.0 * phase if phase < 0.5 else 4.0 * phase - 3.0


def test_triangle_waves_equal_straight_lines() -> None:
    positions = 4 * torch.rand(40, 2, dtype=torch.float64) - 2
    expected = [
        [textbook_triangle(x, octave) for x in row for octave in range(6)]
        for row in positions.tolist()
    ]
    assert_agrees(encode_triangle_wave(positions, num_frequencies=6), expected, rms=1e-13)


def textbook_blob(x: float, bin_index: int, num_bins: int) -> float:
    """The kernel ``15/16 (1 - u^2)^2`` summed over a fine mesh of one bin, wrapped once."""
    steps = 4000
    total = 0.0
    for step in range(steps):
        position = (bin_index + (step + 0.5) / steps) / num_bins
        for turn in (-1.0, 0.0, 1.0):
            u = (position - x + turn) * num_bins
            total += 15 / 16 * max(0.0, 1.0 - u * u) ** 2
    return total / steps


def test_blobs_equal_summed_kernels() -> None:
    positions = torch.tensor([[0.0], [0.13], [0.5], [0.97]], dtype=torch.float64)
    expected = [[textbook_blob(x, b, 8) for b in range(8)] for (x,) in positions.tolist()]
    encoded = encode_one_blob(positions, num_bins=8)
    assert_agrees(encoded, expected, rms=1e-6)
    assert_agrees(encoded.sum(dim=1), torch.ones(4), rms=4 * EPS64)


CASES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "triangle": lambda x: encode_triangle_wave(x, num_frequencies=3),
    "blob": lambda x: encode_one_blob(x, num_bins=4),
    "harmonics": lambda x: encode_spherical_harmonics(x, degree=5),
}


@pytest.mark.parametrize("name", CASES)
def test_both_derivatives(name: str) -> None:
    positions = (0.11 + 0.1 * torch.rand(3, 3, dtype=torch.float64)).requires_grad_()
    assert torch.autograd.gradcheck(CASES[name], (positions,), **TIGHT)
    assert torch.autograd.gradgradcheck(CASES[name], (positions,), **TIGHT)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("num_points", [0, 1, 13])
def test_any_number_of_points(name: str, num_points: int) -> None:
    positions = torch.rand(3, num_points).T
    encoded = CASES[name](positions)
    assert len(encoded) == num_points
    assert torch.equal(encoded, CASES[name](positions.contiguous()))
    with pytest.raises(ShapeError, match=r"got \(3,\)"):
        CASES[name](torch.rand(3))


# -------------------------------------------------------------------------------------- composites

DIRECTION = {"otype": "SphericalHarmonics", "degree": 2, "n_dims_to_encode": 3}
GRID = {"otype": "Grid", "n_levels": 2, "n_features_per_level": 4, "log2_hashmap_size": 8}
PLAIN = {"otype": "Identity"}


def composite(*nested: dict, num_dims: int = 5, **options: object):
    config = encoding_from_json({"otype": "Composite", "nested": list(nested), **options})
    return make_encoding(config, num_dims=num_dims)


def test_a_grid_in_a_composite_begins_at_a_multiple_of_its_features() -> None:
    encoding = composite({**PLAIN, "n_dims_to_encode": 2}, GRID)
    positions = torch.rand(6, 5)
    encoded = encoding(positions)
    assert encoded.shape == (6, 12)
    assert encoding.num_outputs == 12
    assert torch.equal(encoded[:, :2], positions[:, :2])
    assert torch.equal(encoded[:, 2:4], torch.ones(6, 2))
    assert torch.equal(encoded[:, 4:], encoding.parts[1](positions[:, 2:]))


def test_padding_of_a_composite_is_that_of_its_last_part() -> None:
    positions = torch.rand(6, 5)
    first = composite(DIRECTION, {**PLAIN, "n_dims_to_encode": 2}).encode_padded(positions, 16)
    assert torch.equal(first[:, 6:], torch.ones(6, 10))
    last = composite({**PLAIN, "n_dims_to_encode": 2}, DIRECTION).encode_padded(positions, 16)
    assert torch.equal(last[:, 2:12], torch.ones(6, 10))  # harmonics are padded in front
    grid = composite(PLAIN | {"n_dims_to_encode": 3}, GRID | {"n_dims_to_encode": 2})
    assert torch.equal(grid.encode_padded(positions, 16)[:, 12:], torch.zeros(6, 4))


def test_sums_and_products_take_in_the_padding() -> None:
    positions = torch.rand(6, 3)
    nested = [{**PLAIN, "n_dims_to_encode": 2, "dims_to_encode_begin": begin} for begin in (0, 1)]
    x, y, z = positions.unbind(1)
    total = composite(*nested, num_dims=3, reduction="Sum").encode_padded(positions, 3)
    assert torch.equal(total, torch.stack([x + y, y + z, torch.full_like(x, 2.0)], dim=1))
    product = composite(*nested, num_dims=3, reduction="Product").encode_padded(positions, 3)
    assert torch.equal(product, torch.stack([x * y, y * z, torch.ones_like(x)], dim=1))
    with pytest.raises(ConfigError, match=r"one width, got \[2, 3\]"):
        composite(nested[0], {**PLAIN, "n_dims_to_encode": 3, "dims_to_encode_begin": 0},
                  num_dims=3, reduction="Sum")  # fmt: skip


def test_harmonics_need_three_coordinates() -> None:
    with pytest.raises(ConfigError, match="expected 3 coordinates, got 2"):
        composite({**DIRECTION, "n_dims_to_encode": 2})
