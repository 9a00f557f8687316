"""A stand-in for a model that restyles clips."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from cosmos_transfer.inputs.video import uniform_times
from cosmos_transfer.outputs.record import GenerationRecord
from cosmos_transfer.pipeline import GeneratedClip
from cosmos_transfer.shapes import Size

RATE = Fraction(10)


class Inverter:
    """Stands for a model: the negative of the clip, shifted by the seed's parity."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int, int]] = []

    def __call__(
        self, *, prompt: str, video: np.ndarray, controls: Any, **settings: Any
    ) -> GeneratedClip:
        self.calls.append((settings["seed"], settings["episode"], settings["variant"]))
        frames = 255 - video
        if prompt == "drifted":
            frames = np.zeros_like(video)
        size = Size(*video.shape[1:3])
        times = settings.get("times") or uniform_times(len(video), RATE)
        record = GenerationRecord(
            request={"output_codec": "h264"},
            checkpoint={},
            input_size=size,
            working_size=size,
            padded_size=size,
            num_frames=len(video),
            padded_frames=len(video),
            rate=RATE,
            times=times,
        )
        return GeneratedClip(frames=frames, times=times, rate=RATE, is_still=False, record=record)
