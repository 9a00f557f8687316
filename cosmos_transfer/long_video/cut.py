"""Cutting a request's inputs: clip, controls and weight maps of a chunk, by the same frames.

Clips are read as the chunks come to them and forgotten behind them, so that memory does not grow
with length. Some inputs say what they mean only as a whole and stay in memory whole: depth (one
normalisation over the clip) and segmentation, as the pictures that the branches read (3 bytes a
pixel of the working size), class rules, and weight maps and masks that move.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int, UInt8

from cosmos_transfer.controls.base import ControlClip
from cosmos_transfer.controls.given import Target
from cosmos_transfer.controls.registry import prepare_control
from cosmos_transfer.controls.seg import given_segmentation
from cosmos_transfer.inputs.request import CONTROL_NAMES, ControlRequest
from cosmos_transfer.inputs.segmentation import SegmentationClip
from cosmos_transfer.inputs.validate import CheckedRequest
from cosmos_transfer.inputs.video import (
    VideoClip,
    match_length,
    resize_frames,
    stream_frames,
    uniform_times,
)
from cosmos_transfer.shapes import Size, reflected_indices, round_up
from cosmos_transfer.weights.maps import MapSource, WeightMaps, open_keep_mask, open_weight_maps

# Controls made frame by frame; the others are made of the whole clip.
_BY_FRAME = frozenset({"edge", "vis"})


class FrameReader:
    """The frames of a clip, a few at a time and roughly in their order.

    Args:
        source: A path, or frames that are in memory.
        indices: Which frame of the source stands at each frame of the clip.
        size: Scale every frame to it (area means).
    """

    def __init__(
        self,
        source: Path | np.ndarray,
        indices: Int[np.ndarray, " f"],
        *,
        size: Size | None = None,
        flip_vertical: bool = False,
    ) -> None:
        self._source = source
        self._indices = indices
        self._size = size
        self._flip = flip_vertical
        self._blocks: Iterator[np.ndarray] | None = None
        self._window: dict[int, np.ndarray] = {}
        self._num_read = 0

    def at_frames(self, frame_indices: Sequence[int]) -> np.ndarray:
        """Those frames of the clip. Going back further than the last call opens the file anew."""
        wanted = self._indices[list(frame_indices)]
        if isinstance(self._source, np.ndarray):
            frames = self._source[wanted]
            if self._size is not None:
                frames = resize_frames(frames, self._size, how="area")
        else:
            frames = np.stack([self._frame(int(index)) for index in wanted])
            # What lies before them will not be asked for again; the first frame may, as anchor.
            behind = min((int(index) for index in wanted if index), default=0)
            self._window = {
                index: frame
                for index, frame in self._window.items()
                if index >= behind or index == 0
            }
        return np.ascontiguousarray(frames[:, ::-1]) if self._flip else frames

    def _frame(self, index: int) -> UInt8[np.ndarray, "h w 3"]:
        if index not in self._window and index < self._num_read:
            self._blocks, self._window, self._num_read = None, {}, 0
        while index not in self._window:
            if self._blocks is None:
                assert isinstance(self._source, Path)
                self._blocks = stream_frames(self._source, size=self._size, block_frames=4)
            for frame in next(self._blocks):
                self._window[self._num_read] = frame
                self._num_read += 1
        return self._window[index]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChunkInputs:
    """A chunk's inputs at the padded working size."""

    controls: tuple[ControlClip, ...]
    maps: WeightMaps
    clip: UInt8[np.ndarray, "f h w 3"] | None  # what sampling starts from, below strength 1


