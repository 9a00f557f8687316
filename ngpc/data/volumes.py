"""Density volumes: NPY and NRRD in, procedural clouds; ``x y z`` float32 arrays.

Density is optical depth per side of the cube that the volume fills: a volume of other proportions
is padded to a cube with nothing. NRRD is read without a library: raw and gzip data, attached or in
one file beside it.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float
from scipy import ndimage

from ngpc.errors import MediaError, explain

LARGEST_BYTES = 2**31
NRRD_TYPES = {
    "uint8": "u1", "uchar": "u1", "unsigned char": "u1", "uint8_t": "u1",
    "int8": "i1", "signed char": "i1", "int8_t": "i1",
    "uint16": "u2", "ushort": "u2", "unsigned short": "u2", "uint16_t": "u2",
    "int16": "i2", "short": "i2", "int16_t": "i2",
    "uint32": "u4", "uint": "u4", "unsigned int": "u4", "uint32_t": "u4",
    "int32": "i4", "int": "i4", "int32_t": "i4",
    "float": "f4", "double": "f8",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """Densities in [0, 1] on the vertices of a grid that spans the unit cube."""

    density: Float[np.ndarray, "x y z"]
    optical_depth: float
    """Across the cube where density is 1."""


def read_volume(path: Path, *, optical_depth: float = 30.0) -> Volume:
    """Read an NPY or NRRD file; its largest value becomes density 1.

    Raises:
        MediaError: the file is missing, or holds no volume of finite numbers, some above zero.
    """
    if not path.is_file():
        raise _refused(path, "a volume", "no file", "Check the path.")
    if path.suffix.lower() == ".npy":
        try:
            values = np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise _refused(path, "an NPY array", str(error)[:120], "Save it again.") from error
    elif path.suffix.lower() in (".nrrd", ".nhdr"):
        values = _read_nrrd(path)
    else:
        raise _refused(
            path, "a file ending in .npy, .nrrd or .nhdr", repr(path.suffix), "Convert it."
        )
    return volume_of(values, optical_depth=optical_depth, where=path)


def volume_of(values: np.ndarray, *, optical_depth: float, where: Path | str) -> Volume:
    """A volume of any array of three axes: scaled, and padded to a cube.

    Raises:
        MediaError: it is not three-dimensional, not finite, or nowhere above zero.
    """
    is_number = values.dtype.kind in "iuf" and values.ndim == 3 and min(values.shape) >= 2
    if not is_number or not np.isfinite(values).all() or values.max() <= 0:
        raise _refused(
            where,
            "three axes of finite numbers, some above zero",
            f"{values.dtype} of shape {values.shape}",
            "Give one density a cell.",
        )
    density = np.maximum(values.astype(np.float32), 0.0)
    density /= density.max()
    side = max(density.shape)
    missing = [(side - size) for size in density.shape]
    pads = [(gap // 2, gap - gap // 2) for gap in missing]
    return Volume(density=np.pad(density, pads), optical_depth=optical_depth)


def procedural_cloud(*, resolution: int = 48, seed: int = 0, optical_depth: float = 18.0) -> Volume:
    """A cloud: a few overlapping balls, their borders frayed by noise of four octaves."""
    rng = np.random.default_rng(seed)
    axis = np.linspace(-1.0, 1.0, resolution)
    grid = np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), axis=-1)
    inside = np.full(grid.shape[:3], -np.inf)
    for _ in range(6):
        centre = rng.uniform([-0.4, -0.4, -0.25], [0.4, 0.4, 0.25])
        radius = rng.uniform(0.28, 0.45)
        inside = np.maximum(inside, radius - np.linalg.norm(grid - centre, axis=-1))
    noise = np.zeros_like(inside)
    for octave in range(4):
        coarse = rng.normal(size=(3 * 2**octave,) * 3)
        noise += ndimage.zoom(coarse, resolution / len(coarse), order=1) * 0.5**octave
    density = np.clip((inside + 0.1 * noise) / 0.22, 0.0, 1.0)
    edge = np.clip((0.96 - np.abs(grid).max(axis=-1)) / 0.1, 0.0, 1.0)
    return volume_of(density * edge, optical_depth=optical_depth, where="cloud")


def _read_nrrd(path: Path) -> np.ndarray:
    """The array of an NRRD file, fastest axis first.

    Source:
        Definition of NRRD file format, teem.sourceforge.net/nrrd/format.html.
    """
    content = path.read_bytes()
    if not content.startswith(b"NRRD000"):
        raise _refused(path, "NRRD", "another header", "Convert it to NPY.")
    head, separator, data = content.partition(b"\n\n")
    if b"\r\n" in head or not separator:
        head, separator, data = content.partition(b"\r\n\r\n")
    fields: dict[str, str] = {}
    for line in head.decode("latin-1").splitlines()[1:]:
        key, colon, value = line.partition(":")
        if colon and not line.startswith("#"):
            fields[key.strip().lower()] = value.strip()
    dtype, sizes = _nrrd_shape(path, fields)
    name = fields.get("data file", fields.get("datafile"))
    if name is not None:
        beside = path.parent / name
        if beside.resolve().parent != path.resolve().parent or not beside.is_file():
            raise _refused(path, "its data in a file beside it", name, "Copy the data file there.")
        data = beside.read_bytes()
    size_bytes = int(np.prod(sizes)) * dtype.itemsize
    if size_bytes > LARGEST_BYTES:
        raise _refused(path, "at most 2 GiB", f"{size_bytes} bytes", "Reduce the volume.")
    encoding = fields.get("encoding", "").lower()
    if encoding in ("gzip", "gz"):
        data = _unzipped(path, data, size_bytes)
    elif encoding != "raw":
        raise _refused(path, "encoding raw or gzip", repr(encoding), "Convert it to NPY.")
    if len(data) < size_bytes:
        raise _refused(path, f"{size_bytes} bytes of data", f"{len(data)}", "Copy it again.")
    return np.frombuffer(data[:size_bytes], dtype=dtype).reshape(sizes, order="F")


def _nrrd_shape(path: Path, fields: Mapping[str, str]) -> tuple[np.dtype, tuple[int, ...]]:
    kind = NRRD_TYPES.get(fields.get("type", ""))
    sizes = fields.get("sizes", "").split()
    if kind is None or len(sizes) != 3 or not all(s.isdecimal() and int(s) > 0 for s in sizes):
        raise _refused(
            path,
            "a number type and three sizes",
            f"type {fields.get('type')!r}, sizes {fields.get('sizes')!r}",
            "Export one density a cell.",
        )
    if fields.get("line skip", "0") != "0" or fields.get("byte skip", "0") != "0":
        raise _refused(path, "data without skips", "line skip or byte skip", "Convert it to NPY.")
    order = ">" if fields.get("endian", "little").lower() == "big" else "<"
    return np.dtype(order + kind), tuple(int(size) for size in sizes)


def _unzipped(path: Path, data: bytes, size_bytes: int) -> bytes:
    """At most ``size_bytes`` of what was compressed, whatever the file claims."""
    try:
        return zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(data, size_bytes)
    except (zlib.error, gzip.BadGzipFile) as error:
        raise _refused(path, "gzip data", str(error), "Copy it again.") from error


def _refused(where: Path | str, expected: str, got: str, do: str) -> MediaError:
    return MediaError(explain(str(where), expected=expected, got=got, do=do))
