"""Triton kernels, run by its interpreter, against the definition: error judged in float64."""

from __future__ import annotations

import pytest
import torch

from ngpc.backends import reference
from ngpc.config import Activation, Interpolation
from ngpc.errors import ConfigError
from tests.support.kernels import assert_close_enough, grid_case, grid_runner, mlp_case, mlp_runner

pytest.importorskip("triton", reason="needs triton, an extra: pip install '.[triton]'")

from ngpc.backends import triton as backend
from ngpc.backends.triton import grid_kernels, mlp_kernels


def derivatives(function, inputs: list[torch.Tensor], upstream: torch.Tensor):
    """The value and the gradients with respect to every input."""
    leaves = [tensor.detach().clone().requires_grad_() for tensor in inputs]
    outputs = function(*leaves)
    return [outputs, *torch.autograd.grad(outputs, leaves, upstream.to(outputs.dtype))]


def compare(run, inputs: list[torch.Tensor], dtype: torch.dtype) -> None:
    """Run both backends on the same numbers, and the definition in double."""
    upstream = torch.randn(run(reference, *inputs).shape).to(dtype)
    found = derivatives(lambda *leaves: run(backend, *leaves), inputs, upstream)
    own = derivatives(lambda *leaves: run(reference, *leaves), inputs, upstream)
    doubles = [tensor.double() for tensor in inputs]
    truth = derivatives(lambda *leaves: run(reference, *leaves), doubles, upstream.double())
    assert_close_enough(found, own, truth, dtype)


# ------------------------------------------------------------------------------------------- grid


@pytest.mark.parametrize("interpolation", list(Interpolation))
@pytest.mark.parametrize("num_dims", [2, 3, 4])
def test_grids_of_every_dimension(num_dims: int, interpolation: Interpolation) -> None:
    layout, positions, table = grid_case(num_dims=num_dims)
    assert layout.levels[-1].is_hashed
    compare(grid_runner(layout, interpolation), [positions, table], torch.float32)


@pytest.mark.parametrize("kind", ["dense", "tiled"])
def test_grids_of_every_kind(kind: str) -> None:
    layout, positions, table = grid_case(kind)
    compare(grid_runner(layout, Interpolation.LINEAR), [positions, table], torch.float32)


@pytest.mark.parametrize("features", [1, 4, 8])
def test_grids_of_every_number_of_features_in_half_precision(features: int) -> None:
    layout, positions, table = grid_case(features=features, dtype=torch.float16)
    compare(grid_runner(layout, Interpolation.LINEAR), [positions, table], torch.float16)


@pytest.mark.parametrize("num_points", [0, 1, 255, 257])
def test_grids_of_awkward_sizes_and_strides(num_points: int) -> None:
    layout, _, table = grid_case(num_dims=2)
    positions = torch.rand(2, num_points).T
    results = []
    for x, t in ((positions, table), (positions.contiguous(), table.T.contiguous().T)):
        x, t = x.requires_grad_(), t.clone(memory_format=torch.preserve_format).requires_grad_()
        encoded = grid_runner(layout, Interpolation.SMOOTHSTEP)(backend, x, t)
        assert encoded.shape == (num_points, layout.num_features)
        results.append([encoded, *torch.autograd.grad(encoded.sum(), [x, t])])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)


def test_positions_outside_the_cube_wrap_as_in_the_definition() -> None:
    layout, _, table = grid_case()
    positions = torch.tensor([[0.0, 1.0, 0.5], [-0.3, 1.7, 2.0], [-2.0, -0.01, 9.0]])
    run = grid_runner(layout, Interpolation.LINEAR)
    torch.testing.assert_close(run(backend, positions, table), run(reference, positions, table))


def test_an_eikonal_term_reaches_the_table() -> None:
    layout, positions, table = grid_case()
    gradients = []
    for package in (backend, reference):
        x, t = positions.clone().requires_grad_(), table.clone().requires_grad_()
        distance = grid_runner(layout, Interpolation.SMOOTHSTEP)(package, x, t).sum(dim=1)
        (slope,) = torch.autograd.grad(distance.sum(), x, create_graph=True)
        gradients.append(torch.autograd.grad(((slope.norm(dim=1) - 1) ** 2).mean(), [x, t]))
    for found, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(found, expected)


