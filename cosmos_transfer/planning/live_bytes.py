"""How much memory tensors take while code runs, counted without taking any.

The code runs on the ``meta`` device: every operation happens, nothing is computed or stored. What
is counted is what the tensors alive at one moment would take, storages once, at the worst moment.
Kernels' own scratch space is not seen; attention is taken as fused, as it is on every device we
run on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveBytes(TorchDispatchMode):
    """Counts the storages that operations make and that are still alive; ``peak`` in bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.peak = 0
        self._alive: dict[int, tuple[StorageWeakRef, int]] = {}
        self._now = 0

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run the operation, then look at what is alive."""
        known = {
            tensor.untyped_storage()._cdata
            for tensor in tree_leaves((args, kwargs or {}))
            if isinstance(tensor, Tensor)
        }
        result = func(*args, **(kwargs or {}))
        self._forget()
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                self._remember(tensor, known)
        self.peak = max(self.peak, self._now)
        return result

    def _remember(self, tensor: Tensor, known: set[int]) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._alive or key in known:
            return
        self._alive[key] = (StorageWeakRef(storage), storage.nbytes())
        self._now += storage.nbytes()

    def _forget(self) -> None:
        for key in [key for key, (ref, _) in self._alive.items() if ref.expired()]:
            self._now -= self._alive.pop(key)[1]


class FusedAttention(TorchFunctionMode):
    """Attention as one operation whose only memory is its output."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Let everything but attention pass."""
        if func is nn.functional.scaled_dot_product_attention:
            query, _, value = (*args, *(kwargs or {}).values())[:3]
            return query.new_empty((*query.shape[:-1], value.shape[-1]))
        return func(*args, **(kwargs or {}))


@contextmanager
def counted() -> Iterator[LiveBytes]:
    """Count within the block; tensors made before it are not counted."""
    with torch.no_grad(), FusedAttention(), LiveBytes() as live:
        yield live


def parameter_bytes(*modules: nn.Module | None) -> int:
    """Bytes of the parameters and buffers of modules, shared ones once."""
    seen: dict[int, int] = {}
    for module in modules:
        if module is None:
            continue
        for tensor in (*module.parameters(), *module.buffers()):
            storage = tensor.untyped_storage()
            seen[storage._cdata] = storage.nbytes()
    return sum(seen.values())
