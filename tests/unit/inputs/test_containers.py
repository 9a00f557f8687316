from __future__ import annotations

import contextlib
from pathlib import Path

import av
import numpy as np
import pytest

from cosmos_transfer.errors import MediaError
from cosmos_transfer.inputs.containers import declared_end, is_open_ended
from cosmos_transfer.inputs.video import probe_clip

NOISE = np.random.default_rng(0).integers(0, 256, (12, 32, 48, 3), dtype=np.uint8)


def write(path: Path, movflags: str = "", codec: str = "libx264") -> Path:
    options = {"movflags": movflags} if movflags else {}
    with av.open(str(path), "w", options=options) as container:
        stream = container.add_stream(codec, rate=24)
        stream.width, stream.height, stream.pix_fmt = 48, 32, "yuv420p"
        stream.codec_context.gop_size = 4
        for pixels in NOISE:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(stream.encode(None))
    return path


KINDS = [
    ("a.mp4", ""),
    ("faststart.mp4", "faststart"),
    ("fragments.mp4", "frag_keyframe+empty_moov"),
    ("indexed.mp4", "frag_keyframe+global_sidx+empty_moov+default_base_moof"),
    ("a.mov", ""),
    ("a.mkv", ""),
    ("a.avi", ""),
]


@pytest.mark.parametrize(("name", "movflags"), KINDS, ids=[name for name, _ in KINDS])
def test_a_whole_file_ends_where_it_says(tmp_path, name, movflags):
    path = write(tmp_path / name, movflags)
    end = declared_end(path)
    # A segment index counts to the last fragment, before the closing table.
    assert end is not None
    assert 0.9 * path.stat().st_size <= end <= path.stat().st_size
    assert probe_clip(path).num_frames == len(NOISE)


@pytest.mark.parametrize(("name", "movflags"), KINDS, ids=[name for name, _ in KINDS])
def test_a_file_cut_anywhere_never_comes_back_shorter(tmp_path, name, movflags):
    content = write(tmp_path / name, movflags).read_bytes()
    starts = [i - 4 for kind in (b"moof", b"mfra") for i in _places(content, kind)]
    for kept in range(40, len(content) - 1, len(content) // 23):
        (tmp_path / f"cut_{name}").write_bytes(content[:kept])
        if kept in starts:
            continue
        with contextlib.suppress(MediaError):
            assert probe_clip(tmp_path / f"cut_{name}").num_frames == len(NOISE)


def test_fragments_with_an_index_are_missed_when_they_are_gone(tmp_path):
    path = write(tmp_path / "a.mp4", "frag_keyframe+global_sidx+empty_moov+default_base_moof")
    content = path.read_bytes()
    for start in _places(content, b"moof")[1:]:
        path.write_bytes(content[: start - 4])
        with pytest.raises(MediaError, match=f"ends at byte {start - 4:,}"):
            probe_clip(path)


def test_a_file_that_may_have_lost_its_last_fragments_says_so(tmp_path, caplog):
    """Without an index the cut cannot be told; then that is told."""
    path = write(tmp_path / "a.mp4", "frag_keyframe+empty_moov")
    assert not is_open_ended(path)
    probe_clip(path)
    assert caplog.messages == []
    content = path.read_bytes()
    for start in [*_places(content, b"moof")[1:], content.index(b"mfra")]:
        path.write_bytes(content[: start - 4])
        caplog.clear()
        assert 0 < probe_clip(path).num_frames <= len(NOISE)
        assert "whether the last ones are missing cannot be told" in caplog.text


@pytest.mark.parametrize("content", [b"", b"\0" * 64, b"no media", b"\x1a\x45\xdf\xa3"])
def test_what_says_nothing_is_not_judged(tmp_path, content):
    (tmp_path / "a").write_bytes(content)
    assert declared_end(tmp_path / "a") is None
    assert not is_open_ended(tmp_path / "a")


def _places(content: bytes, kind: bytes) -> list[int]:
    return [i for i in range(len(content)) if content.startswith(kind, i)]
