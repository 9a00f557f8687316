from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import save_file

from cosmos_transfer.errors import ConfigError, MediaError, ShapeError
from cosmos_transfer.inputs.masks import check_not_empty, mask_coverage, open_mask, read_mask
from tests.unit.inputs.media_files import numbered_frames, write_pictures, write_video


def saved(tmp_path, picture):
    if isinstance(picture, np.ndarray):
        picture = Image.fromarray(picture)
    picture.save(tmp_path / "mask.png")
    return tmp_path / "mask.png"


def test_grey_is_kept_soft(tmp_path):
    mask = read_mask(saved(tmp_path, Image.new("L", (8, 6), 128)))
    assert mask.shape == (1, 6, 8)
    assert mask.dtype == np.float32
    assert np.unique(mask).tolist() == [np.float32(128 / 255)]


@pytest.mark.parametrize(
    ("color", "luma"),
    [((0, 0, 255), 0.114), ((0, 255, 0), 0.587), ((255, 0, 0), 0.299), ((255, 255, 255), 1.0)],
    ids=["blue", "green", "red", "white"],
)
def test_colour_is_read_as_luma_so_no_colour_is_empty(tmp_path, color, luma):
    mask = read_mask(saved(tmp_path, Image.new("RGB", (8, 6), color)))
    assert mask.max() == mask.min() == pytest.approx(luma, abs=1e-6)


def test_alpha_is_read_where_it_varies(tmp_path):
    rgba = np.full((6, 8, 4), 255, np.uint8)
    rgba[:, 2:, 3] = 0
    mask = read_mask(saved(tmp_path, rgba))
    assert mask_coverage(mask) == pytest.approx(0.25)
    assert mask[0, 0].tolist() == [1, 1, 0, 0, 0, 0, 0, 0]


def test_opaque_pictures_are_read_by_luma(tmp_path):
    rgba = np.full((6, 8, 4), 255, np.uint8)
    rgba[:, 2:, :3] = 51
    assert read_mask(saved(tmp_path, rgba))[0, 0, 7] == pytest.approx(0.2)


def test_a_wholly_transparent_picture_selects_nothing(tmp_path):
    rgba = np.full((6, 8, 4), 255, np.uint8)
    rgba[..., 3] = 0
    assert not read_mask(saved(tmp_path, rgba)).any()


def test_alpha_is_judged_over_the_whole_clip(tmp_path):
    rgba = np.full((3, 6, 8, 4), 255, np.uint8)
    rgba[1, ..., 3] = 0
    write_pictures(tmp_path, rgba)
    assert read_mask(tmp_path).mean((1, 2)).tolist() == [1, 0, 1]


def test_sixteen_bits_are_read_in_full(tmp_path):
    mask = read_mask(saved(tmp_path, np.array([[0, 300, 32768, 65535]], np.uint16)))
    np.testing.assert_allclose(mask[0, 0], np.array([0, 300, 32768, 65535]) / 65535, rtol=1e-6)


@pytest.mark.parametrize(
    "mask",
    [
        np.array([[[False, True]]]),
        np.array([[0, 1]], np.uint8),
        np.array([[0, 255]], np.uint8),
        np.array([[0, 65535]], np.uint16),
        np.array([[0, 1]], np.int64),
        np.array([[0.0, 1.0]]),
        np.array([[0.0, 1.0]], np.float16),
        np.array([[[[0.0], [1.0]]]], np.float32),
    ],
    ids=lambda mask: f"{mask.dtype}-{mask.ndim}",
)
def test_off_and_on_in_every_type(mask):
    assert read_mask(mask).tolist() == [[[0.0, 1.0]]]


def test_a_picture_of_zeros_and_ones_is_off_and_on(tmp_path):
    assert read_mask(saved(tmp_path, np.array([[0, 1, 1]], np.uint8))).tolist() == [[[0, 1, 1]]]


@pytest.mark.parametrize("mode", ["1", "P"])
def test_one_bit_and_palette_pictures(tmp_path, mode):
    picture = Image.fromarray(np.array([[0, 255, 0]], np.uint8)).convert(mode)
    assert read_mask(saved(tmp_path, picture)).tolist() == [[[0, 1, 0]]]


def test_inverting_turns_it_round():
    soft = np.array([[0.0, 0.25, 1.0]], np.float32)
    assert read_mask(soft, invert=True).tolist() == [[[1.0, 0.75, 0.0]]]


def test_a_video_mask_is_read_frame_by_frame(tmp_path):
    frames = np.zeros((4, 32, 48, 3), np.uint8)
    for index in range(4):
        frames[index, :, : 12 * index] = 255
    mask = read_mask(write_video(tmp_path / "mask.mp4", frames))
    assert mask.mean((1, 2)) == pytest.approx([0, 0.25, 0.5, 0.75], abs=0.01)
    assert mask.max() == 1.0
    assert mask.min() == 0.0


@pytest.mark.parametrize("save", [np.save, np.savez], ids=["npy", "npz"])
def test_array_files(tmp_path, save):
    path = tmp_path / f"mask.{'npy' if save is np.save else 'npz'}"
    save(path, np.full((3, 4, 5), 0.5, np.float32))
    assert read_mask(path).shape == (3, 4, 5)


