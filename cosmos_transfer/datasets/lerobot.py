"""LeRobot v3.0 datasets: parquet tables, and mp4 files that several episodes share.

Layout and words: huggingface/lerobot at 7427f31 (``meta/info.json``, ``meta/tasks.parquet``,
``meta/episodes``, ``data``, ``videos``). Needs the extra ``datasets`` (pyarrow).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from cosmos_transfer.errors import ConfigError, MediaError, ShapeError, explain
from cosmos_transfer.inputs.media import decode_video

VERSION = "v3.0"
DATA_PATH = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
VIDEO_PATH = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
EPISODES_PATH = "meta/episodes/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
RENUMBERED = ("episode_index", "index")
FILES_PER_CHUNK = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """One episode's row of ``meta/episodes``."""

    index: int
    length: int
    start: int  # of its rows among all rows of the dataset
    values: Mapping[str, Any]

    def video(self, key: str) -> tuple[int, int, float, float]:
        """Chunk, file, and the first and last time of a camera's part of that file, in seconds."""
        names = ("chunk_index", "file_index", "from_timestamp", "to_timestamp")
        chunk, file, begin, end = (self.values[f"videos/{key}/{name}"] for name in names)
        return int(chunk), int(file), float(begin), float(end)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEpisode:
    """An episode to write: which one it comes from, its new videos, and how it was made."""

    source: Episode
    videos: Mapping[str, Path]
    provenance: Mapping[str, Any]


class LeRobotDataset:
    """A dataset to read.

    Raises:
        MediaError: No dataset there, or a file of it is missing.
        ConfigError: Another version, or pyarrow is not installed.
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        self.arrow = _pyarrow()
        self.info = _read_info(self.root)
        found = self.info.get("codebase_version")
        if found != VERSION:
            raise ConfigError(
                explain(
                    str(self.root),
                    expected=f"a LeRobot dataset of version {VERSION}",
                    got=repr(found),
                    do="Convert it with lerobot's own converter to v3.0.",
                )
            )
        self.fps = int(self.info["fps"])
        self.episodes = self._read_episodes()

    @property
    def cameras(self) -> tuple[str, ...]:
        """Video features that show colours: depth maps are none."""
        return tuple(
            key
            for key, feature in self.info["features"].items()
            if feature["dtype"] == "video" and not (feature.get("info") or {}).get("is_depth_map")
        )

    def table(self) -> Any:
        """All rows, in the order of the dataset (a pyarrow table)."""
        files = sorted((self.root / "data").glob("chunk-*/file-*.parquet"))
        if not files:
            raise _missing(self.root / "data")
        return self.arrow.concat_tables([self.arrow.parquet.read_table(path) for path in files])

    def frames(self, episode: Episode, camera: str) -> UInt8[np.ndarray, "f h w 3"]:
        """An episode's frames, found in the shared file by their times.

        Raises:
            ConfigError: No such camera.
            ShapeError: The file holds another number of frames in that time than the table says.
        """
        if camera not in self.cameras:
            raise ConfigError(
                explain(
                    f"camera {camera!r}",
                    expected=f"one of {', '.join(self.cameras)}",
                    got="no video of colours by that name",
                    do="Name one of these.",
                )
            )
        path = self.video_path(episode, camera)
        begin = Fraction(episode.video(camera)[2])
        half = Fraction(1, 2 * self.fps)
        found: list[np.ndarray] = []
        for frame in decode_video(path, "rgb24"):
            if frame.seconds is None or frame.pixels is None or frame.seconds < begin - half:
                continue
            if len(found) == episode.length:
                break
            expected = begin + Fraction(len(found), self.fps)
            if abs(frame.seconds - expected) >= half:
                break
            found.append(frame.pixels)
        if len(found) != episode.length:
            raise ShapeError(
                explain(
                    f"{path}, episode {episode.index}",
                    expected=f"{episode.length} frames from {float(begin):.4f} s on",
                    got=f"{len(found)}",
                    do="The video and its table disagree: repair the dataset.",
                )
            )
        return np.stack(found)

    def video_path(self, episode: Episode, key: str) -> Path:
        """The file that holds a camera's frames of an episode."""
        chunk, file, _, _ = episode.video(key)
        pattern = str(self.info.get("video_path") or VIDEO_PATH)
        return self.root / pattern.format(video_key=key, chunk_index=chunk, file_index=file)

    def _read_episodes(self) -> tuple[Episode, ...]:
        files = sorted((self.root / "meta" / "episodes").glob("chunk-*/file-*.parquet"))
        if not files:
            raise _missing(self.root / "meta" / "episodes")
        rows = [row for path in files for row in self.arrow.parquet.read_table(path).to_pylist()]
        return tuple(
            Episode(
                index=row["episode_index"],
                length=row["length"],
                start=row["dataset_from_index"],
                values=row,
            )
            for row in sorted(rows, key=lambda row: int(row["episode_index"]))
        )


