"""The solids that scenes are made of, and where rays enter them.

Every solid is convex, sits at its local origin, and has one pose per frame (or one for all frames).
Local sizes are half extents in metres: `half_size = (x, y, z)`.

* box: tapered towards +z by `taper` (0: straight, 1: a ridge), so it also makes roofs and cabins
* cylinder: axis along z; x and y are its radius
* sphere: x, y and z are its radius
* rectangle: the z = 0 plane within x and y; z is 0

A ray crosses a solid from `entry` to `leave`, in lengths of its direction, and enters by a `face`.
The faces of a box are numbered 0 to 5 as +x -x +y -y +z -z; a cylinder's side is 0, its caps are 4
and 5.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np
from jaxtyping import Float

Rgb = tuple[float, float, float]  # display values in [0, 1]

NUM_FACES = 8  # room for a face number in a surface key
# Corners are numbered in binary: a bit per axis, x first, set on the positive side.
CORNER_SIGNS = np.array(
    [(x, y, z) for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], dtype=np.float32
)
TINY = np.float32(1e-12)  # keeps rays along a face from dividing by zero


class Shape(Enum):
    """What a primitive looks like in its own axes."""

    BOX = "box"
    CYLINDER = "cylinder"
    SPHERE = "sphere"
    RECTANGLE = "rectangle"


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """A regular grid of panes on the sides of a building; metres."""

    pitch: float
    width: float
    storey: float
    height: float
    glass_rgb: Rgb = (0.30, 0.36, 0.44)


@dataclass(frozen=True, slots=True)
class Finish:
    """What a solid counts as, and how it looks before a look covers it."""

    class_name: str  # its label; see `scene.CLASS_NAMES`
    role: str  # what looks choose materials for: table, wall, robot, facade, ...
    albedo: Rgb


@dataclass(frozen=True, slots=True, kw_only=True)
class Primitive:
    """One convex solid: where it is in each frame, and what it is made of."""

    shape: Shape
    half_size: tuple[float, float, float]
    position: Float[np.ndarray, "g 3"]  # g is the number of frames, or one when it stands still
    rotation: Float[np.ndarray, "g 3 3"]  # local to world
    corners: Float[np.ndarray, "g 8 3"]  # in the world, of the box around it
    finish: Finish
    taper: tuple[float, float] = (0.0, 0.0)
    casts_shadow: bool = True
    windows: Windows | None = None

    @property
    def moves(self) -> bool:
        """Whether it has a pose per frame."""
        return len(self.position) > 1


def turn_about_z(angle_rad: Float[np.ndarray, " g"]) -> Float[np.ndarray, "g 3 3"]:
    """Return the rotation by each angle about the vertical."""
    cosine, sine = np.cos(angle_rad), np.sin(angle_rad)
    rotation = np.zeros((len(angle_rad), 3, 3))
    rotation[:, 0, 0] = rotation[:, 1, 1] = cosine
    rotation[:, 0, 1], rotation[:, 1, 0] = -sine, sine
    rotation[:, 2, 2] = 1.0
    return rotation


def place(
    shape: Shape,
    half_size: tuple[float, float, float],
    position: np.ndarray | tuple[float, float, float],
    finish: Finish,
    *,
    rotation: np.ndarray | None = None,
    yaw_rad: np.ndarray | float = 0.0,
    taper: tuple[float, float] = (0.0, 0.0),
    casts_shadow: bool = True,
    windows: Windows | None = None,
) -> Primitive:
    """Build a primitive from a fixed or a per-frame pose.

    Args:
        position: World position, `3` or `f 3`, in metres.
        rotation: Local to world, `3 3` or `f 3 3`; replaces `yaw_rad`.
        yaw_rad: Turn about the vertical, a number or one per frame.
    """
    positions = np.atleast_2d(np.asarray(position, dtype=np.float32))
    if rotation is None:
        rotation = turn_about_z(np.atleast_1d(np.asarray(yaw_rad, dtype=np.float64)))
    rotations = np.asarray(rotation, dtype=np.float32).reshape(-1, 3, 3)
    num_poses = max(len(positions), len(rotations))
    positions = np.ascontiguousarray(np.broadcast_to(positions, (num_poses, 3)))
    rotations = np.ascontiguousarray(np.broadcast_to(rotations, (num_poses, 3, 3)))
    local_corners = CORNER_SIGNS * np.array(half_size, dtype=np.float32)
    return Primitive(
        shape=shape,
        half_size=half_size,
        position=positions,
        rotation=rotations,
        corners=np.matmul(local_corners, rotations.transpose(0, 2, 1)) + positions[:, None],
        finish=finish,
        taper=taper,
        casts_shadow=casts_shadow,
        windows=windows,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """Where rays enter and leave one solid; `entry` is infinite where a ray misses."""

    entry: Float[np.ndarray, "..."]
    leave: Float[np.ndarray, "..."]
    face: np.ndarray | int


def cross(
    primitive: Primitive, origin: tuple[np.ndarray, ...], direction: tuple[np.ndarray, ...]
) -> Crossing:
    """Intersect rays, given in the primitive's own axes, with the primitive.

    Args:
        origin: x, y and z of where rays start; they broadcast against `direction`.
        direction: x, y and z of where they go; any length.
    """
    if primitive.shape is Shape.BOX:
        return _cross_box(primitive, origin, direction)
    if primitive.shape is Shape.CYLINDER:
        return _cross_cylinder(primitive, origin, direction)
    if primitive.shape is Shape.SPHERE:
        return _cross_sphere(primitive, origin, direction)
    return _cross_rectangle(primitive, origin, direction)


def _slab(
    origin: np.ndarray, direction: np.ndarray, half_size: float
) -> tuple[np.ndarray, np.ndarray]:
    inverse = 1.0 / (direction + TINY)
    middle = -origin * inverse
    reach = np.abs(inverse) * np.float32(half_size)
    return middle - reach, middle + reach


def _tapered_slab(
    origin: tuple[np.ndarray, np.ndarray],
    direction: tuple[np.ndarray, np.ndarray],
    half_size: tuple[float, float],
    taper: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cross the two planes `|a| + slope * z = offset`; both faces lean inwards.

    Returns:
        Entry, exit, and whether the entry is through the positive face.
    """
    half, half_z = half_size
    slope = np.float32(half * taper / (2.0 * half_z))
    offset = np.float32(half - slope * half_z)
    entry: np.ndarray = np.array(-np.inf, dtype=np.float32)
    leave: np.ndarray = np.array(np.inf, dtype=np.float32)
    is_positive: np.ndarray = np.array(False)
    for sign in (1.0, -1.0):
        speed = np.float32(sign) * direction[0] + slope * direction[1]
        height = offset - np.float32(sign) * origin[0] - slope * origin[1]
        distance = height / (speed + TINY)
        enters = speed < 0
        later = enters & (distance > entry)
        is_positive = np.where(later, sign > 0, is_positive)
        entry = np.where(later, distance, entry)
        leave = np.where(~enters, np.minimum(leave, distance), leave)
    return entry, leave, is_positive


