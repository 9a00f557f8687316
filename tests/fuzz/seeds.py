"""Small valid files of every kind that is read, each with the function that reads it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from PIL import Image
from safetensors.numpy import save_file

from cosmos_transfer.inputs.depth import read_depth
from cosmos_transfer.inputs.labels import read_labels
from cosmos_transfer.inputs.masks import read_mask
from cosmos_transfer.inputs.request import load_requests
from cosmos_transfer.inputs.segmentation import read_segmentation
from cosmos_transfer.inputs.simulators import open_scene
from cosmos_transfer.inputs.video import probe_clip, read_clip
from cosmos_transfer.outputs.record import read_record
from tests.unit.inputs.media_files import smooth_frames, write_video

FRAMES = smooth_frames(4, 24, 32)
IDS = np.arange(4 * 24 * 32).reshape(4, 24, 32) % 5

YAML_SPEC = """\
video: clip.mp4
prompt: "a snowy street, at night"
controls:
  edge: {weight: 0.5, mask: mask.png, ramp: [0, 1]}
  depth: {path: depth.npy, unit: m, invalid: [0, .inf]}
seed: 7
rate: 30000/1001
"""
COSMOS_SPEC = {
    "prompt": "snow",
    "input_video_path": "clip.mp4",
    "guidance": 3,
    "edge": {"control_weight": 0.5, "input_control": "edge.mp4"},
    "seg": {"control_weight": {"robot_*": 1.0, "default": 0.1}, "labels": {"1": "robot"}},
}
LABELS = {"(29, 0, 0, 255)": {"class": "robot"}, "7": {"class": "table"}}


@dataclass(frozen=True, slots=True)
class Seed:
    """One valid file and its readers; ``is_text`` decides how it is mutated."""

    name: str
    content: bytes
    readers: tuple[Callable[[Path], object], ...]
    is_text: bool = False


def make_seeds(folder: Path) -> tuple[Seed, ...]:
    """Write every kind once, into ``folder``, and read it back as bytes."""
    clips = (read_clip, probe_clip)
    pictures = (read_clip, read_mask)
    # A reader opens what the content says, whatever the name: each runs on its own kind here.
    makers: list[tuple[str, Callable[[Path], object], tuple[Callable[[Path], object], ...]]] = [
        ("clip.mp4", lambda p: write_video(p, FRAMES), (*clips, read_mask)),
        (
            "seg.mkv",
            lambda p: write_video(p, FRAMES, codec="ffv1", pixel_format="bgr0", options={}),
            (read_clip, read_segmentation),
        ),
        ("rgb.png", lambda p: Image.fromarray(FRAMES[0]).save(p), pictures),
        (
            "palette.png",
            lambda p: Image.fromarray(FRAMES[0]).quantize(16).save(p),
            (*pictures, read_segmentation),
        ),
        (
            "depth.png",
            lambda p: cv2.imwrite(str(p), (IDS[0] * 1000).astype(np.uint16)),
            (lambda p: read_depth(p, unit="mm"), read_mask),
        ),
        ("still.jpg", lambda p: Image.fromarray(FRAMES[0]).save(p, quality=90), pictures),
        (
            "moving.gif",
            lambda p: Image.fromarray(FRAMES[0]).save(
                p, save_all=True, append_images=[Image.fromarray(f) for f in FRAMES[1:]]
            ),
            pictures,
        ),
        ("still.webp", lambda p: Image.fromarray(FRAMES[0]).save(p, lossless=True), pictures),
        ("clip.npy", lambda p: np.save(p, FRAMES), clips),
        ("depth.npy", lambda p: np.save(p, IDS.astype(np.float32) + 1), (read_depth,)),
        ("ids.npz", lambda p: np.savez(p, IDS.astype(np.int32)), (read_segmentation,)),
        ("scene.npz", lambda p: np.savez(p, rgb=FRAMES, depth=IDS + 1.0), (open_scene,)),
        (
            "mask.safetensors",
            lambda p: save_file({"mask": (IDS % 2).astype(np.float32)}, p),
            (read_mask,),
        ),
    ]
    texts: list[tuple[str, str, Callable[[Path], object]]] = [
        ("request.yaml", YAML_SPEC, load_requests),
        ("request.json", json.dumps(COSMOS_SPEC, indent=2), load_requests),
        ("requests.jsonl", f"{json.dumps(COSMOS_SPEC)}\n" * 3, load_requests),
        ("labels.json", json.dumps(LABELS), read_labels),
        ("record.json", json.dumps({"format": "x", "version": 1}), read_record),
    ]
    seeds = []
    for name, write, readers in makers:
        path = folder / name
        write(path)
        seeds.append(Seed(name, path.read_bytes(), readers))
    seeds += [Seed(name, text.encode(), (reader,), is_text=True) for name, text, reader in texts]
    return tuple(seeds)
