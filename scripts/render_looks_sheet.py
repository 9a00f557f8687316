"""Draw what a checkpoint makes of held-out scenes: a row a scene, a column a look, native pixels.

    python scripts/render_looks_sheet.py docs/images/looks_sheet.png

All four controls act at 0.25; every output of a row starts from the same noise. The first column is
the simulator's view that went in.
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageDraw, ImageFont

from cosmos_transfer.pipeline import TransferPipeline
from cosmos_transfer.training.scenes import CLASS_NAMES, describe_look, render_clip

LOOKS = {
    "tabletop": (
        {"time_of_day": "day", "table": "wood", "wall": "brick"},
        {"time_of_day": "dusk", "table": "metal", "wall": "painted"},
        {"time_of_day": "day", "table": "marble", "wall": "tiled"},
        {"time_of_day": "night", "table": "cloth", "wall": "plaster"},
    ),
    "driving": (
        {"time_of_day": "day", "weather": "clear"},
        {"time_of_day": "day", "weather": "snow"},
        {"time_of_day": "dusk", "weather": "fog"},
        {"time_of_day": "night", "weather": "rain"},
    ),
}
SCENES = (("tabletop", 1), ("tabletop", 4), ("driving", 0), ("driving", 2))
CAPTION, GAP = 30, 4
PAPER, INK = (250, 250, 248), (60, 60, 60)


def scene_row(
    pipeline: TransferPipeline, family: str, seed: int, frame: int
) -> list[tuple[str, UInt8[np.ndarray, "h w 3"]]]:
    """Captions and pictures of one scene."""
    info = pipeline.checkpoint.info
    size = info.native_size
    clip = render_clip(
        seed,
        family=family,
        height=size.height,
        width=size.width,
        num_frames=info.native_frames,
        num_looks=1,
    )
    controls = {
        "edge": {"weight": 0.25},
        "vis": {"weight": 0.25},
        "depth": {"weight": 0.25, "clip": clip.depth.astype(np.float32), "unit": "m"},
        "seg": {
            "weight": 0.25,
            "clip": clip.class_ids.astype(np.int32),
            "labels": dict(CLASS_NAMES),
        },
    }
    pictures = [("the simulator's view", clip.simulator[frame])]
    for change in LOOKS[family]:
        look = replace(clip.looks[0], **change)
        prompt = describe_look(look, np.random.default_rng(seed))
        made = pipeline(video=clip.simulator, prompt=prompt, controls=controls, episode=seed)
        pictures.append((prompt, made.frames[frame]))
    return pictures


def draw(rows: Sequence[Sequence[tuple[str, np.ndarray]]], scale: int) -> Image.Image:
    """Put the rows on one page; every pixel is repeated ``scale`` times each way."""
    height, width = (scale * side for side in rows[0][0][1].shape[:2])
    columns = max(len(row) for row in rows)
    page = Image.new(
        "RGB", (columns * (width + GAP) + GAP, len(rows) * (height + CAPTION + GAP) + GAP), PAPER
    )
    canvas, font = ImageDraw.Draw(page), ImageFont.load_default(size=10)
    for line, row in enumerate(rows):
        top = GAP + line * (height + CAPTION + GAP)
        for column, (caption, picture) in enumerate(row):
            left = GAP + column * (width + GAP)
            enlarged = picture.repeat(scale, axis=0).repeat(scale, axis=1)
            page.paste(Image.fromarray(enlarged), (left, top))
            wrapped = textwrap.wrap(caption, width=width // 5, max_lines=2, placeholder=" ...")
            canvas.text((left, top + height + 2), "\n".join(wrapped), fill=INK, font=font)
    return page


def main() -> None:
    """Make the clips and write the sheet."""
    parser = argparse.ArgumentParser(description="Draw a checkpoint's looks of held-out scenes.")
    parser.add_argument("path", type=Path)
    parser.add_argument("--checkpoint", default="embedded", help="name or folder")
    parser.add_argument("--scale", type=int, default=1, help="repeat every pixel this often")
    parser.add_argument("--frame", type=int, default=-1, help="which frame; the last if absent")
    arguments = parser.parse_args()
    pipeline = TransferPipeline.from_pretrained(arguments.checkpoint)
    rows = [scene_row(pipeline, family, seed, arguments.frame) for family, seed in SCENES]
    arguments.path.parent.mkdir(parents=True, exist_ok=True)
    draw(rows, arguments.scale).save(arguments.path, optimize=True)


if __name__ == "__main__":
    main()
