"""LeRobot v2.1 datasets, read as if they were v3.0: one parquet and one mp4 file an episode.

``meta`` is JSON and JSON lines (``tasks``, ``episodes``, ``episodes_stats``); what is written from
them is v3.0. Layout: huggingface/lerobot, ``datasets/v30/convert_dataset_v21_to_v30.py``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cosmos_transfer.datasets.base import write_json
from cosmos_transfer.datasets.lerobot import FILES_PER_CHUNK, Episode, LeRobotDataset
from cosmos_transfer.errors import MediaError, explain

VERSION = "v2.1"
DATA_PATH = "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet"
VIDEO_PATH = "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4"
ONLY_HERE = ("total_chunks", "total_videos")  # of info.json; v3.0 has no such keys
FILE_SIZES_MB = {"data_files_size_in_mb": 100, "video_files_size_in_mb": 200}


class LeRobotV21Dataset(LeRobotDataset):
    """A v2.1 dataset to read; what it writes is v3.0.

    Raises:
        MediaError: No dataset there, or a file of it is missing or damaged.
        ConfigError: Another version, or pyarrow is not installed.
    """

    version = VERSION
    data_files = "chunk-*/episode_*.parquet"

    def __init__(self, root: str | Path) -> None:
        super().__init__(root)
        self._video_pattern = str(self.info.get("video_path") or VIDEO_PATH)
        kept = {key: value for key, value in self.info.items() if key not in ONLY_HERE}
        self.info = {**FILE_SIZES_MB, **kept}

    def video_path(self, episode: Episode, key: str) -> Path:
        """The file that holds a camera's frames of an episode."""
        chunk = episode.index // self._chunk_size
        name = self._video_pattern.format(
            video_key=key, episode_chunk=chunk, episode_index=episode.index
        )
        return self.root / name

    def copy_meta(self, meta: Path) -> None:
        """Write v3.0's tables of tasks and statistics to a new folder."""
        meta.mkdir(parents=True)
        rows = sorted(_lines(self.root / "meta" / "tasks.jsonl"), key=lambda row: row["task_index"])
        self._write_tasks(meta / "tasks.parquet", rows)
        parts = [each.values for each in self.episodes]
        prefixed = [key for key in parts[0] if key.startswith("stats/")]
        features = dict.fromkeys(key.split("/")[1] for key in prefixed)
        if features:
            write_json(meta / "stats.json", {name: _pooled(parts, name) for name in features})

    def episodes_table(self, rows: Sequence[Mapping[str, Any]]) -> Any:
        """Rows as a table; their types follow from their values."""
        return self.arrow.Table.from_pylist(rows)

    @property
    def _chunk_size(self) -> int:
        return int(self.info.get("chunks_size", FILES_PER_CHUNK))

    def _read_episodes(self) -> tuple[Episode, ...]:
        meta = self.root / "meta"
        listed = sorted(_lines(meta / "episodes.jsonl"), key=lambda row: row["episode_index"])
        path = meta / "episodes_stats.jsonl"
        stats = (
            {row["episode_index"]: row["stats"] for row in _lines(path)} if path.exists() else {}
        )
        keys = [
            key for key, feature in self.info["features"].items() if feature["dtype"] == "video"
        ]
        found, start = [], 0
        for row in listed:
            index, length = int(row["episode_index"]), int(row["length"])
            values = dict(row)
            for key in keys:
                chunk, file = divmod(index, FILES_PER_CHUNK)
                values |= {
                    f"videos/{key}/chunk_index": chunk,
                    f"videos/{key}/file_index": file,
                    f"videos/{key}/from_timestamp": 0.0,
                    f"videos/{key}/to_timestamp": float(length / self.fps),
                }
            for name, each in stats.get(index, {}).items():
                values |= {f"stats/{name}/{kind}": value for kind, value in each.items()}
            found.append(Episode(index=index, length=length, start=start, values=values))
            start += length
        return tuple(found)

    def _write_tasks(self, path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
        """A table that pandas reads with the task as its index, as lerobot does."""
        columns = {
            "task_index": [int(row["task_index"]) for row in rows],
            "task": [str(row["task"]) for row in rows],
        }
        types = {"task_index": ("int64", "int64"), "task": ("unicode", "object")}
        described = [
            {
                "name": name,
                "field_name": name,
                "pandas_type": types[name][0],
                "numpy_type": types[name][1],
                "metadata": None,
            }
            for name in columns
        ]
        pandas = {
            "index_columns": ["task"],
            "column_indexes": [],
            "columns": described,
            "creator": {"library": "pyarrow", "version": self.arrow.__version__},
            "pandas_version": "2.0.0",
        }
        table = self.arrow.table(columns)
        table = table.replace_schema_metadata({"pandas": json.dumps(pandas)})
        self.arrow.parquet.write_table(table, path)


def _pooled(parts: Sequence[Mapping[str, Any]], name: str) -> dict[str, list]:
    """Statistics of all episodes from those of each; quantiles cannot be pooled, and go."""
    held = [part for part in parts if f"stats/{name}/count" in part]
    count, low, high, mean, std = (
        [np.asarray(part[f"stats/{name}/{kind}"], dtype=np.float64) for part in held]
        for kind in ("count", "min", "max", "mean", "std")
    )
    numbers = np.array([each.reshape(-1)[0] for each in count])
    shares = numbers / numbers.sum()
    pooled = np.tensordot(shares, np.stack(mean), axes=1)
    squares = np.stack(std) ** 2 + (np.stack(mean) - pooled) ** 2
    return {
        "min": np.min(low, axis=0).tolist(),
        "max": np.max(high, axis=0).tolist(),
        "mean": pooled.tolist(),
        "std": np.sqrt(np.tensordot(shares, squares, axes=1)).tolist(),
        "count": [int(numbers.sum())],
    }


def _lines(path: Path) -> list[dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    except (OSError, ValueError) as error:
        raise MediaError(
            explain(
                str(path),
                expected="a table of a LeRobot v2.1 dataset, one JSON object a line",
                got=str(error),
                do="Repair the dataset.",
            )
        ) from error
