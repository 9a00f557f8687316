"""Frames as they come: the same as from a file, and a queue that never grows."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from cosmos_transfer.errors import ConfigError, ShapeError
from cosmos_transfer.live import FrameQueue, LiveFrame, LiveSession
from cosmos_transfer.pipeline import TransferPipeline
from tests.support.tiny_pipeline import load_tiny, save_tiny

CONTROLS = {"edge": 0.7, "vis": 0.2}


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> TransferPipeline:
    return load_tiny(save_tiny(tmp_path_factory.mktemp("checkpoint") / "tiny"))


def frames(count: int, height: int = 16, width: int = 24) -> np.ndarray:
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 256, (count, height // 4, width // 4, 3), dtype=np.uint8)
    return coarse.repeat(4, axis=1).repeat(4, axis=2)


def session(pipeline: TransferPipeline, **changes) -> LiveSession:
    given = {"prompt": "a snowy street", "controls": CONTROLS, "num_inference_steps": 1}
    return LiveSession(pipeline, **(given | changes))


@pytest.mark.parametrize("count", [13, 15, 3])
def test_what_comes_out_live_is_what_the_whole_clip_comes_to(
    pipeline: TransferPipeline, count: int
) -> None:
    made: list[np.ndarray] = []
    report = session(pipeline).run(frames(count), made.append, drop="wait")
    whole = pipeline(
        video=frames(count),
        prompt="a snowy street",
        controls=CONTROLS,
        num_inference_steps=1,
        guidance_scale=1.0,
        chunk_frames=5,
    )
    assert np.array_equal(np.stack(made), whole.frames)
    assert (report.num_in, report.num_out, report.num_dropped) == (count, count, 0)
    assert set(report.latency_s) == {"p50", "p95", "p99"}
    assert report.frames_per_s > 0


def test_a_function_may_be_the_source(pipeline: TransferPipeline) -> None:
    left = list(frames(5))
    made: list[np.ndarray] = []
    report = session(pipeline).run(lambda: left.pop(0) if left else None, made.append)
    assert (len(made), report.num_dropped) == (5, 0)


def test_a_simulator_brings_depth_with_its_frames(pipeline: TransferPipeline) -> None:
    near = {"weight": 1.0, "unit": "m", "near": 0.5, "far": 9.0}

    def run(metres: float) -> np.ndarray:
        depth = np.full((16, 24), metres, np.float32)
        source = [LiveFrame(frame=each, controls={"depth": depth}) for each in frames(5)]
        made: list[np.ndarray] = []
        session(pipeline, controls={"depth": near}).run(source, made.append)
        return np.stack(made)

    assert not np.array_equal(run(1.0), run(8.0))
    with pytest.raises(ConfigError, match="near and far"):
        session(pipeline, controls={"depth": 1.0})


def test_frames_that_come_too_fast_are_dropped_not_kept(pipeline: TransferPipeline) -> None:
    given = frames(200)
    made: list[np.ndarray] = []

    def sink(frame: np.ndarray) -> None:
        made.append(frame)
        time.sleep(0.002)

    report = session(pipeline).run(given, sink, queue_frames=8)
    assert report.num_in == 200
    assert report.num_dropped > 0
    assert report.num_out + report.num_dropped == 200
    assert len(made) == report.num_out


def test_the_queue_drops_by_the_stated_policy() -> None:
    given = [LiveFrame(frame=each) for each in frames(5)]

    def held(drop: str) -> tuple[list[int], int]:
        queue = FrameQueue(3, drop)
        for each in given:
            assert queue.put(each)
        queue.close()
        taken = [frame for _, frame in queue.take(9)]
        assert queue.take(9) == []
        return [given.index(each) for each in taken], queue.num_dropped

    assert held("oldest") == ([2, 3, 4], 2)
    assert held("newest") == ([0, 1, 2], 2)


def test_a_source_that_waits_loses_nothing() -> None:
    queue = FrameQueue(2, "wait")
    source = threading.Thread(
        target=lambda: [queue.put(LiveFrame(frame=each)) for each in frames(6)], daemon=True
    )
    source.start()
    assert [len(queue.take(2)) for _ in range(3)] == [2, 2, 2]
    source.join(timeout=30)
    assert (queue.num_in, queue.num_dropped) == (6, 0)
    queue.close()
    assert not queue.put(LiveFrame(frame=frames(1)[0]))


def test_a_fault_of_the_source_is_raised_where_frames_are_taken(
    pipeline: TransferPipeline,
) -> None:
    def source():
        yield frames(1)[0]
        raise OSError("unplugged")

    with pytest.raises(OSError, match="unplugged"):
        session(pipeline).run(source(), lambda _frame: None)


def test_settings_that_cannot_work_are_refused(pipeline: TransferPipeline) -> None:
    with pytest.raises(ConfigError, match="oldest, newest, wait"):
        FrameQueue(3, "random")
    with pytest.raises(ConfigError, match="at least a chunk"):
        session(pipeline).run([], lambda _frame: None, queue_frames=4)
    with pytest.raises(ConfigError, match="Take 5"):
        session(pipeline, chunk_frames=6)
    with pytest.raises(ShapeError, match="one shape"):
        session(pipeline).step([LiveFrame(frame=frames(1)[0]), LiveFrame(frame=frames(1, 8)[0])])
