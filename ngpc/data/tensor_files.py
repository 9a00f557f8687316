"""Tensors of our own in safetensors files: what every loader checks first."""

from __future__ import annotations

from pathlib import Path

import safetensors
from torch import Tensor

from ngpc.errors import CheckpointError, MediaError, explain


def read_tensors(
    path: Path, file_format: str, *, what: str, writer: str
) -> tuple[dict[str, str], dict[str, Tensor]]:
    """The header and the tensors of a file in one of our formats.

    Args:
        path: The file.
        file_format: What its header must say under ``format``.
        what: What it should hold, for errors.
        writer: What writes such files, for errors.

    Raises:
        MediaError: there is no such file.
        CheckpointError: it is no safetensors file, or one of another format.
    """
    if not path.is_file():
        raise MediaError(explain(str(path), expected=what, got="no file", do="Check the path."))
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            metadata: dict[str, str] = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except safetensors.SafetensorError as error:
        raise CheckpointError(
            explain(
                str(path),
                expected="safetensors",
                got=str(error),
                do=f"Use {writer} to make it again.",
            )
        ) from error
    if metadata.get("format") != file_format:
        raise CheckpointError(
            explain(
                str(path),
                expected=repr(file_format),
                got=repr(metadata.get("format")),
                do=f"Give a file written by {writer}.",
            )
        )
    return metadata, tensors
