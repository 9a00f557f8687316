"""The points to shade, gathered from all frames into flat arrays.

Samples of one primitive are neighbours, and so are those of one role, so that materials work on
slices. Vectors are laid out `3 n`: arithmetic then runs along contiguous memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int, UInt8

from .camera import RayGrid
from .primitives import NUM_FACES, Primitive, Shape
from .scene import Scene
from .vectors import dot, offset_from, turn_to_local, turn_to_world
from .visibility import Visibility

SKY = "sky"


@dataclass(frozen=True, slots=True, kw_only=True)
class Surfaces:
    """Everything about the visible points that no look can change."""

    order: Int[np.ndarray, " n"]  # where each sample was before samples were sorted by surface
    frame: Int[np.ndarray, " n"]
    depth: Float[np.ndarray, " n"]  # planar, metres
    position: Float[np.ndarray, "3 n"]
    normal: Float[np.ndarray, "3 n"]
    towards_eye: Float[np.ndarray, "3 n"]  # unit; in the sky it is minus the ray
    texture: Float[np.ndarray, "2 n"]  # coordinates on the surface, metres
    footprint: Float[np.ndarray, " n"]  # extent of a sample on the surface, metres
    primitive_slices: dict[int, slice]
    role_slices: dict[str, slice]


def gather(scene: Scene, rays: RayGrid, visibility: Visibility) -> Surfaces:
    """Collect the samples to shade and work out their geometry."""
    place = _samples_to_shade(visibility)
    key = visibility.key.reshape(-1)[place]
    order = np.argsort(key, kind="stable")
    place, key = place[order], key[order]

    _, num_frames, height, width = visibility.key.shape
    sample, rest = np.divmod(place, num_frames * height * width)
    frame, rest = np.divmod(rest, height * width)
    row, column = np.divmod(rest, width)
    ray_x = rays.x.reshape(-1)[sample * width + column]
    ray_y = rays.y.reshape(-1)[sample * height + row]

    depth = visibility.depth.reshape(-1)[place]
    camera = scene.camera
    ray = np.empty((3, len(place)), dtype=np.float32)
    for axis in range(3):
        to_world = camera.camera_to_world[:, axis]
        ray[axis] = to_world[frame, 0] * ray_x + to_world[frame, 1] * ray_y + to_world[frame, 2]
    reach = np.where(np.isfinite(depth), depth, np.float32(1.0))
    position = camera.position.T[:, frame] + reach * ray
    length = np.sqrt(ray_x * ray_x + ray_y * ray_y + 1.0)
    towards_eye = ray * (-1.0 / length)

    normal = np.zeros_like(position)
    texture = np.zeros((2, len(place)), dtype=np.float32)
    primitive_slices = _slices_of(key // NUM_FACES)
    for index, span in primitive_slices.items():
        if index >= 0:
            primitive = scene.primitives[index]
            face = (key[span] % NUM_FACES).astype(np.int8)
            _fill_primitive(
                primitive, face, frame[span], position[:, span], normal[:, span], texture[:, span]
            )
    facing = np.abs(dot(normal, towards_eye))
    # Between the short and the long axis of the pixel's shadow on the surface, nearer the long one.
    footprint = reach / rays.focal_px / np.maximum(facing, 0.03) ** 0.75
    return Surfaces(
        order=order,
        frame=frame,
        depth=depth,
        position=position,
        normal=normal,
        towards_eye=towards_eye,
        texture=texture,
        footprint=footprint.astype(np.float32),
        primitive_slices=primitive_slices,
        role_slices=_merge_by_role(scene, primitive_slices),
    )


def resolve(
    colour: Float[np.ndarray, "3 n"], surfaces: Surfaces, visibility: Visibility
) -> UInt8[np.ndarray, "f h w 3"]:
    """Average shaded samples, in display values 0 to 1, back into frames."""
    is_edge = visibility.is_edge
    num_edges = np.count_nonzero(is_edge)
    num_inside = is_edge.size - num_edges
    levels = np.empty_like(colour)  # in the order of `_samples_to_shade`
    levels[:, surfaces.order] = np.clip(colour, 0.0, 1.0) * np.float32(255.0)
    edges = levels[:, num_inside:].reshape(3, 4, num_edges).mean(axis=1)
    frames = np.empty((*is_edge.shape, 3), dtype=np.uint8)
    frames[~is_edge] = (levels[:, :num_inside] + np.float32(0.5)).astype(np.uint8).T
    frames[is_edge] = (edges + np.float32(0.5)).astype(np.uint8).T
    return frames


def _samples_to_shade(visibility: Visibility) -> Int[np.ndarray, " n"]:
    size = visibility.is_edge.size
    is_edge = visibility.is_edge.reshape(-1)
    inside = np.flatnonzero(~is_edge)
    edges = np.flatnonzero(is_edge)
    return np.concatenate([inside, *(edges + index * size for index in range(1, 5))])


def _slices_of(sorted_values: Int[np.ndarray, " n"]) -> dict[int, slice]:
    """Return where each value lies in a sorted array."""
    starts = np.flatnonzero(np.diff(sorted_values, prepend=sorted_values[:1] - 1))
    stops = np.append(starts[1:], len(sorted_values))
    values = sorted_values[starts]
    return {
        int(value): slice(int(start), int(stop))
        for value, start, stop in zip(values, starts, stops, strict=True)
    }


def _merge_by_role(scene: Scene, primitive_slices: dict[int, slice]) -> dict[str, slice]:
    merged: dict[str, slice] = {}
    for index, span in primitive_slices.items():
        role = SKY if index < 0 else scene.primitives[index].finish.role
        start = merged[role].start if role in merged else span.start
        merged[role] = slice(start, span.stop)
    return merged


def _fill_primitive(
    primitive: Primitive,
    face: Int[np.ndarray, " n"],
    frame: Int[np.ndarray, " n"],
    position: Float[np.ndarray, "3 n"],
    normal: Float[np.ndarray, "3 n"],
    texture: Float[np.ndarray, "2 n"],
) -> None:
    """Write normals and texture coordinates of one primitive's samples into the given views."""
    offset = offset_from(primitive, frame, position)
    local = np.stack(turn_to_local(primitive, frame, offset))
    if primitive.shape is Shape.SPHERE:
        normal[:] = offset / np.float32(primitive.half_size[0])
        texture[0] = local[0] + 0.6 * local[2]
        texture[1] = local[1] + 0.8 * local[2]
        return
    if primitive.shape is Shape.CYLINDER:
        _fill_cylinder(primitive, face, frame, local, normal, texture)
        return
    faces = _face_normals(primitive)
    world_faces = np.matmul(faces, primitive.rotation.transpose(0, 2, 1))  # g 6 3
    normal[:] = world_faces[frame if primitive.moves else 0, face].T
    texture[0] = np.where(face < 2, local[1], local[0])
    texture[1] = np.where(face < 4, local[2], local[1])


