"""The segmentation control: class ids as a picture in which every class has one fixed colour.

The colour is a function of the class's name alone (``inputs.segmentation``), so chunks, runs and
training agree. Ids are resized by nearest neighbours before they are coloured: no colour between
two classes ever appears.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol, runtime_checkable

from cosmos_transfer.controls.base import ControlClip
from cosmos_transfer.controls.given import (
    Target,
    frames_to_extract_from,
    given_picture,
    require_estimated_shape,
)
from cosmos_transfer.inputs.request import ControlRequest
from cosmos_transfer.inputs.segmentation import (
    SegmentationClip,
    colorize,
    open_segmentation,
)
from cosmos_transfer.inputs.video import VideoClip, resize_frames


@runtime_checkable
class SegmentationEstimator(Protocol):
    """Finds classes in RGB; one call sees the whole clip, so that ids can be steady in time."""

    def __call__(self, clip: VideoClip) -> SegmentationClip:
        """Ids of every frame at the clip's size, and the name of every id."""
        ...


def given_segmentation(request: ControlRequest, target: Target) -> SegmentationClip | None:
    """The ids that a request gives, at the clip's length and working size; None without any.

    Class rules of weights read the same ids as the seg control. A coloured picture given as an
    array has no ids: it is a picture only.
    """
    source = request.segmentation_source
    if source is None:
        return None
    where = f"control '{request.name}'"
    if request.path is not None:
        where = f"{where}, {request.path}"
    segmentation = open_segmentation(source, request.labels, where=where)
    indices = target.frame_indices(where, segmentation.num_frames, segmentation.size)
    upright = segmentation.ids[:, ::-1] if request.flip_vertical else segmentation.ids
    ids = resize_frames(upright[indices], target.size, how="nearest")
    return replace(segmentation, ids=ids)


def prepare_seg(
    request: ControlRequest,
    clip: VideoClip | None,
    target: Target,
    estimator: SegmentationEstimator | None,
) -> ControlClip:
    """The segmentation that is given, or that the estimator finds, in its fixed colours."""
    segmentation = given_segmentation(request, target)
    if segmentation is not None:
        return ControlClip(
            name=request.name,
            picture=colorize(segmentation),
            source="given",
            notes=segmentation.notes,
            segmentation=segmentation,
        )
    picture_given = given_picture(request, target)
    if picture_given is not None:
        return ControlClip(
            name=request.name,
            picture=resize_frames(picture_given, target.size, how="nearest"),
            source="given",
            notes=("colours taken as they are",),
        )
    assert estimator is not None  # the registry refuses before
    frames = frames_to_extract_from(request, clip)
    assert clip is not None
    found = estimator(clip)
    require_estimated_shape(request, found.ids, frames, what="ids")
    return ControlClip(
        name=request.name, picture=colorize(found), source="extracted", segmentation=found
    )
