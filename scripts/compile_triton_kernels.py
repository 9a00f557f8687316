"""Compile every Triton kernel for five GPU generations; no GPU needed. Exit code 1 on a spill.

python scripts/compile_triton_kernels.py
python scripts/compile_triton_kernels.py --architectures 90 --precisions fp16
"""

from __future__ import annotations

import argparse
import os
import sys
import time

os.environ.pop(
    "TRITON_INTERPRET", None
)  # before kernels are defined: interpreted ones have no code


def main() -> int:
    """Print one line a kernel, and say what spills or does not fit."""
    from ngpc.backends.triton import ahead_of_time as aot

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--architectures", nargs="+", type=int, default=aot.ARCHITECTURES)
    parser.add_argument("--precisions", nargs="+", choices=aot.PRECISIONS, default=aot.PRECISIONS)
    arguments = parser.parse_args()
    started, num_bad, num_compiled = time.perf_counter(), 0, 0
    for architecture in arguments.architectures:
        for precision in arguments.precisions:
            for case in aot.kernel_cases(precision):
                footprint = aot.compile_case(case, precision=precision, architecture=architecture)
                room = aot.SHARED_MEMORY_LIMIT[architecture] * 1024
                is_bad = footprint.spilled_bytes > 0 or footprint.shared_bytes > room
                num_bad += is_bad
                num_compiled += 1
                print(f"{footprint}{'  <- does not fit' if is_bad else ''}", flush=True)
    seconds = time.perf_counter() - started
    print(f"{num_compiled} kernels in {seconds:.0f} s; {num_bad} spill or do not fit")
    return 1 if num_bad else 0


if __name__ == "__main__":
    sys.exit(main())
