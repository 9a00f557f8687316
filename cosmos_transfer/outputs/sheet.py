"""Contact sheets: clips as rows of small pictures over time, with their names beside them."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image, ImageDraw, ImageFont

from cosmos_transfer.errors import ShapeError, explain
from cosmos_transfer.outputs.writer import complete_file

LABEL_WIDTH = 168
GAP = 4
HEADER = 22
PAPER = (250, 250, 248)
INK = (30, 30, 30)
FAINT = (120, 120, 120)


@dataclass(frozen=True, slots=True, kw_only=True)
class SheetRow:
    """One clip of a sheet: a title, a smaller note, and its frames."""

    title: str
    frames: UInt8[np.ndarray, "f h w 3"]
    note: str = ""


def weight_picture(weights: Float[np.ndarray, "f h w"]) -> UInt8[np.ndarray, "f h w 3"]:
    """A weight map as pictures: black is 0, white is 1, and in between from violet to yellow."""
    levels = np.rint(np.clip(weights, 0.0, 1.0) * 255).astype(np.uint8)
    colors = cv2.applyColorMap(np.arange(256, dtype=np.uint8)[:, None], cv2.COLORMAP_INFERNO)
    table = np.ascontiguousarray(colors.reshape(256, 3)[:, ::-1])
    table[255] = (255, 255, 255)
    return table[levels]


def evenly_spaced(num_frames: int, columns: int) -> list[int]:
    """At most ``columns`` frame numbers from the first to the last, each once."""
    return sorted(
        {int(i) for i in np.rint(np.linspace(0, num_frames - 1, min(num_frames, columns)))}
    )


def contact_sheet(
    rows: Sequence[SheetRow],
    *,
    times_s: Sequence[float],
    columns: int = 5,
    cell_height: int = 96,
    title: str = "",
) -> UInt8[np.ndarray, "h w 3"]:
    """Draw the rows under one time axis.

    Args:
        rows: Clips with the same number of frames; their sizes may differ.
        times_s: When each frame is shown, in seconds.
        columns: How many moments to show, from the first to the last.
        cell_height: Height of each small picture in pixels; its width keeps the aspect ratio.
        title: A line above everything.
    """
    lengths = {len(row.frames) for row in rows} | {len(times_s)}
    if not rows or len(lengths) != 1 or 0 in lengths:
        raise ShapeError(
            explain(
                "contact sheet",
                expected="rows with one number of frames, as many as times",
                got=", ".join(f"{row.title}: {len(row.frames)}" for row in rows) or "no rows",
                do="Draw a sheet per length.",
            )
        )
    moments = evenly_spaced(len(times_s), columns)
    cell_width = max(_width(row, cell_height) for row in rows)
    top = HEADER + (HEADER if title else 0)
    width = LABEL_WIDTH + len(moments) * (cell_width + GAP) + GAP
    height = top + len(rows) * (cell_height + GAP) + GAP
    page = Image.new("RGB", (width, height), PAPER)
    draw = ImageDraw.Draw(page)
    big, small = ImageFont.load_default(size=13), ImageFont.load_default(size=10)
    if title:
        draw.text((GAP, 4), _fit(draw, title, big, width - 2 * GAP), fill=INK, font=big)
    for column, moment in enumerate(moments):
        left = LABEL_WIDTH + column * (cell_width + GAP)
        draw.text((left, top - 16), f"{times_s[moment]:.2f} s", fill=FAINT, font=small)
    for line, row in enumerate(rows):
        y = top + line * (cell_height + GAP)
        _label(draw, row, y, cell_height, big, small)
        cell = (_width(row, cell_height), cell_height)
        for column, moment in enumerate(moments):
            picture = Image.fromarray(_small(row.frames[moment], cell))
            page.paste(picture, (LABEL_WIDTH + column * (cell_width + GAP), y))
    return np.asarray(page).copy()


def beside(sheets: Sequence[UInt8[np.ndarray, "_ _ 3"]]) -> UInt8[np.ndarray, "h w 3"]:
    """Several sheets side by side on one page."""
    height = max(len(sheet) for sheet in sheets)
    width = sum(sheet.shape[1] for sheet in sheets) + 4 * GAP * (len(sheets) - 1)
    page = np.empty((height, width, 3), dtype=np.uint8)
    page[:] = PAPER
    left = 0
    for sheet in sheets:
        page[: len(sheet), left : left + sheet.shape[1]] = sheet
        left += sheet.shape[1] + 4 * GAP
    return page


def write_sheet(path: Path, sheet: UInt8[np.ndarray, "h w 3"], *, overwrite: bool = False) -> Path:
    """Write a sheet as PNG, complete or not at all."""
    with complete_file(path, overwrite=overwrite) as unfinished:
        Image.fromarray(sheet).save(unfinished, format="PNG", optimize=True)
    return path


def _width(row: SheetRow, cell_height: int) -> int:
    height, width = row.frames.shape[1:3]
    return max(1, round(width * cell_height / height))


def _small(
    frame: UInt8[np.ndarray, "h w 3"], size: tuple[int, int]
) -> UInt8[np.ndarray, "h2 w2 3"]:
    """A frame at a cell's size; pixels are repeated, not blurred, at a whole multiple."""
    width, height = size
    if height <= frame.shape[0]:
        how = cv2.INTER_AREA
    elif height % frame.shape[0] == 0 and width % frame.shape[1] == 0:
        how = cv2.INTER_NEAREST
    else:
        how = cv2.INTER_LINEAR
    return cv2.resize(np.ascontiguousarray(frame), size, interpolation=how)


def _label(
    draw: ImageDraw.ImageDraw,
    row: SheetRow,
    y: int,
    cell_height: int,
    big: ImageFont.FreeTypeFont | ImageFont.ImageFont,
    small: ImageFont.FreeTypeFont | ImageFont.ImageFont,
) -> None:
    draw.text((GAP, y), _fit(draw, row.title, big, LABEL_WIDTH - 2 * GAP), fill=INK, font=big)
    room = (cell_height - 20) // 13
    lines = textwrap.wrap(row.note, width=28, max_lines=room, placeholder=" ...") if room else []
    for index, text in enumerate(lines):
        fitted = _fit(draw, text, small, LABEL_WIDTH - 2 * GAP)
        draw.text((GAP, y + 19 + 13 * index), fitted, fill=FAINT, font=small)


def _fit(
    draw: ImageDraw.ImageDraw,
    text: str,
    font: ImageFont.FreeTypeFont | ImageFont.ImageFont,
    width: int,
) -> str:
    if draw.textlength(text, font=font) <= width:
        return text
    while text and draw.textlength(f"{text}...", font=font) > width:
        text = text[:-1]
    return f"{text}..."
