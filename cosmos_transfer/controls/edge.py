"""The edge control: Canny edges, white on black.

Thresholds of the five presets, as NVIDIA's Cosmos-Transfer1 and 2.5 publish them
(nvidia-cosmos/cosmos-transfer1 ``inference/preprocessors.py``; cosmos-transfer2.5
``datasets/augmentors/control_input.py``):

==========  =====  =====
preset      lower  upper
==========  =====  =====
very_low       20     50
low            50    100
medium        100    200
high          200    300
very_high     300    400
==========  =====  =====

Two deliberate differences. The preset is always honoured (Cosmos-Transfer1 draws the thresholds at
random instead), and edges are found in luma, as the edge F1 metric finds them, so that a clip
agrees with its own edges completely; the published branches were trained on thresholds drawn from
20 to 250, far wider than what luma against colour changes.
"""

from __future__ import annotations

import cv2
import numpy as np
from einops import repeat
from jaxtyping import Bool, UInt8

from cosmos_transfer.controls.base import ControlClip, find_preset
from cosmos_transfer.controls.given import Target, frames_to_extract_from, given_picture
from cosmos_transfer.inputs.request import ControlRequest
from cosmos_transfer.inputs.video import VideoClip
from cosmos_transfer.shapes import Size

EDGE_PRESETS: dict[str, tuple[int, int]] = {
    "very_low": (20, 50),
    "low": (50, 100),
    "medium": (100, 200),
    "high": (200, 300),
    "very_high": (300, 400),
}


def canny_edges(
    frames: UInt8[np.ndarray, "f h w 3"], *, lower: float | int = 100, upper: float | int = 200
) -> Bool[np.ndarray, "f h w"]:
    """Canny edges of the luma of every frame."""
    edges = np.empty(frames.shape[:3], dtype=bool)
    for edge, frame in zip(edges, frames, strict=True):
        np.not_equal(_canny(frame, lower, upper), 0, out=edge)
    return edges


def _canny(
    frame: UInt8[np.ndarray, "h w 3"], lower: float | int, upper: float | int
) -> UInt8[np.ndarray, "h w"]:
    luma = cv2.cvtColor(np.ascontiguousarray(frame), cv2.COLOR_RGB2GRAY)
    return cv2.Canny(luma, lower, upper)


def extract_edge(
    frames: UInt8[np.ndarray, "f h w 3"], preset: str = "medium"
) -> UInt8[np.ndarray, "f h w 3"]:
    """Draw the Canny edges of a clip, white on black, at a preset's thresholds."""
    lower, upper = find_preset("edge", EDGE_PRESETS, preset)
    pictures = np.empty_like(frames, order="C")
    for picture, frame in zip(pictures, frames, strict=True):
        cv2.cvtColor(_canny(frame, lower, upper), cv2.COLOR_GRAY2RGB, dst=picture)
    return pictures


def edge_picture(edges: Bool[np.ndarray, "f h w"]) -> UInt8[np.ndarray, "f h w 3"]:
    """Edges as the white-on-black picture that the branch reads."""
    return repeat(edges.astype(np.uint8) * 255, "f h w -> f h w c", c=3)


def resize_edges(
    picture: UInt8[np.ndarray, "f y x 3"], size: Size
) -> UInt8[np.ndarray, "f {size.height} {size.width} 3"]:
    """Bring an edge picture to another size and keep it an edge picture.

    Area means turn a thin line into a faint grey one that no branch has seen, and nearest
    neighbours cut it into dots. Where the picture shrinks, a new pixel is an edge if the line
    through it is at least half as long as the pixel is wide: a share of ``0.5 / scale`` of it.
    """
    height, width = picture.shape[1:3]
    if (height, width) == (size.height, size.width):
        return picture
    scale = float(np.sqrt((height * width) / (size.height * size.width)))
    resized = np.empty((len(picture), size.height, size.width), dtype=bool)
    for edge, frame in zip(resized, picture, strict=True):
        luma = cv2.cvtColor(np.ascontiguousarray(frame), cv2.COLOR_RGB2GRAY)
        if scale <= 1:
            enlarged = cv2.resize(
                luma, (size.width, size.height), interpolation=cv2.INTER_NEAREST_EXACT
            )
            edge[:] = enlarged > 127
        else:
            share = cv2.resize(
                (luma > 127).astype(np.float32),
                (size.width, size.height),
                interpolation=cv2.INTER_AREA,
            )
            edge[:] = share >= 0.5 / scale
    return edge_picture(resized)


def prepare_edge(request: ControlRequest, clip: VideoClip | None, target: Target) -> ControlClip:
    """The edge picture that is given, or the clip's Canny edges."""
    given = given_picture(request, target)
    if given is None:
        picture = extract_edge(frames_to_extract_from(request, clip), request.preset)
        note = f"Canny, preset {request.preset}"
        return ControlClip(name=request.name, picture=picture, source="extracted", notes=(note,))
    picture = resize_edges(given, target.size)
    size = Size(*given.shape[1:3])
    notes = () if size == target.size else (f"edges redrawn from {size} to {target.size}",)
    return ControlClip(name=request.name, picture=picture, source="given", notes=notes)
