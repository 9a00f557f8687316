"""Encodings and perceptron as modules: what they own, and what padding means."""

from __future__ import annotations

import math

import pytest
import torch

from ngpc.config import Activation, FrequencyConfig, GridConfig, MlpConfig, NetworkKind
from ngpc.encodings import Frequency, HashGrid, make_encoding
from ngpc.errors import ShapeError
from ngpc.networks import FusedMLP

GRID = GridConfig(num_levels=3, log2_table_size=8, base_resolution=4)


def test_a_grid_owns_one_table_of_small_numbers() -> None:
    grid = HashGrid(GRID, num_dims=3, generator=torch.Generator().manual_seed(3))
    assert {name: tuple(p.shape) for name, p in grid.named_parameters()} == {
        "table": (grid.layout.num_entries, 2)
    }
    table = grid.table.detach()
    assert 0.9e-4 < table.abs().max() <= 1e-4
    assert abs(table.mean()) < 1e-5


def test_the_same_seed_gives_the_same_module() -> None:
    tables = [
        HashGrid(GRID, num_dims=2, generator=torch.Generator().manual_seed(seed)).table
        for seed in (5, 5, 6)
    ]
    assert torch.equal(tables[0], tables[1])
    assert not torch.equal(tables[0], tables[2])


def test_an_encoding_says_how_wide_it_is() -> None:
    for config, width in ((GRID, 6), (FrequencyConfig(num_frequencies=4), 16)):
        encoding = make_encoding(config, num_dims=2)
        assert encoding.num_outputs == width
        assert encoding(torch.rand(7, 2)).shape == (7, width)


def test_grids_pad_with_zeros_and_frequencies_with_ones() -> None:
    assert HashGrid.padding_value == 0.0
    assert Frequency.padding_value == 1.0


def make_mlp(**changes: object) -> FusedMLP:
    settings = {"num_inputs": 5, "num_outputs": 3, **changes}
    config = MlpConfig(kind=NetworkKind.CUTLASS, width=8, num_hidden_layers=2)
    return FusedMLP(config, **settings)


def test_matrices_are_stored_padded_to_16_and_without_biases() -> None:
    shapes = {name: tuple(p.shape) for name, p in make_mlp().named_parameters()}
    assert shapes == {"weights.0": (8, 16), "weights.1": (8, 8), "weights.2": (16, 8)}


def test_columns_of_inputs_padded_with_ones_are_a_bias() -> None:
    mlp, inputs = make_mlp(padding_value=1.0), torch.rand(4, 5)
    first, second, third = (matrix.detach() for matrix in mlp.weights)
    bias = first[:, 5:].sum(dim=1)
    hidden = torch.relu(torch.relu(inputs @ first[:, :5].T + bias) @ second.T)
    torch.testing.assert_close(mlp(inputs), hidden @ third[:3].T)


def test_columns_of_inputs_padded_with_zeros_do_nothing() -> None:
    mlp, inputs = make_mlp(padding_value=0.0), torch.rand(4, 5)
    before = mlp(inputs)
    with torch.no_grad():
        mlp.weights[0][:, 5:] = 1e6
    assert torch.equal(mlp(inputs), before)


def test_padded_output_rows_are_inert() -> None:
    mlp = make_mlp()
    with torch.no_grad():
        mlp.weights[-1][3:] = torch.inf
    outputs = mlp(torch.rand(4, 5))
    assert outputs.shape == (4, 3)
    assert torch.isfinite(outputs).all()
    outputs.sum().backward()
    assert torch.equal(mlp.weights[-1].grad[3:], torch.zeros(13, 8))


def test_no_hidden_layer_is_one_matrix() -> None:
    config = MlpConfig(kind=NetworkKind.CUTLASS, num_hidden_layers=0)
    mlp = FusedMLP(config, num_inputs=16, num_outputs=2)
    (matrix,) = mlp.weights
    assert matrix.shape == (16, 16)
    inputs = torch.rand(3, 16)
    torch.testing.assert_close(mlp(inputs), inputs @ matrix[:2].T)


@pytest.mark.parametrize("num_points", [0, 1, 17])
def test_any_number_of_points_goes_through(num_points: int) -> None:
    mlp = make_mlp()
    outputs = mlp(torch.rand(5, num_points).T)
    assert outputs.shape == (num_points, 3)
    outputs.sum().backward()
    assert all(torch.isfinite(matrix.grad).all() for matrix in mlp.weights)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_the_weights_decide_the_precision(dtype: torch.dtype) -> None:
    assert make_mlp().to(dtype)(torch.rand(4, 5)).dtype == dtype


def test_first_weights_fill_their_range() -> None:
    def largest(activation: Activation) -> list[float]:
        config = MlpConfig(width=64, num_hidden_layers=2, activation=activation)
        mlp = FusedMLP(config, num_inputs=32, num_outputs=16)
        return [matrix.abs().max().item() for matrix in mlp.weights]

    glorot = [math.sqrt(6 / 96), math.sqrt(6 / 128), math.sqrt(6 / 80)]
    assert largest(Activation.RELU) == pytest.approx(glorot, rel=0.02)
    siren = [30 / 32, math.sqrt(6 / 64), math.sqrt(6 / 64)]
    assert largest(Activation.SINE) == pytest.approx(siren, rel=0.02)


def test_inputs_of_another_width_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"shape \(points, 5\), got \(4, 6\)"):
        make_mlp()(torch.rand(4, 6))
    with pytest.raises(ShapeError, match="at least one input"):
        make_mlp(num_inputs=0)
