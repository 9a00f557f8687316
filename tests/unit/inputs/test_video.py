from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest
from PIL import Image

from cosmos_transfer.errors import MediaError, ShapeError
from cosmos_transfer.inputs.media import picture_size, read_picture
from cosmos_transfer.inputs.video import (
    VideoClip,
    clip_from_array,
    file_sha256,
    match_length,
    nearest_rate,
    probe_clip,
    read_clip,
    resize_frames,
    uniform_times,
)
from cosmos_transfer.shapes import Size
from tests.unit.inputs.media_files import (
    numbered_frames,
    smooth_frames,
    tag_display_matrix,
    write_pictures,
    write_video,
)

NTSC = Fraction(30000, 1001)


# ------------------------------------------------------------------------- counts, rates, times
@pytest.mark.parametrize(
    ("num_frames", "rate"),
    [
        (110, NTSC),
        (49, Fraction(16)),
        (5, Fraction(8)),
        (1, Fraction(24)),
        (60, Fraction(60000, 1001)),
    ],
    ids=["v03-110-ntsc", "v04-49", "v06-8fps", "one-frame", "59.94"],
)
def test_frames_are_counted_and_the_rate_is_kept_as_a_fraction(tmp_path, num_frames, rate):
    path = write_video(tmp_path / "a.mp4", np.zeros((num_frames, 16, 32, 3), np.uint8), rate=rate)
    info = probe_clip(path)
    assert (info.num_frames, info.rate, info.size) == (num_frames, rate, Size(16, 32))
    clip = read_clip(path)
    assert clip.times == info.times == uniform_times(num_frames, rate)
    assert clip.num_frames == num_frames


@pytest.mark.parametrize("kind", ["video", "folder", "still", "array"])
def test_scaling_while_reading_is_scaling_afterwards(tmp_path, kind):
    frames = smooth_frames(3, 24, 32)
    if kind == "video":
        path = write_video(tmp_path / "a.mp4", frames)
    elif kind == "folder":
        path = write_pictures(tmp_path / "a", frames)
    elif kind == "still":
        path = tmp_path / "a.png"
        Image.fromarray(frames[0]).save(path)
    else:
        path = tmp_path / "a.npy"
        np.save(path, frames)
    whole, scaled = read_clip(path), read_clip(path, size=Size(9, 12))
    expected = resize_frames(whole.frames, Size(9, 12), how="area")
    assert expected.shape[1:] == (9, 12, 3)
    if kind == "video":  # its planes are averaged before they become RGB: inputs/colors.py
        original = resize_frames(frames, Size(9, 12), how="area").astype(int)
        error, after = (np.abs(each - original) for each in (scaled.frames, expected))
        assert error.mean() < after.mean()
        assert error.max() <= 4
    else:
        assert np.array_equal(scaled.frames, expected)
    assert (scaled.times, scaled.rate, scaled.is_still) == (whole.times, whole.rate, whole.is_still)


def test_a_variable_frame_rate_keeps_its_times(tmp_path):
    ticks = [0, 100, 200, 300, 900, 1000, 1100, 1900]
    path = write_video(
        tmp_path / "vfr.mp4", numbered_frames(8), ticks=ticks, time_base=Fraction(1, 1000)
    )
    clip = read_clip(path)
    assert clip.times == tuple(Fraction(t, 1000) for t in ticks)
    assert float(clip.rate) == pytest.approx(7 / 1.9)
    levels = clip.frames[:, 16, 24, 0].astype(int)
    assert np.abs(levels - np.arange(8) * 10).max() <= 2


def test_times_start_at_zero_wherever_the_file_starts(tmp_path):
    path = write_video(
        tmp_path / "late.mkv",
        numbered_frames(3),
        ticks=[500, 600, 750],
        time_base=Fraction(1, 1000),
    )
    assert read_clip(path).times == (0, Fraction(1, 10), Fraction(1, 4))


def test_matroska_milliseconds_are_read_back_as_the_exact_rate(tmp_path):
    path = write_video(tmp_path / "a.mkv", numbered_frames(20), rate=NTSC)
    clip = read_clip(path)
    assert clip.rate == NTSC
    assert clip.times == uniform_times(20, NTSC)


def test_a_given_rate_replaces_the_clock(tmp_path):
    path = write_video(tmp_path / "a.mp4", numbered_frames(4), rate=10)
    assert read_clip(path, rate=Fraction(5)).times == uniform_times(4, Fraction(5))
    assert probe_clip(path, rate=Fraction(5)).rate == 5


