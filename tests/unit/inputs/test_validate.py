from __future__ import annotations

import logging
import subprocess
import sys
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import pytest
from PIL import Image

from cosmos_transfer.errors import (
    ConfigError,
    EstimatorUnavailableError,
    MediaError,
    ShapeError,
    TransferError,
)
from cosmos_transfer.inputs.request import request_from_mapping
from cosmos_transfer.inputs.validate import check_request
from cosmos_transfer.shapes import Size
from tests.unit.inputs.media_files import numbered_frames, write_pictures, write_video


@dataclass(frozen=True)
class Facts:
    """A checkpoint's facts, without a checkpoint."""

    native_size: Size = field(default_factory=lambda: Size(64, 96))
    controls: tuple[str, ...] = ("edge", "depth", "seg", "vis")
    num_inference_steps: int = 12


@pytest.fixture
def files(tmp_path):
    """A clip of 23 frames with controls and masks that fit it, and some that do not."""
    write_video(tmp_path / "rgb.mp4", numbered_frames(23, 48, 64), rate=8)
    write_video(tmp_path / "edge.mp4", numbered_frames(23, 48, 64), rate=8)
    write_video(tmp_path / "short.mp4", numbered_frames(15, 48, 64), rate=8)
    write_video(tmp_path / "small.mp4", numbered_frames(23, 24, 32), rate=8)
    write_video(tmp_path / "wide.mp4", numbered_frames(23, 36, 64), rate=8)
    Image.fromarray(np.full((48, 64), 255, np.uint8)).save(tmp_path / "white.png")
    Image.fromarray(np.zeros((48, 64), np.uint8)).save(tmp_path / "black.png")
    Image.fromarray(np.full((64, 48), 255, np.uint8)).save(tmp_path / "tall.png")
    Image.fromarray(numbered_frames(2, 48, 64)[1]).save(tmp_path / "still.png")
    np.save(tmp_path / "depth.npy", np.full((23, 48, 64), 2.0, np.float32))
    np.save(tmp_path / "nan.npy", np.full((23, 48, 64), np.nan, np.float32))
    return tmp_path


def check(files, facts=None, **values):
    values = {"prompt": "snow", "video": "rgb.mp4"} | values
    return check_request(request_from_mapping(values, base_dir=files), facts or Facts())


def test_what_fits_is_described(files):
    checked = check(files, edge={"path": "edge.mp4", "weight": 0.5}, vis=0.25)
    assert (checked.num_frames, checked.size, checked.rate) == (23, Size(48, 64), 8)
    assert checked.times == tuple(Fraction(i, 8) for i in range(23))
    assert checked.working_size == Size(64, 85)
    assert checked.effective_weights == {"edge": 0.5, "vis": 0.25}
    assert [found.where for found in checked.inputs] == ["video", "control 'edge'"]
    assert checked.warnings == ()
    assert not checked.is_still


@pytest.mark.parametrize(
    ("resolution", "size"),
    [("input", Size(48, 64)), (24, Size(24, 32)), ("native", Size(64, 85))],
)
def test_the_working_size_keeps_the_aspect_ratio(files, resolution, size):
    assert check(files, resolution=resolution).working_size == size


# ------------------------------------------------------------------------- lengths
def test_a_control_shorter_than_the_video_is_refused_with_both_files_and_counts(files):
    with pytest.raises(ShapeError) as caught:
        check(files, depth={"path": "short.mp4"})
    text = str(caught.value)
    assert "short.mp4" in text
    assert "rgb.mp4" in text
    assert "expected 23 frames" in text
    assert "got 15" in text
    assert "length_policy" in text


def test_controls_of_two_lengths_are_refused(files):
    with pytest.raises(ShapeError, match=r"short\.mp4.*expected 23 frames.*got 15"):
        check(files, video=None, edge={"path": "edge.mp4"}, depth={"path": "short.mp4"})


@pytest.mark.parametrize(("policy", "expected"), [("trim", 15), ("hold", 23), ("loop", 23)])
def test_a_length_policy_settles_it(files, policy, expected):
    checked = check(files, edge={"path": "short.mp4"}, length_policy=policy)
    assert checked.num_frames == len(checked.times) == expected
    assert checked.length_policy == policy


def test_max_frames_cuts_everything(files):
    checked = check(files, edge={"path": "short.mp4"}, max_frames=9)
    assert checked.num_frames == len(checked.times) == 9
    assert checked.length_policy == "trim"
    with pytest.raises(ShapeError, match=r"expected 20 frames.*got 15"):
        check(files, edge={"path": "short.mp4"}, max_frames=20)


def test_a_still_mask_stands_for_every_frame_and_a_short_one_does_not(files):
    assert check(files, edge={"weight": 1, "mask": "white.png"}).num_frames == 23
    with pytest.raises(ShapeError, match=r"mask \(.*short\.mp4\): expected 23 frames"):
        check(files, edge={"mask": "short.mp4"})


# ------------------------------------------------------------------------- sizes
def test_another_size_of_the_same_aspect_ratio_is_fine(files):
    assert check(files, edge={"path": "small.mp4"}).size == Size(48, 64)


