"""The compiled kernels of ngpc beside eager PyTorch and torch.compile, in pairs; `make bench-ngpc`.

    python -m benchmarks.ngpc_kernels --points 262144 1048576 --pairs 5
    python -m benchmarks.ngpc_kernels --ways eager --tasks encode mlp

The case of the literature: sixteen levels of two features, 2^19 entries, 16 vertices on the
coarsest and growth 1.447, random positions in three dimensions, then a perceptron 32-64-64-16.
"Eager" is the fastest plain PyTorch known for it: one level at a time in single precision.

One pair is one run of each, one right after the other; printed are medians over pairs of both
ratios: wall time, and processor time, which other programs on the machine disturb less. Nothing is
timed before every kernel has been right.
"""

from __future__ import annotations

import argparse
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

from benchmarks.results_file import hardware, write_results
from benchmarks.run import MLP_WIDTHS, check
from ngpc.backends import cpu
from ngpc.backends.compiled import library_path
from ngpc.backends.cpu.library import best_instructions
from ngpc.backends.reference.hash_grid import HASH_PRIMES
from ngpc.config import Activation, GridConfig, Interpolation
from ngpc.shapes import GridLayout, GridLevel

SIZES = (2**18, 2**20)
TASKS = ("encode", "mlp", "encode+mlp", "encode+mlp forward+backward")
WAYS = ("eager", "compile")
TOLERANCE = 1e-4  # of eager beside the kernels; it rounds positions differently
NUM_COMPARED = 1021


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times faster the kernels are: medians over pairs."""

    task: str
    way: str
    num_points: int
    num_threads: int
    pairs: int
    wall: float
    processor: float
    kernel_seconds: float
    load_average: float


def eager_encode(positions: Tensor, table: Tensor, layout: GridLayout) -> Tensor:
    """The grid in plain PyTorch, level by level, linear interpolation, single precision."""
    features = []
    for level in layout.levels:
        located = positions * level.scale + 0.5
        cell = located.floor()
        fraction = located - cell
        vertex = cell.to(torch.int64)
        rows = table[level.offset : level.offset + level.num_entries]
        total = None
        for corner in itertools.product((0, 1), repeat=layout.num_dims):
            index = _index(vertex, corner, level)
            weight = torch.ones_like(fraction[:, 0])
            for axis, side in enumerate(corner):
                weight = weight * (fraction[:, axis] if side else 1.0 - fraction[:, axis])
            part = weight[:, None] * rows[index]
            total = part if total is None else total + part
        features.append(total)
    return torch.cat(features, dim=1)


def _index(vertex: Tensor, corner: Sequence[int], level: GridLevel) -> Tensor:
    index, stride = torch.zeros_like(vertex[:, 0]), 1
    for axis, side in enumerate(corner):
        if level.is_hashed:
            index = index ^ ((vertex[:, axis] + side) * HASH_PRIMES[axis])
        else:
            index = index + (vertex[:, axis] + side) * stride
            stride *= level.resolution
    if level.is_hashed:
        return index & (level.num_entries - 1)
    return index % level.num_entries


def eager_mlp(inputs: Tensor, *matrices: Tensor) -> Tensor:
    """The perceptron in plain PyTorch."""
    hidden = inputs
    for matrix in matrices[:-1]:
        hidden = torch.relu(hidden @ matrix.T)
    return hidden @ matrices[-1].T


def kernel_mlp(inputs: Tensor, *matrices: Tensor) -> Tensor:
    """The perceptron in compiled kernels."""
    return cpu.apply_mlp(
        inputs, matrices, activation=Activation.RELU, output_activation=Activation.NONE
    )


def functions(task: str, layout: GridLayout, encode: Any, mlp: Any) -> Callable[..., Tensor]:
    """What is timed: a function of (positions, table, features, matrices)."""
    if task == "encode":
        return lambda x, table, features, *matrices: encode(x, table, layout)
    if task == "mlp":
        return lambda x, table, features, *matrices: mlp(features, *matrices)
    return lambda x, table, features, *matrices: mlp(encode(x, table, layout), *matrices)


def kernel_encode(positions: Tensor, table: Tensor, layout: GridLayout) -> Tensor:
    """The grid in compiled kernels."""
    return cpu.encode_grid(positions, table, layout=layout, interpolation=Interpolation.LINEAR)


def case(layout: GridLayout, num_points: int) -> list[Tensor]:
    """Positions, table, features and matrices."""
    generator = torch.Generator().manual_seed(0)
    matrices = [
        torch.randn(rows, columns, generator=generator) / columns**0.5
        for columns, rows in itertools.pairwise(MLP_WIDTHS)
    ]
    return [
        torch.rand(num_points, 3, generator=generator),
        torch.randn(layout.num_entries, layout.features_per_level, generator=generator),
        torch.randn(num_points, MLP_WIDTHS[0], generator=generator),
        *matrices,
    ]


def runner(task: str, function: Callable[..., Tensor], inputs: Sequence[Tensor]) -> Any:
    """A call without arguments that does the task's work."""
    if "backward" not in task:

        def forward() -> object:
            with torch.no_grad():
                return function(*inputs)

        return forward
    leaves = [inputs[0], inputs[1].clone().requires_grad_(), inputs[2]]
    leaves += [matrix.clone().requires_grad_() for matrix in inputs[3:]]
    trained = [leaf for leaf in leaves if leaf.requires_grad]
    upstream = torch.randn(len(inputs[0]), MLP_WIDTHS[-1])
    return lambda: torch.autograd.grad(function(*leaves), trained, upstream)


