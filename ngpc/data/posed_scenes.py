"""Scenes to train on without a download: solids on a table, ray-traced, with exact depth and ids.

A scene is written in the layout of nerf-synthetic: ``transforms_train.json`` and
``transforms_test.json`` with pictures beside them, RGBA with nothing where no ray hits. Three keys
are additions: every frame's ``depth_path`` (16 bits, ``integer_depth_scale`` metres to one) and
``segmentation_path`` (8-bit ids), and ``labels``, the ids' names. World units are metres, up is +z.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from jaxtyping import Float, Int

from ngpc.data.images import replace_file
from ngpc.errors import MediaError, explain
from ngpc.geometry.boxes import Box
from ngpc.geometry.cameras import Intrinsics, camera_rays, opengl_to_opencv
from ngpc.geometry.paths import look_at, pinhole

LABELS = {3: "table", 6: "box", 8: "ball"}
DEPTH_SCALE = 0.001  # metres to one
SCENE_BOX = Box(corner=(-0.8, -0.8, -0.3), side=1.6)
TARGET = (0.0, 0.0, 0.08)
LIGHT = np.array([-0.45, -0.35, 0.82]) / np.linalg.norm([-0.45, -0.35, 0.82])
AMBIENT = 0.35
FAR_AWAY = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One solid: a ball of radius ``half[0]``, or a block turned about the vertical."""

    label_id: int
    centre: tuple[float, float, float]
    half: tuple[float, float, float]
    colours: tuple[tuple[float, float, float], tuple[float, float, float]]
    """Of its checks, sRGB."""
    check_m: float
    """Side of a check."""
    turn_deg: float = 0.0

    @property
    def is_ball(self) -> bool:
        """Whether it is a ball, not a block."""
        return self.label_id == 8

    def to_local(self, vectors: Float[np.ndarray, "r 3"]) -> Float[np.ndarray, "r 3"]:
        """Turn vectors into the block's own axes."""
        cosine, sine = math.cos(math.radians(self.turn_deg)), math.sin(math.radians(self.turn_deg))
        return vectors @ np.array([[cosine, -sine, 0], [sine, cosine, 0], [0, 0, 1.0]])

    def to_scene(self, vectors: Float[np.ndarray, "r 3"]) -> Float[np.ndarray, "r 3"]:
        """The inverse of :meth:`to_local`."""
        cosine, sine = math.cos(math.radians(self.turn_deg)), math.sin(math.radians(self.turn_deg))
        return vectors @ np.array([[cosine, sine, 0], [-sine, cosine, 0], [0, 0, 1.0]])

    def hit(
        self, origins: Float[np.ndarray, "r 3"], directions: Float[np.ndarray, "r 3"]
    ) -> tuple[Float[np.ndarray, " r"], Float[np.ndarray, "r 3"]]:
        """Distance along each ray (:data:`FAR_AWAY` for a miss), and the normal there."""
        start = origins - np.asarray(self.centre)
        if self.is_ball:
            along = np.einsum("ij,ij->i", start, directions)
            inner = along**2 - np.square(start).sum(axis=1) + self.half[0] ** 2
            distance = -along - np.sqrt(np.maximum(inner, 0.0))
            distance = np.where((inner > 0) & (distance > 1e-6), distance, FAR_AWAY)
            return distance, (start + distance[:, None] * directions) / self.half[0]
        local, ray = self.to_local(start), self.to_local(directions)
        ray = np.where(np.abs(ray) < 1e-12, 1e-12, ray)
        first = (-np.asarray(self.half) - local) / ray
        second = (np.asarray(self.half) - local) / ray
        enters = np.minimum(first, second)
        distance = enters.max(axis=1)
        is_hit = (distance < np.maximum(first, second).min(axis=1)) & (distance > 1e-6)
        axis = enters.argmax(axis=1)
        normal = -np.sign(ray) * (np.arange(3) == axis[:, None])
        return np.where(is_hit, distance, FAR_AWAY), self.to_scene(normal)

    def colour(self, points: Float[np.ndarray, "r 3"]) -> Float[np.ndarray, "r 3"]:
        """Its own colour at points of its surface: checks in three dimensions."""
        local = self.to_local(points - np.asarray(self.centre))
        # A little off, so that no face lies on the border between two checks.
        checks = np.floor(local / self.check_m + 0.25).sum(axis=1).astype(int) % 2
        return np.asarray(self.colours)[checks]


