"""Cars and vans: body, cabin, roof, wheels and lights."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from .primitives import Finish, Primitive, Shape, place

CAR_RGB = (
    (0.80, 0.14, 0.12),
    (0.14, 0.30, 0.72),
    (0.92, 0.92, 0.92),
    (0.16, 0.17, 0.19),
    (0.62, 0.64, 0.67),
    (0.93, 0.74, 0.12),
    (0.12, 0.52, 0.36),
    (0.90, 0.46, 0.12),
)
GLASS = Finish("car", "car glass", (0.20, 0.24, 0.29))
TYRE = Finish("car", "tyre", (0.10, 0.10, 0.11))
TAIL_LIGHT = Finish("car", "tail light", (0.80, 0.10, 0.10))
HEAD_LIGHT = Finish("car", "head light", (0.94, 0.93, 0.84))
AXLE_ALONG_X = np.array([[0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [-1.0, 0.0, 0.0]])
WHEEL_RADIUS_M = 0.31


def build_traffic(
    rng: np.random.Generator,
    num_frames: int,
    lane_x: Float[np.ndarray, " n"],
    own_lane: int,
    own_speed: float,
) -> list[Primitive]:
    """Put cars in lanes: right of the middle they go our way, elsewhere towards us.

    Args:
        lane_x: Middle of each lane, in metres.
        own_speed: Of the camera, in metres per frame.
    """
    frames = np.arange(num_frames)
    parts: list[Primitive] = []
    for lane, middle in enumerate(lane_x):
        goes_our_way = lane >= len(lane_x) // 2
        y = rng.uniform(8.0, 22.0) if lane == own_lane else rng.uniform(6.0, 22.0)
        for _ in range(int(rng.integers(0, 3))):
            faster = rng.uniform(-0.06, 0.1)
            speed = max(own_speed + faster, 0.0) if goes_our_way else -rng.uniform(0.05, 0.2)
            path_y = y + speed * frames
            if lane == own_lane:  # keeps its distance on long clips
                path_y = np.maximum(path_y, own_speed * frames + 6.0)
            parts += _build_car(rng, middle + rng.uniform(-0.3, 0.3), path_y, goes_our_way)
            y += rng.uniform(9.0, 22.0)
    return parts


def _build_car(
    rng: np.random.Generator, x: float, y: Float[np.ndarray, " f"], shows_tail: bool
) -> list[Primitive]:
    is_van = bool(rng.random() < 0.2)
    half_x, half_y = rng.uniform(0.85, 0.95), rng.uniform(1.9, 2.3)
    half_body = 0.33 if is_van else 0.2
    half_cabin = 0.36 if is_van else 0.31
    paint = Finish("car", "car paint", CAR_RGB[rng.integers(len(CAR_RGB))])
    heading = 1.0 if shows_tail else -1.0
    base = np.stack([np.full_like(y, x), y, np.full_like(y, 0.26)], axis=-1)

    def at(aside: float, ahead: float, above: float) -> Float[np.ndarray, "f 3"]:
        return base + np.array([aside, heading * ahead, above])

    cabin_y, cabin_z = -0.12 * half_y, 2.0 * half_body + half_cabin
    cabin = (0.92 * half_x, (0.85 if is_van else 0.56) * half_y, half_cabin)
    roof = (0.74 * half_x, (0.82 if is_van else 0.64) * cabin[1], 0.04)
    lean = (0.2, 0.12 if is_van else 0.34)
    parts = [
        place(Shape.BOX, (half_x, half_y, half_body), at(0.0, 0.0, half_body), paint),
        place(Shape.BOX, cabin, at(0.0, cabin_y, cabin_z), GLASS, taper=lean),
        place(Shape.BOX, roof, at(0.0, cabin_y, cabin_z + half_cabin), paint),
    ]
    lights = TAIL_LIGHT if shows_tail else HEAD_LIGHT
    near_end = -half_y if shows_tail else half_y
    for side in (-1.0, 1.0):
        lamp = at(side * 0.72 * half_x, near_end, 1.3 * half_body)
        parts.append(place(Shape.BOX, (0.2, 0.03, 0.09), lamp, lights, casts_shadow=False))
        for end in (-0.62, 0.62):
            wheel = at(side * (half_x - 0.09), end * half_y, WHEEL_RADIUS_M - 0.26)
            size = (WHEEL_RADIUS_M, WHEEL_RADIUS_M, 0.12)
            parts.append(
                place(Shape.CYLINDER, size, wheel, TYRE, rotation=AXLE_ALONG_X, casts_shadow=False)
            )
    return parts
