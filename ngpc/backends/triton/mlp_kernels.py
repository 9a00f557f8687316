"""Kernels of the fused perceptron: forward, the gradients of its layers, those of its matrices.

A block of points goes through all layers without leaving the chip. Matrices come packed into one
buffer, each padded with zeros to powers of two: first ``(width, inputs)``, then the hidden
``(width, width)``, then last ``(outputs, width)``. Products are summed in float32; single precision
multiplies in full (``ieee``), never in TF32.

Run-time type checks skip kernels: what is compiled is not called with tensors.
"""

from __future__ import annotations

from typing import no_type_check

import triton
import triton.language as tl

from ngpc.config import Activation

ACTIVATION_CODES = {activation: code for code, activation in enumerate(Activation)}

NONE = tl.constexpr(ACTIVATION_CODES[Activation.NONE])
RELU = tl.constexpr(ACTIVATION_CODES[Activation.RELU])
LEAKY_RELU = tl.constexpr(ACTIVATION_CODES[Activation.LEAKY_RELU])
SILU = tl.constexpr(ACTIVATION_CODES[Activation.SILU])
EXPONENTIAL = tl.constexpr(ACTIVATION_CODES[Activation.EXPONENTIAL])
SINE = tl.constexpr(ACTIVATION_CODES[Activation.SINE])
SIGMOID = tl.constexpr(ACTIVATION_CODES[Activation.SIGMOID])
SQUAREPLUS = tl.constexpr(ACTIVATION_CODES[Activation.SQUAREPLUS])
SOFTPLUS = tl.constexpr(ACTIVATION_CODES[Activation.SOFTPLUS])
TANH = tl.constexpr(ACTIVATION_CODES[Activation.TANH])


@triton.jit
@no_type_check
def sigmoid(z):
    """1 / (1 + exp(-z)), whose exponent never overflows."""
    small = tl.exp(-tl.abs(z))
    return tl.where(z >= 0.0, 1.0, small) / (1.0 + small)


@triton.jit
@no_type_check
def tanh(z):
    """The hyperbolic tangent: a series near zero, where the exponentials would cancel."""
    small = tl.exp(-2.0 * tl.abs(z))
    size = (1.0 - small) / (1.0 + small)
    square = z * z
    series = square * (-1.0 / 3.0 + square * (2.0 / 15.0 + square * (-17.0 / 315.0)))
    far = tl.where(z >= 0.0, size, -size)
    return tl.where(square < 0.04, z + z * series, far)


@triton.jit
@no_type_check
def activate(z, activation: tl.constexpr):
    """One activation, element by element, in float32."""
    values = z
    if activation == RELU:
        values = tl.maximum(z, 0.0)
    elif activation == LEAKY_RELU:
        values = tl.where(z > 0.0, z, 0.01 * z)
    elif activation == SILU:
        values = z * sigmoid(z)
    elif activation == EXPONENTIAL:
        values = tl.exp(z)
    elif activation == SINE:
        values = tl.sin(z)
    elif activation == SIGMOID:
        values = sigmoid(z)
    elif activation == SQUAREPLUS:
        scaled = 10.0 * z
        values = 0.05 * (scaled + tl.sqrt(scaled * scaled + 4.0))
    elif activation == SOFTPLUS:
        scaled = 10.0 * z
        values = 0.1 * (tl.maximum(scaled, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(scaled))))
    elif activation == TANH:
        values = tanh(z)
    return values


