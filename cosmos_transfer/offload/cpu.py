"""The decoder for processors: ``expand.c``, compiled once by the system's C compiler.

The compiled library is kept in the user's cache folder under the hash of its source, so that
another version never meets it. Where there is no compiler the definition in ``bitmap`` is used,
which gives the same bits, slower; :func:`why_unavailable` says so.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from importlib.resources import files
from pathlib import Path

from jaxtyping import Shaped, UInt8
from torch import Tensor

from cosmos_transfer.errors import CheckpointError, explain

FLAGS = ("-O3", "-shared", "-fPIC", "-std=c11")


@cache
def why_unavailable() -> str | None:
    """None where the compiled decoder works; otherwise the reason in words."""
    loaded = _load()
    return loaded if isinstance(loaded, str) else None


def expand(
    bitmap: UInt8[Tensor, " bytes"], values: Shaped[Tensor, " kept"], out: Shaped[Tensor, " n"]
) -> None:
    """Write the elements into ``out``; all three on the CPU and contiguous.

    Raises:
        CheckpointError: The bitmap asks for another number of values than there are.
    """
    library = _load()
    assert not isinstance(library, str), library
    status = library.expand(
        bitmap.data_ptr(),
        values.data_ptr(),
        values.numel(),
        out.data_ptr(),
        out.numel(),
        out.element_size(),
    )
    if status:
        raise CheckpointError(
            explain(
                "compressed weight",
                expected="as many values as its bitmap has bits set",
                got=f"{values.numel()}",
                do="Fetch or write the compressed checkpoint again.",
            )
        )


@cache
def _load() -> ctypes.CDLL | str:
    source = files("cosmos_transfer").joinpath("offload", "expand.c").read_bytes()
    if sys.byteorder != "little":
        return "the processor is big-endian"
    digest = hashlib.sha256(source + repr(FLAGS).encode()).hexdigest()[:20]
    path = cache_folder() / f"expand-{digest}-{sys.platform}.so"
    if not path.is_file():
        failed = _compile(source, path)
        if failed is not None:
            return failed
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        return f"its compiled library cannot be loaded ({error})"
    library.expand.restype = ctypes.c_int
    library.expand.argtypes = [
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_int64,
        ctypes.c_void_p,
        ctypes.c_int64,
        ctypes.c_int,
    ]
    return library


def cache_folder() -> Path:
    """Where the compiled library is kept: the user's own cache, unreadable to others' writes."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "cosmos-transfer"


def _compile(source: bytes, path: Path) -> str | None:
    """Compile beside ``path`` and rename; two processes may do so at once. None if it worked."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return "no C compiler is installed (cc)"
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            code, built = Path(folder) / "expand.c", Path(folder) / "expand.so"
            code.write_bytes(source)
            subprocess.run(
                [compiler, *FLAGS, "-o", str(built), str(code)],
                check=True,
                capture_output=True,
                timeout=120,
            )
            os.replace(built, path)
    except subprocess.CalledProcessError as error:
        return f"{compiler} failed: {error.stderr.decode(errors='replace').strip()[:200]}"
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{compiler} could not be run ({error})"
    return None
