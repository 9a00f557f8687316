"""Builds table-top scenes: an arm with a gripper, and things on a table in front of a wall.

The table top is z = 0; the camera looks towards +y.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from .camera import Camera, look_at
from .primitives import Primitive, Shape, place
from .scene import Scene, group_by_role

FLOOR_Z = -0.75
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
ROBOT_RGB = ((0.93, 0.50, 0.12), (0.90, 0.90, 0.90), (0.30, 0.42, 0.62), (0.92, 0.78, 0.18))
JOINT_RGB = (0.24, 0.25, 0.28)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """Sizes of one robot; metres."""

    base: Float[np.ndarray, " 3"]
    shoulder_height: float
    upper: float
    fore: float
    radius: float
    rgb: tuple[float, float, float]


def build_tabletop(rng: np.random.Generator, num_frames: int) -> Scene:
    """Draw one table-top scene. More frames continue the same motion."""
    half_x, half_y = rng.uniform(0.75, 1.15), rng.uniform(0.50, 0.80)
    is_round = rng.random() < 0.2
    if is_round:
        half_x = half_y = max(half_y, 0.7)
    camera = _draw_camera(rng, num_frames)
    primitives = _build_room(rng, half_x, half_y, is_round)
    arm = _draw_arm(rng, half_x, half_y)
    inset = 0.75 if is_round else 1.0  # keeps things off a round table's missing corners
    objects = _draw_objects(rng, arm, inset * half_x, inset * half_y)
    task = str(rng.choice(["reach", "push", "lift"]))
    start, end, duration = _draw_path(rng, arm, task, inset * half_x, inset * half_y)
    phase = rng.uniform(0.25, 0.55) + np.arange(num_frames) / duration
    tool = _tool_path(task, start, end, phase)
    used = [] if task == "reach" else objects[:1]
    primitives += _build_arm(arm, tool, grip=used[0].half_size[0] if used else 0.05)
    primitives += [_carry(used[0], task, start, end, tool)] if used else []
    clear_of = np.concatenate([tool[:1], tool[-1:]])
    for item in objects[len(used) :]:
        gap = np.linalg.norm(clear_of[:, :2] - item.position[:, :2], axis=-1).min()
        if task == "reach" or gap > 0.2:
            primitives.append(item)
    return Scene(family="tabletop", primitives=group_by_role(primitives), camera=camera)


def _draw_camera(rng: np.random.Generator, num_frames: int) -> Camera:
    fov_rad = np.deg2rad(rng.uniform(40.0, 62.0))
    radius = rng.uniform(0.95, 1.25) / np.tan(0.5 * fov_rad)
    elevation = np.deg2rad(rng.uniform(16.0, 46.0))
    turn_rate = rng.choice([0.0, 1.0]) * rng.uniform(-0.006, 0.006)  # rad per frame
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
    thickness = rng.uniform(0.02, 0.04)
    top = {"class_name": "table", "role": "table", "albedo": (0.62, 0.58, 0.54)}
    if is_round:
        parts = [place(Shape.CYLINDER, (half_x, half_x, thickness), (0, 0, -thickness), **top)]
        legs = [(0.0, 0.0)]
    else:
        parts = [place(Shape.BOX, (half_x, half_y, thickness), (0, 0, -thickness), **top)]
        legs = [(x * (half_x - 0.08), y * (half_y - 0.08)) for x in (-1, 1) for y in (-1, 1)]
    leg_half = -0.5 * (FLOOR_Z + 2.0 * thickness)
    leg_size = (0.08, 0.08, leg_half) if is_round else (0.04, 0.04, leg_half)
    for x, y in legs:
        parts.append(
            place(
                Shape.BOX,
                leg_size,
                (x, y, FLOOR_Z + leg_half),
                class_name="table",
                role="table leg",
                albedo=(0.36, 0.34, 0.33),
            )
        )
    wall_y = half_y + rng.uniform(0.15, 0.9)
    wall = {"class_name": "wall", "role": "wall", "albedo": (0.70, 0.70, 0.68)}
    facing_camera = [[1.0, 0.0, 0.0], [0.0, 0.0, -1.0], [0.0, 1.0, 0.0]]
    parts.append(
        place(
            Shape.RECTANGLE,
            (6.0, 4.0, 0.0),
            (0, wall_y, FLOOR_Z + 4.0),
            rotation=np.array(facing_camera),
            casts_shadow=False,
            **wall,
        )
    )
    if rng.random() < 0.4:
        side = rng.choice([-1.0, 1.0])
        facing_inside = [[0.0, 0.0, -side], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
        parts.append(
            place(
                Shape.RECTANGLE,
                (6.0, 4.0, 0.0),
                (side * (half_x + rng.uniform(0.4, 1.0)), wall_y - 6.0, FLOOR_Z + 4.0),
                rotation=np.array(facing_inside),
                casts_shadow=False,
                **wall,
            )
        )
    parts.append(
        place(
            Shape.RECTANGLE,
            (8.0, 8.0, 0.0),
            (0, wall_y - 8.0, FLOOR_Z),
            class_name="floor",
            role="floor",
            albedo=(0.44, 0.42, 0.41),
            casts_shadow=False,
        )
    )
    return parts


def _draw_arm(rng: np.random.Generator, half_x: float, half_y: float) -> Arm:
    reach = rng.uniform(0.42, 0.55)
    base_x = rng.uniform(-0.45, 0.45) * half_x
    return Arm(
        base=np.array([base_x, half_y * rng.uniform(0.35, 0.7), 0.0]),
        shoulder_height=rng.uniform(0.2, 0.32),
        upper=reach,
        fore=reach * rng.uniform(0.85, 1.05),
        radius=rng.uniform(0.045, 0.065),
        rgb=ROBOT_RGB[rng.integers(len(ROBOT_RGB))],
    )


def _draw_objects(
    rng: np.random.Generator, arm: Arm, half_x: float, half_y: float
) -> list[Primitive]:
    """Stand objects on the table, apart from each other and from the robot's base."""
    wanted = int(rng.integers(2, 7))
    taken = [(arm.base[0], arm.base[1], 0.2)]
    objects: list[Primitive] = []
    for _ in range(40):
        if len(objects) == wanted:
            break
        size = rng.uniform(0.055, 0.075) if not objects else rng.uniform(0.06, 0.15)
        x = rng.uniform(-1.0, 1.0) * (half_x - size - 0.05)
        y = rng.uniform(-1.0, 0.5) * (half_y - size - 0.05)
        kind = ("box", "cylinder", "ball")[rng.integers(3)]
        tall = rng.uniform(0.7, 1.6)
        wide = rng.uniform(0.7, 1.3)
        yaw = rng.uniform(0.0, np.pi)
        tint = rng.uniform(0.9, 1.05)
        rgb = OBJECT_RGB[rng.integers(len(OBJECT_RGB))]
        if any(np.hypot(x - a, y - b) < 1.4 * size + c for a, b, c in taken):
            continue
        taken.append((x, y, 1.4 * size))
        shape, half_size = {
            "box": (Shape.BOX, (size, size * wide, size * tall)),
            "cylinder": (Shape.CYLINDER, (size * 0.85, size * 0.85, size * tall * 1.2)),
            "ball": (Shape.SPHERE, (size, size, size)),
        }[kind]
        objects.append(
            place(
                shape,
                half_size,
                (x, y, half_size[2]),
                yaw_rad=yaw,
                class_name=kind,
                role="object",
                albedo=tuple(min(value * tint, 1.0) for value in rgb),
            )
        )
    return objects


