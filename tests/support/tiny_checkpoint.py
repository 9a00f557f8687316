"""A tiny random checkpoint on disk, in the embedded layout: everything but the training."""

from __future__ import annotations

from pathlib import Path

import torch

from cosmos_transfer.autoencoder.causal_video import CausalVideoAutoencoder, CausalVideoConfig
from cosmos_transfer.inputs.prompt import VocabularyTextConfig, VocabularyTextEncoder
from cosmos_transfer.model.checkpoint import CheckpointSettings, save_embedded
from cosmos_transfer.shapes import Size
from tests.support import tiny

CONTROLS = ("edge", "depth", "seg", "vis")
SETTINGS = CheckpointSettings(
    id="tiny-random",
    native_size=Size(64, 96),
    native_frames=9,
    num_inference_steps=2,
    guidance_scale=1.5,
    sampler="euler",
)


def write_tiny_checkpoint(folder: Path) -> Path:
    """Write it; the same weights every time."""
    model = tiny.embedded_model(CONTROLS)
    torch.manual_seed(3)
    return save_embedded(
        folder,
        model.transformer,
        dict(model.branches),
        CausalVideoAutoencoder(CausalVideoConfig(width=8, pixel_width=2)),
        VocabularyTextEncoder(VocabularyTextConfig(words=["snow", "night"], width=tiny.TEXT_WIDTH)),
        SETTINGS,
    )
