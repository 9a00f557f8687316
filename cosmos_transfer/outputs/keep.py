"""The region of the input that stays: composited back after decoding, at the input's own size."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, UInt8

# From here on a pixel counts as kept.
KEPT = 0.5


def keep_region(
    made: UInt8[np.ndarray, "f h w 3"],
    original: UInt8[np.ndarray, "f h w 3"],
    mask: Float[np.ndarray, "f h w"],
) -> UInt8[np.ndarray, "f h w 3"]:
    """Put the input's pixels back where the mask is white; soft values blend.

    A mask of 1 gives the input's bytes, a mask of 0 the made ones.
    """
    kept = np.empty_like(made)
    for frame, new, old, share in zip(kept, made, original, mask, strict=True):
        blended = new + share[..., None].astype(np.float64) * (old.astype(np.float64) - new)
        frame[:] = np.rint(blended)
    return kept


class KeptMetrics:
    """How much of a clip is kept, and how well, over its frames as they come."""

    def __init__(self) -> None:
        self._count = self._total = 0
        self._squares = 0.0

    def add(
        self,
        frames: UInt8[np.ndarray, "f h w 3"],
        original: UInt8[np.ndarray, "f h w 3"],
        mask: Float[np.ndarray, "f h w"],
    ) -> None:
        """Count some frames in."""
        is_kept = mask >= KEPT
        self._count += int(is_kept.sum())
        self._total += mask.size
        for frame, old, here in zip(frames, original, is_kept, strict=True):
            self._squares += float(((frame[here].astype(np.float64) - old[here]) ** 2).sum())

    def values(self) -> dict[str, float | None]:
        """``share`` of the pixels that are kept, and over those the PSNR to the input in dB
        (``psnr_db``), None where every byte is the input's or nothing is kept."""
        psnr = None
        if self._count and self._squares:
            psnr = round(10.0 * float(np.log10(255.0**2 * 3 * self._count / self._squares)), 3)
        return {"share": round(self._count / self._total, 6), "psnr_db": psnr}


def kept_metrics(
    frames: UInt8[np.ndarray, "f h w 3"],
    original: UInt8[np.ndarray, "f h w 3"],
    mask: Float[np.ndarray, "f h w"],
) -> dict[str, float | None]:
    """:class:`KeptMetrics` of a whole clip."""
    metrics = KeptMetrics()
    metrics.add(frames, original, mask)
    return metrics.values()
