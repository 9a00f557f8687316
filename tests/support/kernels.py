"""Cases for compiled and Triton kernels, and how near to the definition they have to be."""

from __future__ import annotations

import itertools

import torch

from ngpc.config import Activation, GridConfig, Interpolation
from ngpc.shapes import GridKind
from tests.support.numerics import relative_rms

# A backend may have at most twice the definition's own error in the same precision.
ALLOWANCE = 2.0
# Below this an error is one of the last rounding, which luck decides.
FLOOR = {torch.float32: 1e-7, torch.float16: 3e-4, torch.bfloat16: 3e-3, torch.float64: 1e-15}


def assert_close_enough(found, own, truth, dtype: torch.dtype) -> None:
    """The backend's tensors, the definition's own, and the definition's in double."""
    for name, (actual, plain, exact) in enumerate(zip(found, own, truth, strict=True)):
        assert actual.dtype == plain.dtype
        assert actual.shape == plain.shape
        error, allowed = relative_rms(actual, exact), relative_rms(plain, exact)
        assert error <= max(ALLOWANCE * allowed, FLOOR[dtype]), (
            f"tensor {name}: relative RMS {error:.3g}, the definition's own is {allowed:.3g}"
        )


def grid_case(kind: str = "hash", *, num_dims: int = 3, features: int = 2,
              dtype: torch.dtype = torch.float32, num_points: int = 37):  # fmt: skip
    layout = GridConfig(
        kind=GridKind(kind), num_levels=4, features_per_level=features, log2_table_size=6,
        base_resolution=4, per_level_scale=1.5,
    ).layout(num_dims)  # fmt: skip
    table = torch.randn(layout.num_entries, features).to(dtype)
    return layout, torch.rand(num_points, num_dims), table


def grid_runner(layout, interpolation: Interpolation):
    return lambda package, positions, table: package.encode_grid(
        positions, table, layout=layout, interpolation=interpolation
    )


def mlp_case(*widths: int, num_points: int = 37, dtype: torch.dtype = torch.float32):
    weights = [
        (torch.randn(rows, columns) / columns**0.5).to(dtype)
        for columns, rows in itertools.pairwise(widths)
    ]
    return [torch.randn(num_points, widths[0]).to(dtype), *weights]


def mlp_runner(activation: Activation, output_activation: Activation = Activation.NONE):
    return lambda package, inputs, *weights: package.apply_mlp(
        inputs, weights, activation=activation, output_activation=output_activation
    )
