"""Picture against picture, over clips of uint8 RGB frames."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Bool, UInt8
from skimage.metrics import structural_similarity

from cosmos_transfer.errors import NumericsError, ShapeError, explain

PSNR_CEILING_DB = 100.0
SSIM_WINDOW = 7
LUMA = np.array([0.299, 0.587, 0.114], dtype=np.float32)  # ITU-R BT.601


def psnr(
    frames: UInt8[np.ndarray, "_ _ _ 3"],
    reference: UInt8[np.ndarray, "_ _ _ 3"],
    *,
    region: Bool[np.ndarray, "_ _ _"] | None = None,
) -> float:
    """Peak signal-to-noise ratio of a whole clip, or of a region of it.

    Range: 0 to 100 dB, higher is better; identical clips would be infinite and give the ceiling,
    100. The squared error is averaged over all pixels, frames and channels first.

    Args:
        frames: The clip to judge.
        reference: What it should be.
        region: Pixels that count; all of them without it.

    Raises:
        ShapeError: The clips differ in size or length.
        NumericsError: The region holds no pixel.
    """
    check_same_shape("psnr", frames, reference)
    error = (frames.astype(np.float64) - reference) ** 2
    if region is not None:
        if region.shape != frames.shape[:3]:
            raise ShapeError(
                explain(
                    "psnr, region",
                    expected=f"shape {frames.shape[:3]}",
                    got=f"{region.shape}",
                    do="Resize the region to the clip.",
                )
            )
        error = error[region]
    if error.size == 0:
        raise NumericsError(
            explain(
                "psnr",
                expected="at least one pixel",
                got="none",
                do="Give a region that holds something.",
            )
        )
    mean = float(error.mean())
    if mean == 0.0:
        return PSNR_CEILING_DB
    return min(PSNR_CEILING_DB, 10.0 * math.log10(255.0**2 / mean))


def ssim(frames: UInt8[np.ndarray, "_ _ _ 3"], reference: UInt8[np.ndarray, "_ _ _ 3"]) -> float:
    """Structural similarity over RGB, the mean over pixels and frames.

    Range: -1 to 1, higher is better; 1 means identical.

    Raises:
        ShapeError: The clips differ, or are smaller than the 7x7 window.

    Source:
        Wang et al. 2004, as scikit-image's ``structural_similarity`` with its defaults (uniform
        window of 7) and a data range of 255.
    """
    check_same_shape("ssim", frames, reference)
    check_ssim_window("ssim", frames)
    return float(
        np.mean(
            [
                structural_similarity(a, b, channel_axis=-1, data_range=255)
                for a, b in zip(frames, reference, strict=True)
            ]
        )
    )


def gradient_energy(frames: UInt8[np.ndarray, "_ _ _ 3"]) -> float:
    """How much detail a clip shows: the mean squared step of luma between neighbouring pixels.

    Range: 0 to 2; a blurred clip has less than a sharp one of the same scene, a noisy or blocky one
    more, so it judges sharpness only beside a metric of fidelity. Luma (ITU-R BT.601) is of the
    coded values, as they are stored and seen, over 255; the steps to the right and down are squared
    and added at every pixel that has both.

    Raises:
        ShapeError: Frames of a single row or column.
    """
    if min(frames.shape[1:3]) < 2 or len(frames) == 0:
        raise ShapeError(
            explain(
                "gradient energy",
                expected="a frame or more, of at least 2x2 pixels",
                got=f"shape {frames.shape}",
                do="Measure larger frames.",
            )
        )
    total = 0.0
    for frame in frames:
        luma = frame @ LUMA / np.float32(255.0)
        right = luma[:-1, 1:] - luma[:-1, :-1]
        down = luma[1:, :-1] - luma[:-1, :-1]
        total += float((right**2 + down**2).mean(dtype=np.float64))
    return total / len(frames)


def check_same_shape(where: str, a: np.ndarray, b: np.ndarray) -> None:
    """Refuse clips of different shapes, and clips of nothing."""
    if a.shape != b.shape:
        raise ShapeError(
            explain(
                where,
                expected=f"the reference's shape {b.shape}",
                got=f"{a.shape}",
                do="Resize the clip to its reference, or trim the longer one.",
            )
        )
    if a.size == 0:
        raise NumericsError(
            explain(where, expected="at least one frame", got="none", do="Give a clip.")
        )


def check_ssim_window(where: str, frames: np.ndarray) -> None:
    """Refuse frames that are smaller than the window of SSIM."""
    height, width = frames.shape[1:3]
    if min(height, width) < SSIM_WINDOW:
        raise ShapeError(
            explain(
                where,
                expected=f"at least {SSIM_WINDOW}x{SSIM_WINDOW} pixels",
                got=f"{width}x{height}",
                do="Compare larger frames.",
            )
        )
