"""What the open air adds to a picture: snow, wet ground, electric light, sky and haze.

Every function changes the colours or albedo it is given, in place. Both are linear, and laid out
`3 n`.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

from .lighting import Lighting
from .patterns import Patterns
from .scene import Scene
from .surfaces import SKY, Surfaces
from .tiles import tile
from .vectors import dot

FARTHEST_M = 150.0  # the sky's distance, for haze
HEADLIGHT_RGB = (0.55, 0.53, 0.46)
STREET_LAMP_RGB = (0.60, 0.40, 0.17)
LIT_PANE_RGB = (0.95, 0.62, 0.26)
SNOW_RGB = (0.84, 0.87, 0.92)
# Roles that shine by themselves, and how brightly with the lights fully on.
CAR_LIGHTS = {"tail light": (1.1, 0.06, 0.04), "head light": (1.5, 1.4, 1.1)}


def _ground(surfaces: Surfaces) -> list[slice]:
    return [
        surfaces.role_slices[role]
        for role in ("road", "sidewalk", "terrain")
        if role in surfaces.role_slices
    ]


def wet(
    albedo: Float[np.ndarray, "3 n"], gloss: Float[np.ndarray, " n"], surfaces: Surfaces
) -> None:
    """Darken what rain has soaked."""
    albedo *= 0.8
    for span in _ground(surfaces):
        albedo[:, span] *= 0.65
        gloss[span] = 0.3


def snow_over(
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
    for axis in range(3):
        albedo[axis] += (np.float32(SNOW_RGB[axis]) - albedo[axis]) * share
    gloss *= 1.0 - share


def add_street_light(
    colour: Float[np.ndarray, "3 n"],
    albedo: Float[np.ndarray, "3 n"],
    scene: Scene,
    surfaces: Surfaces,
    lighting: Lighting,
) -> None:
    """Light the street by our headlights and by its lamps."""
    camera = scene.camera
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
    lamps = scene.lamps
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
    for axis in range(3):
        light = beam * np.float32(HEADLIGHT_RGB[axis]) + warm * np.float32(STREET_LAMP_RGB[axis])
        colour[axis] += albedo[axis] * light * strength


def mirror_sky(colour: Float[np.ndarray, "3 n"], surfaces: Surfaces, lighting: Lighting) -> None:
    """Add the sky's reflection to wet ground, stronger at grazing angles."""
    for span in _ground(surfaces):
        grazing = 1.0 - np.clip(surfaces.towards_eye[2, span], 0.0, 1.0)
        share = 0.04 + 0.5 * grazing**4
        for axis in range(3):
            colour[axis, span] += share * (lighting.horizon[axis] - 0.5 * colour[axis, span])


def add_glow(
    colour: Float[np.ndarray, "3 n"], surfaces: Surfaces, patterns: Patterns, lighting: Lighting
) -> None:
    """Switch on windows, car lights and street lamps."""
    spans = surfaces.role_slices
    if "facade" in spans:
        span = spans["facade"]
        glass = patterns.glass[span]
        _reflect_in_panes(colour[:, span], glass, surfaces, span, lighting)
        if lighting.electric:
            lit, warmth = _lit_panes(patterns.pane[span], lighting)
            share = glass * lit * np.float32(lighting.electric)
            brightness = 0.45 + 0.5 * warmth
            for axis in range(3):
                glow = np.float32(LIT_PANE_RGB[axis]) * brightness
                colour[axis, span] += share * (glow - colour[axis, span])
    always_on = 0.35 + 0.65 * lighting.electric
    for role, rgb in CAR_LIGHTS.items():
        if role in spans:
            span = spans[role]
            for axis in range(3):
                shine = np.float32(rgb[axis] * always_on)
                colour[axis, span] = np.maximum(colour[axis, span], shine)
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


def paint_sky(colour: Float[np.ndarray, "3 n"], surfaces: Surfaces, lighting: Lighting) -> None:
    """Fill the sky with a gradient and, in clear weather, with clouds."""
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


def add_haze(colour: Float[np.ndarray, "3 n"], surfaces: Surfaces, lighting: Lighting) -> None:
    """Fade everything into the horizon by distance."""
    distance = np.minimum(surfaces.depth, np.float32(FARTHEST_M))
    share = 1.0 - np.exp(distance * np.float32(-lighting.fog_per_m))
    if SKY in surfaces.role_slices:
        share[surfaces.role_slices[SKY]] = 0.8 if lighting.fog_per_m > 0.03 else 0.0
    for axis in range(3):
        colour[axis] += (lighting.horizon[axis] - colour[axis]) * share
