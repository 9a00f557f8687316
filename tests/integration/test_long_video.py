"""Clips of several chunks: frames as they come, prompts by time, and going on after a kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cosmos_transfer.errors import ConfigError, MediaError
from cosmos_transfer.inputs.request import request_from_mapping
from cosmos_transfer.inputs.validate import CheckedRequest, check_request
from cosmos_transfer.inputs.video import read_clip
from cosmos_transfer.outputs.record import read_record
from cosmos_transfer.outputs.writer import write_clip
from cosmos_transfer.pipeline import TransferPipeline
from tests.support.tiny_pipeline import load_tiny, save_tiny


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("checkpoint") / "tiny")


@pytest.fixture(scope="module")
def pipeline(checkpoint: Path) -> TransferPipeline:
    return load_tiny(checkpoint)


def clip(num_frames: int = 30, height: int = 16, width: int = 24) -> np.ndarray:
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 256, (num_frames, height // 4, width // 4, 3), dtype=np.uint8)
    return coarse.repeat(4, axis=1).repeat(4, axis=2)


def checked(pipeline: TransferPipeline, **changes: Any) -> CheckedRequest:
    given = {
        "video": clip(),
        "prompt": "a snowy street at night",
        "controls": {"edge": {"weight": 0.7, "ramp": (0.2, 1.0)}, "vis": 0.5},
        "output_codec": "rgb",
    }
    return check_request(request_from_mapping(given | changes), pipeline.checkpoint.info)


LONG = [
    {},
    {"overlap": 5, "inherit": 1},
    {"overlap": 5, "anchor": True},
    {"overlap": 0},
    {"chunk_frames": 13},
]


@pytest.mark.parametrize("settings", LONG)
def test_frames_that_come_one_chunk_at_a_time_are_the_clip(
    pipeline: TransferPipeline, settings: dict[str, Any], tmp_path: Path
) -> None:
    write_clip(tmp_path / "in.mp4", clip(), rate=10, codec="rgb")
    request = checked(pipeline, video=tmp_path / "in.mp4", **settings)
    whole = pipeline.generate(request)
    assert whole.frames.shape == (30, 16, 24, 3)
    parts = list(pipeline.iterate(request))
    assert len(parts) > 1
    assert [part.start for part in parts] == np.cumsum(
        [0, *[len(part.frames) for part in parts[:-1]]]
    ).tolist()
    assert np.array_equal(np.concatenate([part.frames for part in parts]), whole.frames)
    # The same from memory: what is read as it comes is what is read whole.
    assert np.array_equal(pipeline.generate(checked(pipeline, **settings)).frames, whole.frames)


def test_every_setting_of_a_long_clip_makes_another_one(pipeline: TransferPipeline) -> None:
    made = [pipeline.generate(checked(pipeline, **settings)).frames for settings in LONG]
    for index, one in enumerate(made):
        assert not any(np.array_equal(one, other) for other in made[index + 1 :])


def test_a_written_clip_is_the_saved_one(pipeline: TransferPipeline, tmp_path: Path) -> None:
    request = checked(pipeline, overlap=5, inherit=1)
    saved = pipeline.generate(request).save(tmp_path / "saved")
    seen: list[int] = []
    written = pipeline.write(
        request, tmp_path / "written", resume=True, on_frames=lambda each: seen.append(each.chunk)
    )
    assert written.read_bytes() == saved.read_bytes()
    one, two = (read_record(path.with_suffix(".json")) for path in (saved, written))
    assert (one.weights, one.chunks, one.notes) == (two.weights, two.chunks, two.notes)
    assert seen == list(range(len(one.chunks)))
    assert {each.name for each in tmp_path.iterdir()} == {
        f"{name}.{end}" for name in ("saved", "written") for end in ("mp4", "json")
    }


def test_a_kept_region_is_the_input_in_every_chunk(pipeline: TransferPipeline) -> None:
    mask = np.zeros((16, 24), np.float32)
    mask[:, :8] = 1.0
    made = pipeline.generate(checked(pipeline, keep=mask))
    assert np.array_equal(made.frames[:, :, :8], clip()[:, :, :8])
    assert not np.array_equal(made.frames[:, :, 8:], clip()[:, :, 8:])
    assert made.record.metrics["kept_region"] == {"share": round(1 / 3, 6), "psnr_db": None}


def test_a_prompt_holds_from_its_frame_on(pipeline: TransferPipeline) -> None:
    plain = pipeline.generate(checked(pipeline)).frames
    later = pipeline.generate(checked(pipeline, prompt_schedule={20: "a sunny desert"})).frames
    same = [bool(np.array_equal(a, b)) for a, b in zip(plain, later, strict=True)]
    assert all(same[:17])  # the chunks that end before frame 20
    assert not any(same[17:])  # a chunk hears both prompts where the range begins within it
    never = pipeline.generate(checked(pipeline, prompt_schedule=[[30, "a sunny desert"]])).frames
    assert np.array_equal(never, plain)


@pytest.mark.parametrize(
    ("schedule", "word"),
    [
        ([[5, "a"], [5, "b"]], "increase"),
        ({0: "a"}, "at least 1"),
        ("night", "pairs"),
        ([1], "pairs"),
    ],
)
def test_a_schedule_that_says_nothing_is_refused(schedule: Any, word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        request_from_mapping({"video": "a.mp4", "prompt": "x", "prompt_schedule": schedule})


# ------------------------------------------------------------------------------------- resuming


class _StoppedError(Exception):
    pass


def _stop_after(chunk: int) -> Any:
    def on_frames(each: Any) -> None:
        if each.chunk == chunk:
            raise _StoppedError

    return on_frames


def test_a_run_that_broke_goes_on_behind_its_last_chunk(
    pipeline: TransferPipeline, tmp_path: Path
) -> None:
    request = checked(pipeline, overlap=5, inherit=1)
    whole = pipeline.write(request, tmp_path / "whole").read_bytes()
    with pytest.raises(_StoppedError):
        pipeline.write(request, tmp_path / "out", resume=True, on_frames=_stop_after(2))
    assert [each.name for each in tmp_path.glob("out*")] == []
    folder = tmp_path / ".out.chunks"
    assert len(list(folder.glob("chunk-*.npz"))) == 3
    (folder / "chunk-00002.npz").write_bytes(b"damaged")
    written = pipeline.write(request, tmp_path / "out", resume=True)
    assert written.read_bytes() == whole
    assert not folder.exists()
    record = read_record(written.with_suffix(".json"))
    assert any(note.startswith("resumed: 2 of") for note in record.notes)
    assert record.weights == read_record(tmp_path / "whole.json").weights


def test_chunks_of_another_run_are_not_taken(pipeline: TransferPipeline, tmp_path: Path) -> None:
    with pytest.raises(_StoppedError):
        pipeline.write(checked(pipeline), tmp_path / "out", resume=True, on_frames=_stop_after(1))
    other = checked(pipeline, seed=1)
    with pytest.raises(MediaError, match="chunks of another run"):
        pipeline.write(other, tmp_path / "out", resume=True)
    written = pipeline.write(other, tmp_path / "out", resume=True, overwrite=True)
    assert np.array_equal(read_clip(written).frames, pipeline.generate(other).frames)


def test_a_killed_process_loses_no_finished_chunk(
    pipeline: TransferPipeline, checkpoint: Path, tmp_path: Path
) -> None:
    write_clip(tmp_path / "in.mp4", clip(), rate=10, codec="rgb")
    script = """
