"""Builds driving scenes: a straight street seen from a vehicle that moves along it.

The road runs along +y on z = 0; the camera starts near y = 0.
"""

from __future__ import annotations

import numpy as np

from .camera import Camera, look_at
from .primitives import Primitive, Shape, Windows, place
from .scene import RoadMarkings, Scene, StreetLamps, group_by_role

STREET_END_M = 130.0
KERB_M = 0.15
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


def build_driving(rng: np.random.Generator, num_frames: int) -> Scene:
    """Draw one street. More frames drive further along it."""
    lanes = int(rng.integers(2, 5))
    lane_width = rng.uniform(3.0, 3.6)
    half_road = 0.5 * lanes * lane_width + 0.3
    walk_width = rng.uniform(1.6, 3.2)
    own_lane = int(rng.integers(lanes // 2, lanes))
    lane_x = (np.arange(lanes) + 0.5 - 0.5 * lanes) * lane_width
    camera, speed = _draw_camera(rng, num_frames, lane_x[own_lane])
    lamps = StreetLamps(
        x=(-(half_road + 0.5), half_road + 0.5),
        first_y=rng.uniform(4.0, 12.0),
        spacing=rng.uniform(16.0, 24.0),
        height=rng.uniform(4.6, 6.0),
    )
    primitives = _build_ground(half_road, walk_width)
    for side in (-1.0, 1.0):
        primitives += _build_side(rng, side, half_road + walk_width)
        primitives += _build_lamps(lamps, side)
    primitives += _build_traffic(rng, num_frames, lane_x, own_lane, speed)
    inner = (np.arange(1, lanes) - 0.5 * lanes) * lane_width
    edge = half_road - 0.35
    markings = RoadMarkings(solid_x=(-edge, edge), dashed_x=tuple(float(x) for x in inner))
    return Scene(
        family="driving",
        primitives=group_by_role(primitives),
        camera=camera,
        markings=markings,
        lamps=lamps,
    )


def _draw_camera(rng: np.random.Generator, num_frames: int, lane_x: float) -> tuple[Camera, float]:
    frames = np.arange(num_frames)
    speed = rng.uniform(0.05, 0.2)  # metres per frame
    height = rng.uniform(1.3, 2.0) if rng.random() < 0.7 else rng.uniform(2.0, 3.4)
    fov_rad = np.deg2rad(rng.uniform(58.0, 82.0))
    yaw = rng.uniform(-0.14, 0.14) + rng.uniform(-0.006, 0.006) * frames
    pitch = rng.uniform(-0.09, 0.02) - 0.03 * (height - 1.3)
    x = lane_x + rng.uniform(-0.4, 0.4)
    position = np.stack([np.full(num_frames, x), speed * frames, np.full(num_frames, height)], -1)
    forward = np.stack([np.sin(yaw), np.cos(yaw), np.full(num_frames, np.tan(pitch))], -1)
    return look_at(position, position + forward, fov_rad), speed


def _build_ground(half_road: float, walk_width: float) -> list[Primitive]:
    far = 400.0
    parts = [
        place(
            Shape.RECTANGLE,
            (half_road, far, 0.0),
            (0, 0, 0),
            class_name="road",
            role="road",
            albedo=(0.34, 0.34, 0.35),
            casts_shadow=False,
        ),
        place(
            Shape.RECTANGLE,
            (far, far, 0.0),
            (0, 0, -0.02),
            class_name="terrain",
            role="terrain",
            albedo=(0.42, 0.54, 0.30),
            casts_shadow=False,
        ),
    ]
    for side in (-1.0, 1.0):
        parts.append(
            place(
                Shape.BOX,
                (0.5 * walk_width, far, 0.5 * KERB_M),
                (side * (half_road + 0.5 * walk_width), 0, 0.5 * KERB_M),
                class_name="sidewalk",
                role="sidewalk",
                albedo=(0.62, 0.60, 0.58),
                casts_shadow=False,
            )
        )
    return parts


def _build_side(rng: np.random.Generator, side: float, edge: float) -> list[Primitive]:
    """Line one side of the street with houses, blocks and trees, from near to far."""
    parts: list[Primitive] = []
    y = rng.uniform(-6.0, 4.0)
    density = rng.uniform(0.35, 0.9)
    tree_y = rng.uniform(2.0, 9.0)
    while y < STREET_END_M:
        half_y = rng.uniform(3.5, 8.0) * (1.0 if y < 60.0 else 2.0)
        setback = rng.uniform(0.2, 1.0) if density > 0.6 else rng.uniform(0.5, 5.0)
        house = _build_house if rng.random() < 0.35 else _build_block
        building = house(rng, side, edge + setback, y + half_y, half_y)
        if rng.random() < density:
            parts += building
        y += 2.0 * half_y + rng.uniform(0.3, 6.0)
    tree_gap = rng.uniform(7.0, 18.0)
    while tree_y < 70.0:
        parts += _build_tree(rng, side * (edge + rng.uniform(-0.7, 0.3)), tree_y)
        tree_y += tree_gap * rng.uniform(0.7, 1.4)
    return parts


def _build_block(
    rng: np.random.Generator, side: float, near_x: float, y: float, half_y: float
) -> list[Primitive]:
    half_x, height = rng.uniform(3.0, 6.0), rng.uniform(6.0, 19.0)
    pitch = rng.uniform(1.9, 3.0)
    windows = Windows(
        pitch=pitch,
        width=pitch * rng.uniform(0.42, 0.62),
        storey=rng.uniform(2.7, 3.4),
        height=rng.uniform(1.4, 1.9),
    )
    rgb = FACADE_RGB[rng.integers(len(FACADE_RGB))]
    x = side * (near_x + half_x)
    body = place(
        Shape.BOX,
        (half_x, half_y, 0.5 * height),
        (x, y, 0.5 * height),
        class_name="building",
        role="facade",
        albedo=rgb,
        windows=windows,
    )
    parapet = place(
        Shape.BOX,
        (half_x + 0.2, half_y + 0.2, 0.25),
        (x, y, height + 0.25),
        class_name="building",
        role="parapet",
        albedo=tuple(0.72 * value for value in rgb),
    )
    return [body, parapet]


def _build_house(
    rng: np.random.Generator, side: float, near_x: float, y: float, half_y: float
) -> list[Primitive]:
    half_y = min(half_y, 5.5)
    half_x, height = rng.uniform(3.0, 4.5), rng.uniform(3.0, 5.8)
    roof_height = rng.uniform(1.6, 2.8)
    x = side * (near_x + half_x)
    windows = Windows(pitch=2.6, width=1.15, storey=2.8, height=1.35)
    body = place(
        Shape.BOX,
        (half_x, half_y, 0.5 * height),
        (x, y, 0.5 * height),
        class_name="building",
        role="facade",
        albedo=FACADE_RGB[rng.integers(len(FACADE_RGB))],
        windows=windows,
    )
    roof = place(
        Shape.BOX,
        (half_x + 0.35, half_y + 0.3, 0.5 * roof_height),
        (x, y, height + 0.5 * roof_height),
        class_name="building",
        role="roof",
        albedo=ROOF_RGB[rng.integers(len(ROOF_RGB))],
        taper=(0.98, 0.35 if rng.random() < 0.5 else 0.0),
    )
    return [body, roof]


def _build_tree(rng: np.random.Generator, x: float, y: float) -> list[Primitive]:
    rgb = LEAF_RGB[rng.integers(len(LEAF_RGB))]
    trunk_height = rng.uniform(1.6, 2.6)
    leaves = {"class_name": "vegetation", "role": "leaves", "albedo": rgb}
    parts = [
        place(
            Shape.CYLINDER,
            (0.14, 0.14, 0.5 * trunk_height + 0.3),
            (x, y, 0.5 * trunk_height + 0.3),
            class_name="vegetation",
            role="trunk",
            albedo=(0.36, 0.25, 0.17),
        )
    ]
    radius = rng.uniform(0.9, 1.5)
    if rng.random() < 0.3:  # a conifer
        half_height = rng.uniform(1.6, 2.4)
        size, taper = (0.9 * radius, 0.9 * radius, half_height), (0.97, 0.97)
        top = (x, y, 0.6 * trunk_height + half_height)
        parts.append(
            place(Shape.BOX, size, top, yaw_rad=rng.uniform(0, 1.5), taper=taper, **leaves)
        )
        return parts
    crown = np.array([x, y, trunk_height + 0.75 * radius])
    parts.append(place(Shape.SPHERE, (radius,) * 3, crown, **leaves))
    for _ in range(int(rng.integers(0, 3))):
        shift = rng.uniform(-0.7, 0.7, size=3) * radius
        small = radius * rng.uniform(0.55, 0.8)
        parts.append(place(Shape.SPHERE, (small,) * 3, crown + shift, **leaves))
    return parts


def _build_lamps(lamps: StreetLamps, side: float) -> list[Primitive]:
    parts: list[Primitive] = []
    x = lamps.x[0] if side < 0 else lamps.x[1]
    y = lamps.first_y + (0.5 * lamps.spacing if side < 0 else 0.0)
    pole = {"class_name": "pole", "albedo": (0.32, 0.33, 0.35)}
    while y < 60.0:
        half = 0.5 * lamps.height
        parts.append(place(Shape.CYLINDER, (0.08, 0.08, half), (x, y, half), role="pole", **pole))
        head = (x - side * 0.55, y, lamps.height)
        parts.append(place(Shape.BOX, (0.65, 0.16, 0.09), head, role="street lamp", **pole))
        y += lamps.spacing
    return parts


def _build_traffic(
    rng: np.random.Generator,
    num_frames: int,
    lane_x: np.ndarray,
    own_lane: int,
    own_speed: float,
) -> list[Primitive]:
    """Put cars in lanes: to the right of the middle they go our way, elsewhere towards us."""
    frames = np.arange(num_frames)
    parts: list[Primitive] = []
    for lane, x in enumerate(lane_x):
        ours = lane >= len(lane_x) // 2
        y = rng.uniform(8.0, 22.0) if lane == own_lane else rng.uniform(5.0, 22.0)
        for _ in range(int(rng.integers(0, 3))):
            slower = rng.uniform(-0.06, 0.1)
            speed = max(own_speed + slower, 0.0) if ours else -rng.uniform(0.05, 0.2)
            start = y if ours else y + 2.0
            car_y = start + speed * frames
            if lane == own_lane:  # keep a distance on long clips
                car_y = np.maximum(car_y, own_speed * frames + 6.0)
            parts += _build_car(rng, x + rng.uniform(-0.3, 0.3), car_y, ours)
            y += rng.uniform(9.0, 22.0)
    return parts


def _build_car(rng: np.random.Generator, x: float, y: np.ndarray, away: bool) -> list[Primitive]:
    """Assemble a car or a van that shows its tail (`away`) or its front."""
    is_van = rng.random() < 0.2
    half_x, half_y = rng.uniform(0.85, 0.95), rng.uniform(1.9, 2.3)
    body_height = 0.62 if is_van else 0.36
    cabin_half = 0.36 if is_van else 0.31
    heading = 1.0 if away else -1.0
    rgb = CAR_RGB[rng.integers(len(CAR_RGB))]
    base = np.stack([np.full_like(y, x), y, np.full_like(y, 0.26)], axis=-1)

    def at(dx: float, dy: float, dz: float) -> np.ndarray:
        return base + np.array([dx, heading * dy, dz])

    paint = {"class_name": "car", "role": "car paint", "albedo": rgb}
    half_body = 0.5 * body_height + 0.02
    cabin_z = 2.0 * half_body + cabin_half
    cabin_size = (0.92 * half_x, (0.85 if is_van else 0.56) * half_y, cabin_half)
    parts = [
        place(Shape.BOX, (half_x, half_y, half_body), at(0, 0, half_body), **paint),
        place(
            Shape.BOX,
            cabin_size,
            at(0, -0.12 * half_y, cabin_z),
            taper=(0.2, 0.12 if is_van else 0.34),
            class_name="car",
            role="car glass",
            albedo=(0.20, 0.24, 0.29),
        ),
        place(
            Shape.BOX,
            (0.74 * half_x, 0.74 * cabin_size[1] * (1.1 if is_van else 0.86), 0.04),
            at(0, -0.12 * half_y, cabin_z + cabin_half),
            **paint,
        ),
    ]
    lights = {"class_name": "car", "casts_shadow": False}
    if away:
        lights |= {"role": "tail light", "albedo": (0.80, 0.10, 0.10)}
    else:
        lights |= {"role": "head light", "albedo": (0.94, 0.93, 0.84)}
    for side in (-1.0, 1.0):
        lamp = at(side * 0.72 * half_x, -heading * half_y, 1.3 * half_body)
        parts.append(place(Shape.BOX, (0.2, 0.03, 0.09), lamp, **lights))
        for end in (-1.0, 1.0):
            wheel = at(side * (half_x - 0.1), end * 0.6 * half_y, 0.05)
            parts.append(
                place(
                    Shape.BOX,
                    (0.12, 0.31, 0.31),
                    wheel,
                    class_name="car",
                    role="tyre",
                    albedo=(0.10, 0.10, 0.11),
                    casts_shadow=False,
                )
            )
    return parts
