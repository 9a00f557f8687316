from __future__ import annotations

import cv2
import numpy as np
import pytest

from cosmos_transfer.controls.edge import (
    EDGE_PRESETS,
    canny_edges,
    edge_picture,
    extract_edge,
    resize_edges,
)
from cosmos_transfer.errors import ConfigError
from cosmos_transfer.shapes import Size

PUBLISHED = {
    "very_low": (20, 50),
    "low": (50, 100),
    "medium": (100, 200),
    "high": (200, 300),
    "very_high": (300, 400),
}


def textured_clip(num_frames: int = 2, height: int = 48, width: int = 64) -> np.ndarray:
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 256, (num_frames, height, width, 3), dtype=np.uint8)
    return np.stack([cv2.GaussianBlur(frame, (0, 0), 1.2) for frame in frames])


@pytest.mark.parametrize("preset", PUBLISHED)
def test_a_preset_is_canny_at_the_published_thresholds(preset):
    assert EDGE_PRESETS[preset] == PUBLISHED[preset]
    frames = textured_clip()
    edges = extract_edge(frames, preset)
    for frame, edge in zip(frames, edges, strict=True):
        expected = cv2.Canny(cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY), *PUBLISHED[preset])
        np.testing.assert_array_equal(edge, np.repeat(expected[..., None], 3, axis=2))


def test_a_higher_threshold_keeps_fewer_edges():
    shares = [extract_edge(textured_clip(), preset).mean() for preset in PUBLISHED]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > shares[-1]


def test_extraction_is_deterministic():
    frames = textured_clip()
    np.testing.assert_array_equal(extract_edge(frames), extract_edge(frames.copy()))


def test_a_view_that_is_not_contiguous_works():
    frames = textured_clip()
    flipped = frames[:, :, ::-1]
    np.testing.assert_array_equal(canny_edges(flipped), canny_edges(flipped.copy()))


def test_an_unknown_preset_lists_the_known_ones():
    with pytest.raises(ConfigError, match="very_low, low, medium, high, very_high"):
        extract_edge(textured_clip(), "strong")


def test_a_thin_line_survives_shrinking_in_full_white():
    edges = np.zeros((1, 480, 640), dtype=bool)
    edges[0, 237] = True
    edges[0, :, 101] = True
    small = resize_edges(edge_picture(edges), Size(48, 64))
    assert set(np.unique(small)) == {0, 255}
    assert (small[0, 23] == 255).all()
    assert (small[0, :, 10] == 255).all()
    assert small[0, :, :, 0].sum() == 255 * (48 + 64 - 1)


def test_an_enlarged_edge_picture_stays_black_and_white():
    edges = np.zeros((1, 6, 8), dtype=bool)
    edges[0, 2, 3] = True
    large = resize_edges(edge_picture(edges), Size(12, 16))
    assert set(np.unique(large)) == {0, 255}
    assert large[0, :, :, 0].sum() == 4 * 255


@pytest.mark.parametrize("size", [(40, 50), (1, 7), (7, 1), (4, 4)])
def test_the_picture_is_the_edges_drawn(size):
    frames = np.random.default_rng(0).integers(0, 256, (3, *size, 3), dtype=np.uint8)
    for each in (frames, frames[:, ::-1]):
        np.testing.assert_array_equal(extract_edge(each), edge_picture(canny_edges(each)))
