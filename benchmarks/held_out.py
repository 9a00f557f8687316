"""The held-out clips that the embedded model is measured on, and the requests made of them.

A clip is a scene that was never trained on: its simulator's view goes in, with its depth, its class
ids and the prompt of its own look; its **true render** is the same geometry under that look.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from jaxtyping import Float, Int32, UInt8

from cosmos_transfer.controls.edge import extract_edge
from cosmos_transfer.inputs.segmentation import SegmentationClip
from cosmos_transfer.inputs.video import VideoClip
from cosmos_transfer.metrics.evaluate import GivenControls
from cosmos_transfer.training.data import HELD_OUT_SEEDS
from cosmos_transfer.training.scenes import CLASS_NAMES, Look, describe_look, render_clip

HEIGHT, WIDTH, NUM_FRAMES = 64, 96, 9
GROUND_CLASSES = ("floor", "road", "sidewalk", "terrain")
RATE = Fraction(8)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HeldOutClip:
    """One scene with all that a request needs, and the truth."""

    seed: int
    family: str
    look: Look
    prompt: str
    simulator: UInt8[np.ndarray, "f h w 3"]
    true_render: UInt8[np.ndarray, "f h w 3"]
    depth: Float[np.ndarray, "f h w"]  # metres, infinite in the sky
    class_ids: Int32[np.ndarray, "f h w"]

    @property
    def given(self) -> GivenControls:
        """All that an output is held against, whichever controls took part in making it."""
        return GivenControls(
            edge=extract_edge(self.simulator),
            reference=self.simulator,
            depth=self.depth,
            segmentation=SegmentationClip(ids=self.class_ids, names=dict(CLASS_NAMES)),
        )

    def controls(self, weights: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """Controls as the pipeline takes them; edge and vis are extracted from the clip.

        Args:
            weights: By control, a number, or a mapping of further fields such as ``mask``.
        """
        raw: dict[str, dict[str, Any]] = {
            "edge": {},
            "vis": {},
            "depth": {"clip": self.depth, "unit": "m"},
            "seg": {"clip": self.class_ids, "labels": dict(CLASS_NAMES)},
        }
        return {
            name: raw[name] | (dict(value) if isinstance(value, Mapping) else {"weight": value})
            for name, value in weights.items()
        }

    def ground(self) -> np.ndarray:
        """Where the ground is: booleans f h w."""
        ids = [number for number, name in CLASS_NAMES.items() if name in GROUND_CLASSES]
        return np.isin(self.class_ids, ids)

    def under(self, **attributes: str) -> tuple[str, UInt8[np.ndarray, "f h w 3"]]:
        """The prompt and the true render of the same scene with some of its look changed."""
        look = replace(self.look, **attributes)  # type: ignore[arg-type]
        # One stream for every look of a clip: prompts differ in the words of what has changed.
        prompt = describe_look(look, np.random.default_rng(self.seed))
        return prompt, _render(self.seed, looks=(look,)).real[0]


def held_out_clips(num_clips: int, seeds: Sequence[int] = HELD_OUT_SEEDS) -> Iterator[HeldOutClip]:
    """Render the first ``num_clips`` held-out scenes."""
    for seed in seeds[:num_clips]:
        clip = _render(seed, num_looks=1)
        yield HeldOutClip(
            seed=seed,
            family=clip.family,
            look=clip.looks[0],
            prompt=clip.prompts[0],
            simulator=clip.simulator,
            true_render=clip.real[0],
            depth=clip.depth.astype(np.float32),
            class_ids=clip.class_ids.astype(np.int32),
        )


def shuffled(clips: Sequence[HeldOutClip]) -> list[HeldOutClip]:
    """For every clip the next one of the same family: right in kind, wrong in place.

    The next one at all, where a few clips hold only one of a family.

    Raises:
        ValueError: A single clip has no other.
    """
    if len(clips) < 2:
        raise ValueError(f"expected two clips or more, got {len(clips)}; use more clips")
    others = []
    for index, clip in enumerate(clips):
        following = [*clips[index + 1 :], *clips[:index]]
        kin = [each for each in following if each.family == clip.family]
        others.append((kin or following)[0])
    return others


def as_clip(frames: UInt8[np.ndarray, "f h w 3"]) -> VideoClip:
    """Frames with times, for estimators."""
    times = tuple(Fraction(index) / RATE for index in range(len(frames)))
    return VideoClip(frames=frames, times=times, rate=RATE)


def _render(seed: int, **settings: Any) -> Any:
    return render_clip(seed, height=HEIGHT, width=WIDTH, num_frames=NUM_FRAMES, **settings)
