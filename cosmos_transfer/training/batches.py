"""Shards in memory, and the batches a training step takes from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from cosmos_transfer.inputs.depth import depth_picture
from cosmos_transfer.training.data import ClipShard, class_palette, read_shard, shard_paths


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Clips in [-1, 1] with their prompts and control clips."""

    video: Float[Tensor, "b 3 f h w"]
    prompts: list[str]
    controls: dict[str, Float[Tensor, "b 3 f h w"]]


def to_video(frames: UInt8[np.ndarray, "b f h w 3"]) -> Float[Tensor, "b 3 f h w"]:
    """Pictures on disk to video in memory."""
    return torch.from_numpy(np.moveaxis(frames, -1, 1).astype(np.float32) / 127.5 - 1.0)


def control_frames(
    shard: ClipShard, index: int, name: str, palette: UInt8[np.ndarray, "c 3"]
) -> UInt8[np.ndarray, "f h w 3"]:
    """One control clip of one scene, as the branches see it at run time."""
    if name == "vis":
        return shard.vis[index]
    if name == "seg":
        return palette[shard.class_ids[index]]
    if name == "edge":
        return np.repeat(shard.edge[index][..., None], 3, axis=-1)
    if name == "depth":
        return depth_picture(shard.depth[index].astype(np.float32))
    raise KeyError(name)


CROP = 0.6
"""Height and width of a crop, in shares of the picture's."""


class ClipPool:
    """All shards of a folder; :meth:`refresh` takes in those rendered since."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.shards: list[ClipShard] = []
        self._known: set[Path] = set()
        self._palette = class_palette()
        self._depth: list[UInt8[np.ndarray, "s f h w"]] = []

    @property
    def num_scenes(self) -> int:
        """How many scenes there are to draw from."""
        return sum(len(shard) for shard in self.shards)

    def crop_size(self, stride: int) -> tuple[int, int]:
        """Height and width of a crop: an even number of latent cells of ``stride`` pixels."""
        height, width = (
            max(1, round(CROP * size / (2 * stride))) * 2 * stride
            for size in self.shards[0].vis.shape[2:4]
        )
        return height, width

    def refresh(self, at_most: int | None = None) -> None:
        """Read shards that are new; ``at_most`` bounds how many at a time."""
        new = [path for path in shard_paths(self.folder) if path not in self._known]
        for path in new[:at_most]:
            shard = read_shard(path)
            self._known.add(path)
            self.shards.append(shard)
            # Normalising depth takes longer than a training step can wait for: once, here.
            pictures = [control_frames(shard, i, "depth", self._palette) for i in range(len(shard))]
            self._depth.append(np.stack(pictures)[..., 0])

    def draw(
        self,
        batch_size: int,
        controls: tuple[str, ...],
        rng: np.random.Generator,
        *,
        num_frames: int,
        crop: tuple[int, int] | None = None,
    ) -> Batch:
        """Draw clips at random, each mirrored half of the time.

        Args:
            batch_size: Clips to draw.
            controls: The controls to prepare.
            rng: Decides scenes, looks and mirroring.
            num_frames: Frames to keep of every clip, from a start drawn for it.
            crop: Height and width of the part to keep, at a place drawn for every clip; the whole
                picture by default.
        """
        video, prompts = [], []
        pictures: dict[str, list[UInt8[np.ndarray, "f h w 3"]]] = {name: [] for name in controls}
        for _ in range(batch_size):
            place = int(rng.integers(len(self.shards)))
            shard = self.shards[place]
            scene = int(rng.integers(len(shard)))
            look = int(rng.integers(shard.looks.shape[1]))
            step = -1 if rng.random() < 0.5 else 1
            start = int(rng.integers(shard.vis.shape[1] - num_frames + 1))
            rows, columns = _draw_window(shard.vis.shape[2:4], crop, rng)
            part = (slice(start, start + num_frames), rows, columns)
            video.append(shard.looks[scene, look][part][:, :, ::step])
            prompts.append(shard.prompts[scene][look])
            for name in controls:
                if name == "depth":
                    picture = np.repeat(self._depth[place][scene][..., None], 3, axis=-1)
                else:
                    picture = control_frames(shard, scene, name, self._palette)
                pictures[name].append(picture[part][:, :, ::step])
        return Batch(
            video=to_video(np.stack(video)),
            prompts=prompts,
            controls={name: to_video(np.stack(frames)) for name, frames in pictures.items()},
        )


def _draw_window(
    size: Sequence[int], crop: tuple[int, int] | None, rng: np.random.Generator
) -> tuple[slice, slice]:
    if crop is None:
        return slice(None), slice(None)
    starts = [int(rng.integers(whole - part + 1)) for whole, part in zip(size, crop, strict=True)]
    rows, columns = (slice(start, start + part) for start, part in zip(starts, crop, strict=True))
    return rows, columns
