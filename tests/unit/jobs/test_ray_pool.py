"""What the driver of a Ray job does, with a stand-in for Ray in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cosmos_transfer.config import RaySettings
from cosmos_transfer.errors import ConfigError, MediaError
from cosmos_transfer.jobs.manifest import Item, Manifest, Row
from cosmos_transfer.jobs.run import FullDiskError, Make, run_job


class ActorDiedError(Exception):
    """Stands for Ray's."""


class TaskError(Exception):
    """Stands for Ray's: carries what was raised."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__("a long text of Ray's")
        self.cause = cause


class MachineGone(BaseException):
    """Raised by a maker whose process is to be gone."""


@dataclass(eq=False)
class Answer:
    """What will come of a call; found out when it is asked for."""

    call: Callable[[], Any]


class Actor:
    """Runs a maker in this process; dies of :class:`MachineGone` and begins anew."""

    def __init__(self, kind: type, arguments: tuple[Any, ...]) -> None:
        self._kind, self._arguments = kind, arguments
        self._maker = kind(*arguments)
        self.ready = SimpleNamespace(remote=lambda: self._answer("ready"))
        self.make = SimpleNamespace(remote=lambda row: self._answer("make", row))

    def _answer(self, name: str, *told: Any) -> Answer:
        def call() -> Any:
            try:
                return getattr(self._maker, name)(*told)
            except MachineGone as gone:
                self._maker = self._kind(*self._arguments)
                raise ActorDiedError from gone
            except Exception as error:
                raise TaskError(error) from error

        return Answer(call)


class StandIn:
    """As much of Ray as the driver asks for."""

    exceptions = SimpleNamespace(RayActorError=ActorDiedError, RayTaskError=TaskError)

    def __init__(self) -> None:
        self.options: list[dict[str, Any]] = []
        self.addresses: list[str | None] = []
        self.is_up = False

    def is_initialized(self) -> bool:
        return self.is_up

    def init(self, *, address: str | None, **_: Any) -> None:
        self.is_up = True
        self.addresses.append(address)

    def shutdown(self) -> None:
        self.is_up = False

    def remote(self, kind: type) -> Any:
        def options(**given: Any) -> Any:
            self.options.append(given)
            return SimpleNamespace(remote=lambda *arguments: Actor(kind, arguments))

        return SimpleNamespace(options=options)

    def wait(self, answers: Sequence[Answer], *, num_returns: int) -> tuple[list, list]:
        return list(answers[:num_returns]), list(answers[num_returns:])

    def get(self, answer: Answer) -> Any:
        return answer.call()

    def kill(self, actor: Actor) -> None:
        pass


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    standing_in = StandIn()
    monkeypatch.setattr("cosmos_transfer.jobs.on_ray._ray", lambda: standing_in)
    return standing_in


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    made = Manifest(tmp_path / "job.sqlite", create=True)
    made.add(Item(name=f"item-{i}", payload={"i": i}, seed=i) for i in range(6))
    return made


def dying(item: str, times: int, built: list[int] | None = None) -> Callable[[], Make]:
    left = [times]

    def build() -> Make:
        if built is not None:
            built.append(1)

        def make(row: Row, folder: Path) -> Mapping[str, Any]:
            (folder / "clips").mkdir()
            (folder / "clips" / f"{row.name}.bin").write_bytes(bytes([row.seed]))
            if row.name == item and left[0]:
                left[0] -= 1
                raise MachineGone
            if row.payload.get("corrupt"):
                raise MediaError("corrupt")
            return {"seed": row.seed}

        return make

    return build


def test_items_of_lost_actors_are_made_again(
    ray: StandIn, manifest: Manifest, tmp_path: Path
) -> None:
    told: list[str] = []
    built: list[int] = []
    counts = run_job(
        manifest,
        tmp_path,
        dying("item-2", 2, built),
        ray=RaySettings(actors=2, gpus=0.5, address="auto"),
        on_item=lambda row, outcome: told.append(f"{row.name} {outcome}"),
    ).counts
    assert counts["done"] == 6
    assert sorted(told) == [f"item-{i} done" for i in range(6)]
    assert [row.attempts for row in manifest.rows()] == [1, 1, 3, 1, 1, 1]
    assert len(built) >= 3  # at first, and after each loss
    for row in manifest.rows():
        assert (tmp_path / f"clips/{row.name}.bin").read_bytes() == bytes([row.seed])
        assert row.outputs == (f"clips/{row.name}.bin",)
        assert row.metrics == {"seed": row.seed}
    (options,) = ray.options
    assert (options["num_cpus"], options["num_gpus"], options["max_restarts"]) == (1.0, 0.5, -1)
    assert (ray.addresses, ray.is_up) == (["auto"], False)


def test_an_item_that_takes_three_actors_down_has_failed(
    ray: StandIn, manifest: Manifest, tmp_path: Path
) -> None:
    counts = run_job(
        manifest, tmp_path, dying("item-2", 9), ray=RaySettings(actors=1), keep_going=True
    ).counts
    assert (counts["done"], counts["failed"]) == (5, 1)
    (failed,) = manifest.rows("failed")
    assert failed.error == "its actor died 3 times while it was made"
    assert not (tmp_path / "clips/item-2.bin").exists()


def test_without_keep_going_a_failure_ends_the_job(
    ray: StandIn, manifest: Manifest, tmp_path: Path
) -> None:
    manifest.add([Item(name="item-1", payload={"corrupt": True}, seed=1)])
    counts = run_job(manifest, tmp_path, dying("", 0), ray=RaySettings(actors=1)).counts
    assert (counts["done"], counts["failed"], counts["waiting"]) == (1, 1, 4)


def test_what_cannot_be_built_says_why(ray: StandIn, manifest: Manifest, tmp_path: Path) -> None:
    def build() -> Make:
        raise MediaError("no such checkpoint")

    with pytest.raises(MediaError, match=r"^no such checkpoint$"):
        run_job(manifest, tmp_path, build, ray=RaySettings(actors=2))
    assert {row.state for row in manifest.rows()} == {"waiting"}
    assert not ray.is_up


def test_a_full_disk_of_the_driver_stops_the_job(
    ray: StandIn, manifest: Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> list[str]:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("cosmos_transfer.jobs.on_ray.publish", full)
    with pytest.raises(FullDiskError, match="got none while item-0 was made"):
        run_job(manifest, tmp_path, dying("", 0), ray=RaySettings(actors=2))
    assert {row.state for row in manifest.rows()} == {"waiting"}


def test_actors_below_none_are_refused() -> None:
    with pytest.raises(ConfigError, match="actors, cpus and gpus of 0 or more"):
        RaySettings(actors=-1)
