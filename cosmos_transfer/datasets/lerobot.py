"""LeRobot v3.0 datasets: parquet tables, and mp4 files that several episodes share.

Layout and words: huggingface/lerobot at 7427f31 (``meta/info.json``, ``meta/tasks.parquet``,
``meta/episodes``, ``data``, ``videos``). Needs the extra ``datasets`` (pyarrow).
:mod:`cosmos_transfer.datasets.lerobot_v21` reads the version before.
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
from jaxtyping import Int64, UInt8

from cosmos_transfer.datasets.base import (
    Card,
    NewEpisode,
    refuse_camera,
    refuse_existing,
    write_json,
    write_provenance,
)
from cosmos_transfer.errors import ConfigError, MediaError, ShapeError, explain
from cosmos_transfer.inputs.media import decode_video
from cosmos_transfer.inputs.video import read_clip, uniform_times

VERSION = "v3.0"
DATA_PATH = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
VIDEO_PATH = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
EPISODES_PATH = "meta/episodes/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
FILES_PER_CHUNK = 1000
STATISTICS = ("min", "max", "mean", "std", "count")


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


class LeRobotDataset:
    """A dataset to read.

    Raises:
        MediaError: No dataset there, or a file of it is missing.
        ConfigError: Another version, or pyarrow is not installed.
    """

    version = VERSION
    kind = "LeRobot"
    codec = "h264"
    data_files = "chunk-*/file-*.parquet"

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        self.arrow = _pyarrow()
        self.info = read_info(self.root)
        found = self.info.get("codebase_version")
        if found != self.version:
            raise ConfigError(
                explain(
                    str(self.root),
                    expected=f"a LeRobot dataset of version {self.version}",
                    got=repr(found),
                    do="Convert it with lerobot's own converter to v3.0.",
                )
            )
        self.fps = _frame_rate(self.root, self.info)
        self.episodes = self._read_episodes()

    @property
    def cameras(self) -> tuple[str, ...]:
        """Video features that show colours: depth maps are none."""
        return tuple(
            key
            for key, feature in self.info["features"].items()
            if feature["dtype"] == "video" and not _is_depth(feature)
        )

    @property
    def repo_id(self) -> str:
        """The name in ``info.json``, or the folder's."""
        return str(self.info.get("repo_id", self.root.resolve().name))

    def clock(self, episode: Episode, camera: str) -> tuple[Fraction, ...]:
        """Frame i is shown at i / fps."""
        return uniform_times(episode.length, self.fps)

    def files(self, cameras: Sequence[str]) -> Mapping[str, Path]:
        """The mp4 files of these cameras."""
        paths = {self.video_path(episode, key) for episode in self.episodes for key in cameras}
        return {str(path.relative_to(self.root)): path for path in sorted(paths)}

    def write(self, destination: Path, episodes: Sequence[NewEpisode], *, card: Card) -> Path:
        """Write a v3.0 dataset; see :func:`write_lerobot`."""
        return write_lerobot(self, destination, episodes, card=card)

    def table(self) -> Any:
        """All rows, in the order of the dataset (a pyarrow table)."""
        files = sorted((self.root / "data").glob(self.data_files))
        if not files:
            raise _missing(self.root / "data")
        return self.arrow.concat_tables([self.arrow.parquet.read_table(path) for path in files])

    def copy_meta(self, meta: Path) -> None:
        """Copy what ``meta`` holds beside the episodes' table to a new folder."""
        without_episodes = shutil.ignore_patterns("episodes")
        shutil.copytree(self.root / "meta", meta, ignore=without_episodes)

    def episodes_table(self, rows: Sequence[Mapping[str, Any]]) -> Any:
        """Rows as a table of the source's own schema."""
        files = sorted((self.root / "meta" / "episodes").glob("chunk-*/file-*.parquet"))
        schema = self.arrow.parquet.read_schema(files[0])
        return self.arrow.Table.from_pylist(rows, schema=schema)

    def frames(self, episode: Episode, camera: str) -> UInt8[np.ndarray, "f h w 3"]:
        """An episode's frames, found in the shared file by their times.

        Raises:
            ConfigError: No such camera.
            ShapeError: The file holds another number of frames in that time than the table says.
        """
        refuse_camera(camera, self.cameras)
        path = self.video_path(episode, camera)
        begin = Fraction(episode.video(camera)[2])
        half = 1 / (2 * self.fps)
        found: list[np.ndarray] = []
        for frame in decode_video(path, "rgb24"):
            if frame.seconds is None or frame.pixels is None or frame.seconds < begin - half:
                continue
            if len(found) == episode.length:
                break
            expected = begin + len(found) / self.fps
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
    card: Card,
) -> Path:
    """Write a dataset whose episodes are those of another with other pictures.

    Columns other than ``episode_index`` and ``index``, which count the new episodes, are the
    source's own values. Cameras without new videos keep their files. The dataset appears under its
    name when it is complete.

    Args:
        source: Where tables and untouched features come from.
        destination: A folder that does not exist.
        episodes: In their new order; all with new videos of the same cameras.
        card: The dataset's README.

    Raises:
        MediaError: The destination exists.
        ShapeError: The rows of an episode are not where its table says.
    """
    pa = source.arrow
    destination = Path(destination)
    refuse_existing(destination)
    root = destination.with_name(f".{destination.name}.part")
    shutil.rmtree(root, ignore_errors=True)
    source.copy_meta(root / "meta")
    table = source.table()
    cameras = tuple(episodes[0].videos)
    kept = [
        key
        for key, feature in source.info["features"].items()
        if feature["dtype"] == "video" and key not in cameras
    ]
    slices: list[Any] = []
    rows: list[dict[str, Any]] = []
    counts = {camera: np.zeros((3, 256), dtype=np.int64) for camera in cameras}
    begin = 0
    for index, new in enumerate(episodes):
        old = new.source
        part = table.slice(old.start, old.length)
        if part.column("episode_index").to_pylist() != [old.index] * old.length:
            raise ShapeError(
                explain(
                    f"{source.root}, episode {old.index}",
                    expected=f"{old.length} rows of its own from row {old.start} on",
                    got="others, or fewer",
                    do="The rows and their table disagree: repair the dataset.",
                )
            )
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
                f"videos/{camera}/to_timestamp": float(old.length / source.fps),
            }
            counted = count_levels(read_clip(path).frames)
            counts[camera] += counted
            prefix = f"stats/{camera}/"
            asked = [key.removeprefix(prefix) for key in row if key.startswith(prefix)]
            found = pixel_statistics(counted, old.length, asked)
            row |= {f"{prefix}{name}": value for name, value in found.items()}
        for key in kept:
            chunk, file, _, _ = old.video(key)
            _copy(source.video_path(old, key), root, VIDEO_PATH, key, chunk, file)
        rows.append(row)
        begin += old.length
    _write_table(pa, pa.concat_tables(slices), root, DATA_PATH)
    _write_table(pa, source.episodes_table(rows), root, EPISODES_PATH)
    info = {
        **source.info,
        "codebase_version": VERSION,
        "features": _described(source, cameras),
        "total_episodes": len(episodes),
        "total_frames": begin,
        "data_path": DATA_PATH,
        "video_path": VIDEO_PATH,
        "splits": {"train": f"0:{len(episodes)}"},
    }
    write_json(root / "meta" / "info.json", info)
    _write_statistics(root / "meta" / "stats.json", counts, rows, begin)
    write_provenance(root / "meta" / "provenance.json", episodes)
    card.write(root / "README.md", sheet_name="sheet.png")
    root.rename(destination)
    return destination