def test_max_frames_reads_from_the_start(tmp_path):
    path = write_video(tmp_path / "a.mp4", numbered_frames(9))
    clip = read_clip(path, max_frames=4)
    assert clip.num_frames == 4
    assert clip.times == uniform_times(4, Fraction(10))


@pytest.mark.parametrize(
    ("given", "expected"),
    [(Fraction("29.97"), NTSC), (Fraction("23.976"), Fraction(24000, 1001)), (Fraction(25), 25)],
)
def test_decimal_rates_are_the_ntsc_ones(given, expected):
    assert nearest_rate(given) == expected


# ------------------------------------------------------------------------- upright, once
@pytest.mark.parametrize(
    ("matrix", "turn"),
    [
        ((1, 0, 0, 1), lambda f: f),
        ((0, 1, -1, 0), lambda f: np.rot90(f, -1, (1, 2))),
        ((-1, 0, 0, -1), lambda f: np.rot90(f, 2, (1, 2))),
        ((0, -1, 1, 0), lambda f: np.rot90(f, 1, (1, 2))),
        ((-1, 0, 0, 1), lambda f: f[:, :, ::-1]),
        ((0, 1, 1, 0), lambda f: f.swapaxes(1, 2)),
    ],
    ids=["upright", "90", "180", "270", "mirror", "transpose"],
)
def test_the_display_matrix_is_applied_once(tmp_path, matrix, turn):
    frames = smooth_frames(2, 48, 80)
    path = write_video(tmp_path / "phone.mp4", frames)
    tag_display_matrix(path, *matrix)
    clip = read_clip(path)
    expected = turn(frames)
    assert clip.frames.shape == expected.shape
    assert probe_clip(path).size == clip.size
    assert np.abs(clip.frames.astype(int) - expected).mean() < 2.5


def test_exif_orientation_is_applied_once(tmp_path):
    pixels = smooth_frames(1, 40, 60)[0]
    exif = Image.Exif()
    exif[0x0112] = 6  # shown turned 90 degrees clockwise
    Image.fromarray(pixels).save(tmp_path / "phone.jpg", quality=95, exif=exif)
    clip = read_clip(tmp_path / "phone.jpg")
    assert clip.size == probe_clip(tmp_path / "phone.jpg").size == Size(60, 40)
    assert np.abs(clip.frames[0].astype(int) - np.rot90(pixels, -1)).mean() < 3
    folder = tmp_path / "phones"
    folder.mkdir()
    (tmp_path / "phone.jpg").rename(folder / "0.jpg")
    assert probe_clip(folder).size == read_clip(folder).size == Size(60, 40)


def test_colours_are_not_shifted_by_decoding(tmp_path):
    frames = smooth_frames(3, 64, 96)
    path = write_video(tmp_path / "a.mp4", frames, options={"crf": "4"})
    error = read_clip(path).frames.astype(int) - frames
    assert np.abs(error.mean((0, 1, 2))).max() < 0.5
    assert np.abs(error).mean() < 1.5


# ------------------------------------------------------------------------- where clips come from
def test_a_path_outside_ascii_is_read(tmp_path):
    folder = tmp_path / "кухня 1"
    folder.mkdir()
    path = write_video(folder / "видео.mp4", numbered_frames(3))
    assert read_clip(path).num_frames == 3
    Image.new("RGB", (8, 6)).save(folder / "картина.png")
    assert read_clip(folder / "картина.png").is_still


@pytest.mark.parametrize("ending", ["png", "jpg", "webp", "bmp"])
def test_a_picture_is_a_still_whatever_it_is_called(tmp_path, ending):
    pixels = smooth_frames(1, 20, 30)[0]
    Image.fromarray(pixels).save(tmp_path / f"a.{ending}")
    (tmp_path / f"a.{ending}").rename(tmp_path / "picture.dat")
    clip = read_clip(tmp_path / "picture.dat")
    assert clip.is_still
    assert probe_clip(tmp_path / "picture.dat").kind == "still"
    assert np.abs(clip.frames[0].astype(int) - pixels).mean() < 4


def test_huge_pictures_are_read_up_to_a_limit_that_is_stated(tmp_path, monkeypatch):
    path = tmp_path / "huge.png"
    Image.new("L", (9_500, 9_500), 7).save(path, compress_level=1)
    assert picture_size(path) == (9_500, 9_500)
    pixels = read_picture(path, mode="L")
    assert (pixels.shape, pixels[0, 0], pixels[-1, -1]) == ((9_500, 9_500), 7, 7)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10_000)
    with pytest.raises(MediaError, match=r"at most 178,956,970 pixels, .*tiles"):
        read_picture(path)


