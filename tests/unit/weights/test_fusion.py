from __future__ import annotations

import pytest
import torch

from cosmos_transfer.errors import ConfigError, ShapeError
from cosmos_transfer.shapes import Strides
from cosmos_transfer.weights.fusion import (
    fuse_residuals,
    normalize_weights,
    summarize_weights,
    token_weights,
)

STRIDES = Strides(time=4, space=8)
PATCH = (1, 2, 2)


def test_two_full_weights_become_halves():
    weights = normalize_weights(torch.ones(2, 5))
    assert torch.equal(weights, torch.full((2, 5), 0.5))


def test_a_lone_half_weight_is_not_promoted():
    weights = torch.tensor([[0.5], [0.0]])
    assert torch.equal(normalize_weights(weights), weights)


def test_always_promotes_a_lone_weight_to_one_and_leaves_nothing_at_nothing():
    weights = torch.tensor([[0.5, 0.0], [0.0, 0.0]])
    expected = torch.tensor([[1.0, 0.0], [0.0, 0.0]])
    assert torch.equal(normalize_weights(weights, "always"), expected)


def test_none_leaves_sums_above_one():
    weights = torch.ones(4, 3)
    assert torch.equal(normalize_weights(weights, "none"), weights)


def test_an_unknown_rule_names_the_known_ones():
    with pytest.raises(ConfigError, match="cap, always, none"):
        normalize_weights(torch.ones(1, 1), "sum")  # type: ignore[arg-type]


def test_no_controls_give_no_weights():
    assert normalize_weights(torch.zeros(0, 6)).shape == (0, 6)
    assert fuse_residuals([], torch.zeros(0, 1, 6)) == []


def test_the_rule_acts_where_controls_overlap_and_nowhere_else():
    maps = torch.zeros(2, 1, 16, 32)
    maps[0] = 1.0
    maps[1, :, :, 16:] = 1.0
    weights = token_weights(maps, STRIDES, PATCH)
    assert torch.equal(weights, torch.tensor([[1.0, 0.5], [0.0, 0.5]]))


def test_fusion_is_the_weighted_sum_in_every_block():
    generator = torch.Generator().manual_seed(0)
    residuals = [[torch.randn(2, 3, 4, generator=generator) for _ in range(2)] for _ in range(3)]
    weights = torch.rand(3, 2, 3, generator=generator)
    fused = fuse_residuals(residuals, weights)
    for block in range(2):
        stacked = torch.stack([of_control[block] for of_control in residuals])
        expected = torch.einsum("kbnd,kbn->bnd", stacked, weights)
        torch.testing.assert_close(fused[block], expected)


def test_one_weight_of_one_is_that_branch_alone():
    residuals = [[torch.randn(1, 5, 8)], [torch.randn(1, 5, 8)]]
    weights = torch.stack([torch.zeros(1, 5), torch.ones(1, 5)])
    assert torch.equal(fuse_residuals(residuals, weights)[0], residuals[1][0])


def test_fusion_keeps_half_precision_but_sums_in_single():
    big, small = torch.full((1, 1, 1), 256.0), torch.full((1, 1, 1), 0.5)
    residuals = [[r.bfloat16()] for r in (big, small, small, small, small)]
    fused = fuse_residuals(residuals, torch.ones(5, 1, 1))[0]
    assert fused.dtype == torch.bfloat16
    assert fused.item() == 258.0  # added one by one in bfloat16 it would stay at 256


def test_a_missing_branch_is_named_with_both_counts():
    with pytest.raises(ShapeError, match=r"weight map \(2\), got 1"):
        fuse_residuals([[torch.ones(1, 1, 1)]], torch.ones(2, 1, 1))


def test_branches_of_different_depth_are_refused():
    residual = torch.ones(1, 1, 1)
    with pytest.raises(ShapeError, match="controlled blocks"):
        fuse_residuals([[residual], [residual, residual]], torch.ones(2, 1, 1))


def test_the_summary_gives_mean_and_range_by_name():
    summary = summarize_weights(("edge", "seg"), torch.tensor([[0.0, 1.0], [0.25, 0.25]]))
    assert (summary["edge"].mean, summary["edge"].minimum, summary["edge"].maximum) == (0.5, 0, 1)
    assert summary["seg"].mean == 0.25
    with pytest.raises(ShapeError):
        summarize_weights(("edge",), torch.ones(2, 3))
