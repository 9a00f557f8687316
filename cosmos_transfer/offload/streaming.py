"""Blocks whose weights are fetched while the block before them computes.

A network's blocks run one after the other, step after step. Only two of them are in memory: the
one that computes, and the next, which a thread reads and unpacks meanwhile. Memory is used again,
so nothing is allocated after the first two.

The outputs are those of the resident network, to the last bit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from cosmos_transfer.errors import CheckpointError, explain
from cosmos_transfer.offload.bitmap import PackedTensor, unpack


@runtime_checkable
class Source(Protocol):
    """Where weights are read from: a file or a folder of them."""

    @property
    def path(self) -> Path:
        """What messages call it."""
        ...

    def names(self) -> tuple[str, ...]:
        """The weights that are there."""
        ...

    def read(self, name: str) -> Tensor | PackedTensor:
        """One weight as it is stored."""
        ...


class StreamedBlocks:
    """Runs blocks from a file; :meth:`remove` gives them their weights back.

    Args:
        blocks: In the order in which they run; the first follows the last in the next step.
        file: Holds their weights, packed or not.
        prefixes: What each block's weights are called in the file, before their own names.
        device: Where they compute.
        dtype: What they compute in; the file's by default.
    """

    def __init__(
        self,
        blocks: Iterable[nn.Module],
        file: Source,
        prefixes: Sequence[str],
        *,
        device: torch.device | str = "cpu",
        dtype: torch.dtype | None = None,
    ) -> None:
        self._blocks = tuple(blocks)
        self._file = file
        self._device = torch.device(device)
        self._dtype = dtype
        self._parameters: list[dict[str, nn.Parameter]] = []
        known = set(file.names())
        for block, prefix in zip(self._blocks, prefixes, strict=True):
            named = {f"{prefix}{name}": each for name, each in block.named_parameters()}
            if absent := sorted(named.keys() - known):
                raise CheckpointError(
                    explain(
                        f"compressed checkpoint {file.path.name}",
                        expected="every weight of the streamed blocks",
                        got=f"none called {', '.join(absent[:5])}",
                        do="Stream the file that the network was written to.",
                    )
                )
            self._parameters.append(named)
        self._free: dict[tuple[Any, ...], list[Tensor]] = defaultdict(list)
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="weights")
        self._coming: dict[int, Future[dict[str, Tensor]]] = {}
        self._handles: list[Any] = []
        for index, block in enumerate(self._blocks):
            self._empty(index)
            self._handles.append(block.register_forward_pre_hook(self._arrive(index)))
            self._handles.append(block.register_forward_hook(self._leave(index)))

    def remove(self) -> None:
        """Load every block and stop streaming."""
        for handle in self._handles:
            handle.remove()
        for future in self._coming.values():
            future.result()
        self._coming.clear()
        for index in range(len(self._blocks)):
            self._fill(index, self._fetch(index))
        self._worker.shutdown()

    def _arrive(self, index: int) -> Any:
        def hook(_module: nn.Module, _inputs: Any) -> None:
            future = self._coming.pop(index, None)
            weights = self._fetch(index) if future is None else future.result()
            self._fill(index, weights)
            following = (index + 1) % len(self._blocks)
            if following != index and following not in self._coming:
                self._coming[following] = self._worker.submit(self._fetch, following)

        return hook

    def _leave(self, index: int) -> Any:
        def hook(_module: nn.Module, _inputs: Any, _output: Any) -> None:
            if len(self._blocks) > 1:
                self._empty(index)

        return hook

    @torch.no_grad()
    def _fetch(self, index: int) -> dict[str, Tensor]:
        weights = {}
        for name in self._parameters[index]:
            stored = self._file.read(name)
            if isinstance(stored, PackedTensor):
                packed = stored.to(self._device, non_blocking=True)
                room = self._room(packed.shape, packed.values.dtype)
                dense = unpack(packed, out=room)
            else:
                dense = self._room(tuple(stored.shape), stored.dtype).copy_(stored)
            if self._dtype is not None and dense.dtype != self._dtype:
                cast = self._room(tuple(dense.shape), self._dtype).copy_(dense)
                self._give_back(dense)
                dense = cast
            weights[name] = dense
        return weights

    def _room(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        free = self._free[shape, dtype]
        return free.pop() if free else torch.empty(shape, dtype=dtype, device=self._device)

    def _give_back(self, tensor: Tensor) -> None:
        self._free[tuple(tensor.shape), tensor.dtype].append(tensor)

    def _fill(self, index: int, weights: dict[str, Tensor]) -> None:
        for name, parameter in self._parameters[index].items():
            parameter.data = weights[name]

    def _empty(self, index: int) -> None:
        for parameter in self._parameters[index].values():
            if parameter.numel():
                if self._handles:  # before streaming starts, the weights are not ours to reuse
                    self._give_back(parameter.data)
                parameter.data = torch.empty(0, dtype=parameter.dtype, device=self._device)
