"""Damage, drawn from a generator: what disks, networks and hands do to files."""

from __future__ import annotations

import numpy as np

_NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
_WORDS = (
    b"nan",
    b"-1",
    b"1e999",
    b"1e-999",
    b"99999999999999999999",
    b"null",
    b"true",
    b"[]",
    b"{}",
    b"'",
    b'"',
    b": ",
    b"- ",
    b"\n",
    b"\t",
    b"&a *a",
    b"!!python/object:os.system",
    b"<<: ",
    b"\x00",
    b"\xff\xfe",
    "кухня".encode(),
    b"../../..",
    b"*" * 50,
    b"[" * 2_000,
    b"{" * 2_000,
)


def mutate(content: bytes, rng: np.random.Generator, *, is_text: bool) -> bytes:
    """The content with one to four kinds of damage, one after the other."""
    damaged = bytearray(content)
    for _ in range(int(rng.integers(1, 5))):
        kinds = (_flip, _cut, _repeat, _zero, _number, _insert)
        kind = _word if is_text and rng.random() < 0.6 else kinds[int(rng.integers(len(kinds)))]
        kind(damaged, rng)
    return bytes(damaged)


def _place(damaged: bytearray, rng: np.random.Generator) -> int:
    # Headers decide most: half of the damage lies in the first bytes.
    reach = min(len(damaged), 128) if rng.random() < 0.5 else len(damaged)
    return int(rng.integers(reach + 1))


def _flip(damaged: bytearray, rng: np.random.Generator) -> None:
    for _ in range(int(rng.integers(1, 9))):
        if damaged:
            damaged[min(_place(damaged, rng), len(damaged) - 1)] ^= 1 << int(rng.integers(8))


def _cut(damaged: bytearray, rng: np.random.Generator) -> None:
    del damaged[_place(damaged, rng) :]


def _repeat(damaged: bytearray, rng: np.random.Generator) -> None:
    at, length = _place(damaged, rng), int(rng.integers(1, 64))
    damaged[at:at] = damaged[at : at + length] * int(rng.integers(1, 9))


def _zero(damaged: bytearray, rng: np.random.Generator) -> None:
    at, length = _place(damaged, rng), int(rng.integers(1, 64))
    damaged[at : at + length] = bytes(len(damaged[at : at + length]))


def _number(damaged: bytearray, rng: np.random.Generator) -> None:
    at, width = _place(damaged, rng), int(rng.choice((1, 2, 4)))
    value = _NUMBERS[int(rng.integers(len(_NUMBERS)))] & (256**width - 1)
    order = "big" if rng.random() < 0.5 else "little"
    damaged[at : at + width] = value.to_bytes(width, order)  # type: ignore[arg-type]


def _insert(damaged: bytearray, rng: np.random.Generator) -> None:
    at = _place(damaged, rng)
    damaged[at:at] = rng.integers(0, 256, int(rng.integers(1, 32)), dtype=np.uint8).tobytes()


def _word(damaged: bytearray, rng: np.random.Generator) -> None:
    at = _place(damaged, rng)
    length = 0 if rng.random() < 0.5 else int(rng.integers(1, 12))
    damaged[at : at + length] = _WORDS[int(rng.integers(len(_WORDS)))]
