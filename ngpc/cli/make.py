"""``ngpc make``."""

from __future__ import annotations

import argparse
import io
from pathlib import Path

import numpy as np

from ngpc.data.images import replace_file
from ngpc.data.meshes import write_ply
from ngpc.data.posed_scenes import write_posed_scene
from ngpc.data.solids import solid_mesh
from ngpc.data.volumes import procedural_cloud
from ngpc.errors import ConfigError, MediaError, explain


def make_posed_command(arguments: argparse.Namespace) -> int:
    """Write a table-top scene as posed pictures."""
    for name in ("views", "held_out", "size"):
        _at_least(name, getattr(arguments, name), 8 if name == "size" else 1)
    write_posed_scene(
        arguments.output,
        num_views=arguments.views,
        num_held_out=arguments.held_out,
        size=arguments.size,
        seed=arguments.seed,
        overwrite=arguments.overwrite,
    )
    print(f"{arguments.output}: {arguments.views} views, {arguments.held_out} held out")
    return 0


def make_mesh_command(arguments: argparse.Namespace) -> int:
    """Write a solid as PLY."""
    _refuse_existing(arguments.output, ".ply", overwrite=arguments.overwrite)
    mesh = solid_mesh(arguments.solid)
    write_ply(arguments.output, mesh)
    print(f"{arguments.output}: {len(mesh.faces)} triangles")
    return 0


def make_volume_command(arguments: argparse.Namespace) -> int:
    """Write a cloud as NPY."""
    _refuse_existing(arguments.output, ".npy", overwrite=arguments.overwrite)
    _at_least("resolution", arguments.resolution, 16)
    cloud = procedural_cloud(resolution=arguments.resolution, seed=arguments.seed)
    buffer = io.BytesIO()
    np.save(buffer, cloud.density, allow_pickle=False)
    replace_file(arguments.output, buffer.getvalue())
    print(f"{arguments.output}: {arguments.resolution}^3 cells")
    return 0


def _at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise ConfigError(
            explain(
                f"--{name.replace('_', '-')}",
                expected=f"at least {least}",
                got=str(value),
                do="Correct it.",
            )
        )


def _refuse_existing(path: Path, suffix: str, *, overwrite: bool) -> None:
    if path.suffix.lower() != suffix or (path.exists() and not overwrite):
        raise MediaError(
            explain(
                str(path),
                expected=f"a new file ending in {suffix}",
                got="one that exists" if path.exists() else repr(path.suffix),
                do="Choose another name or add --overwrite.",
            )
        )
