"""Reading and writing trained parameters: safetensors, tiny-cuda-nn vectors, instant-ngp files."""

from __future__ import annotations

from ngpc.serialization.flat_modules import load_module, save_module
from ngpc.serialization.snapshots import Snapshot, read_snapshot, write_snapshot

__all__ = ["Snapshot", "load_module", "read_snapshot", "save_module", "write_snapshot"]
