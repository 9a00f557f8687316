"""Adapters for an installed ``tinycudann``: our parameters in, its kernels, our shapes out.

It computes in half precision (or in single, where it was built so), whatever the precision that
comes in; outputs and gradients come back in the precision of the parameters. Second derivatives go
through the definition.
"""

from __future__ import annotations

from ngpc.backends.tcnn.adapters import apply_mlp, encode_frequency, encode_grid

__all__ = ["apply_mlp", "encode_frequency", "encode_grid"]
