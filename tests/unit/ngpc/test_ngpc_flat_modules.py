"""The modules of tiny-cuda-nn's Python package: constructor, vector of parameters, derivatives."""

from __future__ import annotations

import copy

import pytest
import torch

import ngpc as tcnn
from ngpc.config import GridConfig, MlpConfig, encoding_from_json
from ngpc.encodings import make_encoding
from ngpc.errors import CheckpointError, ShapeError
from ngpc.networks import FusedMLP
from tests.support.numerics import assert_agrees

GRID = {
    "otype": "HashGrid", "n_levels": 4, "n_features_per_level": 2, "log2_hashmap_size": 8,
    "base_resolution": 4, "per_level_scale": 1.5,
}  # fmt: skip
NETWORK = {"otype": "FullyFusedMLP", "n_neurons": 16, "n_hidden_layers": 2}
COMPOSITE = {
    "otype": "Composite",
    "nested": [
        {**GRID, "n_dims_to_encode": 3},
        {"otype": "SphericalHarmonics", "degree": 2, "n_dims_to_encode": 3},
        {**GRID, "n_levels": 1},
    ],
}


def test_the_vector_is_matrices_first_then_tables() -> None:
    module = tcnn.NetworkWithInputEncoding(3, 5, GRID, NETWORK)
    entries = GridConfig(
        num_levels=4, log2_table_size=8, base_resolution=4, per_level_scale=1.5
    ).layout(3).num_entries  # fmt: skip
    assert module.params.shape == (16 * 16 + 16 * 16 + 16 * 16 + 2 * entries,)
    assert list(module.state_dict()) == ["params"]
    pieces = module.split(module.params.detach())
    assert [tuple(piece.shape) for piece in pieces.values()] == [
        (16, 16), (16, 16), (16, 16), (entries, 2),
    ]  # fmt: skip
    assert torch.equal(pieces["network.weights.1"].flatten(), module.params.detach()[256:512])
    assert torch.equal(pieces["encoding.table"].flatten(), module.params.detach()[768:])


def test_it_computes_what_its_parts_compute() -> None:
    module = tcnn.NetworkWithInputEncoding(3, 5, GRID, NETWORK, 7)
    pieces = module.split(module.params.detach())
    encoding = make_encoding(encoding_from_json(GRID), num_dims=3)
    network = FusedMLP(MlpConfig(width=16, num_hidden_layers=2), num_inputs=8, num_outputs=5,
                       padding_value=0.0)  # fmt: skip
    with torch.no_grad():
        encoding.table.copy_(pieces["encoding.table"])
        for index, matrix in enumerate(network.weights):
            matrix.copy_(pieces[f"network.weights.{index}"])
    x = torch.rand(11, 3)
    assert torch.equal(module(x), network(encoding(x)))


def test_a_network_alone_reads_ones_where_inputs_are_padded() -> None:
    module = tcnn.Network(3, 2, NETWORK)
    first, second, last = module.split(module.params.detach()).values()
    x = torch.rand(6, 3)
    hidden = torch.relu(x @ first[:, :3].T + first[:, 3:].sum(dim=1))
    expected = torch.relu(hidden @ second.T) @ last[:2].T
    torch.testing.assert_close(module(x), expected)


def test_harmonics_are_padded_in_front() -> None:
    spec = {"otype": "SphericalHarmonics", "degree": 2}
    module = tcnn.NetworkWithInputEncoding(3, 2, spec, {**NETWORK, "n_hidden_layers": 1})
    first, last = module.split(module.params.detach()).values()
    x = torch.rand(6, 3)
    encoded = tcnn.Encoding(3, spec)(x)
    hidden = torch.relu(first[:, :12].sum(dim=1) + encoded @ first[:, 12:].T)
    torch.testing.assert_close(module(x), hidden @ last[:2].T)


def test_an_encoding_alone_is_not_padded() -> None:
    module = tcnn.Encoding(n_input_dims=3, encoding_config=GRID, dtype=torch.float16)
    assert module.n_output_dims == 8
    encoded = module(torch.rand(4, 3))
    assert encoded.shape == (4, 8)
    assert encoded.dtype is module.dtype is torch.float16
    assert module.params.dtype is torch.float32
    assert module.loss_scale == 128.0


def test_parts_of_a_composite_follow_each_other() -> None:
    module = tcnn.Encoding(8, COMPOSITE)
    assert module.n_output_dims == 8 + 4 + 2
    shapes = [tuple(piece.shape) for piece in module.split(module.params).values()]
    assert len(shapes) == 2
    assert module.params.numel() == sum(rows * columns for rows, columns in shapes)