@pytest.mark.parametrize("key", ["path", "mask", "weight"])
def test_another_aspect_ratio_is_refused_with_both_sizes(files, key):
    name = {"path": "wide.mp4", "mask": "tall.png", "weight": "tall.png"}[key]
    with pytest.raises(ShapeError, match=r"\(64x48\), got (64x36|48x64)"):
        check(files, edge={key: name})


# ------------------------------------------------------------------------- masks and weights
def test_an_empty_mask_never_means_everywhere(files):
    with pytest.raises(ConfigError, match="selects nothing"):
        check(files, edge={"mask": "black.png"})
    with pytest.raises(ConfigError, match="selects nothing"):
        check(files, edge={"mask": "white.png", "invert": True})
    check(files, edge={"mask": "black.png", "allow_empty": True})
    checked = check(files, edge={"mask": "black.png", "invert": True})
    assert "100.0%" in checked.inputs[1].note


def test_inverting_without_a_mask_is_refused(files):
    with pytest.raises(ConfigError, match="invert without a mask"):
        check(files, edge={"invert": True})


def test_weights_above_one_together_are_warned_about_with_the_effective_ones(files, caplog):
    with caplog.at_level(logging.WARNING):
        checked = check(
            files,
            edge=1.0,
            vis=1.0,
            depth={"path": "depth.npy"},
            seg={"path": "still.png"},
            length_policy="hold",
        )
    assert checked.effective_weights == dict.fromkeys(("edge", "vis", "depth", "seg"), 0.25)
    (warning,) = [w for w in checked.warnings if "add up to" in w]
    assert "4" in warning
    assert "edge 0.25" in warning
    assert warning in caplog.text


@pytest.mark.parametrize(("rule", "expected"), [("cap", 0.2), ("always", 0.5), ("none", 0.2)])
def test_effective_weights_follow_the_rule(files, rule, expected):
    checked = check(files, edge=0.2, vis=0.2, weight_rule=rule)
    assert checked.effective_weights["edge"] == pytest.approx(expected)


def test_class_rules_need_classes_that_exist(files):
    ids = np.zeros((23, 48, 64), np.uint8)
    ids[:, 10:] = 1
    write_pictures(files / "seg", ids)
    seg = {"path": "seg", "labels": {"0": "table", "1": "robot"}}
    assert check(files, seg=seg, edge={"weight": {"Robot": 1.0, "default": 0}}).num_frames == 23
    with pytest.raises(ConfigError, match=r"got 'robbot'\. Did you mean 'robot'\?"):
        check(files, seg=seg, edge={"weight": {"robbot": 1.0}})
    with pytest.raises(ConfigError, match="class rule and no segmentation"):
        check(files, edge={"weight": {"robot": 1.0}})


def test_a_weight_that_is_neither_number_nor_file_says_whose_it_is(files):
    with pytest.raises(ConfigError, match="control 'edge', weight: expected a number from 0 to 1"):
        check(files, edge={"weight": "strong"})


# ------------------------------------------------------------------------- controls
def test_depth_without_a_reading_is_refused(files):
    with pytest.raises(MediaError, match=r"nan\.npy: expected at least one finite depth"):
        check(files, depth={"path": "nan.npy"})
    with pytest.raises(MediaError, match="control 'depth': expected at least one finite depth"):
        check(files, depth={"clip": np.full((23, 48, 64), np.nan, np.float32)})


def test_some_nan_in_depth_is_noted_once_and_taken(files, caplog):
    depth = np.full((23, 48, 64), 2.0, np.float32)
    depth[:, :12] = np.nan
    with caplog.at_level(logging.WARNING):
        checked = check(files, depth={"clip": depth, "weight": 0.5})
    assert caplog.text.count("25.00%") == 1
    assert any("25.00%" in warning for warning in checked.warnings)


def test_depth_and_segmentation_are_not_made_up(files):
    for name in ("depth", "seg"):
        with pytest.raises(EstimatorUnavailableError, match=f"control '{name}'"):
            check(files, **{name: 1.0})
    request = request_from_mapping(
        {"prompt": "x", "video": "rgb.mp4", "depth": 1.0}, base_dir=files
    )
    assert check_request(request, estimators=("depth",)).num_frames == 23


def test_a_control_without_a_branch_is_refused(files):
    with pytest.raises(ConfigError, match=r"a control of this checkpoint \(edge\), got vis"):
        check(files, Facts(controls=("edge",)), vis=1.0)


def test_a_control_alone_sets_size_and_length(files):
    checked = check(files, video=None, depth={"path": "depth.npy"})
    assert (checked.num_frames, checked.size, checked.rate) == (23, Size(48, 64), 24)
    checked = check(files, video=None, edge={"path": "edge.mp4"})
    assert checked.rate == 8
    with pytest.raises(ConfigError, match="or a video to extract it from"):
        check(files, video=None, depth={"path": "depth.npy"}, edge=1.0)


def test_a_still_is_recognised(files):
    checked = check(files, video="still.png", edge=1.0)
    assert checked.is_still
    assert (checked.num_frames, checked.times) == (1, (0,))


