"""Stochastic interpolation: the grid's values, and a table gradient that is right on average."""

from __future__ import annotations

import pytest
import torch

from ngpc.config import GridConfig, Interpolation
from ngpc.encodings import HashGrid
from ngpc.errors import ShapeError
from ngpc.ops import encode_grid, encode_grid_stochastic
from tests.support.numerics import assert_agrees

CONFIG = GridConfig(
    num_levels=3, log2_table_size=6, base_resolution=3, stochastic_interpolation=True
)


def test_values_and_slopes_are_those_of_the_grid() -> None:
    layout = CONFIG.layout(2)
    table = torch.randn(layout.num_entries, 2, dtype=torch.float64, requires_grad=True)
    positions = torch.rand(9, 2, dtype=torch.float64, requires_grad=True)
    samples = torch.rand(9, 3)
    stochastic = encode_grid_stochastic(positions, table, samples, layout=layout)
    plain = encode_grid(positions, table, layout=layout)
    upstream = torch.randn_like(plain)
    assert torch.equal(stochastic, plain)
    slopes = [
        torch.autograd.grad(encoded, positions, upstream, create_graph=True)[0]
        for encoded in (stochastic, plain)
    ]
    assert torch.equal(slopes[0], slopes[1])
    # The Eikonal term trains every vertex: only the first derivative is stochastic.
    seconds = [torch.autograd.grad((slope**2).sum(), table)[0] for slope in slopes]
    assert_agrees(seconds[0], seconds[1], rms=1e-14)


def test_one_vertex_of_each_cell_gets_the_whole_gradient() -> None:
    layout = GridConfig(num_levels=1, base_resolution=9, features_per_level=1).layout(2)
    table = torch.zeros(layout.num_entries, 1, requires_grad=True)
    positions = torch.tensor([[0.40, 0.30]])  # in cell (3, 2), 0.7 and 0.9 towards the next
    for sample, vertex in ((0.0, (4, 3)), (0.65, (4, 3)), (0.8, (3, 3)), (0.95, (3, 2))):
        encoded = encode_grid_stochastic(positions, table, torch.tensor([[sample]]), layout=layout)
        (gradient,) = torch.autograd.grad(encoded, table, torch.tensor([[2.0]]))
        assert gradient.nonzero()[:, 0].tolist() == [vertex[0] + 9 * vertex[1]]
        assert gradient.sum() == 2.0


@pytest.mark.parametrize("interpolation", [Interpolation.LINEAR, Interpolation.SMOOTHSTEP])
def test_each_axis_is_picked_as_often_as_it_weighs(interpolation: Interpolation) -> None:
    layout = GridConfig(num_levels=1, base_resolution=9, features_per_level=1).layout(2)
    table = torch.zeros(layout.num_entries, 1, dtype=torch.float64, requires_grad=True)
    positions = torch.tensor([[0.40, 0.30]], dtype=torch.float64).expand(1000, 2)
    samples = ((torch.arange(1000) + 0.5) / 1000).unsqueeze(1)
    options = {"layout": layout, "interpolation": interpolation}
    upstream = torch.full((1000, 1), 1e-3, dtype=torch.float64)
    marginals = []
    for encoded in (
        encode_grid_stochastic(positions, table, samples, **options),
        encode_grid(positions, table, **options),
    ):
        (gradient,) = torch.autograd.grad(encoded, table, upstream)
        square = gradient[:81].view(9, 9)  # y x
        marginals.append((square.sum(dim=0), square.sum(dim=1)))
    for found, expected in zip(*marginals, strict=True):
        assert (found - expected).abs().max() < 2e-3


def test_the_module_draws_from_the_generator_given() -> None:
    grid = HashGrid(CONFIG, num_dims=2)
    positions = torch.rand(50, 2)
    gradients = []
    for seed in (1, 1, 2):
        encoded = grid(positions, generator=torch.Generator().manual_seed(seed))
        (gradient,) = torch.autograd.grad(encoded.sum(), grid.table)
        gradients.append(gradient)
    assert torch.equal(gradients[0], gradients[1])
    assert not torch.equal(gradients[0], gradients[2])


def test_samples_must_fit() -> None:
    layout = CONFIG.layout(2)
    table = torch.zeros(layout.num_entries, 2)
    with pytest.raises(ShapeError, match=r"shape \(5, 3\), got \(5, 2\)"):
        encode_grid_stochastic(torch.rand(5, 2), table, torch.rand(5, 2), layout=layout)