def write_lerobot(
    source: LeRobotDataset,
    destination: str | Path,
    episodes: Sequence[NewEpisode],
    *,
    read: Callable[[Path], UInt8[np.ndarray, "f h w 3"]],
    card: str,
) -> Path:
    """Write a dataset whose episodes are those of another with other pictures.

    Columns other than ``episode_index`` and ``index``, which count the new episodes, are the
    source's own values. Cameras without new videos keep their files. The dataset appears under its
    name when it is complete.

    Args:
        source: Where tables and untouched features come from.
        destination: A folder that does not exist.
        episodes: In their new order; all with new videos of the same cameras.
        read: Decodes a new video, for the statistics of its pixels.
        card: Text of the dataset's README.

    Raises:
        MediaError: The destination exists.
    """
    pa = source.arrow
    destination = Path(destination)
    if destination.exists():
        raise MediaError(
            explain(
                str(destination),
                expected="a folder that does not exist yet",
                got="one that does",
                do="Choose another destination.",
            )
        )
    root = destination.with_name(f".{destination.name}.part")
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(source.root / "meta", root / "meta", ignore=shutil.ignore_patterns("episodes"))
    table = source.table()
    cameras = tuple(episodes[0].videos)
    kept = [
        key
        for key, feature in source.info["features"].items()
        if feature["dtype"] == "video" and key not in cameras
    ]
    slices: list[Any] = []
    rows: list[dict[str, Any]] = []
    parts: dict[str, list[dict[str, list]]] = {camera: [] for camera in cameras}
    begin = 0
    for index, new in enumerate(episodes):
        old = new.source
        part = table.slice(old.start, old.length)
        for name, values in (
            ("episode_index", np.full(old.length, index)),
            ("index", np.arange(begin, begin + old.length)),
        ):
            place = part.schema.get_field_index(name)
            field = part.schema.field(place)
            part = part.set_column(place, field, pa.array(values).cast(field.type))
        slices.append(part)
        row = dict(old.values)
        row |= {
            "episode_index": index,
            "dataset_from_index": begin,
            "dataset_to_index": begin + old.length,
            "data/chunk_index": 0,
            "data/file_index": 0,
            "meta/episodes/chunk_index": 0,
            "meta/episodes/file_index": 0,
        }
        _count(row, "stats/episode_index", np.full(old.length, index))
        _count(row, "stats/index", np.arange(begin, begin + old.length))
        for camera, path in new.videos.items():
            chunk, file = divmod(index, FILES_PER_CHUNK)
            _copy(path, root, VIDEO_PATH, camera, chunk, file)
            row |= {
                f"videos/{camera}/chunk_index": chunk,
                f"videos/{camera}/file_index": file,
                f"videos/{camera}/from_timestamp": 0.0,
                f"videos/{camera}/to_timestamp": old.length / source.fps,
            }
            stats = pixel_statistics(read(path))
            parts[camera].append(stats)
            for name, value in stats.items():
                if f"stats/{camera}/{name}" in row:
                    row[f"stats/{camera}/{name}"] = value
        for key in kept:
            chunk, file, _, _ = old.video(key)
            _copy(source.video_path(old, key), root, VIDEO_PATH, key, chunk, file)
        rows.append(row)
        begin += old.length
    _write_table(pa, pa.concat_tables(slices), root, DATA_PATH)
    files = sorted((source.root / "meta" / "episodes").glob("chunk-*/file-*.parquet"))
    schema = pa.parquet.read_schema(files[0])
    _write_table(pa, pa.Table.from_pylist(rows, schema=schema), root, EPISODES_PATH)
    info = {
        **source.info,
        "total_episodes": len(episodes),
        "total_frames": begin,
        "data_path": DATA_PATH,
        "video_path": VIDEO_PATH,
        "splits": {"train": f"0:{len(episodes)}"},
    }
    _write_json(root / "meta" / "info.json", info)
    _write_statistics(source.root, root, parts, rows, begin)
    provenance = [{"episode_index": index, **new.provenance} for index, new in enumerate(episodes)]
    _write_json(root / "meta" / "provenance.json", {"version": 1, "episodes": provenance})
    (root / "README.md").write_text(card, encoding="utf-8")
    root.rename(destination)
    return destination


def pixel_statistics(frames: UInt8[np.ndarray, "f h w 3"]) -> dict[str, list]:
    """Range, mean and deviation per channel, in [0, 1] and shaped (3, 1, 1), and the count."""
    scaled = frames.reshape(-1, 3) / 255.0
    found = {
        "min": scaled.min(axis=0),
        "max": scaled.max(axis=0),
        "mean": scaled.mean(axis=0),
        "std": scaled.std(axis=0),
    }
    shaped = {name: values.reshape(3, 1, 1).tolist() for name, values in found.items()}
    return {**shaped, "count": [len(frames)]}


