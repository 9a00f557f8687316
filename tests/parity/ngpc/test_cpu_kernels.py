"""Compiled kernels against the definition: values and derivatives, error judged in float64."""

from __future__ import annotations

import functools

import pytest
import torch

from ngpc.backends import reference
from ngpc.backends.compiled import instruction_sets, library_path
from ngpc.config import Activation, Interpolation
from ngpc.shapes import GridKind
from tests.support import kernels
from tests.support.kernels import assert_close_enough, grid_runner, mlp_runner

if library_path() is None:
    pytest.skip("needs compiled kernels: python -m ngpc.backends.compiled", allow_module_level=True)

from ngpc.backends import cpu as backend
from ngpc.backends.cpu import hash_grid, library, mlp

# More points than a vector of any instruction set holds, and no multiple of it.
grid_case = functools.partial(kernels.grid_case, num_points=77)
mlp_case = functools.partial(kernels.mlp_case, num_points=205)


def runnable_instructions() -> list[str]:
    """The instruction sets that this processor has: the widest, and those it contains."""
    known = list(instruction_sets())
    return known[: known.index(library.best_instructions()) + 1]


@pytest.fixture(params=runnable_instructions(), autouse=True)
def _instructions(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "best_instructions", lambda: request.param)


def derivatives(run, inputs, upstream, *, is_smooth: bool) -> list[torch.Tensor]:
    """Value, gradients, and where there are any the gradients of gradients, by every input."""
    leaves = [tensor.detach().clone().requires_grad_() for tensor in inputs]
    outputs = run(*leaves)
    upstream = upstream.to(outputs.dtype).requires_grad_()
    first = torch.autograd.grad(outputs, leaves, upstream, create_graph=is_smooth)
    if not is_smooth:
        return [outputs.detach(), *first]
    generator = torch.Generator().manual_seed(1)
    total = sum(
        (gradient * torch.randn(gradient.shape, generator=generator).to(gradient.dtype)).sum()
        for gradient in first
    )
    second = torch.autograd.grad(total, [*leaves, upstream])
    return [outputs.detach(), *(gradient.detach() for gradient in first), *second]


def compare(run, inputs, dtype: torch.dtype, *, is_smooth: bool = True) -> None:
    """Run both backends on the same numbers, and the definition in double."""
    generator = torch.Generator().manual_seed(0)
    upstream = torch.randn(run(reference, *inputs).shape, generator=generator).to(dtype)
    found = derivatives(lambda *t: run(backend, *t), inputs, upstream, is_smooth=is_smooth)
    own = derivatives(lambda *t: run(reference, *t), inputs, upstream, is_smooth=is_smooth)
    doubles = [tensor.double() for tensor in inputs]
    truth = derivatives(
        lambda *t: run(reference, *t), doubles, upstream.double(), is_smooth=is_smooth
    )
    assert_close_enough(found, own, truth, dtype)


# ------------------------------------------------------------------------------------------- grid


@pytest.mark.parametrize("interpolation", list(Interpolation))
@pytest.mark.parametrize("num_dims", [2, 3, 4])
@pytest.mark.parametrize("features", [1, 2, 4, 8])
def test_grids_of_every_shape(num_dims: int, features: int, interpolation: Interpolation) -> None:
    layout, positions, table = grid_case(num_dims=num_dims, features=features)
    assert layout.levels[-1].is_hashed
    compare(grid_runner(layout, interpolation), [positions, table], torch.float32)


@pytest.mark.parametrize("kind", ["dense", "tiled"])
def test_grids_of_every_kind(kind: str) -> None:
    layout, positions, table = grid_case(kind)
    compare(grid_runner(layout, Interpolation.SMOOTHSTEP), [positions, table], torch.float32)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_grids_of_every_precision(dtype: torch.dtype) -> None:
    layout, positions, table = grid_case(dtype=dtype)
    run = grid_runner(layout, Interpolation.LINEAR)
    compare(run, [positions, table], dtype, is_smooth=False)


