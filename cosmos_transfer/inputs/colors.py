"""Decoded frames to pixel arrays without shifting a colour.

FFmpeg's quick YUV-to-RGB path darkens by about one level and repeats colour samples instead of
interpolating them: four times the error on a small clip. Its exact path is right and takes three
times as long as decoding. The usual case, limited-range YUV to 8-bit RGB, therefore takes two
steps with the same result to within one rounding: FFmpeg interpolates the colour planes to full
size in 16 bits, and OpenCV applies the matrix. Everything else goes through FFmpeg's exact path.

A frame that is wanted at half its size or less is averaged before it becomes RGB: the matrix is
linear, so that the mean of the planes gives the mean of the colours, and a colour plane of half the
size is not enlarged first. That is twice as quick, and nearer to the picture that was encoded:
colours beyond RGB, which subsampling makes along sharp borders, average out instead of being cut
off one by one.

With y, b, r as shares of the range (luma 16 to 235, colours 128 -+ 112 of 8 bits; JPEG's full range
0 to 255, 128 -+ 127.5) and the luma coefficients Kr, Kg, Kb of the stream's standard (ITU-R
BT.601-7, BT.709-6; JFIF):
R = y + 2(1 - Kr) r,  B = y + 2(1 - Kb) b,  G = y - (2 Kb (1 - Kb) b + 2 Kr (1 - Kr) r) / Kg.
"""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from av.video.reformatter import ColorRange, Interpolation, VideoReformatter
from jaxtyping import Float32, Num, UInt8

from cosmos_transfer.shapes import Size

_EXACT = (
    Interpolation.BICUBIC
    | Interpolation.ACCURATE_RND
    | Interpolation.FULL_CHR_H_INT
    | Interpolation.BITEXACT
)
_YUV = frozenset(
    f"yuv{sampling}p{depth}" for sampling in (420, 422, 444) for depth in ("", "10le", "12le")
)
_FULL_RANGE_YUV = frozenset(f"yuvj{sampling}p" for sampling in (420, 422, 444))
# Kr and Kb by FFmpeg's number of the colour space. A stream that does not say (2) is taken as
# BT.601, as FFmpeg takes it.
_BT601 = (0.299, 0.114)
_LUMA_COEFFICIENTS = {1: (0.2126, 0.0722), 2: _BT601, 5: _BT601, 6: _BT601}
# Black, the luma's range and the colours' range, in 8-bit levels; and the middle of the colours.
_LIMITED, _FULL = (16.0, 219.0, 224.0), (0.0, 255.0, 255.0)
_GREY = 128.0
# What both colour planes take from green is below 310 levels: in these units it fits 16 bits.
_GREEN_UNIT = 1 / 128


