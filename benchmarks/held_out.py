"""The held-out clips that the embedded model is measured on, and the requests made of them.

A clip is a scene that was never trained on: its simulator's view goes in, with its depth, its class
ids and the prompt of its own look; its **true render** is the same geometry under that look.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int32, UInt8

from cosmos_transfer.controls.edge import extract_edge
from cosmos_transfer.inputs.segmentation import SegmentationClip
from cosmos_transfer.inputs.video import VideoClip
from cosmos_transfer.metrics.evaluate import GivenControls
from cosmos_transfer.model.checkpoint import CheckpointInfo
from cosmos_transfer.shapes import Size
from cosmos_transfer.training.data import HELD_OUT_SEEDS
from cosmos_transfer.training.scenes import (
    CLASS_NAMES,
    Look,
    SceneClip,
    describe_look,
    render_clip,
)

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
    motion: Float[np.ndarray, "f-1 h w 2"]  # pixels (x, y) from each frame to the next

    @property
    def size(self) -> Size:
        """Height and width in pixels."""
        return Size(*self.simulator.shape[1:3])

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

    def where(self, classes: Sequence[str]) -> Bool[np.ndarray, "f h w"]:
        """The pixels of some classes."""
        return np.isin(self.class_ids, [i for i, name in CLASS_NAMES.items() if name in classes])

    def ground(self) -> Bool[np.ndarray, "f h w"]:
        """Where the ground is."""
        return self.where(GROUND_CLASSES)

    def under(self, **attributes: str) -> tuple[str, UInt8[np.ndarray, "f h w 3"]]:
        """The prompt and the true render of the same scene with some of its look changed."""
        return self.under_each([attributes])[0]

    def under_each(
        self, changes: Sequence[Mapping[str, str]]
    ) -> list[tuple[str, UInt8[np.ndarray, "f h w 3"]]]:
        """Prompt and true render of every changed look."""
        looks = [replace(self.look, **each) for each in changes]  # type: ignore[arg-type]
        rendered = _render(self.seed, self.size, len(self.simulator), looks=looks)
        # One stream for every look of a clip: prompts differ in the words of what has changed.
        prompts = [describe_look(look, np.random.default_rng(self.seed)) for look in looks]
        return list(zip(prompts, rendered.real, strict=True))


def held_out_clip(seed: int, *, size: Size, num_frames: int) -> HeldOutClip:
    """Render one held-out scene."""
    clip = _render(seed, size, num_frames, num_looks=1)
    return HeldOutClip(
        seed=seed,
        family=clip.family,
        look=clip.looks[0],
        prompt=clip.prompts[0],
        simulator=clip.simulator,
        true_render=clip.real[0],
        depth=clip.depth.astype(np.float32),
        class_ids=clip.class_ids.astype(np.int32),
        motion=clip.motion,
    )


def native_clips(info: CheckpointInfo, num_clips: int) -> list[HeldOutClip]:
    """The first held-out clips at a checkpoint's native size and length."""
    return [
        held_out_clip(seed, size=info.native_size, num_frames=info.native_frames)
        for seed in HELD_OUT_SEEDS[:num_clips]
    ]


def partner(seed: int) -> int:
    """The next held-out seed of the same family: right in kind, wrong in place."""
    place = HELD_OUT_SEEDS.index(seed)
    following = (*HELD_OUT_SEEDS[place + 1 :], *HELD_OUT_SEEDS[:place])
    return next(other for other in following if _family(other) == _family(seed))


def as_clip(frames: UInt8[np.ndarray, "f h w 3"]) -> VideoClip:
    """Frames with times, for estimators."""
    times = tuple(Fraction(index) / RATE for index in range(len(frames)))
    return VideoClip(frames=frames, times=times, rate=RATE)


def _render(seed: int, size: Size, num_frames: int, **settings: Any) -> SceneClip:
    return render_clip(
        seed, height=size.height, width=size.width, num_frames=num_frames, **settings
    )


@cache
def _family(seed: int) -> str:
    return _render(seed, Size(8, 8), 1, looks=()).family
