"""How well an output follows its controls, against the controls that were given.

Definitions follow the published evaluation (Cosmos-Transfer1, arXiv:2503.14492, section 5;
PAI-Bench-C, arXiv:2512.01989, ``scores/transfer_bench``), with one difference: where that runs an
estimator on both videos, here the given control is the truth. An output is compared at the
control's size; resize it first.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import cv2
import numpy as np
from jaxtyping import Bool, Float, Integer, UInt8
from skimage.metrics import structural_similarity

from cosmos_transfer.controls.edge import canny_edges
from cosmos_transfer.errors import ConfigError, NumericsError, ShapeError, explain
from cosmos_transfer.metrics.frames import check_same_shape, check_ssim_window

DEPTH_RESIDUAL_LIMIT = 10.0
DEPTH_LEAST_COVERAGE = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeScores:
    """Agreement of edges; each from 0 to 1, higher is better."""

    f1: float
    precision: float
    recall: float


def edge_f1(
    frames: UInt8[np.ndarray, "_ _ _ 3"],
    control: UInt8[np.ndarray, "_ _ _ 3"] | Bool[np.ndarray, "_ _ _"],
    *,
    tolerance: int = 0,
    lower: float | int = 100,
    upper: float | int = 200,
) -> float:
    """F1 of the output's Canny edges against the edge control; see :func:`edge_scores`."""
    return edge_scores(frames, control, tolerance=tolerance, lower=lower, upper=upper).f1


def edge_scores(
    frames: UInt8[np.ndarray, "_ _ _ 3"],
    control: UInt8[np.ndarray, "_ _ _ 3"] | Bool[np.ndarray, "_ _ _"],
    *,
    tolerance: int = 0,
    lower: float | int = 100,
    upper: float | int = 200,
) -> EdgeScores:
    """Precision, recall and F1 of the output's edges, counted over all frames together.

    Range: 0 to 1, higher is better. Edges are Canny edges of luma.

    Args:
        frames: The output.
        control: The edge control: a picture (white above 127) or booleans.
        tolerance: 0 counts coinciding pixels only (the published metric); with 1 an edge pixel
            also matches a neighbour of the other picture, diagonals included, and so on.
        lower: Canny's lower threshold.
        upper: Canny's upper threshold.

    Raises:
        ShapeError: Output and control differ in size or length.
        NumericsError: The control has no edge, so recall is undefined.
    """
    if tolerance < 0:
        raise ConfigError(
            explain(
                "edge F1, tolerance",
                expected="0 or more pixels",
                got=f"{tolerance}",
                do="Take 0 for the strict metric.",
            )
        )
    wanted = control if control.dtype == np.bool_ else _is_white(control)
    check_same_shape("edge F1", frames[..., 0], wanted)
    if not wanted.any():
        raise NumericsError(
            explain(
                "edge F1",
                expected="at least one edge in the control",
                got="none",
                do="Leave edge F1 out for this clip, or take a lower edge preset.",
            )
        )
    found = canny_edges(frames, lower=lower, upper=upper)
    num_found, num_wanted = int(found.sum()), int(wanted.sum())
    if num_found == 0:
        return EdgeScores(f1=0.0, precision=0.0, recall=0.0)
    precision = int((found & _grown(wanted, tolerance)).sum()) / num_found
    recall = int((wanted & _grown(found, tolerance)).sum()) / num_wanted
    total = precision + recall
    f1 = 2 * precision * recall / total if total > 0 else 0.0
    return EdgeScores(f1=f1, precision=precision, recall=recall)


