"""Compiling the kernels of the ``cpu`` backend, and finding them.

The package build compiles them where it finds a C++ compiler (``hatch_build.py``). The library's
name holds a hash of its sources: kernels left over from other sources are never loaded. After a
change to the sources of an editable installation::

    python -m ngpc.backends.compiled

Only the standard library is needed here: the package build loads this file by its path.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent / "cpu"
SOURCES = PACKAGE / "src"
COMPILERS = ("c++", "g++", "clang++")
FLAGS = ("-std=c++17", "-O3", "-fPIC", "-fvisibility=hidden", "-pthread", "-Wno-psabi")
ONCE = ("region.cpp",)
PER_INSTRUCTIONS = ("grid.cpp", "mlp.cpp")
X86_INSTRUCTIONS = {
    "avx2": ("-mavx2", "-mfma"),
    "avx512": ("-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl", "-mfma"),
}


class CompilationError(Exception):
    """No kernels: no compiler, or one that failed."""


def instruction_sets() -> dict[str, tuple[str, ...]]:
    """The instruction sets that kernels are compiled for here, each with its flags."""
    is_x86 = platform.machine().lower() in ("x86_64", "amd64")
    return {"portable": (), **(X86_INSTRUCTIONS if is_x86 else {})}


@cache
def library_name() -> str:
    """The file name of the kernels compiled from these sources."""
    digest = hashlib.sha256(Path(__file__).read_bytes())
    for path in sorted(SOURCES.iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return f"kernels-{digest.hexdigest()[:16]}.so"


def library_path() -> Path | None:
    """The compiled kernels; None where there are none of these sources."""
    path = PACKAGE / library_name()
    return path if path.is_file() else None


def find_compiler() -> list[str]:
    """The command of the C++ compiler: ``CXX``, or one beside a given ``CC``, or the system's.

    ``CC`` counts too, so that ``CC=/bin/false`` means what it says.

    Raises:
        CompilationError: there is none.
    """
    for variable in ("CXX", "CC"):
        if os.environ.get(variable):
            return shlex.split(os.environ[variable])
    for name in COMPILERS:
        if found := shutil.which(name):
            return [found]
    raise CompilationError(f"no C++ compiler: none of {', '.join(COMPILERS)} is on the path")


def compile_kernels(folder: str | Path = PACKAGE) -> Path:
    """Compile the kernels into ``folder``, in place of older ones there.

    Raises:
        CompilationError: there is no compiler, or it failed; the message ends in its last line.
    """
    folder = Path(folder)
    compiler = find_compiler()
    for old in folder.glob("kernels-*.so"):
        old.unlink()
    with tempfile.TemporaryDirectory() as scratch:
        objects = []
        for source, name, flags in _units():
            objects.append(str(Path(scratch) / f"{name}.o"))
            _run([*compiler, *FLAGS, *flags, "-c", str(SOURCES / source), "-o", objects[-1]])
        built = Path(scratch) / library_name()
        # CC may name a C compiler; the C++ library is then asked for by name.
        _run([*compiler, "-shared", "-pthread", *objects, "-lstdc++", "-o", str(built)])
        target = folder / library_name()
        partial = target.with_suffix(".part")
        shutil.copyfile(built, partial)
        partial.replace(target)  # whole, or not there
    return target


def _units() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    for source in ONCE:
        yield source, Path(source).stem, ()
    for instructions, flags in instruction_sets().items():
        for source in PER_INSTRUCTIONS:
            name = f"{Path(source).stem}_{instructions}"
            yield source, name, (*flags, f"-DNGPC_INSTRUCTIONS={instructions}")


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise CompilationError(f"{command[0]}: {error}") from error
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise CompilationError(f"{shlex.join(command[:1])} failed: {last}")


if __name__ == "__main__":
    try:
        print(compile_kernels())  # noqa: T201  a command's result
    except CompilationError as error:
        sys.exit(f"kernels: expected a C++ compiler, got {error}. Install one, or set CXX.")
