"""A small robomimic file with Isaac Lab's extra keys: demos 0, 2 and 10, two cameras."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

CAMERAS = ("agentview_image", "table_cam")
LENGTHS = {"demo_10": 4, "demo_2": 5, "demo_0": 6}


def build_robomimic(path: Path, *, upside_down: bool = False) -> Path:
    import h5py

    rng = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        file.attrs["written_by"] = "a test"
        data = file.create_group("data")
        data.attrs["total"] = sum(LENGTHS.values())
        data.attrs["env_args"] = json.dumps({"env_kwargs": {"control_freq": 10}})
        for name, length in LENGTHS.items():
            demo = data.create_group(name)
            demo.attrs["num_samples"] = length
            demo.attrs["model_file"] = "<mujoco/>"
            demo["actions"] = rng.uniform(-1, 1, (length, 7))
            demo["states"] = rng.normal(size=(length, 20)).astype(np.float32)
            demo["dones"] = np.arange(length) == length - 1
            demo["initial_state/articulation/robot"] = rng.normal(size=(1, 9))
            clip = pictures(name, length + 1)
            if upside_down:
                clip = clip[:, ::-1]
            for camera in CAMERAS:
                held = demo.create_dataset(
                    f"obs/{camera}",
                    data=clip[:length],
                    chunks=(1, *clip.shape[1:]),
                    compression="gzip",
                )
                held.attrs["unit"] = "sRGB"
            demo["next_obs/agentview_image"] = clip[1:]
            demo["obs/agentview_depth"] = rng.uniform(0.5, 2, (length, 24, 32, 1)).astype(
                np.float32
            )
            demo["obs/table_cam_normals"] = rng.integers(
                0, 255, (length, 24, 32, 3), dtype=np.uint8
            )
            demo["obs/table_cam_segmentation"] = np.zeros((length, 24, 32, 4), np.uint8)
            demo["obs/eef_pos"] = rng.normal(size=(length, 3))
        file["mask/train"] = np.array([b"demo_0", b"demo_10"])
        file.create_dataset("mask/valid", data=["demo_2"], dtype=h5py.string_dtype())
        file["extra/notes"] = np.arange(3)
    return path


def pictures(name: str, num_frames: int) -> np.ndarray:
    """A clip that differs per demo, is brighter at the top, and moves."""
    level = 40 + 15 * int(name.removeprefix("demo_"))
    clip = np.full((num_frames, 24, 32, 3), level, np.uint8)
    clip[:, :6] = 240
    for index in range(num_frames):
        clip[index, 10:18, 3 * index : 3 * index + 8] = 120
    return clip
