"""What was measured of every clip, on disk line by line: a run that was stopped goes on.

The file's name holds the hash of all that the values depend on: the checkpoint's weights and
settings, the judges' weights, and the sources of what generates, renders and measures. Threads and
the number of clips are not among them. How inputs are read is not either.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cosmos_transfer
from benchmarks.embedded.bench import Settings
from cosmos_transfer.metrics.predictors import TASKS
from cosmos_transfer.model.checkpoint import CheckpointInfo, find_checkpoint

SOURCES = (
    "autoencoder",
    "controls",
    "diffusion",
    "metrics",
    "model",
    "training/scenes",
    "weights",
    "pipeline.py",
)


class ClipLog:
    """Values by part and seed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.values: dict[str, dict[int, Any]] = {}
        if path.is_file():
            for line in path.read_text(encoding="utf-8").splitlines():
                try:
                    entry = json.loads(line)
                except ValueError:  # the line at which an earlier run was stopped
                    continue
                self.values.setdefault(entry["part"], {})[entry["seed"]] = entry["values"]

    def has(self, part: str, seed: int) -> bool:
        """Whether a part was measured on a clip."""
        return seed in self.values.get(part, {})

    def add(self, seed: int, values: Mapping[str, Any]) -> None:
        """Keep what one clip gave, by part."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            for part, each in values.items():
                line = json.dumps({"part": part, "seed": seed, "values": each})
                file.write(line + "\n")
                # As it will be read back: tuples are lists, the names of fields are text.
                self.values.setdefault(part, {})[seed] = json.loads(line)["values"]


def log_path(settings: Settings, info: CheckpointInfo) -> Path:
    """Where the values of these settings are kept."""
    digest = hashlib.sha256(
        json.dumps(
            {
                "weights": dict(info.sha256),
                "size": str(info.native_size),
                "num_frames": info.native_frames,
                "steps": settings.steps or info.num_inference_steps,
                "guidance": info.guidance_scale,
                "sampler": info.sampler,
                "shift": info.shift,
                "device": settings.device,
            },
            sort_keys=True,
        ).encode()
    )
    judges = find_checkpoint(settings.judge).folder
    paths = [] if judges is None else [judges / "predictors" / t / "config.json" for t in TASKS]
    package = Path(cosmos_transfer.__file__).parent
    for source in SOURCES:
        path = package / source
        paths += sorted(path.rglob("*.py")) if path.is_dir() else [path]
    here = Path(__file__).parent
    paths += [*sorted(here.glob("*.py")), here.parent / "held_out.py"]
    for path in paths:
        digest.update(path.read_bytes() if path.is_file() else b"")
    return settings.folder / f"{info.id}-{digest.hexdigest()[:12]}.jsonl"
