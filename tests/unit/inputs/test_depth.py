from __future__ import annotations

import math
import sys

import av
import numpy as np
import pytest
from PIL import Image

from cosmos_transfer.errors import ConfigError, MediaError, ShapeError
from cosmos_transfer.inputs.depth import (
    DepthClip,
    depth_from_array,
    depth_picture,
    depth_range,
    read_depth,
)
from tests.unit.inputs.media_files import write_pictures, write_video


def slope(num_frames: int = 2, height: int = 8, width: int = 16) -> np.ndarray:
    """Metres from 1 at the left to 3 at the right."""
    row = np.linspace(1, 3, width, dtype=np.float32)
    return np.broadcast_to(row, (num_frames, height, width)).copy()


# ------------------------------------------------------------------------- units
@pytest.mark.parametrize(
    ("unit", "raw", "metres"),
    [
        ("mm", 1500, 1.5),
        ("mm", 65535, 65.535),
        ("kitti256", 2560, 10.0),
        ("tum5000", 1000, 0.2),
        ("m", 300, 300.0),
    ],
)
def test_sixteen_bit_depth_is_read_unchanged_and_scaled_by_its_unit(tmp_path, unit, raw, metres):
    write_pictures(tmp_path, np.array([[[raw, 300, 0]]] * 2, np.uint16))
    depth = read_depth(tmp_path, unit=unit)
    assert depth.metres.dtype == np.float32
    assert depth.metres[1, 0, 0] == pytest.approx(metres, rel=1e-6)
    assert np.isnan(depth.metres[:, :, 2]).all()


def test_sixteen_bit_depth_without_a_unit_is_refused(tmp_path):
    write_pictures(tmp_path, np.array([[[300, 1500, 65535]]], np.uint16))
    with pytest.raises(ConfigError, match=r"unit for uint16 depth, got none.*mm, kitti256"):
        read_depth(tmp_path)


def test_an_unknown_unit_is_refused():
    with pytest.raises(ConfigError, match="unit: expected m, mm"):
        depth_from_array(slope(), unit="feet")


def test_floating_point_depth_is_metres(tmp_path):
    np.save(tmp_path / "depth.npy", slope())
    assert (read_depth(tmp_path / "depth.npy").metres == slope()).all()
    Image.fromarray(slope()[0]).save(tmp_path / "depth.tiff")
    assert (read_depth(tmp_path / "depth.tiff").metres[0] == slope()[0]).all()


def test_a_folder_of_arrays_is_read_in_order(tmp_path):
    for index, frame in enumerate(slope(11) + np.arange(11, dtype=np.float32)[:, None, None]):
        np.save(tmp_path / f"distance_to_image_plane_{index}.npy", frame)
    assert read_depth(tmp_path).metres[:, 0, 0].tolist() == list(range(1, 12))


@pytest.mark.parametrize("metres", [12.345, 0.001, 500.0])
def test_carla_depth_uses_all_24_bits_red_lowest(tmp_path, metres):
    code = round(metres / 1000 * (2**24 - 1))
    rgba = [code & 255, code >> 8 & 255, code >> 16, 255]
    Image.fromarray(np.array([[rgba, [255, 255, 255, 255]]], np.uint8)).save(tmp_path / "d.png")
    depth = read_depth(tmp_path / "d.png", unit="carla24")
    assert depth.metres[0, 0, 0] == pytest.approx(metres, abs=1e-4)
    assert np.isnan(depth.metres[0, 0, 1])  # 1000 m is sky


def test_carla_logarithmic_pictures_are_refused(tmp_path):
    grey = np.repeat(np.arange(0, 256, 15, dtype=np.uint8)[None, :, None], 3, axis=-1)
    Image.fromarray(grey).save(tmp_path / "d.png")
    with pytest.raises(ConfigError, match="logarithmic"):
        read_depth(tmp_path / "d.png", unit="carla24")


@pytest.mark.parametrize("unit", ["carla24", "mm"])
def test_depth_in_bits_does_not_pass_a_lossy_codec(tmp_path, unit):
    path = write_video(tmp_path / "d.mp4", np.zeros((1, 16, 16, 3), np.uint8))
    with pytest.raises(ConfigError, match="lossy video"):
        read_depth(path, unit=unit)


def test_lossless_sixteen_bit_video_is_exact(tmp_path):
    millimetres = np.arange(1, 2 * 16 * 32 + 1, dtype=np.uint16).reshape(2, 16, 32) * 60
    path = write_video(
        tmp_path / "d.mkv",
        millimetres,
        codec="ffv1",
        pixel_format="gray16le",
        source_format="gray16le",
        options={"level": "3"},
    )
    expected = (millimetres / 1000).astype(np.float32)
    assert (read_depth(path, unit="mm").metres == expected).all()


