"""From surfaces and light to colours.

The simulator's picture is plain albedo under a light at the camera. A look replaces albedo by
materials and adds sun, sky, lamps, shadows, highlights, snow, wet ground and air.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from .lighting import Lighting
from .looks import Look
from .materials import Material, linear
from .patterns import PAINT_RGB, Patterns
from .scene import Scene
from .shadows import DistantLight, HangingLamp, light_reaching
from .surfaces import SKY, Surfaces
from .tiles import tile
from .vectors import dot

SIMULATOR_SKY = (0.62, 0.74, 0.90)
FARTHEST_M = 150.0  # the sky's distance, for fog
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
    geometry: Geometry, look: Look, lighting: Lighting, materials: dict[str, Material]
) -> Float[np.ndarray, "3 n"]:
    """Return display colours of one look."""
    surfaces = geometry.surfaces
    albedo, gloss = _apply_materials(geometry, materials)
    if lighting.wetness:
        _wet(albedo, gloss, surfaces)
    if lighting.snow:
        _snow_over(albedo, gloss, surfaces)
    colour = _ambient_light(geometry, lighting) * albedo
    _add_sun(colour, albedo, gloss, geometry, lighting)
    if lighting.lamp.any():
        _add_table_lamp(colour, albedo, gloss, geometry, lighting)
    if look.family == "driving":
        if lighting.electric:
            _add_street_light(colour, albedo, geometry, lighting)
        if lighting.wetness:
            _mirror_sky(colour, surfaces, lighting)
        _add_glow(colour, geometry, lighting)
        _paint_sky(colour, surfaces, lighting)
        _add_air(colour, surfaces, lighting)
    return _to_display(colour)


def _cover(
    target: Float[np.ndarray, "3 n"], colour: Float[np.ndarray, " 3"], share: np.ndarray
) -> None:
    """Blend a colour over a view, in place."""
    for axis in range(3):
        target[axis] += (colour[axis] - target[axis]) * share


def _apply_materials(
    geometry: Geometry, materials: dict[str, Material]
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


def _ground(surfaces: Surfaces) -> list[slice]:
    return [
        surfaces.role_slices[role]
        for role in ("road", "sidewalk", "terrain")
        if role in surfaces.role_slices
    ]


def _wet(
    albedo: Float[np.ndarray, "3 n"], gloss: Float[np.ndarray, " n"], surfaces: Surfaces
) -> None:
    """Darken what rain has soaked."""
    albedo *= 0.8
    for span in _ground(surfaces):
        albedo[:, span] *= 0.65
        gloss[span] = 0.3


def _snow_over(
    albedo: Float[np.ndarray, "3 n"], gloss: Float[np.ndarray, " n"], surfaces: Surfaces
) -> None:
    """Lay snow on what faces up, with tracks on the road."""
    share = np.clip((surfaces.normal[2] - 0.15) * 2.2, 0.0, 1.0) * np.float32(0.96)
    if "road" in surfaces.role_slices:
        span = surfaces.role_slices["road"]
        position, footprint = surfaces.position[:, span], surfaces.footprint[span]
        patchy = tile("blotches").sample(
            position[0] * 0.12, position[1] * 0.03, footprint * np.float32(0.12)
        )
        share[span] = np.clip(0.62 + 0.5 * patchy, 0.0, 0.96)
    if "parapet" in surfaces.role_slices:  # snow hangs over the edge
        share[surfaces.role_slices["parapet"]] = 0.9
    if SKY in surfaces.role_slices:
        share[surfaces.role_slices[SKY]] = 0.0
    _cover(albedo, np.array([0.84, 0.87, 0.92], dtype=np.float32), share)
    gloss *= 1.0 - share


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


def _add_street_light(
    colour: Float[np.ndarray, "3 n"],
    albedo: Float[np.ndarray, "3 n"],
    geometry: Geometry,
    lighting: Lighting,
) -> None:
    """Light the street by our headlights and by its lamps."""
    surfaces, camera = geometry.surfaces, geometry.scene.camera
    eye = camera.position.T[:, surfaces.frame]
    aside = surfaces.position[0] - eye[0]
    ahead = surfaces.position[1] - eye[1]
    width = 1.2 + 0.16 * ahead
    beam = np.exp(-np.square(aside / width)) * np.clip(ahead / 5.0, 0.0, 1.0)
    beam *= 1.6 / (1.0 + np.square(ahead / 11.0))
    height = surfaces.position[2]
    beam *= np.clip(1.6 - 0.5 * height, 0.1, 1.0)
    facing = dot(surfaces.normal, surfaces.towards_eye)
    beam *= 0.25 + 0.75 * np.clip(facing * 2.0, 0.0, 1.0)
    warm = np.zeros_like(beam)
    lamps = geometry.scene.lamps
    if lamps is not None:
        for x, first in zip(lamps.x, lamps.first_y, strict=True):
            along = surfaces.position[1] - np.float32(first)
            along = along - np.float32(lamps.spacing) * np.round(along / np.float32(lamps.spacing))
            across = surfaces.position[0] - np.float32(x * 0.9)
            drop = np.float32(lamps.height) - height
            squared = along * along + across * across + drop * drop
            warm += np.where(drop > 0.0, drop / (squared * np.sqrt(squared) + 1.0), 0.0)
        warm *= 11.0
    strength = np.float32(lighting.electric)
    headlight, sodium = (0.55, 0.53, 0.46), (0.60, 0.40, 0.17)
    for axis in range(3):
        light = beam * np.float32(headlight[axis]) + warm * np.float32(sodium[axis])
        colour[axis] += albedo[axis] * light * strength


def _mirror_sky(colour: Float[np.ndarray, "3 n"], surfaces: Surfaces, lighting: Lighting) -> None:
    """Add the sky's reflection to wet ground, stronger at grazing angles."""
    for span in _ground(surfaces):
        grazing = 1.0 - np.clip(surfaces.towards_eye[2, span], 0.0, 1.0)
        share = 0.04 + 0.5 * grazing**4
        for axis in range(3):
            colour[axis, span] += share * (lighting.horizon[axis] - 0.5 * colour[axis, span])