def pooled_statistics(parts: Sequence[Mapping[str, list]]) -> dict[str, list]:
    """Statistics of several episodes as of one."""
    counts = np.array([part["count"][0] for part in parts], dtype=np.float64)
    shares = (counts / counts.sum()).reshape(-1, 1, 1, 1)
    means, deviations = (np.array([part[name] for part in parts]) for name in ("mean", "std"))
    mean = (shares * means).sum(axis=0)
    spread = (shares * (deviations**2 + (means - mean) ** 2)).sum(axis=0)
    return {
        "min": np.min([part["min"] for part in parts], axis=0).tolist(),
        "max": np.max([part["max"] for part in parts], axis=0).tolist(),
        "mean": mean.tolist(),
        "std": np.sqrt(spread).tolist(),
        "count": [int(counts.sum())],
    }


def _write_statistics(
    source: Path,
    root: Path,
    parts: Mapping[str, Sequence[Mapping[str, list]]],
    rows: Sequence[Mapping[str, Any]],
    num_frames: int,
) -> None:
    path = source / "meta" / "stats.json"
    if not path.is_file():
        return
    stats = json.loads(path.read_text(encoding="utf-8"))
    for values in stats.values():
        if "count" in values:
            values["count"] = [num_frames]
    lengths = [row["length"] for row in rows]
    for name, values in (
        ("index", np.arange(num_frames)),
        ("episode_index", np.repeat(np.arange(len(rows)), lengths)),
    ):
        _count_into(stats.get(name), values)
    for camera, each in parts.items():
        stats[camera] = {**stats.get(camera, {}), **pooled_statistics(each)}
        for name in [name for name in stats[camera] if name.startswith("q")]:
            del stats[camera][name]  # quantiles of the old pictures
    _write_json(root / "meta" / "stats.json", stats)


def _count_into(stats: dict[str, Any] | None, values: np.ndarray) -> None:
    for name in stats or {}:
        if stats is not None and name in _NUMBERS:
            stats[name] = [_NUMBERS[name](values)]
        elif stats is not None and name.startswith("q"):
            stats[name] = [float(np.quantile(values, int(name[1:]) / 100))]


def _count(row: dict[str, Any], prefix: str, values: np.ndarray) -> None:
    for name, measure in _NUMBERS.items():
        if f"{prefix}/{name}" in row:
            row[f"{prefix}/{name}"] = [measure(values)]
    for key in row:
        name = key.removeprefix(f"{prefix}/q")
        if name != key and name.isdigit():
            row[key] = [float(np.quantile(values, int(name) / 100))]


_NUMBERS: dict[str, Callable[[np.ndarray], float | int]] = {
    "min": lambda values: int(values.min()),
    "max": lambda values: int(values.max()),
    "mean": lambda values: float(values.mean()),
    "std": lambda values: float(values.std()),
    "count": len,
}


def _copy(path: Path, root: Path, pattern: str, key: str, chunk: int, file: int) -> None:
    target = root / pattern.format(video_key=key, chunk_index=chunk, file_index=file)
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)


def _write_table(pa: Any, table: Any, root: Path, pattern: str) -> None:
    path = root / pattern.format(chunk_index=0, file_index=0)
    path.parent.mkdir(parents=True, exist_ok=True)
    pa.parquet.write_table(table, path)


def _write_json(path: Path, content: Any) -> None:
    text = json.dumps(content, indent=4, ensure_ascii=False, allow_nan=False)
    path.write_text(f"{text}\n", encoding="utf-8")


def _read_info(root: Path) -> dict[str, Any]:
    path = root / "meta" / "info.json"
    try:
        info = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise _missing(path) from error
    except ValueError as error:
        raise MediaError(
            explain(str(path), expected="JSON", got=str(error), do="Repair the dataset.")
        ) from error
    if not isinstance(info, dict) or not isinstance(info.get("features"), dict):
        raise MediaError(
            explain(str(path), expected="a table of features", got="none", do="Repair the dataset.")
        )
    return info


def _missing(path: Path) -> MediaError:
    return MediaError(
        explain(
            str(path),
            expected="a part of a LeRobot dataset",
            got="nothing there",
            do="Name the folder that holds meta, data and videos.",
        )
    )


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ConfigError(
            explain(
                "LeRobot datasets",
                expected="pyarrow",
                got="none installed",
                do="Run pip install 'cosmos-transfer[datasets]'.",
            )
        ) from error
    return pyarrow
