from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from cosmos_transfer.controls.edge import extract_edge
from cosmos_transfer.controls.vis import extract_vis
from cosmos_transfer.errors import MediaError
from cosmos_transfer.inputs.segmentation import class_color
from cosmos_transfer.training import data
from cosmos_transfer.training.data import (
    FIRST_TRAINING_SEED,
    HELD_OUT_SEEDS,
    ClipShard,
    class_palette,
    read_shard,
    render_shards,
    shard_paths,
    write_shard,
)
from cosmos_transfer.training.scenes import CLASS_NAMES, render_clip
from tests.support.shards import HEIGHT, NUM_FRAMES, NUM_LOOKS, WIDTH, small_shard

SIZES = {"height": HEIGHT, "width": WIDTH, "num_frames": NUM_FRAMES, "num_looks": NUM_LOOKS}


@pytest.fixture(scope="module")
def shard() -> ClipShard:
    return small_shard()


def test_a_shard_comes_back_to_the_bit(shard: ClipShard, tmp_path: Path) -> None:
    path = tmp_path / "new" / "shard-0000001.npz"
    write_shard(path, shard)
    back = read_shard(path)
    for field in dataclasses.fields(ClipShard):
        one, other = getattr(shard, field.name), getattr(back, field.name)
        if field.name == "prompts":
            assert [list(each) for each in other] == [list(each) for each in one]
        else:
            assert other.dtype == one.dtype
            assert np.array_equal(other, one), field.name
    assert len(back) == 3
    assert [each.name for each in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("width", [1, 7, 8, 9])
def test_edges_come_back_at_any_width(shard: ClipShard, tmp_path: Path, width: int) -> None:
    # Edges are packed, eight pixels a byte.
    narrow = dataclasses.replace(
        shard,
        looks=shard.looks[..., :width, :],
        edge=shard.edge[..., :width],
        vis=shard.vis[..., :width, :],
        depth=shard.depth[..., :width],
        class_ids=shard.class_ids[..., :width],
    )
    write_shard(tmp_path / "shard-1.npz", narrow)
    assert np.array_equal(read_shard(tmp_path / "shard-1.npz").edge, narrow.edge)


def test_a_shard_holds_what_the_extractors_make_of_the_simulator(shard: ClipShard) -> None:
    clip = render_clip(FIRST_TRAINING_SEED + 1, **SIZES)
    assert np.array_equal(shard.looks[1], np.stack(clip.real))
    assert list(shard.prompts[1]) == list(clip.prompts)
    assert np.array_equal(shard.edge[1], extract_edge(clip.simulator)[..., 0])
    assert np.array_equal(shard.vis[1], extract_vis(clip.simulator))
    assert np.array_equal(shard.class_ids[1], clip.class_ids)
    known = np.isfinite(clip.depth)
    assert np.array_equal(np.isfinite(shard.depth[1]), known)
    assert np.allclose(shard.depth[1][known], clip.depth[known], rtol=1e-3)


FIELDS = ("looks", "prompts", "edge", "vis", "depth", "class_ids")


def test_what_is_large_stays_on_disk(shard: ClipShard, tmp_path: Path) -> None:
    write_shard(tmp_path / "shard-1.npz", shard)
    read = read_shard(tmp_path / "shard-1.npz")
    for name in ("looks", "vis", "depth", "class_ids"):
        mapped = getattr(read, name)
        assert isinstance(mapped, np.memmap), name
        assert not mapped.flags.writeable, name
        assert np.array_equal(mapped, getattr(shard, name)), name


@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "text", "other", "packed", "pickle"])
def test_a_broken_shard_is_named(shard: ClipShard, tmp_path: Path, damage: str) -> None:
    path = tmp_path / "shard-0000001.npz"
    write_shard(path, shard)
    if damage == "missing":
        path.unlink()
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[:5000])
    elif damage == "text":
        path.write_text("not a shard")
    elif damage == "other":
        np.savez(path, looks=shard.looks)
    elif damage == "packed":
        np.savez_compressed(path, **{name: getattr(shard, name) for name in FIELDS})
    else:
        np.savez(path, looks=np.array([{"a": 1}], dtype=object), vis=shard.vis)
    with pytest.raises(MediaError, match="shard-0000001") as caught:
        read_shard(path)
    assert "\n" not in str(caught.value)
    assert "Delete it and render it again" in str(caught.value)


def test_rendering_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rendered: list[int] = []
    render = data.render_clip

    def counted(seed: int, **sizes: int) -> object:
        rendered.append(seed)
        return render(seed, **sizes)

    monkeypatch.setattr(data, "render_clip", counted)
    first = list(render_shards(tmp_path, num_scenes=2, scenes_per_shard=2, **SIZES))
    whole = list(render_shards(tmp_path, num_scenes=5, scenes_per_shard=2, **SIZES))
    assert whole[:1] == first
    assert rendered == [FIRST_TRAINING_SEED + index for index in range(5)]
    assert [path.name for path in shard_paths(tmp_path)] == [
        f"shard-{FIRST_TRAINING_SEED + start:07d}.npz" for start in (0, 2, 4)
    ]
    assert [len(read_shard(path)) for path in whole] == [2, 2, 1]


def test_two_ranges_make_the_shards_of_one(tmp_path: Path) -> None:
    sizes = {**SIZES, "num_frames": 1, "scenes_per_shard": 2}
    whole = list(render_shards(tmp_path / "one", num_scenes=4, **sizes))
    for start in (2, 0):
        list(render_shards(tmp_path / "two", num_scenes=2, first_scene=start, **sizes))
    for path in whole:
        other = tmp_path / "two" / path.name
        assert np.array_equal(read_shard(path).looks, read_shard(other).looks)


def test_unfinished_shards_are_not_listed(tmp_path: Path) -> None:
    (tmp_path / ".shard-0001000.partial.npz").write_bytes(b"half")
    assert shard_paths(tmp_path) == []


def test_held_out_seeds_are_never_trained_on() -> None:
    assert len(HELD_OUT_SEEDS) == 48
    assert max(HELD_OUT_SEEDS) < FIRST_TRAINING_SEED


def test_the_palette_is_the_segmentation_controls() -> None:
    palette = class_palette()
    for class_id, name in CLASS_NAMES.items():
        assert tuple(palette[class_id]) == class_color(name)
