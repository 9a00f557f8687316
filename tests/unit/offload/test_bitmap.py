"""Every decoder against the definition, bit for bit: any sparsity, any dtype, any shape."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cosmos_transfer.errors import CheckpointError
from cosmos_transfer.offload import cpu
from cosmos_transfer.offload.bitmap import (
    BITS,
    PackedTensor,
    pack,
    unpack,
    unpack_definition,
)

DTYPES = [
    torch.bfloat16,
    torch.float16,
    torch.float32,
    torch.float64,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.int8,
    torch.uint8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.bool,
]
DECODERS = ["definition", "cpu", "triton"]
SHAPES = [(0,), (1,), (7,), (8,), (9,), (3, 5, 7), (127,), (128, 9), (1025,), (31, 33), (), (4, 0)]


def bits(tensor):
    flat = tensor.contiguous().reshape(-1)
    return flat.view(torch.uint8 if flat.dtype == torch.bool else BITS[flat.element_size()])


def random_tensor(shape, dtype, share_of_zeros, seed=0):
    generator = torch.Generator().manual_seed(seed)
    count = math.prod(shape)
    if dtype == torch.bool:
        return (torch.rand(count, generator=generator) >= share_of_zeros).reshape(shape)
    raw = torch.randint(
        1,
        255,
        (count, torch.empty(0, dtype=dtype).element_size()),
        generator=generator,
        dtype=torch.uint8,
    )
    raw[torch.rand(count, generator=generator) < share_of_zeros] = 0
    return raw.reshape(-1).view(dtype).reshape(shape) if count else torch.empty(shape, dtype=dtype)


def decode(packed, decoder):
    if decoder == "cpu" and (reason := cpu.why_unavailable()):
        pytest.fail(f"the compiled decoder does not run here: {reason}")
    return unpack(packed, decoder=decoder)


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("share_of_zeros", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda each: str(each).removeprefix("torch."))
def test_every_bit_comes_back(dtype, share_of_zeros, decoder):
    tensor = random_tensor((37, 29), dtype, share_of_zeros)
    back = decode(pack(tensor), decoder)
    assert (back.dtype, back.shape) == (tensor.dtype, tensor.shape)
    assert torch.equal(bits(back), bits(tensor))


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_odd_shapes_come_back(shape, decoder):
    for dtype in (torch.bfloat16, torch.float32):
        tensor = random_tensor(shape, dtype, 0.5)
        assert torch.equal(bits(decode(pack(tensor), decoder)), bits(tensor))


@settings(max_examples=60, deadline=None)
@given(
    length=st.integers(0, 300),
    percent=st.integers(0, 100),
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 2**31),
)
def test_the_compiled_decoder_matches_the_definition(length, percent, dtype, seed):
    tensor = random_tensor((length,), dtype, percent / 100, seed)
    packed = pack(tensor)
    expected = unpack_definition(packed)
    assert torch.equal(bits(expected), bits(tensor))
    assert torch.equal(bits(decode(packed, "cpu")), bits(expected))


def test_zeros_with_a_sign_and_nan_are_kept():
    tensor = torch.tensor([0.0, -0.0, math.nan, math.inf, 1.0, 0.0])
    packed = pack(tensor)
    assert packed.values.numel() == 4
    for decoder in DECODERS:
        assert torch.equal(bits(decode(packed, decoder)), bits(tensor))


def test_a_tensor_that_is_not_contiguous_is_packed_as_it_reads():
    tensor = random_tensor((16, 24), torch.bfloat16, 0.5).T[::2]
    assert torch.equal(unpack(pack(tensor)), tensor)


@pytest.mark.parametrize(
    ("dtype", "ratio"), [(torch.bfloat16, 0.5625), (torch.float32, 0.53125), (torch.int8, 0.625)]
)
def test_half_zeros_cost_their_half_and_one_bit(dtype, ratio):
    tensor = torch.ones(1000, 64).to(dtype)
    tensor[::2] = 0
    packed = pack(tensor)
    assert packed.num_dense_bytes == tensor.numel() * tensor.element_size()
    assert packed.num_bytes / packed.num_dense_bytes == pytest.approx(ratio)


def test_memory_given_is_used_again():
    tensor = random_tensor((20, 9), torch.bfloat16, 0.5)
    for decoder in DECODERS:
        room = torch.full((20, 9), 7.0, dtype=torch.bfloat16)
        got = unpack(pack(tensor), decoder=decoder, out=room)
        assert got.data_ptr() == room.data_ptr()
        assert torch.equal(bits(room), bits(tensor))


@pytest.mark.parametrize(
    "room",
    [
        torch.zeros(20, 8, dtype=torch.bfloat16),
        torch.zeros(20, 9),
        torch.zeros(9, 20, dtype=torch.bfloat16).T,
    ],
    ids=["shape", "dtype", "strided"],
)
def test_room_that_does_not_fit_is_refused(room):
    packed = pack(random_tensor((20, 9), torch.bfloat16, 0.5))
    for decoder in DECODERS:
        with pytest.raises(CheckpointError, match="contiguous room"):
            unpack(packed, decoder=decoder, out=room)


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("change", ["short", "long", "flipped"])
def test_parts_that_do_not_belong_together_are_refused(decoder, change):
    good = pack(random_tensor((50, 11), torch.bfloat16, 0.5))
    values, bitmap = good.values, good.bitmap.clone()
    if change == "short":
        values = values[:-1]
    elif change == "long":
        values = torch.cat([values, values[:1]])
    else:
        bitmap[3] ^= 4
    with pytest.raises(CheckpointError, match="as many values as its bitmap has bits set"):
        decode(PackedTensor(bitmap=bitmap, values=values, shape=good.shape), decoder)


def test_a_bitmap_of_another_shape_is_refused():
    with pytest.raises(CheckpointError, match="a bitmap of 2 bytes"):
        PackedTensor(bitmap=torch.zeros(3, dtype=torch.uint8), values=torch.zeros(0), shape=(9,))


def test_an_unknown_decoder_is_named():
    with pytest.raises(CheckpointError, match="'gpu'"):
        unpack(pack(torch.zeros(3)), decoder="gpu")


def test_without_a_compiler_the_definition_decodes(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CC", str(tmp_path / "no-compiler"))
    cpu._load.cache_clear()
    cpu.why_unavailable.cache_clear()
    try:
        assert "no-compiler could not be run" in cpu.why_unavailable()
        tensor = random_tensor((20, 9), torch.bfloat16, 0.5)
        assert torch.equal(bits(unpack(pack(tensor))), bits(tensor))
    finally:
        cpu._load.cache_clear()
        cpu.why_unavailable.cache_clear()
