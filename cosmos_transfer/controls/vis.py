"""The vis (blur) control: what is left of a clip's colours and layout without its detail.

One bilateral filter, then bicubic resampling down and up. The five presets, as NVIDIA publishes
them for a picture whose short side is 720 (nvidia-cosmos/cosmos-transfer2.5
``datasets/augmentors/control_input.py`` and ``blur.py``: bilateral filter of diameter 30, sigma
150 in colour and 100 in space, one pass):

==========  ==================  =======  =====================
preset      shrink before blur  down-up  least down-up (ours)
==========  ==================  =======  =====================
very_low                     1        4                    2.0
low                          4        4                    2.0
medium                       2       10                    2.5
high                         1       16                    3.0
very_high                    4       16                    3.0
==========  ==================  =======  =====================

Lengths in pixels mean something only at one size, so all of them (diameter, spatial sigma, both
factors) scale with the short side over 720. At small working sizes the down-up factor would fall
below one and blur nothing; the last column is the least it becomes, so that the control still
shows a blurred clip, at 64x96 for example, and the factors keep their order. A preset changes a
picture about as much at 72 rows as at 720. (Judged by that change the published presets are not
in order of strength at any size: shrinking by 4 first makes ``low`` stronger than ``medium``.)
The result depends on the frames and the preset alone; Cosmos-Transfer1 draws a random factor.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from jaxtyping import UInt8

from cosmos_transfer.controls.base import ControlClip, find_preset
from cosmos_transfer.controls.given import Target, frames_to_extract_from, given_picture
from cosmos_transfer.inputs.request import ControlRequest
from cosmos_transfer.inputs.video import VideoClip, resize_frames

REFERENCE_SHORT_SIDE = 720
BILATERAL_DIAMETER = 30
BILATERAL_SIGMA_COLOR = 150.0
BILATERAL_SIGMA_SPACE = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BlurPreset:
    """Factors at a short side of 720 pixels, and the least down-up factor at any size."""

    shrink: int
    down_up: int
    least_down_up: float


BLUR_PRESETS: dict[str, BlurPreset] = {
    "very_low": BlurPreset(shrink=1, down_up=4, least_down_up=2.0),
    "low": BlurPreset(shrink=4, down_up=4, least_down_up=2.0),
    "medium": BlurPreset(shrink=2, down_up=10, least_down_up=2.5),
    "high": BlurPreset(shrink=1, down_up=16, least_down_up=3.0),
    "very_high": BlurPreset(shrink=4, down_up=16, least_down_up=3.0),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BlurSettings:
    """What a preset comes to at one size; lengths in pixels of the shrunk picture."""

    shrink: float
    diameter: int
    sigma_space: float
    down_up: float


def blur_settings(preset: str, *, height: int, width: int) -> BlurSettings:
    """Scale a preset to a picture's size; see the module docstring for the rule."""
    at_720 = find_preset("vis", BLUR_PRESETS, preset)
    scale = min(height, width) / REFERENCE_SHORT_SIDE
    shrink = max(1.0, at_720.shrink * scale)
    # The filter runs on the shrunk picture. Where that shrinks less than the preset says, the
    # filter itself is wider by as much.
    reach = scale * at_720.shrink / shrink
    return BlurSettings(
        shrink=shrink,
        diameter=max(3, round(BILATERAL_DIAMETER * reach)),
        sigma_space=BILATERAL_SIGMA_SPACE * reach,
        down_up=max(at_720.least_down_up, at_720.down_up * scale),
    )


def extract_vis(
    frames: UInt8[np.ndarray, "f h w 3"], preset: str = "medium"
) -> UInt8[np.ndarray, "f h w 3"]:
    """Blur a clip at a preset's strength, scaled to the clip's size."""
    height, width = frames.shape[1:3]
    settings = blur_settings(preset, height=height, width=width)
    blurred = np.empty_like(frames)
    for result, frame in zip(blurred, frames, strict=True):
        shrunk = _resize(
            np.ascontiguousarray(frame),
            _divided(height, settings.shrink),
            _divided(width, settings.shrink),
            cv2.INTER_AREA,
        )
        smooth = cv2.bilateralFilter(
            shrunk, settings.diameter, BILATERAL_SIGMA_COLOR, settings.sigma_space
        )
        smooth = _resize(smooth, height, width, cv2.INTER_LINEAR)
        small = _resize(
            smooth,
            _divided(height, settings.down_up),
            _divided(width, settings.down_up),
            cv2.INTER_CUBIC,
        )
        result[:] = _resize(small, height, width, cv2.INTER_CUBIC)
    return blurred


def _divided(length: int, factor: float) -> int:
    return max(1, round(length / factor))


def _resize(
    frame: UInt8[np.ndarray, "_ _ 3"], height: int, width: int, how: int
) -> UInt8[np.ndarray, "{height} {width} 3"]:
    if frame.shape[:2] == (height, width):
        return frame
    return cv2.resize(frame, (width, height), interpolation=how)


def prepare_vis(request: ControlRequest, clip: VideoClip | None, target: Target) -> ControlClip:
    """The blurred clip that is given, taken as it is, or the input clip blurred."""
    given = given_picture(request, target)
    if given is None:
        picture = extract_vis(frames_to_extract_from(request, clip), request.preset)
        note = f"blur, preset {request.preset}"
        return ControlClip(name=request.name, picture=picture, source="extracted", notes=(note,))
    picture = resize_frames(given, target.size, how="area")
    return ControlClip(name=request.name, picture=picture, source="given")
