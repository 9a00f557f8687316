"""Window panes and road markings: part of the geometry, but thinner than a pixel at a distance.

Both are periodic stripes averaged exactly over a pixel's footprint, so they fade instead of
flickering. They appear in the simulator's picture as well as in every look.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from .camera import RayGrid
from .scene import CLASS_IDS, RoadMarkings, Scene
from .surfaces import Surfaces
from .visibility import Visibility

PAINT_RGB = (0.92, 0.92, 0.88)
SILL_M = 0.95  # of the lowest row of windows


@dataclass(frozen=True, slots=True, kw_only=True)
class Patterns:
    """How much of each sample's footprint is covered."""

    paint: Float[np.ndarray, " n"]
    glass: Float[np.ndarray, " n"]
    pane: Int[np.ndarray, " n"]  # a number that tells the panes of all buildings apart


def stripe_cover(
    at: Float[np.ndarray, " n"],
    footprint: Float[np.ndarray, " n"],
    period: float,
    width: float,
) -> Float[np.ndarray, " n"]:
    """Average a stripe pattern that is one on [0, width) of every period, over a footprint."""

    def integral(end: np.ndarray) -> np.ndarray:
        turns = np.floor(end * np.float32(1.0 / period))
        return turns * np.float32(width) + np.minimum(end - turns * np.float32(period), width)

    extent = np.maximum(footprint, np.float32(1e-3))
    return (integral(at + 0.5 * extent) - integral(at - 0.5 * extent)) / extent


def find_patterns(scene: Scene, surfaces: Surfaces, rays: RayGrid) -> Patterns:
    """Measure panes on facades and paint on the road."""
    count = len(surfaces.order)
    paint = np.zeros(count, dtype=np.float32)
    glass = np.zeros(count, dtype=np.float32)
    pane = np.zeros(count, dtype=np.int32)
    for index, span in surfaces.primitive_slices.items():
        windows = scene.primitives[index].windows if index >= 0 else None
        if windows is None:
            continue
        half_z = scene.primitives[index].half_size[2]
        across = surfaces.texture[0, span] + np.float32(0.5 * windows.width)
        above = surfaces.texture[1, span] + np.float32(half_z - SILL_M)
        pixel = surfaces.depth[span] / np.float32(rays.focal_px)
        stretch = surfaces.footprint[span]
        cover = stripe_cover(across, stretch, windows.pitch, windows.width)
        cover *= stripe_cover(above, pixel, windows.storey, windows.height)
        top = 2.0 * half_z - SILL_M - 0.3
        on_wall = (surfaces.normal[2, span] < 0.5) & (above > 0) & (above < top)
        glass[span] = cover * on_wall
        column = np.floor(across / np.float32(windows.pitch)).astype(np.int32)
        row = np.floor(above / np.float32(windows.storey)).astype(np.int32)
        pane[span] = column * 73 + row * 151 + index * 977
    if scene.markings is not None and "road" in surfaces.role_slices:
        span = surfaces.role_slices["road"]
        pixel = surfaces.depth[span] / np.float32(rays.focal_px)
        position = surfaces.position[:, span]
        paint[span] = paint_cover(
            scene.markings, position[0], position[1], pixel, surfaces.footprint[span]
        )
    return Patterns(paint=paint, glass=glass, pane=pane)


def paint_cover(
    markings: RoadMarkings,
    x: Float[np.ndarray, " n"],
    y: Float[np.ndarray, " n"],
    footprint_x: Float[np.ndarray, " n"],
    footprint_y: Float[np.ndarray, " n"],
) -> Float[np.ndarray, " n"]:
    """Return the share of each footprint on the road that is paint."""
    far = 1000.0  # a period longer than any road is wide: single stripes
    half = np.float32(0.5 * markings.width)
    cover = np.zeros_like(x)
    for line in markings.dashed_x:
        cover += stripe_cover(x - np.float32(line) + half, footprint_x, far, markings.width)
    if markings.dashed_x:
        cover *= stripe_cover(y, footprint_y, markings.dash_period, markings.dash_length)
    for line in markings.solid_x:
        cover += stripe_cover(x - np.float32(line) + half, footprint_x, far, markings.width)
    return cover


def label_pixels(scene: Scene, rays: RayGrid, visibility: Visibility) -> Int[np.ndarray, "f h w"]:
    """Return the class at each pixel centre."""
    primitive = visibility.primitive_index()
    ids = np.append(scene.class_ids, CLASS_IDS["sky"])  # -1 reads the last entry
    class_ids = ids[primitive].astype(np.int32)
    if scene.markings is not None:
        on_paint = _centres_on_paint(scene, rays, visibility, class_ids == CLASS_IDS["road"])
        class_ids[on_paint] = CLASS_IDS["lane marking"]
    return class_ids


def _centres_on_paint(
    scene: Scene, rays: RayGrid, visibility: Visibility, on_road: Bool[np.ndarray, "f h w"]
) -> Bool[np.ndarray, "f h w"]:
    assert scene.markings is not None
    frame, row, column = np.nonzero(on_road)
    depth = visibility.depth[0][on_road]
    ray = np.stack([rays.x[0, column], rays.y[0, row], np.ones_like(depth)])
    camera = scene.camera
    x, y = (
        camera.position[frame, axis]
        + depth * (camera.camera_to_world[frame, axis].T * ray).sum(axis=0)
        for axis in (0, 1)
    )
    nothing = np.zeros_like(x)
    on_paint = np.zeros_like(on_road)
    on_paint[on_road] = paint_cover(scene.markings, x, y, nothing, nothing) > 0.5
    return on_paint
