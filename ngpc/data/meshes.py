"""Triangle meshes: read through trimesh, cleaned, and written as PLY."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from ngpc.data.images import replace_file
from ngpc.errors import BackendUnavailableError, MediaError, explain

logger = logging.getLogger(__name__)

SUFFIXES = (".obj", ".ply", ".stl")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mesh:
    """Triangles in world units; faces turn anticlockwise as seen from outside."""

    vertices: Float[np.ndarray, "v 3"]
    faces: Int[np.ndarray, "n 3"]
    num_dropped_faces: int = 0
    """Faces without area that the file had."""

    @property
    def corners(self) -> Float[np.ndarray, "n 3 3"]:
        """The three corners of every face."""
        return self.vertices[self.faces]

    @property
    def is_watertight(self) -> bool:
        """Whether every edge has one face on each side, and both turn the same way."""
        start = self.faces.flatten()
        end = np.roll(self.faces, -1, axis=1).flatten()
        number = len(self.vertices)
        forward, backward = np.sort(start * number + end), np.sort(end * number + start)
        is_single = bool((np.diff(forward) > 0).all())
        return is_single and bool(np.array_equal(forward, backward))


def clean_mesh(vertices: np.ndarray, faces: np.ndarray, *, where: str) -> Mesh:
    """Merge equal vertices, drop faces without area, and say how many.

    Raises:
        MediaError: nothing is left, or a vertex is not finite.
    """
    vertices = np.asarray(vertices, dtype=np.float64).reshape(-1, 3)
    faces = np.asarray(faces, dtype=np.int64).reshape(-1, 3)
    if len(faces) == 0 or not np.isfinite(vertices).all():
        raise MediaError(
            explain(
                where,
                expected="triangles with finite corners",
                got="none" if len(faces) == 0 else "a vertex that is not finite",
                do="Export the mesh again.",
            )
        )
    order = np.lexsort(vertices.T)
    is_new = np.concatenate([[True], (np.diff(vertices[order], axis=0) != 0).any(axis=1)])
    merged = np.empty(len(vertices), dtype=np.int64)
    merged[order] = np.cumsum(is_new) - 1
    vertices, faces = vertices[order][is_new], merged[faces]
    sides = vertices[faces[:, 1:]] - vertices[faces[:, :1]]
    areas = np.linalg.norm(np.cross(sides[:, 0], sides[:, 1]), axis=1)
    longest = np.square(sides).sum(axis=2).max(axis=1)
    is_kept = areas > 1e-12 * longest  # zero, up to rounding, whatever the units
    if not is_kept.any():
        raise MediaError(
            explain(
                where,
                expected="a face with an area",
                got=f"{len(faces)} without",
                do="Export the mesh again.",
            )
        )
    dropped = int((~is_kept).sum())
    if dropped:
        logger.warning(
            "%s: %d of %d faces have no area and are dropped", where, dropped, len(faces)
        )
    mesh = Mesh(vertices=vertices, faces=faces[is_kept], num_dropped_faces=dropped)
    if not mesh.is_watertight:
        logger.warning("%s: not watertight; inside is where the winding number is above 1/2", where)
    return mesh


def read_mesh(path: Path) -> Mesh:
    """Read OBJ, PLY or STL; polygons become triangles, several bodies one mesh.

    Raises:
        BackendUnavailableError: trimesh is not installed.
        MediaError: the file is missing, or is no such mesh.
    """
    if path.suffix.lower() not in SUFFIXES or not path.is_file():
        raise MediaError(
            explain(
                str(path),
                expected="a file ending in .obj, .ply or .stl",
                got=repr(path.suffix) if path.is_file() else "no file",
                do="Check the path, or export the mesh in one of these formats.",
            )
        )
    if find_spec("trimesh") is None:
        raise BackendUnavailableError(
            explain(
                str(path),
                expected="trimesh, which reads meshes",
                got="none installed",
                do="Install it: pip install 'cosmos-transfer[meshes]'.",
            )
        )
    import trimesh

    try:
        loaded: Any = trimesh.load(
            path, force="mesh", process=False, skip_materials=True, allow_remote=False
        )
        vertices, faces = loaded.vertices, loaded.faces
    except Exception as error:  # trimesh's readers raise whatever the damage leads to
        raise MediaError(
            explain(
                str(path),
                expected="a mesh that trimesh reads",
                got=" ".join(f"{type(error).__name__} {error}".split())[:120],
                do="Export the mesh again.",
            )
        ) from error
    return clean_mesh(vertices, faces, where=str(path))


def write_ply(path: Path, mesh: Mesh) -> None:
    """Write binary little-endian PLY, vertices as floats; the file appears complete or not at all.

    Raises:
        MediaError: it cannot be written.
    """
    header = (
        "ply\nformat binary_little_endian 1.0\n"
        f"element vertex {len(mesh.vertices)}\n"
        "property float x\nproperty float y\nproperty float z\n"
        f"element face {len(mesh.faces)}\nproperty list uchar int vertex_indices\nend_header\n"
    )
    faces = np.empty(len(mesh.faces), dtype=[("count", "u1"), ("corners", "<i4", 3)])
    faces["count"], faces["corners"] = 3, mesh.faces
    content = header.encode() + mesh.vertices.astype("<f4").tobytes() + faces.tobytes()
    replace_file(path, content)
