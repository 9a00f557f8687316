"""What the table of a large job costs: status, and claiming and finishing an item.

    python -m benchmarks.manifest              100,000 rows, nine tenths of them done

``status`` is timed as its command, from process start to end. An item's overhead is the time of a
claim and a finish, as one worker and as two at once; the share is of an item of one second, what
the embedded model takes for nine frames.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.results_file import hardware, write_results
from cosmos_transfer.jobs.manifest import MANIFEST_NAME, Item, Manifest


def fill(folder: Path, num_rows: int, done: int) -> Manifest:
    """A job with that many rows, some of them done."""
    manifest = Manifest(folder / MANIFEST_NAME, create=True)
    prompt = "a robot arm on a marble table, brick wall, at night"
    manifest.add(
        Item(name=f"item-{i:06d}", payload={"prompt": prompt, "i": i}, seed=i)
        for i in range(num_rows)
    )
    with sqlite3.connect(manifest.path) as connection:
        connection.execute(
            "UPDATE items SET state = 'done', begun = id, ended = id + 1, metrics = ? "
            "WHERE id <= ?",
            ('{"edge_f1": 0.61, "seed": 7, "attempt": 1}', done),
        )
    return manifest


def work_items(path: str, count: int) -> list[float]:
    """Seconds of claiming and finishing, for each of a number of items."""
    manifest = Manifest(path)
    spent = []
    for _ in range(count):
        began = time.perf_counter()
        row = manifest.claim()
        assert row is not None
        manifest.finish(row, "done", metrics={"edge_f1": 0.5}, outputs=[f"{row.name}.mp4"])
        spent.append(time.perf_counter() - began)
    return spent


def run(num_rows: int, count: int) -> dict[str, Any]:
    """Fill, ask, work."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        began = time.perf_counter()
        manifest = fill(folder, num_rows, num_rows * 9 // 10)
        filled = time.perf_counter() - began
        command = [sys.executable, "-m", "cosmos_transfer", "status", str(folder)]
        asked, answered = [], []
        for _ in range(5):
            began = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            asked.append(time.perf_counter() - began)
            began = time.perf_counter()
            manifest.progress()
            answered.append(time.perf_counter() - began)
        alone = work_items(str(manifest.path), count)
        context = multiprocessing.get_context("spawn")
        with context.Pool(2) as pool:
            both = pool.starmap(work_items, [(str(manifest.path), count)] * 2)
    return {
        "rows": num_rows,
        "fill_s": filled,
        "status_command_s": {"median": median(asked), "best": min(asked)},
        "status_query_s": median(answered),
        "item_s": {
            "one worker": median(alone),
            "two workers": median([each for part in both for each in part]),
        },
    }


def main(argv: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.manifest")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--items", type=int, default=200, help="to claim and finish, each worker")
    parser.add_argument("--write", action="store_true", help="keep the results in results/")
    arguments = parser.parse_args(argv)
    machine = hardware()
    results = run(arguments.rows, arguments.items)
    command = results["status_command_s"]
    print(f"{results['rows']} rows, added in {results['fill_s']:.1f} s; load {os.getloadavg()[0]}")
    print(
        f"status: {command['median']:.2f} s as a command (best {command['best']:.2f} s), "
        f"{1000 * results['status_query_s']:.1f} ms of it the table"
    )
    for name, seconds in results["item_s"].items():
        print(f"claim and finish, {name}: {1000 * seconds:.2f} ms, {100 * seconds:.2f} % of 1 s")
    if arguments.write:
        print(write_results({"benchmark": "manifest", "hardware": machine, **results}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
