"""The embedded checkpoint's networks, small and random, on disk and as a pipeline."""

from __future__ import annotations

from pathlib import Path

from cosmos_transfer.model.checkpoint import CheckpointSettings, save_embedded
from cosmos_transfer.pipeline import TransferPipeline
from cosmos_transfer.shapes import Size
from tests.support.embedded import tiny_networks

SETTINGS = CheckpointSettings(
    id="tiny",
    native_size=Size(16, 24),
    native_frames=9,
    timestep_scale=1.0,
    num_inference_steps=2,
    guidance_scale=1.5,
    sampler="euler",
)


def save_tiny(folder: Path) -> Path:
    """Write the checkpoint; the same weights every time."""
    networks = tiny_networks(seed=5)
    return save_embedded(
        folder,
        networks.model.transformer,
        dict(networks.model.branches.items()),
        networks.autoencoder,
        networks.text_encoder,
        SETTINGS,
    )


def load_tiny(folder: Path) -> TransferPipeline:
    """Load it on the CPU, without a progress bar."""
    return TransferPipeline.from_pretrained(folder, device="cpu", show_progress=False)
