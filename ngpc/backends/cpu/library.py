"""The compiled kernels through ctypes: the widest instructions that this processor has."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ngpc.backends.compiled import library_path
from ngpc.errors import BackendUnavailableError, explain

OUT_OF_MEMORY = 1

_POINTER, _INT, _COUNT = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
# What stands before (number of points, number of threads).
SIGNATURES = {
    "ngpc_grid_values": (_POINTER,) * 5,
    "ngpc_grid_position_gradient": (_POINTER,) * 6,
    "ngpc_grid_table_gradient": (_POINTER,) * 5,
    "ngpc_mlp_values": (_POINTER,) * 3,
    "ngpc_mlp_gradients": (_POINTER,) * 5,
}


@cache
def library() -> ctypes.CDLL:
    """The library.

    Raises:
        BackendUnavailableError: it has not been compiled, or the system cannot load it.
    """
    path = library_path()
    if path is None:
        raise BackendUnavailableError(
            explain(
                "backend 'cpu'",
                expected="compiled kernels",
                got="none",
                do="Run `python -m ngpc.backends.compiled`; it needs a C++ compiler.",
            )
        )
    try:
        loaded = ctypes.CDLL(str(path))
    except OSError as error:
        raise BackendUnavailableError(
            explain(
                "backend 'cpu'",
                expected="compiled kernels that load",
                got=str(error),
                do="Run `python -m ngpc.backends.compiled` on this machine.",
            )
        ) from error
    loaded.ngpc_best_instructions.restype = ctypes.c_char_p
    return loaded


@cache
def best_instructions() -> str:
    """``avx512``, ``avx2`` or ``portable``."""
    name: bytes = library().ngpc_best_instructions()
    return name.decode()


@cache
def _kernel(name: str, instructions: str) -> Callable[..., int]:
    function: Callable[..., int] = getattr(library(), f"{name}_{instructions}")
    function.argtypes = [*SIGNATURES[name], _COUNT, _INT]  # type: ignore[attr-defined]
    function.restype = _INT  # type: ignore[attr-defined]
    return function


def call(
    name: str, *arguments: ctypes.Structure | ctypes.Array[Any] | Tensor | None, num_points: int
) -> None:
    """Run a kernel on as many threads as PyTorch uses.

    Args:
        name: One of :data:`SIGNATURES`.
        arguments: What it takes, in its order. Tensors are contiguous float32; None is null.
        num_points: More than none.

    Raises:
        MemoryError: there is no room for what it keeps meanwhile.
    """
    pointers = [
        argument.data_ptr() if isinstance(argument, Tensor)
        else None if argument is None
        else ctypes.addressof(argument)
        for argument in arguments
    ]  # fmt: skip
    function = _kernel(name, best_instructions())
    status = function(*pointers, num_points, torch.get_num_threads())
    if status == OUT_OF_MEMORY:
        raise MemoryError(f"{name}: no memory for {num_points:,} points; give fewer at a time")
    assert status == 0, f"{name}: sizes that no kernel was compiled for"
