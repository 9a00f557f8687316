"""Work a manifest: claim, make in a folder of its own, publish by renaming, say how it went."""

from __future__ import annotations

import multiprocessing
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cosmos_transfer.errors import MediaError, TransferError, explain
from cosmos_transfer.jobs.manifest import Manifest, Progress, Row

WORK_DIR = ".work"

Make = Callable[[Row, Path], Mapping[str, Any]]
"""Makes one item into the empty folder given, and returns its metrics."""


class RefusedError(TransferError):
    """An item that was made but does not meet the thresholds; ``metrics`` says by how much."""

    def __init__(self, message: str, metrics: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.metrics = dict(metrics)


def run_job(
    manifest: Manifest,
    folder: Path,
    build: Callable[..., Make],
    arguments: tuple[Any, ...] = (),
    *,
    workers: int = 1,
    keep_going: bool = False,
    on_item: Callable[[Row, str], None] | None = None,
) -> Progress:
    """Work a job until nothing waits; what dead processes left is taken up first.

    Args:
        manifest: The job's table.
        folder: Where final files go.
        build: Called once per process with ``arguments``; returns what makes an item. Must be
            importable by name where there are several workers.
        arguments: Plain values.
        workers: Processes. One: this process.
        keep_going: Go on after an item that failed.
        on_item: Told each item and its state, with one worker.

    Raises:
        MediaError: The manifest cannot be used, or a worker ended without saying why.
    """
    manifest.release_abandoned()
    if workers == 1:
        work(manifest, folder, build(*arguments), keep_going=keep_going, on_item=on_item)
        return manifest.progress()
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(
            target=_work_in_process,
            args=(manifest.path, folder, build, arguments, keep_going),
            daemon=True,
        )
        for _ in range(workers)
    ]
    for process in processes:
        process.start()
    try:
        for process in processes:
            process.join()
    finally:
        for process in processes:
            if process.is_alive():
                process.terminate()
                process.join()
    manifest.release_abandoned()
    codes = [process.exitcode for process in processes if process.exitcode]
    progress = manifest.progress()
    if codes and progress.counts["waiting"] and not progress.counts["failed"]:
        raise MediaError(
            explain(
                str(manifest.path),
                expected="workers that finish",
                got=f"exit code {codes[0]}, with {progress.counts['waiting']} items waiting",
                do="Start the same command again: it goes on where it stopped.",
            )
        )
    return progress


def work(
    manifest: Manifest,
    folder: Path,
    make: Make,
    *,
    keep_going: bool = False,
    on_item: Callable[[Row, str], None] | None = None,
) -> None:
    """Make items until nothing waits."""
    while (row := manifest.claim()) is not None:
        unfinished = folder / WORK_DIR / str(row.id)
        state, error, outputs = "done", None, []
        metrics: Mapping[str, Any] = {}
        try:
            shutil.rmtree(unfinished, ignore_errors=True)  # of a process that was killed
            unfinished.mkdir(parents=True)
            metrics = make(row, unfinished)
            outputs = publish(unfinished, folder)
        except RefusedError as refused:
            state, error, metrics = "refused", _one_line(refused), refused.metrics
        except (TransferError, OSError) as failure:
            state, error = "failed", _one_line(failure)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
        manifest.finish(row, state, metrics=metrics, outputs=outputs, error=error)
        if on_item is not None:
            on_item(row, state if error is None else f"{state}: {error}")
        if state == "failed" and not keep_going:
            return


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


def _work_in_process(
    path: Path,
    folder: Path,
    build: Callable[..., Make],
    arguments: tuple[Any, ...],
    keep_going: bool,
) -> None:
    work(Manifest(path), folder, build(*arguments), keep_going=keep_going)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
