"""From a training run's state to a checkpoint folder."""

from __future__ import annotations

from pathlib import Path

import torch

from cosmos_transfer.errors import CheckpointError, explain
from cosmos_transfer.model.checkpoint import CheckpointSettings, save_embedded
from cosmos_transfer.shapes import Size
from cosmos_transfer.training.networks import new_networks

SETTINGS = CheckpointSettings(
    id="embedded",
    native_size=Size(64, 96),
    native_frames=9,
    timestep_scale=1.0,
    num_inference_steps=12,
    guidance_scale=1.5,
    shift=1.0,
    sampler="euler",
)
"""What the embedded checkpoint says of itself."""


def export_run(
    run_dir: Path,
    folder: Path,
    *,
    decoder_path: Path | None = None,
    settings: CheckpointSettings = SETTINGS,
    overwrite: bool = False,
) -> Path:
    """Write the averaged weights of a run as a checkpoint.

    Args:
        run_dir: Holds the run's ``state.pt``.
        folder: The checkpoint to write.
        decoder_path: Autoencoder weights trained apart; ``run_dir/autoencoder.pt`` if it exists.
        settings: The checkpoint's own settings.
        overwrite: Replace a checkpoint that is there.

    Raises:
        CheckpointError: No state, or a decoder of another encoder.
    """
    state_path = run_dir / "state.pt"
    if not state_path.is_file():
        raise CheckpointError(
            explain(
                str(run_dir), expected="a state.pt", got="none", do="Train first, or name the run."
            )
        )
    networks = new_networks()
    networks.load_state_dict(torch.load(state_path, weights_only=True)["average"])
    decoder_path = decoder_path or run_dir / "autoencoder.pt"
    if decoder_path.is_file():
        weights = torch.load(decoder_path, weights_only=True)
        encoder = networks.autoencoder.project.weight
        if not torch.allclose(weights["project.weight"], encoder, rtol=1e-3, atol=1e-3):
            raise CheckpointError(
                explain(
                    str(decoder_path),
                    expected="a decoder of the same linear encoder as the run's",
                    got="another one",
                    do="Train the decoder on the data that the run was started on.",
                )
            )
        networks.autoencoder.load_state_dict(weights)
    return save_embedded(
        folder,
        networks.model.transformer,
        dict(networks.model.branches.items()),
        networks.autoencoder,
        networks.text_encoder,
        settings,
        overwrite=overwrite,
    )
