"""What a recording offers to be augmented, whatever its files, and what is written from it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import UInt8

from cosmos_transfer.errors import ConfigError, MediaError, explain
from cosmos_transfer.outputs.sheet import write_sheet


@runtime_checkable
class Episode(Protocol):
    """One episode: its number in the source, and how many rows of actions it has."""

    @property
    def index(self) -> int:
        """Its number, as the source counts."""
        ...

    @property
    def length(self) -> int:
        """Rows; frames of each camera."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEpisode:
    """An episode to write: which one it comes from, its new videos, and how it was made."""

    source: Any  # an Episode of the source that writes it
    videos: Mapping[str, Path]
    provenance: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Card:
    """What people read beside a dataset: a text, and a sheet of pictures that it shows."""

    text: str
    sheet: UInt8[np.ndarray, "h w 3"] | None = None

    def write(self, path: Path, *, sheet_name: str) -> None:
        """Write the text to ``path`` and the sheet beside it."""
        text = self.text
        if self.sheet is not None:
            write_sheet(path.with_name(sheet_name), self.sheet)
            text = f"{text}\n![Sources and their looks]({sheet_name})\n"
        path.write_text(text, encoding="utf-8")


@runtime_checkable
class EpisodeSource(Protocol):
    """A dataset that can be read an episode at a time, and writes another like itself."""

    root: Path
    kind: str
    """What such datasets are called."""
    codec: str
    """How new clips are kept until they are written: lossless where they are stored as pixels."""

    @property
    def cameras(self) -> tuple[str, ...]:
        """What shows colours and may change."""
        ...

    @property
    def episodes(self) -> Sequence[Any]:
        """In the order of the source."""
        ...

    @property
    def repo_id(self) -> str:
        """What provenance calls the source."""
        ...

    def frames(self, episode: Any, camera: str) -> UInt8[np.ndarray, "f h w 3"]:
        """What a camera saw, upright."""
        ...

    def clock(self, episode: Any, camera: str) -> tuple[Fraction, ...]:
        """When the frames are shown, in seconds from 0."""
        ...

    def files(self, cameras: Sequence[str]) -> Mapping[str, Path]:
        """By relative name the files that these cameras' pictures stand in."""
        ...

    def write(self, destination: Path, episodes: Sequence[NewEpisode], *, card: Card) -> Path:
        """Write a dataset of these episodes; it appears whole or not at all."""
        ...


def new_clip_path(folder: Path, episode: str, camera: str) -> Path:
    """Where a new episode's clip of a camera stands until the dataset is written."""
    return folder / episode / f"{camera.replace('/', '.')}.mp4"


def refuse_camera(camera: str, known: Sequence[str]) -> None:
    """Refuse a camera that is not one of the source's.

    Raises:
        ConfigError: It is none.
    """
    if camera not in known:
        raise ConfigError(
            explain(
                f"camera {camera!r}",
                expected=f"one of {', '.join(known) or 'none'}",
                got="no video of colours by that name",
                do="Name one of these.",
            )
        )


def refuse_existing(destination: Path) -> None:
    """Refuse a destination that is there.

    Raises:
        MediaError: It is.
    """
    if destination.exists():
        raise MediaError(
            explain(
                str(destination),
                expected="a name that is free",
                got="something that is there already",
                do="Choose another destination.",
            )
        )


def write_json(path: Path, content: Any) -> None:
    """Write JSON for people to read; NaN is refused."""
    text = json.dumps(content, indent=4, ensure_ascii=False, allow_nan=False)
    path.write_text(f"{text}\n", encoding="utf-8")


def write_provenance(path: Path, episodes: Sequence[NewEpisode]) -> None:
    """Write where each new episode comes from (the form of strands-labs' ``provenance.json``)."""
    listed = [{"episode_index": index, **new.provenance} for index, new in enumerate(episodes)]
    write_json(path, {"version": 1, "episodes": listed})
