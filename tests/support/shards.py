"""Shards of a few small rendered scenes, for tests of what reads them."""

from __future__ import annotations

from pathlib import Path

from cosmos_transfer.training.data import FIRST_TRAINING_SEED, ClipShard, render_shard, write_shard

HEIGHT, WIDTH, NUM_FRAMES, NUM_LOOKS = 16, 24, 9, 2


def small_shard(first: int = 0, count: int = 3) -> ClipShard:
    """Scenes from the training seeds on."""
    seeds = range(FIRST_TRAINING_SEED + first, FIRST_TRAINING_SEED + first + count)
    return render_shard(
        seeds, height=HEIGHT, width=WIDTH, num_frames=NUM_FRAMES, num_looks=NUM_LOOKS
    )


def write_shards(folder: Path) -> Path:
    """Two shards of three scenes each."""
    for first in (0, 3):
        write_shard(folder / f"shard-{FIRST_TRAINING_SEED + first:07d}.npz", small_shard(first))
    return folder
