"""Perceptron without biases."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from ngpc.config import Activation

SHARPNESS = 10.0  # of Squareplus and Softplus: they leave ReLU within about a tenth of zero


def apply_mlp(
    inputs: Float[Tensor, "p i"],
    weights: Sequence[Float[Tensor, "_rows _columns"]],
    *,
    activation: Activation,
    output_activation: Activation,
) -> Float[Tensor, "p o"]:
    """Multiply by each matrix in turn, with ``activation`` between and ``output_activation`` last.

    Args:
        inputs: As wide as the first matrix; padding has been added by the caller.
        weights: One matrix per layer, rows are outputs.
        activation: After every matrix but the last.
        output_activation: After the last.
    """
    hidden = inputs
    for matrix in weights[:-1]:
        hidden = activate(hidden @ matrix.T, activation)
    return activate(hidden @ weights[-1].T, output_activation)


def activate(values: Float[Tensor, "*shape"], activation: Activation) -> Float[Tensor, "*shape"]:
    """Apply one activation, element by element.

    Source:
        tiny-cuda-nn, ``common_device.h`` (``warp_activation``), ``K_ACT = 10``.
    """
    match activation:
        case Activation.NONE:
            return values
        case Activation.RELU:
            return functional.relu(values)
        case Activation.LEAKY_RELU:
            return functional.leaky_relu(values, negative_slope=0.01)
        case Activation.SILU:
            return functional.silu(values)
        case Activation.EXPONENTIAL:
            return torch.exp(values)
        case Activation.SINE:
            return torch.sin(values)
        case Activation.SIGMOID:
            return torch.sigmoid(values)
        case Activation.SQUAREPLUS:
            scaled = SHARPNESS * values
            return 0.5 * (scaled + torch.sqrt(scaled * scaled + 4.0)) / SHARPNESS
        case Activation.SOFTPLUS:
            # log(1 + exp(t)), written so that large t does not overflow.
            return -functional.logsigmoid(-SHARPNESS * values) / SHARPNESS
        case Activation.TANH:
            return torch.tanh(values)