def _draw_path(
    rng: np.random.Generator, arm: Arm, task: str, half_x: float, half_y: float
) -> tuple[np.ndarray, np.ndarray, float]:
    """Draw where the tool goes: start, end, and how many frames that takes."""
    farthest = 0.92 * (arm.upper + arm.fore) * 0.9
    ends = []
    for _ in range(2):
        angle = -0.5 * np.pi + rng.uniform(-1.0, 1.0)
        distance = rng.uniform(0.38, farthest)
        spot = arm.base[:2] + distance * np.array([np.cos(angle), np.sin(angle)])
        ends.append(np.clip(spot, (-half_x + 0.1, -half_y + 0.1), (half_x - 0.1, half_y)))
    if task == "push":
        heights = (0.06, 0.06)
    elif task == "lift":
        heights = (rng.uniform(0.1, 0.2), rng.uniform(0.25, 0.42))
    else:
        heights = (rng.uniform(0.08, 0.25), rng.uniform(0.15, 0.42))
    start = np.append(ends[0], heights[0])
    end = np.append(ends[1], heights[1])
    speed = rng.uniform(0.012, 0.032)  # metres per frame, on average
    return start, end, max(float(np.linalg.norm(end - start)) / speed, 8.0)


def _tool_path(
    task: str, start: np.ndarray, end: np.ndarray, phase: Float[np.ndarray, " f"]
) -> Float[np.ndarray, "f 3"]:
    if task == "push":  # pushes once, then rests
        phase = np.minimum(phase, 1.0)
    share = 0.5 - 0.5 * np.cos(np.pi * phase)
    return start + (end - start) * share[:, None]


