from __future__ import annotations

import itertools

import pytest
import torch

from cosmos_transfer.diffusion.noise import chunk_noise
from cosmos_transfer.errors import ConfigError

SHAPE = (16, 3, 8, 12)


def test_noise_is_standard_normal_float32_on_the_cpu():
    noise = chunk_noise((16, 8, 32, 32), seed=0)
    assert noise.dtype == torch.float32
    assert noise.device.type == "cpu"
    # 131,072 numbers: standard errors of 0.003 and 0.002.
    assert abs(noise.mean()) < 0.012
    assert abs(noise.std() - 1.0) < 0.008


def test_the_same_position_gives_the_same_noise():
    again = chunk_noise(SHAPE, seed=7, episode=1, variant=2, chunk=3)
    assert torch.equal(chunk_noise(SHAPE, seed=7, episode=1, variant=2, chunk=3), again)


def test_every_position_has_noise_of_its_own():
    positions = list(itertools.product(range(3), repeat=4))
    firsts = {
        tuple(chunk_noise((4,), seed=s, episode=e, variant=v, chunk=c).tolist())
        for s, e, v, c in positions
    }
    assert len(firsts) == len(positions)


def test_neighbouring_seeds_share_no_chunk():
    a = chunk_noise(SHAPE, seed=2025, chunk=1)
    b = chunk_noise(SHAPE, seed=2026, chunk=0)
    correlation = torch.corrcoef(torch.stack([a.flatten(), b.flatten()]))[0, 1]
    assert abs(correlation) < 0.06  # 4,608 numbers: a standard error of 0.015


def test_a_large_seed_does_not_imitate_a_position():
    assert not torch.equal(chunk_noise((4,), seed=1 + 2**32), chunk_noise((4,), seed=1, episode=1))


@pytest.mark.parametrize("name", ["seed", "episode", "variant", "chunk"])
def test_negative_numbers_are_refused(name):
    with pytest.raises(ConfigError, match=f"{name}: expected a whole number"):
        chunk_noise((4,), **{"seed": 0, name: -1})