@pytest.mark.parametrize("num_points", [0, 1, 7, 31, 32, 33])
def test_grids_of_awkward_sizes_and_strides(num_points: int) -> None:
    layout, _, table = grid_case(num_dims=2)
    positions = torch.rand(2, num_points).T
    run = grid_runner(layout, Interpolation.SMOOTHSTEP)
    results = []
    for package, x, t in (
        (backend, positions, table.T.contiguous().T),
        (reference, positions.contiguous(), table),
    ):
        x = x.clone(memory_format=torch.preserve_format).requires_grad_()
        t = t.clone(memory_format=torch.preserve_format).requires_grad_()
        encoded = run(package, x, t)
        assert encoded.shape == (num_points, layout.num_features)
        results.append([encoded, *torch.autograd.grad(encoded.square().sum(), [x, t])])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)


def test_positions_outside_the_cube_wrap_as_in_the_definition() -> None:
    positions = torch.tensor(
        [[0.0, 1.0, 0.5], [-0.3, 1.7, 2.0], [-2.0, -0.01, 9.0], [-1e5, 3e4, 1e6]]
    )
    for kind in GridKind:
        layout, _, table = grid_case(kind)
        run = grid_runner(layout, Interpolation.LINEAR)
        torch.testing.assert_close(run(backend, positions, table), run(reference, positions, table))


def test_a_position_that_is_no_number_gives_none_and_touches_nothing_else() -> None:
    for interpolation in Interpolation:
        layout, positions, table = grid_case("tiled")
        run = grid_runner(layout, interpolation)
        expected = run(backend, positions, table)
        positions[5, 1] = float("nan")
        positions[6] = float("inf")
        found = run(backend, positions, table)
        assert found[5].isnan().all()
        torch.testing.assert_close(found[:5], expected[:5])
        torch.testing.assert_close(found[7:], expected[7:])


def test_more_points_than_a_tile_and_any_number_of_threads_give_the_same_bits() -> None:
    layout, positions, table = grid_case(num_points=5003)
    upstream = torch.randn(5003, layout.num_features)
    results = []
    for num_threads in (1, 1, 2, 3):
        torch.set_num_threads(num_threads)
        try:
            x, t = positions.clone().requires_grad_(), table.clone().requires_grad_()
            encoded = grid_runner(layout, Interpolation.SMOOTHSTEP)(backend, x, t)
            results.append([encoded, *torch.autograd.grad(encoded, [x, t], upstream)])
        finally:
            torch.set_num_threads(1)
    for again in results[1:]:
        for one, other in zip(results[0], again, strict=True):
            assert torch.equal(one, other)


def test_third_derivatives_of_a_grid() -> None:
    layout, positions, table = grid_case(num_points=5)
    results = []
    for package in (backend, reference):
        x, t = positions.clone().requires_grad_(), table.clone().requires_grad_()
        value = grid_runner(layout, Interpolation.SMOOTHSTEP)(package, x, t).sum()
        for _ in range(2):
            (slope,) = torch.autograd.grad(value, x, create_graph=True)
            value = slope.square().sum()
        results.append(torch.autograd.grad(value, [x, t]))
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-3 * expected.abs().max())


# ------------------------------------------------------------------------------------ planted bugs


def test_an_entry_off_by_a_thousandth_is_caught() -> None:
    layout, positions, table = grid_case()
    run = grid_runner(layout, Interpolation.LINEAR)
    with pytest.raises(AssertionError, match="tensor 0: relative RMS"):
        compare(
            lambda package, x, t: run(package, x, 1.001 * t if package is backend else t),
            [positions, table],
            torch.float32,
        )


def test_a_forgotten_direction_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    real = hash_grid.call

    def forgetful(name: str, grid, positions, directions, *rest, num_points: int) -> None:
        real(name, grid, positions, None, *rest, num_points=num_points)

    layout, positions, table = grid_case()
    run = grid_runner(layout, Interpolation.SMOOTHSTEP)
    monkeypatch.setattr(hash_grid, "call", forgetful)
    with pytest.raises(AssertionError, match="tensor 3: relative RMS"):
        compare(run, [positions, table], torch.float32)


