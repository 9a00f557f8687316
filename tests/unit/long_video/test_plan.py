from __future__ import annotations

import numpy as np
import pytest
import torch

from cosmos_transfer.errors import ConfigError, ShapeError
from cosmos_transfer.long_video.plan import Chunk, given_latents, plan_chunks
from cosmos_transfer.long_video.prompts import blend_tokens, prompt_shares
from cosmos_transfer.long_video.stitch import Stitcher, blend, match_colors, rising_window, stitch
from cosmos_transfer.shapes import Strides

STRIDES = Strides(time=4, space=8)


def test_three_chunks_with_one_inherited_frame():
    plan = plan_chunks(20, chunk_frames=9, overlap=1, strides=STRIDES)
    assert plan == (
        Chunk(index=0, start=0, stop=9, num_inherited=0, num_padded=0),
        Chunk(index=1, start=8, stop=17, num_inherited=1, num_padded=0),
        Chunk(index=2, start=16, stop=20, num_inherited=1, num_padded=1),
    )
    assert plan[2].frame_indices == (16, 17, 18, 19, 18)  # reflected, not held
    assert list(plan[2].made_frames) == [17, 18, 19]


@pytest.mark.parametrize(("num_frames", "padded"), [(1, 1), (2, 5), (5, 5), (8, 9), (9, 9)])
def test_a_short_clip_is_one_chunk_of_its_own_length(num_frames, padded):
    (chunk,) = plan_chunks(num_frames, chunk_frames=9, overlap=1, strides=STRIDES)
    assert (chunk.start, chunk.stop, chunk.num_frames) == (0, num_frames, padded)


def test_no_overlap_gives_independent_chunks():
    plan = plan_chunks(12, chunk_frames=5, overlap=0, strides=STRIDES)
    assert [(c.start, c.stop, c.num_inherited) for c in plan] == [
        (0, 5, 0),
        (5, 10, 0),
        (10, 12, 0),
    ]


def test_cosmos_numbers_221_frames_in_chunks_of_93():
    plan = plan_chunks(221, chunk_frames=93, overlap=1, strides=STRIDES)
    assert [(c.start, c.stop) for c in plan] == [(0, 93), (92, 185), (184, 221)]


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"num_frames": 0, "chunk_frames": 9, "overlap": 1}, "at least 1 frame"),
        ({"num_frames": 9, "chunk_frames": 8, "overlap": 1}, "Take 9"),
        ({"num_frames": 9, "chunk_frames": 0, "overlap": 0}, "chunk_frames"),
        ({"num_frames": 9, "chunk_frames": 9, "overlap": 2}, "overlap"),
        ({"num_frames": 9, "chunk_frames": 9, "overlap": 9}, "fewer than a chunk"),
        ({"num_frames": 9, "chunk_frames": 9, "overlap": -3}, "overlap"),
        ({"num_frames": 9, "chunk_frames": 9, "overlap": 5, "inherited": 2}, "inherit"),
        ({"num_frames": 9, "chunk_frames": 9, "overlap": 1, "inherited": 5}, "inherit"),
        ({"num_frames": 9, "chunk_frames": 9, "overlap": 1, "has_anchor": True}, "overlap=5"),
    ],
)
def test_settings_that_make_no_plan_are_refused(settings, word):
    with pytest.raises(ConfigError, match=word):
        plan_chunks(settings.pop("num_frames"), strides=STRIDES, **settings)


def test_one_frame_is_given_and_the_rest_of_the_overlap_made_twice():
    plan = plan_chunks(20, chunk_frames=9, overlap=4, inherited=1, strides=STRIDES)
    assert [(c.start, c.stop, c.num_inherited, c.num_blended) for c in plan] == [
        (0, 9, 0, 0),
        (5, 14, 1, 3),
        (10, 19, 1, 3),
        (15, 20, 1, 3),
    ]
    assert list(plan[1].made_frames) == list(range(6, 14))


def test_the_anchor_takes_the_place_of_the_first_given_frame():
    plan = plan_chunks(20, chunk_frames=9, overlap=5, strides=STRIDES, has_anchor=True)
    assert plan[0].frame_indices == tuple(range(9))
    assert plan[1].frame_indices == (0, *range(5, 13))
    assert plan[1].num_given == 5
    assert list(plan[1].made_frames) == [9, 10, 11, 12]
    assert [i for c in plan for i in c.made_frames] == list(range(20))
    assert all((c.num_frames - 1) % STRIDES.time == 0 for c in plan)


@pytest.mark.parametrize("num_frames", [1, 5, 9, 93])
def test_given_frames_are_counted_in_latents_and_back(num_frames):
    count = given_latents(num_frames, STRIDES)
    assert STRIDES.pixel_frames(count) == num_frames
    assert given_latents(0, STRIDES) == 0
    with pytest.raises(ShapeError, match="clip length"):
        given_latents(num_frames + 1, STRIDES)


def test_windows_sum_to_one_and_are_each_other_reversed():
    for count in range(1, 20):
        rising = rising_window(count)
        assert np.all(rising > 0)
        assert np.all(rising < 1)
        np.testing.assert_allclose(rising + rising[::-1], 1.0, rtol=0, atol=1e-15)


