"""Modules that turn features into values."""

from __future__ import annotations

from ngpc.networks.fused_mlp import FusedMLP

__all__ = ["FusedMLP"]
