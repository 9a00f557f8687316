"""Time a kernel of ngpc, after proving it right.

    python -m benchmarks.run hash_grid
    python -m benchmarks.run mlp --backends triton reference --dtype float16 --device cuda

A backend whose correctness is red is not timed, and the exit code is 1. Beside each time stand
bytes and operations a second, and what share they are of this machine's measured copy and product
rates.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.parity import Run, Verdict, judge
from benchmarks.results_file import hardware, write_results
from ngpc.backends.registry import BACKENDS, choose_backend
from ngpc.config import Activation, GridConfig, Interpolation
from ngpc.errors import NgpcError

NUM_CHECKED = 1021  # points of the correctness check; a prime
MLP_WIDTHS = (32, 64, 64, 16)
DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in (torch.float32, torch.float16,
                                                                 torch.bfloat16)}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Case:
    """A kernel with its inputs, and what it must move and compute for them."""

    run: Callable[[Any], Run]
    """Given a backend's package, the function of ``inputs``."""
    inputs: list[Tensor]
    names: tuple[str, ...]
    bytes_forward: float
    flops_forward: float


@dataclass(frozen=True, slots=True)
class Timing:
    """Median seconds of a call, and the rates that follow."""

    kernel: str
    backend: str
    direction: str
    dtype: str
    num_points: int
    seconds: float
    points_per_s: float
    gigabytes_per_s: float
    gigaflops_per_s: float
    share_of_copy: float
    share_of_product: float


def hash_grid(num_points: int, dtype: torch.dtype, device: str) -> Case:
    """L = 16, F = 2, T = 2^19, N_min = 16, b = 1.447; random positions in three dimensions."""
    layout = GridConfig(per_level_scale=1.447).layout(3)
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(layout.num_entries, 2, generator=generator).to(device, dtype)
    positions = torch.rand(num_points, 3, generator=generator).to(device)
    read = layout.num_levels * 8 * 2 * dtype.itemsize  # eight corners of every level, uncached
    bytes_forward = num_points * (12 + read + layout.num_features * dtype.itemsize)
    flops = num_points * layout.num_levels * (3 * 2 + 8 * (3 + 2 * 2))
    return Case(
        lambda package: (
            lambda x, t: package.encode_grid(
                x, t, layout=layout, interpolation=Interpolation.LINEAR
            )
        ),
        [positions, table],
        ("positions", "table"),
        bytes_forward,
        flops,
    )


def mlp(num_points: int, dtype: torch.dtype, device: str) -> Case:
    """32-64-64-16 with ReLU."""
    generator = torch.Generator().manual_seed(0)
    pairs = list(itertools.pairwise(MLP_WIDTHS))
    weights = [
        (torch.randn(rows, columns, generator=generator) / columns**0.5).to(device, dtype)
        for columns, rows in pairs
    ]
    inputs = torch.randn(num_points, MLP_WIDTHS[0], generator=generator).to(device, dtype)
    flops = 2.0 * num_points * sum(rows * columns for columns, rows in pairs)
    moved = num_points * (MLP_WIDTHS[0] + MLP_WIDTHS[-1]) * dtype.itemsize
    return Case(
        lambda package: (
            lambda x, *matrices: package.apply_mlp(
                x, matrices, activation=Activation.RELU, output_activation=Activation.NONE
            )
        ),
        [inputs, *weights],
        ("inputs", *(f"matrix {index}" for index in range(len(weights)))),
        moved,
        flops,
    )


KERNELS: dict[str, Callable[[int, torch.dtype, str], Case]] = {"hash_grid": hash_grid, "mlp": mlp}


def check(kernel: str, package: Any, dtype: torch.dtype, device: str) -> list[Verdict]:
    """The correctness of one backend on one kernel."""
    case = KERNELS[kernel](NUM_CHECKED, dtype, device)
    definition = importlib.import_module("ngpc.backends.reference")
    return judge(case.run(package), case.run(definition), case.inputs, names=case.names)


