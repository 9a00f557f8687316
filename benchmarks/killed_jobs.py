"""Jobs that are killed, and jobs whose disk is full: what is lost, what is made twice.

    python -m benchmarks.killed_jobs                20 kills over 40 items, 2 workers
    python -m benchmarks.killed_jobs --full-disk    a job on a disk of half a megabyte (needs root)

The whole process group, driver and workers, gets SIGKILL at a random moment; the job is started
again, and so on. After every kill each file under a final name is whole, and no item that was done
is made again; after the last start every item is done and holds the bytes of its seed.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cosmos_transfer.errors import MediaError, TransferError
from cosmos_transfer.jobs.manifest import Item, Manifest, Row
from cosmos_transfer.jobs.run import WORK_DIR, Make, run_job

SIZE = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What came of it."""

    kills: int
    made: int  # items that were made to their end, those included that a kill then undid
    begun: int  # attempts in all


def build_writer(pause_s: float, log: str, size: int = SIZE) -> Make:
    """Writes each item slowly, in two halves, so that a kill can fall between them."""

    def make(row: Row, folder: Path) -> Mapping[str, Any]:
        noise = _noise(row, size)
        with open(folder / f"{row.name}.bin", "wb") as file:
            file.write(noise[: size // 2])
            file.flush()
            time.sleep(pause_s)
            file.write(noise[size // 2 :])
        (folder / f"{row.name}.json").write_text("{}")
        if row.payload.get("corrupt"):
            raise MediaError(f"{row.name} is corrupt")
        with open(log, "a") as file:
            file.write(f"{row.name}\n")
        return {"length": size}

    return make


def kill_and_resume(
    folder: Path, *, num_items: int, kills: int, pause_s: float, seed: int, workers: int = 2
) -> Told:
    """Start, kill, start again; raises AssertionError where a promise is broken."""
    manifest = Manifest(folder / "job.sqlite", create=True)
    manifest.add(Item(name=f"item-{i:02d}", payload={"i": i}, seed=i) for i in range(num_items))
    rng = np.random.default_rng(seed)
    context = multiprocessing.get_context("spawn")
    log = folder / "log.txt"
    log.touch()
    killed, was_done = 0, set[str]()
    made = Counter[str]()
    for _ in range(kills):
        process = context.Process(
            target=_run_in_group, args=(folder, str(log), pause_s, workers), daemon=False
        )
        process.start()
        done = manifest.progress().counts["done"]
        deadline = time.monotonic() + 120
        while manifest.progress().counts["done"] <= done and process.is_alive():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(float(rng.uniform(0, 2 * pause_s)))
        if process.is_alive():
            os.killpg(process.pid, signal.SIGKILL)
            killed += 1
        process.join()
        _wait_for_group(process.pid)
        now = Counter(log.read_text().split())
        assert all(now[name] == made[name] for name in was_done), "a done item was made again"
        made, was_done = now, {row.name for row in manifest.rows("done")}
        _check_files(folder, manifest)
    run_job(manifest, folder, build_writer, (0.0, str(log)))
    rows = manifest.rows()
    assert [row.state for row in rows] == ["done"] * num_items
    assert len({row.name for row in rows}) == num_items
    _check_files(folder, manifest)
    assert len(list(folder.glob("item-*"))) == 2 * num_items
    assert not list((folder / WORK_DIR).iterdir())
    return Told(
        kills=killed,
        made=len(log.read_text().split()),
        begun=sum(row.attempts for row in rows),
    )


def fill_disk(folder: Path) -> list[str]:
    """A job of two megabytes on a disk of half a megabyte, which then grows."""
    _mount(folder, "size=512k")
    try:
        manifest = Manifest(folder / "job.sqlite", create=True)
        manifest.add(Item(name=f"item-{i:02d}", payload={"i": i}, seed=i) for i in range(20))
        arguments = (0.0, "/dev/null", 100_000)
        told = []
        for workers in (1, 2):
            try:
                run_job(manifest, folder, build_writer, arguments, workers=workers, keep_going=True)
                raise AssertionError("a full disk went unnoticed")
            except TransferError as error:
                told.append(f"{workers} workers: {error}")
            assert not manifest.rows("failed")
            _check_files(folder, manifest, size=100_000)
        _mount(folder, "remount,size=8m")
        counts = run_job(manifest, folder, build_writer, arguments, workers=2).counts
        assert counts["done"] == 20
        _check_files(folder, manifest, size=100_000)
        return [*told, "with more room: 20 of 20 done"]
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def _check_files(folder: Path, manifest: Manifest, size: int = SIZE) -> None:
    """Every file under a final name is whole, and every done item has one."""
    rows = {row.name: row for row in manifest.rows()}
    found = {path.stem for path in folder.glob("item-*.bin")}
    for name in found:
        assert (folder / f"{name}.bin").read_bytes() == _noise(rows[name], size), name
    assert {row.name for row in rows.values() if row.state == "done"} <= found


def _noise(row: Row, size: int) -> bytes:
    return np.random.default_rng(row.seed).bytes(size)


def _run_in_group(folder: Path, log: str, pause_s: float, workers: int) -> None:
    os.setsid()
    run_job(Manifest(folder / "job.sqlite"), folder, build_writer, (pause_s, log), workers=workers)


def _wait_for_group(group: int | None) -> None:
    """Until every process of a killed group is gone: a kill takes a moment to arrive."""
    assert group is not None
    for _ in range(1000):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.01)
    raise AssertionError("a killed process lives")


def _mount(folder: Path, options: str) -> None:
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    subprocess.run(command, check=True)


def main(argv: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.killed_jobs")
    parser.add_argument("--items", type=int, default=40)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--pause", type=float, default=0.1, help="seconds that an item takes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--full-disk", action="store_true")
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as name:
        if arguments.full_disk:
            print("\n".join(fill_disk(Path(name))))
            return 0
        told = kill_and_resume(
            Path(name),
            num_items=arguments.items,
            kills=arguments.kills,
            pause_s=arguments.pause,
            seed=arguments.seed,
            workers=arguments.workers,
        )
    print(
        f"{told.kills} kills over {arguments.items} items: all done once, no half file; "
        f"{told.begun} attempts, {told.made} made to their end"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