def count_levels(frames: UInt8[np.ndarray, "f h w 3"]) -> Int64[np.ndarray, "3 256"]:
    """How many pixels of each channel have each of the 256 levels."""
    flat = frames.reshape(-1, 3)
    return np.stack([np.bincount(flat[:, channel], minlength=256) for channel in range(3)])


def pixel_statistics(
    counts: Int64[np.ndarray, "3 256"], num_frames: int, names: Sequence[str]
) -> dict[str, list]:
    """Statistics per channel, in [0, 1] and shaped (3, 1, 1), exact whatever was pooled.

    Args:
        counts: From :func:`count_levels`; counts of several clips may be added.
        num_frames: What ``count`` says.
        names: Of ``min``, ``max``, ``mean``, ``std``, ``count`` and quantiles such as ``q01``;
            others are left out.
    """
    levels = np.arange(256) / 255.0
    shares = counts / counts.sum(axis=1, keepdims=True)
    mean = shares @ levels
    below = np.cumsum(counts, axis=1)
    found: dict[str, list] = {}
    for name in names:
        if name == "count":
            found[name] = [num_frames]
            continue
        if name == "min":
            values = levels[np.argmax(counts > 0, axis=1)]
        elif name == "max":
            values = levels[255 - np.argmax(counts[:, ::-1] > 0, axis=1)]
        elif name == "mean":
            values = mean
        elif name == "std":
            values = np.sqrt((shares * (levels - mean[:, None]) ** 2).sum(axis=1))
        elif name.startswith("q") and name[1:].isdigit():
            values = _quantiles(below, int(name[1:]) / 100)
        else:
            continue
        found[name] = values.reshape(3, 1, 1).tolist()
    return found


