"""Clip after clip, every part of it: in this process or in several."""

from __future__ import annotations

import logging
import multiprocessing
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from typing import Any

import torch
from tqdm import tqdm

from benchmarks.embedded.bench import Bench, Part, Settings
from benchmarks.embedded.clip_log import ClipLog

_bench: Bench | None = None  # of a worker process


def measure_clips(
    parts: Mapping[str, Part],
    seeds: Sequence[int],
    log: ClipLog,
    *,
    bench: Bench,
    settings: Settings,
    workers: int = 1,
    until: float = float("inf"),
) -> None:
    """Measure what the log does not hold yet, all parts of a clip together.

    Args:
        parts: By name.
        seeds: Of the held-out clips.
        log: Gets the values as they come.
        bench: Of this process; used where there is one worker.
        settings: What other processes load their own by.
        workers: How many processes.
        until: ``time.monotonic()`` after which no clip is begun.
    """
    tasks = []
    for index, seed in enumerate(seeds):
        names = [n for n, part in parts.items() if index < part.most and not log.has(n, seed)]
        if names:
            tasks.append((seed, names))
    with tqdm(total=len(tasks), desc="clips", unit="clip") as bar:
        run = _here(bench, tasks, until) if workers == 1 else _pool(settings, tasks, until, workers)
        for seed, values in run:
            log.add(seed, values)
            bar.update(1)


def values_of(bench: Bench, seed: int, names: Sequence[str]) -> dict[str, Any]:
    """Every part of one clip; ``seconds`` are processor seconds by part.

    An output that several parts ask for counts in the first of them.
    """
    from benchmarks.embedded.parts import PARTS

    values: dict[str, Any] = {}
    seconds = {}
    with torch.inference_mode():
        for name in names:
            started = time.process_time()
            values[name] = PARTS[name].measure(bench, seed)
            seconds[name] = round(time.process_time() - started, 2)
    return values | {f"seconds {name}": spent for name, spent in seconds.items()}


def _here(
    bench: Bench, tasks: Sequence[tuple[int, Sequence[str]]], until: float
) -> Iterator[tuple[int, dict[str, Any]]]:
    for seed, names in tasks:
        if time.monotonic() > until:
            return
        yield seed, values_of(bench, seed, names)


def _pool(
    settings: Settings, tasks: Sequence[tuple[int, Sequence[str]]], until: float, workers: int
) -> Iterator[tuple[int, dict[str, Any]]]:
    left = list(reversed(tasks))
    running: dict[Future[dict[str, Any]], int] = {}
    with ProcessPoolExecutor(
        workers,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_start,
        initargs=(settings,),
    ) as pool:
        while left or running:
            while left and len(running) < workers and time.monotonic() <= until:
                seed, names = left.pop()
                running[pool.submit(_work, seed, names)] = seed
            if not running:
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                yield running.pop(future), future.result()


def _start(settings: Settings) -> None:
    global _bench
    logging.basicConfig(level=logging.ERROR)  # as in the process that asks
    _bench = settings.load()


def _work(seed: int, names: Sequence[str]) -> dict[str, Any]:
    assert _bench is not None
    return values_of(_bench, seed, names)
