from __future__ import annotations

from fractions import Fraction
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cosmos_transfer.controls import registry
from cosmos_transfer.controls.base import ControlClip
from cosmos_transfer.controls.edge import extract_edge
from cosmos_transfer.controls.registry import (
    CONTROLS,
    find_control,
    prepare_control,
    require_source,
)
from cosmos_transfer.controls.vis import extract_vis
from cosmos_transfer.errors import ConfigError, EstimatorUnavailableError, MediaError, ShapeError
from cosmos_transfer.inputs.depth import DepthClip, depth_picture
from cosmos_transfer.inputs.request import CONTROL_NAMES, ControlRequest
from cosmos_transfer.inputs.segmentation import SegmentationClip, class_color
from cosmos_transfer.inputs.video import VideoClip, clip_from_array
from cosmos_transfer.shapes import Size

SIZE = Size(16, 24)


def clip(num_frames: int = 3) -> VideoClip:
    frames = np.random.default_rng(0).integers(0, 256, (num_frames, 16, 24, 3), dtype=np.uint8)
    return clip_from_array(frames, rate=Fraction(10))


def prepare(
    request: ControlRequest, video: VideoClip | None = None, **settings: object
) -> ControlClip:
    return prepare_control(request, video, size=SIZE, num_frames=3, **settings)


def test_the_registry_holds_exactly_the_controls_of_the_request():
    assert {control.name for control in CONTROLS} == set(CONTROL_NAMES)
    with pytest.raises(ConfigError, match="edge, depth, seg, vis"):
        find_control("keypoint")


# ------------------------------------------------------------------------------------- extraction
def test_edge_and_vis_are_extracted_at_their_preset():
    video = clip()
    edge = prepare(ControlRequest(name="edge", preset="low"), video)
    vis = prepare(ControlRequest(name="vis", preset="high"), video)
    assert (edge.source, vis.source) == ("extracted", "extracted")
    assert edge.notes == ("Canny, preset low",)
    np.testing.assert_array_equal(edge.picture, extract_edge(video.frames, "low"))
    np.testing.assert_array_equal(vis.picture, extract_vis(video.frames, "high"))


@pytest.mark.parametrize("name", ["edge", "vis"])
def test_without_path_and_video_there_is_nothing_to_extract_from(name):
    with pytest.raises(ConfigError, match=rf"controls.{name}.path, or give a video"):
        prepare(ControlRequest(name=name))


@pytest.mark.parametrize("name", ["depth", "seg"])
def test_depth_and_seg_from_rgb_are_refused_clearly_without_an_estimator(name):
    request = ControlRequest(name=name)
    with pytest.raises(EstimatorUnavailableError, match=rf"'{name}'.*controls.{name}.path.*group"):
        prepare(request, clip())
    with pytest.raises(EstimatorUnavailableError):
        require_source(request)


def test_a_given_control_needs_no_estimator():
    require_source(ControlRequest(name="depth", path=Path("anything.png")))
    require_source(ControlRequest(name="edge"))


def test_estimators_passed_by_the_caller_are_used():
    video = clip()
    metres = np.linspace(1, 4, 3 * 16 * 24, dtype=np.float32).reshape(3, 16, 24)
    depth = DepthClip(metres=metres)

    def find_classes(seen: VideoClip) -> SegmentationClip:
        assert seen is video
        return SegmentationClip(ids=np.full((3, 16, 24), 4, np.int32), names={4: "robot"})

    estimators = {"depth": lambda seen: depth, "seg": find_classes}
    found = prepare(ControlRequest(name="depth"), video, estimators=estimators)
    assert found.source == "extracted"
    np.testing.assert_array_equal(found.picture, depth_picture(depth))
    seg = prepare(ControlRequest(name="seg"), video, estimators=estimators)
    assert (seg.picture == class_color("robot")).all()


