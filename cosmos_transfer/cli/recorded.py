"""A finished run, read back from its record: the clip, its controls and weights, the output.

Everything is brought to the working size, where the model saw it; so are the output's frames, by
area means. Inputs whose hash no longer is the recorded one are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8

from cosmos_transfer.controls.base import ControlClip
from cosmos_transfer.controls.depth import given_depth
from cosmos_transfer.controls.given import Target
from cosmos_transfer.controls.registry import prepare_control
from cosmos_transfer.controls.seg import given_segmentation
from cosmos_transfer.errors import ConfigError, MediaError, ShapeError, explain
from cosmos_transfer.inputs.request import (
    ControlRequest,
    GenerationRequest,
    request_from_mapping,
)
from cosmos_transfer.inputs.segmentation import SegmentationClip
from cosmos_transfer.inputs.validate import CheckedRequest
from cosmos_transfer.inputs.video import (
    VideoClip,
    file_sha256,
    match_length,
    read_clip,
    resize_frames,
)
from cosmos_transfer.outputs.record import GenerationRecord, read_record
from cosmos_transfer.shapes import Size
from cosmos_transfer.weights.maps import WeightMaps, build_weight_maps


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordedRun:
    """A run with its inputs as the model saw them. All clips have the same length and size."""

    record: GenerationRecord
    request: GenerationRequest
    clip: VideoClip | None
    controls: tuple[ControlClip, ...]
    maps: WeightMaps
    output: UInt8[np.ndarray, "f h w 3"]
    target: Target

    def control_request(self, name: str) -> ControlRequest | None:
        """What was asked of a control; None where it took no part."""
        return next((each for each in self.request.controls if each.name == name), None)

    @property
    def segmentation(self) -> SegmentationClip | None:
        """The given ids, if there are any."""
        seg = self.control_request("seg")
        return None if seg is None else given_segmentation(seg, self.target)

    @property
    def depth(self) -> Float[np.ndarray, "f h w"] | None:
        """The given depth in metres, NaN where there is none; None without depth in a unit."""
        asked = self.control_request("depth")
        depth = None if asked is None else given_depth(asked)
        if depth is None or asked is None or asked.unit in (None, "relative"):
            return None
        indices = self.target.frame_indices("control 'depth'", depth.num_frames, depth.size)
        return resize_frames(depth.metres[indices], self.target.size, how="nearest")


def read_run(path: Path) -> RecordedRun:
    """Read a run back from the record beside its clip.

    Raises:
        MediaError: The record, an input or the output is missing, or an input has changed.
        ConfigError: Inputs that were arrays in memory, which no record can bring back.
    """
    record = read_record(path)
    request = _request(record, path)
    for each in record.inputs:
        _check_unchanged(each)
    cut = request.max_frames is not None and request.length_policy == "refuse"
    target = Target(
        size=record.working_size,
        num_frames=record.num_frames,
        length_policy="trim" if cut else request.length_policy,
    )
    clip = _clip(request, record.times, target)
    controls, maps, _ = _controls_and_maps(request, clip, target)
    return RecordedRun(
        record=record,
        request=request,
        clip=clip,
        controls=controls,
        maps=maps,
        output=_output(record, path),
        target=target,
    )


def read_inputs(
    checked: CheckedRequest, size: Size
) -> tuple[VideoClip | None, tuple[ControlClip, ...], WeightMaps, SegmentationClip | None]:
    """The clip, controls, weight maps and given ids of a request that was checked, at any size.

    Controls that must be estimated are left out: what finds them is a model.
    """
    request = checked.request
    target = Target(size=size, num_frames=checked.num_frames, length_policy=checked.length_policy)
    clip = _clip(request, checked.times, target)
    shown = [each for each in request.controls if each.is_given or each.name in ("edge", "vis")]
    request = replace(request, controls=tuple(shown))
    controls, maps, segmentation = _controls_and_maps(request, clip, target)
    return clip, controls, maps, segmentation


def _controls_and_maps(
    request: GenerationRequest, clip: VideoClip | None, target: Target
) -> tuple[tuple[ControlClip, ...], WeightMaps, SegmentationClip | None]:
    controls = tuple(
        prepare_control(
            control,
            clip,
            size=target.size,
            num_frames=target.num_frames,
            length_policy=target.length_policy,
        )
        for control in request.controls
    )
    seg = next((each for each in request.controls if each.name == "seg"), None)
    segmentation = None if seg is None else given_segmentation(seg, target)
    maps = build_weight_maps(
        request.controls,
        num_frames=target.num_frames,
        size=target.size,
        segmentation=segmentation,
        length_policy=target.length_policy,
    )
    return controls, maps, segmentation


def _request(record: GenerationRecord, path: Path) -> GenerationRequest:
    in_memory = sorted(_arrays(record.request))
    if in_memory:
        raise ConfigError(
            explain(
                str(path),
                expected="inputs that are files",
                got=f"arrays in memory ({', '.join(in_memory)})",
                do="Run it again from files.",
            )
        )
    return request_from_mapping(record.request, base_dir=path.parent, where=str(path))


def _arrays(values: Mapping[str, Any], prefix: str = "") -> set[str]:
    """Dotted names of the values that a record keeps only the shape and hash of."""
    found: set[str] = set()
    for key, value in values.items():
        if isinstance(value, Mapping):
            is_array = {"array", "dtype", "sha256"} == set(value)
            found |= {f"{prefix}{key}"} if is_array else _arrays(value, f"{prefix}{key}.")
    return found


def _check_unchanged(recorded: Mapping[str, Any]) -> None:
    path, digest = recorded.get("path"), recorded.get("sha256")
    if path is None or digest is None:
        return
    if not Path(path).exists() and not any(c in Path(path).name for c in "*?["):
        raise MediaError(
            explain(
                f"{recorded.get('where', 'input')} ({path})",
                expected="the input of the recorded run",
                got="nothing there",
                do="Put it back where it was.",
            )
        )
    found = file_sha256(path)
    if found != digest:
        raise MediaError(
            explain(
                f"{recorded.get('where', 'input')} ({path})",
                expected=f"the input of the recorded run (sha256 {digest[:12]}...)",
                got=f"another content (sha256 {found[:12]}...)",
                do="Restore it, or run the request again.",
            )
        )


def _clip(
    request: GenerationRequest, times: tuple[Fraction, ...], target: Target
) -> VideoClip | None:
    if not isinstance(request.video, Path):
        return None
    # As the pipeline reads it: the colours of a clip worked on at another size depend on it.
    clip = read_clip(
        request.video, max_frames=request.max_frames, rate=request.rate, size=target.size
    )
    indices = match_length(
        clip.num_frames, target.num_frames, target.length_policy, where=str(request.video)
    )
    frames = clip.frames[indices]
    if request.flip_vertical:
        frames = np.ascontiguousarray(frames[:, ::-1])
    return replace(clip, frames=frames, times=times)


def _output(record: GenerationRecord, path: Path) -> UInt8[np.ndarray, "f h w 3"]:
    output = read_clip(path.parent / record.outputs["clip"], size=record.working_size)
    if output.num_frames != record.num_frames:
        raise ShapeError(
            explain(
                str(path.parent / record.outputs["clip"]),
                expected=f"the {record.num_frames} frames of its record",
                got=f"{output.num_frames}",
                do="Run the request again.",
            )
        )
    return output.frames
