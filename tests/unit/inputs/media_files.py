"""Small clips and pictures that the tests write themselves, without this package's writer."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from PIL import Image


def smooth_frames(num_frames: int, height: int, width: int, *, seed: int = 0) -> np.ndarray:
    """Frames of broad moving colour waves: they survive 4:2:0 and lossy coding."""
    generator = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width] / max(height, width)
    phase = generator.uniform(0, 6, size=(3, 3))
    frames = np.empty((num_frames, height, width, 3), np.uint8)
    for index in range(num_frames):
        for channel in range(3):
            a, b, c = phase[channel]
            wave = np.sin(3 * x + a + 0.2 * index) + np.cos(3 * y + b) + np.sin(2 * (x + y) + c)
            frames[index, ..., channel] = np.rint(127.5 + 40 * wave)
    return frames


def numbered_frames(num_frames: int, height: int = 32, width: int = 48) -> np.ndarray:
    """Flat frames whose grey level tells which frame it is (at most 25)."""
    assert num_frames <= 25
    levels = np.arange(num_frames, dtype=np.uint8) * 10
    return np.broadcast_to(levels[:, None, None, None], (num_frames, height, width, 3)).copy()


def write_video(
    path: Path,
    frames: np.ndarray,
    *,
    rate: Fraction | int = 10,
    ticks: Sequence[int] | None = None,
    time_base: Fraction | None = None,
    codec: str = "libx264",
    pixel_format: str = "yuv420p",
    options: dict[str, str] | None = None,
    source_format: str = "rgb24",
) -> Path:
    """Encode with plain PyAV; ``ticks`` on ``time_base`` make a variable frame rate."""
    rate = Fraction(rate)
    base = time_base or 1 / rate
    index_first = {"movflags": "faststart"} if path.suffix == ".mp4" else {}
    with av.open(str(path), "w", options=index_first) as container:
        stream = container.add_stream(codec, rate=rate, options=options or {"crf": "10"})
        stream.width, stream.height, stream.pix_fmt = frames.shape[2], frames.shape[1], pixel_format
        stream.codec_context.time_base = base
        for index, pixels in enumerate(frames):
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels), format=source_format)
            frame.pts = index if ticks is None else ticks[index]
            frame.time_base = base
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def tag_display_matrix(path: Path, a: int, b: int, c: int, d: int) -> None:
    """Write a display matrix into the track header of an mp4: x' = a x + c y, y' = b x + d y."""
    content = bytearray(path.read_bytes())
    place = content.find(b"tkhd")
    header = place + 4 + 4 + (20 if content[place + 4] == 0 else 32) + 8 + 8
    one = 1 << 16
    matrix = (a * one, b * one, 0, c * one, d * one, 0, 0, 0, 1 << 30)
    content[header : header + 36] = struct.pack(">9i", *matrix)
    path.write_bytes(bytes(content))


def write_pictures(
    folder: Path, frames: np.ndarray, *, first: int = 0, name: str = "frame_{:04d}.png"
) -> Path:
    """One PNG per frame; uint16 frames become 16-bit PNG."""
    folder.mkdir(parents=True, exist_ok=True)
    for index, pixels in enumerate(frames, start=first):
        Image.fromarray(pixels).save(folder / name.format(index))
    return folder