def test_an_estimate_of_another_shape_is_refused():
    metres = np.ones((2, 16, 24), np.float32)
    ids = np.ones((3, 8, 12), np.int32)
    estimators = {
        "depth": lambda seen: DepthClip(metres=metres),
        "seg": lambda seen: SegmentationClip(ids=ids, names={1: "a"}),
    }
    for name in ("depth", "seg"):
        with pytest.raises(ConfigError, match=rf"'{name}', estimator"):
            prepare(ControlRequest(name=name), clip(), estimators=estimators)


class Installed:
    """Stands in for the installed entry points."""

    def __init__(self, *values: str) -> None:
        self.points = tuple(
            EntryPoint(name="seg", value=value, group=registry.ESTIMATOR_GROUP) for value in values
        )

    def __call__(self, *, group: str, name: str) -> tuple[EntryPoint, ...]:
        assert group == registry.ESTIMATOR_GROUP
        return tuple(point for point in self.points if point.name == name)


def test_an_installed_estimator_is_found_by_name(monkeypatch):
    where = "tests.support.estimators:all_robot"
    monkeypatch.setattr(registry, "entry_points", Installed(where))
    monkeypatch.setattr(EntryPoint, "load", lambda point: lambda: all_robot)
    seg = prepare(ControlRequest(name="seg"), clip())
    assert (seg.picture == class_color("robot")).all()
    with pytest.raises(EstimatorUnavailableError):
        prepare(ControlRequest(name="depth"), clip())


def all_robot(seen: VideoClip) -> SegmentationClip:
    ids = np.ones(seen.frames.shape[:3], np.int32)
    return SegmentationClip(ids=ids, names={1: "robot"})


def test_two_installed_estimators_are_not_chosen_between(monkeypatch):
    monkeypatch.setattr(registry, "entry_points", Installed("a:make", "b:make"))
    with pytest.raises(ConfigError, match="a:make, b:make"):
        prepare(ControlRequest(name="seg"), clip())


def test_an_estimator_whose_needs_are_missing_says_so(monkeypatch):
    monkeypatch.setattr(registry, "entry_points", Installed("no_such_package_here:make"))
    with pytest.raises(EstimatorUnavailableError, match="no_such_package_here"):
        prepare(ControlRequest(name="seg"), clip())


# ------------------------------------------------------------------------------------------ given
@pytest.mark.parametrize("name", ["edge", "vis", "seg"])
def test_a_picture_of_the_right_size_is_taken_as_it_is(name):
    picture = extract_edge(clip().frames, "very_low")
    given = prepare(ControlRequest(name=name, clip=picture))
    assert given.source == "given"
    np.testing.assert_array_equal(given.picture, picture)


def test_edges_may_be_booleans_or_grey():
    picture = extract_edge(clip().frames, "very_low")
    for edges in (picture[..., 0], picture[..., 0] > 0):
        given = prepare(ControlRequest(name="edge", clip=edges))
        np.testing.assert_array_equal(given.picture, picture)


def test_a_larger_control_comes_to_the_working_size_and_says_so():
    picture = np.repeat(np.repeat(extract_edge(clip().frames, "very_low"), 4, axis=1), 4, axis=2)
    given = prepare(ControlRequest(name="edge", clip=picture))
    assert given.picture.shape == (3, 16, 24, 3)
    assert set(np.unique(given.picture)) <= {0, 255}
    assert given.notes == ("edges redrawn from 96x64 to 24x16",)


def test_a_control_from_a_folder_of_pictures(tmp_path):
    picture = extract_vis(clip().frames)
    for index, frame in enumerate(picture):
        Image.fromarray(frame).save(tmp_path / f"{index:03d}.png")
    given = prepare(ControlRequest(name="vis", path=tmp_path))
    np.testing.assert_array_equal(given.picture, picture)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(MediaError, match="nothing_here"):
        prepare(ControlRequest(name="vis", path=tmp_path / "nothing_here.mp4"))


