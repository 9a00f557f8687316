"""Reading, resizing and extracting controls, against a plain OpenCV loop; and how memory grows.

    python -m benchmarks.reading                 both parts
    python -m benchmarks.reading --only memory

``speed``   A 121-frame 1280x704 H.264 clip is read, scaled to a short side of 256 and its edge and
            vis controls are extracted: by ``inputs.video.stream_frames`` and ``controls`` here, and
            by ``cv2.VideoCapture`` with ``cv2.resize``, ``cv2.Canny`` and ``cv2.bilateralFilter``
            with the same settings. With one thread (one for the decoder and for OpenCV in both) the
            two take turns block by block, so that whatever else the machine does slows both; the
            seconds are added up. Most of it is the bilateral filter, the same call in both, so that
            reading and scaling alone is measured as well. With two threads (two for the loop's
            decoder and for OpenCV in it; here two that take turns at decoding, ``inputs.parallel``,
            with one for OpenCV in each) whole runs take turns; the ratio is the median over pairs.
            Wall-clock and processor time. The loop's colours are off by about a level
            (``inputs.colors``).
``memory``  Peak resident memory of reading, extracting edges and writing a 640x480 clip in blocks,
            each length in a process of its own: 3,000 frames over 300.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from benchmarks.results_file import hardware, write_results
from cosmos_transfer.controls.edge import EDGE_PRESETS, extract_edge
from cosmos_transfer.controls.vis import (
    BILATERAL_SIGMA_COLOR,
    blur_settings,
    extract_vis,
)
from cosmos_transfer.inputs.parallel import map_in_order
from cosmos_transfer.inputs.video import probe_clip, stream_frames
from cosmos_transfer.outputs.writer import write_blocks
from cosmos_transfer.shapes import Size

PARTS = ("speed", "memory")
NUM_FRAMES, HEIGHT, WIDTH = 121, 704, 1280
WORKING = Size(256, 464)
BLOCK_FRAMES = 2
PAIRS = 3
MEMORY_SIZE = Size(480, 640)
LENGTHS = (300, 3_000)
RATE = Fraction(30)


def moving_pattern(num_frames: int, size: Size) -> Iterator[np.ndarray]:
    """Frames of waves that move, one at a time: blocks of one frame."""
    y, x = np.mgrid[: size.height, : size.width].astype(np.float32)
    for index in range(num_frames):
        wave = np.sin(x / 37 + index / 9) + np.cos(y / 23 - index / 7) + np.sin((x + y) / 11)
        grey = np.clip(127 + 40 * wave, 0, 255).astype(np.uint8)
        yield np.stack([grey, grey[::-1], grey[:, ::-1]], axis=-1)[None]


def write_pattern(path: Path, num_frames: int, size: Size) -> Path:
    """The pattern as an H.264 clip."""
    times = tuple(index / RATE for index in range(num_frames))
    return write_blocks(path, moving_pattern(num_frames, size), times=times, rate=RATE)


def our_blocks(path: Path, *, extracts: bool = True) -> Iterator[int]:
    """Read and scale in one thread, and extract; the number of frames of each block."""
    for block in stream_frames(path, size=WORKING, block_frames=BLOCK_FRAMES):
        yield _extract(block) if extracts else len(block)


def _extract(block: np.ndarray) -> int:
    return (len(extract_edge(block)) + len(extract_vis(block))) // 2


def ours(path: Path, threads: int) -> int:
    """Read, scale, extract; the number of frames."""
    cv2.setNumThreads(1)
    blocks = stream_frames(path, size=WORKING, block_frames=BLOCK_FRAMES)
    return sum(map_in_order(_extract, blocks, num_threads=threads))


def plain_opencv(path: Path, threads: int) -> int:
    """The same work as a loop over ``cv2.VideoCapture``."""
    cv2.setNumThreads(threads)
    return sum(opencv_blocks(path, threads=threads))


def opencv_blocks(path: Path, *, threads: int = 1, extracts: bool = True) -> Iterator[int]:
    """The loop, pausing after every few frames."""
    capture = cv2.VideoCapture(str(path), cv2.CAP_FFMPEG, [cv2.CAP_PROP_N_THREADS, threads])
    lower, upper = EDGE_PRESETS["medium"]
    settings = blur_settings("medium", height=WORKING.height, width=WORKING.width)
    shrunk = (round(WORKING.width / settings.shrink), round(WORKING.height / settings.shrink))
    small = (round(WORKING.width / settings.down_up), round(WORKING.height / settings.down_up))
    full = (WORKING.width, WORKING.height)
    count = 0
    while capture.grab():
        _, frame = capture.retrieve()
        frame = cv2.resize(frame, full, interpolation=cv2.INTER_AREA)
        if extracts:
            edges = cv2.Canny(cv2.cvtColor(frame, cv2.COLOR_BGR2GRAY), lower, upper)
            cv2.cvtColor(edges, cv2.COLOR_GRAY2BGR)
            smooth = frame
            if shrunk != full:
                smooth = cv2.resize(frame, shrunk, interpolation=cv2.INTER_AREA)
            smooth = cv2.bilateralFilter(
                smooth, settings.diameter, BILATERAL_SIGMA_COLOR, settings.sigma_space
            )
            if shrunk != full:
                smooth = cv2.resize(smooth, full, interpolation=cv2.INTER_LINEAR)
            smooth = cv2.resize(smooth, small, interpolation=cv2.INTER_CUBIC)
            cv2.resize(smooth, full, interpolation=cv2.INTER_CUBIC)
        count += 1
        if count == BLOCK_FRAMES:
            yield count
            count = 0
    if count:
        yield count


def run_speed(pairs: int) -> dict[str, Any]:
    """Seconds of both, and the ratios: one thread, reading alone, and two threads."""
    with tempfile.TemporaryDirectory() as folder:
        path = write_pattern(Path(folder) / "clip", NUM_FRAMES, Size(HEIGHT, WIDTH))
        return {
            "1 thread": _by_turns(path, pairs, extracts=True),
            "1 thread, reading and scaling": _by_turns(path, pairs, extracts=False),
            "2 threads": _in_pairs(path, pairs, threads=2),
        }


def _by_turns(path: Path, pairs: int, *, extracts: bool) -> dict[str, Any]:
    """Both in one thread, a block of each at a time; the median ratio over the passes."""
    cv2.setNumThreads(1)
    passes = []
    for _ in range(pairs):
        # Axes: ours and the loop, wall clock and processor.
        seconds, frames = np.zeros((2, 2)), [0, 0]
        both = (our_blocks(path, extracts=extracts), opencv_blocks(path, extracts=extracts))
        for _ in range(-(-NUM_FRAMES // BLOCK_FRAMES)):
            for which, blocks in enumerate(both):
                wall, cpu = time.perf_counter(), time.thread_time()
                frames[which] += next(blocks)
                seconds[which] += time.perf_counter() - wall, time.thread_time() - cpu
        if frames != [NUM_FRAMES, NUM_FRAMES]:
            raise AssertionError("frames were lost")
        passes.append(seconds)
    return _compared(np.array(passes))


def _in_pairs(path: Path, pairs: int, *, threads: int) -> dict[str, Any]:
    """Whole runs of both, one after the other."""
    both = (ours, plain_opencv)
    return _compared(
        np.array([[_seconds(run, path, threads) for run in both] for _ in range(pairs)])
    )


def _compared(pairs: np.ndarray) -> dict[str, Any]:
    (ours_s, ours_cpu_s), (opencv_s, opencv_cpu_s) = np.median(pairs, axis=0)
    faster, less_cpu = np.median(pairs[:, 1] / pairs[:, 0], axis=0)
    return {
        "ours_s": round(float(ours_s), 3),
        "opencv_s": round(float(opencv_s), 3),
        "times_faster": round(float(faster), 3),
        "ours_cpu_s": round(float(ours_cpu_s), 3),
        "opencv_cpu_s": round(float(opencv_cpu_s), 3),
        "times_less_cpu": round(float(less_cpu), 3),
        "pairs": len(pairs),
    }


def _seconds(run: Callable[[Path, int], int], path: Path, threads: int) -> tuple[float, float]:
    """Wall-clock and processor seconds of one run."""
    wall, cpu = time.perf_counter(), time.process_time()
    if run(path, threads) != NUM_FRAMES:
        raise AssertionError("frames were lost")
    return time.perf_counter() - wall, time.process_time() - cpu


def run_memory() -> dict[str, Any]:
    """Peak resident memory for both lengths, each in a process of its own."""
    peaks = {}
    with tempfile.TemporaryDirectory() as folder:
        for length in LENGTHS:
            path = write_pattern(Path(folder) / str(length), length, MEMORY_SIZE)
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.reading", "--stream", str(path)],
                capture_output=True,
                text=True,
                check=True,
            )
            peaks[length] = int(done.stdout.split()[-1])
    short, long = (peaks[length] for length in LENGTHS)
    return {
        "peak_mb": {str(length): round(peak / 1e6, 1) for length, peak in peaks.items()},
        "ratio": round(long / short, 3),
    }


def stream(path: Path) -> int:
    """Read a clip, extract its edges and write them, in blocks; peak resident memory in bytes."""
    info = probe_clip(path)
    blocks = map(extract_edge, stream_frames(path))
    write_blocks(path.with_name("edges"), blocks, times=info.times, rate=info.rate, overwrite=True)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main(argv: Sequence[str] | None = None) -> None:
    """Run, write the results, and print them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--only", choices=PARTS, action="append", help="parts to run; all if absent"
    )
    parser.add_argument("--pairs", type=int, default=PAIRS, help="runs of both (%(default)s)")
    parser.add_argument("--stream", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.stream is not None:
        print(stream(arguments.stream))
        return
    results: dict[str, Any] = {"benchmark": "reading", "hardware": hardware()}
    if "speed" in (arguments.only or PARTS):
        results["speed"] = run_speed(arguments.pairs)
    if "memory" in (arguments.only or PARTS):
        results["memory"] = run_memory()
    path = write_results(results)
    for part in PARTS:
        for name, values in results.get(part, {}).items():
            print(f"{part}, {name}: {values}")
    print(f"results: {path}")


if __name__ == "__main__":
    main()
