"""Builds table-top scenes: an arm with a gripper, and things on a table in front of a wall.

The table top is z = 0; the camera looks towards +y.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from .camera import Camera, look_at
from .primitives import Finish, Primitive, Shape, place
from .robot import WIDEST_GRIP_M, Arm, build_arm, draw_arm
from .scene import Scene, group_by_role

FLOOR_Z = -0.75
TABLE = Finish("table", "table", (0.62, 0.58, 0.54))
TABLE_LEG = Finish("table", "table leg", (0.36, 0.34, 0.33))
WALL = Finish("wall", "wall", (0.70, 0.70, 0.68))
FLOOR = Finish("floor", "floor", (0.44, 0.42, 0.41))
OBJECT_RGB = (
    (0.86, 0.16, 0.14),
    (0.16, 0.36, 0.86),
    (0.16, 0.64, 0.26),
    (0.94, 0.78, 0.14),
    (0.58, 0.22, 0.70),
    (0.95, 0.50, 0.12),
    (0.12, 0.70, 0.74),
    (0.92, 0.92, 0.90),
    (0.92, 0.48, 0.62),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What the arm is doing: its tool goes from start to end, alone or with an object."""

    kind: str  # reach, push or lift
    start: Float[np.ndarray, " 3"]
    end: Float[np.ndarray, " 3"]
    duration: float  # frames
    phase: float  # share of the way, in time, behind it at the first frame

    def tool_path(self, num_frames: int) -> Float[np.ndarray, "f 3"]:
        """Return where the tool is in each frame: back and forth, but a push ends."""
        phase = self.phase + np.arange(num_frames) / self.duration
        if self.kind == "push":
            phase = np.minimum(phase, 1.0)
        share = 0.5 - 0.5 * np.cos(np.pi * phase)
        return self.start + (self.end - self.start) * share[:, None]

    def gap_to(self, x: float, y: float) -> float:
        """Return how close the whole path comes to a spot on the table, in metres."""
        along = self.end[:2] - self.start[:2]
        offset = np.array([x, y]) - self.start[:2]
        share = np.clip(offset @ along / max(along @ along, 1e-9), 0.0, 1.0)
        return float(np.linalg.norm(offset - share * along))


def build_tabletop(rng: np.random.Generator, num_frames: int) -> Scene:
    """Draw one table-top scene. More frames continue the same motion."""
    half_x, half_y = rng.uniform(0.75, 1.15), rng.uniform(0.50, 0.80)
    is_round = bool(rng.random() < 0.2)
    if is_round:
        half_x = half_y = max(half_y, 0.7)
    camera = _draw_camera(rng, num_frames)
    primitives = _build_room(rng, half_x, half_y, is_round)
    inset = 0.75 if is_round else 1.0  # keeps things off a round table's missing corners
    arm = draw_arm(rng, half_x, half_y)
    task = _draw_task(rng, arm, inset * half_x, inset * half_y)
    tool = task.tool_path(num_frames)
    half_grip = rng.uniform(0.055, 0.08)
    primitives += build_arm(arm, tool, half_grip)
    if task.kind != "reach":
        primitives.append(_carry(_draw_object(rng, half_grip, 0.0, 0.0), task, tool))
    primitives += _scatter_objects(rng, arm, task, inset * half_x, inset * half_y)
    return Scene(family="tabletop", primitives=group_by_role(primitives), camera=camera)


def _draw_camera(rng: np.random.Generator, num_frames: int) -> Camera:
    """Draw a camera that stands still or slowly circles the table."""
    fov_rad = float(np.deg2rad(rng.uniform(40.0, 62.0)))
    radius = rng.uniform(0.95, 1.25) / np.tan(0.5 * fov_rad)
    elevation = np.deg2rad(rng.uniform(16.0, 46.0))
    turn_rate = rng.choice([0.0, -1.0, 1.0]) * rng.uniform(0.004, 0.014)  # rad per frame
    azimuth = np.deg2rad(-90.0 + rng.uniform(-38.0, 38.0)) + turn_rate * np.arange(num_frames)
    target = np.array([rng.uniform(-0.1, 0.1), rng.uniform(-0.1, 0.15), rng.uniform(0.05, 0.25)])
    across = radius * np.cos(elevation)
    position = np.stack(
        [
            target[0] + across * np.cos(azimuth),
            target[1] + across * np.sin(azimuth),
            np.full(num_frames, target[2] + radius * np.sin(elevation)),
        ],
        axis=-1,
    )
    return look_at(position, np.broadcast_to(target, position.shape), fov_rad)


