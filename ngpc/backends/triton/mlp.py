"""Perceptron without biases by fused kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from ngpc.backends import reference
from ngpc.backends.recompute import gradients_by_definition
from ngpc.backends.triton import mlp_kernels as kernels
from ngpc.backends.triton.precision import (
    LAUNCH_OPTIONS,
    check_precision,
    num_warps,
    points_per_program,
)
from ngpc.config import Activation
from ngpc.errors import ConfigError, explain

MAX_WIDTH = 128  # of a layer: wider matrices do not fit on the chip
MIN_TILE = 16  # the smallest side of a matrix product
GRADIENT_TILE = 64
POINTS_PER_PROGRAM = 4096  # of which a matrix gradient is summed before it is added to the others


def apply_mlp(
    inputs: Float[Tensor, "p i"],
    weights: Sequence[Float[Tensor, "_rows _columns"]],
    *,
    activation: Activation,
    output_activation: Activation,
) -> Float[Tensor, "p o"]:
    """Multiply by each matrix in turn, with ``activation`` between and ``output_activation`` last.

    All layers run in one kernel. A perceptron with a side above 128 runs matrix by matrix, through
    the definition and PyTorch's own products, as tiny-cuda-nn's CutlassMLP does. First derivatives
    come from kernels; those of the matrices are summed in float32 in no fixed order. Second ones go
    through the definition.

    Raises:
        ConfigError: double precision, or inputs and matrices of different precisions.
    """
    check_precision("apply_mlp", inputs, *weights)
    if any(matrix.dtype != inputs.dtype for matrix in weights):
        raise ConfigError(
            explain(
                "backend 'triton', apply_mlp",
                expected="inputs and matrices of one precision",
                got=", ".join(str(tensor.dtype) for tensor in (inputs, *weights)),
                do="Convert the inputs.",
            )
        )
    if max(max(matrix.shape) for matrix in weights) > MAX_WIDTH:
        return reference.apply_mlp(
            inputs, weights, activation=activation, output_activation=output_activation
        )
    outputs: Tensor = _ApplyMlp.apply(inputs, activation, output_activation, *weights)
    return outputs


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
        num_points, num_outputs = len(inputs), len(weights[-1])
        packed, sizes = _pack(weights)
        outputs = inputs.new_empty((num_points, num_outputs))
        is_kept = any(ctx.needs_input_grad)
        saved = inputs.new_empty(
            (sizes["num_hidden"], num_points, sizes["width"]) if is_kept else 1
        )
        saved_output = outputs.new_empty(outputs.shape if is_kept else 1)
        if num_points:
            launch = _launch(inputs.dtype)
            with torch.cuda.device_of(inputs):
                kernels.forward_kernel[(triton.cdiv(num_points, launch["block"]),)](
                    inputs.contiguous(), packed, outputs, saved, saved_output, num_points,
                    inputs.shape[1], num_outputs, **sizes, **_codes(activation, output_activation),
                    is_kept=is_kept, **launch,
                )  # fmt: skip
        ctx.save_for_backward(inputs, saved, saved_output, *weights)
        return outputs

    @staticmethod
    def backward(ctx: Any, *upstreams: Tensor) -> tuple[Tensor | None, ...]:
        inputs, saved, saved_output, *weights = ctx.saved_tensors
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

        num_points = len(inputs)
        packed, sizes = _pack(weights)
        upstream, inputs = upstreams[0].contiguous(), inputs.contiguous()
        layer_gradients = torch.empty_like(saved)
        output_gradient = inputs.new_empty((num_points, sizes["output_block"]))
        input_gradient = torch.zeros_like(inputs)
        if num_points:
            launch = _launch(inputs.dtype)
            with torch.cuda.device_of(inputs):
                kernels.layer_gradient_kernel[(triton.cdiv(num_points, launch["block"]),)](
                    upstream, packed, saved, saved_output, layer_gradients, output_gradient,
                    input_gradient, num_points, inputs.shape[1], len(weights[-1]), **sizes,
                    **_codes(activation, output_activation),
                    needs_inputs=needs_inputs, **launch,
                )  # fmt: skip
        matrix_gradients = []
        for index, (matrix, is_needed) in enumerate(zip(weights, needs_weights, strict=True)):
            is_last = index == len(weights) - 1
            matrix_gradients.append(
                _matrix_gradient(
                    matrix,
                    upstream=output_gradient if is_last else layer_gradients[index],
                    hidden=inputs if index == 0 else saved[index - 1],
                    activation=Activation.NONE if index == 0 else activation,
                )
                if is_needed
                else None
            )
        return input_gradient if needs_inputs else None, None, None, *matrix_gradients


def _matrix_gradient(
    matrix: Tensor, *, upstream: Tensor, hidden: Tensor, activation: Activation
) -> Tensor:
    num_rows, num_columns = matrix.shape
    gradient = torch.zeros((num_rows, num_columns), dtype=torch.float32, device=matrix.device)
    num_points = len(upstream)
    row_block = min(_tile(num_rows), GRADIENT_TILE)
    column_block = min(_tile(num_columns), GRADIENT_TILE)
    if num_points:
        grid = (
            triton.cdiv(num_points, POINTS_PER_PROGRAM),
            triton.cdiv(num_rows, row_block),
            triton.cdiv(num_columns, column_block),
        )
        with torch.cuda.device_of(matrix):
            kernels.matrix_gradient_kernel[grid](
                upstream, hidden, gradient, num_points, upstream.shape[1], hidden.shape[1],
                num_rows, num_columns, POINTS_PER_PROGRAM,
                activation=kernels.ACTIVATION_CODES[activation],
                row_block=row_block, column_block=column_block, **_launch(matrix.dtype),
            )  # fmt: skip
    return gradient.to(matrix.dtype)


def _pack(weights: Sequence[Tensor]) -> tuple[Tensor, dict[str, int]]:
    """All matrices in one buffer, padded with zeros to powers of two, and the padded sizes."""
    num_hidden = len(weights) - 1
    input_block, output_block = _tile(weights[0].shape[1]), _tile(len(weights[-1]))
    width = max(_tile(len(matrix)) for matrix in weights[:-1]) if num_hidden else input_block
    shapes = [(width, width)] * len(weights)
    shapes[0] = (width, input_block)
    shapes[-1] = (output_block, width)
    padded = [
        functional.pad(matrix, (0, columns - matrix.shape[1], 0, rows - len(matrix))).flatten()
        for matrix, (rows, columns) in zip(weights, shapes, strict=True)
    ]
    return torch.cat(padded), {
        "num_hidden": num_hidden,
        "input_block": input_block,
        "width": width,
        "output_block": output_block,
    }


def _tile(size: int) -> int:
    return max(MIN_TILE, triton.next_power_of_2(size))


def _launch(dtype: torch.dtype) -> dict[str, int]:
    bits = 8 * dtype.itemsize
    return {"block": points_per_program(bits), "num_warps": num_warps(bits), **LAUNCH_OPTIONS}


def _codes(activation: Activation, output_activation: Activation) -> dict[str, int]:
    return {
        "activation": kernels.ACTIVATION_CODES[activation],
        "output_activation": kernels.ACTIVATION_CODES[output_activation],
    }
