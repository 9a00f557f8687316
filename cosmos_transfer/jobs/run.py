"""Work a manifest: claim, make in a folder of its own, publish by renaming, say how it went."""

from __future__ import annotations

import errno
import multiprocessing
import os
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from cosmos_transfer.config import RaySettings
from cosmos_transfer.errors import MediaError, TransferError, explain
from cosmos_transfer.jobs.manifest import Manifest, Progress, Row

WORK_DIR = ".work"
POLL_S = 0.2
LOST_LIMIT = 3
"""Times that an item may take its process down before it counts as failed."""

Make = Callable[[Row, Path], Mapping[str, Any]]
"""Makes one item into the empty folder given, and returns its metrics."""

OnItem = Callable[[Row, str], None]
"""Told an item and how it came out: its state, with the error where there is one."""


class RefusedError(TransferError):
    """An item that was made but does not meet the thresholds; ``metrics`` says by how much."""

    def __init__(self, message: str, metrics: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.metrics = dict(metrics)


class FullDiskError(TransferError):
    """There is no room to write: nothing is wrong with the item, and no other would fare better."""


def run_job(
    manifest: Manifest,
    folder: Path,
    build: Callable[..., Make],
    arguments: tuple[Any, ...] = (),
    *,
    workers: int = 1,
    ray: RaySettings | None = None,
    keep_going: bool = False,
    on_item: OnItem | None = None,
    show_progress: bool = False,
) -> Progress:
    """Work a job until nothing waits; what dead processes left is taken up first.

    A worker that dies is replaced, and its item waits again; an item that takes
    :data:`LOST_LIMIT` workers down has failed.

    Args:
        manifest: The job's table.
        folder: Where final files go.
        build: Called once per process with ``arguments``; returns what makes an item. Must be
            importable by name where there are several workers.
        arguments: Plain values.
        workers: Processes. One: this process.
        ray: Where its ``actors`` are more than none, they work instead.
        keep_going: Go on after an item that failed.
        on_item: Told each item and its state.
        show_progress: Draw a bar on stderr where that is a terminal.

    Raises:
        MediaError: The manifest cannot be used, or workers end before they begin.
        FullDiskError: There is no room for an item; it waits again.
        TransferError: What ``build`` raised.
    """
    manifest.release_abandoned()
    with _Watch(manifest, on_item, show_progress) as watch:
        if ray is not None and ray.actors:
            from cosmos_transfer.jobs.on_ray import run_on_ray

            run_on_ray(
                manifest, folder, build, arguments, ray, keep_going=keep_going, on_item=watch.tell
            )
        elif workers == 1:
            work(manifest, folder, build(*arguments), keep_going=keep_going, on_item=watch.tell)
        else:
            _run_workers(manifest, folder, build, arguments, workers, keep_going, watch)
    return manifest.progress()


def work(
    manifest: Manifest,
    folder: Path,
    make: Make,
    *,
    keep_going: bool = False,
    on_item: OnItem | None = None,
    stopped: Callable[[], bool] | None = None,
) -> bool:
    """Make items until nothing waits; returns whether it stopped at one that failed."""
    while (stopped is None or not stopped()) and (row := manifest.claim()) is not None:
        try:
            made = make_item(row, folder, make)
        except FullDiskError:
            manifest.give_back(row)
            raise
        manifest.finish(
            row, made.state, metrics=made.metrics, outputs=made.outputs, error=made.error
        )
        if on_item is not None:
            on_item(row, made.summary)
        if made.state == "failed" and not keep_going:
            return True
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """How one item came out."""

    state: str
    metrics: Mapping[str, Any]
    outputs: tuple[str, ...]
    error: str | None

    @property
    def summary(self) -> str:
        """The state, with the error where there is one."""
        return self.state if self.error is None else f"{self.state}: {self.error}"


def make_item(row: Row, folder: Path, make: Make) -> Made:
    """Make one claimed item and move its files to their final names.

    An error that belongs to the item (:class:`TransferError`, a missing file) is its outcome; any
    other is a bug and raised.

    Raises:
        FullDiskError: There is no room for it.
    """
    unfinished = folder / WORK_DIR / str(row.id)
    try:
        shutil.rmtree(unfinished, ignore_errors=True)  # of a process that was killed
        unfinished.mkdir(parents=True)
        metrics = make(row, unfinished)
        outputs = publish(unfinished, folder)
    except RefusedError as refused:
        return Made(state="refused", metrics=refused.metrics, outputs=(), error=_one_line(refused))
    except (TransferError, OSError) as failure:
        if is_full_disk(failure):
            raise full_disk(folder, row) from failure
        return Made(state="failed", metrics={}, outputs=(), error=_one_line(failure))
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return Made(state="done", metrics=metrics, outputs=tuple(outputs), error=None)


def publish(unfinished: Path, folder: Path) -> list[str]:
    """Move finished files to their final names, records last; returns the names."""
    found = [path for path in unfinished.rglob("*") if path.is_file()]
    names = []
    for path in sorted(found, key=lambda each: (each.suffix == ".json", each)):
        name = path.relative_to(unfinished)
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        os.replace(path, folder / name)
        names.append(str(name))
    return names


class _Watch:
    """Tells how items come out and draws the bar, whoever makes them."""

    def __init__(self, manifest: Manifest, on_item: OnItem | None, show_progress: bool) -> None:
        self._manifest = manifest
        self._on_item = on_item
        counts = manifest.progress().counts
        self._begun = sum(counts.values()) - counts["waiting"] - counts["running"]
        self._since = manifest.last_ended()
        self._told = {(row.id, row.ended) for row in manifest.ended_since(self._since)}
        self._bar = tqdm(
            total=sum(counts.values()),
            initial=self._begun,
            unit="clip",
            disable=None if show_progress else True,
        )

    def tell(self, row: Row, outcome: str) -> None:
        """One item more."""
        self._bar.update()
        if self._on_item is not None:
            with tqdm.external_write_mode():
                self._on_item(row, outcome)

    def look(self) -> None:
        """Tell what other processes finished since the last look."""
        for row in self._manifest.ended_since(self._since):
            if (row.id, row.ended) not in self._told and row.ended is not None:
                self._told.add((row.id, row.ended))
                self._since = max(self._since, row.ended)
                self.tell(row, row.state if row.error is None else f"{row.state}: {row.error}")

    def __enter__(self) -> _Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()


def _run_workers(
    manifest: Manifest,
    folder: Path,
    build: Callable[..., Make],
    arguments: tuple[Any, ...],
    workers: int,
    keep_going: bool,
    watch: _Watch,
) -> None:
    context = multiprocessing.get_context("spawn")
    # A flag without a lock: a worker that is killed while it looks leaves nothing held.
    stop = context.RawValue("b", 0)
    begun, said = context.Semaphore(0), context.SimpleQueue()

    def start() -> Any:
        process = context.Process(
            target=_work_in_process,
            args=(manifest.path, folder, build, arguments, keep_going, stop, begun, said),
            daemon=True,
        )
        process.start()
        return process

    processes = [start() for _ in range(workers)]
    stillborn = 0
    lost: Counter[int] = Counter()
    try:
        while processes:
            processes[0].join(POLL_S)
            watch.look()
            for process in [each for each in processes if not each.is_alive()]:
                process.join()
                processes.remove(process)
                if process.exitcode == 0:
                    continue
                if not said.empty():
                    raise TransferError(said.get())
                stillborn += 0 if begun.acquire(block=False) else 1
                _count_lost(manifest, lost)
                if stillborn > workers:
                    raise _no_workers(manifest, process.exitcode)
                if manifest.progress().counts["waiting"] and not stop.value:
                    processes.append(start())
    finally:
        stop.value = 1
        for process in processes:
            process.terminate()
            process.join()
        manifest.release_abandoned()
        watch.look()


def _count_lost(manifest: Manifest, lost: Counter[int]) -> None:
    """Let items of dead workers wait again, but for those that keep taking workers down."""
    for row in manifest.release_abandoned():
        lost[row.id] += 1
        if lost[row.id] >= LOST_LIMIT:
            manifest.give_up(row, f"its process died {LOST_LIMIT} times while it was made")


def _no_workers(manifest: Manifest, code: int | None) -> MediaError:
    return MediaError(
        explain(
            str(manifest.path),
            expected="workers that begin",
            got=f"exit code {code} each time",
            do="Try one worker: it says why.",
        )
    )


def _work_in_process(
    path: Path,
    folder: Path,
    build: Callable[..., Make],
    arguments: tuple[Any, ...],
    keep_going: bool,
    stop: Any,
    begun: Any,
    said: Any,
) -> None:
    try:
        make = build(*arguments)
        begun.release()
        if work(Manifest(path), folder, make, keep_going=keep_going, stopped=lambda: stop.value):
            stop.value = 1
    except TransferError as error:
        said.put(_one_line(error))
        raise SystemExit(1) from error
    except KeyboardInterrupt:
        raise SystemExit(130) from None


def full_disk(folder: Path, row: Row) -> FullDiskError:
    """The error of an item that there is no room for."""
    return FullDiskError(
        explain(
            str(folder),
            expected="room on the disk",
            got=f"none while {row.name} was made",
            do="Make room, then start this command again: nothing done is lost.",
        )
    )


def is_full_disk(error: BaseException | None) -> bool:
    """Whether an error, or what it came from, says that there is no room."""
    while error is not None:
        if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
            return True
        error = error.__cause__ or error.__context__
    return False


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
