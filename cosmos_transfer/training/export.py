"""From a training run's state to a checkpoint folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from cosmos_transfer.model.checkpoint import (
    EMBEDDED,
    EMBEDDED_FAST,
    CheckpointSettings,
    load_checkpoint,
    save_embedded,
)
from cosmos_transfer.shapes import Size
from cosmos_transfer.training.autoencoder import DECODER_FILE, put_decoder
from cosmos_transfer.training.distill import DistillationConfig
from cosmos_transfer.training.networks import EmbeddedNetworks, run_networks

SETTINGS = CheckpointSettings(
    id=EMBEDDED,
    native_size=Size(96, 160),
    native_frames=17,
    timestep_scale=1.0,
    num_inference_steps=12,
    guidance_scale=1.5,
    shift=1.0,
    sampler="euler",
)
"""What the embedded checkpoint says of itself."""
FAST_SETTINGS = replace(
    SETTINGS,
    id=EMBEDDED_FAST,
    num_inference_steps=DistillationConfig().num_steps,
    guidance_scale=1.0,
    shift=DistillationConfig().shift,
)
"""What the distilled one does; its autoencoder and text encoder are the embedded one's."""


def export_run(
    run_dir: Path,
    folder: Path,
    *,
    decoder_path: Path | None = None,
    settings: CheckpointSettings = SETTINGS,
    networks: EmbeddedNetworks | None = None,
    overwrite: bool = False,
) -> Path:
    """Write the averaged weights of a run as a checkpoint.

    A student whose autoencoder and text encoder are those of the packaged checkpoint does not
    write them again.

    Args:
        run_dir: Holds the run's ``state.pt``.
        folder: The checkpoint to write.
        decoder_path: Autoencoder weights trained apart; those in ``run_dir`` if there are any.
        settings: The checkpoint's own settings.
        networks: What the run trained, if not networks of the shipped size.
        overwrite: Replace a checkpoint that is there.

    Raises:
        CheckpointError: No state, or a decoder of another encoder.
    """
    networks = run_networks(run_dir, averaged=True, networks=networks)
    if decoder_path is not None or (run_dir / DECODER_FILE).is_file():
        put_decoder(networks.autoencoder, decoder_path or run_dir / DECODER_FILE)
    return save_embedded(
        folder,
        networks.model.transformer,
        dict(networks.model.branches.items()),
        networks.autoencoder,
        networks.text_encoder,
        settings,
        lender=EMBEDDED if settings.id != EMBEDDED and _is_lent(networks) else None,
        overwrite=overwrite,
    )


def _is_lent(networks: EmbeddedNetworks) -> bool:
    packaged = load_checkpoint(EMBEDDED)
    return all(
        _are_equal(ours, theirs)
        for ours, theirs in (
            (networks.autoencoder, packaged.autoencoder),
            (networks.text_encoder, packaged.text_encoder),
        )
    )


def _are_equal(ours: nn.Module, theirs: Any) -> bool:
    if type(ours) is not type(theirs):
        return False
    weights, others = ours.state_dict(), theirs.state_dict()
    return weights.keys() == others.keys() and all(
        value.shape == others[name].shape and torch.equal(value.half(), others[name].half())
        for name, value in weights.items()
    )
