"""Recordings written the way the simulators write them, and what the adapters make of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

from cosmos_transfer.errors import ConfigError, MediaError, ShapeError, TransferError
from cosmos_transfer.inputs.request import request_from_mapping
from cosmos_transfer.inputs.segmentation import SegmentationClip
from cosmos_transfer.inputs.simulators import open_scene
from cosmos_transfer.inputs.simulators.mujoco import GEOM, scene_from_arrays
from cosmos_transfer.inputs.validate import check_request

FRAMES, HEIGHT, WIDTH = 3, 12, 16


def rgb_frames() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (FRAMES, HEIGHT, WIDTH, 3), dtype=np.uint8)


def seen(seg: SegmentationClip) -> set[str]:
    return {seg.names[int(number)] for number in np.unique(seg.ids)}


def metres() -> np.ndarray:
    depth = np.linspace(1.0, 9.0, FRAMES * HEIGHT * WIDTH, dtype=np.float32)
    return depth.reshape(FRAMES, HEIGHT, WIDTH)


def write_pictures(
    folder: Path, frames: np.ndarray, name: str = "{:06d}.png", start: int = 0
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for index, frame in enumerate(frames):
        Image.fromarray(frame).save(folder / name.format(index + start))


def basic_writer(root: Path, *, planar: bool = True) -> Path:
    """Isaac's BasicWriter: RGBA pictures, arrays, tables, numbered from 7."""
    rgba = np.concatenate([rgb_frames(), np.full((FRAMES, HEIGHT, WIDTH, 1), 255, np.uint8)], -1)
    write_pictures(root, rgba, "rgb_{:04d}.png", 7)
    robot, nothing = (29, 5, 0, 255), (0, 0, 0, 0)
    colors = np.zeros((FRAMES, HEIGHT, WIDTH, 4), np.uint8)
    colors[:, :, : WIDTH // 2] = robot
    write_pictures(root, colors, "semantic_segmentation_{:04d}.png", 7)
    kind = "distance_to_image_plane" if planar else "distance_to_camera"
    for index, depth in enumerate(metres()):
        number = f"{index + 7:04d}"
        np.save(root / f"{kind}_{number}.npy", depth)
        table = {str(robot): {"class": "robot"}, str(nothing): {"class": "BACKGROUND"}}
        (root / f"semantic_segmentation_labels_{number}.json").write_text(json.dumps(table))
        camera = {
            "cameraFocalLength": 24.0,
            "cameraAperture": [20.955, 15.71625],
            "cameraApertureOffset": [0.0, 0.0],
            "renderProductResolution": [WIDTH, HEIGHT],
        }
        (root / f"camera_params_{number}.json").write_text(json.dumps(camera))
    return root


def test_isaac_basic_writer(tmp_path: Path) -> None:
    scene = open_scene(basic_writer(tmp_path))
    assert scene.tool == "isaac"
    clip, depth, seg = scene.clip(), scene.depth(), scene.segmentation()
    assert clip is not None
    assert depth is not None
    assert seg is not None
    np.testing.assert_array_equal(clip.frames, rgb_frames())
    np.testing.assert_array_equal(depth.metres, metres())
    by_name = {name: number for number, name in seg.names.items()}
    assert (seg.ids[:, :, : WIDTH // 2] == by_name["robot"]).all()
    assert (seg.ids[:, :, WIDTH // 2 :] == by_name["BACKGROUND"]).all()


def test_isaac_distances_to_the_camera_become_depth(tmp_path: Path) -> None:
    depth = open_scene(basic_writer(tmp_path, planar=False)).depth()
    assert depth is not None
    focal = WIDTH * 24.0 / 20.955
    x = (np.arange(WIDTH) + 0.5 - WIDTH / 2) / focal
    y = (np.arange(HEIGHT) + 0.5 - HEIGHT / 2) / focal
    slant = np.sqrt(1 + x[None] ** 2 + y[:, None] ** 2)
    np.testing.assert_allclose(depth.metres, metres() / slant, rtol=1e-6)


def test_isaac_without_camera_parameters_says_what_to_record(tmp_path: Path) -> None:
    basic_writer(tmp_path, planar=False)
    for file in tmp_path.glob("camera_params_*"):
        file.unlink()
    with pytest.raises(MediaError, match="camera_params"):
        open_scene(tmp_path)


def test_isaac_with_a_folder_for_every_annotator(tmp_path: Path) -> None:
    flat = basic_writer(tmp_path / "flat")
    product = tmp_path / "RenderProduct_Replicator"
    for file in flat.iterdir():
        name = file.stem.rpartition("_")[0].removesuffix("_labels")
        (product / name).mkdir(parents=True, exist_ok=True)
        file.rename(product / name / file.name)
    scene = open_scene(product)
    clip, seg = scene.clip(), scene.segmentation()
    assert clip is not None
    assert seg is not None
    assert scene.depth() is not None
    assert seen(seg) == {"robot", "BACKGROUND"}


def test_cosmos_writer(tmp_path: Path) -> None:
    clip = tmp_path / "clip_0000"
    write_pictures(clip / "rgb", rgb_frames())
    grey = np.repeat((metres() * 25).astype(np.uint8)[..., None], 3, -1)
    write_pictures(clip / "depth", grey)
    write_pictures(clip / "edges", np.zeros_like(grey))
    colors = np.full((FRAMES, HEIGHT, WIDTH, 4), (140, 25, 255, 255), np.uint8)
    write_pictures(clip / "segmentation", colors)
    mapping = {"segmentation_mapping": {"cube": [140, 25, 255, 255]}}
    (clip / "segmentation_mapping.json").write_text(json.dumps(mapping))
    scene = open_scene(clip)
    assert (scene.tool, sorted(scene.controls)) == ("cosmos", ["depth", "edge", "seg"])
    depth, seg = scene.depth(), scene.segmentation()
    assert depth is not None
    assert seg is not None
    assert depth.brightness is not None  # near is bright already; there are no metres in it
    assert seen(seg) == {"cube"}


def test_carla(tmp_path: Path) -> None:
    write_pictures(tmp_path / "rgb", rgb_frames(), "{:08d}.png", 4711)
    code = np.rint(metres().astype(np.float64) / 1000 * (2**24 - 1)).astype(np.int64)
    depth = np.stack([code % 256, code // 256 % 256, code // 65536], -1).astype(np.uint8)
    write_pictures(tmp_path / "depth", depth, "{:08d}.png", 4711)
    tags = np.zeros((FRAMES, HEIGHT, WIDTH, 3), np.uint8)
    tags[..., 0] = 14
    write_pictures(tmp_path / "semantic_segmentation", tags, "{:08d}.png", 4711)
    (tmp_path / "scene.json").write_text(json.dumps({"fixed_delta_seconds": 0.05}))
    scene = open_scene(tmp_path)
    found, seg = scene.depth(), scene.segmentation()
    assert found is not None
    assert seg is not None
    assert (scene.tool, scene.rate) == ("carla", Fraction(20))
    assert float(np.abs(found.metres - metres()).max()) <= 1000 / (2**24 - 1)
    assert {name.lower() for name in seen(seg)} == {"car"}
    old = {"fixed_delta_seconds": 0.05, "carla_version": "0.9.13"}
    (tmp_path / "scene.json").write_text(json.dumps(old))
    seg = open_scene(tmp_path).segmentation()
    assert seg is not None
    assert {name.lower() for name in seen(seg)} != {"car"}


def strided_carla(root: Path, *, step: int, depth_start: int = 100) -> Path:
    """Sensors that see every ``step``-th tick of a world of 20 ticks a second."""
    name = "{:08d}.png"
    for folder, start in (("rgb", 100), ("depth", depth_start), ("semantic_segmentation", 100)):
        (root / folder).mkdir(parents=True)
        for index, frame in enumerate(rgb_frames()):
            Image.fromarray(frame).save(root / folder / name.format(start + step * index))
    (root / "scene.json").write_text(json.dumps({"fixed_delta_seconds": 0.05}))
    return root


def test_carlas_frames_may_go_in_steps_of_several_ticks(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    scene = open_scene(strided_carla(tmp_path, step=2))
    assert scene.rate == 10
    clip = scene.clip()
    assert clip is not None
    np.testing.assert_array_equal(clip.frames, rgb_frames())
    assert clip.times == (0, Fraction(1, 10), Fraction(2, 10))
    assert "in steps of 2, from 100 to 104" in caplog.text


def test_folders_of_other_frames_of_a_recording_are_refused(tmp_path: Path) -> None:
    """Each is without gaps; the depth is that of the frame after."""
    with pytest.raises(MediaError, match=r"100 to 104 in steps of 2, got 102 to 106"):
        open_scene(strided_carla(tmp_path / "late", step=2, depth_start=102))
    plain = tmp_path / "plain"
    write_pictures(plain / "rgb", rgb_frames())
    for index, depth in enumerate(metres()):
        (plain / "depth").mkdir(exist_ok=True)
        np.save(plain / "depth" / f"{index + 1:06d}.npy", depth)
    with pytest.raises(MediaError, match=r"0 to 2, got 1 to 3"):
        open_scene(plain)


def mujoco_arrays() -> dict[str, np.ndarray]:
    segmentation = np.full((FRAMES, HEIGHT, WIDTH, 2), -1, np.int32)
    segmentation[:, :, 4:8] = (0, GEOM)
    segmentation[:, :, 8:] = (2, GEOM)
    return {
        "rgb": rgb_frames(),
        "depth": metres(),
        "segmentation": segmentation,
        "times": np.array([0.5, 0.533, 0.6]),
    }


def test_mujoco_arrays(tmp_path: Path) -> None:
    scene = scene_from_arrays(**mujoco_arrays(), names={0: "floor", 1: "unseen", 2: "arm"})
    seg = scene.segmentation()
    assert seg is not None
    names = [seg.names[int(seg.ids[1, 3, column])] for column in (0, 5, 12)]
    assert names == ["background", "floor", "arm"]
    assert scene.times == (0, Fraction(33, 1000), Fraction(1, 10))
    np.savez(tmp_path / "run.npz", **mujoco_arrays(), names=np.array(["floor", "", "arm"]))
    again = open_scene(tmp_path / "run.npz")
    clip, depth = again.clip(), again.depth()
    assert clip is not None
    assert depth is not None
    assert (again.tool, clip.times) == ("mujoco", scene.times)
    np.testing.assert_array_equal(depth.metres, metres())


def test_mujoco_pictures_from_raw_buffers_are_turned_upright() -> None:
    arrays = mujoco_arrays()
    upside_down = {name: a if name == "times" else a[:, ::-1] for name, a in arrays.items()}
    scene = scene_from_arrays(**upside_down, flip=True)
    depth, clip = scene.depth(), scene.clip()
    assert depth is not None
    assert clip is not None
    np.testing.assert_array_equal(depth.metres, arrays["depth"])
    np.testing.assert_array_equal(clip.frames, arrays["rgb"])


def test_mujoco_arrays_of_two_lengths_are_refused() -> None:
    arrays = mujoco_arrays() | {"depth": metres()[:2]}
    with pytest.raises(ShapeError, match="rgb 3, depth 2"):
        scene_from_arrays(**arrays)


def test_pickled_arrays_are_not_opened(tmp_path: Path) -> None:
    np.savez(tmp_path / "run.npz", rgb=np.array([object()], dtype=object))
    with pytest.raises(TransferError):
        open_scene(tmp_path / "run.npz")


def test_pictures_named_by_microseconds_keep_their_gaps(tmp_path: Path) -> None:
    start = 1532402927612460
    for offset, frame in zip((0, 50_000, 200_000), rgb_frames(), strict=True):
        name = f"n015-2018-07-24-11-22-45+0800__CAM_FRONT__{start + offset}.jpg"
        cv2.imwrite(str(tmp_path / name), frame)
    scene = open_scene(tmp_path)
    assert scene.tool == "timestamps"
    assert scene.times == (0, Fraction(1, 20), Fraction(1, 5))
    request = request_from_mapping({"scene": str(tmp_path), "prompt": "rain", "edge": 1.0})
    checked = check_request(request)
    assert checked.times == scene.times
    assert (checked.num_frames, checked.size.width) == (3, WIDTH)


def plain_scene(root: Path) -> Path:
    write_pictures(root / "rgb", rgb_frames(), "frame_{:03d}.png")
    (root / "depth").mkdir()
    for index, depth in enumerate(metres()):
        cv2.imwrite(str(root / "depth" / f"{index:03d}.png"), (depth * 1000).astype(np.uint16))
    np.save(root / "seg.npy", np.full((FRAMES, HEIGHT, WIDTH), 3, np.int32))
    settings = {
        "rate": "30000/1001",
        "depth": {"unit": "mm"},
        "seg": {"labels": {"3": "table"}},
    }
    (root / "scene.json").write_text(json.dumps(settings))
    return root


def test_a_plain_folder(tmp_path: Path) -> None:
    scene = open_scene(plain_scene(tmp_path))
    assert (scene.tool, scene.rate) == ("plain", Fraction(30000, 1001))
    depth, seg = scene.depth(), scene.segmentation()
    assert depth is not None
    assert seg is not None
    np.testing.assert_allclose(depth.metres, metres(), atol=1e-3)
    assert seen(seg) == {"table"}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"fps": 30}, "'fps'"),
        ({"depth": {"units": "mm"}}, "'units'"),
        ({"rate": "fast"}, "'fast'"),
        ({"times": [0, "x", 1]}, "'x'"),
        ([1], "list"),
    ],
)
def test_a_scene_file_that_says_something_else_is_refused(
    tmp_path: Path, settings: object, said: str
) -> None:
    plain_scene(tmp_path)
    (tmp_path / "scene.json").write_text(json.dumps(settings))
    with pytest.raises(ConfigError, match=said) as caught:
        open_scene(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_request_takes_from_the_scene_what_it_names(tmp_path: Path) -> None:
    plain_scene(tmp_path)
    scene = {"scene": str(tmp_path), "prompt": "night"}
    everything = request_from_mapping(scene)
    assert {each.name: each.is_given for each in everything.controls} == {
        "depth": True,
        "seg": True,
    }
    some = request_from_mapping(
        scene | {"controls": {"depth": 0.5, "edge": 1.0, "seg": {"weight": {"table": 1.0}}}}
    )
    by_name = {each.name: each for each in some.controls}
    assert (by_name["depth"].weight, by_name["depth"].unit) == (0.5, "mm")
    assert not by_name["edge"].is_given
    assert by_name["seg"].path == tmp_path / "seg.npy"
    checked = check_request(some)
    assert (checked.rate, checked.num_frames) == (Fraction(30000, 1001), FRAMES)
    own = request_from_mapping(
        scene | {"controls": {"depth": {"path": str(tmp_path / "depth"), "unit": "tum5000"}}}
    )
    assert own.controls[0].unit == "tum5000"


def test_times_that_do_not_fit_the_clip_are_refused(tmp_path: Path) -> None:
    plain_scene(tmp_path)
    request = {"scene": str(tmp_path), "prompt": "night", "controls": {"edge": 1.0}}
    with pytest.raises(ShapeError, match="one for each of the 3 frames"):
        check_request(request_from_mapping(request | {"times": [0, "1/10"]}))
    for times in ([0.1, 0.2, 0.3], [0, 0.2, 0.2], [], "now"):
        with pytest.raises(ConfigError, match="increasing from 0"):
            request_from_mapping(request | {"times": times})


@pytest.mark.parametrize(
    "make",
    [lambda p: None, lambda p: (p / "notes.txt").write_text("x")],
    ids=["empty", "something else"],
)
def test_a_folder_that_no_tool_wrote_is_refused(
    tmp_path: Path, make: Callable[[Path], object]
) -> None:
    make(tmp_path)
    with pytest.raises(MediaError, match=r"scene\.json") as caught:
        open_scene(tmp_path)
    assert "\n" not in str(caught.value)


def test_an_unknown_tool_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="isaac"):
        open_scene(plain_scene(tmp_path), tool="unreal")


def test_a_real_recording_of_isaac(tmp_path: Path, shared_media: Path) -> None:
    recording = shared_media / "robot_isaac"
    # As the writer left them: pictures and tables in one folder.
    for folder in ("segmentation", "segmentation_label"):
        for file in sorted((recording / folder).iterdir())[:3]:
            (tmp_path / file.name).symlink_to(file)
    seg = open_scene(tmp_path).segmentation()
    assert seg is not None
    assert seg.ids.shape == (3, 800, 1280)
    assert any(name.startswith("gripper0_right") for name in seg.names.values())


def test_a_folder_around_one_recording_stands_for_it(tmp_path: Path) -> None:
    basic_writer(tmp_path / "RenderProduct_0")
    (tmp_path / "metadata.txt").write_text("written by Replicator")
    scene = open_scene(tmp_path)
    assert (scene.tool, scene.path) == ("isaac", tmp_path / "RenderProduct_0")
    basic_writer(tmp_path / "RenderProduct_1")
    with pytest.raises(
        MediaError, match=r"one recording, got 2 \(RenderProduct_0, RenderProduct_1"
    ):
        open_scene(tmp_path)


def test_carlas_raw_arrays_are_read_in_the_order_that_is_told(tmp_path: Path) -> None:
    (tmp_path / "depth").mkdir()
    write_pictures(
        tmp_path / "semantic_segmentation", np.zeros((FRAMES, HEIGHT, WIDTH, 3), np.uint8)
    )
    code = np.rint(metres().astype(np.float64) / 1000 * (2**24 - 1)).astype(np.int64)
    bgra = np.stack([code // 65536, code // 256 % 256, code % 256, 255 + 0 * code], -1)
    for index, frame in enumerate(bgra.astype(np.uint8)):
        np.save(tmp_path / "depth" / f"{index:08d}.npy", frame)
    (tmp_path / "scene.json").write_text(json.dumps({"channel_order": "bgr"}))
    depth = open_scene(tmp_path).depth()
    assert depth is not None
    np.testing.assert_allclose(depth.metres, metres(), atol=1000 / (2**24 - 1))


def test_mujoco_buffers_become_metres(tmp_path: Path) -> None:
    znear, zfar, extent = 0.01, 50.0, 3.0
    low, high = znear * extent, zfar * extent
    buffer = (1 - low / metres().astype(np.float64)) / (1 - low / high)
    planes = {"znear": znear, "zfar": zfar, "extent": extent, "flip": True}
    np.savez(tmp_path / "run.npz", rgb=rgb_frames(), depth=buffer[:, ::-1], **planes)
    scene = open_scene(tmp_path / "run.npz")
    depth, clip = scene.depth(), scene.clip()
    assert depth is not None
    assert clip is not None
    np.testing.assert_allclose(depth.metres, metres(), rtol=1e-5)
    np.testing.assert_array_equal(clip.frames, rgb_frames()[:, ::-1])
    checked = check_request(request_from_mapping({"scene": tmp_path / "run.npz", "prompt": "x"}))
    assert checked.num_frames == FRAMES
    np.savez(tmp_path / "half.npz", rgb=rgb_frames(), depth=buffer, znear=znear)
    with pytest.raises(ShapeError, match="znear, zfar, extent, or none"):
        open_scene(tmp_path / "half.npz")


def test_a_plain_folder_may_be_upside_down(tmp_path: Path) -> None:
    write_pictures(tmp_path / "rgb", rgb_frames()[:, ::-1])
    np.save(tmp_path / "depth.npy", metres()[:, ::-1])
    ids = np.zeros((FRAMES, HEIGHT, WIDTH), np.int32)
    ids[:, :3] = 1
    np.save(tmp_path / "seg.npy", ids[:, ::-1])
    turned = {"flip_vertical": True}
    settings = turned | {"depth": turned, "seg": turned}
    (tmp_path / "scene.json").write_text(json.dumps(settings))
    scene = open_scene(tmp_path)
    clip, depth, seg = scene.clip(), scene.depth(), scene.segmentation()
    assert clip is not None
    assert depth is not None
    assert seg is not None
    np.testing.assert_array_equal(clip.frames, rgb_frames())
    np.testing.assert_array_equal(depth.metres, metres())
    np.testing.assert_array_equal(seg.ids, ids)
    request = request_from_mapping({"scene": tmp_path, "prompt": "night"})
    assert request.flip_vertical
    assert all(each.flip_vertical for each in request.controls)
    (tmp_path / "scene.json").write_text(json.dumps({"flip_vertical": "yes"}))
    with pytest.raises(ConfigError, match="true or false under flip_vertical"):
        open_scene(tmp_path)


def test_a_spec_may_say_which_tool_wrote_the_recording(tmp_path: Path) -> None:
    plain_scene(tmp_path)
    asked = {"prompt": "night", "scene": {"path": str(tmp_path), "tool": "plain"}}
    assert request_from_mapping(asked).rate == Fraction(30000, 1001)
    with pytest.raises(ConfigError, match="scene, tool: expected one of"):
        request_from_mapping(asked | {"scene": {"path": str(tmp_path), "tool": "unreal"}})
    with pytest.raises(ConfigError, match="a path, or path and tool"):
        request_from_mapping(asked | {"scene": {"folder": str(tmp_path)}})
