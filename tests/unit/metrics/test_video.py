from __future__ import annotations

import numpy as np
import pytest

from cosmos_transfer.errors import ConfigError, NumericsError, ShapeError
from cosmos_transfer.metrics.video import flicker, seam_ratio, visible_next
from cosmos_transfer.training.scenes import render_clip


def steady(num_frames: int = 20, step: int = 2) -> np.ndarray:
    levels = (np.arange(num_frames) * step).astype(np.uint8)
    return np.broadcast_to(levels[:, None, None, None], (num_frames, 4, 6, 3)).copy()


def test_a_steady_clip_has_no_seams():
    assert seam_ratio(steady(), [9, 17]) == pytest.approx(1.0)


def test_a_jump_at_a_seam_is_its_multiple():
    frames = steady()
    frames[9:] += 6  # 2 levels a frame, 8 at the seam
    assert seam_ratio(frames, [9]) == pytest.approx(4.0)
    assert seam_ratio(frames, [9, 17]) == pytest.approx(2.5)


def test_a_jump_elsewhere_is_no_seam():
    frames = steady()
    frames[14:] += 6
    assert seam_ratio(frames, [9], reach=3) == pytest.approx(1.0)


def test_a_static_clip_gives_one_and_a_static_clip_with_a_jump_more():
    still = np.full((10, 4, 4, 3), 80, np.uint8)
    assert seam_ratio(still, [5]) == 1.0
    still[5:] += 3
    assert seam_ratio(still, [5]) == 6.0


@pytest.mark.parametrize("seams", [[], [0], [20], [-1]])
def test_seams_outside_the_clip_are_refused(seams):
    with pytest.raises(ConfigError, match="1 to 19"):
        seam_ratio(steady(), seams)


def test_a_clip_that_is_all_seams_is_refused():
    with pytest.raises(NumericsError, match="no seam"):
        seam_ratio(steady(3), [1, 2])


def moving_texture(dx: int) -> np.ndarray:
    world = np.random.default_rng(0).integers(0, 256, (12, 40, 3), dtype=np.uint8)
    return np.stack([world[:, 10 - i * dx : 30 - i * dx] for i in range(4)])


def test_motion_that_is_followed_does_not_flicker():
    frames = moving_texture(dx=2)
    motion = np.zeros((3, 12, 20, 2), np.float32)
    motion[..., 0] = 2.0
    assert flicker(frames, motion) == 0.0
    assert flicker(frames, -motion) > 20
    assert flicker(frames, np.zeros_like(motion)) > 20


def test_motion_down_is_the_second_component():
    frames = moving_texture(dx=2).transpose(0, 2, 1, 3)
    motion = np.zeros((3, 20, 12, 2), np.float32)
    motion[..., 1] = 2.0
    assert flicker(frames, motion) == 0.0


def test_flicker_is_in_grey_levels():
    frames = np.full((3, 4, 4, 3), 100, np.uint8)
    frames[1] = 107
    assert flicker(frames, np.zeros((2, 4, 4, 2), np.float32)) == 7.0


def test_hidden_points_do_not_count_and_may_have_no_motion():
    frames = np.full((2, 4, 4, 3), 100, np.uint8)
    frames[1, :, :2] = 0
    visible = np.ones((1, 4, 4), bool)
    visible[:, :, :2] = False
    motion = np.zeros((1, 4, 4, 2), np.float32)
    motion[:, :, :2] = np.nan
    assert flicker(frames, motion, visible=visible) == 0.0
    with pytest.raises(NumericsError, match="finite"):
        flicker(frames, motion)
    with pytest.raises(NumericsError, match="stays in view"):
        flicker(frames, np.zeros_like(motion), visible=np.zeros_like(visible))


def test_motion_of_another_length_is_refused():
    with pytest.raises(ShapeError, match="motion"):
        flicker(steady(3), np.zeros((3, 4, 6, 2), np.float32))
    with pytest.raises(ShapeError, match="visible"):
        flicker(steady(3), np.zeros((2, 4, 6, 2), np.float32), visible=np.ones((1, 4, 6), bool))


def sliding_card(step: int = 2) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """A near card that slides over a far striped wall: frames, motion, depth, ids."""
    frames = np.zeros((2, 8, 16, 3), np.uint8)
    frames[:, :, ::2] = 90
    depth, ids = np.full((2, 8, 16), 5.0), np.zeros((2, 8, 16), np.int32)
    motion = np.zeros((1, 8, 16, 2), np.float32)
    for index in range(2):
        columns = slice(4 + step * index, 8 + step * index)
        frames[index, 2:6, columns] = 200
        depth[index, 2:6, columns] = 2.0
        ids[index, 2:6, columns] = 1
    motion[0, 2:6, 4:8, 0] = step
    return frames, motion, depth, ids


def test_what_a_card_covers_is_not_followed():
    frames, motion, depth, ids = sliding_card()
    visible = visible_next(motion, depth, ids)
    assert visible[0, 2:6, 4:8].all()  # the card itself
    assert not visible[0, 2:6, 8:10].any()  # the wall that it slides over
    assert visible[0, :2].all()
    assert flicker(frames, motion, visible=visible) == 0.0
    assert flicker(frames, motion) > 0.0


def test_a_card_of_the_walls_own_class_is_told_apart_by_depth():
    _, motion, depth, ids = sliding_card()
    visible = visible_next(motion, depth, np.zeros_like(ids))
    assert not visible[0, 2:6, 8:10].any()
    assert visible[0, 2:6, 4:8].all()


def test_points_that_leave_the_picture_are_not_followed():
    motion = np.zeros((1, 4, 6, 2), np.float32)
    motion[..., 0] = 2.0
    motion[0, 0, 0] = np.nan
    visible = visible_next(motion, np.ones((2, 4, 6)), np.zeros((2, 4, 6), np.int32))
    assert visible[0, 1:, :4].all()
    assert not visible[0, :, 4:].any()
    assert not visible[0, 0, 0]


def test_visible_points_need_one_clip():
    with pytest.raises(ShapeError, match="same recording"):
        visible_next(np.zeros((1, 4, 6, 2)), np.ones((1, 4, 6)), np.zeros((2, 4, 6), np.int32))


def test_the_motion_of_rendered_scenes_follows_their_simulators_view():
    clip = render_clip(0, height=32, width=48, num_frames=3, looks=())
    visible = visible_next(clip.motion, clip.depth, clip.class_ids)
    followed = flicker(clip.simulator, clip.motion, visible=visible)
    assert visible.mean() > 0.5
    assert followed < 0.8 * flicker(clip.simulator, -clip.motion, visible=visible)