import sys, time
from cosmos_transfer.inputs.request import request_from_mapping
from cosmos_transfer.inputs.validate import check_request
from cosmos_transfer.pipeline import TransferPipeline

checkpoint, video, out = sys.argv[1:]
pipeline = TransferPipeline.from_pretrained(checkpoint, device="cpu", show_progress=False)
request = request_from_mapping({"video": video, "prompt": "snow", "controls": {"edge": 1.0}})

def on_frames(each):
    print(each.chunk, flush=True)
    if each.chunk == 1:
        time.sleep(600)

checked = check_request(request, pipeline.checkpoint.info)
pipeline.write(checked, out, resume=True, on_frames=on_frames)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(checkpoint), str(tmp_path / "in.mp4"), "out"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line.strip() == b"1":
            break
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert len(list((tmp_path / ".out.chunks").glob("chunk-*.npz"))) == 2
    request = request_from_mapping(
        {"video": tmp_path / "in.mp4", "prompt": "snow", "controls": {"edge": 1.0}}
    )
    ready = check_request(request, pipeline.checkpoint.info)
    resumed = pipeline.write(ready, tmp_path / "out", resume=True)
    assert any("resumed: 2" in n for n in read_record(resumed.with_suffix(".json")).notes)
    assert resumed.read_bytes() == pipeline.write(ready, tmp_path / "whole").read_bytes()