def test_a_gif_keeps_its_durations(tmp_path):
    frames = [Image.fromarray(f) for f in numbered_frames(3)]
    frames[0].save(
        tmp_path / "a.gif", save_all=True, append_images=frames[1:], duration=[100, 300, 50]
    )
    clip = read_clip(tmp_path / "a.gif")
    assert not clip.is_still
    assert clip.times == (0, Fraction(1, 10), Fraction(4, 10))
    assert probe_clip(tmp_path / "a.gif").kind == "animation"


def test_sixteen_bit_grey_pictures_become_eight_bit_grey(tmp_path):
    Image.fromarray(np.array([[0, 32896, 65535]], np.uint16)).save(tmp_path / "a.png")
    assert read_clip(tmp_path / "a.png").frames[0, 0, :, 1].tolist() == [0, 128, 255]


def test_a_folder_is_ordered_by_frame_number(tmp_path):
    frames = numbered_frames(12)
    write_pictures(tmp_path / "f", frames, first=5, name="sim_{}.png")
    clip = read_clip(tmp_path / "f")
    assert (clip.frames == frames).all()
    assert clip.rate == 24
    assert probe_clip(tmp_path / "f", rate=Fraction(15)).times == uniform_times(12, Fraction(15))


def test_the_number_that_changes_counts_the_frames(tmp_path):
    frames = numbered_frames(11)
    write_pictures(tmp_path, frames, name="{}_cam0.png")
    assert (read_clip(tmp_path).frames == frames).all()


def test_missing_frames_are_named(tmp_path):
    write_pictures(tmp_path, numbered_frames(6), first=16)
    (tmp_path / "frame_0018.png").unlink()
    (tmp_path / "frame_0019.png").unlink()
    with pytest.raises(MediaError, match=r"from 16 to 21, got 4 files with 2 missing \(18, 19\)"):
        read_clip(tmp_path)


def test_equal_steps_of_numbers_are_no_gaps_and_are_told(tmp_path, caplog):
    frames = numbered_frames(4)
    for index, pixels in enumerate(frames):
        Image.fromarray(pixels).save(tmp_path / f"{5 * index + 3:04d}.png")
    assert (read_clip(tmp_path).frames == frames).all()
    assert "in steps of 5, from 3 to 18" in caplog.text
    (tmp_path / "0008.png").unlink()
    with pytest.raises(MediaError, match=r"from 3 to 18, got 3 files with 13 missing"):
        read_clip(tmp_path)


def test_two_series_in_one_folder_are_told_apart_by_a_pattern(tmp_path):
    write_pictures(tmp_path, numbered_frames(3), name="rgb_{:04d}.png")
    write_pictures(tmp_path, numbered_frames(4) + 1, name="normals_{:04d}.png")
    with pytest.raises(MediaError, match=r"one series.*normals_\*\.png and rgb_\*\.png"):
        read_clip(tmp_path)
    assert read_clip(tmp_path / "rgb_*.png").num_frames == 3


def test_one_number_twice_is_refused(tmp_path):
    write_pictures(tmp_path, numbered_frames(1), name="f_{}.png", first=1)
    write_pictures(tmp_path, numbered_frames(1), name="f_{:02d}.png", first=1)
    with pytest.raises(MediaError, match="two for 1"):
        read_clip(tmp_path)


def test_frames_of_two_sizes_are_refused(tmp_path):
    write_pictures(tmp_path, numbered_frames(2))
    Image.new("RGB", (10, 10)).save(tmp_path / "frame_0002.png")
    for read in (read_clip, probe_clip):
        with pytest.raises(ShapeError, match="48x32, like the first, got 10x10 at frame 2"):
            read(tmp_path)


@pytest.mark.parametrize("ending", ["npy", "npz"])
def test_arrays_are_read(tmp_path, ending):
    frames = numbered_frames(3)
    save = np.save if ending == "npy" else np.savez
    save(tmp_path / f"a.{ending}", frames)
    clip = read_clip(tmp_path / f"a.{ending}")
    assert (clip.frames == frames).all()
    assert probe_clip(tmp_path / f"a.{ending}").num_frames == 3


