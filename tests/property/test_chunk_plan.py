"""Every plan makes every frame exactly once, on the grid, whatever the length."""

from __future__ import annotations

import itertools

import pytest

from cosmos_transfer.long_video.plan import Chunk, plan_chunks
from cosmos_transfer.shapes import Strides

SETTINGS = [
    (Strides(time=4, space=8), 9, 1),
    (Strides(time=4, space=8), 9, 5),
    (Strides(time=4, space=8), 5, 0),
    (Strides(time=4, space=8), 93, 1),
    (Strides(time=8, space=8), 121, 9),
    (Strides(time=1, space=4), 7, 3),
    (Strides(time=4, space=8), 1, 0),
]


def faults(
    plan: tuple[Chunk, ...], num_frames: int, chunk_frames: int, overlap: int, strides: Strides
) -> list[str]:
    """What is wrong with a plan; empty if nothing is."""
    found = []
    if [c.index for c in plan] != list(range(len(plan))):
        found.append("chunks are not numbered in order")
    if [i for c in plan for i in c.made_frames] != list(range(num_frames)):
        found.append("a frame is not made exactly once, in order")
    for chunk in plan:
        indices = chunk.frame_indices
        if len(indices) != chunk.num_frames or len(indices) > chunk_frames:
            found.append(f"chunk {chunk.index} is longer than a chunk")
        if (len(indices) - 1) % strides.time:
            found.append(f"chunk {chunk.index} is off the grid")
        if chunk.num_padded >= strides.time or (chunk.num_padded and chunk is not plan[-1]):
            found.append(f"chunk {chunk.index} is padded for nothing")
        if len(chunk.made_frames) == 0:
            found.append(f"chunk {chunk.index} makes nothing")
    for before, after in itertools.pairwise(plan):
        if after.num_inherited != overlap or before.stop - after.start != overlap:
            found.append(f"chunk {after.index} does not inherit {overlap} frames")
    return found


@pytest.mark.parametrize(("strides", "chunk_frames", "overlap"), SETTINGS)
def test_every_length_from_1_to_400_has_a_faultless_plan(strides, chunk_frames, overlap):
    for num_frames in range(1, 401):
        plan = plan_chunks(num_frames, chunk_frames=chunk_frames, overlap=overlap, strides=strides)
        assert faults(plan, num_frames, chunk_frames, overlap, strides) == [], num_frames


def test_the_checker_finds_a_planted_fault_of_every_kind():
    strides = Strides(time=4, space=8)
    first, second = plan_chunks(12, chunk_frames=9, overlap=1, strides=strides)

    def changed(**fields: int) -> tuple[Chunk, ...]:
        values = {name: getattr(second, name) for name in Chunk.__slots__}
        return (first, Chunk(**{**values, **fields}))

    for fields in (
        {"start": 9},  # one frame never inherited
        {"num_inherited": 0},  # one frame made twice
        {"stop": 11},  # one frame short
        {"num_padded": 0},  # off the grid
        {"num_padded": 5},  # a whole latent frame for nothing
        {"index": 2},
    ):
        assert faults(changed(**fields), 12, 9, 1, strides) != [], fields
