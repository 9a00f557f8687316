"""What `scripts/gpu_check.sh` runs: the Triton kernels on this machine's GPU, into one JSON.

First correctness in float32, float16 and bfloat16, then times at 2^20 to 2^22 points beside plain
PyTorch, ``torch.compile`` and tinycudann where it is installed. The file is rewritten after every
step, and what does not fit the time is listed as left out.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from benchmarks.results_file import commit, hardware
from benchmarks.run import DTYPES, KERNELS, Case, ceilings, check, time_case

SIZES = (2**20, 2**21, 2**22)
LONGEST_STEP_S = 60.0  # a step is not begun with less time than this left


def main(argv: Sequence[str] | None = None) -> int:
    """Run all steps that fit into the time; exit code 1 if a kernel is wrong, 2 without a GPU."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("gpu_check.json"))
    parser.add_argument("--seconds", type=float, default=450.0)
    arguments = parser.parse_args(argv)
    deadline = time.monotonic() + arguments.seconds
    if not torch.cuda.is_available():
        print("gpu_check: expected a CUDA device, got none. Run it on a machine with a GPU.",
              file=sys.stderr)  # fmt: skip
        return 2
    report: dict[str, Any] = {
        "commit": commit(), "hardware": hardware(), "correctness": [], "timings": [],
        "left_out": [], "ceilings": {},
    }  # fmt: skip
    is_right = check_all(report, "triton", "cuda")
    write(report, arguments.output)
    if is_right:
        time_all(report, deadline, arguments.output)
    write(report, arguments.output)
    print(f"{'right' if is_right else 'WRONG'}; {arguments.output}")
    return 0 if is_right else 1


def check_all(report: dict[str, Any], backend: str, device: str) -> bool:
    """Judge every kernel in every precision; the double-precision truth runs on the same device."""
    package = importlib.import_module(f"ngpc.backends.{backend}")
    is_right = True
    for kernel in KERNELS:
        for name, dtype in DTYPES.items():
            for verdict in check(kernel, package, dtype, device):
                is_right = is_right and verdict.is_right
                entry = {"kernel": kernel, "backend": backend, "dtype": name}
                report["correctness"].append(
                    entry | asdict(verdict) | {"is_right": verdict.is_right}
                )
    return is_right


def time_all(
    report: dict[str, Any],
    deadline: float,
    output: Path,
    *,
    device: str = "cuda",
    sizes: Sequence[int] = SIZES,
) -> None:
    """Time every way to compute every kernel, small sizes first."""
    for name, dtype in DTYPES.items():
        report["ceilings"][name] = list(ceilings(dtype, device))
    for num_points in sizes:
        for kernel in KERNELS:
            for name, dtype in DTYPES.items():
                for way in ways():
                    step = f"{kernel} {name} {way} {num_points}"
                    if time.monotonic() > deadline - LONGEST_STEP_S:
                        report["left_out"].append(f"{step}: no time left")
                        continue
                    try:
                        case = KERNELS[kernel](num_points, dtype, device)
                        timings = time_case(
                            kernel, way, runner(way, case), case, device=device,
                            limits=report["ceilings"][name],
                        )  # fmt: skip
                        report["timings"] += [asdict(timing) for timing in timings]
                    except Exception as error:
                        torch.cuda.empty_cache()
                        report["left_out"].append(f"{step}: {type(error).__name__}: {error}"[:300])
                    write(report, output)


def ways() -> list[str]:
    """Ways to compute a kernel on this machine."""
    return ["triton", "reference", "torch.compile", *(["tcnn"] if find_spec("tinycudann") else [])]


def runner(way: str, case: Case) -> Any:
    """The function of a case's inputs that computes it one way."""
    if way == "torch.compile":
        reference = importlib.import_module("ngpc.backends.reference")
        return torch.compile(case.run(reference))
    return case.run(importlib.import_module(f"ngpc.backends.{way}"))


def write(report: dict[str, Any], path: Path) -> None:
    """Replace the report on disk."""
    scratch = path.with_name(f".{path.name}.part")
    scratch.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    scratch.replace(path)


if __name__ == "__main__":
    sys.exit(main())
