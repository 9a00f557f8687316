"""The clip in time: jumps at the seams between chunks, and flicker along a known motion."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
from jaxtyping import Bool, Float, Integer, UInt8

from cosmos_transfer.errors import ConfigError, NumericsError, ShapeError, explain

LEAST_DIFFERENCE = 0.5
"""Grey levels; frame differences below it are rounding, not motion."""

DEPTH_MARGIN = 1.05
"""A point up to 5 % farther than the nearest at its pixel is taken to lie on the same surface."""


def seam_ratio(
    frames: UInt8[np.ndarray, "_ _ _ 3"], seams: Sequence[int], *, reach: int = 4
) -> float:
    """How much more the clip changes at its seams than beside them.

    Range: above 0, lower is better; about 1 means the seams cannot be told from other frames. For
    every seam: the mean absolute difference between its two frames, over the mean of the same
    differences up to ``reach`` frames on either side that are no seams; then the mean over seams.
    Differences count as at least half a grey level, so a static clip gives 1 rather than 0 / 0.

    Args:
        frames: The whole clip.
        seams: Index of the first frame that each further chunk made (its ``made_frames.start``).
        reach: How many neighbouring differences to compare with, on either side.

    Raises:
        ConfigError: No seam, or one outside the clip.
        NumericsError: A seam without any neighbouring difference to compare with.

    Source:
        The ratio form of the boundary jump reported in nvidia-cosmos/cosmos-transfer2.5 issue 239.
    """
    at_seam = {int(seam) for seam in seams}
    if not at_seam or min(at_seam) < 1 or max(at_seam) >= len(frames):
        raise ConfigError(
            explain(
                "seam ratio, seams",
                expected=f"at least one index from 1 to {len(frames) - 1}",
                got=f"{sorted(at_seam) if at_seam else 'none'}",
                do="Pass the first frame that each chunk after the first made.",
            )
        )
    near = {
        i
        for seam in at_seam
        for i in range(max(1, seam - reach), min(len(frames), seam + reach + 1))
    }
    change = {
        i: max(LEAST_DIFFERENCE, float(cv2.absdiff(frames[i - 1], frames[i]).mean())) for i in near
    }
    ratios = []
    for seam in sorted(at_seam):
        beside = [
            value for i, value in change.items() if abs(i - seam) <= reach and i not in at_seam
        ]
        if not beside:
            raise NumericsError(
                explain(
                    f"seam ratio, seam at frame {seam}",
                    expected="a neighbouring frame that is no seam",
                    got="none",
                    do="Use longer chunks, or a larger reach.",
                )
            )
        ratios.append(change[seam] / float(np.mean(beside)))
    return float(np.mean(ratios))


def flicker(
    frames: UInt8[np.ndarray, "_ _ _ 3"],
    motion: Float[np.ndarray, "_ _ _ 2"],
    *,
    visible: Bool[np.ndarray, "_ _ _"] | None = None,
) -> float:
    """How much a point changes its colour from frame to frame while it is followed.

    Range: 0 to 255 grey levels, lower is better. Frame ``i + 1`` is sampled (bilinear) where the
    motion says each pixel of frame ``i`` has gone; the mean absolute difference over all points
    that stay in view. A shift of the whole picture's brightness counts, motion itself does not.

    Args:
        frames: The clip.
        motion: For every frame but the last, where each pixel goes in the next one: (x, y)
            displacement in pixels, x to the right, y down. Zeros for a static world.
        visible: Points that the next frame shows; all that land inside it without this.

    Raises:
        ShapeError: Motion or visibility do not fit the clip.
        NumericsError: No point can be followed, or a visible one has no finite motion.
    """
    num_frames, height, width = frames.shape[:3]
    expected = (num_frames - 1, height, width)
    if num_frames < 2 or motion.shape[:3] != expected:
        raise ShapeError(
            explain(
                "flicker, motion",
                expected=f"two frames or more and one motion per pair, {(*expected, 2)}",
                got=f"{num_frames} frames and motion {motion.shape}",
                do="Give the motion from every frame to the next.",
            )
        )
    if visible is not None and visible.shape != expected:
        raise ShapeError(
            explain(
                "flicker, visible",
                expected=f"shape {expected}",
                got=f"{visible.shape}",
                do="Give one mask per pair of frames.",
            )
        )
    rows, columns = np.mgrid[0:height, 0:width].astype(np.float32)
    total, count = 0.0, 0
    for index in range(num_frames - 1):
        x = columns + motion[index, :, :, 0].astype(np.float32)
        y = rows + motion[index, :, :, 1].astype(np.float32)
        is_seen = np.ones((height, width), bool) if visible is None else visible[index]
        if not (np.isfinite(x) & np.isfinite(y))[is_seen].all():
            raise NumericsError(
                explain(
                    f"flicker, motion of frame {index}",
                    expected="finite displacements at visible points",
                    got="NaN or infinity",
                    do="Mark points of unknown motion as not visible.",
                )
            )
        is_seen = is_seen & (x >= 0) & (x <= width - 1) & (y >= 0) & (y <= height - 1)
        following = cv2.remap(
            frames[index + 1].astype(np.float32),
            np.nan_to_num(x),
            np.nan_to_num(y),
            cv2.INTER_LINEAR,
            borderMode=cv2.BORDER_REPLICATE,
        )
        change = np.abs(following - frames[index])[is_seen]
        total += float(change.sum(dtype=np.float64))
        count += change.size
    if count == 0:
        raise NumericsError(
            explain(
                "flicker",
                expected="at least one point that stays in view",
                got="none",
                do="Check the sign and the unit (pixels) of the motion.",
            )
        )
    return total / count


def visible_next(
    motion: Float[np.ndarray, "_ _ _ 2"],
    depth: Float[np.ndarray, "_ _ _"],
    class_ids: Integer[np.ndarray, "_ _ _"],
) -> Bool[np.ndarray, "_ _ _"]:
    """The points of every frame but the last that can be followed into the next one.

    A point is left out where it leaves the picture; where, of the points that land on the same
    pixel, another is clearly nearer; and where one of the pixels it lands between (up to four) is
    of another class, which is so along outlines and behind what has come into view.

    Args:
        motion: As :func:`flicker` takes it.
        depth: Of every frame, f h w; infinite in the sky.
        class_ids: Of every frame, f h w.

    Raises:
        ShapeError: Depth, ids and motion are not of one clip.
    """
    num_pairs, height, width = motion.shape[:3]
    expected = (num_pairs + 1, height, width)
    if depth.shape != expected or class_ids.shape != expected:
        raise ShapeError(
            explain(
                "visible points",
                expected=f"depth and class ids of shape {expected}, one frame more than motions",
                got=f"{depth.shape} and {class_ids.shape}",
                do="Take all three from the same recording.",
            )
        )
    rows, columns = np.mgrid[0:height, 0:width].astype(np.float32)
    visible = np.zeros(motion.shape[:3], dtype=bool)
    for index in range(num_pairs):
        x, y = columns + motion[index, ..., 0], rows + motion[index, ..., 1]
        inside = (x >= 0) & (x <= width - 1) & (y >= 0) & (y <= height - 1)  # False where NaN
        x, y = np.where(inside, x, 0.0), np.where(inside, y, 0.0)
        spot = np.rint(y).astype(np.int64) * width + np.rint(x).astype(np.int64)
        nearest = np.full(height * width, np.inf)
        np.minimum.at(nearest, spot[inside], depth[index][inside])
        in_front = depth[index] <= nearest[spot] * DEPTH_MARGIN
        left, top = np.floor(x).astype(np.int64), np.floor(y).astype(np.int64)
        right, bottom = np.ceil(x).astype(np.int64), np.ceil(y).astype(np.int64)
        following = class_ids[index + 1]
        same = np.logical_and.reduce(
            [
                following[row, column] == class_ids[index]
                for row in (top, bottom)
                for column in (left, right)
            ]
        )
        visible[index] = inside & in_front & same
    return visible
