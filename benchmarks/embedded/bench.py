"""What every part needs: the pipeline, the clips, and outputs that are made once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import UInt8
from tqdm import tqdm

from benchmarks.held_out import HeldOutClip
from cosmos_transfer.pipeline import TransferPipeline

ALL_CONTROLS: Mapping[str, float] = {"edge": 0.25, "depth": 0.25, "seg": 0.25, "vis": 0.25}
TRUE, SHUFFLED, WITHOUT = "true render", "shuffled true render", "no controls"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """The pipeline and the clips. Outputs that several parts ask for are made once."""

    pipeline: TransferPipeline
    clips: Sequence[HeldOutClip]
    steps: int | None
    judge: str  # the checkpoint whose predictors find depth, masks and attributes
    made: dict[Any, UInt8[np.ndarray, "f h w 3"]] = field(default_factory=dict)

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
        if key in self.made:
            return self.made[key]
        frames = self.pipeline(
            video=clip.simulator,
            prompt=prompt,
            controls=clip.controls(weights),
            num_inference_steps=self.steps,
            episode=clip.seed,
            variant=variant,
        ).frames
        if key is not None:
            self.made[key] = frames
        return frames

    def progress(self, name: str, most: int | None = None) -> Any:
        """The clips of a part, the first ``most`` of them, behind a progress bar."""
        return tqdm(self.clips[:most], desc=name, unit="clip")
