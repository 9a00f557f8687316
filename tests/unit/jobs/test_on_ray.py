"""Jobs on Ray: what an actor or a machine takes with it when it goes is made again."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
from ray.cluster_utils import Cluster

from cosmos_transfer.config import RaySettings
from cosmos_transfer.errors import MediaError
from cosmos_transfer.jobs.manifest import Item, Manifest, Row
from cosmos_transfer.jobs.run import Make, run_job

COUNT = 8


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    ray.init(address=made.address, log_to_driver=False)
    yield made
    ray.shutdown()
    made.shutdown()


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    made = Manifest(tmp_path / "job" / "job.sqlite", create=True)
    made.add(Item(name=f"item-{i}", payload={"i": i}, seed=i) for i in range(COUNT))
    return made


def writer(folder: Path, *, pause_s: float = 0.0, dies: bool = False) -> Callable[[], Make]:
    """Builds what writes an item; item 3 takes its process down the first time."""

    def build() -> Make:
        def make(row: Row, unfinished: Path) -> Mapping[str, Any]:
            (unfinished / "half").write_bytes(b"-")
            with open(folder / "begun.txt", "a") as file:
                file.write(f"{row.name} {os.getpid()}\n")
            if dies and row.name == "item-3" and not (folder / "died").exists():
                (folder / "died").touch()
                os._exit(1)
            time.sleep(pause_s)
            (unfinished / "half").unlink()
            (unfinished / "clips").mkdir()
            noise = np.random.default_rng(row.seed).bytes(1000)
            (unfinished / "clips" / f"{row.name}.bin").write_bytes(noise)
            return {"length": 1000}

        return make

    return build


def check(manifest: Manifest) -> None:
    rows = manifest.rows()
    assert [row.state for row in rows] == ["done"] * COUNT
    folder = manifest.path.parent / "clips"
    assert len(list(folder.iterdir())) == COUNT
    for row in rows:
        expected = np.random.default_rng(row.seed).bytes(1000)
        assert (folder / f"{row.name}.bin").read_bytes() == expected
    assert not list((manifest.path.parent / ".work").iterdir())


def test_an_actor_that_dies_gives_its_item_back(
    cluster: Cluster, manifest: Manifest, tmp_path: Path
) -> None:
    told: list[str] = []
    run_job(
        manifest,
        manifest.path.parent,
        writer(tmp_path, dies=True),
        ray=RaySettings(actors=1),
        on_item=lambda row, outcome: told.append(f"{row.name} {outcome}"),
    )
    check(manifest)
    assert sorted(told) == [f"item-{i} done" for i in range(COUNT)]
    begun = [line.split()[0] for line in (tmp_path / "begun.txt").read_text().splitlines()]
    assert sorted(begun) == sorted([*(f"item-{i}" for i in range(COUNT)), "item-3"])


def test_a_machine_that_goes_takes_nothing_with_it(
    cluster: Cluster, manifest: Manifest, tmp_path: Path
) -> None:
    node = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    gone: list[str] = []

    def remove(row: Row, outcome: str) -> None:
        if not gone:
            gone.append(row.name)
            cluster.remove_node(node, allow_graceful=False)

    run_job(
        manifest,
        manifest.path.parent,
        writer(tmp_path, pause_s=0.3),
        ray=RaySettings(actors=2),
        on_item=remove,
    )
    assert gone
    check(manifest)
    lines = (tmp_path / "begun.txt").read_text().splitlines()
    assert len({line.split()[1] for line in lines}) >= 2  # both machines had begun


def test_what_cannot_be_built_says_why(
    cluster: Cluster, manifest: Manifest, tmp_path: Path
) -> None:
    def build() -> Make:
        raise MediaError("no such checkpoint")

    with pytest.raises(MediaError, match=r"^no such checkpoint$"):
        run_job(manifest, manifest.path.parent, build, ray=RaySettings(actors=1))
    assert {row.state for row in manifest.rows()} == {"waiting"}