def _cross_box(
    primitive: Primitive, origin: tuple[np.ndarray, ...], direction: tuple[np.ndarray, ...]
) -> Crossing:
    half_z = primitive.half_size[2]
    entry, leave = _slab(origin[2], direction[2], half_z)
    face = np.where(direction[2] < 0, np.int16(4), np.int16(5))
    for axis in (0, 1):
        half = primitive.half_size[axis]
        taper = primitive.taper[axis]
        if taper:
            near, far, is_positive = _tapered_slab(
                (origin[axis], origin[2]), (direction[axis], direction[2]), (half, half_z), taper
            )
        else:
            near, far = _slab(origin[axis], direction[axis], half)
            is_positive = direction[axis] < 0
        axis_face = np.where(is_positive, np.int16(2 * axis), np.int16(2 * axis + 1))
        face = np.where(near > entry, axis_face, face)
        entry = np.maximum(entry, near)
        leave = np.minimum(leave, far)
    return Crossing(
        entry=np.where(entry < leave, entry, np.float32(np.inf)), leave=leave, face=face
    )


def _cross_cylinder(
    primitive: Primitive, origin: tuple[np.ndarray, ...], direction: tuple[np.ndarray, ...]
) -> Crossing:
    radius, _, half_z = primitive.half_size
    a = direction[0] * direction[0] + direction[1] * direction[1] + TINY
    b = origin[0] * direction[0] + origin[1] * direction[1]
    c = origin[0] * origin[0] + origin[1] * origin[1] - np.float32(radius * radius)
    discriminant = b * b - a * c
    root = np.sqrt(np.maximum(discriminant, 0.0))
    side_entry = (-b - root) / a
    side_leave = (root - b) / a
    cap_entry, cap_leave = _slab(origin[2], direction[2], half_z)
    cap = np.where(direction[2] < 0, np.int16(4), np.int16(5))
    face = np.where(cap_entry > side_entry, cap, np.int16(0))
    entry = np.maximum(side_entry, cap_entry)
    leave = np.minimum(side_leave, cap_leave)
    hits = (discriminant > 0) & (entry < leave)
    return Crossing(entry=np.where(hits, entry, np.float32(np.inf)), leave=leave, face=face)


def _cross_sphere(
    primitive: Primitive, origin: tuple[np.ndarray, ...], direction: tuple[np.ndarray, ...]
) -> Crossing:
    radius = primitive.half_size[0]
    a = direction[0] ** 2 + direction[1] ** 2 + direction[2] ** 2
    b = origin[0] * direction[0] + origin[1] * direction[1] + origin[2] * direction[2]
    c = origin[0] ** 2 + origin[1] ** 2 + origin[2] ** 2 - np.float32(radius * radius)
    discriminant = b * b - a * c
    root = np.sqrt(np.maximum(discriminant, 0.0))
    entry = np.where(discriminant > 0, (-b - root) / a, np.float32(np.inf))
    return Crossing(entry=entry, leave=(root - b) / a, face=0)


def _cross_rectangle(
    primitive: Primitive, origin: tuple[np.ndarray, ...], direction: tuple[np.ndarray, ...]
) -> Crossing:
    distance = -origin[2] / (direction[2] + TINY)
    hits = np.abs(origin[0] + distance * direction[0]) < np.float32(primitive.half_size[0])
    hits &= np.abs(origin[1] + distance * direction[1]) < np.float32(primitive.half_size[1])
    entry = np.where(hits, distance, np.float32(np.inf))
    return Crossing(entry=entry, leave=entry, face=4)
