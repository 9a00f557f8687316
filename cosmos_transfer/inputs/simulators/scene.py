"""What every adapter returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from cosmos_transfer.inputs.depth import DepthClip, depth_from_array, read_depth
from cosmos_transfer.inputs.segmentation import (
    SegmentationClip,
    read_segmentation,
    segmentation_from_array,
)
from cosmos_transfer.inputs.video import DEFAULT_RATE, VideoClip, read_clip, uniform_times


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SimulatorScene:
    """A recording: its clip, the controls that came with it, and when its frames were taken.

    ``controls`` maps a control's name to the fields of
    :class:`~cosmos_transfer.inputs.request.ControlRequest` that say where it is and how to read it.
    ``times`` are seconds from the first frame, where the recording has a clock; ``flip_vertical``
    says that the rows of the clip run from the bottom up.
    """

    tool: str
    path: Path
    video: Path | np.ndarray | None
    controls: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    times: tuple[Fraction, ...] | None = None
    rate: Fraction | None = None
    flip_vertical: bool = False

    def request_fields(self) -> dict[str, Any]:
        """The fields of a :class:`~cosmos_transfer.inputs.request.GenerationRequest` it fills."""
        fields: dict[str, Any] = {
            "controls": {name: dict(values) for name, values in self.controls.items()}
        }
        for name in ("video", "times", "rate"):
            if getattr(self, name) is not None:
                fields[name] = getattr(self, name)
        if self.flip_vertical:
            fields["flip_vertical"] = True
        return fields

    def clip(self) -> VideoClip | None:
        """The recording's frames, read; None where it has no pictures."""
        if self.video is None:
            return None
        if isinstance(self.video, np.ndarray):
            rate = self.rate or DEFAULT_RATE
            times = self.times or uniform_times(len(self.video), rate)
            clip = VideoClip(frames=self.video, times=times, rate=rate, path=self.path)
        else:
            clip = read_clip(self.video, rate=self.rate)
        if self.times is not None:
            clip = replace(clip, times=self.times)
        if self.flip_vertical:
            clip = replace(clip, frames=np.ascontiguousarray(clip.frames[:, ::-1]))
        return clip

    def depth(self) -> DepthClip | None:
        """Its depth, read; None without one."""
        given = self.controls.get("depth")
        if given is None:
            return None
        settings = {key: value for key, value in given.items() if key not in ("path", "clip")}
        if "clip" in given:
            return depth_from_array(given["clip"], where=f"{self.path}, depth", **settings)
        return read_depth(given["path"], **settings)

    def segmentation(self) -> SegmentationClip | None:
        """Its segmentation, read; None without one."""
        given = self.controls.get("seg")
        if given is None:
            return None
        if "clip" in given:
            return segmentation_from_array(
                given["clip"], names=given.get("labels"), where=f"{self.path}, segmentation"
            )
        clip = read_segmentation(given["path"], labels=given.get("labels"))
        return replace(clip, ids=clip.ids[:, ::-1]) if given.get("flip_vertical") else clip


def first_that_exists(folder: Path, *names: str) -> Path | None:
    """The first of several names that a folder holds."""
    return next((folder / name for name in names if (folder / name).exists()), None)
