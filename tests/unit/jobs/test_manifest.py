from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks.killed_jobs import build_writer, kill_and_resume
from cosmos_transfer.errors import ConfigError, MediaError
from cosmos_transfer.jobs.accept import read_thresholds
from cosmos_transfer.jobs.attempts import attempt_seed, until_accepted
from cosmos_transfer.jobs.manifest import Item, Manifest, Row
from cosmos_transfer.jobs.run import FullDiskError, RefusedError, run_job


def items(count: int, **more: Any) -> list[Item]:
    return [Item(name=f"item-{i:02d}", payload={"i": i, **more}, seed=i) for i in range(count)]


def test_killed_workers_lose_nothing_and_leave_no_half_files(tmp_path: Path) -> None:
    told = kill_and_resume(tmp_path, num_items=12, kills=2, pause_s=0.05, seed=0)
    assert told.kills == 2


def test_a_full_disk_stops_the_job_and_nothing_is_lost(tmp_path: Path) -> None:
    manifest = Manifest(tmp_path / "job.sqlite", create=True)
    manifest.add(items(4))
    writes = build_writer(0.0, str(tmp_path / "log.txt"))
    room = [1]

    def make(row: Row, folder: Path) -> Mapping[str, Any]:
        if not room[0]:
            (folder / f"{row.name}.bin").write_bytes(b"half")
            try:
                raise OSError(errno.ENOSPC, "No space left on device")
            except OSError as error:  # as the writer of clips reports it
                raise MediaError(f"{row.name}: cannot be written") from error
        room[0] -= 1
        return writes(row, folder)

    with pytest.raises(FullDiskError, match=r"got none while item-01 was made\. Make room"):
        run_job(manifest, tmp_path, lambda: make, keep_going=True)
    assert [row.state for row in manifest.rows()] == ["done", "waiting", "waiting", "waiting"]
    assert [path.name for path in tmp_path.glob("item-*.bin")] == ["item-00.bin"]
    room[0] = 4
    assert run_job(manifest, tmp_path, lambda: make).counts["done"] == 4


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