def tabletop(seed: int = 0) -> tuple[Part, ...]:
    """A table with five solids on it, where and how large decided by the seed."""
    rng = np.random.default_rng(seed)
    parts = [
        Part(
            label_id=3,
            centre=(0.0, 0.0, -0.03),
            half=(0.55, 0.55, 0.03),
            colours=((0.62, 0.45, 0.30), (0.72, 0.56, 0.40)),
            check_m=0.16,
        )
    ]
    palette = (
        ((0.78, 0.18, 0.15), (0.90, 0.62, 0.25)),
        ((0.15, 0.35, 0.72), (0.70, 0.80, 0.92)),
        ((0.16, 0.55, 0.30), (0.75, 0.85, 0.40)),
        ((0.55, 0.22, 0.60), (0.92, 0.80, 0.90)),
        ((0.85, 0.75, 0.20), (0.35, 0.30, 0.28)),
    )
    first = rng.uniform(0.0, 360.0)
    for index, colours in enumerate(palette):
        angle = math.radians(first + 72.0 * index + rng.uniform(-12.0, 12.0))
        away = rng.uniform(0.24, 0.36)
        x, y = away * math.cos(angle), away * math.sin(angle)
        size = float(rng.uniform(0.08, 0.115))
        is_ball = index % 2 == 0
        height = size if is_ball else size * float(rng.uniform(0.8, 1.7))
        parts.append(
            Part(
                label_id=8 if is_ball else 6,
                centre=(x, y, height),
                half=(size, size, height),
                colours=colours,
                check_m=0.09,
                turn_deg=float(rng.uniform(0.0, 90.0)),
            )
        )
    return tuple(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedView:
    """One picture of a scene and its truth."""

    rgba_srgb: Float[np.ndarray, "h w 4"]
    depth_m: Float[np.ndarray, "h w"]
    """Along the camera's axis; 0 where nothing is hit."""
    ids: Int[np.ndarray, "h w"]


def trace_view(
    parts: tuple[Part, ...], intrinsics: Intrinsics, camera_to_world: Float[np.ndarray, "4 4"]
) -> TracedView:
    """Trace one ray a pixel, and one from each hit towards the light."""
    rays = camera_rays(intrinsics, camera_to_world)
    distance, normals, part_index = _nearest(parts, rays.origins, rays.directions)
    is_hit = part_index >= 0
    points = rays.origins + np.where(is_hit, distance, 0.0)[:, None] * rays.directions
    colour = np.zeros_like(points)
    ids = np.zeros(len(points), dtype=np.int64)
    for index, part in enumerate(parts):
        mine = part_index == index
        colour[mine] = part.colour(points[mine])
        ids[mine] = part.label_id
    towards = np.broadcast_to(LIGHT, points.shape)
    shadow = _nearest(parts, points + 1e-4 * normals, towards)[2] >= 0
    lit = np.where(shadow, 0.0, np.maximum(normals @ LIGHT, 0.0))
    colour *= (AMBIENT + (1.0 - AMBIENT) * lit)[:, None]
    size = (intrinsics.height, intrinsics.width)
    along_axis = (rays.directions @ camera_to_world[:3, 2]) * distance
    return TracedView(
        rgba_srgb=np.concatenate([colour, is_hit[:, None]], axis=1).reshape(*size, 4),
        depth_m=np.where(is_hit, along_axis, 0.0).reshape(size),
        ids=ids.reshape(size),
    )


def write_posed_scene(
    folder: Path,
    *,
    num_views: int = 60,
    num_held_out: int = 8,
    size: int = 128,
    seed: int = 0,
    overwrite: bool = False,
) -> Path:
    """Render a table-top scene from many sides and write it in nerf-synthetic's layout.

    Args:
        folder: Where to.
        num_views: Views to train on.
        num_held_out: Views of ``transforms_test.json``.
        size: Rows and columns of every picture.
        seed: Of the scene and the views.
        overwrite: Whether a set that is there is replaced.

    Raises:
        MediaError: There is a set already, or it cannot be written.
    """
    if (folder / "transforms_train.json").exists() and not overwrite:
        raise MediaError(
            explain(
                str(folder),
                expected="a folder without a transforms_train.json",
                got="one with it",
                do="Choose another folder or ask to overwrite.",
            )
        )
    parts = tabletop(seed)
    intrinsics = pinhole(height=size, width=size, horizontal_fov_deg=40.0)
    rng = np.random.default_rng([seed, 1])
    poses = _poses_around(num_views + num_held_out, rng)
    # Held-out views lie between those that are trained on, all round.
    held_out = set(np.linspace(0, len(poses) - 1, num_held_out).round().astype(int).tolist())
    for split in ("train", "test"):
        frames = []
        chosen = [i for i in range(len(poses)) if (i in held_out) == (split == "test")]
        for frame_index, pose_index in enumerate(chosen):
            view = trace_view(parts, intrinsics, poses[pose_index])
            name = f"{split}/r_{frame_index:03d}"
            _write_png(folder / f"{name}.png", view.rgba_srgb[:, :, [2, 1, 0, 3]] * 255.0, np.uint8)
            _write_png(folder / f"{name}_depth.png", view.depth_m / DEPTH_SCALE, np.uint16)
            _write_png(folder / f"{name}_seg.png", view.ids.astype(np.float64), np.uint8)
            frames.append(
                {
                    "file_path": f"./{name}",
                    "depth_path": f"./{name}_depth.png",
                    "segmentation_path": f"./{name}_seg.png",
                    "transform_matrix": opengl_to_opencv(poses[pose_index]).tolist(),
                }
            )
        content = {
            "camera_angle_x": math.radians(40.0),
            "w": size,
            "h": size,
            "scale": 1.0 / SCENE_BOX.side,
            "offset": [0.0 - value / SCENE_BOX.side for value in SCENE_BOX.corner],
            "integer_depth_scale": DEPTH_SCALE,
            "labels": {str(key): name for key, name in LABELS.items()},
            "frames": frames,
        }
        replace_file(folder / f"transforms_{split}.json", json.dumps(content, indent=1).encode())
    return folder


def _poses_around(num_poses: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Cameras on the upper part of a sphere around the table, evenly spread, a little shaken."""
    golden = math.pi * (3.0 - math.sqrt(5.0))
    poses = []
    for index in range(num_poses):
        height = 0.25 + 0.6 * (index + 0.5) / num_poses  # sine of the elevation
        flat = math.sqrt(1.0 - height**2)
        azimuth = golden * index
        radius = 1.75 + 0.1 * rng.uniform(-1.0, 1.0)
        offset = (flat * math.cos(azimuth), flat * math.sin(azimuth), height)
        poses.append(look_at([t + radius * o for t, o in zip(TARGET, offset, strict=True)], TARGET))
    return poses


def _nearest(
    parts: tuple[Part, ...],
    origins: Float[np.ndarray, "r 3"],
    directions: Float[np.ndarray, "r 3"],
) -> tuple[Float[np.ndarray, " r"], Float[np.ndarray, "r 3"], Int[np.ndarray, " r"]]:
    """Distance, normal and index of the first part that each ray meets; index -1 where none."""
    distance = np.full(len(origins), FAR_AWAY)
    normals = np.zeros_like(origins)
    part_index = np.full(len(origins), -1, dtype=np.int64)
    for index, part in enumerate(parts):
        found, normal = part.hit(origins, directions)
        nearer = found < distance
        distance = np.where(nearer, found, distance)
        normals = np.where(nearer[:, None], normal, normals)
        part_index = np.where(nearer, index, part_index)
    return distance, normals, part_index


def _write_png(path: Path, values: np.ndarray, dtype: type[np.unsignedinteger]) -> None:
    limit = np.iinfo(dtype).max
    pixels = np.rint(np.clip(values, 0, limit)).astype(dtype)
    replace_file(path, cv2.imencode(".png", np.ascontiguousarray(pixels))[1].tobytes())