def median_seconds(function: Callable[[], object], device: str, *, repeats: int = 7) -> float:
    """Median wall time of a call, after two to warm up."""
    seconds = []
    for repeat in range(repeats + 2):
        if device == "cuda":
            torch.cuda.synchronize()
        started = time.perf_counter()
        function()
        if device == "cuda":
            torch.cuda.synchronize()
        if repeat >= 2:
            seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def ceilings(dtype: torch.dtype, device: str) -> tuple[float, float]:
    """Measured copy rate in GB/s (read and write) and product rate in GFLOP/s."""
    size = 2**26 if device == "cuda" else 2**24
    source = torch.zeros(size, dtype=torch.float32, device=device)
    target = torch.empty_like(source)
    copy = 2 * 4 * size / median_seconds(lambda: target.copy_(source), device) / 1e9
    side = 4096 if device == "cuda" else 1024
    # Half precision on a CPU is no ceiling of anything: its products are emulated.
    a = torch.ones(side, side, dtype=dtype if device == "cuda" else torch.float32, device=device)
    product = 2 * side**3 / median_seconds(lambda: a @ a, device) / 1e9
    return copy, product


def time_case(
    kernel: str, name: str, run: Run, case: Case, *, device: str, limits: tuple[float, float]
) -> list[Timing]:
    """Forward, and forward with backward, of one way to compute a case."""
    dtype, num_points = case.inputs[-1].dtype, len(case.inputs[0])
    leaves = [tensor.detach().clone().requires_grad_() for tensor in case.inputs]
    upstream = torch.randn_like(run(*case.inputs))

    def forward() -> object:
        with torch.no_grad():
            return run(*case.inputs)

    def forward_and_backward() -> object:
        return torch.autograd.grad(run(*leaves), leaves, upstream)

    timings = []
    for direction, function, work in (
        ("forward", forward, 1.0),
        ("forward+backward", forward_and_backward, 3.0),  # two products more for each of before
    ):
        seconds = median_seconds(function, device)
        gigabytes = work * case.bytes_forward / seconds / 1e9
        gigaflops = work * case.flops_forward / seconds / 1e9
        timings.append(
            Timing(
                kernel, name, direction, str(dtype).removeprefix("torch."), num_points, seconds,
                num_points / seconds, gigabytes, gigaflops, gigabytes / limits[0],
                gigaflops / limits[1],
            )
        )  # fmt: skip
    return timings


def main(argv: Sequence[str] | None = None) -> int:
    """Check, time and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kernel", choices=KERNELS)
    parser.add_argument("--backends", nargs="+", default=None, help="all that can run here")
    parser.add_argument("--points", type=int, default=2**18)
    parser.add_argument("--dtype", choices=DTYPES, default="float32")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/")
    arguments = parser.parse_args(argv)
    dtype, device = DTYPES[arguments.dtype], arguments.device
    names = arguments.backends or [
        backend.name for backend in BACKENDS if backend.why_unavailable(device) is None
    ]
    try:
        packages = {name: choose_backend(name, device).package for name in names}
    except NgpcError as error:
        print(error, file=sys.stderr)
        return 2
    machine = hardware()
    limits = ceilings(dtype, device)
    print(f"copy {limits[0]:.1f} GB/s, product {limits[1]:.1f} GFLOP/s, load "
          f"{machine['load_average']}")  # fmt: skip
    timings, num_red = [], 0
    for name, package_name in packages.items():
        package = importlib.import_module(package_name)
        red = [v for v in check(arguments.kernel, package, dtype, device) if not v.is_right]
        if red:
            num_red += 1
            for verdict in red:
                print(f"{name}: not timed, {verdict.name} is wrong: relative RMS "
                      f"{verdict.error:.3g}, allowed {verdict.allowed:.3g}")  # fmt: skip
            continue
        case = KERNELS[arguments.kernel](arguments.points, dtype, device)
        for timing in time_case(
            arguments.kernel, name, case.run(package), case, device=device, limits=limits
        ):
            timings.append(timing)
            print(f"{timing.kernel:10} {timing.backend:10} {timing.direction:17} "
                  f"{timing.points_per_s / 1e6:9.3f} Mpoint/s {timing.gigabytes_per_s:8.2f} GB/s "
                  f"({timing.share_of_copy:.0%}) {timing.gigaflops_per_s:9.1f} GFLOP/s "
                  f"({timing.share_of_product:.0%})")  # fmt: skip
    if arguments.save and timings:
        path = write_results({
            "benchmark": f"ngpc-{arguments.kernel}", "hardware": machine,
            "ceilings": {"copy_gigabytes_per_s": limits[0], "product_gigaflops_per_s": limits[1]},
            "timings": [asdict(timing) for timing in timings],
        })  # fmt: skip
        print(Path(path).relative_to(Path.cwd()) if Path(path).is_relative_to(Path.cwd()) else path)
    return 1 if num_red else 0


if __name__ == "__main__":
    sys.exit(main())
