"""The depth control: metric depth, or a near-is-bright picture, as the picture the branch reads.

Depth is drawn by one normalisation over the whole given clip (``inputs.depth``), so that a point
keeps its brightness from frame to frame and from chunk to chunk. It is drawn at its own size and
averaged down afterwards, as inverse depth; a hole (no reading) is black, as far away is.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from cosmos_transfer.controls.base import ControlClip
from cosmos_transfer.controls.given import Target, frames_to_extract_from
from cosmos_transfer.errors import ConfigError, explain
from cosmos_transfer.inputs.depth import DepthClip, depth_from_array, depth_picture, read_depth
from cosmos_transfer.inputs.request import ControlRequest
from cosmos_transfer.inputs.video import VideoClip, resize_frames


@runtime_checkable
class DepthEstimator(Protocol):
    """Estimates depth from RGB; one call sees the whole clip, so that it can be steady in time."""

    def __call__(self, clip: VideoClip) -> DepthClip:
        """Depth of every frame at the clip's size, NaN where unknown."""
        ...


def given_depth(request: ControlRequest) -> DepthClip | None:
    """The depth that a request gives, at its own size and length; None without any."""
    if request.clip is not None:
        return depth_from_array(
            request.clip,
            unit=request.unit,
            kind=request.kind,
            invalid=request.invalid,
            near=request.near,
            far=request.far,
            direction=request.direction,
            intrinsics=request.intrinsics,
            where=f"control '{request.name}'",
        )
    if request.path is not None:
        return read_depth(
            request.path,
            unit=request.unit,
            kind=request.kind,
            invalid=request.invalid,
            near=request.near,
            far=request.far,
            direction=request.direction,
            intrinsics=request.intrinsics,
        )
    return None


def prepare_depth(
    request: ControlRequest,
    clip: VideoClip | None,
    target: Target,
    estimator: DepthEstimator | None,
) -> ControlClip:
    """The picture of the depth that is given, or that the estimator finds."""
    given = given_depth(request)
    if given is not None:
        where = f"control '{request.name}'"
        if request.path is not None:
            where = f"{where}, {request.path}"
        indices = target.frame_indices(where, given.num_frames, given.size)
        picture = resize_frames(depth_picture(given)[indices], target.size, how="area")
        return ControlClip(name=request.name, picture=picture, source="given", notes=given.notes)
    assert estimator is not None  # the registry refuses before
    frames = frames_to_extract_from(request, clip)
    assert clip is not None
    found = estimator(clip)
    if found.metres.shape != frames.shape[:3]:
        raise ConfigError(
            explain(
                f"control '{request.name}', estimator",
                expected=f"depth of shape {frames.shape[:3]}",
                got=f"{found.metres.shape}",
                do="Return depth at the clip's own size and length.",
            )
        )
    return ControlClip(
        name=request.name, picture=depth_picture(found), source="extracted", notes=found.notes
    )