class FrameColors:
    """Converts the frames of one stream, keeping tables and memory from frame to frame."""

    def __init__(self) -> None:
        self._reformatter = VideoReformatter()
        self._scratch: dict[tuple[int, ...], Float32[np.ndarray, "_ _"]] = {}

    def convert(
        self, frame: Any, pixel_format: str, size: Size | None = None
    ) -> Num[np.ndarray, "h w *c"]:
        """The pixels of a PyAV frame in one of FFmpeg's layouts ("rgb24", "gray16le", ...).

        ``size`` averages them over areas on the way where that is worth it: what comes back is of
        that size or, where it is not, of the frame's own.
        """
        if pixel_format == "rgb24" and int(frame.colorspace) in _LUMA_COEFFICIENTS:
            is_full = frame.format.name in _FULL_RANGE_YUV or (
                frame.format.name in _YUV and frame.color_range == ColorRange.JPEG
            )
            is_limited = frame.format.name in _YUV and not is_full
            if (is_full or is_limited) and size is not None and _fits_color_planes(frame, size):
                return self._averaged_yuv_to_rgb(frame, size, _FULL if is_full else _LIMITED)
            if is_limited:
                return self._limited_yuv_to_rgb(frame)
        converted = self._reformatter.reformat(
            frame, format=pixel_format, interpolation=_EXACT, threads=1
        )
        return converted.to_ndarray()

    def _limited_yuv_to_rgb(self, frame: Any) -> UInt8[np.ndarray, "h w 3"]:
        full = self._reformatter.reformat(
            frame, format="yuv444p16le", interpolation=_EXACT, threads=1
        )
        return _apply_matrix(*_planes(full, np.uint16), level=256, frame=frame)

    def _averaged_yuv_to_rgb(
        self, frame: Any, size: Size, levels: tuple[float, float, float]
    ) -> UInt8[np.ndarray, "h w 3"]:
        bits = frame.format.components[0].bits
        planes = _planes(frame, np.uint8 if bits == 8 else np.uint16)
        y, b, r = (self._average(plane, size) for plane in planes)
        return _apply_matrix(y, b, r, level=1 << (bits - 8), frame=frame, levels=levels)

    def _average(
        self, plane: Num[np.ndarray, "_ _"], size: Size
    ) -> Float32[np.ndarray, "{size.height} {size.width}"]:
        scratch = self._scratch.get(plane.shape)
        if scratch is None:
            scratch = self._scratch.setdefault(plane.shape, np.empty(plane.shape, np.float32))
        np.copyto(scratch, plane)
        return cv2.resize(scratch, (size.width, size.height), interpolation=cv2.INTER_AREA)


def _planes(frame: Any, dtype: type[np.integer[Any]]) -> list[np.ndarray]:
    return [
        np.asarray(memoryview(plane)).view(dtype).reshape(plane.height, -1)[:, : plane.width]
        for plane in frame.planes
    ]


def _fits_color_planes(frame: Any, size: Size) -> bool:
    """Whether no plane has to grow, and the colour planes cover the frame and no more."""
    color = frame.planes[1]
    covers = frame.width % color.width == 0 and frame.height % color.height == 0
    shrinks = (size.height, size.width) != (frame.height, frame.width)
    return covers and shrinks and size.height <= color.height and size.width <= color.width


def _apply_matrix(
    y: Num[np.ndarray, "h w"],
    b: Num[np.ndarray, "h w"],
    r: Num[np.ndarray, "h w"],
    *,
    level: int,
    frame: Any,
    levels: tuple[float, float, float] = _LIMITED,
) -> UInt8[np.ndarray, "h w 3"]:
    """RGB of a frame's planes, in which an 8-bit level is ``level``."""
    k_r, k_b = _LUMA_COEFFICIENTS[int(frame.colorspace)]
    k_g = 1 - k_r - k_b
    black, luma_range, color_range = levels
    of_r, of_b = 2 * (1 - k_r) * 255 / color_range, 2 * (1 - k_b) * 255 / color_range
    green_r, green_b = of_r * k_r / k_g, of_b * k_b / k_g
    luma = 255 / luma_range / level
    black *= -255 / luma_range
    green = cv2.addWeighted(
        b,
        green_b / level / _GREEN_UNIT,
        r,
        green_r / level / _GREEN_UNIT,
        0,
        dtype=cv2.CV_16U if y.dtype == np.uint16 else cv2.CV_32F,
    )
    return cv2.merge(
        [
            _weighted(y, luma, r, of_r / level, black - _GREY * of_r),
            _weighted(y, luma, green, -_GREEN_UNIT, black + _GREY * (green_r + green_b)),
            _weighted(y, luma, b, of_b / level, black - _GREY * of_b),
        ]
    )


def _weighted(
    a: np.ndarray, of_a: float, b: np.ndarray, of_b: float, offset: float
) -> UInt8[np.ndarray, "h w"]:
    """``of_a a + of_b b + offset``, rounded and kept within 0 to 255."""
    return cv2.addWeighted(a, of_a, b, of_b, offset, dtype=cv2.CV_8U)