def seconds(run: Callable[[], object]) -> tuple[float, float]:
    """Wall and processor time of one run."""
    wall, processor = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - wall, time.process_time() - processor


def what_is_wrong() -> list[str]:
    """Kernels that are red, and eager code that computes something else; empty if all is well."""
    wrong = [
        f"{kernel}: {verdict.name}, relative RMS {verdict.error:.3g}, allowed {verdict.allowed:.3g}"
        for kernel in ("hash_grid", "mlp")
        for verdict in check(kernel, cpu, torch.float32, "cpu")
        if not verdict.is_right
    ]
    layout = GridConfig(per_level_scale=1.447).layout(3)
    x, table, features, *matrices = case(layout, NUM_COMPARED)
    for name, plain, kernel in (
        ("eager grid", eager_encode(x, table, layout), kernel_encode(x, table, layout)),
        ("eager mlp", eager_mlp(features, *matrices), kernel_mlp(features, *matrices)),
    ):
        error = float((plain - kernel).norm() / kernel.norm())
        if not error <= TOLERANCE:
            wrong.append(f"{name}: relative RMS {error:.3g} from the kernels")
    return wrong


def measure(
    task: str, way: str, num_points: int, *, pairs: int, num_threads: int, layout: GridLayout
) -> Ratio:
    """Pairs of the kernels and another way."""
    inputs = case(layout, num_points)
    kernel = runner(task, functions(task, layout, kernel_encode, kernel_mlp), inputs)
    plain = functions(task, layout, eager_encode, eager_mlp)
    other = runner(task, torch.compile(plain) if way == "compile" else plain, inputs)
    torch.set_num_threads(num_threads)
    kernel()
    other()  # compiles
    measured = []
    for _ in range(pairs):
        mine, theirs = seconds(kernel), seconds(other)
        measured.append((theirs[0] / mine[0], theirs[1] / mine[1], mine[0]))
    wall, processor, own = (statistics.median(column) for column in zip(*measured, strict=True))
    load = hardware()["load_average"]
    return Ratio(task, way, num_points, num_threads, pairs, wall, processor, own, load)


