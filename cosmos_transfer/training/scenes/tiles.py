"""The grey patterns behind materials: grain, veins, bricks, checks, leaves.

Each tile is drawn once per process from its own fixed seed, so a look chooses among materials but
never makes new ones. Values run from 0 to 1; a material turns them into colours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

import numpy as np
from jaxtyping import Float

from .noise import TILE_SIZE, Tile, build_tile, fractal_noise, value_noise

Image = Float[np.ndarray, "h w"]


@cache
def tile(name: str) -> Tile:
    """Return a tile by name, drawing it on first use."""
    seed = sorted(_DRAWERS).index(name)
    return build_tile(_DRAWERS[name](np.random.default_rng(seed)))


def _grid() -> tuple[Image, Image]:
    """Return u along the width and v along the height, both in [0, 1)."""
    at = (np.arange(TILE_SIZE) + 0.5) / TILE_SIZE
    return np.meshgrid(at, at)


def _planks(rng: np.random.Generator) -> Image:
    _, v = _grid()
    num_planks = 6
    plank = np.floor(v * num_planks).astype(int)
    shift = rng.integers(0, TILE_SIZE, num_planks)
    grain = fractal_noise(rng, 3, 24, 3)
    columns = (np.arange(TILE_SIZE)[None] + shift[plank]) % TILE_SIZE
    grain = np.take_along_axis(grain, columns, axis=1)
    tint = rng.permutation(np.linspace(0.0, 1.0, num_planks))[plank]
    gap = np.abs(v * num_planks - np.round(v * num_planks)) < 0.07
    return np.where(gap, 0.0, 0.18 + 0.42 * grain + 0.40 * tint)


def _veins(rng: np.random.Generator) -> Image:
    bend = fractal_noise(rng, 3, 3, 4)
    u, v = _grid()
    distance = np.abs(np.sin(np.pi * (u + v + 2.2 * (bend - 0.5))))
    fine = np.abs(np.sin(2.0 * np.pi * (2 * u - v + 1.6 * fractal_noise(rng, 4, 4, 4))))
    cloud = fractal_noise(rng, 4, 4, 3)
    vein = np.exp(-distance / 0.10) * 0.95 + np.exp(-fine / 0.10) * 0.45 * cloud
    return np.clip(0.92 - 0.85 * vein - 0.16 * (1.0 - cloud), 0.0, 1.0)


def _checks(rng: np.random.Generator) -> Image:
    u, v = _grid()
    stripes = ((u * 4) % 1.0 < 0.5).astype(float) + ((v * 4) % 1.0 < 0.5)
    weave = value_noise(rng, 64, 64)
    return np.clip(0.5 * stripes * 0.92 + 0.08 * weave, 0.0, 1.0)


def _brushed(rng: np.random.Generator) -> Image:
    streaks = fractal_noise(rng, 2, 48, 2)
    broad = fractal_noise(rng, 2, 6, 3)
    return np.clip(0.55 * streaks + 0.45 * broad, 0.0, 1.0)


def _bricks(rng: np.random.Generator) -> Image:
    u, v = _grid()
    num_rows, num_columns = 8, 4
    row = np.floor(v * num_rows).astype(int)
    along = u * num_columns + 0.5 * (row % 2)
    column = np.floor(along).astype(int) % num_columns
    tint = rng.random((num_rows, num_columns))[row, column]
    up = v * num_rows - row
    is_mortar = (up < 0.16) | (along - np.floor(along) < 0.08)
    rough = fractal_noise(rng, 16, 16, 3)
    return np.where(is_mortar, 1.0, 0.06 + 0.44 * tint + 0.14 * rough)


def _tiled(rng: np.random.Generator) -> Image:
    u, v = _grid()
    count = 4
    column, row = np.floor(u * count).astype(int), np.floor(v * count).astype(int)
    tint = rng.random((count, count))[row, column]
    is_grout = (u * count - column < 0.09) | (v * count - row < 0.09)
    return np.where(is_grout, 0.0, 0.72 + 0.28 * tint)


def _plaster(rng: np.random.Generator) -> Image:
    return np.clip(0.6 * fractal_noise(rng, 4, 4, 4) + 0.4 * fractal_noise(rng, 16, 16, 3), 0, 1)


def _blotches(rng: np.random.Generator) -> Image:
    return fractal_noise(rng, 3, 3, 4)


def _asphalt(rng: np.random.Generator) -> Image:
    patches = fractal_noise(rng, 3, 2, 3)
    grit = fractal_noise(rng, 24, 24, 3)
    return np.clip(0.6 * patches + 0.4 * grit, 0.0, 1.0)


def _slabs(rng: np.random.Generator) -> Image:
    u, v = _grid()
    count = 4
    column, row = np.floor(u * count).astype(int), np.floor(v * count).astype(int)
    tint = rng.random((count, count))[row, column]
    joint = (u * count - column < 0.06) | (v * count - row < 0.06)
    return np.where(joint, 0.1, 0.45 + 0.35 * tint + 0.2 * fractal_noise(rng, 8, 8, 3))


def _leaves(rng: np.random.Generator) -> Image:
    clumps = fractal_noise(rng, 7, 7, 3)
    return np.clip((clumps - 0.5) * 1.5 + 0.5, 0.0, 1.0)


def _grass(rng: np.random.Generator) -> Image:
    return np.clip(0.5 * fractal_noise(rng, 4, 4, 3) + 0.5 * fractal_noise(rng, 20, 20, 3), 0, 1)


def _clouds(rng: np.random.Generator) -> Image:
    return fractal_noise(rng, 4, 4, 5)


_DRAWERS: Mapping[str, Callable[[np.random.Generator], Image]] = {
    "planks": _planks,
    "veins": _veins,
    "checks": _checks,
    "brushed": _brushed,
    "bricks": _bricks,
    "tiled": _tiled,
    "plaster": _plaster,
    "blotches": _blotches,
    "asphalt": _asphalt,
    "slabs": _slabs,
    "leaves": _leaves,
    "grass": _grass,
    "clouds": _clouds,
}
