"""What every part needs: the pipeline, the clips, the judges, and outputs that are made once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import UInt8

from benchmarks.embedded.attributes import AttributeClassifier, kept_classifier
from benchmarks.held_out import HeldOutClip, held_out_clip
from cosmos_transfer.metrics.predictors import Predictors, load_predictors
from cosmos_transfer.pipeline import TransferPipeline
from cosmos_transfer.training.data import HELD_OUT_SEEDS

ALL_CONTROLS: Mapping[str, float] = {"edge": 0.25, "depth": 0.25, "seg": 0.25, "vis": 0.25}
TRUE, SHUFFLED, WITHOUT = "true render", "shuffled true render", "no controls"

# Six looks for the same scene, every value of every attribute among them; what a look does not
# name stays as it was drawn. The first ones are the prompts of the part ``prompts``.
SIX_LOOKS: Mapping[str, Mapping[str, Mapping[str, str]]] = {
    "driving": {
        "night": {"time_of_day": "night", "weather": "clear"},
        "day": {"time_of_day": "day", "weather": "clear"},
        "snow": {"time_of_day": "day", "weather": "snow"},
        "fog": {"time_of_day": "dusk", "weather": "fog"},
        "rain": {"time_of_day": "night", "weather": "rain"},
        "dusk": {"time_of_day": "dusk", "weather": "clear"},
    },
    "tabletop": {
        "night": {"time_of_day": "night"},
        "day": {"time_of_day": "day"},
        "dusk": {"time_of_day": "dusk", "table": "wood", "wall": "tiled"},
        "marble": {"time_of_day": "day", "table": "marble", "wall": "brick"},
        "cloth": {"time_of_day": "night", "table": "cloth", "wall": "plaster"},
        "metal": {"time_of_day": "dusk", "table": "metal", "wall": "painted"},
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of the bench: what is taken of every clip, and what comes of all of them.

    ``measure`` gets a seed and gives plain values, so that clips can be measured in any order, in
    any process, and kept; None says that the part asks nothing of this clip.
    """

    measure: Callable[[Bench, int], Any]
    summarise: Callable[[Sequence[Any]], dict[str, Any]]
    most: int = len(HELD_OUT_SEEDS)  # on the first so many clips


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a process needs to know to load the bench."""

    checkpoint: str
    judge: str  # the checkpoint whose predictors find depth and masks
    device: str
    steps: int | None
    threads: int | None
    folder: Path  # where the classifier is kept

    def load(self) -> Bench:
        """Load the checkpoint."""
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        pipeline = TransferPipeline.from_pretrained(
            self.checkpoint, device=self.device, show_progress=False
        )
        return Bench(pipeline=pipeline, steps=self.steps, judge=self.judge, folder=self.folder)


@dataclass(kw_only=True, eq=False)
class Bench:
    """The pipeline and the judges. Of one clip, outputs and looks are made once."""

    pipeline: TransferPipeline
    steps: int | None
    judge: str
    folder: Path
    _clip: HeldOutClip | None = None
    _looks: dict[str, Look] = field(default_factory=dict)
    _made: dict[Any, UInt8[np.ndarray, "f h w 3"]] = field(default_factory=dict)

    @cached_property
    def predictors(self) -> Predictors:
        """What finds depth and masks in an output."""
        return load_predictors(self.judge)

    @cached_property
    def classifier(self) -> AttributeClassifier:
        """What reads a prompt's attributes off a clip; trained where it has not been."""
        return kept_classifier(self.folder, self.pipeline.checkpoint.info.native_size)

    def render(self, seed: int) -> HeldOutClip:
        """A held-out clip at the checkpoint's native size and length."""
        info = self.pipeline.checkpoint.info
        return held_out_clip(seed, size=info.native_size, num_frames=info.native_frames)

    def clip(self, seed: int) -> HeldOutClip:
        """The clip that is being measured; what was made of the one before is forgotten."""
        if self._clip is None or self._clip.seed != seed:
            self._clip = self.render(seed)
            self._looks.clear()
            self._made.clear()
        return self._clip

    def looks(self, seed: int) -> dict[str, Look]:
        """The clip under each of the six looks of its family: prompt and true render."""
        clip = self.clip(seed)
        if not self._looks:
            changes = SIX_LOOKS[clip.family]
            found = clip.under_each(list(changes.values()))
            for (name, change), (prompt, render) in zip(changes.items(), found, strict=True):
                attributes = clip.look.attributes() | dict(change)
                self._looks[name] = Look(prompt=prompt, render=render, attributes=attributes)
        return self._looks

    def generate(
        self,
        clip: HeldOutClip,
        weights: Mapping[str, Any],
        prompt: str | None = None,
        variant: int = 0,
    ) -> UInt8[np.ndarray, "f h w 3"]:
        """The frames that a request for this clip comes to; one noise a clip and variant.

        Args:
            clip: Whose controls and simulator's view go in.
            weights: By control, a number or a mapping of fields (see ``HeldOutClip.controls``).
            prompt: The clip's own unless given.
            variant: Another seed for another output of the same request.
        """
        prompt = prompt or clip.prompt
        is_plain = all(isinstance(weight, float) for weight in weights.values())
        key = (clip.seed, prompt, tuple(sorted(weights.items())), variant) if is_plain else None
        if key in self._made:
            return self._made[key]
        frames = self.pipeline(
            video=clip.simulator,
            prompt=prompt,
            controls=clip.controls(weights),
            num_inference_steps=self.steps,
            episode=clip.seed,
            variant=variant,
        ).frames
        if key is not None:
            self._made[key] = frames
        return frames


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Look:
    """One look of a scene."""

    prompt: str
    render: UInt8[np.ndarray, "f h w 3"]
    attributes: Mapping[str, str]
