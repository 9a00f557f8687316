"""Taking a control as it is given: which picture, at which frames, or what to extract it from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from einops import repeat
from jaxtyping import Int, UInt8

from cosmos_transfer.controls.base import require_same_aspect
from cosmos_transfer.errors import ConfigError, explain
from cosmos_transfer.inputs.request import ControlRequest
from cosmos_transfer.inputs.video import (
    VideoClip,
    check_frames,
    match_length,
    read_clip,
)
from cosmos_transfer.shapes import Size


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What every control of a request must come to: the clip's working size and length."""

    size: Size
    num_frames: int
    length_policy: str = "refuse"

    def frame_indices(self, where: str, num_frames: int, size: Size) -> Int[np.ndarray, " f"]:
        """Which frames of a given control stand at the clip's frames, if it fits at all."""
        require_same_aspect(where, size, self.size)
        return match_length(num_frames, self.num_frames, self.length_policy, where=where)


def given_picture(request: ControlRequest, target: Target) -> UInt8[np.ndarray, "f y x 3"] | None:
    """The picture that a request gives, at its own size and the clip's length; None without one."""
    where = f"control '{request.name}'"
    if request.clip is not None:
        frames = request.clip
        if frames.ndim == 3 and frames.dtype in (np.uint8, np.bool_):  # grey or yes/no, f h w
            grey = frames * np.uint8(255) if frames.dtype == np.bool_ else frames
            frames = repeat(grey, "f h w -> f h w c", c=3)
        check_frames(frames, where=where)
    elif request.path is not None:
        where = f"{where}, {request.path}"
        frames = read_clip(request.path).frames
    else:
        return None
    if request.flip_vertical:
        frames = np.ascontiguousarray(frames[:, ::-1])
    size = Size(*frames.shape[1:3])
    return frames[target.frame_indices(where, len(frames), size)]


def frames_to_extract_from(
    request: ControlRequest, clip: VideoClip | None
) -> UInt8[np.ndarray, "f h w 3"]:
    """The clip's frames, or an error that says the control needs a picture or a clip."""
    if clip is None:
        raise ConfigError(
            explain(
                f"control '{request.name}'",
                expected="a path, or a video to extract it from",
                got="neither",
                do=f"Set controls.{request.name}.path, or give a video.",
            )
        )
    return clip.frames


def require_estimated_shape(
    request: ControlRequest,
    found: np.ndarray,
    frames: UInt8[np.ndarray, "f h w 3"],
    *,
    what: str,
) -> None:
    """Refuse what an estimator returned for another size or length than the clip's."""
    if found.shape == frames.shape[:3]:
        return
    raise ConfigError(
        explain(
            f"control '{request.name}', estimator",
            expected=f"{what} of shape {frames.shape[:3]}",
            got=f"{found.shape}",
            do=f"Return {what} at the clip's own size and length.",
        )
    )
