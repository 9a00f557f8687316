from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from cosmos_transfer.training.control_draw import (
    SHARE_ALL,
    SHARE_MAPS,
    SHARE_NONE,
    SHARE_ONE,
    draw_active,
    draw_weights,
)

NAMES = ("edge", "depth", "seg", "vis")
GRID = (3, 4, 6)


def test_shares_of_none_one_some_and_all_are_as_stated() -> None:
    rng = np.random.default_rng(0)
    counts = Counter(len(draw_active(NAMES, rng)) for _ in range(4000))
    expected = {
        0: SHARE_NONE,
        1: SHARE_ONE,
        2: (1 - SHARE_NONE - SHARE_ALL - SHARE_ONE) / 2,
        3: (1 - SHARE_NONE - SHARE_ALL - SHARE_ONE) / 2,
        4: SHARE_ALL,
    }
    for number, share in expected.items():
        # Four standard deviations of a count.
        assert abs(counts[number] / 4000 - share) < 4 * (share * (1 - share) / 4000) ** 0.5


def test_every_control_is_drawn_alike_and_in_order() -> None:
    rng = np.random.default_rng(1)
    draws = [draw_active(NAMES, rng) for _ in range(2000)]
    singles = Counter(draw[0] for draw in draws if len(draw) == 1)
    assert set(singles) == set(NAMES)
    assert min(singles.values()) > 0.7 * max(singles.values())
    assert all(list(draw) == [name for name in NAMES if name in draw] for draw in draws)


@pytest.mark.parametrize("names", [("edge",), ("edge", "vis"), ("edge", "seg", "vis")], ids=len)
def test_fewer_controls_are_drawn_too(names: tuple[str, ...]) -> None:
    rng = np.random.default_rng(2)
    seen = {draw_active(names, rng) for _ in range(300)}
    assert () in seen
    assert names in seen
    assert {(name,) for name in names} <= seen


@pytest.mark.parametrize("num_controls", [0, 1, 4])
def test_weights_keep_the_rule(num_controls: int) -> None:
    rng = np.random.default_rng(3)
    weights = draw_weights(num_controls, 64, GRID, rng)
    assert weights.shape == (num_controls, 64, 72)
    assert weights.dtype == torch.float32
    assert bool((weights >= 0).all())
    assert bool((weights <= 1).all())
    assert float(weights.sum(dim=0).amax() if num_controls else 0) <= 1.0 + 1e-6


def test_numbers_maps_and_ramps_are_all_drawn() -> None:
    rng = np.random.default_rng(4)
    maps = draw_weights(1, 600, GRID, rng)[0].reshape(600, *GRID)
    over_space = (maps.flatten(2).amax(dim=2) != maps.flatten(2).amin(dim=2)).any(dim=1)
    over_time = (maps.amax(dim=1) != maps.amin(dim=1)).flatten(1).any(dim=1)
    varies = (over_space | over_time).float().mean()
    assert abs(float(varies) - SHARE_MAPS) < 0.08
    assert 0.1 < float(over_space.float().mean()) < SHARE_MAPS
    assert 0.04 < float(over_time.float().mean()) < SHARE_MAPS / 2
    constant = maps[~(over_space | over_time)][:, 0, 0, 0]
    assert float((constant == 1.0).float().mean()) == pytest.approx(0.5, abs=0.1)
    assert float(constant.min()) >= 0.15


def test_the_same_generator_draws_the_same_weights() -> None:
    one, two = (draw_weights(3, 5, GRID, np.random.default_rng(7)) for _ in range(2))
    assert torch.equal(one, two)
    assert not torch.equal(one, draw_weights(3, 5, GRID, np.random.default_rng(8)))


@pytest.mark.parametrize("grid", [(1, 1, 1), (1, 4, 6), (3, 1, 2)], ids=str)
def test_small_grids_have_weights_too(grid: tuple[int, int, int]) -> None:
    weights = draw_weights(2, 50, grid, np.random.default_rng(5))
    assert weights.shape == (2, 50, grid[0] * grid[1] * grid[2])
    assert bool(torch.isfinite(weights).all())