# -------------------------------------------------------------------------------------- perceptron


@pytest.mark.parametrize("activation", list(Activation))
def test_perceptrons_of_every_activation(activation: Activation) -> None:
    # Small, so that exponentials of exponentials stay in range of an honest comparison.
    small = [0.2 * tensor for tensor in mlp_case(16, 16, 16, 3)]
    compare(mlp_runner(activation, activation), small, torch.float32, is_smooth=False)


@pytest.mark.parametrize("widths", [(32, 64, 64, 16), (48, 40, 24, 5), (3, 3), (5, 130, 17, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_perceptrons_of_any_shape(widths: tuple[int, ...], dtype: torch.dtype) -> None:
    run = mlp_runner(Activation.SOFTPLUS)
    compare(run, mlp_case(*widths, dtype=dtype), dtype, is_smooth=False)


def test_second_derivatives_of_a_perceptron() -> None:
    compare(mlp_runner(Activation.SOFTPLUS, Activation.TANH), mlp_case(16, 16, 1), torch.float32)


@pytest.mark.parametrize("num_points", [0, 1, 7, 95, 96, 97])
def test_perceptrons_of_awkward_sizes_and_strides(num_points: int) -> None:
    run = mlp_runner(Activation.RELU, Activation.SIGMOID)
    results = []
    for package in (backend, reference):
        torch.manual_seed(1)
        leaves = mlp_case(16, 16, 4, num_points=num_points)
        if package is backend:
            leaves = [tensor.T.contiguous().T for tensor in leaves]
        leaves = [tensor.requires_grad_() for tensor in leaves]
        found = run(package, *leaves)
        assert found.shape == (num_points, 4)
        results.append([found, *torch.autograd.grad(found.square().sum(), leaves)])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)


def test_only_what_needs_a_gradient_gets_one() -> None:
    inputs, first, second = mlp_case(16, 16, 4)
    run = mlp_runner(Activation.RELU)
    everything = [inputs, first, second]
    for tensor in everything:
        tensor.requires_grad_()
    whole = torch.autograd.grad(run(backend, *everything).sum(), everything)
    for wanted, expected in zip(everything, whole, strict=True):
        leaves = [tensor.detach().requires_grad_(tensor is wanted) for tensor in everything]
        (leaf,) = [tensor for tensor in leaves if tensor.requires_grad]
        run(backend, *leaves).sum().backward()
        assert torch.equal(leaf.grad, expected)


def test_a_perceptron_gives_the_same_bits_on_any_number_of_threads() -> None:
    leaves = [tensor.requires_grad_() for tensor in mlp_case(32, 64, 64, 16, num_points=10007)]
    results = []
    for num_threads in (1, 1, 2, 3):
        torch.set_num_threads(num_threads)
        try:
            outputs = mlp_runner(Activation.RELU)(backend, *leaves)
            results.append([outputs, *torch.autograd.grad(outputs.square().sum(), leaves)])
        finally:
            torch.set_num_threads(1)
    for again in results[1:]:
        for one, other in zip(results[0], again, strict=True):
            assert torch.equal(one, other)


def test_a_number_that_is_none_stays_one() -> None:
    inputs, *weights = mlp_case(16, 16, 4)
    inputs[3, 3] = float("nan")
    found = mlp_runner(Activation.RELU)(backend, inputs, *weights)
    assert found[3].isnan().all()
    assert found[[0, 1, 2, 4, 5]].isfinite().all()


def test_a_wrong_activation_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(mlp.ACTIVATION_CODES, Activation.SIGMOID, 9)
    with pytest.raises(AssertionError, match="tensor 0: relative RMS"):
        compare(mlp_runner(Activation.SIGMOID), mlp_case(16, 16, 2), torch.float32, is_smooth=False)
