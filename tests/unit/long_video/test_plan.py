from __future__ import annotations

import numpy as np
import pytest

from cosmos_transfer.errors import ConfigError, ShapeError
from cosmos_transfer.long_video.plan import Chunk, plan_chunks
from cosmos_transfer.long_video.stitch import stitch
from cosmos_transfer.shapes import Strides

STRIDES = Strides(time=4, space=8)


def test_three_chunks_with_one_inherited_frame():
    plan = plan_chunks(20, chunk_frames=9, overlap=1, strides=STRIDES)
    assert plan == (
        Chunk(index=0, start=0, stop=9, num_inherited=0, num_padded=0),
        Chunk(index=1, start=8, stop=17, num_inherited=1, num_padded=0),
        Chunk(index=2, start=16, stop=20, num_inherited=1, num_padded=1),
    )
    assert plan[2].frame_indices == (16, 17, 18, 19, 19)
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
    ],
)
def test_settings_that_make_no_plan_are_refused(settings, word):
    with pytest.raises(ConfigError, match=word):
        plan_chunks(settings.pop("num_frames"), strides=STRIDES, **settings)


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
