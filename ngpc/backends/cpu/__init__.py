"""Compiled kernels for processors: float32 sums in a fixed order, whatever the number of threads.

Tables and matrices in half precision are converted before, results after; double precision runs
through the definition. See ``docs/ngpc-kernels.md``.
"""

from __future__ import annotations

from ngpc.backends.cpu.hash_grid import encode_grid
from ngpc.backends.cpu.mlp import apply_mlp
from ngpc.backends.reference.frequency import encode_frequency  # element-wise: nothing to fuse

__all__ = ["apply_mlp", "encode_frequency", "encode_grid"]
