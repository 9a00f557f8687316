"""A tiny random checkpoint on disk, in the embedded layout: everything but the training."""

from __future__ import annotations

from pathlib import Path

import torch

from cosmos_transfer.autoencoder.causal_video import CausalVideoAutoencoder, CausalVideoConfig
from cosmos_transfer.model.checkpoint import CheckpointSettings, save_embedded
from cosmos_transfer.model.diffusers_compat import CosmosControlNetModel
from cosmos_transfer.shapes import Size
from tests.support import tiny
from tests.support.tiny_words import tiny_text_encoder

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
    torch.manual_seed(3)
    autoencoder = CausalVideoAutoencoder(CausalVideoConfig(width=8, pixel_width=2))
    return save_embedded(
        folder,
        tiny.embedded_transformer(),
        {
            name: _branch(seed=1 + index, control_channels=autoencoder.control_channels)
            for index, name in enumerate(CONTROLS)
        },
        autoencoder,
        tiny_text_encoder(width=tiny.TEXT_WIDTH),
        SETTINGS,
    )


def _branch(*, seed: int, control_channels: int) -> CosmosControlNetModel:
    """A branch that reads controls uncompressed, with random outputs: every control has a say."""
    torch.manual_seed(seed)
    return CosmosControlNetModel(
        n_controlnet_blocks=2,
        in_channels=control_channels + 2,
        latent_channels=tiny.LATENT_CHANNELS + 2,
        model_channels=tiny.HEADS * tiny.HEAD_WIDTH,
        num_attention_heads=tiny.HEADS,
        attention_head_dim=tiny.HEAD_WIDTH,
        text_embed_dim=tiny.TEXT_WIDTH,
        adaln_lora_dim=4,
        max_size=tiny.MAX_SIZE,
        rope_scale=(1.0, 1.0, 1.0),
    ).eval()
