"""Public stateless functions: check shapes, pick a backend, call it."""

from __future__ import annotations

from ngpc.ops.frequency import encode_frequency
from ngpc.ops.hash_grid import encode_grid
from ngpc.ops.mlp import apply_mlp

__all__ = ["apply_mlp", "encode_frequency", "encode_grid"]
