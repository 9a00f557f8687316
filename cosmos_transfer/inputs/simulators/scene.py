"""What every adapter returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from cosmos_transfer.errors import MediaError, explain
from cosmos_transfer.inputs.depth import DepthClip, depth_from_array, read_depth
from cosmos_transfer.inputs.media import ARRAY_SUFFIXES, IMAGE_SUFFIXES
from cosmos_transfer.inputs.segmentation import (
    SegmentationClip,
    read_segmentation,
    segmentation_from_array,
)
from cosmos_transfer.inputs.series import Series, is_pattern, list_series
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


def check_numbers(scene: SimulatorScene) -> SimulatorScene:
    """The scene, if its folders hold the same frames of the recording by their numbers.

    Frames belong together by number, not by their place in a list. How many there are is checked
    with everything else (``length_policy``).

    Raises:
        MediaError: One folder begins at another number than the clip's, or goes in other steps.
    """
    parts = [scene.video, *(scene.controls[name].get("path") for name in sorted(scene.controls))]
    first: tuple[Path, Series] | None = None
    for part in parts:
        if not isinstance(part, Path) or not (part.is_dir() or is_pattern(part)):
            continue
        series = list_series(part, (*IMAGE_SUFFIXES, *ARRAY_SUFFIXES), what="frames")
        if not series.numbers:
            continue
        if first is None:
            first = (part, series)
        elif (series.numbers[0], series.step) != (first[1].numbers[0], first[1].step):
            raise MediaError(
                explain(
                    str(part),
                    expected=f"the frames of {first[0]}: {_shown(first[1])}",
                    got=_shown(series),
                    do="Remove the frames that only one of them has, or number them alike.",
                )
            )
    return scene


def _shown(series: Series) -> str:
    steps = f" in steps of {series.step}" if series.step > 1 else ""
    return f"{series.numbers[0]} to {series.numbers[-1]}{steps}"


def first_that_exists(folder: Path, *names: str) -> Path | None:
    """The first of several names that a folder holds."""
    return next((folder / name for name in names if (folder / name).exists()), None)
