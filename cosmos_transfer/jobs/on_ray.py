"""Work a manifest on the machines of a Ray cluster.

Every actor holds one maker, with a share of a GPU if asked. The driver alone writes the table and
the files: it claims an item, an actor makes it in a folder of its own and sends the files back. An
actor that dies, or whose machine goes, gives its item back; Ray starts the actor again where there
is room, and it gets work when it answers. Inputs must be readable under the same paths everywhere.

Needs the extra ``ray``.
"""

from __future__ import annotations

import shutil
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cosmos_transfer.config import RaySettings
from cosmos_transfer.errors import ConfigError, TransferError, explain
from cosmos_transfer.jobs.manifest import Manifest, Row
from cosmos_transfer.jobs.run import (
    LOST_LIMIT,
    WORK_DIR,
    Made,
    Make,
    OnItem,
    full_disk,
    is_full_disk,
    make_item,
    publish,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """What an actor sends back: how an item came out, and its files."""

    made: Made
    files: Mapping[str, bytes]


class Maker:
    """Lives in an actor: builds once, then makes items."""

    def __init__(self, build: Callable[..., Make], arguments: tuple[Any, ...]) -> None:
        self._build, self._arguments = build, arguments
        self._make: Make | None = None

    def ready(self) -> bool:
        """Build; what cannot be built is raised here, not while the actor starts."""
        if self._make is None:
            self._make = self._build(*self._arguments)
        return True

    def make(self, row: Row) -> Sent:
        """Make one item."""
        self.ready()
        assert self._make is not None
        with TemporaryDirectory(prefix="cosmos-transfer-") as name:
            folder = Path(name)
            made = make_item(row, folder, self._make)
            return Sent(
                made=made, files={each: (folder / each).read_bytes() for each in made.outputs}
            )


def run_on_ray(
    manifest: Manifest,
    folder: Path,
    build: Callable[..., Make],
    arguments: tuple[Any, ...],
    settings: RaySettings,
    *,
    keep_going: bool,
    on_item: OnItem,
) -> None:
    """Work a job until nothing waits; see :func:`cosmos_transfer.jobs.run.run_job`.

    Args:
        settings: How many actors, on what, and of which cluster.

    Raises:
        TransferError: What ``build`` raised, or there is no room for an item.
        ConfigError: Ray is not installed.
    """
    ray = _ray()
    is_ours = not ray.is_initialized()
    if is_ours:
        ray.init(address=settings.address, log_to_driver=False, configure_logging=False)
    try:
        _Pool(ray, manifest, folder, build, arguments, settings).run(keep_going, on_item)
    finally:
        if is_ours:
            ray.shutdown()


class _Pool:
    """Actors, what they are at, and the table."""

    def __init__(
        self,
        ray: Any,
        manifest: Manifest,
        folder: Path,
        build: Callable[..., Make],
        arguments: tuple[Any, ...],
        settings: RaySettings,
    ) -> None:
        self._ray, self._manifest, self._folder = ray, manifest, folder
        remote = ray.remote(Maker).options(
            num_cpus=settings.cpus, num_gpus=settings.gpus, max_restarts=-1, max_task_retries=0
        )
        self._actors = [remote.remote(build, arguments) for _ in range(settings.actors)]
        self._idle: deque[Any] = deque()
        self._starting = {each.ready.remote(): each for each in self._actors}
        self._making: dict[Any, tuple[Any, Row]] = {}
        self._lost: Counter[int] = Counter()

    def run(self, keep_going: bool, on_item: OnItem) -> None:
        stopped = False
        try:
            while True:
                while self._idle and not stopped and (row := self._manifest.claim()) is not None:
                    actor = self._idle.popleft()
                    self._making[actor.make.remote(row)] = (actor, row)
                waits = self._manifest.progress().counts["waiting"] and not stopped
                if not self._making and not (waits and self._starting):
                    return
                (done, *_), _ = self._ray.wait([*self._making, *self._starting], num_returns=1)
                if done in self._starting:
                    self._begin(done)
                else:
                    made = self._end(done, on_item)
                    stopped |= made == "failed" and not keep_going
        finally:
            for _, row in self._making.values():
                self._manifest.give_back(row)
            for actor in self._actors:
                self._ray.kill(actor)

    def _begin(self, answer: Any) -> None:
        """An actor answers, or died once more and is asked again."""
        actor = self._starting.pop(answer)
        try:
            self._get(answer)
            self._idle.append(actor)
        except self._ray.exceptions.RayActorError:
            self._starting[actor.ready.remote()] = actor

    def _end(self, answer: Any, on_item: OnItem) -> str:
        """An item came back, or its actor did not; returns the item's state."""
        actor, row = self._making[answer]
        try:
            sent = self._get(answer)
        except self._ray.exceptions.RayActorError:
            del self._making[answer]
            self._starting[actor.ready.remote()] = actor
            self._manifest.give_back(row)
            self._lost[row.id] += 1
            if self._lost[row.id] >= LOST_LIMIT:
                error = f"its actor died {LOST_LIMIT} times while it was made"
                self._manifest.give_up(row, error)
                on_item(row, f"failed: {error}")
                return "failed"
            return "waiting"
        made = self._keep(row, sent)
        del self._making[answer]
        self._idle.append(actor)
        self._manifest.finish(
            row, made.state, metrics=made.metrics, outputs=made.outputs, error=made.error
        )
        on_item(row, made.summary)
        return made.state

    def _get(self, answer: Any) -> Any:
        """What an actor answered; what it raised, without Ray's wrapping."""
        try:
            return self._ray.get(answer)
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, TransferError):
                raise error.cause from error
            raise

    def _keep(self, row: Row, sent: Sent) -> Made:
        """Write the files that were sent under their final names."""
        unfinished = self._folder / WORK_DIR / str(row.id)
        try:
            shutil.rmtree(unfinished, ignore_errors=True)
            for name, content in sent.files.items():
                path = unfinished / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            return replace(sent.made, outputs=tuple(publish(unfinished, self._folder)))
        except OSError as error:
            if is_full_disk(error):
                raise full_disk(self._folder, row) from error
            raise TransferError(f"{self._folder}: {error}") from error
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)


def _ray() -> Any:
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        raise ConfigError(
            explain(
                "ray.actors",
                expected="ray",
                got="none installed",
                do="Run pip install 'cosmos-transfer[ray]'.",
            )
        ) from error
    return ray
