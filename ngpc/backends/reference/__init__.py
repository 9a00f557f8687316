"""The definition of each op, in plain PyTorch: any float precision, any device, two derivatives.

Other backends are accused of matching this one.
"""

from __future__ import annotations

from ngpc.backends.reference.frequency import encode_frequency
from ngpc.backends.reference.hash_grid import encode_grid, gather_picked_vertices
from ngpc.backends.reference.mlp import apply_mlp
from ngpc.backends.reference.one_blob import encode_one_blob
from ngpc.backends.reference.spherical_harmonics import encode_spherical_harmonics
from ngpc.backends.reference.triangle_wave import encode_triangle_wave

__all__ = [
    "apply_mlp",
    "encode_frequency",
    "encode_grid",
    "encode_one_blob",
    "encode_spherical_harmonics",
    "encode_triangle_wave",
    "gather_picked_vertices",
]
