"""Perceptron without biases by compiled kernels."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ngpc.backends import reference
from ngpc.backends.cpu.library import call
from ngpc.backends.recompute import gradients_by_definition
from ngpc.config import Activation

MAX_LAYERS = 64
ACTIVATION_CODES = {activation: code for code, activation in enumerate(Activation)}


def apply_mlp(
    inputs: Float[Tensor, "p i"],
    weights: Sequence[Float[Tensor, "_rows _columns"]],
    *,
    activation: Activation,
    output_activation: Activation,
) -> Float[Tensor, "p o"]:
    """Multiply by each matrix in turn, with ``activation`` between and ``output_activation`` last.

    All layers are computed in float32 before a tile of points leaves the cache, and again for the
    gradients. Half precision is converted first and rounded once, at the end; double precision and
    perceptrons of more than 64 matrices run through the definition, and so do second derivatives.
    """
    dtypes = {tensor.dtype for tensor in (inputs, *weights)}
    if dtypes != {inputs.dtype} or torch.float64 in dtypes or len(weights) > MAX_LAYERS:
        return reference.apply_mlp(
            inputs, weights, activation=activation, output_activation=output_activation
        )
    outputs: Tensor = _ApplyMlp.apply(
        inputs.float(), activation, output_activation, *(matrix.float() for matrix in weights)
    )
    return outputs.to(inputs.dtype)


class _Struct(ctypes.Structure):
    """``NgpcMlp`` of ``src/mlp.cpp``."""

    _fields_ = (
        ("num_layers", ctypes.c_int32),
        ("activation", ctypes.c_int32),
        ("output_activation", ctypes.c_int32),
        ("widths", ctypes.c_void_p),
        ("matrices", ctypes.c_void_p),
    )


class _Perceptron:
    """Matrices as the kernels read them."""

    def __init__(
        self, weights: Sequence[Tensor], activation: Activation, output_activation: Activation
    ) -> None:
        self._matrices = [matrix.contiguous() for matrix in weights]
        widths = [weights[0].shape[1], *(len(matrix) for matrix in weights)]
        self._widths = (ctypes.c_int64 * len(widths))(*widths)
        self._pointers = pointers(self._matrices)
        self.struct = _Struct(
            len(weights), ACTIVATION_CODES[activation], ACTIVATION_CODES[output_activation],
            ctypes.addressof(self._widths), ctypes.addressof(self._pointers),
        )  # fmt: skip


class _ApplyMlp(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        activation: Activation,
        output_activation: Activation,
        *weights: Tensor,
    ) -> Tensor:
        ctx.activations = (activation, output_activation)
        ctx.save_for_backward(inputs, *weights)
        outputs = inputs.new_empty((len(inputs), len(weights[-1])))
        if outputs.numel():
            perceptron = _Perceptron(weights, activation, output_activation)
            call("ngpc_mlp_values", perceptron.struct, inputs.contiguous(), outputs,
                 num_points=len(inputs))  # fmt: skip
        return outputs

    @staticmethod
    def backward(ctx: Any, *upstreams: Tensor) -> tuple[Tensor | None, ...]:
        inputs, *weights = ctx.saved_tensors
        activation, output_activation = ctx.activations
        needs_inputs, _, _, *needs_weights = ctx.needs_input_grad
        if torch.is_grad_enabled():
            input_gradient, *matrix_gradients = gradients_by_definition(
                lambda x, *matrices: reference.apply_mlp(
                    x, matrices, activation=activation, output_activation=output_activation
                ),
                (inputs, *weights),
                upstreams[0],
                (needs_inputs, *needs_weights),
            )
            return input_gradient, None, None, *matrix_gradients
        found_inputs = torch.empty_like(inputs, memory_format=torch.contiguous_format)
        found = [matrix.new_zeros(matrix.shape) for matrix in weights]
        if upstreams[0].numel():
            perceptron = _Perceptron(weights, activation, output_activation)
            call("ngpc_mlp_gradients", perceptron.struct, inputs.contiguous(),
                 upstreams[0].contiguous(), found_inputs if needs_inputs else None,
                 pointers(found) if any(needs_weights) else None,
                 num_points=len(inputs))  # fmt: skip
        return (
            found_inputs if needs_inputs else None,
            None,
            None,
            *(
                gradient if is_needed else None
                for gradient, is_needed in zip(found, needs_weights, strict=True)
            ),
        )


def pointers(tensors: Sequence[Tensor]) -> ctypes.Array[Any]:
    """Where the tensors' numbers lie, as an array of C pointers."""
    return (ctypes.c_void_p * len(tensors))(*(tensor.data_ptr() for tensor in tensors))
