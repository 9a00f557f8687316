"""A torch dataset whose clips come in other looks, made when first asked for and kept on disk."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import UInt8
from torch.utils.data import Dataset

from cosmos_transfer.errors import ConfigError, MediaError, ShapeError, explain
from cosmos_transfer.jobs.augment import Restyle, augment_episode, refuse_geometry
from cosmos_transfer.jobs.looks import read_look
from cosmos_transfer.jobs.manifest import content_hash
from cosmos_transfer.pipeline import TransferPipeline


class AugmentedEpisodes(Dataset[dict[str, Any]]):
    """Another dataset's samples, each followed by its looks.

    Sample ``i`` is sample ``i // n`` of ``base`` under look ``i % n`` of ``n``; with
    ``keep_source`` the first of the ``n`` is the sample as it is. Everything in a sample but its
    clips stays as it is; clips keep their size, length, layout and type. A clip that was made is
    kept in ``cache`` under a hash of the clip and of all that decides its look, so that a second
    epoch, another process or another run reads it.

    Args:
        base: Has ``len`` and gives mappings.
        keys: Which entries are clips: uint8, (f, h, w, 3) or (f, 3, h, w), an array or a tensor.
        looks: Prompts or presets; see :func:`cosmos_transfer.jobs.looks.read_look`.
        cache: A folder; made where there is none.
        prompt: What is seen; stands before every look.
        controls: As for :func:`cosmos_transfer.augment_dataset`; edges at 1 unless given.
        keep_source: Give the sample itself too.
        fps: Frames per second.
        seed: Noise follows from (seed, place in ``base``, look).
        settings: Of :data:`cosmos_transfer.jobs.augment.SETTINGS`.
        checkpoint: Loaded when the first clip is to be made, once a process.
        restyle: A pipeline that is loaded already.

    Raises:
        ConfigError: No looks, or a setting that moves pixels or frames.
    """

    def __init__(
        self,
        base: Any,
        *,
        keys: Sequence[str],
        looks: Sequence[str],
        cache: str | Path,
        prompt: str = "",
        controls: Mapping[str, Any] | None = None,
        keep_source: bool = True,
        fps: int | None = None,
        seed: int = 0,
        settings: Mapping[str, Any] | None = None,
        checkpoint: str = "embedded",
        restyle: Restyle | None = None,
    ) -> None:
        self.base = base
        self.keys = tuple(keys)
        self.prompts = tuple(read_look(look, prompt) for look in looks)
        self.cache = Path(cache)
        self.controls = dict(controls or {"edge": 1.0})
        self.keep_source = keep_source
        self.fps = fps
        self.seed = seed
        self.settings = dict(settings or {})
        self.checkpoint = checkpoint
        self._restyle = restyle
        refuse_geometry(self.settings)
        if not self.prompts or not self.keys:
            raise ConfigError(
                explain(
                    "AugmentedEpisodes",
                    expected="one look or more, and the names of one clip or more",
                    got=f"{len(self.prompts)} and {len(self.keys)}",
                    do="Name them.",
                )
            )

    def __len__(self) -> int:
        return len(self.base) * self._per_sample

    def __getitem__(self, index: int) -> dict[str, Any]:
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        place, number = divmod(index % len(self), self._per_sample)
        sample = dict(self.base[place])
        variant = number - int(self.keep_source)
        if variant >= 0:
            for key in self.keys:
                sample[key] = self._looked_at(sample[key], place, variant)
        return sample

    @property
    def _per_sample(self) -> int:
        return len(self.prompts) + int(self.keep_source)

    def _looked_at(self, held: Any, place: int, variant: int) -> Any:
        is_tensor = isinstance(held, torch.Tensor)
        pixels = held.cpu().numpy() if is_tensor else np.asarray(held)
        is_planar = pixels.ndim == 4 and pixels.shape[1] == 3 and pixels.shape[-1] != 3
        frames = pixels.transpose(0, 2, 3, 1) if is_planar else pixels
        if frames.ndim != 4 or frames.shape[-1] != 3 or frames.dtype != np.uint8:
            raise ShapeError(
                explain(
                    f"sample {place}",
                    expected="clips as uint8 (f, h, w, 3) or (f, 3, h, w)",
                    got=f"{pixels.dtype} {pixels.shape}",
                    do="Convert to floats after the augmentation.",
                )
            )
        made = self._cached(np.ascontiguousarray(frames), place, variant)
        if is_planar:
            made = np.ascontiguousarray(made.transpose(0, 3, 1, 2))
        return torch.from_numpy(made) if is_tensor else made

    def _cached(
        self, frames: UInt8[np.ndarray, "f h w 3"], place: int, variant: int
    ) -> UInt8[np.ndarray, "f h w 3"]:
        asked = {
            "pixels": hashlib.sha256(frames.tobytes()).hexdigest(),
            "shape": list(frames.shape),
            "prompt": self.prompts[variant],
            "controls": self.controls,
            "settings": self.settings,
            "fps": self.fps,
            "noise": [self.seed, place, variant],
            "checkpoint": self.checkpoint,
        }
        name = content_hash(asked)
        path = self.cache / name[:2] / f"{name}.npz"
        if path.is_file():
            with np.load(path, allow_pickle=False) as kept:
                found: np.ndarray = kept["frames"]
            return found
        if self._restyle is None:
            self._restyle = TransferPipeline.from_pretrained(self.checkpoint, show_progress=False)
        made = augment_episode(
            frames,
            self.controls,
            prompt=self.prompts[variant],
            fps=self.fps,
            restyle=self._restyle,
            seed=self.seed,
            episode=place,
            variant=variant,
            settings=self.settings,
        ).frames
        unfinished = path.with_name(f".{name}.{os.getpid()}.npz")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            np.savez_compressed(unfinished, frames=made)
            unfinished.replace(path)
        except OSError as error:
            unfinished.unlink(missing_ok=True)
            raise MediaError(
                explain(
                    str(self.cache),
                    expected="a folder that can be written",
                    got=str(error),
                    do="Make room, or choose another cache.",
                )
            ) from error
        return made