def _build_room(
    rng: np.random.Generator, half_x: float, half_y: float, is_round: bool
) -> list[Primitive]:
    """Build the table, the floor, the wall behind and, sometimes, one at the side."""
    thickness = rng.uniform(0.02, 0.04)
    top = Shape.CYLINDER if is_round else Shape.BOX
    parts = [place(top, (half_x, half_y, thickness), (0.0, 0.0, -thickness), TABLE)]
    half_leg = -0.5 * (FLOOR_Z + 2.0 * thickness)
    leg_width = 0.08 if is_round else 0.04
    signs = [(0, 0)] if is_round else [(-1, -1), (-1, 1), (1, -1), (1, 1)]
    for sign_x, sign_y in signs:
        foot = (sign_x * (half_x - 0.08), sign_y * (half_y - 0.08), FLOOR_Z + half_leg)
        parts.append(place(Shape.BOX, (leg_width, leg_width, half_leg), foot, TABLE_LEG))
    wall_y = half_y + rng.uniform(0.15, 0.9)
    facing_camera = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, -1.0], [0.0, 1.0, 0.0]])
    parts.append(_plane((6.0, 4.0), (0.0, wall_y, FLOOR_Z + 4.0), WALL, facing_camera))
    if rng.random() < 0.4:
        side = float(rng.choice([-1.0, 1.0]))
        facing_inside = np.array([[0.0, 0.0, -side], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
        middle = (side * (half_x + rng.uniform(0.4, 1.0)), wall_y - 6.0, FLOOR_Z + 4.0)
        parts.append(_plane((6.0, 4.0), middle, WALL, facing_inside))
    parts.append(_plane((8.0, 8.0), (0.0, wall_y - 8.0, FLOOR_Z), FLOOR, np.eye(3)))
    return parts


def _plane(
    half_size: tuple[float, float],
    position: tuple[float, float, float],
    finish: Finish,
    rotation: Float[np.ndarray, "3 3"],
) -> Primitive:
    return place(
        Shape.RECTANGLE,
        (*half_size, 0.0),
        position,
        finish,
        rotation=rotation,
        casts_shadow=False,
    )


def _draw_task(rng: np.random.Generator, arm: Arm, half_x: float, half_y: float) -> Task:
    kind = ("reach", "push", "lift")[rng.integers(3)]
    farthest = 0.83 * (arm.upper + arm.fore)
    ends = []
    for _ in range(2):
        angle = -0.5 * np.pi + rng.uniform(-1.0, 1.0)
        distance = rng.uniform(0.38, farthest)
        spot = arm.base[:2] + distance * np.array([np.cos(angle), np.sin(angle)])
        ends.append(np.clip(spot, (-half_x + 0.1, -half_y + 0.1), (half_x - 0.1, half_y)))
    low, high = rng.uniform(0.1, 0.22), rng.uniform(0.25, 0.42)
    if kind == "push":
        low = high = 0.06
    start, end = np.append(ends[0], low), np.append(ends[1], high)
    speed = rng.uniform(0.012, 0.032)  # metres per frame, on average
    return Task(
        kind=kind,
        start=start,
        end=end,
        duration=max(float(np.linalg.norm(end - start)) / speed, 8.0),
        phase=rng.uniform(0.25, 0.55),
    )


def _draw_object(rng: np.random.Generator, size: float, x: float, y: float) -> Primitive:
    """Draw a box, cylinder or ball of about this half size, standing on the table."""
    kind = ("box", "cylinder", "ball")[rng.integers(3)]
    tall, wide = rng.uniform(0.7, 1.6), rng.uniform(0.7, 1.3)
    tint = rng.uniform(0.9, 1.05)
    red, green, blue = OBJECT_RGB[rng.integers(len(OBJECT_RGB))]
    rgb = (min(red * tint, 1.0), min(green * tint, 1.0), min(blue * tint, 1.0))
    shape, half_size = {
        "box": (Shape.BOX, (size, size * wide, size * tall)),
        "cylinder": (Shape.CYLINDER, (size * 0.85, size * 0.85, size * tall * 1.2)),
        "ball": (Shape.SPHERE, (size, size, size)),
    }[kind]
    finish = Finish(kind, "object", rgb)
    return place(shape, half_size, (x, y, half_size[2]), finish, yaw_rad=rng.uniform(0.0, np.pi))


def _scatter_objects(
    rng: np.random.Generator, arm: Arm, task: Task, half_x: float, half_y: float
) -> list[Primitive]:
    """Stand objects on the table: apart from each other, the robot's base and its task."""
    wanted = int(rng.integers(2, 7))
    taken = [(arm.base[0], arm.base[1], 0.2)]
    objects: list[Primitive] = []
    for _ in range(60):
        size = rng.uniform(0.06, 0.15)
        x = rng.uniform(-1.0, 1.0) * (half_x - size - 0.05)
        y = rng.uniform(-1.0, 0.5) * (half_y - size - 0.05)
        item = _draw_object(rng, size, x, y)
        room = 1.4 * size
        is_free = all(np.hypot(x - a, y - b) > room + c for a, b, c in taken)
        if is_free and task.gap_to(x, y) > room + 2.0 * WIDEST_GRIP_M:
            taken.append((x, y, room))
            objects.append(item)
        if len(objects) == wanted:
            break
    return objects


def _carry(item: Primitive, task: Task, tool: Float[np.ndarray, "f 3"]) -> Primitive:
    """Move an object with the tool: held between the fingers, or pushed ahead of them."""
    position = tool.copy()
    if task.kind == "lift":
        position[:, 2] = np.maximum(tool[:, 2] - 0.02, item.half_size[2])
    else:
        way = (task.end - task.start)[:2]
        position[:, :2] += way / max(np.linalg.norm(way), 1e-6) * (item.half_size[0] + 0.06)
        position[:, 2] = item.half_size[2]
    return place(item.shape, item.half_size, position, item.finish, rotation=item.rotation)
