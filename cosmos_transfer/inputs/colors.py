"""Decoded frames to pixel arrays without shifting a colour.

FFmpeg's quick YUV-to-RGB path darkens by about one level and repeats colour samples instead of
interpolating them: four times the error on a small clip. Its exact path is right and takes three
times as long as decoding. The usual case, limited-range YUV to 8-bit RGB, therefore takes two
steps with the same result to within one rounding: FFmpeg interpolates the colour planes to full
size in 16 bits, and OpenCV applies the matrix. Everything else goes through FFmpeg's exact path.

With Y', Cb, Cr in 16 bits (black 16 x 256, white 235 x 256, Cb and Cr around 128 x 256) and the
luma coefficients Kr, Kg, Kb of the stream's standard (ITU-R BT.601-7, BT.709-6):
R = y + 2(1 - Kr) r,  B = y + 2(1 - Kb) b,  G = y - (2 Kb (1 - Kb) b + 2 Kr (1 - Kr) r) / Kg.
"""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from av.video.reformatter import ColorRange, Interpolation, VideoReformatter
from jaxtyping import Num, UInt8

_EXACT = (
    Interpolation.BICUBIC
    | Interpolation.ACCURATE_RND
    | Interpolation.FULL_CHR_H_INT
    | Interpolation.BITEXACT
)
_LIMITED_YUV = frozenset(
    f"yuv{sampling}p{depth}" for sampling in (420, 422, 444) for depth in ("", "10le", "12le")
)
# Kr and Kb by FFmpeg's number of the colour space. A stream that does not say (2) is taken as
# BT.601, as FFmpeg takes it.
_BT601 = (0.299, 0.114)
_LUMA_COEFFICIENTS = {1: (0.2126, 0.0722), 2: _BT601, 5: _BT601, 6: _BT601}
_LEVEL = 256.0  # an 8-bit level in 16 bits
_LUMA_SCALE = 255 / 219 / _LEVEL
_COLOR_SCALE = 255 / 224 / _LEVEL
_BLACK, _GREY = 16 * _LEVEL, 128 * _LEVEL
# What both colour planes take from green is below 310 levels: in these units it fits 16 bits.
_GREEN_UNIT = 1 / 128


class FrameColors:
    """Converts the frames of one stream, keeping FFmpeg's tables from frame to frame."""

    def __init__(self) -> None:
        self._reformatter = VideoReformatter()

    def convert(self, frame: Any, pixel_format: str) -> Num[np.ndarray, "h w *c"]:
        """The pixels of a PyAV frame in one of FFmpeg's layouts ("rgb24", "gray16le", ...)."""
        is_usual = (
            pixel_format == "rgb24"
            and frame.format.name in _LIMITED_YUV
            and frame.color_range != ColorRange.JPEG
            and int(frame.colorspace) in _LUMA_COEFFICIENTS
        )
        if is_usual:
            return self._limited_yuv_to_rgb(frame)
        converted = self._reformatter.reformat(
            frame, format=pixel_format, interpolation=_EXACT, threads=1
        )
        return converted.to_ndarray()

    def _limited_yuv_to_rgb(self, frame: Any) -> UInt8[np.ndarray, "h w 3"]:
        planes = self._reformatter.reformat(
            frame, format="yuv444p16le", interpolation=_EXACT, threads=1
        ).planes
        y, b, r = (
            np.asarray(memoryview(plane))
            .view(np.uint16)
            .reshape(plane.height, -1)[:, : plane.width]
            for plane in planes
        )
        k_r, k_b = _LUMA_COEFFICIENTS[int(frame.colorspace)]
        k_g = 1 - k_r - k_b
        of_r, of_b = 2 * (1 - k_r) * _COLOR_SCALE, 2 * (1 - k_b) * _COLOR_SCALE
        green_r, green_b = of_r * k_r / k_g, of_b * k_b / k_g
        black = -_BLACK * _LUMA_SCALE
        green = cv2.addWeighted(
            b, green_b / _GREEN_UNIT, r, green_r / _GREEN_UNIT, 0, dtype=cv2.CV_16U
        )
        return cv2.merge(
            [
                _weighted(y, _LUMA_SCALE, r, of_r, black - _GREY * of_r),
                _weighted(y, _LUMA_SCALE, green, -_GREEN_UNIT, black + _GREY * (green_r + green_b)),
                _weighted(y, _LUMA_SCALE, b, of_b, black - _GREY * of_b),
            ]
        )


def _weighted(
    a: np.ndarray, of_a: float, b: np.ndarray, of_b: float, offset: float
) -> UInt8[np.ndarray, "h w"]:
    """``of_a a + of_b b + offset``, rounded and kept within 0 to 255."""
    return cv2.addWeighted(a, of_a, b, of_b, offset, dtype=cv2.CV_8U)
