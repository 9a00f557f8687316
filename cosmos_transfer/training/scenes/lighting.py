"""Where light comes from under a given look. Colours are linear; 1 is white in daylight."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from .looks import Look

Colour = Float[np.ndarray, " 3"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lighting:
    """All light sources, the sky and the air."""

    towards_sun: Float[np.ndarray, " 3"]
    sun: Colour
    from_above: Colour  # ambient light on surfaces that face up
    from_below: Colour
    lamp: Colour  # of the lamp above a table; black when off
    lamp_position: Float[np.ndarray, " 3"]
    horizon: Colour
    zenith: Colour
    clouds: float  # share of cloud in a clear sky
    cloud_colour: Colour
    fog_per_m: float
    electric: float  # strength of headlights, street lamps and lit windows
    wetness: float
    snow: float
    cloud_shift: tuple[float, float]
    window_seed: int


def _rgb(red: float, green: float, blue: float) -> Colour:
    return np.array([red, green, blue], dtype=np.float32)


def _direction(azimuth: float, elevation: float) -> Float[np.ndarray, " 3"]:
    across = np.cos(elevation)
    return np.array(
        [np.cos(azimuth) * across, np.sin(azimuth) * across, np.sin(elevation)], dtype=np.float32
    )


def choose_lighting(look: Look, rng: np.random.Generator) -> Lighting:
    """Return the light of a look; the generator settles directions and small things."""
    return _outdoors(look, rng) if look.family == "driving" else _indoors(look, rng)


def _indoors(look: Look, rng: np.random.Generator) -> Lighting:
    side = -1.0 if rng.random() < 0.5 else 1.0
    swing = rng.uniform(0.3, 1.1)
    lift = rng.uniform(0.0, 1.0)
    lamp_position = np.array(
        [rng.uniform(-0.5, 0.5), rng.uniform(-0.75, -0.2), 1.2], dtype=np.float32
    )
    azimuth = -0.5 * np.pi + side * swing  # from behind the camera, so that what it sees is lit
    night, dusk = look.time_of_day == "night", look.time_of_day == "dusk"
    if night:
        sun, above, below = (
            _rgb(0.02, 0.03, 0.06),
            _rgb(0.045, 0.055, 0.10),
            _rgb(0.024, 0.024, 0.036),
        )
        elevation = 0.8
    elif dusk:
        sun, above, below = _rgb(1.18, 0.58, 0.25), _rgb(0.22, 0.17, 0.25), _rgb(0.16, 0.10, 0.10)
        elevation = 0.38 + 0.2 * lift
    else:
        sun, above, below = _rgb(0.82, 0.78, 0.70), _rgb(0.40, 0.43, 0.47), _rgb(0.22, 0.21, 0.20)
        elevation = 0.75 + 0.4 * lift
    black = _rgb(0.0, 0.0, 0.0)
    return Lighting(
        towards_sun=_direction(azimuth, elevation),
        sun=sun,
        from_above=above,
        from_below=below,
        lamp=_rgb(0.76, 0.50, 0.24) if night else black,
        lamp_position=lamp_position,
        horizon=black,
        zenith=black,
        clouds=0.0,
        cloud_colour=black,
        fog_per_m=0.0,
        electric=0.0,
        wetness=0.0,
        snow=0.0,
        cloud_shift=(0.0, 0.0),
        window_seed=0,
    )


def _outdoors(look: Look, rng: np.random.Generator) -> Lighting:
    night, dusk = look.time_of_day == "night", look.time_of_day == "dusk"
    side = -1.0 if rng.random() < 0.5 else 1.0
    lift = rng.uniform(0.0, 1.0)
    ahead = rng.uniform(-1.1, 0.6)
    cloud_shift = (float(rng.random()), float(rng.random()))
    window_seed = int(rng.integers(2**20))
    azimuth = 0.5 * np.pi + side * (0.5 * np.pi - ahead)
    if night:
        elevation = 0.9
        sun, above, below = (
            _rgb(0.024, 0.034, 0.066),
            _rgb(0.034, 0.042, 0.078),
            _rgb(0.014, 0.015, 0.022),
        )
        horizon, zenith = _rgb(0.030, 0.036, 0.072), _rgb(0.004, 0.006, 0.020)
        cloud_colour, electric = _rgb(0.018, 0.02, 0.032), 1.0
    elif dusk:
        elevation = 0.22 + 0.15 * lift
        sun, above, below = _rgb(1.15, 0.46, 0.16), _rgb(0.21, 0.17, 0.25), _rgb(0.12, 0.09, 0.09)
        horizon, zenith = _rgb(0.98, 0.44, 0.16), _rgb(0.15, 0.14, 0.32)
        cloud_colour, electric = _rgb(0.85, 0.36, 0.26), 0.35
    else:
        elevation = 0.7 + 0.45 * lift
        sun, above, below = _rgb(0.98, 0.92, 0.82), _rgb(0.36, 0.41, 0.50), _rgb(0.17, 0.17, 0.16)
        horizon, zenith = _rgb(0.66, 0.77, 0.88), _rgb(0.16, 0.33, 0.72)
        cloud_colour, electric = _rgb(0.95, 0.95, 0.96), 0.0
    weather = look.weather
    if weather != "clear":
        direct = {"fog": 0.12, "rain": 0.08, "snow": 0.15}[weather]
        grey = {"fog": 0.85, "rain": 0.55, "snow": 0.85}[weather]
        fill = {"fog": 1.35, "rain": 1.0, "snow": 1.35}[weather]
        above, below = _greyer(above, 0.5) * fill, _greyer(below, 0.5) * fill
        mean_sky = 0.6 * horizon + 0.4 * zenith
        horizon = _greyer(mean_sky, 0.5) * grey
        zenith = horizon * (0.75 if weather == "rain" else 0.92)
        sun = sun * direct
    return Lighting(
        towards_sun=_direction(azimuth, elevation),
        sun=sun,
        from_above=above.astype(np.float32),
        from_below=below.astype(np.float32),
        lamp=_rgb(0.0, 0.0, 0.0),
        lamp_position=_rgb(0.0, 0.0, 1.0),
        horizon=horizon.astype(np.float32),
        zenith=zenith.astype(np.float32),
        clouds=0.8 if weather == "clear" else 0.0,
        cloud_colour=cloud_colour,
        fog_per_m={"clear": 0.0012, "fog": 0.042, "rain": 0.011, "snow": 0.014}[weather],
        electric=electric if weather != "rain" else max(electric, 0.2),
        wetness=1.0 if weather == "rain" else 0.0,
        snow=1.0 if weather == "snow" else 0.0,
        cloud_shift=cloud_shift,
        window_seed=window_seed,
    )


def _greyer(colour: Colour, share: float) -> Colour:
    return colour + np.float32(share) * (colour.mean() - colour)
