"""From surfaces and light to colours.

The simulator's picture is plain albedo under a light at the camera. A look replaces albedo by
materials and adds sun, sky, lamps, shadows, highlights, snow, wet ground and air.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from .lighting import Lighting
from .looks import Look
from .materials import Material, linear
from .outdoors import add_glow, add_haze, add_street_light, mirror_sky, paint_sky, snow_over, wet
from .patterns import PAINT_RGB, Patterns
from .scene import Scene
from .shadows import DistantLight, HangingLamp, light_reaching
from .surfaces import SKY, Surfaces
from .vectors import dot

SIMULATOR_SKY = (0.62, 0.74, 0.90)
SHADOWLESS = 0.2  # suns weaker than this cast no shadow worth its time


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """What all looks of one clip share."""

    scene: Scene
    surfaces: Surfaces
    patterns: Patterns
    base: Float[np.ndarray, "3 n"]  # linear albedo of the solids, panes and paint included
    ambient: Float[np.ndarray, " n"]  # share of ambient light that arrives


def base_albedo(scene: Scene, surfaces: Surfaces, patterns: Patterns) -> Float[np.ndarray, "3 n"]:
    """Return the linear albedo of every sample, panes and road paint included."""
    base = np.zeros((3, len(surfaces.order)), dtype=np.float32)
    for index, span in surfaces.primitive_slices.items():
        if index < 0:
            base[:, span] = linear(SIMULATOR_SKY)[:, None]
            continue
        primitive = scene.primitives[index]
        base[:, span] = linear(primitive.finish.albedo)[:, None]
        if primitive.windows is not None:
            _cover(base[:, span], linear(primitive.windows.glass_rgb), patterns.glass[span])
    if "road" in surfaces.role_slices:
        road = surfaces.role_slices["road"]
        _cover(base[:, road], linear(PAINT_RGB), patterns.paint[road])
    return base


def shade_simulator(geometry: Geometry) -> Float[np.ndarray, "3 n"]:
    """Return display colours of the flat picture."""
    surfaces = geometry.surfaces
    facing = np.abs(dot(surfaces.normal, surfaces.towards_eye))
    shade = 0.55 + 0.45 * facing
    if SKY in surfaces.role_slices:
        shade[surfaces.role_slices[SKY]] = 1.0
    return np.sqrt(geometry.base) * shade


def shade_look(
    geometry: Geometry, look: Look, lighting: Lighting, materials: Mapping[str, Material]
) -> Float[np.ndarray, "3 n"]:
    """Return display colours of one look."""
    surfaces = geometry.surfaces
    albedo, gloss = _apply_materials(geometry, materials)
    if lighting.wetness:
        wet(albedo, gloss, surfaces)
    if lighting.snow:
        snow_over(albedo, gloss, surfaces)
    colour = _ambient_light(geometry, lighting) * albedo
    _add_sun(colour, albedo, gloss, geometry, lighting)
    if lighting.lamp.any():
        _add_table_lamp(colour, albedo, gloss, geometry, lighting)
    if look.family == "driving":
        if lighting.electric:
            add_street_light(colour, albedo, geometry.scene, surfaces, lighting)
        if lighting.wetness:
            mirror_sky(colour, surfaces, lighting)
        add_glow(colour, surfaces, geometry.patterns, lighting)
        paint_sky(colour, surfaces, lighting)
        add_haze(colour, surfaces, lighting)
    return _to_display(colour)


def _cover(
    target: Float[np.ndarray, "3 n"], colour: Float[np.ndarray, " 3"], share: np.ndarray
) -> None:
    """Blend a colour over a view, in place."""
    for axis in range(3):
        target[axis] += (colour[axis] - target[axis]) * share


def _apply_materials(
    geometry: Geometry, materials: Mapping[str, Material]
) -> tuple[Float[np.ndarray, "3 n"], Float[np.ndarray, " n"]]:
    surfaces = geometry.surfaces
    albedo = geometry.base.copy()
    gloss = np.zeros(len(surfaces.order), dtype=np.float32)
    for role, span in surfaces.role_slices.items():
        if role == SKY:
            continue
        material = materials[role]
        albedo[:, span] = material.albedo(
            surfaces.texture[:, span], surfaces.footprint[span], geometry.base[:, span]
        )
        gloss[span] = material.gloss
    if "facade" in surfaces.role_slices:
        span = surfaces.role_slices["facade"]
        gloss[span] = geometry.patterns.glass[span] * np.float32(0.5)
    return albedo, gloss


def _ambient_light(geometry: Geometry, lighting: Lighting) -> Float[np.ndarray, "3 n"]:
    up = 0.5 + 0.5 * geometry.surfaces.normal[2]
    light = np.empty_like(geometry.base)
    for axis in range(3):
        below, above = lighting.from_below[axis], lighting.from_above[axis]
        light[axis] = (below + (above - below) * up) * geometry.ambient
    return light


def _add_sun(
    colour: Float[np.ndarray, "3 n"],
    albedo: Float[np.ndarray, "3 n"],
    gloss: Float[np.ndarray, " n"],
    geometry: Geometry,
    lighting: Lighting,
) -> None:
    surfaces = geometry.surfaces
    towards = lighting.towards_sun
    facing = towards @ surfaces.normal
    lit = np.flatnonzero(facing > 0.0)
    arriving = facing[lit]
    if lighting.sun.max() > SHADOWLESS:
        source = DistantLight(towards=towards)
        arriving = arriving * light_reaching(geometry.scene, surfaces, lit, source)
    _add_light(colour, albedo, gloss, surfaces, lit, arriving, towards[:, None], lighting.sun)


def _add_light(
    colour: Float[np.ndarray, "3 n"],
    albedo: Float[np.ndarray, "3 n"],
    gloss: Float[np.ndarray, " n"],
    surfaces: Surfaces,
    lit: Int[np.ndarray, " m"],
    arriving: Float[np.ndarray, " m"],
    towards_light: Float[np.ndarray, "3 #m"],
    light: Float[np.ndarray, " 3"],
) -> None:
    """Add diffuse light and highlights on the lit samples."""
    for axis in range(3):
        colour[axis, lit] += light[axis] * albedo[axis, lit] * arriving
    shiny = np.flatnonzero((gloss[lit] > 0.0) & (arriving > 0.01))
    samples = lit[shiny]
    towards = towards_light if towards_light.shape[1] == 1 else towards_light[:, shiny]
    shine = _highlight(surfaces, samples, towards) * gloss[samples] * arriving[shiny]
    for axis in range(3):
        colour[axis, samples] += light[axis] * shine


def _highlight(
    surfaces: Surfaces, samples: np.ndarray, towards_light: Float[np.ndarray, "3 #n"]
) -> Float[np.ndarray, " n"]:
    half = surfaces.towards_eye[:, samples] + towards_light
    normal = surfaces.normal[:, samples]
    aligned = dot(half, normal) / np.sqrt(dot(half, half) + np.float32(1e-6))
    power = np.maximum(aligned, 0.0)
    for _ in range(5):  # to the 32nd
        power = power * power
    return power


def _add_table_lamp(
    colour: Float[np.ndarray, "3 n"],
    albedo: Float[np.ndarray, "3 n"],
    gloss: Float[np.ndarray, " n"],
    geometry: Geometry,
    lighting: Lighting,
) -> None:
    surfaces = geometry.surfaces
    source = HangingLamp(position=lighting.lamp_position)
    towards, distance = source.directions(surfaces.position)
    facing = dot(towards, surfaces.normal)
    cone = np.clip((towards[2] - 0.2) * 1.8, 0.0, 1.0)  # the shade keeps light off the walls
    lit = np.flatnonzero((facing > 0.0) & (cone > 0.0))
    arriving = facing[lit] * cone[lit] / (0.15 + np.square(distance[lit]))
    arriving *= light_reaching(geometry.scene, surfaces, lit, source)
    _add_light(colour, albedo, gloss, surfaces, lit, arriving, towards[:, lit], lighting.lamp)


def _to_display(colour: Float[np.ndarray, "3 n"]) -> Float[np.ndarray, "3 n"]:
    """Compress highlights, then take the square root that stands in for sRGB."""
    bounded = np.maximum(colour, 0.0)
    return np.sqrt(bounded * 1.18 / (1.0 + 0.22 * bounded))
