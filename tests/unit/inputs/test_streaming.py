"""Clips in blocks: the same frames, without the whole clip in memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cosmos_transfer.controls.edge import extract_edge
from cosmos_transfer.errors import MediaError, ShapeError
from cosmos_transfer.inputs.video import probe_clip, read_clip, resize_frames, stream_frames
from cosmos_transfer.outputs.writer import write_blocks
from cosmos_transfer.shapes import Size
from tests.unit.inputs.media_files import (
    smooth_frames,
    tag_display_matrix,
    write_pictures,
    write_video,
)

FRAMES = smooth_frames(11, 24, 32)


def folder_of(path: Path) -> Path:
    write_pictures(path, FRAMES)
    return path


def saved(path: Path) -> Path:
    np.save(path, FRAMES)
    return path


def gif(path: Path) -> Path:
    first, *rest = map(Image.fromarray, FRAMES)
    first.save(path, save_all=True, append_images=rest, duration=40)
    return path


@pytest.mark.parametrize(
    "make",
    [
        lambda d: write_video(d / "clip.mp4", FRAMES),
        lambda d: folder_of(d / "frames"),
        lambda d: saved(d / "clip.npy"),
        lambda d: gif(d / "clip.gif"),
    ],
    ids=["video", "folder", "array", "animation"],
)
@pytest.mark.parametrize("size", [None, Size(12, 16)])
def test_blocks_are_the_clip(
    tmp_path: Path, make: Callable[[Path], Path], size: Size | None
) -> None:
    path = make(tmp_path)
    blocks = list(stream_frames(path, size=size, block_frames=4))
    assert [len(block) for block in blocks] == [4, 4, 3]
    np.testing.assert_array_equal(np.concatenate(blocks), read_clip(path, size=size).frames)


@pytest.mark.parametrize("matrix", [(1, 0, 0, 1), (0, 1, -1, 0), (-1, 0, 0, -1), (0, -1, 1, 0)])
def test_scaling_while_reading_is_scaling_what_is_read(
    tmp_path: Path, matrix: tuple[int, int, int, int]
) -> None:
    path = write_video(tmp_path / "clip.mp4", smooth_frames(3, 64, 96))
    tag_display_matrix(path, *matrix)
    whole = read_clip(path).frames
    size = Size(21, 28) if whole.shape[1] < whole.shape[2] else Size(28, 21)
    scaled = read_clip(path, size=size).frames.astype(int)
    assert np.abs(scaled - resize_frames(whole, size, how="area")).max() <= 3


@pytest.mark.parametrize("size", [None, Size(8, 8)])
def test_a_video_that_changes_its_size_is_refused(tmp_path: Path, size: Size | None) -> None:
    path = tmp_path / "clip.ts"
    parts = [write_video(tmp_path / f"{n}.ts", smooth_frames(4, n, 48)) for n in (32, 64)]
    path.write_bytes(b"".join(part.read_bytes() for part in parts))
    with pytest.raises(ShapeError, match="48x64 at frame 4"):
        read_clip(path, size=size)


def test_a_frame_of_another_size_is_refused_where_it_comes(tmp_path: Path) -> None:
    write_pictures(tmp_path, FRAMES[:5])
    last = max(tmp_path.iterdir())
    Image.fromarray(FRAMES[0][:20]).save(last)
    blocks = stream_frames(tmp_path, block_frames=2)
    assert len(next(blocks)) == 2
    with pytest.raises(ShapeError, match="frame 4"):
        list(blocks)


def test_a_clip_streams_through_a_control_into_a_file(tmp_path: Path) -> None:
    source = write_video(tmp_path / "clip.mp4", FRAMES, rate=Fraction(30000, 1001))
    info = probe_clip(source)
    made = write_blocks(
        tmp_path / "edges",
        map(extract_edge, stream_frames(source, block_frames=3)),
        times=info.times,
        rate=info.rate,
        codec="ffv1",
    )
    again = read_clip(made)
    np.testing.assert_array_equal(again.frames, extract_edge(read_clip(source).frames))
    assert again.times == info.times


@pytest.mark.parametrize("codec", ["h264", "png"])
@pytest.mark.parametrize("num_times", [10, 12])
def test_blocks_and_times_that_do_not_agree_leave_nothing(
    tmp_path: Path, codec: str, num_times: int
) -> None:
    times = tuple(Fraction(index, 8) for index in range(num_times))
    with pytest.raises(ShapeError, match=f"{num_times} times"):
        write_blocks(tmp_path / "clip", [FRAMES[:6], FRAMES[6:]], times=times, rate=8, codec=codec)
    assert list(tmp_path.iterdir()) == []


def test_blocks_of_two_sizes_leave_nothing(tmp_path: Path) -> None:
    times = tuple(Fraction(index, 8) for index in range(11))
    with pytest.raises(ShapeError, match="frame 6"):
        write_blocks(tmp_path / "clip", [FRAMES[:6], FRAMES[6:, :20]], times=times, rate=8)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_input_leaves_no_output(tmp_path: Path) -> None:
    source = write_video(tmp_path / "clip.mp4", FRAMES)
    info = probe_clip(source)
    source.write_bytes(source.read_bytes()[:-200])
    with pytest.raises(MediaError):
        write_blocks(tmp_path / "out", stream_frames(source), times=info.times, rate=info.rate)
    assert [each.name for each in tmp_path.iterdir()] == ["clip.mp4"]


def test_memory_does_not_grow_with_length(tmp_path: Path) -> None:
    def peak(num_frames: int) -> int:
        path = tmp_path / f"{num_frames}.npy"
        np.save(path, np.resize(FRAMES, (num_frames, 24, 32, 3)))
        times = tuple(Fraction(index, 30) for index in range(num_frames))
        tracemalloc.start()
        blocks = map(extract_edge, stream_frames(path, block_frames=8))
        write_blocks(tmp_path / "clip", blocks, times=times, rate=30, overwrite=True)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    peak(100)  # what is allocated once
    short = peak(100)
    # A time is a fraction, some 100 bytes; a frame is 2,304, and is not kept.
    assert peak(1_000) < short + 900 * 600
