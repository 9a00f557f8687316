"""Flakes and streaks in front of the camera: few, because nothing predicts them."""

from __future__ import annotations

import numpy as np
from jaxtyping import UInt8

from .looks import Look


def add_precipitation(
    frames: UInt8[np.ndarray, "f h w 3"], look: Look, rng: np.random.Generator
) -> UInt8[np.ndarray, "f h w 3"]:
    """Blend falling snow or rain over frames; other weather returns them as they are."""
    if look.weather not in ("snow", "rain"):
        return frames
    num_frames, height, width, _ = frames.shape
    count = max(height * width // 350, 1)
    is_snow = look.weather == "snow"
    brightness = {"day": 235.0, "dusk": 190.0, "night": 110.0}[look.time_of_day]
    length = 1 if is_snow else max(height // 16, 2)
    speed = (0.012 if is_snow else 0.13) * height  # pixels per frame
    column = rng.uniform(0, width, count)
    row = rng.uniform(0, height, count)
    drift = rng.uniform(-0.4, 0.4, count) * (height / 64 if is_snow else 0.0)
    share = rng.uniform(0.3, 0.6, count) if is_snow else rng.uniform(0.06, 0.14, count)
    falling = frames.astype(np.float32)
    for frame in range(num_frames):
        x = (column + drift * frame).astype(int) % width
        for step in range(length):
            y = (row + speed * frame).astype(int) % height + step
            inside = y < height
            spot = falling[frame, y[inside], x[inside]]
            spot += np.maximum(brightness - spot, 0.0) * share[inside, None]
            falling[frame, y[inside], x[inside]] = spot
    return (falling + 0.5).astype(np.uint8)