def test_the_loss_scale_keeps_small_gradients_and_is_divided_out() -> None:
    gradients = {}
    for dtype in (torch.float16, torch.float32):
        linear = {**NETWORK, "activation": "None"}  # whose slope does not jump with a rounding
        module = tcnn.NetworkWithInputEncoding(3, 4, GRID, linear, dtype=dtype)
        with torch.no_grad():
            module.params.normal_(0.0, 0.3, generator=torch.Generator().manual_seed(2))
        x = torch.rand(64, 3, generator=torch.Generator().manual_seed(1)).requires_grad_()
        (2.0**-20 * module(x).float()).sum().backward()
        gradients[dtype] = (module.params.grad, x.grad)
    for half, single in zip(*gradients.values(), strict=True):
        assert_agrees(half, single, rms=0.005)


@pytest.mark.parametrize("num_points", [0, 1, 257])
def test_any_number_of_points_and_any_stride(num_points: int) -> None:
    module = tcnn.NetworkWithInputEncoding(3, 4, GRID, NETWORK)
    x = torch.rand(3, num_points).T
    outputs = module(x)
    assert outputs.shape == (num_points, 4)
    outputs.sum().backward()
    assert torch.isfinite(module.params.grad).all()
    assert torch.equal(outputs, module(x.contiguous()))


@pytest.mark.parametrize("activation", ["Softplus", "Squareplus", "Sine"])
def test_both_derivatives_of_a_whole_module(activation: str) -> None:
    network = {"otype": "CutlassMLP", "n_neurons": 4, "n_hidden_layers": 1,
               "activation": activation}  # fmt: skip
    grid = {**GRID, "n_levels": 2, "log2_hashmap_size": 3, "base_resolution": 2,
            "interpolation": "Smoothstep"}  # fmt: skip
    module = tcnn.NetworkWithInputEncoding(2, 1, grid, network).double()
    with torch.no_grad():
        module.params.normal_(generator=torch.Generator().manual_seed(2))
    x = (0.15 + 0.2 * torch.rand(2, 2, dtype=torch.float64)).requires_grad_()

    def evaluate(x: torch.Tensor, params: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(module, {"params": params}, (x,))

    params = module.params.detach().clone().requires_grad_()
    tight = {"rtol": 1e-4, "atol": 1e-6}
    assert torch.autograd.gradcheck(evaluate, (x, params), **tight)
    assert torch.autograd.gradgradcheck(evaluate, (x, params), **tight)


@pytest.mark.parametrize("dtype", [None, torch.float16])
def test_an_eikonal_loss_trains_the_whole_module(dtype: torch.dtype | None) -> None:
    network = {**NETWORK, "activation": "Softplus"}
    module = tcnn.NetworkWithInputEncoding(3, 1, GRID, network, dtype=dtype)
    x = torch.rand(32, 3, requires_grad=True)
    distance = module(x)
    (slope,) = torch.autograd.grad(distance.float().sum(), x, create_graph=True)
    ((slope.norm(dim=1) - 1) ** 2).mean().backward()
    pieces = module.split(module.params.grad)
    assert all(piece.abs().max() > 0 for piece in pieces.values())
    assert torch.isfinite(module.params.grad).all()


def test_a_seed_makes_the_parameters() -> None:
    one, same, other = (tcnn.Encoding(3, GRID, seed) for seed in (5, 5, 6))
    assert torch.equal(one.params, same.params)
    assert not torch.equal(one.params, other.params)


def test_copies_state_dictionaries_and_precision_follow_the_vector() -> None:
    module = tcnn.NetworkWithInputEncoding(3, 4, GRID, NETWORK)
    other = tcnn.NetworkWithInputEncoding(3, 4, GRID, NETWORK, 99)
    other.load_state_dict(module.state_dict())
    x = torch.rand(5, 3)
    assert torch.equal(module(x), other(x))
    double = copy.deepcopy(module).double()
    assert double(x.double()).dtype is torch.float64
    assert_agrees(module(x), double(x.double()), rms=1e-5)


def test_mistakes_are_named() -> None:
    module = tcnn.Network(3, 2, NETWORK)
    with pytest.raises(ShapeError, match=r"Network: expected shape \(points, 3\), got \(4, 2\)"):
        module(torch.rand(4, 2))
    with pytest.raises(CheckpointError, match=r"a vector of 768 numbers, got shape \(767,\)"):
        module.load_params(torch.zeros(767))


def test_housekeeping_functions_exist() -> None:
    tcnn.free_temporary_memory()
    assert tcnn.supports_jit_fusion() is False
