"""robomimic's and Isaac Lab Mimic's HDF5 files: ``data/demo_N`` with ``actions`` and ``obs``.

Layout and words: ARISE-Initiative/robomimic at d309eae. Demos are ordered by their number
(``demo_10`` after ``demo_9``). A camera is a uint8 array (f, h, w, 3) in ``obs`` whose name speaks
of no labels or normals. ``next_obs/<camera>``, where it is kept, is ``obs`` one step later: the
clip is then one frame longer, and both are cut from it.

Needs the extra ``hdf5`` (h5py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from cosmos_transfer.datasets.base import (
    Card,
    NewEpisode,
    refuse_camera,
    refuse_existing,
    write_provenance,
)
from cosmos_transfer.errors import ConfigError, MediaError, ShapeError, explain
from cosmos_transfer.inputs.video import read_clip, uniform_times

CONTROL_RATE = 20  # robosuite's control frequency, where the file tells none
NOT_COLOURS = re.compile(r"seg|normal|depth|mask|label", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """One demonstration."""

    index: int  # the N of its name
    name: str
    length: int


class HDF5Dataset:
    """A file to read.

    Args:
        path: The HDF5 file.
        flip_vertical: Rows run from the bottom up (older robosuite); frames are turned upright for
            the model, and written as they were.
        rate: Steps per second; the file's own ``control_freq``, or 20, where not given.

    Raises:
        MediaError: No such file, or one without demonstrations.
        ShapeError: A demonstration whose pictures and actions differ in number.
        ConfigError: h5py is not installed.
    """

    kind = "robomimic"
    codec = "ffv1"

    def __init__(
        self,
        path: str | Path,
        *,
        flip_vertical: bool = False,
        rate: Fraction | int | None = None,
    ) -> None:
        self.root = Path(path)
        self.flip_vertical = flip_vertical
        with self._file() as file:
            self.episodes = self._read_demos(file)
            self.cameras = self._find_cameras(file)
            self.rate = Fraction(rate or _control_rate(file))
        if not self.cameras:
            raise MediaError(
                explain(
                    str(self.root),
                    expected="a camera in obs: uint8 pictures (f, h, w, 3) in every demonstration",
                    got="none",
                    do="Record the pictures: robomimic's dataset_states_to_obs.py renders them.",
                )
            )

    @property
    def repo_id(self) -> str:
        """The file's name."""
        return self.root.stem

    def clock(self, episode: Demo, camera: str) -> tuple[Fraction, ...]:
        """Frame i is shown at i / rate."""
        with self._file() as file:
            later = 1 if self._has_next(file, episode, camera) else 0
        return uniform_times(episode.length + later, self.rate)

    def files(self, cameras: Sequence[str]) -> Mapping[str, Path]:
        """The file itself."""
        return {self.root.name: self.root}

    def frames(self, episode: Demo, camera: str) -> UInt8[np.ndarray, "f h w 3"]:
        """A camera's pictures, upright; with the last of ``next_obs`` where there is one.

        Raises:
            ConfigError: No such camera.
            ShapeError: ``next_obs`` is not ``obs`` one step later.
        """
        refuse_camera(camera, self.cameras)
        with self._file() as file:
            demo = file["data"][episode.name]
            pixels = demo["obs"][camera][...]
            if self._has_next(file, episode, camera):
                later = demo["next_obs"][camera][...]
                if later.shape != pixels.shape or not np.array_equal(later[:-1], pixels[1:]):
                    raise ShapeError(
                        explain(
                            f"{self.root}, {episode.name}/next_obs/{camera}",
                            expected="the pictures of obs, one step later",
                            got="others",
                            do="Drop next_obs from the file: it can be made from obs.",
                        )
                    )
                pixels = np.concatenate([pixels, later[-1:]])
        return np.ascontiguousarray(pixels[:, ::-1] if self.flip_vertical else pixels)

    def write(self, destination: Path, episodes: Sequence[NewEpisode], *, card: Card) -> Path:
        """Copy every key and attribute, and put new pictures into the copies.

        Beside ``name.hdf5`` stand ``name.provenance.json``, ``name.md`` and ``name.sheet.png``.

        Raises:
            MediaError: The destination exists.
            ShapeError: A new clip of another size or length.
        """
        refuse_existing(destination)
        destination.parent.mkdir(parents=True, exist_ok=True)
        part = destination.with_name(f".{destination.name}.part")
        part.unlink(missing_ok=True)
        h5py = _h5py()
        with self._file() as old, h5py.File(part, "w") as new:
            _copy_attributes(old, new)
            for key in old:
                if key not in ("data", "mask"):
                    old.copy(key, new)
            data = new.create_group("data")
            _copy_attributes(old["data"], data)
            demos = {each.name for each in self.episodes}
            for key in old["data"]:
                if key not in demos:
                    old.copy(f"data/{key}", data)
            for index, each in enumerate(episodes):
                old.copy(f"data/{each.source.name}", data, name=f"demo_{index}")
                for camera, path in each.videos.items():
                    self._put(data[f"demo_{index}"], camera, read_clip(path).frames)
            if "total" in data.attrs:
                rows = sum(each.source.length for each in episodes)
                data.attrs["total"] = np.asarray(data.attrs["total"]).dtype.type(rows)
            if "mask" in old:
                self._write_masks(h5py, old["mask"], new.create_group("mask"), episodes)
        stem = destination.stem
        write_provenance(destination.with_name(f"{stem}.provenance.json"), episodes)
        card.write(destination.with_name(f"{stem}.md"), sheet_name=f"{stem}.sheet.png")
        part.rename(destination)
        return destination

    def _put(self, demo: Any, camera: str, frames: UInt8[np.ndarray, "f h w 3"]) -> None:
        pixels = frames[:, ::-1] if self.flip_vertical else frames
        held = demo["obs"][camera]
        later = demo["next_obs"][camera] if camera in demo.get("next_obs", ()) else None
        wanted = (len(held) + (later is not None), *held.shape[1:])
        if pixels.shape != wanted:
            raise ShapeError(
                explain(
                    f"{demo.name}/obs/{camera}",
                    expected=f"new pictures of shape {wanted}",
                    got=f"{pixels.shape}",
                    do="Keep the source's size and length.",
                )
            )
        held[...] = pixels[: len(held)]
        if later is not None:
            later[...] = pixels[1:]

    def _write_masks(self, h5py: Any, old: Any, new: Any, episodes: Sequence[NewEpisode]) -> None:
        """Filter keys name the new demos of the demos that they named."""
        _copy_attributes(old, new)
        for key, held in old.items():
            chosen = {each.decode() if isinstance(each, bytes) else str(each) for each in held[...]}
            names = [
                f"demo_{index}" for index, each in enumerate(episodes) if each.source.name in chosen
            ]
            is_fixed = held.dtype.kind == "S"
            dtype = None if is_fixed else h5py.string_dtype()
            values = np.array([name.encode() for name in names], dtype="S") if is_fixed else names
            if not names:
                dtype = held.dtype
            _copy_attributes(held, new.create_dataset(key, data=values, dtype=dtype))

    def _read_demos(self, file: Any) -> tuple[Demo, ...]:
        held = file.get("data")
        names = [name for name in held if "actions" in held[name]] if hasattr(held, "keys") else []
        if not names:
            raise MediaError(
                explain(
                    str(self.root),
                    expected="data/demo_N with actions, as robomimic and Isaac Lab write it",
                    got="none",
                    do="Name another file.",
                )
            )
        found = []
        for place, name in enumerate(sorted(names, key=_number)):
            number = _number(name)[0]
            length = len(file["data"][name]["actions"])
            index = place if number < 0 else number
            found.append(Demo(index=index, name=name, length=length))
        return tuple(found)

    def _find_cameras(self, file: Any) -> tuple[str, ...]:
        found: list[str] | None = None
        for each in self.episodes:
            obs = file["data"][each.name].get("obs", {})
            here = [key for key in obs if _is_camera(key, obs[key])]
            for key in here:
                if len(obs[key]) != each.length:
                    raise ShapeError(
                        explain(
                            f"{self.root}, {each.name}/obs/{key}",
                            expected=f"{each.length} pictures, one an action",
                            got=f"{len(obs[key])}",
                            do="Repair the file: which picture is missing cannot be guessed.",
                        )
                    )
            found = here if found is None else [key for key in found if key in here]
        return tuple(found or ())

    def _has_next(self, file: Any, episode: Demo, camera: str) -> bool:
        return camera in file["data"][episode.name].get("next_obs", ())

    @contextmanager
    def _file(self) -> Iterator[Any]:
        h5py = _h5py()
        try:
            file = h5py.File(self.root, "r")
        except OSError as error:
            raise MediaError(
                explain(
                    str(self.root),
                    expected="an HDF5 file",
                    got=" ".join(str(error).split()),
                    do="Check the path.",
                )
            ) from error
        with file:
            yield file


