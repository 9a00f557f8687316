"""The definition of each op, in plain PyTorch: any float precision, any device, two derivatives.

Other backends are accused of matching this one.
"""

from __future__ import annotations

from ngpc.backends.reference.frequency import encode_frequency
from ngpc.backends.reference.hash_grid import encode_grid
from ngpc.backends.reference.mlp import apply_mlp

__all__ = ["apply_mlp", "encode_frequency", "encode_grid"]
