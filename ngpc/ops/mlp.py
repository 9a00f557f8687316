"""Perceptron without biases, on whichever backend is asked for."""

from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from ngpc.backends.registry import AUTO, load_backend
from ngpc.config import Activation
from ngpc.errors import ShapeError, explain


def apply_mlp(
    inputs: Float[Tensor, "*_shape"],
    weights: Sequence[Float[Tensor, "*_shape"]],
    *,
    activation: Activation = Activation.RELU,
    output_activation: Activation = Activation.NONE,
    backend: str = AUTO,
) -> Float[Tensor, "p o"]:
    """Run a perceptron without biases. Any number of points, none included.

    Args:
        inputs: ``p i``, as wide as the first matrix. Nothing is padded here.
        weights: One matrix per layer; rows are outputs, columns inputs.
        activation: After every matrix but the last.
        output_activation: After the last.
        backend: A name out of ``ngpc backends``, or ``auto``.

    Raises:
        ShapeError: a matrix does not fit what comes before it.
    """
    if not weights:
        raise ShapeError(
            explain("apply_mlp", expected="at least one matrix", got="none", do="Add a layer.")
        )
    if inputs.ndim != 2:
        raise ShapeError(
            explain(
                "apply_mlp inputs",
                expected="shape (points, features)",
                got=f"{tuple(inputs.shape)}",
                do="Flatten leading axes.",
            )
        )
    width = inputs.shape[1]
    for layer_index, matrix in enumerate(weights):
        if matrix.ndim != 2 or matrix.shape[1] != width:
            raise ShapeError(
                explain(
                    f"apply_mlp layer {layer_index}",
                    expected=f"a matrix of {width} columns",
                    got=f"shape {tuple(matrix.shape)}",
                    do="Pad the inputs or correct the matrix.",
                )
            )
        width = matrix.shape[0]
    implementation = load_backend(backend, inputs.device.type)
    return implementation.apply_mlp(
        inputs, weights, activation=activation, output_activation=output_activation
    )
