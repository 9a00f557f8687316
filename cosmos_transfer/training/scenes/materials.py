"""What each role in a scene is made of under a given look.

A material is a tile, its size, and either a ramp of absolute colours or a gain on the primitive's
own albedo. Colours here are display values in [0, 1]; `linear` squares them, which stands in for
sRGB.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from .looks import Look
from .primitives import Rgb
from .tiles import tile


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """How a surface reflects light."""

    tile: str
    size_m: tuple[float, float]  # metres covered by one tile
    ramp: tuple[Rgb, Rgb, Rgb] | None = None  # colours at tones 0, 0.5 and 1
    gain: tuple[float, float] = (0.8, 1.2)  # factors on the albedo at tones 0 and 1, without a ramp
    gloss: float = 0.0  # strength of highlights
    shift: tuple[float, float] = (0.0, 0.0)  # in tiles

    def albedo(
        self,
        texture: Float[np.ndarray, "2 n"],
        footprint: Float[np.ndarray, " n"],
        base: Float[np.ndarray, "3 n"],
    ) -> Float[np.ndarray, "3 n"]:
        """Return linear albedo at texture coordinates in metres; `base` is linear, too."""
        u = texture[0] * np.float32(1.0 / self.size_m[0]) + np.float32(self.shift[0])
        v = texture[1] * np.float32(1.0 / self.size_m[1]) + np.float32(self.shift[1])
        tone = tile(self.tile).sample(u, v, footprint / np.float32(min(self.size_m)))
        if self.ramp is None:
            low, high = self.gain
            return base * (np.float32(low) + np.float32(high - low) * tone)
        table = _ramp_table(self.ramp)
        return table[:, np.clip(tone * 255.0 + 0.5, 0, 255).astype(np.intp)]


def linear(rgb: Rgb) -> Float[np.ndarray, " 3"]:
    """Turn display values into linear ones."""
    return np.square(np.array(rgb, dtype=np.float32))


def _ramp_table(ramp: tuple[Rgb, Rgb, Rgb]) -> Float[np.ndarray, "3 256"]:
    at = np.linspace(0.0, 1.0, 256)
    colours = np.array(ramp)
    table = np.stack([np.interp(at, (0.0, 0.5, 1.0), colours[:, axis]) for axis in range(3)])
    return np.square(table).astype(np.float32)


WOODS = (
    ((0.22, 0.12, 0.06), (0.56, 0.36, 0.20), (0.80, 0.58, 0.36)),
    ((0.16, 0.08, 0.05), (0.42, 0.24, 0.14), (0.60, 0.38, 0.24)),
    ((0.38, 0.26, 0.16), (0.74, 0.56, 0.36), (0.92, 0.78, 0.56)),
)
MARBLES = (
    ((0.30, 0.31, 0.34), (0.70, 0.71, 0.73), (0.96, 0.95, 0.94)),
    ((0.80, 0.80, 0.78), (0.36, 0.40, 0.40), (0.16, 0.20, 0.21)),
)
CLOTHS = (
    ((0.94, 0.92, 0.88), (0.84, 0.44, 0.42), (0.72, 0.12, 0.14)),
    ((0.94, 0.93, 0.90), (0.50, 0.60, 0.82), (0.16, 0.28, 0.66)),
    ((0.94, 0.93, 0.88), (0.52, 0.72, 0.50), (0.14, 0.46, 0.22)),
)
METALS = (((0.42, 0.45, 0.49), (0.62, 0.65, 0.69), (0.84, 0.86, 0.89)),)
BRICKS = (
    ((0.42, 0.16, 0.11), (0.68, 0.32, 0.23), (0.84, 0.80, 0.74)),
    ((0.50, 0.24, 0.14), (0.76, 0.44, 0.28), (0.88, 0.84, 0.76)),
)
PLASTERS = (
    ((0.62, 0.58, 0.50), (0.78, 0.74, 0.66), (0.90, 0.87, 0.80)),
    ((0.58, 0.58, 0.58), (0.74, 0.74, 0.74), (0.88, 0.88, 0.87)),
)
PAINTS = (
    ((0.24, 0.42, 0.66), (0.28, 0.47, 0.71), (0.32, 0.51, 0.75)),
    ((0.30, 0.54, 0.42), (0.34, 0.59, 0.46), (0.38, 0.63, 0.50)),
    ((0.80, 0.62, 0.24), (0.85, 0.67, 0.28), (0.88, 0.71, 0.32)),
    ((0.64, 0.34, 0.36), (0.69, 0.38, 0.40), (0.73, 0.42, 0.44)),
)
TILED = (((0.44, 0.46, 0.47), (0.66, 0.72, 0.74), (0.92, 0.95, 0.95)),)
FLOORS = (
    ("planks", (1.4, 1.4), ((0.16, 0.11, 0.08), (0.40, 0.30, 0.22), (0.56, 0.44, 0.33))),
    ("blotches", (1.6, 1.6), ((0.38, 0.38, 0.38), (0.46, 0.46, 0.45), (0.56, 0.55, 0.54))),
)


def choose_materials(look: Look, rng: np.random.Generator) -> Mapping[str, Material]:
    """Return the material of every role; the generator settles tints and shifts."""
    return _outdoors(rng) if look.family == "driving" else _indoors(look, rng)


def _indoors(look: Look, rng: np.random.Generator) -> Mapping[str, Material]:
    choice = {
        name: int(rng.integers(2**16))
        for name in ("wood", "marble", "cloth", "brick", "plaster", "painted", "floor")
    }
    shift = (float(rng.random()), float(rng.random()))

    def pick(name: str, ramps: tuple) -> tuple[Rgb, Rgb, Rgb]:
        return ramps[choice[name] % len(ramps)]

    tables = {
        "wood": Material(tile="planks", size_m=(1.1, 1.1), ramp=pick("wood", WOODS), gloss=0.12),
        "marble": Material(
            tile="veins", size_m=(1.0, 1.0), ramp=pick("marble", MARBLES), gloss=0.4, shift=shift
        ),
        "cloth": Material(tile="checks", size_m=(0.8, 0.8), ramp=pick("cloth", CLOTHS)),
        "metal": Material(tile="brushed", size_m=(2.4, 0.9), ramp=METALS[0], gloss=0.7),
    }
    walls = {
        "brick": Material(tile="bricks", size_m=(1.5, 1.2), ramp=pick("brick", BRICKS)),
        "plaster": Material(
            tile="plaster", size_m=(1.6, 1.6), ramp=pick("plaster", PLASTERS), shift=shift
        ),
        "painted": Material(tile="blotches", size_m=(2.0, 2.0), ramp=pick("painted", PAINTS)),
        "tiled": Material(tile="tiled", size_m=(1.2, 1.2), ramp=TILED[0], gloss=0.25),
    }
    floor_tile, floor_size, floor_ramp = FLOORS[choice["floor"] % len(FLOORS)]
    return {
        "table": tables[str(look.table)],
        "table leg": Material(tile="brushed", size_m=(0.5, 0.5), gain=(0.7, 1.0), gloss=0.1),
        "wall": walls[str(look.wall)],
        "floor": Material(tile=floor_tile, size_m=floor_size, ramp=floor_ramp, gloss=0.05),
        "robot": Material(tile="blotches", size_m=(0.6, 0.6), gain=(0.85, 1.05), gloss=0.45),
        "robot joint": Material(tile="blotches", size_m=(0.4, 0.4), gain=(0.8, 1.2), gloss=0.35),
        "gripper": Material(tile="brushed", size_m=(0.4, 0.3), gain=(0.8, 1.4), gloss=0.5),
        "object": Material(tile="blotches", size_m=(0.5, 0.5), gain=(0.82, 1.1), gloss=0.35),
    }


def _outdoors(rng: np.random.Generator) -> Mapping[str, Material]:
    shift = (float(rng.random()), float(rng.random()))
    grass = ((0.24, 0.32, 0.12), (0.36, 0.48, 0.20), (0.50, 0.58, 0.28))
    return {
        "road": Material(tile="asphalt", size_m=(6.0, 9.0), gain=(0.6, 1.3), shift=shift),
        "sidewalk": Material(tile="slabs", size_m=(4.0, 4.0), gain=(0.55, 1.25)),
        "terrain": Material(tile="grass", size_m=(5.0, 5.0), ramp=grass, shift=shift),
        "facade": Material(tile="plaster", size_m=(5.0, 5.0), gain=(0.75, 1.15), shift=shift),
        "roof": Material(tile="planks", size_m=(3.0, 2.4), gain=(0.7, 1.25)),
        "parapet": Material(tile="blotches", size_m=(3.0, 3.0), gain=(0.85, 1.1)),
        "trunk": Material(tile="brushed", size_m=(0.6, 0.8), gain=(0.5, 1.3)),
        "leaves": Material(tile="leaves", size_m=(2.2, 2.2), gain=(0.25, 1.6), shift=shift),
        "pole": Material(tile="blotches", size_m=(2.0, 2.0), gain=(0.8, 1.1), gloss=0.2),
        "street lamp": Material(tile="blotches", size_m=(2.0, 2.0), gain=(0.9, 1.0)),
        "car paint": Material(tile="blotches", size_m=(4.0, 4.0), gain=(0.92, 1.05), gloss=0.6),
        "car glass": Material(tile="blotches", size_m=(3.0, 3.0), gain=(0.8, 1.1), gloss=0.9),
        "tyre": Material(tile="blotches", size_m=(1.0, 1.0), gain=(0.8, 1.1)),
        "tail light": Material(tile="blotches", size_m=(1.0, 1.0), gain=(1.0, 1.0)),
        "head light": Material(tile="blotches", size_m=(1.0, 1.0), gain=(1.0, 1.0)),
    }