# -------------------------------------------------------------------------------------- perceptron


@pytest.mark.parametrize("activation", list(Activation))
def test_perceptrons_of_every_activation(activation: Activation) -> None:
    inputs, *weights = mlp_case(16, 16, 16, 3)
    # Small, so that exponentials of exponentials stay in range of an honest comparison.
    small = [0.2 * tensor for tensor in (inputs, *weights)]
    compare(mlp_runner(activation, activation), small, torch.float32)


@pytest.mark.parametrize("widths", [(32, 64, 64, 16), (48, 40, 24, 5), (16, 3), (32, 16, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_perceptrons_of_any_shape(widths: tuple[int, ...], dtype: torch.dtype) -> None:
    compare(mlp_runner(Activation.SOFTPLUS, Activation.NONE), mlp_case(*widths, dtype=dtype), dtype)


@pytest.mark.parametrize("num_points", [0, 1, 31, 65])
def test_perceptrons_of_awkward_sizes_and_strides(num_points: int) -> None:
    inputs, *weights = mlp_case(16, 16, 4, num_points=num_points)
    run = mlp_runner(Activation.RELU, Activation.SIGMOID)
    strided = [tensor.T.contiguous().T.requires_grad_() for tensor in (inputs, *weights)]
    found = run(backend, *strided)
    assert found.shape == (num_points, 4)
    torch.testing.assert_close(found, run(reference, inputs, *weights))
    gradients = torch.autograd.grad(found.sum(), strided)
    assert all(torch.isfinite(gradient).all() for gradient in gradients)


def test_second_derivatives_of_a_perceptron() -> None:
    run = mlp_runner(Activation.SOFTPLUS, Activation.NONE)
    inputs = mlp_case(16, 16, 1)
    gradients = []
    for package in (backend, reference):
        leaves = [tensor.clone().requires_grad_() for tensor in inputs]
        (slope,) = torch.autograd.grad(run(package, *leaves).sum(), leaves[0], create_graph=True)
        gradients.append(torch.autograd.grad((slope**2).sum(), leaves))
    for found, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(found, expected)


def test_wide_perceptrons_run_matrix_by_matrix() -> None:
    inputs = mlp_case(16, 200, 3)
    run = mlp_runner(Activation.RELU, Activation.NONE)
    assert torch.equal(run(backend, *inputs), run(reference, *inputs))


def test_double_precision_is_refused() -> None:
    layout, positions, table = grid_case()
    with pytest.raises(ConfigError, match=r"'triton', encode_grid: expected float32.*got float64"):
        grid_runner(layout, Interpolation.LINEAR)(backend, positions.double(), table)
    inputs, *weights = mlp_case(16, 4)
    run = mlp_runner(Activation.RELU, Activation.NONE)
    with pytest.raises(ConfigError, match=r"one precision, got .*float16"):
        run(backend, inputs.half(), *weights)


# ------------------------------------------------------------------------------------ planted bugs


def test_a_wrong_derivative_of_the_weights_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    layout, positions, table = grid_case()
    monkeypatch.setattr(grid_kernels, "upper_weight_slope", grid_kernels.upper_weight)
    with pytest.raises(AssertionError, match="tensor 1: relative RMS"):
        compare(grid_runner(layout, Interpolation.LINEAR), [positions, table], torch.float32)


def test_a_wrong_derivative_of_an_activation_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlp_kernels, "slope", mlp_kernels.activate)
    with pytest.raises(AssertionError, match="tensor 1: relative RMS"):
        compare(mlp_runner(Activation.SIGMOID, Activation.NONE), mlp_case(16, 16, 2), torch.float32)


def test_an_entry_off_by_a_thousandth_is_caught() -> None:
    layout, positions, table = grid_case()
    run = grid_runner(layout, Interpolation.LINEAR)
    found = run(backend, positions, 1.001 * table)
    own = run(reference, positions, table)
    truth = run(reference, positions.double(), table.double())
    with pytest.raises(AssertionError, match="relative RMS"):
        assert_close_enough([found], [own], [truth], torch.float32)
