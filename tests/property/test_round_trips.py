"""Whatever goes through a file comes back: clips, times, ids, depth; and maps through chunks."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cosmos_transfer.inputs.depth import read_depth
from cosmos_transfer.inputs.request import ControlRequest
from cosmos_transfer.inputs.segmentation import read_segmentation
from cosmos_transfer.inputs.video import read_clip
from cosmos_transfer.long_video.plan import plan_chunks
from cosmos_transfer.outputs.writer import write_clip
from cosmos_transfer.shapes import Size, Strides
from cosmos_transfer.weights.fusion import token_weights
from cosmos_transfer.weights.maps import build_weight_maps

SEEDS = st.integers(0, 2**32 - 1)
SHAPES = st.tuples(st.integers(1, 40), st.integers(1, 70), st.integers(1, 70))
RATES = st.sampled_from([Fraction(8), Fraction(24), Fraction(30000, 1001), Fraction(60)])
# A folder is shared by the examples of a test: each writes over the last one's files.
QUICK = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def noise(seed: int, shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (*shape, 3), dtype=np.uint8)


def uneven_times(seed: int, num_frames: int) -> tuple[Fraction, ...]:
    gaps = np.random.default_rng(seed).integers(1, 12, num_frames - 1)
    return tuple(Fraction(int(tick), 60) for tick in np.concatenate([[0], np.cumsum(gaps)]))


@QUICK
@given(shape=SHAPES, seed=SEEDS, rate=RATES, codec=st.sampled_from(["ffv1", "rgb"]))
def test_a_clip_of_any_size_comes_back_byte_for_byte(
    tmp_path: Path, shape: tuple[int, int, int], seed: int, rate: Fraction, codec: str
) -> None:
    frames = noise(seed, shape)
    path = write_clip(tmp_path / "clip", frames, rate=rate, codec=codec, overwrite=True)
    again = read_clip(path)
    np.testing.assert_array_equal(again.frames, frames)
    assert again.times == tuple(Fraction(index) / rate for index in range(len(frames)))


@QUICK
@given(shape=SHAPES, seed=SEEDS, uneven=st.booleans())
def test_h264_keeps_size_count_and_times(
    tmp_path: Path, shape: tuple[int, int, int], seed: int, uneven: bool
) -> None:
    frames = noise(seed, shape)
    rate = Fraction(30)
    times = uneven_times(seed, len(frames)) if uneven else None
    path = write_clip(tmp_path / "clip", frames, times=times, rate=rate, overwrite=True)
    again = read_clip(path)
    assert again.frames.shape == frames.shape
    expected = times or tuple(Fraction(index) / rate for index in range(len(frames)))
    assert again.times == expected


@QUICK
@given(shape=SHAPES, seed=SEEDS, largest=st.sampled_from([1, 255, 65_535]))
def test_ids_come_back(
    tmp_path: Path, shape: tuple[int, int, int], seed: int, largest: int
) -> None:
    ids = np.random.default_rng(seed).integers(0, largest + 1, shape)
    array = tmp_path / "ids.npy"
    np.save(array, ids.astype(np.int32))
    np.testing.assert_array_equal(read_segmentation(array).ids, ids)
    picture = tmp_path / "ids_0000.png"
    cv2.imwrite(str(picture), ids[0].astype(np.uint8 if largest <= 255 else np.uint16))
    np.testing.assert_array_equal(read_segmentation(picture).ids[0], ids[0])


@pytest.mark.parametrize(
    ("unit", "quantum"), [("mm", 1e-3), ("kitti256", 1 / 256), ("tum5000", 1 / 5000)]
)
@QUICK
@given(seed=SEEDS)
def test_depth_comes_back_within_the_quantum_of_its_unit(
    tmp_path: Path, seed: int, unit: str, quantum: float
) -> None:
    rng = np.random.default_rng(seed)
    metres = rng.uniform(2 * quantum, 65_000 * quantum, (12, 16))
    codes = np.rint(metres / quantum).astype(np.uint16)
    codes[rng.random(codes.shape) < 0.1] = 0  # no reading
    cv2.imwrite(str(tmp_path / "depth.png"), codes)
    depth = read_depth(tmp_path / "depth.png", unit=unit)
    read = codes > 0
    error = np.abs(depth.metres[0][read] - metres[read])
    # Half a quantum, and the rounding of float32 at these distances.
    assert float(error.max(initial=0.0)) <= quantum / 2 + 1e-6 * float(metres.max())
    assert np.isnan(depth.metres[0][~read]).all()


@QUICK
@given(seed=SEEDS)
def test_carla_depth_comes_back_to_its_24_bits(tmp_path: Path, seed: int) -> None:
    metres = np.random.default_rng(seed).uniform(0.01, 999.0, (6, 8))
    code = np.rint(metres / 1000 * (2**24 - 1)).astype(np.int64)
    red, green, blue = code % 256, code // 256 % 256, code // 65536
    cv2.imwrite(str(tmp_path / "depth.png"), np.stack([blue, green, red], -1).astype(np.uint8))
    depth = read_depth(tmp_path / "depth.png", unit="carla24")
    assert float(np.abs(depth.metres[0] - metres).max()) <= 1000 / (2**24 - 1) + 1e-4


@QUICK
@given(
    num_frames=st.integers(1, 60),
    chunk_latents=st.integers(1, 4),
    overlap=st.sampled_from([0, 1]),
    seed=SEEDS,
)
def test_the_weights_of_a_long_clip_are_those_of_its_chunks(
    num_frames: int, chunk_latents: int, overlap: int, seed: int
) -> None:
    """A chunk's weights come from its own frames of the map: cut, never stretched."""
    strides = Strides(time=4, space=4)
    chunk_frames = strides.pixel_frames(chunk_latents)
    maps = np.random.default_rng(seed).random((num_frames, 8, 16)).astype(np.float32)
    whole = build_weight_maps(
        [ControlRequest(name="edge", weight=maps)], num_frames=num_frames, size=Size(8, 16)
    )
    plan = plan_chunks(
        num_frames,
        chunk_frames=chunk_frames,
        overlap=min(overlap, chunk_frames - 1),
        strides=strides,
    )
    for chunk in plan:
        indices = list(chunk.frame_indices)
        cut = build_weight_maps(
            [ControlRequest(name="edge", weight=maps[indices])],
            num_frames=len(indices),
            size=Size(8, 16),
        )
        of_whole = whole.at_frames(indices)
        np.testing.assert_array_equal(of_whole.values, cut.values)
        tokens = [
            token_weights(torch.from_numpy(each.values), strides, (1, 2, 2), "cap")
            for each in (of_whole, cut)
        ]
        assert torch.equal(*tokens)
