from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from cosmos_transfer.controls.registry import prepare_control
from cosmos_transfer.errors import MediaError
from cosmos_transfer.inputs.depth import depth_picture
from cosmos_transfer.inputs.request import ControlRequest
from cosmos_transfer.inputs.video import clip_from_array
from cosmos_transfer.shapes import Size
from cosmos_transfer.training.batches import ClipPool, control_frames, to_video
from cosmos_transfer.training.data import CONTROL_NAMES, FIRST_TRAINING_SEED, class_palette
from cosmos_transfer.training.scenes import CLASS_NAMES, render_clip
from tests.support.shards import HEIGHT, NUM_FRAMES, WIDTH, small_shard, write_shards


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_shards(tmp_path_factory.mktemp("shards"))


@pytest.fixture(scope="module")
def pool(folder: Path) -> ClipPool:
    pool = ClipPool(folder)
    pool.refresh()
    return pool


def test_pictures_become_video_channels_first() -> None:
    frames = np.arange(2 * 3 * 4 * 5 * 3, dtype=np.uint8).reshape(2, 3, 4, 5, 3)
    video = to_video(frames)
    assert video.shape == (2, 3, 3, 4, 5)
    assert video.dtype == torch.float32
    assert float(video[1, 2, 0, 3, 4]) == pytest.approx(frames[1, 0, 3, 4, 2] / 127.5 - 1.0)
    assert to_video(np.full((1, 1, 1, 1, 3), 255, np.uint8)).flatten().tolist() == [1.0, 1.0, 1.0]


def test_controls_are_those_of_the_pipeline(pool: ClipPool) -> None:
    # What the branches are trained on and what they are given later come from the same functions.
    clip = render_clip(FIRST_TRAINING_SEED, height=HEIGHT, width=WIDTH, num_frames=NUM_FRAMES)
    requests = {
        "edge": ControlRequest(name="edge"),
        "vis": ControlRequest(name="vis"),
        "seg": ControlRequest(
            name="seg", clip=clip.class_ids.astype(np.int32), labels=dict(CLASS_NAMES)
        ),
        "depth": ControlRequest(
            name="depth", clip=clip.depth.astype(np.float16).astype(np.float32), unit="m"
        ),
    }
    for name, request in requests.items():
        prepared = prepare_control(
            request,
            clip_from_array(clip.simulator),
            size=Size(HEIGHT, WIDTH),
            num_frames=NUM_FRAMES,
        )
        trained_on = control_frames(pool.shards[0], 0, name, class_palette())
        assert np.array_equal(trained_on, prepared.picture), name


def test_a_batch_is_clips_with_their_own_prompts_and_controls(pool: ClipPool) -> None:
    batch = pool.draw(12, CONTROL_NAMES, np.random.default_rng(0), num_frames=NUM_FRAMES)
    assert batch.video.shape == (12, 3, NUM_FRAMES, HEIGHT, WIDTH)
    shapes = {name: each.shape for name, each in batch.controls.items()}
    assert shapes == dict.fromkeys(CONTROL_NAMES, batch.video.shape)
    found = []
    for index in range(12):
        # Find the clip, mirrored or not, and ask for everything else of the same one.
        for shard in pool.shards:
            for scene in range(len(shard)):
                for look in range(shard.looks.shape[1]):
                    for step in (1, -1):
                        expected = to_video(shard.looks[scene, look][None, :, :, ::step])[0]
                        if torch.equal(batch.video[index], expected):
                            found.append(step)
                            assert batch.prompts[index] == shard.prompts[scene][look]
                            for name in CONTROL_NAMES:
                                picture = control_frames(shard, scene, name, class_palette())
                                given = to_video(picture[None, :, :, ::step])[0]
                                assert torch.equal(batch.controls[name][index], given), name
    assert len(found) == 12
    assert set(found) == {1, -1}


