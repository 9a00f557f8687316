"""Builds driving scenes: a straight street seen from a vehicle that moves along it.

The road runs along +y on z = 0; the camera starts near y = 0.
"""

from __future__ import annotations

import numpy as np

from .camera import Camera, look_at
from .cars import build_traffic
from .primitives import Finish, Primitive, Shape, place
from .roadside import build_lamps, build_roadside
from .scene import RoadMarkings, Scene, StreetLamps, group_by_role

GROUND_REACH_M = 400.0
KERB_M = 0.15
ROAD = Finish("road", "road", (0.34, 0.34, 0.35))
TERRAIN = Finish("terrain", "terrain", (0.42, 0.54, 0.30))
SIDEWALK = Finish("sidewalk", "sidewalk", (0.62, 0.60, 0.58))


def build_driving(rng: np.random.Generator, num_frames: int) -> Scene:
    """Draw one street. More frames drive further along it."""
    num_lanes = int(rng.integers(2, 5))
    lane_width = rng.uniform(3.0, 3.6)
    half_road = 0.5 * num_lanes * lane_width + 0.3
    walk_width = rng.uniform(1.6, 3.2)
    own_lane = int(rng.integers(num_lanes // 2, num_lanes))
    lane_x = (np.arange(num_lanes) + 0.5 - 0.5 * num_lanes) * lane_width
    speed = rng.uniform(0.05, 0.2)  # metres per frame
    camera = _draw_camera(rng, num_frames, lane_x[own_lane], speed)
    first_lamp, spacing = rng.uniform(4.0, 12.0), rng.uniform(16.0, 24.0)
    lamps = StreetLamps(
        x=(-(half_road + 0.5), half_road + 0.5),
        first_y=(first_lamp + 0.5 * spacing, first_lamp),
        spacing=spacing,
        height=rng.uniform(4.6, 6.0),
    )
    primitives = _build_ground(half_road, walk_width)
    primitives += build_roadside(rng, -1.0, half_road + walk_width)
    primitives += build_roadside(rng, 1.0, half_road + walk_width)
    primitives += build_lamps(lamps)
    primitives += build_traffic(rng, num_frames, lane_x, own_lane, speed)
    between_lanes = 0.5 * (lane_x[1:] + lane_x[:-1])
    edge = half_road - 0.35
    return Scene(
        family="driving",
        primitives=group_by_role(primitives),
        camera=camera,
        markings=RoadMarkings(solid_x=(-edge, edge), dashed_x=tuple(between_lanes.tolist())),
        lamps=lamps,
    )


def _draw_camera(rng: np.random.Generator, num_frames: int, lane_x: float, speed: float) -> Camera:
    """Draw a car's or, now and then, a lorry's point of view."""
    frames = np.arange(num_frames)
    height = rng.uniform(1.3, 2.0) if rng.random() < 0.7 else rng.uniform(2.0, 3.4)
    fov_rad = float(np.deg2rad(rng.uniform(58.0, 82.0)))
    yaw = rng.uniform(-0.14, 0.14) + rng.uniform(-0.006, 0.006) * frames
    pitch = rng.uniform(-0.09, 0.02) - 0.03 * (height - 1.3)
    x = lane_x + rng.uniform(-0.4, 0.4)
    position = np.stack([np.full(num_frames, x), speed * frames, np.full(num_frames, height)], -1)
    forward = np.stack([np.sin(yaw), np.cos(yaw), np.full(num_frames, np.tan(pitch))], -1)
    return look_at(position, position + forward, fov_rad)


def _build_ground(half_road: float, walk_width: float) -> list[Primitive]:
    far = GROUND_REACH_M
    road_size, terrain_size = (half_road, far, 0.0), (far, far, 0.0)
    walk_size = (0.5 * walk_width, far, 0.5 * KERB_M)
    walk_x = half_road + 0.5 * walk_width
    return [
        place(Shape.RECTANGLE, road_size, (0.0, 0.0, 0.0), ROAD, casts_shadow=False),
        place(Shape.RECTANGLE, terrain_size, (0.0, 0.0, -0.02), TERRAIN, casts_shadow=False),
        place(Shape.BOX, walk_size, (-walk_x, 0.0, 0.5 * KERB_M), SIDEWALK, casts_shadow=False),
        place(Shape.BOX, walk_size, (walk_x, 0.0, 0.5 * KERB_M), SIDEWALK, casts_shadow=False),
    ]
