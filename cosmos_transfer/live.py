"""Real time: frames in from a camera, a simulator or a pipe, frames out with bounded latency.

A reader thread fills a queue of fixed length; chunks are made of what stands in it, each beginning
with the last frame of the one before, and are handed out as soon as they are decoded. Where frames
come faster than they are made, the stated policy holds:

``oldest``  the frame that has waited longest is dropped: what comes out is as recent as it can be
``newest``  the frame that has just come is dropped
``wait``    the source waits; for files and pipes that lose nothing by it

Nothing is kept but the queue, one chunk and the figures of the last frames, so that memory does not
grow however long it runs.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from jaxtyping import UInt8

from cosmos_transfer.errors import ConfigError, ShapeError, explain
from cosmos_transfer.inputs.request import GenerationRequest, request_from_mapping
from cosmos_transfer.inputs.validate import check_request
from cosmos_transfer.long_video.cut import InputCutter
from cosmos_transfer.long_video.plan import Chunk
from cosmos_transfer.pipeline import Run, TransferPipeline, to_input_size

DROP_POLICIES = ("oldest", "newest", "wait")
REMEMBERED = 10_000
"""Latencies of so many frames, the last ones, stand in the report."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LiveFrame:
    """One frame and the controls that came with it, such as a simulator's depth."""

    frame: UInt8[np.ndarray, "h w 3"]
    controls: Mapping[str, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveReport:
    """What a run came to. Latency is from a frame's arrival to its being handed out, in seconds."""

    num_in: int
    num_out: int
    num_dropped: int
    drop: str
    seconds: float
    frames_per_s: float
    latency_s: Mapping[str, float]


class FrameQueue:
    """A queue of fixed length between the source and the model.

    Args:
        length: Frames it holds.
        drop: What happens when it is full; see the module.
    """

    def __init__(self, length: int, drop: str) -> None:
        if drop not in DROP_POLICIES:
            raise ConfigError(
                explain(
                    "drop",
                    expected="one of " + ", ".join(DROP_POLICIES),
                    got=repr(drop),
                    do="oldest is right for a camera.",
                )
            )
        self.num_in = 0
        self.num_dropped = 0
        self._length = length
        self._drop = drop
        self._frames: deque[tuple[float, LiveFrame]] = deque()
        self._changed = threading.Condition()
        self._is_closed = False
        self._failure: BaseException | None = None

    def put(self, frame: LiveFrame) -> bool:
        """Add a frame that has arrived now; False where nobody takes frames any more."""
        arrived = time.perf_counter()
        with self._changed:
            if self._drop == "wait":
                self._changed.wait_for(lambda: len(self._frames) < self._length or self._is_closed)
            if self._is_closed:
                return False
            self.num_in += 1
            if len(self._frames) >= self._length:
                self.num_dropped += 1
                if self._drop == "newest":
                    return True
                self._frames.popleft()
            self._frames.append((arrived, frame))
            self._changed.notify_all()
        return True

    def close(self, failure: BaseException | None = None) -> None:
        """No more frames; ``failure`` is raised where they are taken."""
        with self._changed:
            self._is_closed = True
            self._failure = self._failure or failure
            self._changed.notify_all()

    def take(self, count: int) -> list[tuple[float, LiveFrame]]:
        """The next frames and when they arrived; fewer than ``count`` at the end."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._frames) >= count or self._is_closed)
            if self._failure is not None:
                raise self._failure
            taken = [self._frames.popleft() for _ in range(min(count, len(self._frames)))]
            self._changed.notify_all()
        return taken


class LiveSession:
    """A pipeline that restyles frames as they come.

    Args:
        pipeline: Any; a checkpoint of few steps is quickest.
        prompt: How it is to look.
        controls: As for the pipeline's call. ``edge`` and ``vis`` are found in each frame; others
            come with the frames (:class:`LiveFrame`), and depth then needs ``near`` and ``far``,
            because a scale that followed every chunk would flicker.
        num_inference_steps: Unset, the checkpoint's own.
        guidance_scale: 1, the default here, spares the second pass.
        chunk_frames: Frames of a chunk, the inherited one included; ``1 + time * i``. The shortest,
            which is the default, waits for the fewest frames.
        seed: Noise follows from it and the number of the chunk.
        settings: Further fields of a request, such as ``resolution``.

    Raises:
        ConfigError: Settings that cannot be acted on.
    """

    def __init__(
        self,
        pipeline: TransferPipeline,
        *,
        prompt: str,
        controls: Mapping[str, Any],
        num_inference_steps: int | None = None,
        guidance_scale: float = 1.0,
        chunk_frames: int | None = None,
        seed: int = 0,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        strides = pipeline.checkpoint.info.strides
        self.chunk_frames = 1 + strides.time if chunk_frames is None else chunk_frames
        if self.chunk_frames < 2 or (self.chunk_frames - 1) % strides.time:
            raise ConfigError(
                explain(
                    "chunk_frames",
                    expected=f"1 + {strides.time} * i frames, at least {1 + strides.time}",
                    got=f"{self.chunk_frames}",
                    do=f"Take {1 + strides.time}.",
                )
            )
        self._pipeline = pipeline
        self._controls = dict(controls)
        depth = self._controls.get("depth")
        if depth is not None and not (isinstance(depth, Mapping) and {"near", "far"} <= set(depth)):
            raise ConfigError(
                explain(
                    "control 'depth'",
                    expected="near and far in metres: one scale for all chunks",
                    got="a scale of each chunk's own",
                    do='Write {"weight": 1.0, "unit": "m", "near": 0.5, "far": 20.0}.',
                )
            )
        self._values = {
            "prompt": prompt,
            "guidance_scale": guidance_scale,
            "seed": seed,
            **(settings or {}),
        }
        if num_inference_steps is not None:
            self._values["num_inference_steps"] = num_inference_steps
        self._run: Run | None = None
        self._num_chunks = 0
        self._before: LiveFrame | None = None  # the last input frame of the chunk before
        self._given: UInt8[np.ndarray, "1 h w 3"] | None = None  # and what was made of it

    @property
    def num_wanted(self) -> int:
        """How many frames the next chunk makes."""
        return self.chunk_frames if self._before is None else self.chunk_frames - 1

    def step(self, frames: Iterable[LiveFrame]) -> UInt8[np.ndarray, "f h w 3"]:
        """Make one chunk of at most :attr:`num_wanted` new frames; returns as many."""
        new = list(frames)
        own = new if self._before is None else [self._before, *new]
        for each in own:
            if each.frame.shape != own[0].frame.shape:
                raise ShapeError(
                    explain(
                        "stream",
                        expected=f"frames of one shape, {own[0].frame.shape}",
                        got=f"{each.frame.shape}",
                        do="Scale them to one size.",
                    )
                )
        num_given = len(own) - len(new)
        strides = self._pipeline.checkpoint.info.strides
        chunk = Chunk(
            index=self._num_chunks,
            start=0,
            stop=len(own),
            num_inherited=num_given,
            num_padded=strides.padded_frames(len(own)) - len(own),
        )
        checked = check_request(self._request(own), self._pipeline.checkpoint.info)
        if self._run is None:
            self._run = self._pipeline.start(checked)
        else:
            multiple = self._pipeline.checkpoint.info.spatial_multiple
            inputs = InputCutter(checked, estimators=self._pipeline.estimators, multiple=multiple)
            self._run = replace(self._run, checked=checked, inputs=inputs, caches=[])
        made = self._pipeline.make_chunk(self._run, chunk, self._given).made
        self._num_chunks += 1
        self._before, self._given = new[-1], made[-1:]
        return to_input_size(made, self._run.inputs.working_size, checked.size)

    def run(
        self,
        source: Iterable[LiveFrame | np.ndarray] | Callable[[], LiveFrame | np.ndarray | None],
        sink: Callable[[UInt8[np.ndarray, "h w 3"]], None],
        *,
        queue_frames: int = 16,
        drop: str = "oldest",
    ) -> LiveReport:
        """Restyle all that a source gives, until it ends.

        Args:
            source: Frames, or a function that gives the next one, None at the end. It runs in a
                thread of its own.
            sink: Called with every finished frame, in order.
            queue_frames: Frames that may wait.
            drop: What happens when they are more; see the module.

        Raises:
            ConfigError: A queue that holds less than a chunk.
        """
        if queue_frames < self.chunk_frames:
            raise ConfigError(
                explain(
                    "queue",
                    expected=f"at least a chunk ({self.chunk_frames} frames)",
                    got=f"{queue_frames}",
                    do="Let more frames wait, or make shorter chunks.",
                )
            )
        queue = FrameQueue(queue_frames, drop)
        reader = threading.Thread(target=_read, args=(source, queue), daemon=True)
        latencies: deque[float] = deque(maxlen=REMEMBERED)
        num_out, started, first = 0, time.perf_counter(), None
        reader.start()
        try:
            while taken := queue.take(self.num_wanted):
                first = first or taken[0][0]
                made = self.step(frame for _, frame in taken)
                for (arrived, _), frame in zip(taken, made, strict=True):
                    sink(frame)
                    latencies.append(time.perf_counter() - arrived)
                    num_out += 1
        finally:
            queue.close()
        seconds = time.perf_counter() - (first or started)
        return LiveReport(
            num_in=queue.num_in,
            num_out=num_out,
            num_dropped=queue.num_dropped,
            drop=drop,
            seconds=round(seconds, 3),
            frames_per_s=round(num_out / seconds, 3),
            latency_s=_percentiles(latencies),
        )

    def _request(self, frames: list[LiveFrame]) -> GenerationRequest:
        controls = {}
        for name, asked in self._controls.items():
            settings = dict(asked) if isinstance(asked, Mapping) else {"weight": asked}
            if name in frames[0].controls:
                settings["clip"] = np.stack([each.controls[name] for each in frames])
            controls[name] = settings
        video = np.stack([each.frame for each in frames])
        return request_from_mapping(self._values | {"video": video, "controls": controls})


def _read(
    source: Iterable[LiveFrame | np.ndarray] | Callable[[], LiveFrame | np.ndarray | None],
    queue: FrameQueue,
) -> None:
    """The reader thread."""
    try:
        for each in _asked(source) if callable(source) else source:
            frame = each if isinstance(each, LiveFrame) else LiveFrame(frame=each)
            if not queue.put(frame):
                return
        queue.close()
    except BaseException as failure:
        queue.close(failure)


def _asked(source: Callable[[], LiveFrame | np.ndarray | None]) -> Iterator[LiveFrame | np.ndarray]:
    while (frame := source()) is not None:
        yield frame


def _percentiles(latencies: Iterable[float]) -> dict[str, float]:
    values = np.asarray(list(latencies))
    if len(values) == 0:
        return {}
    return {f"p{share}": round(float(np.percentile(values, share)), 4) for share in (50, 95, 99)}
