"""Rendered clips on disk: one ``.npz`` shard per few hundred scenes.

A shard keeps what a training step needs and nothing it would have to compute twice: the looks and
their prompts, and the control clips (edge, vis, depth, class ids) that the same extractors make at
run time. Shards are written under a temporary name and renamed, so that a training run may read a
folder while more of it is being rendered.

Seeds below :data:`FIRST_TRAINING_SEED` are never trained on; evaluation takes the first of them.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float16, UInt8

from cosmos_transfer.controls.edge import extract_edge
from cosmos_transfer.controls.vis import extract_vis
from cosmos_transfer.errors import MediaError, explain
from cosmos_transfer.inputs.segmentation import class_color
from cosmos_transfer.training.scenes import CLASS_NAMES, SceneClip, render_clip

FIRST_TRAINING_SEED = 1_000
HELD_OUT_SEEDS = tuple(range(48))

CONTROL_NAMES = ("edge", "depth", "seg", "vis")
"""The order of the branches of the embedded checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClipShard:
    """Clips of one shard; ``s`` scenes with ``l`` looks each."""

    looks: UInt8[np.ndarray, "s l f h w 3"]
    prompts: Sequence[Sequence[str]]
    edge: UInt8[np.ndarray, "s f h w"]
    vis: UInt8[np.ndarray, "s f h w 3"]
    depth: Float16[np.ndarray, "s f h w"]  # metres, inf where there is no surface
    class_ids: UInt8[np.ndarray, "s f h w"]

    def __len__(self) -> int:
        return len(self.looks)


def render_shard(
    seeds: Sequence[int], *, height: int, width: int, num_frames: int, num_looks: int
) -> ClipShard:
    """Render scenes and extract their controls from the simulator's view."""
    clips = [
        render_clip(seed, height=height, width=width, num_frames=num_frames, num_looks=num_looks)
        for seed in seeds
    ]
    return shard_clips(clips)


def shard_clips(clips: Sequence[SceneClip]) -> ClipShard:
    """Put rendered scenes of one size and number of looks into one shard."""
    return ClipShard(
        looks=np.stack([np.stack(clip.real) for clip in clips]),
        prompts=[list(clip.prompts) for clip in clips],
        edge=np.stack([extract_edge(clip.simulator)[..., 0] for clip in clips]),
        vis=np.stack([extract_vis(clip.simulator) for clip in clips]),
        depth=np.stack([clip.depth for clip in clips]).astype(np.float16),
        class_ids=np.stack([clip.class_ids for clip in clips]).astype(np.uint8),
    )


def write_shard(path: Path, shard: ClipShard) -> None:
    """Write a shard to ``path`` (``.npz``); it appears whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.stem}.partial.npz")
    np.savez(
        partial,
        looks=shard.looks,
        prompts=np.array(json.dumps(shard.prompts)),
        edge=np.packbits(shard.edge > 0, axis=-1),
        vis=shard.vis,
        depth=shard.depth,
        class_ids=shard.class_ids,
    )
    partial.replace(path)


def read_shard(path: Path) -> ClipShard:
    """Read a shard that :func:`write_shard` wrote. What is large stays on disk, mapped: a folder
    may hold more clips than there is memory."""
    try:
        vis = _map_member(path, "vis")
        with np.load(path, allow_pickle=False) as data:
            edge = np.unpackbits(data["edge"], axis=-1, count=vis.shape[3]) * np.uint8(255)
            prompts = json.loads(str(data["prompts"]))
        return ClipShard(
            looks=_map_member(path, "looks"),
            prompts=prompts,
            edge=edge,
            vis=vis,
            depth=_map_member(path, "depth"),
            class_ids=_map_member(path, "class_ids"),
        )
    except (OSError, EOFError, KeyError, IndexError, ValueError, zipfile.BadZipFile) as error:
        raise MediaError(
            explain(
                f"training shard {path}",
                expected="an .npz written by `cosmos-transfer train data`",
                got=" ".join(f"{type(error).__name__}: {error}".split()),
                do="Delete it and render it again.",
            )
        ) from error


def _map_member(path: Path, name: str) -> np.ndarray:
    """One array of an uncompressed ``.npz``, where it lies in the file.

    Raises:
        ValueError: It is compressed, holds objects, or ends before its last number.
    """
    with zipfile.ZipFile(path) as archive, path.open("rb") as file:
        member = archive.getinfo(f"{name}.npy")
        if member.compress_type != zipfile.ZIP_STORED:
            raise ValueError(f"{name} is compressed")
        # Before the member stand 30 bytes, two lengths at the end of them, its name, extra fields.
        file.seek(member.header_offset + 26)
        lengths = file.read(4)
        file.seek(sum(np.frombuffer(lengths, dtype="<u2").tolist()), 1)
        version = np.lib.format.read_magic(file)
        read_header = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[version]
        shape, is_fortran, dtype = read_header(file)
        if dtype.hasobject or is_fortran:
            raise ValueError(f"{name} is no plain array")
        return np.memmap(path, dtype=dtype, mode="r", offset=file.tell(), shape=shape)


def shard_paths(folder: Path) -> list[Path]:
    """The finished shards of a folder, in order."""
    return sorted(folder.glob("shard-*.npz"))


def render_shards(
    folder: Path,
    *,
    num_scenes: int,
    first_scene: int = 0,
    scenes_per_shard: int = 25,
    height: int,
    width: int,
    num_frames: int,
    num_looks: int = 2,
) -> Iterator[Path]:
    """Render scenes into shards that are not there yet; yields each path when it is complete.

    A shard's name holds its first seed, so a folder can be continued, and two processes given
    different ranges make the same shards.
    """
    end = first_scene + num_scenes
    for start in range(first_scene, end, scenes_per_shard):
        first = FIRST_TRAINING_SEED + start
        path = folder / f"shard-{first:07d}.npz"
        if not path.exists():
            count = min(scenes_per_shard, end - start)
            shard = render_shard(
                range(first, first + count),
                height=height,
                width=width,
                num_frames=num_frames,
                num_looks=num_looks,
            )
            write_shard(path, shard)
        yield path


def class_palette() -> UInt8[np.ndarray, "c 3"]:
    """The colour of every class id of the procedural scenes, as the seg control shows it."""
    palette = np.zeros((max(CLASS_NAMES) + 1, 3), dtype=np.uint8)
    for class_id, name in CLASS_NAMES.items():
        palette[class_id] = class_color(name)
    return palette