def measure_threads(num_points: int, *, pairs: int, layout: GridLayout) -> list[Ratio]:
    """Two threads beside one, of the kernels alone."""
    ratios = []
    for task in TASKS:
        inputs = case(layout, num_points)
        run = runner(task, functions(task, layout, kernel_encode, kernel_mlp), inputs)
        run()
        measured = []
        for _ in range(pairs):
            torch.set_num_threads(1)
            one = seconds(run)
            torch.set_num_threads(2)
            two = seconds(run)
            measured.append((one[0] / two[0], one[1] / two[1], two[0]))
        wall, processor, own = (statistics.median(column) for column in zip(*measured, strict=True))
        load = hardware()["load_average"]
        ratios.append(Ratio(task, "one thread", num_points, 2, pairs, wall, processor, own, load))
    return ratios


def product_share(layout: GridLayout, *, pairs: int) -> tuple[float, float]:
    """GFLOP/s of the perceptron and of PyTorch's product of 1024 x 1024, by processor time."""
    inputs = case(layout, 2**17)
    flops = 2.0 * len(inputs[0]) * sum(a * b for a, b in itertools.pairwise(MLP_WIDTHS))
    run = runner("mlp", functions("mlp", layout, kernel_encode, kernel_mlp), inputs)
    square = torch.randn(1024, 1024)
    torch.set_num_threads(1)
    measured = []
    for _ in range(pairs + 1):
        measured.append(
            (flops / seconds(run)[1], 2 * 1024**3 / seconds(lambda: square @ square)[1])
        )
    mlp, product = (statistics.median(column) for column in zip(*measured[1:], strict=True))
    return mlp / 1e9, product / 1e9


def main(argv: Sequence[str] | None = None) -> int:
    """Check, time in pairs, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, nargs="+", default=SIZES)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS)
    parser.add_argument("--threads", type=int, default=1, help="of both sides of a pair")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/")
    arguments = parser.parse_args(argv)
    if library_path() is None:
        print("bench-ngpc: expected compiled kernels, got none. Run "
              "`python -m ngpc.backends.compiled`.", file=sys.stderr)  # fmt: skip
        return 2
    torch.set_num_threads(1)
    if wrong := what_is_wrong():
        print("\n".join(f"not timed, wrong: {line}" for line in wrong))
        return 1
    machine = hardware()
    layout = GridConfig(per_level_scale=1.447).layout(3)
    print(f"{machine['processor']}, {machine['cores']} cores, {best_instructions()}, load "
          f"{machine['load_average']}")  # fmt: skip
    mlp, product = product_share(layout, pairs=arguments.pairs)
    print(
        f"mlp {mlp:.1f} GFLOP/s, product of 1024 x 1024 {product:.1f} GFLOP/s: {mlp / product:.0%}"
    )
    ratios = []
    for num_points, task, way in itertools.product(
        arguments.points, arguments.tasks, arguments.ways
    ):
        ratios.append(
            measure(task, way, num_points, pairs=arguments.pairs, num_threads=arguments.threads,
                    layout=layout)
        )  # fmt: skip
        show(ratios[-1])
    for ratio in measure_threads(min(arguments.points), pairs=arguments.pairs, layout=layout):
        ratios.append(ratio)
        show(ratio)
    if arguments.save:
        path = write_results({
            "benchmark": "ngpc-kernels", "hardware": machine, "instructions": best_instructions(),
            "mlp_gigaflops_per_s": mlp, "product_gigaflops_per_s": product,
            "ratios": [asdict(ratio) for ratio in ratios],
        })  # fmt: skip
        print(Path(path).name)
    return 0


def show(ratio: Ratio) -> None:
    """One line."""
    rate = ratio.num_points / ratio.kernel_seconds / 1e6
    print(f"{ratio.task:28} {ratio.num_points:8} points, {ratio.num_threads} threads: "
          f"{ratio.wall:6.1f} x {ratio.way} by wall time, {ratio.processor:6.1f} x by processor "
          f"time; {rate:.2f} Mpoint/s, load {ratio.load_average}", flush=True)  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
