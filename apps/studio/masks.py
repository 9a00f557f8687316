"""A mask painted on one frame, carried through the clip by optical flow.

Dense inverse search (Kroeger et al., arXiv:1603.03590; OpenCV's ``DISOpticalFlow``) gives, for each
frame, where every pixel was in the frame before, on the painted frame's side; the mask is looked up
there. A pixel that nothing painted moves to stays unpainted.
"""

from __future__ import annotations

import cv2
import numpy as np
from jaxtyping import Float32, UInt8

from cosmos_transfer.errors import ConfigError, ShapeError, explain

_SMALLEST_SIDE = 128
"""Flow is found on frames at least this wide and high: the search needs room for its patches."""


def painted_mask(
    editor: dict[str, np.ndarray] | None, height: int, width: int
) -> Float32[np.ndarray, "h w"]:
    """What was painted in an image editor, at the clip's size: the layers' opacity, 0 or 1.

    Args:
        editor: The editor's value: ``layers`` are RGBA pictures.
        height: Rows of the clip.
        width: Columns of the clip.

    Raises:
        ConfigError: Nothing is painted.
    """
    layers = [] if not editor else [np.asarray(each) for each in editor.get("layers") or []]
    painted = [layer[..., 3] > 0 for layer in layers if layer.ndim == 3 and layer.shape[2] == 4]
    if not painted or not np.any(painted):
        raise ConfigError(
            explain(
                "mask",
                expected="something painted on the frame",
                got="nothing",
                do="Choose the brush and paint where the control acts.",
            )
        )
    whole = np.any(painted, axis=0).astype(np.float32)
    return (cv2.resize(whole, (width, height), interpolation=cv2.INTER_AREA) >= 0.5).astype(
        np.float32
    )


def track_mask(
    frames: UInt8[np.ndarray, "f h w 3"], mask: Float32[np.ndarray, "h w"], frame_index: int
) -> Float32[np.ndarray, "f h w"]:
    """Follow a mask from one frame to all others.

    Args:
        frames: The clip.
        mask: 1 where painted.
        frame_index: The frame it was painted on.

    Raises:
        ShapeError: A mask of another size, or a frame there is not.
    """
    num_frames, height, width = frames.shape[:3]
    if mask.shape != (height, width) or not 0 <= frame_index < num_frames:
        raise ShapeError(
            explain(
                "mask",
                expected=f"{height}x{width} on a frame from 0 to {num_frames - 1}",
                got=f"{mask.shape[0]}x{mask.shape[1]} on frame {frame_index}",
                do="Paint on a frame of this clip.",
            )
        )
    scale = max(1.0, _SMALLEST_SIDE / min(height, width))
    grey = [_grey(frame, scale) for frame in frames]
    tracked = np.zeros((num_frames, height, width), dtype=np.float32)
    tracked[frame_index] = mask
    finder = cv2.DISOpticalFlow.create(cv2.DISOPTICAL_FLOW_PRESET_MEDIUM)
    for step in (1, -1):
        soft = mask
        index = frame_index + step
        while 0 <= index < num_frames:
            flow = finder.calc(grey[index], grey[index - step], None)  # type: ignore[call-overload]
            flow = cv2.resize(flow, (width, height), interpolation=cv2.INTER_AREA) / scale
            rows, columns = np.indices((height, width), dtype=np.float32)
            soft = cv2.remap(soft, columns + flow[..., 0], rows + flow[..., 1], cv2.INTER_LINEAR)
            tracked[index] = soft >= 0.5
            index += step
    return tracked


def _grey(frame: UInt8[np.ndarray, "h w 3"], scale: float) -> UInt8[np.ndarray, "y x"]:
    grey = cv2.cvtColor(np.ascontiguousarray(frame), cv2.COLOR_RGB2GRAY)
    if scale == 1.0:
        return grey
    return cv2.resize(grey, None, fx=scale, fy=scale, interpolation=cv2.INTER_CUBIC)
