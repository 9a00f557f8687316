"""The depth control: metric depth, or a near-is-bright picture, as the picture the branch reads.

Depth is drawn by one normalisation over the whole given clip (``inputs.depth``), so that a point
keeps its brightness from frame to frame and from chunk to chunk. It is drawn at its own size and
averaged down afterwards, as inverse depth; a hole (no reading) is black, as far away is.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from cosmos_transfer.controls.base import ControlClip
from cosmos_transfer.controls.given import Target, frames_to_extract_from, require_estimated_shape
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
            request.clip, where=f"control '{request.name}'", **request.depth_settings
        )
    if request.path is not None:
        return read_depth(request.path, **request.depth_settings)
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
    require_estimated_shape(request, found.metres, frames, what="depth")
    return ControlClip(
        name=request.name, picture=depth_picture(found), source="extracted", notes=found.notes
    )
