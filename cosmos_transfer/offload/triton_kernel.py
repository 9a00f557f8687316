"""The decoder for GPUs: each program places 1,024 elements from where its values begin.

Runs under Triton's interpreter on a CPU as well, which is how it is tested without a GPU.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Shaped, UInt8
from torch import Tensor

ELEMENTS = 1024
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@triton.jit  # type: ignore[untyped-decorator]
def _expand_kernel(
    bitmap: Any,
    values: Any,
    starts: Any,
    out: Any,
    num_elements: Any,
    ELEMENTS: tl.constexpr,  # noqa: N803  Triton's constants are written so
) -> None:
    program = tl.program_id(0).to(tl.int64)
    index = program * ELEMENTS + tl.arange(0, ELEMENTS)
    inside = index < num_elements
    byte = tl.load(bitmap + index // 8, mask=inside, other=0).to(tl.int32)
    bit = (byte >> (index % 8).to(tl.int32)) & 1
    bit = tl.where(inside, bit, 0)
    rank = tl.cumsum(bit, axis=0) - bit
    start = tl.load(starts + program)
    value = tl.load(values + start + rank, mask=bit == 1, other=0)
    tl.store(out + index, value, mask=inside)


def expand(
    bitmap: UInt8[Tensor, " bytes"], values: Shaped[Tensor, " kept"], shape: tuple[int, ...]
) -> Tensor:
    """Place the values; bitmap and values must belong together.

    Args:
        bitmap: One bit an element, lowest first.
        values: The elements that are not zero, in order.
        shape: Of the result.
    """
    num_elements = math.prod(shape)
    as_bits = BITS[values.element_size()]
    out = torch.empty(num_elements, dtype=as_bits, device=bitmap.device)
    if num_elements:
        starts = _starts(bitmap, num_elements)
        stored = values.contiguous().view(as_bits)
        if not stored.numel():
            stored = stored.new_zeros(1)  # an address to point at; nothing is read from it
        _expand_kernel[(len(starts),)](
            bitmap.contiguous(), stored, starts, out, num_elements, ELEMENTS=ELEMENTS
        )
    return out.view(values.dtype).reshape(shape)


def _starts(bitmap: UInt8[Tensor, " bytes"], num_elements: int) -> Tensor:
    """Index of every program's first value."""
    bytes_each = ELEMENTS // 8
    num_programs = triton.cdiv(num_elements, ELEMENTS)
    table = torch.arange(256, device=bitmap.device)
    ones = sum((table >> place) & 1 for place in range(8))
    assert isinstance(ones, Tensor)
    padded = bitmap.new_zeros(num_programs * bytes_each)
    padded[: bitmap.numel()] = bitmap
    counts = ones[padded.long()].reshape(num_programs, bytes_each).sum(dim=1)
    return torch.cumsum(counts, dim=0) - counts
