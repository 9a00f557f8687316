from __future__ import annotations

import shutil
from fractions import Fraction

import av
import numpy as np
import pytest
from PIL import Image

from cosmos_transfer.errors import ConfigError, MediaError, ShapeError
from cosmos_transfer.inputs.video import probe_clip, read_clip, uniform_times
from cosmos_transfer.outputs.writer import check_destination, complete_file, slug, write_clip
from tests.unit.inputs.media_files import smooth_frames

NTSC = Fraction(30000, 1001)
UNEVEN = tuple(Fraction(t, 1000) for t in (0, 100, 200, 300, 900, 1000, 1100, 1900))
LOSSLESS = ("ffv1", "rgb", "png")
CODECS = ("h264", *LOSSLESS)


# ------------------------------------------------------------------------- what comes back
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    ("height", "width"), [(48, 64), (49, 65), (48, 65), (49, 64)], ids=lambda n: str(n)
)
def test_every_size_comes_back_exactly(tmp_path, codec, height, width):
    frames = smooth_frames(5, height, width)
    clip = read_clip(write_clip(tmp_path / "a", frames, rate=8, codec=codec))
    assert clip.frames.shape == frames.shape
    if codec in LOSSLESS:
        assert (clip.frames == frames).all()
    else:
        error = clip.frames.astype(int) - frames
        assert np.abs(error).mean() < 1.5
        assert np.abs(error.mean((0, 1, 2))).max() < 1


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    ("num_frames", "rate"),
    [
        (33, NTSC),
        (5, Fraction(8)),
        (7, Fraction(2997, 100)),
        (1, Fraction(24)),
        (9, Fraction(50, 7)),
    ],
    ids=["ntsc", "8fps", "29.97-exactly", "one-frame", "odd-rate"],
)
def test_counts_and_constant_rates_come_back_exactly(tmp_path, codec, num_frames, rate):
    frames = np.zeros((num_frames, 16, 32, 3), np.uint8)
    info = probe_clip(write_clip(tmp_path / "a", frames, rate=rate, codec=codec))
    assert info.num_frames == num_frames
    assert info.times == uniform_times(num_frames, rate)
    assert info.rate == rate


@pytest.mark.parametrize("codec", CODECS)
def test_uneven_times_come_back_exactly(tmp_path, codec):
    frames = smooth_frames(8, 32, 48)
    path = write_clip(tmp_path / "a", frames, times=UNEVEN, rate=10, codec=codec)
    assert read_clip(path).times == UNEVEN


@pytest.mark.parametrize("codec", ["h264", "ffv1", "rgb"])
def test_matroska_brings_constant_rates_back(tmp_path, codec):
    frames = smooth_frames(20, 32, 48)
    path = write_clip(tmp_path / "a.mkv", frames, rate=NTSC, codec=codec)
    assert read_clip(path).times == uniform_times(20, NTSC)


def test_times_that_matroska_cannot_hold_are_refused(tmp_path):
    times = (Fraction(0), Fraction(1, 7), Fraction(1, 3))
    with pytest.raises(ConfigError, match=r"whole milliseconds.*\.mp4"):
        write_clip(tmp_path / "a.mkv", smooth_frames(3, 16, 16), times=times, rate=7)
    path = write_clip(tmp_path / "a.mp4", smooth_frames(3, 16, 16), times=times, rate=7)
    assert read_clip(path).times == times
    assert list(tmp_path.iterdir()) == [path]


def test_times_of_a_phone_come_back(tmp_path, shared_media):
    times = probe_clip(shared_media / "short/portrait_882x1568_vfr60.mp4").times
    frames = np.zeros((len(times), 16, 16, 3), np.uint8)
    path = write_clip(tmp_path / "a.mp4", frames, times=times, rate=60)
    assert probe_clip(path).times == times


def test_the_same_frames_give_the_same_bytes(tmp_path):
    frames = smooth_frames(20, 96, 128)
    first = write_clip(tmp_path / "a.mp4", frames, rate=10).read_bytes()
    assert write_clip(tmp_path / "b.mp4", frames, rate=10).read_bytes() == first


