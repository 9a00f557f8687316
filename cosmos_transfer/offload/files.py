"""Compressed checkpoint files: safetensors, with two entries for every weight that is sparse.

A file is an ordinary safetensors file. A packed weight ``w`` stands in it as ``w.bitmap`` and
``w.values``, and its shape in the header; everything else is stored as it is. So other tools can
list it, and what they cannot unpack they see by name.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from cosmos_transfer.errors import CheckpointError, explain
from cosmos_transfer.offload.bitmap import PackedTensor, pack, unpack

CODEC = "bitmap-1"
BITMAP, VALUES = ".bitmap", ".values"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Bytes of a file's tensors, stored and once unpacked."""

    stored: int
    dense: int

    @property
    def ratio(self) -> float:
        """Stored over dense."""
        return self.stored / self.dense if self.dense else 1.0


def write_packed(
    path: str | Path,
    weights: Mapping[str, Tensor],
    *,
    metadata: Mapping[str, str] | None = None,
) -> Sizes:
    """Write weights, each packed if that makes it smaller; beside ``path``, then renamed."""
    path = Path(path)
    content: dict[str, Tensor] = {}
    shapes: dict[str, list[int]] = {}
    stored = dense = 0
    for name, weight in weights.items():
        size = weight.numel() * weight.element_size()
        packed = pack(weight.detach().cpu())
        dense += size
        if packed.num_bytes < size:
            content[name + BITMAP], content[name + VALUES] = packed.bitmap, packed.values
            shapes[name] = list(packed.shape)
            stored += packed.num_bytes
        else:
            content[name] = weight.detach().cpu().contiguous().clone()
            stored += size
    header = {**(metadata or {}), "format": "pt", "codec": CODEC, "packed": json.dumps(shapes)}
    draft = path.with_name(f".{path.name}.part")
    try:
        save_file(content, draft, metadata=header)
        draft.chmod(0o644)
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    return Sizes(stored=stored, dense=dense)


class PackedFile:
    """A compressed file, opened; weights are read one at a time.

    Args:
        path: Written by :func:`write_packed`, or any safetensors file.
        on_read: Told the bytes of every read, before it happens; what throttles it in benchmarks.
    """

    def __init__(self, path: str | Path, *, on_read: Callable[[int], None] | None = None) -> None:
        self.path = Path(path)
        self._on_read = on_read
        try:
            with safe_open(self.path, framework="pt") as file:  # checks the header
                header = file.metadata() or {}
                self._keys = set(file.keys())
            self._places, self._begin = _places(self.path)
            self._shapes: dict[str, list[int]] = json.loads(header.get("packed", "{}"))
        except (OSError, SafetensorError, ValueError) as error:
            raise CheckpointError(
                explain(
                    f"compressed checkpoint {self.path.name}",
                    expected="safetensors",
                    got=f"{error}",
                    do="Write it with cosmos-transfer prune.",
                )
            ) from error
        if self._shapes and header.get("codec") != CODEC:
            raise CheckpointError(
                explain(
                    f"compressed checkpoint {self.path.name}",
                    expected=f"codec {CODEC}",
                    got=f"{header.get('codec')}",
                    do="Use a version of this package that knows it.",
                )
            )

    def names(self) -> tuple[str, ...]:
        """The weights, by the names they were written under."""
        parts = {name + end for name in self._shapes for end in (BITMAP, VALUES)}
        return tuple(sorted({*self._shapes, *(self._keys - parts)}))

    def read(self, name: str) -> Tensor | PackedTensor:
        """One weight as it is stored.

        Raises:
            CheckpointError: It is not in the file, or its parts do not belong together.
        """
        wanted = (name + BITMAP, name + VALUES) if name in self._shapes else (name,)
        absent = [key for key in wanted if key not in self._keys]
        if absent:
            raise CheckpointError(
                explain(
                    f"compressed checkpoint {self.path.name}",
                    expected=f"a weight {name}",
                    got=f"no {', '.join(absent)}",
                    do="Write it with cosmos-transfer prune.",
                )
            )
        tensors = [self._read(key) for key in wanted]
        if name not in self._shapes:
            return tensors[0]
        bitmap, values = tensors
        return PackedTensor(bitmap=bitmap, values=values, shape=tuple(self._shapes[name]))

    def read_dense(self, name: str, *, decoder: str = "auto", out: Tensor | None = None) -> Tensor:
        """One weight, unpacked."""
        stored = self.read(name)
        if isinstance(stored, PackedTensor):
            return unpack(stored, decoder=decoder, out=out)
        return stored if out is None else out.copy_(stored)

    def items(self, *, decoder: str = "auto") -> Iterator[tuple[str, Tensor]]:
        """Every weight, unpacked, one at a time."""
        for name in self.names():
            yield name, self.read_dense(name, decoder=decoder)

    def _read(self, key: str) -> Tensor:
        # Read, not mapped: pages of a mapped file stay in this process's memory once touched, and
        # a model that is streamed from it would be resident after all.
        place = self._places[key]
        begin, end = place["data_offsets"]
        if self._on_read is not None:
            self._on_read(end - begin)
        flat = torch.empty(end - begin, dtype=torch.uint8)
        with self.path.open("rb", buffering=0) as file:
            file.seek(self._begin + begin)
            room = memoryview(flat.numpy())  # type: ignore[arg-type]  # arrays are buffers
            while room:
                count = file.readinto(room)
                if not count:
                    raise CheckpointError(
                        explain(
                            f"compressed checkpoint {self.path.name}",
                            expected=f"{end - begin} bytes of {key}",
                            got=f"{len(room)} too few",
                            do="Fetch or write it again.",
                        )
                    )
                room = room[count:]
        return flat.view(_DTYPES[place["dtype"]]).reshape(place["shape"])


def _places(path: Path) -> tuple[dict[str, Any], int]:
    """Where every tensor stands in a safetensors file, and where the first byte of data is."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        return json.loads(file.read(size)), 8 + size


_DTYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I16": torch.int16,
    "U16": torch.uint16,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I32": torch.int32,
    "U32": torch.uint32,
    "F32": torch.float32,
    "I64": torch.int64,
    "U64": torch.uint64,
    "F64": torch.float64,
}


def is_packed(path: str | Path) -> bool:
    """Whether a safetensors file holds compressed weights."""
    try:
        with safe_open(path, framework="pt") as file:
            return (file.metadata() or {}).get("codec") == CODEC
    except (OSError, SafetensorError):
        return False  # whoever reads it says what is wrong with it


def read_packed(path: str | Path) -> dict[str, Tensor]:
    """All weights of a file, unpacked."""
    with torch.no_grad():
        return dict(PackedFile(path).items())
