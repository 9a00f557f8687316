"""Fitting a picture where one can watch: plain functions of the tab's values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path

import cv2
import numpy as np
from jaxtyping import UInt8

from ngpc.backends.registry import AUTO
from ngpc.config import ImageFitConfig
from ngpc.data.images import Image, read_image
from ngpc.errors import ConfigError, explain
from ngpc.fields.image import render_image
from ngpc.tasks.image import fit_image

LONGEST_SIDE = 256
MAX_STEPS = 1024
FIRST_STEPS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """How far a fit is: the picture after ``curve[-1][0]`` steps, and (steps, dB) so far."""

    picture: UInt8[np.ndarray, "h w 3"]
    curve: tuple[tuple[int, float], ...]


def sample_picture() -> Image:
    """A picture that is always there: discs and stripes, sharp and smooth."""
    rows, columns = np.mgrid[0:128, 0:192].astype(np.float32)
    red = 0.5 + 0.5 * np.sin(columns / 7) * np.cos(rows / 11)
    green = np.hypot(rows - 64, columns - 96) / 115
    blue = ((rows // 16 + columns // 16) % 2) * 0.6 + 0.2
    picture = np.stack([red, green, blue], axis=2)
    picture[np.hypot(rows - 50, columns - 140) < 22] = (0.95, 0.75, 0.2)
    return Image(rgb_srgb=np.clip(picture, 0, 1).astype(np.float32))


def load_picture(path: str | Path | None) -> Image:
    """An uploaded picture, its longer side at most :data:`LONGEST_SIDE`; the sample without one.

    Raises:
        NgpcError: It is no picture.
    """
    if path is None:
        return sample_picture()
    image = read_image(Path(path))
    scale = LONGEST_SIDE / max(image.height, image.width)
    if scale >= 1:
        return image
    size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
    return Image(rgb_srgb=cv2.resize(image.rgb_srgb, size, interpolation=cv2.INTER_AREA))


def fit_picture(image: Image, *, num_steps: int, backend: str = AUTO) -> Iterator[Stage]:
    """Fit a field to a picture, and stop at twice as many steps each time to show it.

    A fit of few steps is the beginning of a longer one of the same seed, so what is shown is one
    fit; it costs about twice the steps of the last.

    Raises:
        ConfigError: A number of steps out of range.
    """
    if not 1 <= num_steps <= MAX_STEPS:
        raise ConfigError(
            explain("steps", expected=f"1 to {MAX_STEPS}", got=f"{num_steps}", do="Choose fewer.")
        )
    curve: list[tuple[int, float]] = []
    for steps in stages(num_steps):
        fit = fit_image(image, ImageFitConfig(num_steps=steps), backend=backend)
        curve.append((steps, fit.psnr_db))
        shown = render_image(fit.field, height=image.height, width=image.width)
        pixels = np.clip(shown.detach().cpu().numpy() * 255 + 0.5, 0, 255).astype(np.uint8)
        yield Stage(picture=pixels, curve=tuple(curve))


def stages(num_steps: int) -> tuple[int, ...]:
    """The numbers of steps at which a fit is shown; the last is ``num_steps``."""
    found = []
    steps = FIRST_STEPS
    while steps < num_steps:
        found.append(steps)
        steps *= 2
    return (*found, num_steps)


def curve_picture(curve: tuple[tuple[int, float], ...]) -> str:
    """PSNR over steps as an SVG, with the last value in words."""
    if not curve:
        return ""
    last, reached = curve[-1]
    top = max(40.0, *(value for _, value in curve))
    points = [
        (36 + 274 * np.log2(1 + steps) / np.log2(1 + last), 130 - 116 * max(value, 0) / top)
        for steps, value in curve
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in points)
    said = escape(f"{reached:.1f} dB after {last} steps")
    return (
        f'<figure class="curve"><svg viewBox="0 0 320 150" role="img" aria-label="PSNR: {said}">'
        '<path d="M36 10V130H314" fill="none" stroke="#94a3b8"/>'
        f'<polyline points="{line}" fill="none" stroke="#0f766e" stroke-width="2"/>'
        f'<g fill="#0f766e">{dots}</g><text x="4" y="18">{top:.0f} dB</text>'
        f'<text x="262" y="146">{last} steps</text></svg><figcaption>{said}</figcaption></figure>'
    )
