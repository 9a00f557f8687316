"""Each op as one of tiny-cuda-nn's native modules, which are built once per configuration.

tinycudann keeps one flat vector of parameters: matrices row by row with inputs and outputs padded
to 16, tables row by row. Ours are packed into it for each call, and autograd unpacks the gradient.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from ngpc.backends import reference
from ngpc.backends.recompute import gradients_by_definition
from ngpc.config import (
    FULLY_FUSED_WIDTHS,
    Activation,
    GridConfig,
    Interpolation,
    MlpConfig,
    NetworkKind,
    encoding_to_json,
    network_to_json,
)
from ngpc.errors import ConfigError, explain
from ngpc.shapes import LAYER_MULTIPLE, GridLayout, round_up

NUM_MODULES = 64  # kept at a time


def encode_grid(
    positions: Float[Tensor, "p x"],
    table: Float[Tensor, "e v"],
    *,
    layout: GridLayout,
    interpolation: Interpolation,
) -> Float[Tensor, "p d"]:
    """Look up the features of each position on every level with tiny-cuda-nn's kernels."""
    config = GridConfig(
        kind=layout.kind,
        num_levels=layout.num_levels,
        features_per_level=layout.features_per_level,
        log2_table_size=layout.log2_table_size,
        base_resolution=layout.base_resolution,
        per_level_scale=layout.per_level_scale,
        interpolation=interpolation,
    )
    module = _encoding(layout.num_dims, json.dumps(encoding_to_json(config)))

    def definition(x: Tensor, t: Tensor) -> Tensor:
        return reference.encode_grid(x, t, layout=layout, interpolation=interpolation)

    def native(x: Tensor, t: Tensor) -> Tensor:
        return _call(module, x, t.flatten()).to(t.dtype)

    return _run(native, definition, positions, table)


def encode_frequency(
    positions: Float[Tensor, "p x"], *, num_frequencies: int
) -> Float[Tensor, "p d"]:
    """Encode each coordinate as sines and cosines at octaves with tiny-cuda-nn's kernels."""
    spec = json.dumps({"otype": "Frequency", "n_frequencies": num_frequencies})
    module = _encoding(positions.shape[1], spec)

    def definition(x: Tensor) -> Tensor:
        return reference.encode_frequency(x, num_frequencies=num_frequencies)

    def native(x: Tensor) -> Tensor:
        return _call(module, x, x.new_zeros(0)).to(x.dtype)

    return _run(native, definition, positions)


def apply_mlp(
    inputs: Float[Tensor, "p i"],
    weights: Sequence[Float[Tensor, "_rows _columns"]],
    *,
    activation: Activation,
    output_activation: Activation,
) -> Float[Tensor, "p o"]:
    """Run a perceptron without biases with tiny-cuda-nn's fused kernel, or CUTLASS where it must.

    Raises:
        ConfigError: hidden layers of different widths, or inputs that are not padded to 16.
    """
    widths = {len(matrix) for matrix in weights[:-1]} | {matrix.shape[1] for matrix in weights[1:]}
    num_inputs, num_outputs = weights[0].shape[1], len(weights[-1])
    if len(widths) > 1 or num_inputs % LAYER_MULTIPLE:
        raise ConfigError(
            explain(
                "backend 'tcnn', apply_mlp",
                expected=f"hidden layers of one width, inputs padded to {LAYER_MULTIPLE}",
                got=f"widths {sorted(widths)}, {num_inputs} inputs",
                do="Use backend='triton' or 'reference'.",
            )
        )
    width = widths.pop() if widths else LAYER_MULTIPLE
    is_fused = width in FULLY_FUSED_WIDTHS and len(weights) > 1
    config = MlpConfig(
        kind=NetworkKind.FULLY_FUSED if is_fused else NetworkKind.CUTLASS,
        width=width,
        num_hidden_layers=len(weights) - 1,
        activation=activation,
        output_activation=output_activation,
    )
    module = _network(num_inputs, num_outputs, json.dumps(network_to_json(config)))

    def definition(x: Tensor, *matrices: Tensor) -> Tensor:
        return reference.apply_mlp(
            x, matrices, activation=activation, output_activation=output_activation
        )

    def native(x: Tensor, *matrices: Tensor) -> Tensor:
        missing = round_up(num_outputs, LAYER_MULTIPLE) - num_outputs
        padded = [*matrices[:-1], functional.pad(matrices[-1], (0, 0, 0, missing))]
        return _call(module, x, torch.cat([matrix.flatten() for matrix in padded])).to(x.dtype)

    return _run(native, definition, inputs, *weights)


def _call(module: Any, inputs: Tensor, params: Tensor) -> Tensor:
    """Run a native module with our vector in the place of its own."""
    return torch.func.functional_call(module, {"params": params.to(torch.float32)}, (inputs,))


def _run(
    native: Callable[..., Tensor], definition: Callable[..., Tensor], *inputs: Tensor
) -> Tensor:
    outputs: Tensor = _NativeWithSecondDerivatives.apply(native, definition, *inputs)
    return outputs


class _NativeWithSecondDerivatives(torch.autograd.Function):
    """Values and first derivatives of ``native``; second derivatives of ``definition``."""

    @staticmethod
    def forward(
        ctx: Any,
        native: Callable[..., Tensor],
        definition: Callable[..., Tensor],
        *inputs: Tensor,
    ) -> Tensor:
        ctx.definition = definition
        ctx.save_for_backward(*inputs)
        wanted = ctx.needs_input_grad[2:]
        with torch.enable_grad():  # tinycudann's own backward runs on what its forward kept
            ctx.leaves = [
                tensor.detach().requires_grad_(is_wanted)
                for tensor, is_wanted in zip(inputs, wanted, strict=True)
            ]
            ctx.outputs = native(*ctx.leaves)
        return ctx.outputs.detach()

    @staticmethod
    def backward(ctx: Any, *upstreams: Tensor) -> tuple[Tensor | None, ...]:
        wanted = ctx.needs_input_grad[2:]
        if torch.is_grad_enabled():
            found = gradients_by_definition(ctx.definition, ctx.saved_tensors, upstreams[0], wanted)
            return (None, None, *found)
        leaves = [leaf for leaf, is_wanted in zip(ctx.leaves, wanted, strict=True) if is_wanted]
        gradients = iter(
            torch.autograd.grad(
                ctx.outputs, leaves, upstreams[0], allow_unused=True, retain_graph=True
            )
        )
        return (None, None, *(next(gradients) if is_wanted else None for is_wanted in wanted))


@lru_cache(maxsize=NUM_MODULES)
def _encoding(num_dims: int, spec: str) -> Any:
    import tinycudann

    return tinycudann.Encoding(num_dims, json.loads(spec))


@lru_cache(maxsize=NUM_MODULES)
def _network(num_inputs: int, num_outputs: int, spec: str) -> Any:
    import tinycudann

    return tinycudann.Network(num_inputs, num_outputs, json.loads(spec))