class InputCutter:
    """A request's inputs, cut chunk by chunk.

    Args:
        checked: The request.
        estimators: What finds depth or seg in RGB, by control name.
        multiple: Height and width are padded to a multiple of it.
    """

    def __init__(
        self, checked: CheckedRequest, *, estimators: Mapping[str, Any] | None, multiple: int
    ) -> None:
        request, size = checked.request, checked.working_size
        self._checked = checked
        self._estimators = estimators
        self.working_size = size
        self.padded_size = Size(round_up(size.height, multiple), round_up(size.width, multiple))
        # In one order, whatever the request's: sums of residuals then agree to the last bit.
        self.controls = tuple(
            sorted(request.controls, key=lambda each: CONTROL_NAMES.index(each.name))
        )
        self._video = video_reader(checked, size)
        self._whole: dict[str, ControlClip] = {}
        self._readers: dict[str, FrameReader] = {}
        segmentation: SegmentationClip | None = None
        for control in self.controls:
            if control.name not in _BY_FRAME:
                made = self._prepare_whole(control)
                segmentation = made.segmentation or segmentation
                self._whole[control.name] = replace(
                    made, picture=_pad(made.picture, self.padded_size), segmentation=None
                )
            elif control.is_given:
                self._readers[control.name] = self._control_reader(control)
        self._maps = open_weight_maps(
            self.controls,
            num_frames=checked.num_frames,
            size=size,
            segmentation=segmentation,
            length_policy=checked.length_policy,
        )
        self._notes: dict[str, None] = {}
        for name, whole in self._whole.items():
            self._remember(name, whole.notes)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was done to the controls so far, each thing once."""
        return tuple(self._notes)

    def at_frames(self, frame_indices: Sequence[int]) -> ChunkInputs:
        """Clip, controls and maps of those frames."""
        frames = list(frame_indices)
        extracts = any(not each.is_given and each.name in _BY_FRAME for each in self.controls)
        starts_from_clip = self._checked.request.strength < 1.0
        clip = None
        if self._video is not None and (extracts or starts_from_clip):
            pixels = self._video.at_frames(frames)
            rate = self._checked.rate
            clip = VideoClip(frames=pixels, times=uniform_times(len(frames), rate), rate=rate)
        controls = tuple(self._control(control, clip, frames) for control in self.controls)
        return ChunkInputs(
            controls=controls,
            maps=self._maps.at_frames(frames).padded_to(self.padded_size),
            clip=_pad(clip.frames, self.padded_size)
            if clip is not None and starts_from_clip
            else None,
        )

    def _control(
        self, control: ControlRequest, clip: VideoClip | None, frames: list[int]
    ) -> ControlClip:
        if (whole := self._whole.get(control.name)) is not None:
            return replace(whole, picture=whole.picture[frames])
        asked = control
        if (reader := self._readers.get(control.name)) is not None:
            asked = replace(control, path=None, clip=reader.at_frames(frames))
        made = prepare_control(asked, clip, size=self.working_size, num_frames=len(frames))
        self._remember(control.name, made.notes)
        return replace(made, picture=_pad(made.picture, self.padded_size))

    def _prepare_whole(self, control: ControlRequest) -> ControlClip:
        checked = self._checked
        clip = None
        if not control.is_given and self._video is not None:
            clip = VideoClip(
                frames=self._video.at_frames(range(checked.num_frames)),
                times=checked.times,
                rate=checked.rate,
                is_still=checked.is_still,
            )
        return prepare_control(
            control,
            clip,
            size=self.working_size,
            num_frames=checked.num_frames,
            length_policy=checked.length_policy,
            estimators=self._estimators,
        )

    def _control_reader(self, control: ControlRequest) -> FrameReader:
        where = f"control '{control.name}'"
        source: Path | np.ndarray
        if control.clip is not None:
            source, num_frames = control.clip, len(control.clip)
        else:
            assert control.path is not None
            source = control.path
            found = (each for each in self._checked.inputs if each.where == where)
            num_frames = next(found).num_frames
        indices = match_length(
            num_frames,
            self._checked.num_frames,
            self._checked.length_policy,
            where=where,
        )
        return FrameReader(source, indices)

    def _remember(self, name: str, notes: Iterable[str]) -> None:
        self._notes.update(dict.fromkeys(f"control '{name}': {note}" for note in notes))


def video_reader(checked: CheckedRequest, size: Size) -> FrameReader | None:
    """The clip at a size; None where the request has controls alone."""
    request = checked.request
    if request.video is None:
        return None
    source = request.video
    if isinstance(source, np.ndarray):
        # A picture is given without a time axis.
        source = source[None] if source.ndim == 3 else source
        num_frames = len(source)
    else:
        num_frames = checked.inputs[0].num_frames  # the video is listed first
    if request.max_frames is not None:
        num_frames = min(num_frames, request.max_frames)
    indices = match_length(num_frames, checked.num_frames, checked.length_policy, where="video")
    return FrameReader(source, indices, size=size, flip_vertical=request.flip_vertical)


def keep_reader(checked: CheckedRequest) -> MapSource:
    """The region that stays, at the input's own size."""
    request = checked.request
    assert request.keep is not None
    segmentation = None
    if isinstance(request.keep, Mapping):
        seg = next(each for each in request.controls if each.name == "seg")
        target = Target(
            size=checked.size, num_frames=checked.num_frames, length_policy=checked.length_policy
        )
        segmentation = given_segmentation(seg, target)
    return open_keep_mask(
        request.keep,
        num_frames=checked.num_frames,
        size=checked.size,
        segmentation=segmentation,
        length_policy=checked.length_policy,
    )


def _pad(frames: UInt8[np.ndarray, "f y x 3"], size: Size) -> UInt8[np.ndarray, "f h w 3"]:
    """Reflect-pad at the bottom and the right, to the model's grid."""
    if frames.shape[1:3] == (size.height, size.width):
        return frames
    rows = reflected_indices(frames.shape[1], size.height)
    columns = reflected_indices(frames.shape[2], size.width)
    return frames[:, list(rows)][:, :, list(columns)]
