"""Draw a contact sheet of procedural scenes.

Rows are clips; columns are the simulator's view, depth, classes and three looks.

    python scripts/render_scene_sheet.py sheet.png --first-seed 0 --num-clips 8 --scale 3
"""

from __future__ import annotations

import argparse
import colorsys
import struct
import sys
import zlib
from pathlib import Path

import numpy as np

from cosmos_transfer.training.scenes import CLASS_NAMES, FAMILIES, SceneClip, render_clip


def class_palette() -> np.ndarray:
    """Return one distinct colour per class id, uint8."""
    hues = [(index * 0.381966) % 1.0 for index in CLASS_NAMES]
    colours = [colorsys.hsv_to_rgb(hue, 0.65, 0.55 + 0.4 * (i % 2)) for i, hue in enumerate(hues)]
    return (np.array(colours) * 255).astype(np.uint8)


def depth_picture(depth: np.ndarray) -> np.ndarray:
    """Show near things bright; the sky is black."""
    nearness = depth[np.isfinite(depth)].min() / depth
    return np.repeat((np.sqrt(nearness) * 255).astype(np.uint8)[..., None], 3, axis=-1)


def clip_row(clip: SceneClip, frame: int) -> np.ndarray:
    """Lay one frame of everything a clip holds side by side."""
    pictures = [
        clip.simulator[frame],
        depth_picture(clip.depth[frame]),
        class_palette()[clip.class_ids[frame]],
        *(frames[frame] for frames in clip.real),
    ]
    return np.concatenate(pictures, axis=1)


def write_png(path: Path, picture: np.ndarray) -> None:
    """Write 8-bit RGB rows without an imaging library."""
    height, width, _ = picture.shape
    rows = np.zeros((height, 1 + 3 * width), dtype=np.uint8)
    rows[:, 1:] = picture.reshape(height, -1)

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = zlib.compress(rows.tobytes(), 6)
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")
    )


def main() -> None:
    """Render the clips and write the sheet."""
    parser = argparse.ArgumentParser(description="Draw a contact sheet of scenes.")
    parser.add_argument("path", type=Path)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--num-clips", type=int, default=8)
    parser.add_argument("--num-looks", type=int, default=3)
    parser.add_argument("--family", choices=FAMILIES)
    parser.add_argument("--height", type=int, default=64)
    parser.add_argument("--width", type=int, default=96)
    parser.add_argument("--scale", type=int, default=3, help="repeat every pixel this often")
    parser.add_argument("--both-ends", action="store_true", help="show the last frame, too")
    arguments = parser.parse_args()
    rows = []
    for index in range(arguments.num_clips):
        clip = render_clip(
            arguments.first_seed + index,
            family=arguments.family or FAMILIES[index % len(FAMILIES)],
            height=arguments.height,
            width=arguments.width,
            num_looks=arguments.num_looks,
        )
        rows += [clip_row(clip, frame) for frame in ((0, -1) if arguments.both_ends else (0,))]
        sys.stdout.write(f"{clip.seed} {clip.family}: {' | '.join(clip.prompts)}\n")
    sheet = np.concatenate(rows, axis=0)
    sheet = sheet.repeat(arguments.scale, axis=0).repeat(arguments.scale, axis=1)
    write_png(arguments.path, sheet)


if __name__ == "__main__":
    main()