def test_depth_is_normalised_over_the_whole_clip_though_fewer_frames_are_kept(
    pool: ClipPool,
) -> None:
    batch = pool.draw(1, ("depth",), np.random.default_rng(3), num_frames=1)
    assert batch.video.shape[2] == 1
    frames = [
        to_video(
            depth_picture(shard.depth[scene].astype(np.float32))[None, index, :, ::step][:, None]
        )
        for shard in pool.shards
        for scene in range(len(shard))
        for index in range(NUM_FRAMES)
        for step in (1, -1)
    ]
    assert any(torch.equal(batch.controls["depth"], each) for each in frames)


def test_fewer_frames_start_anywhere_in_the_clip(pool: ClipPool) -> None:
    batch = pool.draw(60, (), np.random.default_rng(0), num_frames=5)
    starts = {
        start
        for video in batch.video
        for shard in pool.shards
        for clip in shard.looks.reshape(-1, *shard.looks.shape[2:])
        for start in range(NUM_FRAMES - 4)
        for step in (1, -1)
        if torch.equal(video, to_video(clip[None, start : start + 5, :, ::step])[0])
    }
    assert starts == set(range(NUM_FRAMES - 4))


def test_a_crop_takes_one_window_from_a_clip_and_its_controls(pool: ClipPool) -> None:
    whole, part = (
        pool.draw(6, CONTROL_NAMES, np.random.default_rng(4), num_frames=NUM_FRAMES, crop=crop)
        for crop in (None, (8, 16))
    )
    assert part.video.shape == (6, 3, NUM_FRAMES, 8, 16)
    # The draws before the first window are the same: the first clip is the same scene and look.
    places = [
        (y, x, mirrored)
        for y in range(HEIGHT - 7)
        for x in range(WIDTH - 15)
        for mirrored in (False, True)
        if torch.equal(part.video[0], window(whole.video[0], y, x, mirrored))
    ]
    assert len(places) == 1
    for name in CONTROL_NAMES:
        expected = window(whole.controls[name][0], *places[0])
        assert torch.equal(part.controls[name][0], expected), name


def window(video: Tensor, y: int, x: int, mirrored: bool) -> Tensor:
    part = video[:, :, y : y + 8, x : x + 16]
    return part.flip(-1) if mirrored else part


def test_the_same_generator_draws_the_same_batch(pool: ClipPool) -> None:
    one, two, other = (
        pool.draw(3, ("edge",), np.random.default_rng(seed), num_frames=5) for seed in (1, 1, 2)
    )
    assert torch.equal(one.video, two.video)
    assert one.prompts == two.prompts
    assert torch.equal(one.controls["edge"], two.controls["edge"])
    assert not torch.equal(one.video, other.video)


def test_every_scene_and_look_is_drawn(pool: ClipPool) -> None:
    batch = pool.draw(300, (), np.random.default_rng(0), num_frames=NUM_FRAMES)
    drawn = {each.numpy().tobytes() for each in batch.video}
    assert len(drawn) == 6 * 2 * 2  # scenes, looks, mirrored or not
    assert batch.controls == {}


def test_shards_rendered_meanwhile_are_taken_in(tmp_path: Path) -> None:
    write_shards(tmp_path)
    pool = ClipPool(tmp_path)
    assert pool.num_scenes == 0
    pool.refresh(at_most=1)
    assert pool.num_scenes == 3
    pool.refresh(at_most=1)
    assert pool.num_scenes == 6
    pool.refresh()
    assert pool.num_scenes == 6


def test_a_broken_shard_is_named(tmp_path: Path) -> None:
    write_shards(tmp_path)
    (tmp_path / "shard-0001003.npz").write_bytes(b"PK\x03\x04 cut")
    with pytest.raises(MediaError, match="shard-0001003"):
        ClipPool(tmp_path).refresh()


def test_an_unknown_control_is_our_own_mistake() -> None:
    with pytest.raises(KeyError, match="lidar"):
        control_frames(small_shard(count=1), 0, "lidar", class_palette())
