from __future__ import annotations

import numpy as np
import torch

from benchmarks.behaviour_cloning import (
    ARM,
    MADE,
    RECORDED,
    UNSEEN,
    error_deg,
    jitter,
    joint_angles,
    learn,
    look_of,
    record,
    table,
)
from cosmos_transfer.training.scenes.robot import GRIPPER_LENGTH_M


def test_no_look_is_both_seen_and_unseen() -> None:
    assert len({RECORDED, *MADE, *UNSEEN}) == 1 + len(MADE) + len(UNSEEN)


def test_joint_angles_lead_back_to_the_tool() -> None:
    tool = np.array([[0.3, -0.3, 0.1], [-0.4, -0.1, 0.3], [0.1, -0.35, 0.2]])
    azimuth, rise, bend = joint_angles(ARM, tool).T
    heading = np.stack([np.cos(azimuth), np.sin(azimuth), np.zeros(3)], axis=1)
    up = np.array([0.0, 0.0, 1.0])

    def along(length: float, angle: np.ndarray) -> np.ndarray:
        return length * (np.cos(angle)[:, None] * heading + np.sin(angle)[:, None] * up)

    shoulder = ARM.base + ARM.shoulder_height * up
    wrist = shoulder + along(ARM.upper, rise) + along(ARM.fore, rise + bend - np.pi)
    np.testing.assert_allclose(wrist - GRIPPER_LENGTH_M * up, tool, atol=1e-9)


def test_an_episode_is_the_same_world_under_its_looks() -> None:
    plain, unseen = look_of(RECORDED, 1), look_of(UNSEEN[0], 2)
    episode, again = record(3, [plain, unseen]), record(3, [unseen])
    assert np.array_equal(episode.looks[1], again.looks[0])
    assert np.array_equal(episode.actions, again.actions)
    assert episode.looks[0].shape == (9, 64, 96, 3)
    assert not np.array_equal(*episode.looks)


def test_a_policy_learns_and_jitter_moves_no_pixel() -> None:
    rng = np.random.default_rng(0)
    pictures = np.zeros((64, 64, 96, 3), np.uint8)
    columns = rng.integers(0, 80, 64)
    for picture, column in zip(pictures, columns, strict=True):
        picture[20:40, column : column + 16] = 255
    actions = np.repeat(columns[:, None] / 80.0, 3, axis=1)
    policy = learn(pictures, actions, steps=60, seed=0)
    guess = np.rad2deg(np.abs(actions - actions.mean())).mean()
    assert error_deg(policy, pictures, actions) < 0.5 * guess
    batch = torch.from_numpy(pictures[:4]).permute(0, 3, 1, 2).float() / 255
    changed = jitter(batch, torch.Generator().manual_seed(0))
    for before, after in zip(batch, changed, strict=True):
        bright = [each == each.amax(dim=(1, 2), keepdim=True) for each in (before, after)]
        assert torch.equal(*bright)


def test_the_table_says_the_ratio() -> None:
    errors = {
        "plain": {"recorded look": [1.0], "unseen looks": [8.0, 12.0]},
        "augmented": {"recorded look": [1.5], "unseen looks": [6.0]},
    }
    text = table({"errors_deg": errors, "mean_pose_deg": 20.0})
    assert "augmented / plain: 0.600 (40 % better)" in text