def blur_ssim(
    frames: UInt8[np.ndarray, "_ _ _ 3"],
    reference: UInt8[np.ndarray, "_ _ _ 3"],
    *,
    diameter: int = 30,
    sigma_color: float | int = 150,
    sigma_space: float | int = 100,
) -> float:
    """SSIM of both clips after the same bilateral blur: do colours and layout agree?

    Range: -1 to 1, higher is better; 1 means identical after the blur. SSIM over RGB with the data
    range of the blurred reference frame; the mean over pixels, then over frames. The filter's
    lengths are in pixels as published, whatever the size of the frames.

    Args:
        frames: The output.
        reference: The input clip.
        diameter: Of the bilateral filter, in pixels.
        sigma_color: Of the bilateral filter, in grey levels.
        sigma_space: Of the bilateral filter, in pixels.

    Raises:
        ShapeError: The clips differ, or are smaller than the 7x7 window.
        NumericsError: A blurred reference frame is one flat colour, so it has no data range.
    """
    check_same_shape("blur SSIM", frames, reference)
    check_ssim_window("blur SSIM", frames)
    blurred = (
        bilateral(each, diameter=diameter, sigma_color=sigma_color, sigma_space=sigma_space)
        for each in (frames, reference)
    )
    return blurred_ssim(*blurred)


def bilateral(
    frames: UInt8[np.ndarray, "f h w 3"],
    *,
    diameter: int = 30,
    sigma_color: float | int = 150,
    sigma_space: float | int = 100,
) -> UInt8[np.ndarray, "f h w 3"]:
    """The blur of :func:`blur_ssim`, for a clip that is compared with more than one other."""
    return np.stack(
        [
            cv2.bilateralFilter(np.ascontiguousarray(frame), diameter, sigma_color, sigma_space)
            for frame in frames
        ]
    )


def blurred_ssim(
    blurred: UInt8[np.ndarray, "_ _ _ 3"], reference: UInt8[np.ndarray, "_ _ _ 3"]
) -> float:
    """What :func:`blur_ssim` comes to, of clips that :func:`bilateral` has blurred."""
    check_same_shape("blur SSIM", blurred, reference)
    check_ssim_window("blur SSIM", blurred)
    scores = []
    for index, (a, b) in enumerate(zip(blurred, reference, strict=True)):
        data_range = int(b.max()) - int(b.min())
        if data_range == 0:
            raise NumericsError(
                explain(
                    "blur SSIM",
                    expected="a reference frame with some contrast",
                    got=f"one flat colour in frame {index}",
                    do="Leave blur SSIM out for this clip.",
                )
            )
        _, per_pixel = structural_similarity(
            a, b, channel_axis=-1, data_range=data_range, full=True
        )
        scores.append(float(per_pixel.mean()))
    return float(np.mean(scores))


def depth_si_rmse(
    depth: Float[np.ndarray, "_ _ _"],
    reference: Float[np.ndarray, "_ _ _"],
    *,
    residual_limit: float = DEPTH_RESIDUAL_LIMIT,
) -> float:
    """Scale-invariant error of a depth estimate: per frame fit one scale, then take the RMS.

    Range: 0 to ``residual_limit``, in the reference's unit, lower is better. The scale is the
    median of reference / estimate over the frame; residuals are clipped; the mean over frames.

    Args:
        depth: Depth estimated on the output, positive, in any unit.
        reference: The given depth; NaN, infinity and values that are not positive are invalid and
            left out.
        residual_limit: Residuals are clipped to plus and minus this.

    Raises:
        ShapeError: The clips differ in size or length.
        NumericsError: A frame without valid reference, or an estimate that is not finite and
            positive on at least nine tenths of it; a hole must not pass for a good estimate.
    """
    check_same_shape("depth si-RMSE", depth, reference)
    errors = []
    for index, (estimate, truth) in enumerate(zip(depth, reference, strict=True)):
        is_given = _is_depth(truth)
        is_valid = is_given & _is_depth(estimate)
        num_given, num_valid = int(is_given.sum()), int(is_valid.sum())
        if num_given == 0:
            raise NumericsError(
                explain(
                    f"depth si-RMSE, frame {index}",
                    expected="at least one valid pixel in the given depth",
                    got="none",
                    do="Trim this frame, or check unit and invalid of the depth.",
                )
            )
        if num_valid < DEPTH_LEAST_COVERAGE * num_given:
            raise NumericsError(
                explain(
                    f"depth si-RMSE, frame {index}",
                    expected=f"an estimate at {DEPTH_LEAST_COVERAGE:.0%} of the valid pixels",
                    got=f"{num_valid / num_given:.0%}",
                    do="Use an estimator that fills the frame.",
                )
            )
        # float64: a ratio of small depths must not overflow.
        estimate64, truth64 = (d[is_valid].astype(np.float64) for d in (estimate, truth))
        scale = np.median(truth64 / estimate64)
        residual = np.clip(scale * estimate64 - truth64, -residual_limit, residual_limit)
        errors.append(float(np.sqrt(np.mean(residual**2))))
    return float(np.mean(errors))