def test_our_own_times_beside_a_folder_are_read(tmp_path):
    write_pictures(tmp_path, numbered_frames(3))
    told = {"rate": "10", "times": ["0", "1/10", "1/2"]}
    (tmp_path / "times.json").write_text(json.dumps(told))
    assert read_clip(tmp_path).times == (0, Fraction(1, 10), Fraction(1, 2))
    assert read_clip(tmp_path, max_frames=2).times == (0, Fraction(1, 10))
    told["times"].pop()
    (tmp_path / "times.json").write_text(json.dumps(told))
    with pytest.raises(MediaError, match="a time for each of the 3 frames, got 2"):
        read_clip(tmp_path)


# ------------------------------------------------------------------------- what is refused
def one_line(error: BaseException) -> str:
    text = str(error)
    assert "\n" not in text
    assert "expected" in text
    assert "got" in text
    return text


def test_a_missing_file_names_its_nearest_neighbour(tmp_path):
    write_video(tmp_path / "kitchen.mp4", numbered_frames(1))
    with pytest.raises(MediaError) as caught:
        read_clip(tmp_path / "kichen.mp4")
    assert "kitchen.mp4?" in one_line(caught.value)


def test_a_broken_video_is_one_line(tmp_path):
    (tmp_path / "broken.mp4").write_bytes(b"not a video at all " * 50)
    for read in (read_clip, probe_clip):
        with pytest.raises(MediaError) as caught:
            read(tmp_path / "broken.mp4")
        assert "decoded" in one_line(caught.value)


