"""Frequency encoding and perceptron against textbook forms in Python's own numbers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest
import torch

from ngpc.backends.reference.mlp import activate
from ngpc.config import Activation
from ngpc.ops import apply_mlp, encode_frequency
from tests.support.numerics import assert_agrees

EPS64 = torch.finfo(torch.float64).eps
EPS32 = torch.finfo(torch.float32).eps
TIGHT = {"rtol": 1e-4, "atol": 1e-6}  # torch's default would pass a gradient off by 0.1 %


def textbook_frequency(position: list[float], num_frequencies: int) -> list[float]:
    features = []
    for x in position:
        for octave in range(num_frequencies):
            angle = math.pi * 2**octave * x
            features += [math.sin(angle), math.cos(angle)]
    return features


def test_frequency_matches_the_textbook_form() -> None:
    positions = 4 * torch.rand(40, 3, dtype=torch.float64) - 2
    expected = [textbook_frequency(position, 8) for position in positions.tolist()]
    encoded = encode_frequency(positions, num_frequencies=8)
    assert_agrees(encoded, expected, rms=2**8 * EPS64)  # the textbook form's own angle error


def test_high_octaves_keep_their_digits_in_single_precision() -> None:
    positions = torch.rand(200, 2)
    exact = encode_frequency(positions.double(), num_frequencies=12)
    assert_agrees(encode_frequency(positions, num_frequencies=12), exact, rms=2 * EPS32)
    octaves = 2.0 ** torch.arange(12)
    textbook = torch.sin(math.pi * positions.unsqueeze(2) * octaves)
    with pytest.raises(AssertionError, match="relative RMS"):
        assert_agrees(textbook, exact.view(200, 2, 12, 2)[..., 0], rms=2 * EPS32)


def test_both_derivatives_of_the_frequencies() -> None:
    positions = (0.1 + 0.2 * torch.rand(4, 2, dtype=torch.float64)).requires_grad_()

    def encode(positions: torch.Tensor) -> torch.Tensor:
        return encode_frequency(positions, num_frequencies=3)

    assert torch.autograd.gradcheck(encode, (positions,), **TIGHT)
    assert torch.autograd.gradgradcheck(encode, (positions,), **TIGHT)


@pytest.mark.parametrize("num_points", [0, 1, 13])
def test_frequency_of_any_number_of_points(num_points: int) -> None:
    positions = torch.rand(2, num_points).T
    encoded = encode_frequency(positions, num_frequencies=5)
    assert encoded.shape == (num_points, 20)
    assert torch.equal(encoded, encode_frequency(positions.contiguous(), num_frequencies=5))


TEXTBOOK: dict[Activation, Callable[[float], float]] = {
    Activation.NONE: lambda x: x,
    Activation.RELU: lambda x: max(x, 0.0),
    Activation.LEAKY_RELU: lambda x: x if x > 0 else 0.01 * x,
    Activation.SILU: lambda x: x / (1 + math.exp(-x)),
    Activation.EXPONENTIAL: math.exp,
    Activation.SINE: math.sin,
    Activation.SIGMOID: lambda x: 1 / (1 + math.exp(-x)),
    Activation.SQUAREPLUS: lambda x: (10 * x + math.sqrt((10 * x) ** 2 + 4)) / 2 / 10,
    Activation.SOFTPLUS: lambda x: math.log(math.exp(10 * x) + 1) / 10,
    Activation.TANH: math.tanh,
}


@pytest.mark.parametrize("activation", list(Activation))
def test_every_activation_matches_its_formula(activation: Activation) -> None:
    values = torch.linspace(-3, 3, 61, dtype=torch.float64)
    expected = [TEXTBOOK[activation](x) for x in values.tolist()]
    assert_agrees(activate(values, activation), expected, rms=4 * EPS64)


def test_softplus_does_not_overflow() -> None:
    assert activate(torch.tensor([1000.0]), Activation.SOFTPLUS).item() == 1000.0


def scalar_mlp(
    inputs: list[float], weights: list[list[list[float]]], activation: Activation
) -> list[float]:
    for layer, matrix in enumerate(weights):
        inputs = [sum(w * x for w, x in zip(row, inputs, strict=True)) for row in matrix]
        if layer < len(weights) - 1:
            inputs = [TEXTBOOK[activation](x) for x in inputs]
    return inputs


def random_layers(*widths: int) -> list[torch.Tensor]:
    return [
        torch.randn(rows, columns, dtype=torch.float64)
        for columns, rows in itertools.pairwise(widths)
    ]


@pytest.mark.parametrize("num_points", [0, 1, 11])
def test_perceptron_equals_the_scalar_loop(num_points: int) -> None:
    weights = random_layers(5, 7, 6, 3)
    inputs = torch.randn(num_points, 5, dtype=torch.float64)
    outputs = apply_mlp(inputs, weights)
    assert outputs.shape == (num_points, 3)
    lists = [matrix.tolist() for matrix in weights]
    for point in range(num_points):
        expected = scalar_mlp(inputs[point].tolist(), lists, Activation.RELU)
        assert_agrees(outputs[point], expected, rms=8 * EPS64)


def test_output_activation_comes_last_and_only_last() -> None:
    weights, inputs = random_layers(4, 8, 2), torch.randn(6, 4, dtype=torch.float64)
    plain = apply_mlp(inputs, weights)
    squashed = apply_mlp(inputs, weights, output_activation=Activation.SIGMOID)
    assert torch.equal(squashed, torch.sigmoid(plain))


@pytest.mark.parametrize(
    "activation", [Activation.SOFTPLUS, Activation.SINE, Activation.SQUAREPLUS, Activation.SILU]
)
def test_both_derivatives_of_the_perceptron(activation: Activation) -> None:
    weights = [matrix.requires_grad_() for matrix in random_layers(3, 4, 2)]
    inputs = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)

    def run(inputs: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        return apply_mlp(inputs, weights, activation=activation)

    assert torch.autograd.gradcheck(run, (inputs, *weights), **TIGHT)
    assert torch.autograd.gradgradcheck(run, (inputs, *weights), **TIGHT)


def test_strided_matrices_give_the_same_numbers() -> None:
    weights, inputs = random_layers(4, 8, 2), torch.randn(6, 4, dtype=torch.float64)
    strided = [matrix.T.contiguous().T for matrix in weights]
    assert not strided[0].is_contiguous()
    assert_agrees(
        apply_mlp(inputs.T.contiguous().T, strided), apply_mlp(inputs, weights), rms=4 * EPS64
    )
