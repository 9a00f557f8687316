"""A small LeRobot v3.0 dataset: two episodes a file, two cameras."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np

from cosmos_transfer.outputs.writer import write_clip

FPS = 10
CAMERAS = ("observation.images.front", "observation.images.wrist")


def episode_level(episode: int, camera: int) -> int:
    """The grey that an episode's pictures begin with."""
    return 20 + 30 * episode + 10 * camera


def build_lerobot(root: Path, *, num_episodes: int = 6, size: tuple[int, int] = (32, 48)) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    lengths = [4 + episode % 3 for episode in range(num_episodes)]
    columns: dict[str, list] = {name: [] for name in ("action", "timestamp", "frame_index")}
    columns |= {name: [] for name in ("episode_index", "index", "task_index")}
    rows = []
    begin = 0
    for episode, length in enumerate(lengths):
        columns["action"] += rng.normal(size=(length, 7)).astype(np.float32).tolist()
        columns["timestamp"] += [np.float32(i / FPS) for i in range(length)]
        columns["frame_index"] += range(length)
        columns["episode_index"] += [episode] * length
        columns["index"] += range(begin, begin + length)
        columns["task_index"] += [episode % 2] * length
        before = lengths[episode - 1] / FPS if episode % 2 else 0.0
        row = {
            "episode_index": episode,
            "tasks": ["lift"],
            "length": length,
            "dataset_from_index": begin,
            "dataset_to_index": begin + length,
            "data/chunk_index": 0,
            "data/file_index": 0,
            "meta/episodes/chunk_index": 0,
            "meta/episodes/file_index": 0,
            "stats/index/min": [begin],
            "stats/index/count": [length],
        }
        for key in CAMERAS:
            row |= {
                f"videos/{key}/chunk_index": 0,
                f"videos/{key}/file_index": episode // 2,
                f"videos/{key}/from_timestamp": before,
                f"videos/{key}/to_timestamp": before + length / FPS,
                f"stats/{key}/mean": [[[0.0]]] * 3,
                f"stats/{key}/q50": [[[0.0]]] * 3,
            }
        rows.append(row)
        begin += length
    for number, key in enumerate(CAMERAS):
        for file in range((num_episodes + 1) // 2):
            frames = []
            for episode in range(2 * file, min(2 * file + 2, num_episodes)):
                for i in range(lengths[episode]):
                    frame = np.full((*size, 3), episode_level(episode, number), np.uint8)
                    frame[8:20, 4 * i + 4 : 4 * i + 18] = 230
                    frames.append(frame)
            path = root / f"videos/{key}/chunk-000/file-{file:03d}.mp4"
            write_clip(path, np.stack(frames), rate=Fraction(FPS))
    types = {
        "action": pa.list_(pa.float32(), 7),
        "timestamp": pa.float32(),
    }
    schema = pa.schema([(name, types.get(name, pa.int64())) for name in columns])
    schema = schema.with_metadata({"huggingface": "{}"})
    for path, table in (
        (root / "data/chunk-000/file-000.parquet", pa.table(columns, schema=schema)),
        (root / "meta/episodes/chunk-000/file-000.parquet", pa.Table.from_pylist(rows)),
        (root / "meta/tasks.parquet", pa.table({"task_index": [0, 1], "task": ["lift", "push"]})),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, path)
    picture = {"dtype": "video", "shape": [*size, 3], "names": ["height", "width", "channels"]}
    info = {
        "codebase_version": "v3.0",
        "robot_type": "arm",
        "fps": FPS,
        "total_episodes": num_episodes,
        "total_frames": begin,
        "total_tasks": 2,
        "chunks_size": 1000,
        "features": {
            "action": {"dtype": "float32", "shape": [7], "names": None},
            **dict.fromkeys(CAMERAS, picture),
        },
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "video_path": "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
        "splits": {"train": f"0:{num_episodes}"},
    }
    (root / "meta/info.json").write_text(json.dumps(info))
    stats = {key: {"mean": [[[0.0]]] * 3, "count": [begin]} for key in CAMERAS}
    stats["action"] = {"mean": [0.0] * 7, "count": [begin]}
    (root / "meta/stats.json").write_text(json.dumps(stats))
    return root


def build_lerobot_v21(root: Path) -> Path:
    """The same episodes in the layout before: a parquet and an mp4 file each, JSON lines."""
    import pyarrow.parquet as pq

    from cosmos_transfer.datasets.lerobot import LeRobotDataset

    new = LeRobotDataset(build_lerobot(root.with_name(f"{root.name}-v30")))
    table = new.table()
    listed, stats = [], []
    for episode in new.episodes:
        name = f"episode_{episode.index:06d}"
        part = table.slice(episode.start, episode.length)
        path = root / f"data/chunk-000/{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(part, path)
        for key in CAMERAS:
            frames = new.frames(episode, key)
            write_clip(root / f"videos/chunk-000/{key}/{name}.mp4", frames, rate=Fraction(FPS))
        listed.append({"episode_index": episode.index, "tasks": ["lift"], "length": episode.length})
        actions = np.array(part.column("action").to_pylist())
        told = {kind: getattr(actions, kind)(axis=0).tolist() for kind in ("min", "max", "mean")}
        told |= {"std": actions.std(axis=0).tolist(), "count": [episode.length]}
        stats.append({"episode_index": episode.index, "stats": {"action": told}})
    meta = root / "meta"
    meta.mkdir()
    for name, rows in (
        ("tasks", [{"task_index": 0, "task": "lift"}, {"task_index": 1, "task": "push"}]),
        ("episodes", listed),
        ("episodes_stats", stats),
    ):
        (meta / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    info = {
        **new.info,
        "codebase_version": "v2.1",
        "total_chunks": 1,
        "total_videos": 12,
        "data_path": "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
        "video_path": "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}"
        ".mp4",
    }
    (meta / "info.json").write_text(json.dumps(info))
    return root