def test_the_clip_to_watch_plays_in_a_browser(tmp_path):
    path = write_clip(tmp_path / "a.mp4", smooth_frames(4, 48, 64), rate=10)
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        assert (stream.codec_context.name, stream.codec_context.pix_fmt) == ("h264", "yuv420p")
        assert stream.codec_context.colorspace == 1  # BT.709, so that players show the colours
    content = path.read_bytes()
    assert 0 < content.find(b"moov") < content.find(b"mdat")


# ------------------------------------------------------------------------- stills and folders
def test_a_still_is_written_as_a_picture(tmp_path):
    frame = smooth_frames(1, 49, 65)
    for name, options in (("a", {"is_still": True}), ("b.png", {}), ("c.mp4", {"is_still": True})):
        path = write_clip(tmp_path / name, frame, rate=24, **options)
        assert path.suffix == ".png"
        assert (np.asarray(Image.open(path)) == frame[0]).all()
        assert read_clip(path).is_still
    with pytest.raises(ShapeError, match="one frame for a still, got 2"):
        write_clip(tmp_path / "d.png", smooth_frames(2, 8, 8), rate=24, is_still=True)


def test_a_folder_of_pictures_is_replaced_only_if_we_wrote_it(tmp_path):
    frames = smooth_frames(3, 16, 16)
    path = write_clip(tmp_path / "out", frames, rate=10, codec="png")
    with pytest.raises(MediaError, match="there already"):
        write_clip(path, frames, rate=10, codec="png")
    write_clip(path, frames[:2], rate=10, codec="png", overwrite=True)
    assert read_clip(path).num_frames == 2
    (path / "thesis.txt").write_text("years of work")
    with pytest.raises(MediaError, match="there already"):
        write_clip(path, frames, rate=10, codec="png", overwrite=True)
    assert (path / "thesis.txt").read_text() == "years of work"


# ------------------------------------------------------------------------- names
def test_nothing_is_overwritten_unless_asked(tmp_path):
    frames = smooth_frames(2, 16, 16)
    path = write_clip(tmp_path / "a.mp4", frames, rate=10)
    before = path.read_bytes()
    with pytest.raises(MediaError, match=r"a name that is free"):
        write_clip(path, frames[:1], rate=10)
    assert path.read_bytes() == before
    write_clip(path, frames[:1], rate=10, overwrite=True)
    assert read_clip(path).num_frames == 1


@pytest.mark.parametrize("name", ["a", "a.mp4", "v1.5"])
@pytest.mark.parametrize(("codec", "is_still"), [("h264", False), ("png", False), ("png", True)])
def test_a_destination_is_refused_beforehand_as_writing_would_refuse_it(
    tmp_path, name, codec, is_still
):
    def check(overwrite=False):
        check_destination(tmp_path / name, codec=codec, overwrite=overwrite, is_still=is_still)

    check()
    assert list(tmp_path.iterdir()) == []
    frames = smooth_frames(1 if is_still else 2, 16, 16)
    written = write_clip(tmp_path / name, frames, rate=10, codec=codec, is_still=is_still)
    with pytest.raises(MediaError, match="that is free"):
        check()
    check(overwrite=True)
    shutil.rmtree(written) if written.is_dir() else written.unlink()
    check()
    (tmp_path / ("v1.5.json" if name == "v1.5" else "a.json")).write_text("{}")
    with pytest.raises(MediaError, match=r"json: expected a name that is free"):
        check()


def test_a_destination_below_a_file_is_refused(tmp_path):
    (tmp_path / "taken").write_text("mine")
    with pytest.raises(MediaError, match="taken, which is not a folder"):
        check_destination(tmp_path / "taken" / "deep" / "a", codec="h264")
    with pytest.raises(MediaError, match="a place that can be written"):
        write_clip(tmp_path / "taken" / "a", smooth_frames(2, 16, 16), rate=10)


