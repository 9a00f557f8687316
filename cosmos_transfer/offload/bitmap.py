"""Bitmap-sparse weights: one bit an element, and the elements that are not zero, in order.

An element counts as zero only if all its bits are: -0.0 and NaN are kept. So packing and unpacking
gives back every bit of every tensor, sparse or not; what changes is the size,
``1 / bits + (1 - share of zeros)`` of the dense one: 0.5625 for bf16 with half its weights zero.

Bits stand in bytes lowest first; the last byte is filled with zeros. :func:`unpack_definition` is
the meaning of the format, in plain PyTorch; ``cpu`` and ``triton_kernel`` are accused of matching
it.

Source:
    Endor, arXiv:2406.11674: hardware-friendly bitmap format for offloaded, pruned weights.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Shaped, UInt8
from torch import Tensor

from cosmos_transfer.errors import CheckpointError, explain
from cosmos_transfer.offload import cpu

# The integer that has an element's bits, by its width in bytes.
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
DECODERS = ("auto", "definition", "cpu", "triton")


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedTensor:
    """A tensor's elements that are not zero, and where they go."""

    bitmap: UInt8[Tensor, " bytes"]
    values: Shaped[Tensor, " kept"]
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        """Refuse parts that cannot be of one tensor."""
        expected = (math.prod(self.shape) + 7) // 8
        if self.bitmap.numel() != expected or self.bitmap.dtype != torch.uint8:
            raise CheckpointError(
                explain(
                    "compressed weight",
                    expected=f"a bitmap of {expected} bytes for shape {self.shape}",
                    got=f"{self.bitmap.numel()} of {self.bitmap.dtype}",
                    do="Fetch or write the compressed checkpoint again.",
                )
            )

    @property
    def num_bytes(self) -> int:
        """Size as stored, bitmap included."""
        return self.bitmap.numel() + self.values.numel() * self.values.element_size()

    @property
    def num_dense_bytes(self) -> int:
        """Size once unpacked."""
        return math.prod(self.shape) * self.values.element_size()

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> PackedTensor:
        """The same on another device; what travels is what is stored."""
        return PackedTensor(
            bitmap=self.bitmap.to(device, non_blocking=non_blocking),
            values=self.values.to(device, non_blocking=non_blocking),
            shape=self.shape,
        )


def pack(tensor: Tensor) -> PackedTensor:
    """Leave out the elements whose bits are all zero.

    Args:
        tensor: Of any shape and any dtype of 1, 2, 4 or 8 bytes.
    """
    flat = tensor.detach().contiguous().reshape(-1)
    is_kept = _bits_of(flat) != 0
    padded = torch.zeros((flat.numel() + 7) // 8 * 8, dtype=torch.uint8, device=flat.device)
    padded[: flat.numel()] = is_kept
    places = torch.arange(8, dtype=torch.uint8, device=flat.device)
    bitmap = (padded.reshape(-1, 8) << places).sum(dim=1, dtype=torch.uint8)
    values = _bits_of(flat)[is_kept].view(flat.dtype)
    return PackedTensor(bitmap=bitmap, values=values, shape=tuple(tensor.shape))


def unpack(packed: PackedTensor, *, decoder: str = "auto", out: Tensor | None = None) -> Tensor:
    """The tensor, bit for bit, on the device its parts are on.

    Args:
        packed: From :func:`pack`, or read from a file.
        decoder: ``definition``, ``cpu`` or ``triton``; ``auto`` takes the fastest that runs there.
        out: Written into and returned, where memory is to be used again; contiguous, of the same
            shape, dtype and device. Fresh memory costs more than the decoding.

    Raises:
        CheckpointError: Bitmap and values do not belong together.
    """
    device = packed.bitmap.device.type
    if decoder == "auto":
        decoder = "definition"
        if device == "cuda" and _has_triton():
            decoder = "triton"
        elif device == "cpu" and cpu.why_unavailable() is None:
            decoder = "cpu"
    if decoder == "cpu":
        if out is None:
            out = torch.empty(packed.shape, dtype=packed.values.dtype)
        _check_out(packed, out)
        cpu.expand(packed.bitmap.contiguous(), packed.values.contiguous(), out.view(-1))
        return out
    if decoder in ("definition", "triton"):
        if decoder == "definition":
            unpacked = unpack_definition(packed)
        else:
            from cosmos_transfer.offload import triton_kernel

            _check_count(packed)
            unpacked = triton_kernel.expand(packed.bitmap, packed.values, packed.shape)
        if out is None:
            return unpacked
        _check_out(packed, out)
        return out.copy_(unpacked)
    raise CheckpointError(
        explain(
            "compressed weight",
            expected="a decoder among " + ", ".join(DECODERS),
            got=repr(decoder),
            do="auto is right for most.",
        )
    )


def unpack_definition(packed: PackedTensor) -> Tensor:
    """What the format means."""
    _check_count(packed)
    num_elements = math.prod(packed.shape)
    is_kept = _is_set(packed.bitmap)[:num_elements]
    out = torch.zeros(num_elements, dtype=packed.values.dtype, device=packed.values.device)
    _bits_of(out)[is_kept] = _bits_of(packed.values)
    return out.reshape(packed.shape)


def _check_out(packed: PackedTensor, out: Tensor) -> None:
    if (
        tuple(out.shape) != packed.shape
        or out.dtype != packed.values.dtype
        or out.device != packed.values.device
        or not out.is_contiguous()
    ):
        raise CheckpointError(
            explain(
                "compressed weight",
                expected=f"contiguous room for {packed.shape} of {packed.values.dtype}",
                got=f"{tuple(out.shape)} of {out.dtype} on {out.device}",
                do="Make the parameter like the stored weight.",
            )
        )


def _is_set(bitmap: UInt8[Tensor, " bytes"]) -> Tensor:
    places = torch.arange(8, dtype=torch.uint8, device=bitmap.device)
    return ((bitmap[:, None] >> places) & 1).bool().reshape(-1)


def _check_count(packed: PackedTensor) -> None:
    asked = int(_is_set(packed.bitmap)[: math.prod(packed.shape)].sum())
    if asked != packed.values.numel():
        raise CheckpointError(
            explain(
                "compressed weight",
                expected=f"as many values as its bitmap has bits set ({asked})",
                got=f"{packed.values.numel()}",
                do="Fetch or write the compressed checkpoint again.",
            )
        )


def _bits_of(flat: Shaped[Tensor, " n"]) -> Shaped[Tensor, " n"]:
    if flat.dtype == torch.bool:
        return flat.view(torch.uint8)
    return flat.view(BITS[flat.element_size()])


def _has_triton() -> bool:
    from importlib.util import find_spec

    return find_spec("triton") is not None
