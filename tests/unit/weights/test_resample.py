from __future__ import annotations

import pytest
import torch

from cosmos_transfer.errors import ShapeError
from cosmos_transfer.shapes import Strides
from cosmos_transfer.weights.resample import to_latent_grid, to_tokens

STRIDES = Strides(time=4, space=8)


def test_the_first_frame_is_a_latent_frame_of_its_own():
    maps = torch.arange(9.0)[None, :, None, None].expand(1, 9, 8, 8)
    latent = to_latent_grid(maps, STRIDES)[0, :, 0, 0]
    assert latent.tolist() == [0.0, 2.5, 6.5]  # 0 | mean 1..4 | mean 5..8


def test_a_cell_half_covered_gets_half():
    maps = torch.zeros(1, 1, 8, 16)
    maps[..., 4:8] = 1.0
    assert to_latent_grid(maps, STRIDES)[0, 0].tolist() == [[0.5, 0.0]]


def test_tokens_run_time_slowest_then_rows_then_columns():
    latent = torch.arange(2 * 4 * 6.0).reshape(1, 2, 4, 6)
    tokens = to_tokens(latent, (1, 2, 2))[0].reshape(2, 2, 3)
    for t in range(2):
        for h in range(2):
            for w in range(3):
                expected = latent[0, t, 2 * h : 2 * h + 2, 2 * w : 2 * w + 2].mean()
                assert tokens[t, h, w] == expected


def test_still_and_strides_of_one():
    maps = torch.rand(2, 1, 3, 5)
    assert torch.equal(to_latent_grid(maps, Strides(time=1, space=1)), maps)


@pytest.mark.parametrize("shape", [(1, 8, 8, 8), (1, 1, 7, 8), (1, 1, 8, 12)])
def test_maps_off_the_grid_are_refused(shape):
    with pytest.raises(ShapeError):
        to_latent_grid(torch.ones(shape), STRIDES)


def test_latents_off_the_patch_grid_are_refused():
    with pytest.raises(ShapeError, match="latent rows"):
        to_tokens(torch.ones(1, 1, 3, 4), (1, 2, 2))
