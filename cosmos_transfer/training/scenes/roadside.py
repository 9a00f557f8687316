"""What stands beside a road: blocks, houses, trees and street lamps."""

from __future__ import annotations

import numpy as np

from .primitives import Finish, Primitive, Rgb, Shape, Windows, place
from .scene import StreetLamps

BUILT_UP_TO_M = 130.0
TREES_UP_TO_M = 70.0
LAMPS_UP_TO_M = 60.0
FACADE_RGB = (
    (0.66, 0.36, 0.28),
    (0.76, 0.68, 0.56),
    (0.60, 0.62, 0.66),
    (0.82, 0.78, 0.66),
    (0.52, 0.56, 0.62),
    (0.72, 0.52, 0.40),
    (0.86, 0.84, 0.80),
)
ROOF_RGB = ((0.46, 0.26, 0.22), (0.34, 0.34, 0.37), (0.40, 0.33, 0.28))
LEAF_RGB = ((0.24, 0.46, 0.18), (0.32, 0.50, 0.20), (0.18, 0.40, 0.22))
TRUNK = Finish("vegetation", "trunk", (0.36, 0.25, 0.17))
POLE = Finish("pole", "pole", (0.32, 0.33, 0.35))
LAMP_HEAD = Finish("pole", "street lamp", (0.32, 0.33, 0.35))
HOUSE_WINDOWS = Windows(pitch=2.6, width=1.15, storey=2.8, height=1.35)


def build_roadside(rng: np.random.Generator, side: float, edge: float) -> list[Primitive]:
    """Line one side of a street, from near to far.

    Args:
        side: -1 for the left, 1 for the right.
        edge: Distance of the sidewalk's far edge from the road's middle, in metres.
    """
    parts: list[Primitive] = []
    density = rng.uniform(0.35, 0.9)
    y = rng.uniform(-6.0, 4.0)
    while y < BUILT_UP_TO_M:
        half_y = rng.uniform(3.5, 8.0) * (1.0 if y < 60.0 else 2.0)
        setback = rng.uniform(0.2, 1.0) if density > 0.6 else rng.uniform(0.5, 5.0)
        build = _build_house if rng.random() < 0.35 else _build_block
        building = build(rng, side, edge + setback, y + half_y, half_y)
        if rng.random() < density:
            parts += building
        y += 2.0 * half_y + rng.uniform(0.3, 6.0)
    y = rng.uniform(2.0, 9.0)
    gap = rng.uniform(7.0, 18.0)
    while y < TREES_UP_TO_M:
        parts += _build_tree(rng, side * (edge + rng.uniform(-0.7, 0.3)), y)
        y += gap * rng.uniform(0.7, 1.4)
    return parts


def build_lamps(lamps: StreetLamps) -> list[Primitive]:
    """Build a pole with an arm over the road at each lamp."""
    parts: list[Primitive] = []
    half = 0.5 * lamps.height
    for x, first_y in zip(lamps.x, lamps.first_y, strict=True):
        for y in np.arange(first_y, LAMPS_UP_TO_M, lamps.spacing):
            head = (x - np.sign(x) * 0.55, y, lamps.height)
            parts.append(place(Shape.CYLINDER, (0.08, 0.08, half), (x, y, half), POLE))
            parts.append(place(Shape.BOX, (0.65, 0.16, 0.09), head, LAMP_HEAD))
    return parts


def _build_block(
    rng: np.random.Generator, side: float, near_x: float, y: float, half_y: float
) -> list[Primitive]:
    """Build a flat-roofed block with a parapet."""
    half_x, height = rng.uniform(3.0, 6.0), rng.uniform(6.0, 19.0)
    pitch = rng.uniform(1.9, 3.0)
    windows = Windows(
        pitch=pitch,
        width=pitch * rng.uniform(0.42, 0.62),
        storey=rng.uniform(2.7, 3.4),
        height=rng.uniform(1.4, 1.9),
    )
    red, green, blue = FACADE_RGB[rng.integers(len(FACADE_RGB))]
    facade = Finish("building", "facade", (red, green, blue))
    parapet = Finish("building", "parapet", (0.72 * red, 0.72 * green, 0.72 * blue))
    x = side * (near_x + half_x)
    body_size = (half_x, half_y, 0.5 * height)
    edge_size = (half_x + 0.2, half_y + 0.2, 0.25)
    return [
        place(Shape.BOX, body_size, (x, y, 0.5 * height), facade, windows=windows),
        place(Shape.BOX, edge_size, (x, y, height + 0.25), parapet),
    ]


def _build_house(
    rng: np.random.Generator, side: float, near_x: float, y: float, half_y: float
) -> list[Primitive]:
    """Build a small house under a gabled or hipped roof."""
    half_y = min(half_y, 5.5)
    half_x, height = rng.uniform(3.0, 4.5), rng.uniform(3.0, 5.8)
    half_roof = rng.uniform(0.8, 1.4)
    x = side * (near_x + half_x)
    facade = Finish("building", "facade", FACADE_RGB[rng.integers(len(FACADE_RGB))])
    tiles = Finish("building", "roof", ROOF_RGB[rng.integers(len(ROOF_RGB))])
    hip = 0.35 if rng.random() < 0.5 else 0.0
    body_size = (half_x, half_y, 0.5 * height)
    roof_size = (half_x + 0.35, half_y + 0.3, half_roof)
    return [
        place(Shape.BOX, body_size, (x, y, 0.5 * height), facade, windows=HOUSE_WINDOWS),
        place(Shape.BOX, roof_size, (x, y, height + half_roof), tiles, taper=(0.98, hip)),
    ]


def _build_tree(rng: np.random.Generator, x: float, y: float) -> list[Primitive]:
    """Build a conifer, or a round tree of one to three crowns."""
    leaf_rgb: Rgb = LEAF_RGB[rng.integers(len(LEAF_RGB))]
    leaves = Finish("vegetation", "leaves", leaf_rgb)
    trunk_height = rng.uniform(1.6, 2.6)
    half_trunk = 0.5 * trunk_height + 0.3
    parts = [place(Shape.CYLINDER, (0.14, 0.14, half_trunk), (x, y, half_trunk), TRUNK)]
    radius = rng.uniform(0.9, 1.5)
    if rng.random() < 0.3:
        half = rng.uniform(1.6, 2.4)
        size, middle = (0.9 * radius, 0.9 * radius, half), (x, y, 0.6 * trunk_height + half)
        turn = rng.uniform(0.0, 1.5)
        parts.append(place(Shape.BOX, size, middle, leaves, yaw_rad=turn, taper=(0.97, 0.97)))
        return parts
    crown = np.array([x, y, trunk_height + 0.75 * radius])
    parts.append(place(Shape.SPHERE, (radius, radius, radius), crown, leaves))
    for _ in range(int(rng.integers(0, 3))):
        shift = rng.uniform(-0.7, 0.7, size=3) * radius
        small = radius * rng.uniform(0.55, 0.8)
        parts.append(place(Shape.SPHERE, (small, small, small), crown + shift, leaves))
    return parts