def is_hdf5(path: Path) -> bool:
    """Whether a file begins as HDF5 does."""
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        return file.read(8) == b"\x89HDF\r\n\x1a\n"


def _number(name: str) -> tuple[int, str]:
    found = re.search(r"(\d+)$", name)
    return (int(found[1]) if found else -1, name)


def _is_camera(name: str, held: Any) -> bool:
    return (
        getattr(held, "ndim", 0) == 4
        and held.shape[-1] == 3
        and held.dtype == np.uint8
        and NOT_COLOURS.search(name) is None
    )


def _control_rate(file: Any) -> int:
    try:
        told = json.loads(file["data"].attrs["env_args"])["env_kwargs"]["control_freq"]
        return int(told) if int(told) > 0 else CONTROL_RATE
    except (KeyError, TypeError, ValueError):
        return CONTROL_RATE


def _copy_attributes(old: Any, new: Any) -> None:
    for name in old.attrs:
        new.attrs.create(name, old.attrs[name], dtype=old.attrs.get_id(name).dtype)


def _h5py() -> Any:
    try:
        import h5py
    except ImportError as error:
        raise ConfigError(
            explain(
                "HDF5 datasets",
                expected="h5py",
                got="none installed",
                do="Run pip install 'cosmos-transfer[hdf5]'.",
            )
        ) from error
    return h5py
