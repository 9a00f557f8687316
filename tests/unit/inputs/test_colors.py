from __future__ import annotations

from typing import Any

import av
import numpy as np
import pytest
from av.video.reformatter import ColorRange, Interpolation

from cosmos_transfer.inputs.colors import FrameColors
from cosmos_transfer.inputs.video import resize_frames
from cosmos_transfer.shapes import Size
from tests.unit.inputs.media_files import smooth_frames

EXACT = (
    Interpolation.BICUBIC
    | Interpolation.ACCURATE_RND
    | Interpolation.FULL_CHR_H_INT
    | Interpolation.BITEXACT
)
SATURATED = np.random.default_rng(0).integers(0, 2, (37, 53, 3), dtype=np.uint8) * 255


def encoded(pixels: np.ndarray, pixel_format: str, color_space: int) -> Any:
    frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels), format="rgb24")
    space = None if color_space == 2 else color_space
    frame = frame.reformat(format=pixel_format, interpolation=EXACT, dst_colorspace=space)
    frame.colorspace = color_space
    return frame


@pytest.mark.parametrize("color_space", [1, 2, 6], ids=["bt709", "unsaid", "bt601"])
@pytest.mark.parametrize("size", [(36, 52), (37, 53), (1, 1), (4, 1), (1, 4), (2, 3)])
@pytest.mark.parametrize("pixel_format", ["yuv420p", "yuv422p", "yuv444p", "yuv420p10le"])
def test_the_short_way_is_ffmpegs_exact_way(pixel_format, size, color_space):
    """To within one rounding, which few values need, and with the same mean."""
    height, width = size
    for pixels in (smooth_frames(1, 37, 53)[0], SATURATED):
        frame = encoded(pixels[:height, :width], pixel_format, color_space)
        ours = FrameColors().convert(frame, "rgb24").astype(int)
        difference = ours - frame.to_ndarray(format="rgb24", interpolation=EXACT)
        assert np.abs(difference).max() <= 1
        if difference.size > 1000:
            assert np.mean(difference != 0) < 0.03
            assert abs(difference.mean()) < 0.02


def averaged(pixels: np.ndarray, size: Size) -> np.ndarray:
    return resize_frames(pixels[None], size, how="area")[0]


@pytest.mark.parametrize("color_space", [1, 2, 6], ids=["bt709", "unsaid", "bt601"])
@pytest.mark.parametrize(
    "pixel_format", ["yuv420p", "yuv422p", "yuv444p", "yuv420p10le", "yuvj420p"]
)
def test_planes_averaged_first_are_nearer_to_the_mean_of_what_was_encoded(
    pixel_format, color_space
):
    """Where colours change along sharp borders; elsewhere they are the mean of the frame's RGB."""
    size = Size(36, 49)
    blocks = SATURATED[:24, :32].repeat(4, axis=0).repeat(4, axis=1)
    for pixels, is_smooth in ((smooth_frames(1, 96, 128)[0], True), (blocks, False)):
        frame = encoded(pixels, pixel_format, color_space)
        ours = FrameColors().convert(frame, "rgb24", size).astype(int)
        after = averaged(FrameColors().convert(frame, "rgb24"), size)
        wanted = averaged(pixels, size)
        if is_smooth or "444" in pixel_format:
            assert np.abs(ours - after).max() <= 1
            assert abs(np.mean(ours - after)) < 0.1
        else:
            assert rms(ours - wanted) < 0.5 * rms(after.astype(int) - wanted)


def rms(difference: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(difference, dtype=float))))


@pytest.mark.parametrize(
    ("pixel_format", "shape", "size"),
    [
        ("yuv420p", (96, 128), Size(49, 60)),  # a colour plane would have to grow
        ("yuv420p", (95, 128), Size(36, 49)),  # the colour planes reach beyond the frame
        ("yuv444p", (96, 128), Size(96, 128)),
        ("gbrp", (96, 128), Size(36, 49)),
    ],
)
def test_frames_not_worth_averaging_first_come_at_their_own_size(pixel_format, shape, size):
    frame = encoded(smooth_frames(1, *shape)[0], pixel_format, 1)
    np.testing.assert_array_equal(
        FrameColors().convert(frame, "rgb24", size), FrameColors().convert(frame, "rgb24")
    )


def test_one_converter_serves_frames_of_many_kinds():
    colors = FrameColors()
    for pixel_format in ("yuv420p", "yuv444p", "gray", "rgb24", "yuv420p"):
        frame = encoded(smooth_frames(1, 36, 52)[0], pixel_format, 1)
        exact = frame.to_ndarray(format="rgb24", interpolation=EXACT).astype(int)
        assert np.abs(colors.convert(frame, "rgb24") - exact).max() <= 1


@pytest.mark.parametrize(
    ("pixel_format", "wanted"),
    [("gbrp", "rgb24"), ("yuvj420p", "rgb24"), ("bgr0", "rgb24"), ("gray16le", "gray16le")],
)
def test_other_kinds_go_ffmpegs_way(pixel_format, wanted):
    frame = encoded(smooth_frames(1, 36, 52)[0], pixel_format, 2)
    np.testing.assert_array_equal(
        FrameColors().convert(frame, wanted),
        frame.to_ndarray(format=wanted, interpolation=EXACT),
    )


def test_full_range_is_not_taken_as_limited():
    frame = encoded(SATURATED, "yuv444p", 1)
    frame.color_range = ColorRange.JPEG
    np.testing.assert_array_equal(
        FrameColors().convert(frame, "rgb24"),
        frame.to_ndarray(format="rgb24", interpolation=EXACT),
    )