def test_blending_two_equal_makings_changes_no_byte():
    frames = np.random.default_rng(0).integers(0, 256, (5, 2, 3, 3), dtype=np.uint8)
    assert np.array_equal(blend(frames, frames.copy()), frames)


def test_stitched_frames_fade_from_one_chunk_to_the_next():
    plan = plan_chunks(13, chunk_frames=9, overlap=5, inherited=1, strides=STRIDES)
    picture = np.array([[[0] * 3, [100] * 3]], np.uint8)  # mirrored: equal in mean and deviation
    pieces = [np.stack([picture[:, :: 1 - 2 * c.index]] * c.num_frames) for c in plan]
    whole = stitch(plan, pieces)[:, 0, 0, 0].tolist()
    assert whole == [0, 0, 0, 0, 0, 20, 40, 60, 80, 100, 100, 100, 100]


def test_a_chunk_is_brought_to_the_colours_of_the_one_before():
    plan = plan_chunks(13, chunk_frames=9, overlap=5, inherited=1, strides=STRIDES)
    first = np.random.default_rng(0).integers(60, 120, (9, 4, 6, 3), dtype=np.uint8)
    later = np.concatenate([first[4:], first[:4]])  # the same frames where they overlap
    brighter = np.rint(later * [1.25, 1.0, 0.8] + [9, -3, 0]).astype(np.uint8)
    whole = stitch(plan, [first, brighter])
    assert np.array_equal(whole[:5], first[:5])
    assert np.abs(whole.astype(int) - np.concatenate([first, first[:4]])).max() <= 2
    assert np.array_equal(stitch(plan, [first, later])[9:], first[:4])  # nothing to bring


def test_contrast_moves_by_a_limit_and_a_flat_picture_by_its_mean():
    flat = np.full((2, 2, 2, 3), 40, np.uint8)
    assert np.array_equal(match_colors(flat, flat, flat + 50), flat + 50)
    soft, hard = flat.copy(), flat.copy()
    soft[:, 0], hard[:, 0] = 42, 80
    moved = match_colors(soft, soft, hard)
    assert float(moved.std()) == pytest.approx(1.5 * float(soft.std()), abs=0.6)


@pytest.mark.parametrize(("overlap", "inherited", "has_anchor"), [(5, 1, False), (5, 5, True)])
def test_frames_are_given_out_once_and_what_is_given_is_what_came_out(
    overlap, inherited, has_anchor
):
    plan = plan_chunks(
        30,
        chunk_frames=9,
        overlap=overlap,
        inherited=inherited,
        has_anchor=has_anchor,
        strides=STRIDES,
    )
    stitcher, out = Stitcher(plan), []
    for chunk in plan:
        given = stitcher.given()
        if chunk.index:
            indices = chunk.frame_indices[: chunk.num_given]
            assert np.array_equal(given, np.concatenate(out)[list(indices)])
        made = [np.full((1, 1, 3), i, np.uint8) for i in chunk.made_frames]
        out.append(stitcher.add(np.stack(made)))
    assert np.concatenate(out)[:, 0, 0, 0].tolist() == list(range(30))
    with pytest.raises(ShapeError, match="one piece per chunk"):
        stitcher.add(out[0])


def test_a_chunk_hears_each_prompt_as_long_as_its_frames_last():
    plan = plan_chunks(20, chunk_frames=9, overlap=1, strides=STRIDES)
    assert prompt_shares((0,), plan[1]) == (1.0,)
    assert prompt_shares((0, 11), plan[0]) == (1.0, 0.0)
    assert prompt_shares((0, 11), plan[1]) == (0.25, 0.75)  # frames 9 to 16
    assert prompt_shares((0, 11), plan[2]) == (0.0, 1.0)
    assert prompt_shares((0, 40), plan[2]) == (1.0, 0.0)


def test_blended_tokens_lie_between():
    one, two = torch.zeros(1, 2, 3), torch.ones(1, 2, 3)
    assert torch.equal(blend_tokens([one, two], (0.25, 0.75)), torch.full((1, 2, 3), 0.75))
    assert blend_tokens([one, two], (0.0, 1.0)) is two


def test_stitch_takes_inherited_frames_from_the_chunk_that_made_them():
    plan = plan_chunks(20, chunk_frames=9, overlap=5, strides=STRIDES)
    pieces = [
        np.stack([np.full((2, 3, 3), 40 * c.index + i, np.uint8) for i in range(c.num_frames)])
        for c in plan
    ]
    whole = stitch(plan, pieces)
    assert len(whole) == 20
    assert whole[:9, 0, 0, 0].tolist() == list(range(9))
    assert whole[9:13, 0, 0, 0].tolist() == [45, 46, 47, 48]


def test_stitch_refuses_a_missing_and_a_short_piece():
    plan = plan_chunks(9, chunk_frames=5, overlap=1, strides=STRIDES)
    piece = np.zeros((5, 1, 1, 3), np.uint8)
    with pytest.raises(ShapeError, match=r"\(2\), got 1"):
        stitch(plan, [piece])
    with pytest.raises(ShapeError, match="chunk 1"):
        stitch(plan, [piece, piece[:4]])
