"""A two-link arm on a turning base, with a gripper that points down."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from .primitives import Finish, Primitive, Rgb, Shape, place

ROBOT_RGB = ((0.93, 0.50, 0.12), (0.90, 0.90, 0.90), (0.30, 0.42, 0.62), (0.92, 0.78, 0.18))
JOINT = Finish("robot", "robot joint", (0.24, 0.25, 0.28))
STEEL = Finish("gripper", "gripper", (0.34, 0.35, 0.38))
GRIPPER_LENGTH_M = 0.2  # from the wrist to the point between the finger tips
WIDEST_GRIP_M = 0.09  # half the opening


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """Sizes of one robot; metres."""

    base: Float[np.ndarray, " 3"]
    shoulder_height: float
    upper: float
    fore: float
    radius: float
    rgb: Rgb

    @property
    def reach(self) -> float:
        """How far the wrist gets from the shoulder."""
        return 0.985 * (self.upper + self.fore)


def draw_arm(rng: np.random.Generator, half_x: float, half_y: float) -> Arm:
    """Draw an arm that stands towards the back of a table."""
    upper = rng.uniform(0.42, 0.55)
    base_x = rng.uniform(-0.45, 0.45) * half_x
    return Arm(
        base=np.array([base_x, half_y * rng.uniform(0.35, 0.7), 0.0]),
        shoulder_height=rng.uniform(0.2, 0.32),
        upper=upper,
        fore=upper * rng.uniform(0.85, 1.05),
        radius=rng.uniform(0.045, 0.065),
        rgb=ROBOT_RGB[rng.integers(len(ROBOT_RGB))],
    )


def build_arm(arm: Arm, tool: Float[np.ndarray, "f 3"], half_grip: float) -> list[Primitive]:
    """Solve the joints for a tool path, and dress them in solids.

    Args:
        tool: The point between the finger tips in each frame, in metres.
        half_grip: Half the thickness of what the fingers hold.
    """
    wrist = tool + np.array([0.0, 0.0, GRIPPER_LENGTH_M])
    shoulder = np.broadcast_to(arm.base + np.array([0.0, 0.0, arm.shoulder_height]), wrist.shape)
    offset = wrist - shoulder
    azimuth = np.arctan2(offset[:, 1], offset[:, 0])
    heading = np.stack([np.cos(azimuth), np.sin(azimuth), np.zeros_like(azimuth)], axis=-1)
    elbow = shoulder + _upper_link(arm, offset, heading)

    paint = Finish("robot", "robot", arm.rgb)
    r = arm.radius
    half_column = 0.5 * arm.shoulder_height
    foot, column = arm.base.copy(), arm.base.copy()
    foot[2], column[2] = 0.025, half_column
    parts = [
        place(Shape.CYLINDER, (2.2 * r, 2.2 * r, 0.025), foot, JOINT),
        place(Shape.CYLINDER, (1.5 * r, 1.5 * r, half_column), column, paint),
        _ball(1.55 * r, shoulder[0]),
        _link(shoulder, elbow, 1.05 * r, paint),
        _ball(1.35 * r, elbow),
        _link(elbow, wrist, 0.85 * r, paint),
        _ball(1.1 * r, wrist),
    ]
    palm = wrist - np.array([0.0, 0.0, 0.075])
    opening = min(half_grip, WIDEST_GRIP_M) + 0.012
    palm_size = (0.035, opening + 0.02, 0.035)
    parts.append(place(Shape.BOX, palm_size, palm, STEEL, yaw_rad=azimuth))
    sideways = np.stack([-heading[:, 1], heading[:, 0], np.zeros_like(azimuth)], axis=-1)
    for side in (-1.0, 1.0):
        finger = palm + side * opening * sideways - np.array([0.0, 0.0, 0.085])
        parts.append(place(Shape.BOX, (0.022, 0.014, 0.055), finger, STEEL, yaw_rad=azimuth))
    return parts


def _upper_link(
    arm: Arm, offset: Float[np.ndarray, "f 3"], heading: Float[np.ndarray, "f 3"]
) -> Float[np.ndarray, "f 3"]:
    """Return the way from the shoulder to the elbow, which bends upwards (law of cosines)."""
    flat = np.hypot(offset[:, 0], offset[:, 1])
    span = np.minimum(np.hypot(flat, offset[:, 2]), arm.reach)
    bend = np.arccos((arm.upper**2 + span**2 - arm.fore**2) / (2.0 * arm.upper * span))
    rise = np.arctan2(offset[:, 2], flat) + bend
    up = np.array([0.0, 0.0, 1.0])
    return arm.upper * (np.cos(rise)[:, None] * heading + np.sin(rise)[:, None] * up)


def _ball(radius: float, position: np.ndarray) -> Primitive:
    return place(Shape.SPHERE, (radius, radius, radius), position, JOINT)


def _link(
    start: Float[np.ndarray, "f 3"], end: Float[np.ndarray, "f 3"], radius: float, finish: Finish
) -> Primitive:
    """Stretch a cylinder between two joints that keep their distance."""
    along = end - start
    length = np.linalg.norm(along, axis=-1, keepdims=True)
    along = along / length
    sideways = np.cross(along, np.array([0.0, 0.0, 1.0]))
    sideways /= np.maximum(np.linalg.norm(sideways, axis=-1, keepdims=True), 1e-6)
    rotation = np.stack([sideways, np.cross(along, sideways), along], axis=-1)
    half_size = (radius, radius, 0.5 * float(length.mean()))
    return place(Shape.CYLINDER, half_size, 0.5 * (start + end), finish, rotation=rotation)
