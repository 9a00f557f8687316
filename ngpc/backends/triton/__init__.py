"""Fused kernels in Triton, for CUDA devices: float32, float16 and bfloat16, summed in float32.

With ``TRITON_INTERPRET=1`` set before the first import the same kernels run on the CPU, slowly,
statement by statement: that is how they are tested without a GPU (not in bfloat16, whose products
the interpreter gets wrong).
"""

from __future__ import annotations

from ngpc.backends.reference.frequency import encode_frequency  # element-wise: nothing to fuse
from ngpc.backends.triton.hash_grid import encode_grid
from ngpc.backends.triton.mlp import apply_mlp

__all__ = ["apply_mlp", "encode_frequency", "encode_grid"]
