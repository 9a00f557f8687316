"""Results on disk: one JSON file a run, with the commit, the hardware and the date."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "results"
REPOSITORY = Path(__file__).resolve().parents[1]


def hardware() -> dict[str, Any]:
    """What the run has: processor, cores, threads, and how busy the machine was at the start."""
    import torch

    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "load_average": round(os.getloadavg()[0], 1),
    }


def commit() -> str:
    """The short commit, with ``+`` where tracked files differ from it; ``unknown`` outside git."""
    head = _git("rev-parse", "--short=10", "HEAD")
    if not head:
        return "unknown"
    return head + ("+" if _git("status", "--porcelain", "--untracked-files=no") else "")


def write_results(results: dict[str, Any], folder: Path = FOLDER) -> Path:
    """Write a run's results as ``<date>_<hardware>_<commit>_<benchmark>.json``."""
    now = datetime.now(UTC)
    content = {"date": f"{now:%Y-%m-%d %H:%M} UTC", "commit": commit(), **results}
    machine = results["hardware"]
    name = machine["gpu"] or f"{machine['cores']}x {machine['processor']}"
    parts = (f"{now:%Y%m%dT%H%M%S}", _slug(name), content["commit"].rstrip("+"))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{'_'.join(parts)}_{results['benchmark']}.json"
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return path


def read_results(benchmark: str, folder: Path = FOLDER) -> list[dict[str, Any]]:
    """Every run of a benchmark, the newest first."""
    paths = sorted(folder.glob(f"*_{benchmark}.json"), reverse=True)
    return [json.loads(path.read_text(encoding="utf-8")) | {"file": path.name} for path in paths]


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or platform.machine()
    named = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return named.group(1).strip() if named else platform.machine()


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() if done.returncode == 0 else ""


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:40]
