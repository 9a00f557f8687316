from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cosmos_transfer.inputs.request import request_from_mapping
from cosmos_transfer.inputs.validate import check_request
from cosmos_transfer.inputs.video import match_length
from cosmos_transfer.long_video.cut import FrameReader, InputCutter
from cosmos_transfer.outputs.writer import write_clip
from cosmos_transfer.shapes import Size


def frames(count: int = 20, height: int = 24, width: int = 36) -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (count, height, width, 3), dtype=np.uint8)


@pytest.fixture
def video(tmp_path: Path) -> Path:
    return write_clip(tmp_path / "in.mp4", frames(), rate=10, codec="rgb")


@pytest.mark.parametrize("policy", ["hold", "loop"])
def test_a_file_is_read_like_an_array(video: Path, policy: str) -> None:
    indices = match_length(20, 50, policy, where="clip")
    from_file = FrameReader(video, indices, size=Size(8, 12), flip_vertical=True)
    from_array = FrameReader(frames(), indices, size=Size(8, 12), flip_vertical=True)
    # Chunks that overlap, one that is anchored, one that is padded, and back to the beginning.
    for wanted in (range(9), range(8, 17), (0, *range(16, 24)), (48, 49, 48, 47), range(2)):
        assert np.array_equal(from_file.at_frames(list(wanted)), from_array.at_frames(list(wanted)))


def test_what_lies_behind_is_forgotten(video: Path) -> None:
    reader = FrameReader(video, np.arange(20))
    for start in range(0, 15, 4):
        reader.at_frames(range(start, start + 5))
        assert len(reader._window) <= 5 + 4 + 1  # the frames, a block, and the anchor


def test_inputs_of_a_chunk_are_those_of_the_clip_at_its_frames(video: Path, tmp_path: Path) -> None:
    edges = frames() // 128 * 255
    blurred = write_clip(tmp_path / "vis.mp4", frames()[::-1].copy(), rate=10, codec="rgb")
    mask = np.linspace(0.1, 1.0, 20, dtype=np.float32)[:, None, None] * np.ones((1, 24, 36), "f4")
    depth = np.random.default_rng(1).uniform(1.0, 9.0, (20, 24, 36)).astype(np.float32)
    ids = (frames()[..., 0] > 127).astype(np.int32) + 1
    request = request_from_mapping(
        {
            "video": video,
            "prompt": "snow",
            "strength": 0.5,
            "resolution": 16,
            "controls": {
                "edge": {"clip": edges, "weight": 0.7, "mask": mask},
                "vis": {"path": blurred, "weight": 0.5, "ramp": (0.0, 1.0)},
                "depth": {"clip": depth, "unit": "m", "weight": 0.3},
                "seg": {"clip": ids, "labels": {1: "robot", 2: "table"}, "weight": {"robot": 0.4}},
            },
        }
    )
    checked = check_request(request)
    whole = InputCutter(checked, estimators=None, multiple=8).at_frames(range(20))
    cutter = InputCutter(checked, estimators=None, multiple=8)
    for wanted in (range(9), range(8, 17), (16, 17, 18, 19, 18)):
        chunk = cutter.at_frames(list(wanted))
        assert chunk.maps.names == whole.maps.names
        assert np.array_equal(chunk.maps.values, whole.maps.values[:, list(wanted)])
        assert chunk.clip is not None
        assert whole.clip is not None
        assert np.array_equal(chunk.clip, whole.clip[list(wanted)])
        for part, all_of_it in zip(chunk.controls, whole.controls, strict=True):
            assert part.name == all_of_it.name
            assert np.array_equal(part.picture, all_of_it.picture[list(wanted)])
    assert cutter.padded_size == Size(16, 24)
    assert any(note.startswith("control 'edge': ") for note in cutter.notes)