def test_mujoco_buffers_need_their_planes():
    buffer = np.array([[0.0, 0.5, 0.99, 1.0]], np.float32)
    depth = depth_from_array(buffer, unit="mujoco01", near=0.1, far=10.0)
    expected = 0.1 / (1 - np.array([0.0, 0.5, 0.99]) * (1 - 0.1 / 10.0))
    np.testing.assert_allclose(depth.metres[0, 0, :3], expected, rtol=1e-6)
    assert np.isnan(depth.metres[0, 0, 3])  # nothing hit
    with pytest.raises(ConfigError, match="near and far in metres"):
        depth_from_array(buffer, unit="mujoco01")
    with pytest.raises(ConfigError, match=r"in \[0, 1\].*0 to 99"):
        depth_from_array(buffer * 99, unit="mujoco01", near=0.1, far=10.0)


def test_ray_depth_is_turned_into_planar_depth():
    fx, fy, cx, cy = 20.0, 22.0, 8.0, 4.0
    x = (np.arange(16) + 0.5 - cx) / fx
    y = (np.arange(8) + 0.5 - cy) / fy
    wall = 2.5
    ray = wall * np.sqrt(1 + x[None] ** 2 + y[:, None] ** 2).astype(np.float32)
    depth = depth_from_array(ray, unit="m", kind="ray", intrinsics=(fx, fy, cx, cy))
    np.testing.assert_allclose(depth.metres, wall, rtol=1e-6)
    with pytest.raises(ConfigError, match="intrinsics"):
        depth_from_array(ray, unit="m", kind="ray")


# ------------------------------------------------------------------------- no reading
def test_one_bad_pixel_costs_one_pixel():
    clean, bad = slope(), slope()
    bad[0, 0, 5], bad[1, 2, 3], bad[1, 7, 7] = np.inf, np.nan, 0
    depth = depth_from_array(bad)
    assert np.isnan(depth.metres).sum() == 3
    picture, untouched = depth_picture(depth), depth_picture(depth_from_array(clean))
    assert (picture[0, 0, 5] == 0).all()
    known = np.isfinite(depth.metres)
    assert np.abs(picture[known].astype(int) - untouched[known]).max() <= 1
    assert depth.invalid_share == pytest.approx(3 / clean.size)
    assert any("no reading" in note for note in depth.notes)


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0, -1.0])
def test_depth_without_any_reading_is_refused(value):
    with pytest.raises(MediaError, match="at least one finite depth") as caught:
        depth_from_array(np.full((2, 4, 4), value, np.float32))
    assert "\n" not in str(caught.value)


def test_other_values_may_mean_no_reading():
    raw = np.array([[1000, 65535, 0, 2000]], np.uint16)
    depth = depth_from_array(raw, unit="mm", invalid=(65535,))
    assert np.isnan(depth.metres[0, 0]).tolist() == [False, True, True, False]
    assert np.nanmax(depth.metres) == pytest.approx(2.0)
    kept = depth_from_array(raw, unit="mm", invalid=(0, math.inf))
    assert np.nanmax(kept.metres) == pytest.approx(65.535)


def test_an_implausible_unit_is_noted():
    depth = depth_from_array(np.full((1, 4, 4), 1500.0, np.float32))
    assert any("check the unit" in note for note in depth.notes)


# ------------------------------------------------------------------------- the picture
def test_near_is_bright_and_linear_in_inverse_depth():
    z = np.linspace(1.0, 5.0, 1000, dtype=np.float32)[None, None]
    picture = depth_picture(depth_from_array(z))
    assert picture.shape == (1, 1, 1000, 3)
    low, high = np.percentile(z.astype(np.float64), (1, 99))
    expected = np.clip((1 / z.astype(np.float64) - 1 / high) / (1 / low - 1 / high), 0, 1)
    assert np.abs(picture[..., 0] - 255 * expected).max() <= 0.5 + 1e-6
    assert (np.diff(picture[0, 0, :, 0].astype(int)) <= 0).all()


def test_a_thing_entering_the_view_does_not_change_the_rest():
    metres = np.full((6, 20, 20), 4.0, np.float32)
    metres[:, :10] = 2.0
    metres[3:, 12:, 12:] = 0.8  # enters at frame 3
    picture = depth_picture(depth_from_array(metres))
    assert (picture[:, :10] == picture[0, 0, 0]).all()
    assert picture[3, 15, 15, 0] > picture[3, 0, 0, 0]


def test_given_ends_replace_the_percentiles():
    depth = depth_from_array(slope(), near=0.5, far=4.0)
    assert depth_range(depth) == (0.5, 4.0)
    picture = depth_picture(depth)
    assert picture[0, 0, 0, 0] == round(255 * (1 - 1 / 4) / (2 - 1 / 4))
    beyond = depth_picture(depth_from_array(slope() * 4, near=0.5, far=4.0))
    assert beyond[0, 0, -1, 0] == 0