def test_a_file_that_appears_meanwhile_is_not_overwritten(tmp_path):
    def write() -> None:
        with complete_file(tmp_path / "a.txt", overwrite=False) as unfinished:
            unfinished.write_text("ours")
            (tmp_path / "a.txt").write_text("theirs")

    with pytest.raises(MediaError, match="there already"):
        write()
    assert (tmp_path / "a.txt").read_text() == "theirs"
    assert list(tmp_path.iterdir()) == [tmp_path / "a.txt"]


def test_a_failure_leaves_nothing_behind(tmp_path):
    def write() -> None:
        with complete_file(tmp_path / "a.mp4", overwrite=False) as unfinished:
            unfinished.write_bytes(b"half")
            raise OSError(28, "No space left on device")

    with pytest.raises(MediaError, match="No space left"):
        write()
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(MediaError, match="can be written") as caught:
        write_clip(tmp_path / "file" / "a.mp4", smooth_frames(1, 16, 16), rate=10)
    assert "\n" not in str(caught.value)


def test_missing_folders_are_made_and_files_are_readable(tmp_path):
    path = write_clip(tmp_path / "new" / "er" / "видео", smooth_frames(1, 16, 16), rate=10)
    assert path.name == "видео.mp4"
    assert path.stat().st_mode & 0o400


@pytest.mark.parametrize(
    ("name", "codec", "message"),
    [
        ("a.avi", "h264", r"\.mp4 or \.mov or \.mkv for the codec h264, got \.avi"),
        ("a.mov", "ffv1", r"\.mp4 or \.mkv for the codec ffv1"),
        ("a.mp4", "hevc", "output_codec: expected h264, ffv1, rgb, png, got 'hevc'"),
    ],
)
def test_names_that_do_not_fit_are_refused(tmp_path, name, codec, message):
    with pytest.raises(ConfigError, match=message):
        write_clip(tmp_path / name, smooth_frames(2, 16, 16), rate=10, codec=codec)


def test_a_dot_in_a_name_is_not_an_ending(tmp_path):
    path = write_clip(tmp_path / "v1.5", smooth_frames(1, 16, 16), rate=10)
    assert path.name == "v1.5.mp4"


@pytest.mark.parametrize(
    ("frames", "times", "kind"),
    [
        (np.zeros((0, 8, 8, 3), np.uint8), (), ShapeError),
        (np.zeros((2, 8, 8, 3), np.float32), None, ShapeError),
        (np.zeros((2, 8, 8, 3), np.uint8), (Fraction(0),), ShapeError),
        (np.zeros((2, 8, 8, 3), np.uint8), (Fraction(0), Fraction(0)), ConfigError),
        (np.zeros((2, 8, 8, 3), np.uint8), (Fraction(1), Fraction(2)), ConfigError),
    ],
    ids=["none", "float", "few-times", "same-times", "late"],
)
def test_clips_that_make_no_sense_are_refused(tmp_path, frames, times, kind):
    with pytest.raises(kind):
        write_clip(tmp_path / "a.mp4", frames, times=times, rate=10)
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------------- slugs
@pytest.mark.parametrize(
    ("text", "start"),
    [
        ('a/b:"c"', "a-b-c-"),
        ("A snowy street, at night!", "a-snowy-street-at-night-"),
        ("../../etc/passwd", "etc-passwd-"),
        ("кухня", "кухня-"),
        ("x" * 300, "x" * 71 + "-"),
        ("", ""),
        ("???", ""),
        ("\0\n", ""),
        ("CON", "con-"),
    ],
)
def test_any_prompt_becomes_a_file_name(tmp_path, text, start):
    name = slug(text)
    assert name.startswith(start)
    assert 8 <= len(name.encode()) <= 80
    assert not set(name) & set('/\\:*?"<>|\0\n ')
    assert name[0] not in ".-"
    (tmp_path / f"{name}.mp4").touch()


def test_slugs_are_cut_between_characters_and_tell_texts_apart():
    long = "кухня и гостиная " * 20
    assert len(slug(long).encode()) <= 80
    assert slug(long) != slug(long + "!")
    assert slug("a b") != slug("a-b")
    assert slug("\ud800broken") != slug("broken")