def _add_glow(colour: Float[np.ndarray, "3 n"], geometry: Geometry, lighting: Lighting) -> None:
    """Switch on windows, car lights and street lamps."""
    surfaces, patterns = geometry.surfaces, geometry.patterns
    spans = surfaces.role_slices
    if "facade" in spans:
        span = spans["facade"]
        glass = patterns.glass[span]
        _reflect_in_panes(colour[:, span], glass, surfaces, span, lighting)
        if lighting.electric:
            lit, warmth = _lit_panes(patterns.pane[span], lighting)
            share = glass * lit * np.float32(lighting.electric)
            glow = np.array([[0.95], [0.62], [0.26]], dtype=np.float32) * (0.45 + 0.5 * warmth)
            colour[:, span] += share * (glow - colour[:, span])
    always_on = 0.35 + 0.65 * lighting.electric
    for role, rgb in (("tail light", (1.1, 0.06, 0.04)), ("head light", (1.5, 1.4, 1.1))):
        if role in spans:
            glow = np.array(rgb, dtype=np.float32)[:, None] * np.float32(always_on)
            colour[:, spans[role]] = np.maximum(colour[:, spans[role]], glow)
    if "street lamp" in spans and lighting.electric > 0.3:
        below = surfaces.normal[2, spans["street lamp"]] < -0.5
        bulb = np.array([[1.6], [1.2], [0.6]], dtype=np.float32) * below
        colour[:, spans["street lamp"]] += bulb


def _lit_panes(
    pane: np.ndarray, lighting: Lighting
) -> tuple[Bool[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Choose by a hash which panes are lit, and how brightly."""
    mixed = (pane + lighting.window_seed).astype(np.uint32) * np.uint32(2654435761)
    mixed ^= mixed >> np.uint32(15)
    mixed *= np.uint32(2246822519)
    mixed ^= mixed >> np.uint32(13)
    return (mixed & np.uint32(255)) < 120, ((mixed >> np.uint32(8)) & 255) / np.float32(255.0)


def _reflect_in_panes(
    colour: Float[np.ndarray, "3 n"],
    glass: Float[np.ndarray, " n"],
    surfaces: Surfaces,
    span: slice,
    lighting: Lighting,
) -> None:
    """Let panes mirror the sky: more of it the higher they are."""
    high = np.clip(surfaces.position[2, span] * np.float32(0.05), 0.05, 0.6)
    for axis in range(3):
        sky = lighting.horizon[axis] * np.float32(0.7)
        colour[axis] += glass * high * (sky - colour[axis])


def _paint_sky(colour: Float[np.ndarray, "3 n"], surfaces: Surfaces, lighting: Lighting) -> None:
    if SKY not in surfaces.role_slices:
        return
    span = surfaces.role_slices[SKY]
    ray = -surfaces.towards_eye[:, span]
    height = np.clip(ray[2] * 2.0, 0.0, 1.0)
    cloud = np.zeros_like(height)
    if lighting.clouds:
        rise = np.maximum(ray[2], 0.06)
        u = ray[0] / rise * np.float32(0.10) + np.float32(lighting.cloud_shift[0])
        v = ray[1] / rise * np.float32(0.06) + np.float32(lighting.cloud_shift[1])
        thickness = tile("clouds").sample(u, v, 0.004 / rise)
        cloud = np.clip((thickness - 0.48) * 3.2, 0.0, 1.0) * np.clip(ray[2] * 6.0, 0.0, 1.0)
        cloud *= np.float32(lighting.clouds)
    for axis in range(3):
        horizon, zenith = lighting.horizon[axis], lighting.zenith[axis]
        sky = horizon + (zenith - horizon) * height
        colour[axis, span] = sky + (lighting.cloud_colour[axis] - sky) * cloud


def _add_air(colour: Float[np.ndarray, "3 n"], surfaces: Surfaces, lighting: Lighting) -> None:
    """Fade everything into the horizon by distance."""
    distance = np.minimum(surfaces.depth, np.float32(FARTHEST_M))
    share = 1.0 - np.exp(distance * np.float32(-lighting.fog_per_m))
    if SKY in surfaces.role_slices:
        share[surfaces.role_slices[SKY]] = 0.8 if lighting.fog_per_m > 0.03 else 0.0
    for axis in range(3):
        colour[axis] += (lighting.horizon[axis] - colour[axis]) * share


def _to_display(colour: Float[np.ndarray, "3 n"]) -> Float[np.ndarray, "3 n"]:
    """Compress highlights, then take the square root that stands in for sRGB."""
    bounded = np.maximum(colour, 0.0)
    return np.sqrt(bounded * 1.18 / (1.0 + 0.22 * bounded))