def _fill_cylinder(
    primitive: Primitive,
    face: Int[np.ndarray, " n"],
    frame: Int[np.ndarray, " n"],
    local: Float[np.ndarray, "3 n"],
    normal: Float[np.ndarray, "3 n"],
    texture: Float[np.ndarray, "2 n"],
) -> None:
    radius = np.float32(primitive.half_size[0])
    is_side = face == 0
    up = np.where(face == 5, np.float32(-1.0), np.float32(1.0))
    local_normal = np.stack(
        [
            np.where(is_side, local[0] / radius, 0.0),
            np.where(is_side, local[1] / radius, 0.0),
            np.where(is_side, 0.0, up),
        ]
    )
    normal[:] = turn_to_world(primitive, frame, local_normal)
    around = np.arctan2(local[1], local[0]) * radius
    texture[0] = np.where(is_side, around, local[0])
    texture[1] = np.where(is_side, local[2], local[1])


def _face_normals(primitive: Primitive) -> Float[np.ndarray, "6 3"]:
    x, y, z = primitive.half_size
    normals = np.zeros((6, 3), dtype=np.float32)
    for axis, half in enumerate((x, y)):
        slope = half * primitive.taper[axis] / (2.0 * z) if primitive.taper[axis] else 0.0
        length = np.hypot(1.0, slope)
        normals[2 * axis, axis], normals[2 * axis + 1, axis] = 1.0 / length, -1.0 / length
        normals[2 * axis : 2 * axis + 2, 2] = slope / length
    normals[4, 2], normals[5, 2] = 1.0, -1.0
    return normals