def test_a_gif_is_a_moving_mask(tmp_path):
    frames = [Image.fromarray(f) for f in numbered_frames(3)]
    frames[0].save(tmp_path / "m.gif", save_all=True, append_images=frames[1:], duration=100)
    assert len(read_mask(tmp_path / "m.gif")) == 3


@pytest.mark.parametrize(
    ("array", "read_as"),
    [
        (np.array([[False, True]]), "off and on"),
        (np.array([[0.0, 0.5]], np.float32), "0 to 1"),
        (np.array([[0, 128]], np.uint8), "0 to 255"),
        (np.array([[0, 300]], np.uint16), "0 to 65535"),
        (np.array([[0, 128]], np.int32), "0 to 255"),
        (np.array([[0.0, 127.5, 255.0]], np.float32), "0 to 255"),
    ],
    ids=["bool", "fractions", "uint8", "uint16", "int32", "levels as floats"],
)
def test_the_range_of_an_array_is_found_and_said(array, read_as):
    mask = open_mask(array)
    assert mask.read_as == read_as
    top = {"off and on": 1, "0 to 1": 1, "0 to 255": 255, "0 to 65535": 65535}[read_as]
    np.testing.assert_array_equal(mask.values, np.float32(array[None] / top))


def test_pictures_say_whether_luma_or_alpha_was_read(tmp_path):
    rgba = np.full((6, 8, 4), 255, np.uint8)
    assert open_mask(saved(tmp_path, rgba)).read_as == "luma"
    rgba[:, 2:, 3] = 0
    assert open_mask(saved(tmp_path, rgba)).read_as == "alpha"


def test_binary_makes_grey_black_or_white_before_it_is_turned_round():
    soft = np.array([[0.0, 0.49, 0.5, 1.0]], np.float32)
    assert read_mask(soft, binary=True).tolist() == [[[0, 0, 1, 1]]]
    turned = open_mask(soft, binary=True, invert=True)
    assert turned.values.tolist() == [[[1, 1, 0, 0]]]
    assert turned.read_as == "0 to 1, white from 0.5 on, inverted"


# ------------------------------------------------------------------------- what is refused
@pytest.mark.parametrize("bad", [np.nan, np.inf, -0.1, 1.5, 200.0, 256.0])
def test_values_outside_the_range_are_refused(bad):
    mask = np.full((4, 4), 0.5, np.float32)
    mask[1, 1] = bad
    with pytest.raises(ConfigError, match=r"finite values in \[0, 1\]"):
        read_mask(mask)


@pytest.mark.parametrize("top", [2.0, 100.0])
def test_levels_that_may_be_percent_are_refused(top):
    with pytest.raises(ConfigError, match=r"finite values in \[0, 1\]"):
        read_mask(np.full((4, 4), top, np.float32))


def test_whole_numbers_without_a_scale_are_refused():
    with pytest.raises(ConfigError, match="0 to 300"):
        read_mask(np.array([[0, 300]], np.int64))


def test_files_that_can_run_code_are_refused(tmp_path):
    (tmp_path / "weights.pt").write_bytes(b"PK\x03\x04")
    with pytest.raises(ConfigError, match=r"\.pt, which can run code"):
        read_mask(tmp_path / "weights.pt")
    np.save(tmp_path / "m.npy", np.array([[0, None]], dtype=object), allow_pickle=True)
    with pytest.raises(MediaError, match="can run code"):
        read_mask(tmp_path / "m.npy")


def test_masks_with_other_axes_are_refused():
    with pytest.raises(ShapeError, match="frames x height x width"):
        read_mask(np.zeros((2, 3, 4, 5), np.float32))


def test_an_empty_mask_is_an_error_unless_allowed():
    empty = np.zeros((1, 4, 4), np.float32)
    with pytest.raises(ConfigError, match=r"control 'edge', mask: .*selects nothing.*allow_empty"):
        check_not_empty(empty, where="control 'edge', mask", allow_empty=False)
    check_not_empty(empty, where="mask", allow_empty=True)
    empty[0, 0, 0] = 0.01
    check_not_empty(empty, where="mask", allow_empty=False)


def test_the_real_masks_are_read(shared_media):
    mask = read_mask(shared_media / "masked/mask_832x480_81f_16fps.mp4")
    assert mask.shape == (81, 480, 832)
    assert (mask.min(), mask.max()) == (0, 1)
    assert 0.6 < mask_coverage(mask) < 0.7


def test_a_safetensors_file_is_an_array(tmp_path: Path) -> None:
    soft = np.linspace(0.0, 1.0, 2 * 4 * 6, dtype=np.float32).reshape(2, 4, 6)
    save_file({"weights": soft}, tmp_path / "map.safetensors")
    np.testing.assert_array_equal(read_mask(tmp_path / "map.safetensors"), soft)
    save_file({"one": soft, "two": soft}, tmp_path / "two.safetensors")
    with pytest.raises(MediaError, match="one array"):
        read_mask(tmp_path / "two.safetensors")
    (tmp_path / "cut.safetensors").write_bytes((tmp_path / "map.safetensors").read_bytes()[:40])
    with pytest.raises(MediaError, match="read and decoded"):
        read_mask(tmp_path / "cut.safetensors")