def _quantiles(below: Int64[np.ndarray, "3 256"], share: float) -> np.ndarray:
    """Quantiles of counted levels, with NumPy's interpolation between neighbours."""
    place = share * (below[0, -1] - 1)
    low, high = int(np.floor(place)), int(np.ceil(place))
    first, second = (
        np.array([np.searchsorted(channel, rank, side="right") for channel in below])
        for rank in (low, high)
    )
    return (first + (second - first) * (place - low)) / 255.0


def _described(source: LeRobotDataset, cameras: Sequence[str]) -> dict[str, Any]:
    """The features, with what the new videos are."""
    features = dict(source.info["features"])
    for camera in cameras:
        told = {
            "video.codec": "h264",
            "video.pix_fmt": _pixel_format(features[camera]),
            "video.fps": source.info["fps"],
        }
        features[camera] = {**features[camera], "info": {**_video_info(features[camera]), **told}}
    return features


def _pixel_format(feature: Mapping[str, Any]) -> str:
    names, shape = feature.get("names"), list(feature["shape"])
    sides = shape[:2]
    if isinstance(names, list) and str(names[0]).startswith("channel"):
        sides = shape[1:]
    return "yuv444p" if any(side % 2 for side in sides) else "yuv420p"


def _video_info(feature: Mapping[str, Any]) -> Mapping[str, Any]:
    return feature.get("info") or feature.get("video_info") or {}


def _is_depth(feature: Mapping[str, Any]) -> bool:
    info = _video_info(feature)
    return bool(info.get("is_depth_map") or info.get("video.is_depth_map"))


def _write_statistics(
    path: Path,
    counts: Mapping[str, np.ndarray],
    rows: Sequence[Mapping[str, Any]],
    num_frames: int,
) -> None:
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
    for camera, counted in counts.items():
        asked = dict.fromkeys((*STATISTICS, *stats.get(camera, {})))
        stats[camera] = pixel_statistics(counted, num_frames, tuple(asked))
    write_json(path, stats)


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


def read_info(root: Path) -> dict[str, Any]:
    """``meta/info.json``.

    Raises:
        MediaError: It is missing, or is no table of features.
    """
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


def _frame_rate(root: Path, info: Mapping[str, Any]) -> Fraction:
    try:
        rate = Fraction(str(info.get("fps")))
    except ValueError:
        rate = Fraction(0)
    if rate <= 0:
        raise MediaError(
            explain(
                str(root / "meta" / "info.json"),
                expected="fps, a number above 0",
                got=repr(info.get("fps")),
                do="Repair the dataset.",
            )
        )
    return rate


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