def test_a_clip_in_memory_is_checked(files):
    video = np.zeros((5, 48, 64, 3), np.uint8)
    checked = check(files, video=video, rate=12)
    assert (checked.num_frames, checked.rate, checked.inputs[0].path) == (5, 12, None)
    with pytest.raises(ShapeError, match="uint8"):
        check(files, video=video.astype(np.float32))


@pytest.mark.parametrize(
    "values",
    [
        {"video": "missing.mp4"},
        {"video": "broken.mp4"},
        {"edge": {"path": "missing.mp4"}},
        {"edge": {"mask": "missing.png"}},
        {"edge": {"weight": "missing.npy"}},
        {"seg": {"path": "still.png", "labels": "missing.json"}},
        {"depth": {"path": "depth16.png"}},
        {"edge": {"path": "empty"}},
    ],
    ids=lambda values: "-".join(f"{k}" for k in values),
)
def test_every_bad_input_is_one_line(files, values):
    (files / "broken.mp4").write_bytes(b"\0" * 5000)
    (files / "empty").mkdir()
    Image.fromarray(np.full((48, 64), 999, np.uint16)).save(files / "depth16.png")
    with pytest.raises(TransferError) as caught:
        check(files, **values)
    text = str(caught.value)
    assert "\n" not in text
    assert ": expected " in text
    assert ", got " in text


# ------------------------------------------------------------------------- the whole
def test_reading_and_checking_load_no_torch(files):
    code = (
        "import sys\n"
        "from cosmos_transfer.inputs.request import request_from_mapping\n"
        "from cosmos_transfer.inputs.validate import check_request\n"
        "from cosmos_transfer.outputs import record, writer\n"
        f"values = {{'prompt': 'x', 'video': {str(files / 'rgb.mp4')!r}, 'edge': 1}}\n"
        "r = request_from_mapping(values)\n"
        "assert check_request(r).num_frames == 23\n"
        "assert not {'torch', 'hydra', 'diffusers'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_the_cosmos_example_checks(shared_media):
    example = shared_media / "cosmos_example1"
    controls = {
        name: {"path": example / f"{name}.mp4", "weight": 0.25} for name in Facts().controls
    }
    controls["edge"]["mask"] = example / "spatiotemporal_weights_mask.mp4"
    values = {"prompt": "x", "video": example / "input_video.mp4", "controls": controls}
    checked = check_request(request_from_mapping(values), Facts())
    assert (checked.num_frames, checked.size, checked.rate) == (121, Size(480, 640), 30)
    assert len(checked.inputs) == 6


def test_the_robot_example_checks(shared_media):
    robot = shared_media / "robot_isaac"
    seg = {"path": robot / "segmentation", "labels": robot / "segmentation_label"}
    values = {"prompt": "x", "video": robot / "input_video.mp4", "controls": {"seg": seg}}
    checked = check_request(request_from_mapping(values), Facts())
    assert (checked.num_frames, checked.size, checked.rate) == (100, Size(800, 1280), 20)
    assert checked.working_size == Size(64, 102)


def test_a_control_whose_share_holds_no_step_is_warned_about(files):
    (warning,) = check(files, edge={"steps": [0.3, 0.4]}, num_inference_steps=4).warnings
    assert "none of the 4 denoising steps lies between 0.3 and 0.4; it never acts" in warning
    assert not check(files, edge={"steps": [0.25, 0.5]}).warnings
    (warning,) = check(files, edge={"steps": [0.99, 1.0]}).warnings
    assert "none of the 12" in warning


def test_the_share_of_a_lossy_segmentation_that_is_snapped_is_told_before(files):
    picture = np.zeros((48, 64, 3), np.uint8)
    picture[:, 20:] = (230, 90, 20)
    write_video(files / "seg.mp4", np.stack([picture] * 23), rate=8, options={"crf": "40"})
    labels = {"floor": [0, 0, 0], "robot": [230, 90, 20]}
    checked = check(files, seg={"path": "seg.mp4", "labels": labels})
    (note,) = checked.warnings
    assert note.startswith("control 'seg', first frame: ")
    assert "snapped to the nearest label colour" in note
    ruled = {"path": "seg.mp4", "labels": labels, "weight": {"robot": 1.0}}
    assert any("snapped" in note for note in check(files, seg=ruled).warnings)


def test_a_mask_of_which_half_is_left_white_says_so(files):
    soft = np.linspace(0, 1, 64, dtype=np.float32)[None].repeat(48, 0)
    np.save(files / "soft.npy", soft)
    checked = check(files, edge={"mask": "soft.npy", "binary": True, "invert": True})
    (mask,) = (each for each in checked.inputs if each.where.endswith("mask"))
    assert mask.note == "covers 50.0% of the clip, read as 0 to 1, white from 0.5 on, inverted"
    np.save(files / "dim.npy", 0.4 * soft)
    with pytest.raises(ConfigError, match="allow_empty"):
        check(files, edge={"mask": "dim.npy", "binary": True})
