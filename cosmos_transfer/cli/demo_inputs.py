"""The demo's inputs: one procedural clip per family, as the files a simulator leaves behind."""

from __future__ import annotations

import json
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import yaml
from PIL import Image

from cosmos_transfer.outputs.writer import write_clip
from cosmos_transfer.shapes import Size
from cosmos_transfer.training.scenes import SceneClip, render_clip

RATE = Fraction(8)


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoScene:
    """A clip to render, what its edges are asked to hold, and the looks to ask for."""

    family: str
    seed: int  # below training.data.FIRST_TRAINING_SEED: never trained on
    edge_classes: tuple[str, ...]
    prompts: tuple[str, ...]


SCENES = (
    DemoScene(
        family="tabletop",
        seed=103,
        edge_classes=("robot", "gripper", "box", "cylinder", "ball"),
        prompts=(
            "a robot arm on a wooden table, brick wall, daylight",
            "a robot arm on a marble table, tiled wall, at night",
            "a robot arm on a metal table, painted wall, at dusk",
        ),
    ),
    DemoScene(
        family="driving",
        seed=211,
        edge_classes=("car", "lane marking", "pole", "building"),
        prompts=(
            "a city street, daytime, snow",
            "a city street, at night, rain",
            "a city street, at dusk, clear weather",
        ),
    ),
)


def write_demo_scene(scene: DemoScene, folder: Path, *, size: Size, num_frames: int) -> Path:
    """Render a scene, write its files, and write the spec that asks for its three looks.

    Returns:
        The path of the spec: run it again with ``cosmos-transfer generate spec=...``.
    """
    clip = render_clip(
        scene.seed,
        family=scene.family,
        height=size.height,
        width=size.width,
        num_frames=num_frames,
        num_looks=1,
    )
    folder.mkdir(parents=True, exist_ok=True)
    write_clip(folder / "video.mp4", clip.simulator, rate=RATE)
    np.save(folder / "depth.npy", clip.depth.astype(np.float32))
    _write_ids(folder / "seg", clip)
    np.savez_compressed(folder / "mask.npz", mask=_mask(clip, scene.edge_classes))
    controls = {
        "edge": {"weight": 0.25, "mask": "mask.npz"},
        "depth": {"path": "depth.npy", "unit": "m", "weight": 0.25},
        "seg": {"path": "seg", "labels": "labels.json", "weight": 0.25},
        "vis": {"weight": 0.25},
    }
    requests = [
        {
            "name": f"{scene.family}-{number}",
            "video": "video.mp4",
            "prompt": prompt,
            "controls": controls,
            "seed": 7,
        }
        for number, prompt in enumerate(scene.prompts, start=1)
    ]
    spec = folder / "spec.yaml"
    text = yaml.safe_dump(requests, sort_keys=False, allow_unicode=True, width=96)
    spec.write_text(text, encoding="utf-8")
    return spec


def _write_ids(folder: Path, clip: SceneClip) -> None:
    """One 8-bit picture of ids per frame, and the table of names beside the folder."""
    folder.mkdir(exist_ok=True)
    for index, ids in enumerate(clip.class_ids):
        Image.fromarray(ids.astype(np.uint8)).save(folder / f"{index:04d}.png")
    present = {int(i) for i in np.unique(clip.class_ids)}
    table = {str(i): {"class": name} for i, name in clip.class_names.items() if i in present}
    (folder.parent / "labels.json").write_text(json.dumps(table, indent=2), encoding="utf-8")


def _mask(clip: SceneClip, classes: tuple[str, ...]) -> np.ndarray:
    """1 where one of the classes is, and one half elsewhere: a soft mask, f h w."""
    wanted = [number for number, name in clip.class_names.items() if name in classes]
    return np.where(np.isin(clip.class_ids, wanted), 1.0, 0.5).astype(np.float32)
