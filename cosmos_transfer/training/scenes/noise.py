"""Periodic grey tiles with blurred copies, so that textures fade instead of shimmering.

Texture coordinates count tiles: a tile repeats at every integer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

TILE_SIZE = 128
STEPS_PER_OCTAVE = 4  # blur levels per doubling of the footprint
NUM_OCTAVES = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """One periodic image, and what is left of it under ever larger footprints."""

    texels: Float[np.ndarray, " e"]  # all levels, one after the other
    offsets: np.ndarray  # where each level starts
    sizes: np.ndarray  # width of each level

    def sample(
        self,
        u: Float[np.ndarray, " n"],
        v: Float[np.ndarray, " n"],
        footprint: Float[np.ndarray, " n"],
    ) -> Float[np.ndarray, " n"]:
        """Read the tile at (u, v), averaged over a footprint given in tiles."""
        blur = np.log2(np.maximum(footprint, 1e-6) * np.float32(TILE_SIZE)) * STEPS_PER_OCTAVE
        level = np.clip(blur + 0.5, 0, len(self.sizes) - 1).astype(np.int32)
        size = self.sizes[level]
        x, y = u * size.astype(np.float32), v * size.astype(np.float32)
        left, top = np.floor(x), np.floor(y)
        x -= left
        y -= top
        mask = size - 1
        left_index = left.astype(np.int32) & mask
        right_index = (left_index + 1) & mask
        top_index = top.astype(np.int32) & mask
        bottom_index = (top_index + 1) & mask
        start = self.offsets[level]
        top_index = top_index * size + start
        bottom_index = bottom_index * size + start
        upper = _between(self.texels, top_index + left_index, top_index + right_index, x)
        lower = _between(self.texels, bottom_index + left_index, bottom_index + right_index, x)
        return upper + (lower - upper) * y


def _between(
    texels: np.ndarray, first: np.ndarray, second: np.ndarray, share: np.ndarray
) -> np.ndarray:
    start = texels[first]
    return start + (texels[second] - start) * share


def build_tile(image: Float[np.ndarray, "h w"]) -> Tile:
    """Blur a periodic image by a Gaussian of each level's width, and thin it accordingly."""
    spectrum = np.fft.rfft2(image)
    frequency_v = np.fft.fftfreq(TILE_SIZE)[:, None]
    frequency_u = np.fft.rfftfreq(TILE_SIZE)[None]
    frequency_squared = frequency_u**2 + frequency_v**2
    levels, sizes = [], []
    for level in range(NUM_OCTAVES * STEPS_PER_OCTAVE):
        footprint = 2.0 ** (level / STEPS_PER_OCTAVE)  # in texels
        sigma = 0.4 * footprint
        blurred = np.fft.irfft2(
            spectrum * np.exp(-2.0 * (np.pi * sigma) ** 2 * frequency_squared), s=image.shape
        )
        stride = 2 ** max(level // STEPS_PER_OCTAVE - 1, 0)
        levels.append(blurred[::stride, ::stride].astype(np.float32).reshape(-1))
        sizes.append(TILE_SIZE // stride)
    counts = np.array([len(level) for level in levels])
    return Tile(
        texels=np.concatenate(levels),
        offsets=(np.cumsum(counts) - counts).astype(np.int32),
        sizes=np.array(sizes, dtype=np.int32),
    )


def value_noise(rng: np.random.Generator, cells_u: int, cells_v: int) -> Float[np.ndarray, "h w"]:
    """Interpolate random values on a periodic grid; values in [0, 1]."""
    grid = rng.random((cells_v, cells_u))
    rows = _smooth_weights(cells_v)
    columns = _smooth_weights(cells_u)
    return rows @ grid @ columns.T


def fractal_noise(
    rng: np.random.Generator, cells_u: int, cells_v: int, num_octaves: int = 4
) -> Float[np.ndarray, "h w"]:
    """Add octaves of value noise, each half as strong; stretched to [0, 1]."""
    total = np.zeros((TILE_SIZE, TILE_SIZE))
    for octave in range(num_octaves):
        scale = 2**octave
        u = min(cells_u * scale, TILE_SIZE)
        v = min(cells_v * scale, TILE_SIZE)
        total += value_noise(rng, u, v) * 0.55**octave
    low, high = np.percentile(total, (1.0, 99.0))
    return np.clip((total - low) / (high - low), 0.0, 1.0)


def _smooth_weights(cells: int) -> Float[np.ndarray, "h c"]:
    at = np.arange(TILE_SIZE) * cells / TILE_SIZE
    cell = np.floor(at).astype(int)
    share = at - cell
    share = share * share * (3.0 - 2.0 * share)
    weights = np.zeros((TILE_SIZE, cells))
    weights[np.arange(TILE_SIZE), cell] += 1.0 - share
    weights[np.arange(TILE_SIZE), (cell + 1) % cells] += share
    return weights