def mask_miou(
    ids: Integer[np.ndarray, "_ _ _"],
    reference: Integer[np.ndarray, "_ _ _"],
    *,
    ignored: Collection[int] = (),
) -> float:
    """Mean over classes of the intersection over union of their masks in space and time.

    Range: 0 to 1, higher is better. Each class's masks are counted over the whole clip; the mean
    runs over the classes that are present in either.

    Args:
        ids: Class ids predicted on the output.
        reference: The given ids.
        ignored: Pixels whose given id is one of these do not count.

    Raises:
        ShapeError: The clips differ in size or length.
        NumericsError: Every pixel is ignored.
    """
    ious = class_ious(ids, reference, ignored=ignored)
    return float(np.mean(list(ious.values())))


def class_ious(
    ids: Integer[np.ndarray, "_ _ _"],
    reference: Integer[np.ndarray, "_ _ _"],
    *,
    ignored: Collection[int] = (),
) -> dict[int, float]:
    """Intersection over union of every class present in either; see :func:`mask_miou`."""
    check_same_shape("mask mIoU", ids, reference)
    counts = ~np.isin(reference, list(ignored)) if ignored else np.ones(reference.shape, bool)
    if not counts.any():
        raise NumericsError(
            explain(
                "mask mIoU",
                expected="at least one pixel that counts",
                got="only ignored ids",
                do="Ignore fewer ids.",
            )
        )
    found, wanted = ids[counts], reference[counts]
    found_sizes, wanted_sizes, both = (
        _sizes(found),
        _sizes(wanted),
        _sizes(found[found == wanted]),
    )
    return {
        i: both.get(i, 0) / (found_sizes.get(i, 0) + wanted_sizes.get(i, 0) - both.get(i, 0))
        for i in sorted(found_sizes.keys() | wanted_sizes.keys())
    }


def _is_white(picture: UInt8[np.ndarray, "f h w 3"]) -> Bool[np.ndarray, "f h w"]:
    if picture.ndim != 4 or picture.shape[-1] != 3:
        raise ShapeError(
            explain(
                "edge F1, control",
                expected="a picture f h w 3 or booleans f h w",
                got=f"shape {picture.shape}",
                do="Pass the control clip's picture.",
            )
        )
    luma = [cv2.cvtColor(np.ascontiguousarray(f), cv2.COLOR_RGB2GRAY) > 127 for f in picture]
    return np.array(luma, dtype=bool).reshape(picture.shape[:3])


def _grown(edges: Bool[np.ndarray, "f h w"], by: int) -> Bool[np.ndarray, "f h w"]:
    if by == 0:
        return edges
    square = np.ones((2 * by + 1, 2 * by + 1), dtype=np.uint8)
    return np.stack([cv2.dilate(edge.astype(np.uint8), square) > 0 for edge in edges])


def _is_depth(depth: Float[np.ndarray, "h w"]) -> Bool[np.ndarray, "h w"]:
    return np.isfinite(depth) & (depth > 0)


def _sizes(ids: Integer[np.ndarray, " p"]) -> dict[int, int]:
    values, sizes = np.unique(ids, return_counts=True)
    return {int(value): int(size) for value, size in zip(values, sizes, strict=True)}