def test_one_single_depth_is_mid_grey():
    assert np.unique(depth_picture(np.full((1, 4, 4), 2.0, np.float32))).tolist() == [128]


# ------------------------------------------------------------------------- relative depth
def test_an_eight_bit_picture_is_taken_as_it_is(tmp_path):
    grey = np.arange(256, dtype=np.uint8).reshape(1, 16, 16)
    write_pictures(tmp_path, grey)
    for unit in (None, "relative"):
        depth = read_depth(tmp_path, unit=unit)
        assert depth.is_relative
        assert (depth_picture(depth) == grey[..., None]).all()
    dark = read_depth(tmp_path, unit="relative", direction="near_dark")
    assert (depth_picture(dark)[..., 0] == 255 - grey).all()


def test_relative_depth_is_ordered_like_depth():
    depth = depth_from_array(np.array([[0, 1, 128, 255]], np.uint8))
    assert np.isnan(depth.metres[0, 0, 0])
    assert depth.metres[0, 0, 1:].tolist() == [255.0, np.float32(255 / 128), 1.0]


def test_floating_point_disparity_is_scaled_once_over_the_clip():
    disparity = np.linspace(-3, 7, 2000, dtype=np.float32).reshape(2, 10, 100)
    picture = depth_picture(depth_from_array(disparity, unit="relative"))[..., 0]
    assert picture.min() == 0
    assert picture.max() == 255
    assert (np.diff(picture.reshape(-1).astype(int)) >= 0).all()


def test_colour_maps_are_not_depth(tmp_path):
    colors = np.random.default_rng(0).integers(0, 256, (1, 8, 8, 3), dtype=np.uint8)
    write_pictures(tmp_path, colors)
    with pytest.raises(ShapeError, match="grey pictures"):
        read_depth(tmp_path)


def test_eight_bits_are_too_few_for_metres(tmp_path):
    write_pictures(tmp_path, np.full((1, 4, 4), 9, np.uint8))
    with pytest.raises(ConfigError, match="more than 8 bits"):
        read_depth(tmp_path, unit="mm")


def test_the_depth_video_of_the_cosmos_example_is_taken_as_it_is(shared_media):
    depth = read_depth(shared_media / "cosmos_example1/depth.mp4")
    assert depth.metres.shape == (121, 480, 640)
    assert depth.is_relative
    assert isinstance(depth, DepthClip)


# ------------------------------------------------------------------------- simulators' codings
def carla_raw(metres: np.ndarray, order: str) -> np.ndarray:
    code = np.rint(metres / 1000.0 * (2**24 - 1)).astype(np.int64)
    channels = [(code >> shift) & 255 for shift in (0, 8, 16)]
    return np.stack(channels if order == "rgb" else channels[::-1], -1).astype(np.uint8)


@pytest.mark.parametrize("order", ["rgb", "bgr"])
def test_carla_depth_is_read_in_the_declared_order(order):
    metres = np.linspace(5.0, 90.0, 2 * 8 * 16).reshape(2, 8, 16)
    depth = depth_from_array(carla_raw(metres, order), unit="carla24", channel_order=order)
    np.testing.assert_allclose(depth.metres, metres, atol=1000 / (2**24 - 1), rtol=1e-6)
    assert not depth.notes


@pytest.mark.parametrize(("order", "other"), [("rgb", "bgr"), ("bgr", "rgb")])
def test_the_wrong_order_of_carlas_channels_is_noticed(order, other):
    metres = np.linspace(5.0, 90.0, 2 * 8 * 16).reshape(2, 8, 16)
    depth = depth_from_array(carla_raw(metres, order), unit="carla24", channel_order=other)
    assert f"channel_order may be {order}" in " ".join(depth.notes)
    with pytest.raises(ConfigError, match="channel_order: expected rgb or bgr"):
        depth_from_array(carla_raw(metres, order), unit="carla24", channel_order="bgra")


def test_mujocos_planes_may_count_in_extents():
    near, far, extent = 0.01, 50.0, 2.0
    metres = np.array([[[0.05, 1.0, 40.0]]])
    low, high = near * extent, far * extent
    buffer = (1.0 - low / metres) / (1.0 - low / high)
    depth = depth_from_array(buffer, unit="mujoco01", near=near, far=far, extent=extent)
    np.testing.assert_allclose(depth.metres, metres, rtol=1e-5)


def lerobot_codes(metres: np.ndarray) -> np.ndarray:
    """As the format says: logarithmic steps from 0.01 m to 10 m, shifted by 3.5 m."""
    share = (np.log(metres + 3.5) - np.log(3.51)) / (np.log(13.5) - np.log(3.51))
    return np.clip(np.rint(share * 4095), 0, 4095).astype(np.uint16)


