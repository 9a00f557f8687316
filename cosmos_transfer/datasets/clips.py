"""A folder of clips: every video an episode, with whatever stands beside it under its stem."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from cosmos_transfer.datasets.base import (
    Card,
    NewEpisode,
    refuse_camera,
    refuse_existing,
    write_provenance,
)
from cosmos_transfer.errors import MediaError, explain
from cosmos_transfer.inputs.video import probe_clip, read_clip

SUFFIXES = frozenset({".mp4", ".mov", ".mkv", ".avi", ".webm"})
CAMERA = "clip"


@dataclass(frozen=True, slots=True, kw_only=True)
class Clip:
    """One video, by its path under the folder."""

    index: int
    path: Path
    length: int
    times: tuple[Fraction, ...]


class ClipFolder:
    """A folder to read, and those under it.

    What is written keeps the folders: ``a/b.mp4`` becomes ``a/b-v0.mp4``, ``a/b-v1.mp4``, ..., and
    files of the same stem (``a/b.json``, ``a/b.npz``) are copied to the same names.

    Raises:
        MediaError: No videos, a damaged one, or two of one stem.
    """

    kind = "clips"
    codec = "h264"
    cameras = (CAMERA,)

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        found = sorted(
            path.relative_to(self.root)
            for path in self.root.rglob("*")
            if path.is_file() and path.suffix.lower() in SUFFIXES and not path.name.startswith(".")
        )
        stems = [path.with_suffix("") for path in found]
        twice = next((stem for stem in stems if stems.count(stem) > 1), None)
        if not found or twice is not None:
            raise MediaError(
                explain(
                    str(self.root),
                    expected="a LeRobot dataset, or videos, each with a name of its own",
                    got="none" if twice is None else f"two named {twice}",
                    do=f"Videos end in {', '.join(sorted(SUFFIXES))}.",
                )
            )
        clips = []
        for index, path in enumerate(found):
            info = probe_clip(self.root / path)
            clips.append(Clip(index=index, path=path, length=info.num_frames, times=info.times))
        self.episodes = tuple(clips)

    @property
    def repo_id(self) -> str:
        """The folder's name."""
        return self.root.resolve().name

    def clock(self, episode: Clip, camera: str) -> tuple[Fraction, ...]:
        """The clip's own presentation times."""
        return episode.times

    def files(self, cameras: Sequence[str]) -> Mapping[str, Path]:
        """The videos."""
        return {str(each.path): self.root / each.path for each in self.episodes}

    def frames(self, episode: Clip, camera: str = CAMERA) -> UInt8[np.ndarray, "f h w 3"]:
        """The clip's frames.

        Raises:
            ConfigError: Another camera than ``clip``.
        """
        refuse_camera(camera, self.cameras)
        return read_clip(self.root / episode.path).frames

    def write(self, destination: Path, episodes: Sequence[NewEpisode], *, card: Card) -> Path:
        """Write a folder of clips, with ``provenance.json`` and ``README.md``.

        Raises:
            MediaError: The destination exists.
        """
        refuse_existing(destination)
        part = destination.with_name(f".{destination.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        for each in episodes:
            old: Path = each.source.path
            video = each.videos[CAMERA]
            stem = f"{old.stem}-v{each.provenance['variant']}"
            target = part / old.with_name(f"{stem}{video.suffix}")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(video, target)
            for beside in sorted((self.root / old).parent.glob("*")):
                if beside.is_file() and beside.stem == old.stem and beside.name != old.name:
                    shutil.copyfile(beside, target.with_suffix(beside.suffix))
        write_provenance(part / "provenance.json", episodes)
        card.write(part / "README.md", sheet_name="sheet.png")
        part.rename(destination)
        return destination
