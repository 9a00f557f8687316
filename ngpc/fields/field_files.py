"""Fields in safetensors files: parameters, and in the header all that rebuilds the field.

No backend is recorded: a field trained on one is loaded on any.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import safetensors
from safetensors.torch import save
from torch import nn

from ngpc.backends.registry import AUTO
from ngpc.data.images import replace_file
from ngpc.data.tensor_files import read_tensors
from ngpc.errors import CheckpointError, explain
from ngpc.geometry.boxes import Box


class StoredField(nn.Module):
    """A field that can be stored: it names its format and describes itself."""

    FORMAT: str

    @abstractmethod
    def description(self) -> dict[str, Any]:
        """All that rebuilds the field but its parameters, as JSON takes it."""

    @classmethod
    @abstractmethod
    def from_description(cls, description: Mapping[str, Any], *, backend: str) -> Any:
        """An untrained field that fits the parameters."""


F = TypeVar("F", bound=StoredField)


def save_field(field: StoredField, path: Path) -> None:
    """Write a field. The file appears complete or not at all."""
    tensors = {
        name: tensor.detach().cpu().contiguous() for name, tensor in field.state_dict().items()
    }
    header = {"format": field.FORMAT, "field": json.dumps(field.description())}
    replace_file(path, save(tensors, header))


def load_field(kind: type[F], path: Path, *, backend: str = AUTO) -> F:
    """Read a field of this kind.

    Raises:
        MediaError: there is no such file.
        CheckpointError: the file holds something else, or parameters that do not fit.
    """
    metadata, tensors = read_tensors(path, kind.FORMAT, what="a saved field", writer="`ngpc fit`")
    try:
        field: F = kind.from_description(json.loads(metadata["field"]), backend=backend)
        field.load_state_dict(tensors, strict=True)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise CheckpointError(
            explain(
                str(path),
                expected="parameters that fit the header",
                got=" ".join(str(error).split()),
                do="The file is damaged or was edited: fit again.",
            )
        ) from error
    return field


def format_of(path: Path) -> str | None:
    """The format that a file's header names; None where it is no safetensors file."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            metadata: dict[str, str] | None = file.metadata()
    except (OSError, safetensors.SafetensorError):
        return None
    return (metadata or {}).get("format")


def box_to_json(box: Box) -> dict[str, Any]:
    """A box as JSON takes it."""
    return {"corner": list(box.corner), "side": box.side}


def box_from_json(spec: Mapping[str, Any]) -> Box:
    """The inverse of :func:`box_to_json`."""
    x, y, z = (float(value) for value in spec["corner"])
    return Box(corner=(x, y, z), side=float(spec["side"]))