def test_lerobots_codes_are_logarithmic_steps(tmp_path):
    metres = np.geomspace(0.05, 10.0, 64 * 48).reshape(1, 48, 64)
    codes = lerobot_codes(metres)
    depth = depth_from_array(codes, unit="lerobot12")
    quantum = 13.5 * np.log(13.5 / 3.51) / 4095
    np.testing.assert_allclose(depth.metres, metres, atol=quantum / 2 * 1.01)
    assert depth_from_array(np.uint16([[0, 4095]]), unit="lerobot12").metres[0, 0, 1] == (
        pytest.approx(10.0, abs=1e-5)
    )
    assert np.isnan(depth_from_array(np.uint16([[0, 4095]]), unit="lerobot12").metres[0, 0, 0])
    np.save(tmp_path / "codes.npy", codes)
    assert (read_depth(tmp_path / "codes.npy", unit="lerobot12").metres == depth.metres).all()
    with pytest.raises(ConfigError, match="codes from 0 to 4095"):
        depth_from_array(np.uint16([[4096]]), unit="lerobot12")


def test_lerobots_video_is_read_code_by_code(tmp_path):
    codes = np.arange(1, 48 * 64 + 1, dtype=np.uint16).reshape(48, 64)
    with av.open(str(tmp_path / "depth.mkv"), "w") as container:
        stream = container.add_stream("ffv1", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "gray12le"
        frame = av.VideoFrame.from_ndarray(codes, format="gray12le")
        container.mux([*stream.encode(frame), *stream.encode()])
    depth = read_depth(tmp_path / "depth.mkv", unit="lerobot12")
    expected = depth_from_array(codes, unit="lerobot12").metres
    np.testing.assert_array_equal(depth.metres, expected)
    with pytest.raises(ConfigError, match="lerobot12 for LeRobot's 12-bit depth"):
        read_depth(tmp_path / "depth.mkv", unit="mm")


def test_rows_that_run_from_the_bottom_up_are_turned():
    raw = np.arange(1.0, 7.0, dtype=np.float32).reshape(1, 3, 2)
    depth = depth_from_array(raw, unit="m", flip_vertical=True)
    assert depth.metres[0].tolist() == [[5, 6], [3, 4], [1, 2]]


# ------------------------------------------------------------------------- OpenEXR
def write_exr(path, channels) -> None:
    openexr = pytest.importorskip("OpenEXR", reason="needs the extra exr")
    header = {"compression": openexr.ZIP_COMPRESSION, "type": openexr.scanlineimage}
    with openexr.File(header, channels) as file:
        file.write(str(path))


def test_exr_depth_is_metres_with_its_holes(tmp_path):
    metres = slope()
    metres[0, 0, 0] = np.inf
    for index, frame in enumerate(metres):
        write_exr(tmp_path / f"depth_{index:04d}.exr", {"Z": np.ascontiguousarray(frame)})
    for source in (tmp_path, tmp_path / "depth_*.exr"):
        depth = read_depth(source)
        assert np.isnan(depth.metres[0, 0, 0])
        np.testing.assert_array_equal(depth.metres[1], metres[1])
    assert read_depth(tmp_path / "depth_0001.exr", unit="m").num_frames == 1


def test_the_depth_channel_of_an_exr_is_found_by_its_name(tmp_path):
    metres = np.ascontiguousarray(slope()[0])
    other = np.zeros_like(metres)
    write_exr(tmp_path / "layers.exr", {"R": other, "G": other + 1, "B": other, "depth.Z": metres})
    np.testing.assert_array_equal(read_depth(tmp_path / "layers.exr").metres[0], metres)
    write_exr(tmp_path / "grey.exr", {"R": metres, "G": metres, "B": metres})
    np.testing.assert_array_equal(read_depth(tmp_path / "grey.exr").metres[0], metres)
    write_exr(tmp_path / "color.exr", {"R": metres, "G": metres, "B": other})
    with pytest.raises(ShapeError, match="one channel of depth"):
        read_depth(tmp_path / "color.exr")


def test_a_damaged_exr_is_one_line(tmp_path):
    pytest.importorskip("OpenEXR", reason="needs the extra exr")
    (tmp_path / "cut.exr").write_bytes(b"\x76\x2f\x31\x01 and nothing else")
    with pytest.raises(MediaError, match="OpenEXR picture"):
        read_depth(tmp_path / "cut.exr")


def test_without_the_extra_an_exr_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "OpenEXR", None)
    (tmp_path / "depth.exr").write_bytes(b"\x76\x2f\x31\x01")
    with pytest.raises(ConfigError, match=r"pip install 'cosmos-transfer\[exr\]'"):
        read_depth(tmp_path / "depth.exr")
