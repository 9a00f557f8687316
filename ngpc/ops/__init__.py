"""Public stateless functions: check shapes, pick a backend, call it."""

from __future__ import annotations

from ngpc.ops.frequency import encode_frequency
from ngpc.ops.hash_grid import encode_grid, encode_grid_stochastic
from ngpc.ops.mlp import apply_mlp
from ngpc.ops.pointwise import (
    encode_one_blob,
    encode_spherical_harmonics,
    encode_triangle_wave,
)

__all__ = [
    "apply_mlp",
    "encode_frequency",
    "encode_grid",
    "encode_grid_stochastic",
    "encode_one_blob",
    "encode_spherical_harmonics",
    "encode_triangle_wave",
]
