"""Finished chunks on disk, so that a run that was killed goes on at the last one.

A folder beside the output holds ``run.json``, which says whose chunks they are, and one ``.npz`` a
chunk: the frames it made, lossless, and what the record needs to know of it. Files appear under
their name only when they are complete. The folder goes when the clip is done.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8

from cosmos_transfer.errors import MediaError, explain

RUN_FILE = "run.json"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FinishedChunk:
    """What is kept of a chunk: the frames it made at the padded working size, and per control the
    sum, the least, the greatest and the number of its token weights."""

    made: UInt8[np.ndarray, "f h w 3"]
    weights: Float[np.ndarray, "k 4"]


def identity(facts: Mapping[str, Any]) -> str:
    """A hash of everything that decides a run's frames."""
    text = json.dumps(facts, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class ChunkStore:
    """The finished chunks of one run.

    Args:
        folder: Where they are; created with the first chunk.
        run: The run's :func:`identity`.
        overwrite: Throw the chunks of another run away instead of refusing.

    Raises:
        MediaError: The folder holds another run's chunks, or something else.
    """

    def __init__(self, folder: Path, run: str, *, overwrite: bool = False) -> None:
        self.folder = folder
        self._run = run
        if not folder.exists() or all(each.suffix == ".part" for each in folder.iterdir()):
            return
        found = _run_of(folder)
        if found == run:
            return
        if found is None or not overwrite:
            raise MediaError(
                explain(
                    str(folder),
                    expected="no folder, or finished chunks of the same run",
                    got="something else" if found is None else "finished chunks of another run",
                    do="Remove it, or choose another name; output.overwrite=true removes another"
                    " run's chunks.",
                )
            )
        self.remove()

    def load(self, index: int) -> FinishedChunk | None:
        """A chunk that was finished before; None if it was not."""
        path = self._path(index)
        try:
            with np.load(path, allow_pickle=False) as file:
                return FinishedChunk(made=file["made"], weights=file["weights"])
        except (OSError, ValueError, KeyError, zipfile.BadZipFile):
            return None  # not there, or damaged: made anew

    def save(self, index: int, chunk: FinishedChunk) -> None:
        """Keep a chunk; on disk, under its name, before this returns."""
        self.folder.mkdir(parents=True, exist_ok=True)
        run_file = self.folder / RUN_FILE
        if not run_file.exists():
            _write(run_file, json.dumps({"run": self._run}).encode())
        unfinished = self.folder / f"{index}.part"
        with unfinished.open("wb") as file:
            np.savez(file, made=chunk.made, weights=chunk.weights)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(self._path(index))

    def remove(self) -> None:
        """Forget the chunks: the clip is done."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _path(self, index: int) -> Path:
        return self.folder / f"chunk-{index:05d}.npz"


def _run_of(folder: Path) -> str | None:
    try:
        content = json.loads((folder / RUN_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content.get("run") if isinstance(content, dict) else None


def _write(path: Path, content: bytes) -> None:
    unfinished = path.with_name(f"{path.name}.part")
    unfinished.write_bytes(content)
    unfinished.replace(path)
