from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cosmos_transfer.errors import ConfigError, MediaError
from cosmos_transfer.jobs.accept import read_thresholds
from cosmos_transfer.jobs.attempts import attempt_seed, until_accepted
from cosmos_transfer.jobs.manifest import Item, Manifest, Row
from cosmos_transfer.jobs.run import Make, RefusedError, run_job


def items(count: int, **more: Any) -> list[Item]:
    return [Item(name=f"item-{i:02d}", payload={"i": i, **more}, seed=i) for i in range(count)]


def build_writer(pause_s: float, log: str) -> Make:
    """Writes each item slowly, in two halves, so that a kill can fall between them."""

    def make(row: Row, folder: Path) -> Mapping[str, Any]:
        noise = np.random.default_rng(row.seed).bytes(2000)
        with open(folder / f"{row.name}.bin", "wb") as file:
            file.write(noise[:1000])
            file.flush()
            time.sleep(pause_s)
            file.write(noise[1000:])
        (folder / f"{row.name}.json").write_text("{}")
        if row.payload.get("corrupt"):
            raise MediaError(f"{row.name} is corrupt")
        with open(log, "a") as file:
            file.write(f"{row.name}\n")
        return {"length": 2000}

    return make


def run_two_workers(folder: Path, log: str, pause_s: float) -> None:
    os.setsid()
    run_job(Manifest(folder / "job.sqlite"), folder, build_writer, (pause_s, log), workers=2)


def wait_for_group(group: int | None) -> None:
    """Until every process of a killed group is gone: a kill takes a moment to arrive."""
    assert group is not None
    for _ in range(1000):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.01)
    raise AssertionError("a killed process lives")


def kill_and_resume(folder: Path, *, count: int, kills: int, pause_s: float) -> None:
    manifest = Manifest(folder / "job.sqlite", create=True)
    manifest.add(items(count))
    rng = np.random.default_rng(0)
    context = multiprocessing.get_context("spawn")
    log = str(folder / "log.txt")
    for _ in range(kills):
        process = context.Process(target=run_two_workers, args=(folder, log, pause_s))
        process.start()
        done = manifest.progress().counts["done"]
        deadline = time.monotonic() + 60
        while manifest.progress().counts["done"] <= done and process.is_alive():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(float(rng.uniform(0, 2 * pause_s)))
        if process.is_alive():
            os.killpg(process.pid, signal.SIGKILL)
        process.join()
        wait_for_group(process.pid)
        for path in folder.glob("item-*.bin"):
            assert path.stat().st_size == 2000
    time.sleep(0.1)
    run_job(manifest, folder, build_writer, (0.0, log))
    rows = manifest.rows()
    assert [row.state for row in rows] == ["done"] * count
    for row in rows:
        expected = np.random.default_rng(row.seed).bytes(2000)
        assert (folder / f"{row.name}.bin").read_bytes() == expected
    assert len(list(folder.glob("item-*"))) == 2 * count
    assert not list((folder / ".work").iterdir())


def test_killed_workers_lose_nothing_and_leave_no_half_files(tmp_path: Path) -> None:
    kill_and_resume(tmp_path, count=12, kills=2, pause_s=0.05)


def test_an_item_is_claimed_once(tmp_path: Path) -> None:
    manifest = Manifest(tmp_path / "job.sqlite", create=True)
    manifest.add(items(3))
    claimed = [manifest.claim() for _ in range(4)]
    assert [None if row is None else row.name for row in claimed] == [
        "item-00",
        "item-01",
        "item-02",
        None,
    ]
    assert manifest.release_abandoned() == ()  # this process lives


def test_a_claim_of_a_dead_process_is_free(tmp_path: Path) -> None:
    manifest = Manifest(tmp_path / "job.sqlite", create=True)
    manifest.add(items(1))
    assert manifest.claim() is not None
    with sqlite3.connect(manifest.path) as connection:  # the number of this process, reused
        connection.execute("UPDATE items SET owner = ?", (f"{os.getpid()}:1",))
    assert [row.name for row in manifest.release_abandoned()] == ["item-00"]
    assert manifest.claim() is not None


def test_a_changed_item_is_made_again_and_the_others_are_not(tmp_path: Path) -> None:
    manifest = Manifest(tmp_path / "job.sqlite", create=True)
    log = tmp_path / "log.txt"
    manifest.add(items(3))
    run_job(manifest, tmp_path, build_writer, (0.0, str(log)))
    changed = [*items(2), Item(name="item-02", payload={"i": 2, "prompt": "new"}, seed=9)]
    manifest.add(changed)
    run_job(manifest, tmp_path, build_writer, (0.0, str(log)))
    assert log.read_text().split() == ["item-00", "item-01", "item-02", "item-02"]


@pytest.mark.parametrize(("keep_going", "expected"), [(True, 3), (False, 1)])
def test_a_corrupt_item_fails_alone(tmp_path: Path, keep_going: bool, expected: int) -> None:
    manifest = Manifest(tmp_path / "job.sqlite", create=True)
    listed = items(4)
    listed[1] = Item(name="item-01", payload={"i": 1, "corrupt": True})
    manifest.add(listed)
    log = str(tmp_path / "log.txt")
    progress = run_job(manifest, tmp_path, build_writer, (0.0, log), keep_going=keep_going)
    assert (progress.counts["done"], progress.counts["failed"]) == (expected, 1)
    (failed,) = manifest.rows("failed")
    assert failed.error == "item-01 is corrupt"
    assert not (tmp_path / "item-01.bin").exists()
    assert manifest.retry() == 1


def test_a_locked_manifest_says_so(tmp_path: Path) -> None:
    manifest = Manifest(tmp_path / "job.sqlite", create=True)
    manifest.add(items(1))
    holder = sqlite3.connect(manifest.path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(MediaError, match=r"locked.*Another program holds it"):
        Manifest(manifest.path, busy_s=0.05).claim()
    holder.close()


def test_a_manifest_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(MediaError, match="no such file"):
        Manifest(tmp_path / "job.sqlite")


def test_new_seeds_are_tried_then_the_clip_is_refused() -> None:
    rules = read_thresholds({"edge_f1": ">0.5"})
    tried: list[int] = []

    def attempt(seed: int) -> tuple[dict[str, float], dict[str, str]]:
        tried.append(seed)
        return {"edge_f1": 0.2 * len(tried)}, {}

    assert until_accepted(attempt, 7, rules, 5)["attempt"] == 3
    assert tried == [7, attempt_seed(7, 1), attempt_seed(7, 2)]
    assert len(set(tried)) == 3
    tried.clear()
    with pytest.raises(RefusedError, match=r"edge_f1 > 0.5: 0.400"):
        until_accepted(attempt, 7, rules, 2)


def test_a_metric_that_was_not_measured_is_not_accepted() -> None:
    rules = read_thresholds(["mask_miou>=0.6"])
    with pytest.raises(RefusedError, match="not measured"):
        until_accepted(lambda _: ({}, {}), 0, rules, 1)


@pytest.mark.parametrize("rule", ["edge_f2>0.5", "edge_f1", "edge_f1>x", "edge_f1=0.5"])
def test_rules_that_mean_nothing_are_refused(rule: str) -> None:
    with pytest.raises(ConfigError, match="accept"):
        read_thresholds([rule])