@pytest.mark.parametrize("name", ["edge", "vis", "seg"])
def test_another_length_is_refused_with_both_counts_unless_a_policy_says_what_to_do(name):
    picture = extract_edge(clip(2).frames, "very_low")
    request = ControlRequest(name=name, clip=picture)
    with pytest.raises(ShapeError, match=rf"'{name}'.*expected 3 frames.*got 2"):
        prepare(request)
    held = prepare(request, length_policy="hold")
    np.testing.assert_array_equal(held.picture, picture[[0, 1, 1]])
    looped = prepare(request, length_policy="loop")
    np.testing.assert_array_equal(looped.picture, picture[[0, 1, 0]])
    long = ControlRequest(name=name, clip=extract_edge(clip(5).frames, "very_low"))
    assert len(prepare(long, length_policy="trim").picture) == 3


@pytest.mark.parametrize("name", ["edge", "vis", "seg"])
def test_another_aspect_ratio_is_refused(name):
    with pytest.raises(ShapeError, match="aspect ratio of the clip"):
        prepare(ControlRequest(name=name, clip=np.zeros((3, 16, 16, 3), np.uint8)))


# ------------------------------------------------------------------------------------------- ids
def test_ids_get_the_fixed_colour_of_their_class():
    ids = np.zeros((3, 32, 48), np.int32)
    ids[:, 16:] = 7
    labels = {0: "table", 7: "robot"}
    given = prepare(ControlRequest(name="seg", clip=ids, labels=labels))
    assert (given.picture[:, :8] == class_color("table")).all()
    assert (given.picture[:, 8:] == class_color("robot")).all()


def test_resized_ids_make_no_new_colours():
    ids = np.random.default_rng(0).integers(0, 5, (3, 23, 35), dtype=np.int32)
    given = prepare(ControlRequest(name="seg", clip=ids))
    assert len(np.unique(given.picture.reshape(-1, 3), axis=0)) == 5


def test_carla_tags_in_an_array_are_named():
    ids = np.full((3, 16, 24), 14, np.int32)
    given = prepare(ControlRequest(name="seg", clip=ids, labels="carla"))
    assert (given.picture == class_color("car")).all()


# ------------------------------------------------------------------------------------------ depth
def moving_depth(num_frames: int = 3, height: int = 16, width: int = 24) -> np.ndarray:
    metres = np.full((num_frames, height, width), 4.0, np.float32)
    metres[:, : height // 2] = 2.0
    metres[-1, -2:, -2:] = 1.0  # something near enters in the last frame
    return metres


def test_metric_depth_is_near_bright_and_normalised_once_per_clip():
    given = prepare(ControlRequest(name="depth", clip=moving_depth(), near=1.0, far=4.0))
    assert given.source == "given"
    assert (given.picture[0, 0, 0], given.picture[0, -1, -1])[0].tolist() == [85, 85, 85]
    assert given.picture[2, -1, -1].tolist() == [255, 255, 255]
    # The rest does not change its brightness when the near thing enters.
    np.testing.assert_array_equal(given.picture[0, :14], given.picture[2, :14])


def test_a_hole_in_the_depth_is_black_and_noted():
    metres = moving_depth()
    metres[0, 0, 0] = np.inf
    given = prepare(ControlRequest(name="depth", clip=metres))
    assert given.picture[0, 0, 0].tolist() == [0, 0, 0]
    assert "no reading" in given.notes[0]


def test_an_eight_bit_picture_is_taken_as_it_is():
    picture = np.random.default_rng(0).integers(0, 256, (3, 16, 24), dtype=np.uint8)
    given = prepare(ControlRequest(name="depth", clip=picture))
    np.testing.assert_array_equal(given.picture, np.repeat(picture[..., None], 3, axis=-1))


def test_larger_depth_from_a_file_comes_to_the_working_size(tmp_path):
    np.save(tmp_path / "depth.npy", moving_depth(height=32, width=48))
    given = prepare(ControlRequest(name="depth", path=tmp_path / "depth.npy"))
    assert given.picture.shape == (3, 16, 24, 3)


def test_depth_of_another_length_or_aspect_ratio_is_refused():
    with pytest.raises(ShapeError, match=r"expected 3 frames.*got 2"):
        prepare(ControlRequest(name="depth", clip=moving_depth(2)))
    with pytest.raises(ShapeError, match="aspect ratio"):
        prepare(ControlRequest(name="depth", clip=moving_depth(width=16)))
