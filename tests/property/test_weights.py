"""What holds for all weights: caps, sums, order, constants, means, and the order of tokens."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cosmos_transfer.inputs.request import WEIGHT_RULES, ControlRequest
from cosmos_transfer.shapes import Size, Strides
from cosmos_transfer.weights.fusion import normalize_weights, token_weights
from cosmos_transfer.weights.maps import area_resize, build_weight_maps
from cosmos_transfer.weights.resample import to_latent_grid, to_tokens

STRIDES = Strides(time=4, space=4)
PATCH = (1, 2, 2)
SIZE = Size(16, 24)
NUM_FRAMES = 9
UNIT = st.floats(0, 1, width=32)
WEIGHTS = hnp.arrays(np.float32, st.tuples(st.integers(1, 5), st.integers(1, 12)), elements=UNIT)
QUICK = settings(max_examples=60, deadline=None)


def tokens_of(*controls: ControlRequest, rule: str = "cap") -> torch.Tensor:
    maps = build_weight_maps(controls, num_frames=NUM_FRAMES, size=SIZE)
    return token_weights(torch.from_numpy(maps.values), STRIDES, PATCH, rule)


@QUICK
@given(WEIGHTS)
def test_cap_never_promotes_and_sums_to_at_most_one(raw):
    capped = normalize_weights(torch.from_numpy(raw)).numpy()
    assert (capped <= raw).all()
    assert (capped.sum(axis=0, dtype=np.float64) <= 1 + 1e-6).all()
    below = raw.sum(axis=0, dtype=np.float64) <= 1
    np.testing.assert_array_equal(capped[:, below], raw[:, below])


@QUICK
@given(WEIGHTS)
def test_always_sums_to_one_wherever_anything_acts(raw):
    sums = normalize_weights(torch.from_numpy(raw), "always").double().sum(dim=0).numpy()
    np.testing.assert_allclose(sums, (raw.sum(axis=0) > 0).astype(float), atol=1e-6)


@QUICK
@given(WEIGHTS, st.sampled_from(WEIGHT_RULES), st.randoms(use_true_random=False))
def test_the_order_of_controls_does_not_matter_to_the_last_bit(raw, rule, random):
    order = list(range(len(raw)))
    random.shuffle(order)
    weights = torch.from_numpy(raw)
    assert torch.equal(
        normalize_weights(weights[order], rule), normalize_weights(weights, rule)[order]
    )


@QUICK
@given(
    UNIT, st.sampled_from(WEIGHT_RULES), UNIT, st.sampled_from([SIZE, Size(7, 10), Size(64, 96)])
)
def test_number_constant_map_and_white_mask_give_the_same_bits(number, rule, other, mask_size):
    beside = ControlRequest(name="seg", weight=other)
    white = np.ones((mask_size.height, mask_size.width), np.float32)
    # allow_empty: a constant map of zeros selects nothing, which is not what is tested here.
    ways = [
        ControlRequest(name="edge", weight=number),
        ControlRequest(name="edge", weight=number, mask=white),
        ControlRequest(name="edge", weight=white * np.float32(number), allow_empty=True),
        ControlRequest(name="edge", weight=number, ramp=(1.0, 1.0)),
    ]
    first, *others = [tokens_of(way, beside, rule=rule) for way in ways]
    for weights in others:
        assert torch.equal(weights, first)
    if rule == "none":
        assert (first[0] == np.float32(number)).all()


@QUICK
@given(st.integers(0, 2**32 - 1))
def test_resampling_conserves_the_mean_of_every_group_of_frames(seed):
    maps = torch.from_numpy(
        np.random.default_rng(seed).random((2, NUM_FRAMES, 16, 24), dtype=np.float32)
    )
    tokens = to_tokens(to_latent_grid(maps, STRIDES), PATCH).reshape(2, 3, -1).double()
    for latent, (start, stop) in enumerate(STRIDES.frame_groups(3)):
        expected = maps[:, start:stop].double().mean(dim=(1, 2, 3))
        torch.testing.assert_close(tokens[:, latent].mean(dim=1), expected, atol=1e-6, rtol=0)


@QUICK
@given(st.integers(0, 2**32 - 1), st.integers(1, 13), st.integers(1, 13), st.integers(1, 13))
def test_area_resize_conserves_the_mean_and_the_range(seed, height, width, new_width):
    values = np.random.default_rng(seed).random((2, height, width), dtype=np.float32)
    resized = area_resize(values, Size(max(1, 14 - height), new_width))
    np.testing.assert_allclose(resized.mean((1, 2)), values.mean((1, 2)), atol=1e-6)
    assert resized.min() >= values.min()
    assert resized.max() <= values.max()


@QUICK
@given(UNIT, st.integers(1, 40), st.integers(1, 40))
def test_a_constant_is_resized_to_the_same_bits(number, height, width):
    values = np.full((1, 17, 23), number, np.float32)
    assert (area_resize(values, Size(height, width)) == np.float32(number)).all()


@QUICK
@given(st.integers(0, 2), st.integers(0, 1), st.integers(0, 2))
def test_tokens_run_time_slowest_then_rows_then_columns(t, h, w):
    start, stop = STRIDES.frame_groups(3)[t]
    maps = torch.zeros(1, NUM_FRAMES, 16, 24)
    maps[:, start:stop, 8 * h : 8 * h + 8, 8 * w : 8 * w + 8] = 1.0
    tokens = token_weights(maps, STRIDES, PATCH)[0]
    assert tokens.nonzero().flatten().tolist() == [(t * 2 + h) * 3 + w]


def test_the_order_checker_notices_sums_that_depend_on_the_order():
    """Dividing by a plain float32 sum fails the property above on these weights; ours does not."""
    raw = torch.tensor([[1.0], [5e-8], [5e-8], [5e-8], [5e-8]])

    def plain(weights: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(1)
        for weight in weights:
            total = total + weight
        return weights / total.clamp(min=1.0)

    assert not torch.equal(plain(raw.flip(0)), plain(raw).flip(0))
    assert torch.equal(normalize_weights(raw.flip(0)), normalize_weights(raw).flip(0))


@pytest.mark.parametrize("rule", WEIGHT_RULES)
def test_no_control_acts_where_every_map_is_zero(rule):
    weights = normalize_weights(torch.zeros(3, 4), rule)
    assert torch.equal(weights, torch.zeros(3, 4))