def _carry(
    item: Primitive, task: str, start: np.ndarray, end: np.ndarray, tool: np.ndarray
) -> Primitive:
    """Move an object with the tool: held between the fingers, or pushed ahead of them."""
    if task == "lift":
        position = tool - np.array([0.0, 0.0, 0.02])
        position[:, 2] = np.maximum(position[:, 2], item.half_size[2])
    else:
        ahead = (end - start)[:2] / max(np.linalg.norm((end - start)[:2]), 1e-6)
        position = tool.copy()
        position[:, :2] += ahead * (item.half_size[0] + 0.06)
        position[:, 2] = item.half_size[2]
    return place(
        item.shape,
        item.half_size,
        position,
        rotation=item.rotation,
        class_name=item.class_name,
        role=item.role,
        albedo=item.albedo,
    )


def _build_arm(arm: Arm, tool: Float[np.ndarray, "f 3"], grip: float) -> list[Primitive]:
    """Solve the two-link arm for a gripper that points down, and dress it in solids."""
    gripper_length = 0.2
    wrist = tool + np.array([0.0, 0.0, gripper_length])
    shoulder = np.broadcast_to(arm.base + [0.0, 0.0, arm.shoulder_height], wrist.shape)
    offset = wrist - shoulder
    azimuth = np.arctan2(offset[:, 1], offset[:, 0])
    flat = np.hypot(offset[:, 0], offset[:, 1])
    span = np.minimum(np.hypot(flat, offset[:, 2]), 0.985 * (arm.upper + arm.fore))
    pitch = np.arctan2(offset[:, 2], flat)
    bend = np.arccos((arm.upper**2 + span**2 - arm.fore**2) / (2.0 * arm.upper * span))
    rise = pitch + bend
    heading = np.stack([np.cos(azimuth), np.sin(azimuth), np.zeros_like(azimuth)], axis=-1)
    up = np.array([0.0, 0.0, 1.0])
    elbow = shoulder + arm.upper * (np.cos(rise)[:, None] * heading + np.sin(rise)[:, None] * up)

    paint = {"class_name": "robot", "role": "robot", "albedo": arm.rgb}
    joint = {"class_name": "robot", "role": "robot joint", "albedo": JOINT_RGB}
    metal = {"class_name": "gripper", "role": "gripper", "albedo": (0.34, 0.35, 0.38)}
    r = arm.radius
    half_column = 0.5 * arm.shoulder_height
    parts = [
        place(Shape.CYLINDER, (2.2 * r, 2.2 * r, 0.025), arm.base + [0, 0, 0.025], **joint),
        place(
            Shape.CYLINDER, (1.5 * r, 1.5 * r, half_column), arm.base + [0, 0, half_column], **paint
        ),
        place(Shape.SPHERE, (1.55 * r,) * 3, shoulder[0], **joint),
        _link(shoulder, elbow, 1.05 * r, paint),
        place(Shape.SPHERE, (1.35 * r,) * 3, elbow, **joint),
        _link(elbow, wrist, 0.85 * r, paint),
        place(Shape.SPHERE, (1.1 * r,) * 3, wrist, **joint),
    ]
    palm = wrist - [0.0, 0.0, 0.075]
    half_grip = min(grip, 0.09) + 0.012
    parts.append(place(Shape.BOX, (0.035, half_grip + 0.02, 0.035), palm, yaw_rad=azimuth, **metal))
    sideways = np.stack([-np.sin(azimuth), np.cos(azimuth), np.zeros_like(azimuth)], axis=-1)
    for side in (-1.0, 1.0):
        finger = palm + side * half_grip * sideways - [0.0, 0.0, 0.085]
        parts.append(place(Shape.BOX, (0.022, 0.014, 0.055), finger, yaw_rad=azimuth, **metal))
    return parts


def _link(
    start: Float[np.ndarray, "f 3"], end: Float[np.ndarray, "f 3"], radius: float, kind: dict
) -> Primitive:
    """Stretch a cylinder between two joints that keep their distance."""
    along = end - start
    length = np.linalg.norm(along, axis=-1, keepdims=True)
    along = along / length
    sideways = np.cross(along, np.array([0.0, 0.0, 1.0]))
    sideways /= np.maximum(np.linalg.norm(sideways, axis=-1, keepdims=True), 1e-6)
    rotation = np.stack([sideways, np.cross(along, sideways), along], axis=-1)
    half = 0.5 * float(length.mean())
    return place(
        Shape.CYLINDER, (radius, radius, half), 0.5 * (start + end), rotation=rotation, **kind
    )
