"""The segmentation control: class ids as a picture in which every class has one fixed colour.

The colour is a function of the class's name alone (``inputs.segmentation``), so chunks, runs and
training agree. Ids are resized by nearest neighbours before they are coloured: no colour between
two classes ever appears.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Protocol, runtime_checkable

from cosmos_transfer.controls.base import ControlClip
from cosmos_transfer.controls.given import (
    Target,
    frames_to_extract_from,
    given_picture,
    require_estimated_shape,
)
from cosmos_transfer.errors import ConfigError, explain
from cosmos_transfer.inputs.labels import LabelTable, carla_labels, parse_labels, read_labels
from cosmos_transfer.inputs.request import ControlRequest
from cosmos_transfer.inputs.segmentation import (
    SegmentationClip,
    colorize,
    read_segmentation,
    segmentation_from_array,
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
    where = f"control '{request.name}'"
    if request.clip is not None and request.clip.ndim == 4 and request.clip.shape[-1] == 3:
        return None
    if request.clip is not None:
        segmentation = segmentation_from_array(
            request.clip, names=_names(request, where), where=where
        )
    elif request.path is not None:
        where = f"{where}, {request.path}"
        segmentation = read_segmentation(request.path, labels=request.labels)
    else:
        return None
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


def _names(request: ControlRequest, where: str) -> dict[int, str] | None:
    """The names of an array's ids, from whatever the request calls its labels."""
    labels = request.labels
    if labels is None:
        return None
    table: LabelTable
    if isinstance(labels, Mapping):
        table = parse_labels(labels, where=f"{where}, labels")
    elif str(labels).lower().startswith("carla") and not Path(labels).exists():
        table = carla_labels(str(labels).lower())
    else:
        table = read_labels(Path(labels))
    names = {label.id: label.name for label in table if label.id is not None}
    if not names:
        raise ConfigError(
            explain(
                f"{where}, labels",
                expected="the name of every id",
                got="a table of colours",
                do="Give names by id, or the coloured pictures.",
            )
        )
    return names
