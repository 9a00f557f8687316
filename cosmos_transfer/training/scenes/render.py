"""Turns a seed into a clip: one geometry, and several looks at it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int, UInt8

from .camera import cast_rays
from .driving import build_driving
from .lighting import choose_lighting
from .looks import FAMILIES, Look, describe_look, draw_look
from .materials import choose_materials
from .motion import image_motion
from .occlusion import ambient_reaching
from .patterns import find_patterns, label_pixels
from .scene import CLASS_NAMES
from .shading import Geometry, base_albedo, shade_look, shade_simulator
from .surfaces import gather, resolve
from .tabletop import build_tabletop
from .visibility import trace
from .weather import add_precipitation

BUILDERS = {"tabletop": build_tabletop, "driving": build_driving}


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneClip:
    """One geometry as a simulator shows it, its ground truth, and the same under several looks."""

    simulator: UInt8[np.ndarray, "f h w 3"]
    depth: Float[np.ndarray, "f h w"]  # planar z in metres at pixel centres; the sky is infinite
    class_ids: Int[np.ndarray, "f h w"]
    class_names: dict[int, str]
    motion: Float[np.ndarray, "f-1 h w 2"]  # pixels (x, y) from each frame to the next
    real: tuple[UInt8[np.ndarray, "f h w 3"], ...]
    looks: tuple[Look, ...]
    prompts: tuple[str, ...]
    family: str
    seed: int


def render_clip(
    seed: int,
    *,
    family: str | None = None,
    height: int = 64,
    width: int = 96,
    num_frames: int = 9,
    num_looks: int = 2,
    looks: Sequence[Look] | None = None,
) -> SceneClip:
    """Render one clip. Geometry, each look and each prompt have streams of their own.

    Args:
        family: "tabletop" or "driving"; drawn from the seed when None.
        num_looks: How many looks to draw; ignored when `looks` are given.
    """
    family_rng, geometry_rng = _stream(seed, 0), _stream(seed, 1)
    family = family or FAMILIES[int(family_rng.integers(len(FAMILIES)))]
    if looks is None:
        looks = [draw_look(_stream(seed, 2, index), family) for index in range(num_looks)]
    scene = BUILDERS[family](geometry_rng, num_frames)
    rays = cast_rays(scene.camera, height, width)
    visibility = trace(scene, rays)
    surfaces = gather(scene, rays, visibility)
    patterns = find_patterns(scene, surfaces, rays)
    geometry = Geometry(
        scene=scene,
        surfaces=surfaces,
        patterns=patterns,
        base=base_albedo(scene, surfaces, patterns),
        ambient=ambient_reaching(scene, surfaces),
    )
    real = []
    for look in looks:
        rng = _stream(look.variation, 3)
        materials = choose_materials(look, rng)
        lighting = choose_lighting(look, rng)
        frames = resolve(shade_look(geometry, look, lighting, materials), surfaces, visibility)
        real.append(add_precipitation(frames, look, rng))
    return SceneClip(
        simulator=resolve(shade_simulator(geometry), surfaces, visibility),
        depth=visibility.depth[0].copy(),
        class_ids=label_pixels(scene, rays, visibility),
        class_names=dict(CLASS_NAMES),
        motion=image_motion(scene, rays, visibility),
        real=tuple(real),
        looks=tuple(looks),
        prompts=tuple(
            describe_look(look, _stream(seed, 4, index)) for index, look in enumerate(looks)
        ),
        family=family,
        seed=seed,
    )


def _stream(*path: int) -> np.random.Generator:
    """Return the generator that belongs to a path of integers."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(path)))