@triton.jit
@no_type_check
def slope(z, activation: tl.constexpr):
    """The derivative of :func:`activate`."""
    values = tl.zeros_like(z) + 1.0
    if activation == RELU:
        values = tl.where(z > 0.0, 1.0, 0.0)
    elif activation == LEAKY_RELU:
        values = tl.where(z > 0.0, 1.0, 0.01)
    elif activation == SILU:
        share = sigmoid(z)
        values = share * (1.0 + z * (1.0 - share))
    elif activation == EXPONENTIAL:
        values = tl.exp(z)
    elif activation == SINE:
        values = tl.cos(z)
    elif activation == SIGMOID:
        share = sigmoid(z)
        values = share * (1.0 - share)
    elif activation == SQUAREPLUS:
        scaled = 10.0 * z
        values = 0.5 * (1.0 + scaled / tl.sqrt(scaled * scaled + 4.0))
    elif activation == SOFTPLUS:
        values = sigmoid(10.0 * z)
    elif activation == TANH:
        bent = tanh(z)
        values = 1.0 - bent * bent
    return values


@triton.jit
@no_type_check
def forward_kernel(
    inputs, weights, outputs, saved, saved_output, num_points, num_inputs, num_outputs,
    num_hidden: tl.constexpr, input_block: tl.constexpr, width: tl.constexpr,
    output_block: tl.constexpr, activation: tl.constexpr, output_activation: tl.constexpr,
    is_kept: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """Run a block of points through all layers.

    ``num_hidden`` counts the hidden layers; without any, the one matrix is ``(outputs, inputs)``
    and ``width`` equals ``input_block``. Where ``is_kept``, the sums before each activation are
    stored: ``saved`` is (hidden layer, point, width), ``saved_output`` (point, output).
    """
    dtype = weights.dtype.element_ty
    rows = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    is_point = (rows < num_points)[:, None]
    i = tl.arange(0, input_block)
    w = tl.arange(0, width)
    o = tl.arange(0, output_block)
    hidden = tl.load(
        inputs + rows[:, None] * num_inputs + i[None, :],
        mask=is_point & (i < num_inputs)[None, :],
        other=0.0,
    ).to(dtype)
    matrix = weights
    if num_hidden > 0:
        first = tl.load(matrix + w[None, :] * input_block + i[:, None])
        z = tl.dot(hidden, first, input_precision="ieee")
        if is_kept:
            tl.store(
                saved + rows[:, None] * width + w[None, :],
                z.to(saved.dtype.element_ty),
                mask=is_point,
            )
        hidden = activate(z, activation).to(dtype)
        matrix += width * input_block
        for layer in range(1, num_hidden):
            middle = tl.load(matrix + w[None, :] * width + w[:, None])
            z = tl.dot(hidden, middle, input_precision="ieee")
            if is_kept:
                tl.store(
                    saved + (layer * num_points.to(tl.int64) + rows)[:, None] * width + w[None, :],
                    z.to(saved.dtype.element_ty),
                    mask=is_point,
                )
            hidden = activate(z, activation).to(dtype)
            matrix += width * width
    last = tl.load(matrix + o[None, :] * width + w[:, None])
    z = tl.dot(hidden, last, input_precision="ieee")
    is_output = is_point & (o < num_outputs)[None, :]
    places = rows[:, None] * num_outputs + o[None, :]
    if is_kept and output_activation != NONE:
        tl.store(saved_output + places, z.to(saved_output.dtype.element_ty), mask=is_output)
    tl.store(
        outputs + places,
        activate(z, output_activation).to(outputs.dtype.element_ty),
        mask=is_output,
    )


@triton.jit
@no_type_check
def layer_gradient_kernel(
    upstream, weights, saved, saved_output, layer_gradients, output_gradient, input_gradient,
    num_points, num_inputs, num_outputs,
    num_hidden: tl.constexpr, input_block: tl.constexpr, width: tl.constexpr,
    output_block: tl.constexpr, activation: tl.constexpr, output_activation: tl.constexpr,
    needs_inputs: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """Pull a block of upstream gradients back through all layers.

    Writes the gradient of each layer's sums: ``output_gradient`` (point, output_block),
    ``layer_gradients`` (hidden layer, point, width), and ``input_gradient`` (point, input).
    """
    dtype = weights.dtype.element_ty
    rows = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    is_point = (rows < num_points)[:, None]
    i = tl.arange(0, input_block)
    w = tl.arange(0, width)
    o = tl.arange(0, output_block)
    is_output = is_point & (o < num_outputs)[None, :]
    output_places = rows[:, None] * num_outputs + o[None, :]
    arriving = tl.load(upstream + output_places, mask=is_output, other=0.0).to(tl.float32)
    if output_activation != NONE:
        z = tl.load(saved_output + output_places, mask=is_output, other=0.0).to(tl.float32)
        arriving = arriving * slope(z, output_activation)
    tl.store(
        output_gradient + rows[:, None] * output_block + o[None, :],
        arriving.to(output_gradient.dtype.element_ty),
        mask=is_point,
    )
    matrix = weights
    if num_hidden > 0:
        matrix += width * input_block + (num_hidden - 1) * width * width
    last = tl.load(matrix + o[:, None] * width + w[None, :])
    pulled = tl.dot(arriving.to(dtype), last, input_precision="ieee")  # p width
    if num_hidden > 0:
        for step in range(num_hidden - 1):
            layer = num_hidden - 1 - step
            places = (layer * num_points.to(tl.int64) + rows)[:, None] * width + w[None, :]
            z = tl.load(saved + places, mask=is_point, other=0.0).to(tl.float32)
            pulled = pulled * slope(z, activation)
            tl.store(
                layer_gradients + places,
                pulled.to(layer_gradients.dtype.element_ty),
                mask=is_point,
            )
            matrix -= width * width
            middle = tl.load(matrix + w[:, None] * width + w[None, :])
            pulled = tl.dot(pulled.to(dtype), middle, input_precision="ieee")
        places = rows[:, None] * width + w[None, :]
        z = tl.load(saved + places, mask=is_point, other=0.0).to(tl.float32)
        pulled = pulled * slope(z, activation)
        tl.store(
            layer_gradients + places,
            pulled.to(layer_gradients.dtype.element_ty),
            mask=is_point,
        )
    if needs_inputs:
        if num_hidden > 0:
            first = tl.load(weights + w[:, None] * input_block + i[None, :])
            leaving = tl.dot(pulled.to(dtype), first, input_precision="ieee")
        else:
            leaving = pulled
        tl.store(
            input_gradient + rows[:, None] * num_inputs + i[None, :],
            leaving.to(input_gradient.dtype.element_ty),
            mask=is_point & (i < num_inputs)[None, :],
        )


@triton.jit
@no_type_check
def matrix_gradient_kernel(
    upstream, hidden, gradient, num_points, upstream_stride, hidden_stride, num_rows, num_columns,
    points_per_program, activation: tl.constexpr, row_block: tl.constexpr,
    column_block: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """Add one tile of ``upstream^T activate(hidden)`` over a range of points, in float32."""
    r = tl.program_id(1) * row_block + tl.arange(0, row_block)
    c = tl.program_id(2) * column_block + tl.arange(0, column_block)
    start = tl.program_id(0).to(tl.int64) * points_per_program
    total = tl.zeros([row_block, column_block], dtype=tl.float32)
    for step in range(0, points_per_program, block):
        rows = start + step + tl.arange(0, block)
        is_point = rows < num_points
        arriving = tl.load(
            upstream + rows[None, :] * upstream_stride + r[:, None],
            mask=is_point[None, :] & (r < num_rows)[:, None],
            other=0.0,
        )
        z = tl.load(
            hidden + rows[:, None] * hidden_stride + c[None, :],
            mask=is_point[:, None] & (c < num_columns)[None, :],
            other=0.0,
        )
        values = activate(z.to(tl.float32), activation).to(arriving.dtype)
        total += tl.dot(arriving, values, input_precision="ieee")
    tl.atomic_add(
        gradient + r[:, None] * num_columns + c[None, :],
        total,
        mask=(r < num_rows)[:, None] & (c < num_columns)[None, :],
        sem="relaxed",
    )
