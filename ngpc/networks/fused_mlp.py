"""The small perceptron without biases that tiny-cuda-nn fuses into one kernel.

Padding, as in tiny-cuda-nn:

* The matrices are stored padded: inputs and outputs are rounded up to a multiple of 16, whatever
  the backend, so that a parameter vector means the same everywhere.
* Missing inputs are filled with ``padding_value``, which the encoding before it decides: 0 after
  a grid, where the padded columns do nothing; 1 after frequencies or bare inputs, where the
  padded columns are trained and act as a bias of the first layer.
* Padded outputs are never computed. Their rows keep their initial values.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from ngpc.backends.registry import AUTO
from ngpc.config import Activation, MlpConfig
from ngpc.errors import ShapeError, explain
from ngpc.ops.mlp import apply_mlp
from ngpc.shapes import layer_shapes


class FusedMLP(nn.Module):
    """A perceptron without biases; ``weights`` are its padded matrices, first layer first."""

    def __init__(
        self,
        config: MlpConfig,
        *,
        num_inputs: int,
        num_outputs: int,
        padding_value: float = 1.0,
        generator: torch.Generator | None = None,
        backend: str = AUTO,
    ) -> None:
        """Make matrices of random weights, drawn on the CPU from ``generator``."""
        super().__init__()
        if num_inputs < 1 or num_outputs < 1:
            raise ShapeError(
                explain(
                    "FusedMLP",
                    expected="at least one input and one output",
                    got=f"{num_inputs} and {num_outputs}",
                    do="Correct the sizes.",
                )
            )
        self.config = config
        self.backend = backend
        self.num_inputs = num_inputs
        self.num_outputs = num_outputs
        self.padding_value = padding_value
        shapes = layer_shapes(
            num_inputs=num_inputs,
            num_outputs=num_outputs,
            width=config.width,
            num_hidden_layers=config.num_hidden_layers,
        )
        self.weights = nn.ParameterList()
        for layer_index, (rows, columns) in enumerate(shapes):
            limit = _initial_range(config.activation, layer_index, rows, columns)
            matrix = torch.empty(rows, columns)
            self.weights.append(nn.Parameter(matrix.uniform_(-limit, limit, generator=generator)))

    def forward(self, inputs: Float[Tensor, "p i"]) -> Float[Tensor, "p o"]:
        """Run the perceptron in the precision of its weights."""
        # One by one: a slice of a ParameterList wraps its tensors into new parameters, which cuts
        # the path to a tensor that stands in for one (``functional_call``).
        weights = [self.weights[index] for index in range(len(self.weights))]
        first = weights[0]
        if inputs.ndim != 2 or inputs.shape[1] != self.num_inputs:
            raise ShapeError(
                explain(
                    "FusedMLP inputs",
                    expected=f"shape (points, {self.num_inputs})",
                    got=f"{tuple(inputs.shape)}",
                    do="Build the network for the encoding before it.",
                )
            )
        # The weights decide the precision, so that a half-precision network takes any encoding.
        inputs = inputs.to(first.dtype)
        matrices = [*weights[:-1], weights[-1][: self.num_outputs]]
        padded = functional.pad(
            inputs, (0, first.shape[1] - self.num_inputs), value=self.padding_value
        )
        return apply_mlp(
            padded,
            matrices,
            activation=self.config.activation,
            output_activation=self.config.output_activation,
            backend=self.backend,
        )


def _initial_range(activation: Activation, layer_index: int, rows: int, columns: int) -> float:
    """Half the width of the uniform distribution of a layer's first weights.

    Source:
        Glorot and Bengio; for sines Sitzmann et al., Implicit neural representations with
        periodic activation functions, section 3.2.
    """
    if activation is not Activation.SINE:
        return math.sqrt(6.0 / (rows + columns))
    if layer_index == 0:
        return 30.0 / columns
    return math.sqrt(6.0 / columns)