def test_a_video_cut_short_is_refused(tmp_path):
    path = write_video(
        tmp_path / "whole.mp4",
        np.random.default_rng(0).integers(0, 256, (8, 48, 64, 3), dtype=np.uint8),
    )
    content = path.read_bytes()
    for kept in (len(content) // 2, len(content) - 100):
        (tmp_path / "cut.mp4").write_bytes(content[:kept])
        for read in (read_clip, probe_clip):
            with pytest.raises(MediaError, match=f"ends at byte {kept:,}") as caught:
                read(tmp_path / "cut.mp4")
            one_line(caught.value)


def test_damage_inside_a_video_never_shortens_it_without_a_word(tmp_path):
    frames = np.random.default_rng(0).integers(0, 256, (8, 48, 64, 3), dtype=np.uint8)
    path = write_video(tmp_path / "a.mp4", frames)
    content = bytearray(path.read_bytes())
    middle = content.find(b"mdat") + (len(content) - content.find(b"mdat")) // 2
    content[middle : middle + 4000] = bytes(4000)
    path.write_bytes(bytes(content))
    with pytest.raises(MediaError) as caught:
        read_clip(path)
    assert "Errno" not in one_line(caught.value)


def test_an_empty_file_is_refused(tmp_path):
    (tmp_path / "empty.mp4").touch()
    with pytest.raises(MediaError, match="0 bytes"):
        read_clip(tmp_path / "empty.mp4")


def test_a_damaged_picture_is_refused(tmp_path):
    Image.fromarray(smooth_frames(1, 64, 64)[0]).save(tmp_path / "a.png")
    content = (tmp_path / "a.png").read_bytes()
    (tmp_path / "a.png").write_bytes(content[: len(content) // 2])
    with pytest.raises(MediaError) as caught:
        read_clip(tmp_path / "a.png")
    one_line(caught.value)


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(MediaError, match="got none"):
        read_clip(tmp_path)


def test_zero_frames_are_refused(tmp_path):
    np.save(tmp_path / "none.npy", np.zeros((0, 8, 8, 3), np.uint8))
    with pytest.raises(ShapeError, match="at least one frame"):
        read_clip(tmp_path / "none.npy")
    with pytest.raises(ShapeError, match="at least one frame"):
        VideoClip(frames=np.zeros((0, 8, 8, 3), np.uint8), times=(), rate=Fraction(1))


def test_pickles_are_not_opened(tmp_path):
    np.save(tmp_path / "a.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(MediaError, match="can run code"):
        read_clip(tmp_path / "a.npy")


def test_float_arrays_are_refused_with_their_shape(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((2, 8, 8, 3), np.float32))
    with pytest.raises(ShapeError, match=r"uint8.*\(2, 8, 8, 3\) float32"):
        read_clip(tmp_path / "a.npy")


def test_a_rotation_that_is_not_a_quarter_turn_is_refused(tmp_path):
    path = write_video(tmp_path / "a.mp4", numbered_frames(1))
    tag_display_matrix(path, 1, 1, -1, 1)
    with pytest.raises(MediaError, match="multiple of 90"):
        read_clip(path)


# ------------------------------------------------------------------------- sizes and lengths
def test_nearest_invents_no_value():
    ids = np.repeat(np.arange(3, dtype=np.int32), 4)[None, None, :] + np.zeros((1, 10, 1), np.int32)
    grown = resize_frames(ids, Size(17, 20), how="nearest")
    assert grown.shape == (1, 17, 20)
    assert np.unique(grown).tolist() == [0, 1, 2]
    assert (resize_frames(grown, Size(10, 12), how="nearest") == ids).all()


def test_nearest_takes_pixel_centres():
    row = np.arange(4, dtype=np.int32)[None, None]
    assert resize_frames(row, Size(1, 2), how="nearest").tolist() == [[[1, 3]]]
    assert resize_frames(row, Size(1, 8), how="nearest").tolist() == [[[0, 0, 1, 1, 2, 2, 3, 3]]]


@pytest.mark.parametrize("how", ["area", "linear", "nearest", "lanczos"])
@pytest.mark.parametrize("size", [Size(11, 7), Size(31, 50)], ids=["smaller", "larger"])
def test_a_flat_picture_stays_flat(how, size):
    flat = np.full((2, 20, 30, 3), 77, np.uint8)
    assert (resize_frames(flat, size, how=how) == 77).all()


def test_area_shrinks_by_means():
    frames = np.arange(16, dtype=np.float32).reshape(1, 4, 4)
    halves = resize_frames(frames, Size(2, 2), how="area")
    assert halves[0].tolist() == [[2.5, 4.5], [10.5, 12.5]]


@pytest.mark.parametrize(
    ("have", "want", "policy", "expected"),
    [
        (3, 3, "refuse", [0, 1, 2]),
        (5, 3, "trim", [0, 1, 2]),
        (2, 4, "hold", [0, 1, 1, 1]),
        (2, 5, "loop", [0, 1, 0, 1, 0]),
        (5, 2, "loop", [0, 1]),
    ],
)
def test_length_policies_choose_frames(have, want, policy, expected):
    assert match_length(have, want, policy, where="x").tolist() == expected


@pytest.mark.parametrize("policy", ["refuse", "trim"])
def test_a_control_that_is_too_short_is_refused_with_both_counts(policy):
    with pytest.raises(ShapeError, match=r"control 'depth': expected 221 frames.*got 144"):
        match_length(144, 221, policy, where="control 'depth'")


# ------------------------------------------------------------------------- identity
def test_the_hash_of_a_folder_covers_names_and_contents(tmp_path):
    write_pictures(tmp_path / "a", numbered_frames(2))
    write_pictures(tmp_path / "b", numbered_frames(2))
    same = file_sha256(tmp_path / "a")
    assert same == file_sha256(tmp_path / "b")
    (tmp_path / "b" / "frame_0001.png").rename(tmp_path / "b" / "frame_0002.png")
    assert file_sha256(tmp_path / "b") != same
    (tmp_path / "empty").touch()
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert file_sha256(tmp_path / "empty") == empty


def test_a_clip_in_memory_has_a_rate():
    clip = clip_from_array(numbered_frames(3), rate=Fraction(8))
    assert clip.times == (0, Fraction(1, 8), Fraction(1, 4))


# ------------------------------------------------------------------------- real clips
@pytest.mark.parametrize(
    ("name", "num_frames", "size", "rate"),
    [
        ("cosmos_example1/input_video.mp4", 121, Size(480, 640), 30),
        ("cosmos_example1/depth.mp4", 121, Size(480, 640), 30),
        ("masked/video_832x480_81f_16fps.mp4", 81, Size(480, 832), 16),
        ("short/plausibility_280x280_26f_4fps.mp4", 26, Size(280, 280), 4),
        ("short/portrait_512x768_25f.mp4", 25, Size(768, 512), 25),
        ("short/umi_256x256_33f.mp4", 33, Size(256, 256), 20),
    ],
)
def test_real_clips_have_their_counts_and_sizes(shared_media, name, num_frames, size, rate):
    info = probe_clip(shared_media / name)
    assert (info.num_frames, info.size, info.rate) == (num_frames, size, rate)


def test_a_real_variable_rate_phone_clip_keeps_its_times(shared_media):
    info = probe_clip(shared_media / "short/portrait_882x1568_vfr60.mp4")
    assert (info.num_frames, info.size) == (120, Size(1568, 882))
    assert info.times[:3] == (0, Fraction(1, 100), Fraction(16, 600))
