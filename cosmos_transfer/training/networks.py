"""The networks of the embedded checkpoint, built new or loaded to be trained further."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from pickle import UnpicklingError

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from cosmos_transfer.autoencoder.causal_video import CausalVideoAutoencoder, CausalVideoConfig
from cosmos_transfer.errors import CheckpointError, explain
from cosmos_transfer.inputs.free_text import FreeTextConfig, FreeTextEncoder
from cosmos_transfer.model.checkpoint import EMBEDDED, load_checkpoint
from cosmos_transfer.model.controlled import ControlledModel
from cosmos_transfer.model.latent_unet import (
    LatentUNet,
    LatentUNetBranch,
    LatentUNetBranchConfig,
    LatentUNetConfig,
)
from cosmos_transfer.training.batches import Batch
from cosmos_transfer.training.control_draw import draw_weights
from cosmos_transfer.training.data import CONTROL_NAMES
from cosmos_transfer.training.text import load_text

STATE_FILE = "state.pt"
"""What a run keeps in its folder to be taken up again."""
# What reading a state that is damaged, or of other networks, raises.
UNREADABLE_STATE = (OSError, EOFError, LookupError, RuntimeError, ValueError, UnpicklingError)

AUTOENCODER = CausalVideoConfig(pixel_width=32, num_pixel_layers=2, controls=CONTROL_NAMES)
"""The shipped autoencoder's sizes."""
TEXT_ENCODER = FreeTextConfig()
"""The shipped text encoder's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedBatch:
    """Clean latents, the controls that act, and their token weights."""

    clean: Float[Tensor, "b z t hz wz"]
    controls: dict[str, Float[Tensor, "b p t hz wz"]]
    weights: dict[str, Float[Tensor, "b n"]]


class EmbeddedNetworks(nn.Module):
    """All that the embedded checkpoint consists of."""

    def __init__(
        self,
        autoencoder: CausalVideoAutoencoder,
        text_encoder: FreeTextEncoder,
        model: ControlledModel,
    ) -> None:
        super().__init__()
        self.autoencoder = autoencoder
        self.text_encoder = text_encoder
        self.model = model

    def encode_batch(self, batch: Batch, rng: np.random.Generator, *, device: str) -> EncodedBatch:
        """Encode clips and controls, and draw where and how strongly the controls act."""
        with torch.no_grad():
            clean = self.autoencoder.encode(batch.video.to(device))
            controls = {
                name: self.autoencoder.encode_control(video.to(device))
                for name, video in batch.controls.items()
            }
        sizes = zip(clean.shape[2:], self.model.patch, strict=True)
        frames, height, width = (size // patch for size, patch in sizes)
        drawn = draw_weights(len(controls), len(clean), (frames, height, width), rng).to(device)
        return EncodedBatch(
            clean=clean, controls=controls, weights=dict(zip(controls, drawn, strict=True))
        )


def new_networks(
    autoencoder: CausalVideoConfig | None = None,
    base: LatentUNetConfig | None = None,
    text_encoder: FreeTextConfig | None = None,
) -> EmbeddedNetworks:
    """Untrained networks; the autoencoder still needs its principal components, and the text
    encoder its words."""
    autoencoder_network = CausalVideoAutoencoder(autoencoder or AUTOENCODER)
    base = base or LatentUNetConfig()
    branches = {
        name: LatentUNetBranch(
            LatentUNetBranchConfig(
                control_channels=autoencoder_network.control_channels,
                latent_channels=base.latent_channels,
                width=base.width,
                num_blocks=LatentUNet.num_controlled_blocks,
            )
        )
        for name in CONTROL_NAMES
    }
    text = FreeTextEncoder(text_encoder or replace(TEXT_ENCODER, width=base.text_width))
    model = ControlledModel(LatentUNet(base), branches, timestep_scale=1.0)
    return EmbeddedNetworks(autoencoder_network, text, model)


def packaged_text_encoder() -> FreeTextEncoder:
    """The text encoder of the embedded checkpoint."""
    encoder = load_checkpoint(EMBEDDED, dtype=torch.float32).text_encoder
    assert isinstance(encoder, FreeTextEncoder)
    return encoder


def new_text_encoder(words: Path | None) -> FreeTextEncoder:
    """A text encoder that knows words and nothing of what they say.

    Args:
        words: A table of ``scripts/make_word_vectors.py``; that of the embedded checkpoint if
            there is none.

    Raises:
        CheckpointError: No table of the shipped size.
    """
    encoder = FreeTextEncoder(TEXT_ENCODER)
    if words is not None:
        load_text(encoder, words)
        return encoder
    packaged = packaged_text_encoder()
    table = {name: packaged.state_dict()[name] for name in packaged.frozen()}
    encoder.load_state_dict(table, strict=False)
    return encoder


def run_networks(
    run_dir: Path, *, averaged: bool, networks: EmbeddedNetworks | None = None
) -> EmbeddedNetworks:
    """The networks of a training run, from its state.

    Args:
        run_dir: Holds the run's ``state.pt``.
        averaged: The averaged weights, which are what is shipped; or those the run goes on with.
        networks: What the weights go into; new networks of the shipped size by default.

    Raises:
        CheckpointError: No state, or one of other networks.
    """
    path = run_dir / STATE_FILE
    networks = networks or new_networks()
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        networks.load_state_dict(state["average" if averaged else "networks"])
    except FileNotFoundError as error:
        raise CheckpointError(
            explain(
                str(run_dir),
                expected=f"a {STATE_FILE}",
                got="none",
                do="Train first, or name the run.",
            )
        ) from error
    except UNREADABLE_STATE as error:
        raise CheckpointError(
            explain(
                str(path),
                expected="the state of a run with these networks",
                got=f"{error}".splitlines()[0] if str(error) else type(error).__name__,
                do="Name another run, or train one.",
            )
        ) from error
    return networks


def load_networks(name_or_path: str | Path) -> EmbeddedNetworks:
    """The networks of a checkpoint in our layout, to be trained further.

    Raises:
        CheckpointError: It cannot be loaded, or is of other networks than these.
    """
    checkpoint = load_checkpoint(name_or_path, dtype=torch.float32)
    autoencoder, text_encoder = checkpoint.autoencoder, checkpoint.text_encoder
    base = checkpoint.model.transformer
    if (
        isinstance(autoencoder, CausalVideoAutoencoder)
        and isinstance(text_encoder, FreeTextEncoder)
        and isinstance(base, LatentUNet)
    ):
        return EmbeddedNetworks(autoencoder, text_encoder, checkpoint.model).train()
    raise CheckpointError(
        explain(
            f"checkpoint {checkpoint.info.id}",
            expected="a LatentUNet with its autoencoder and text encoder",
            got=", ".join(type(part).__name__ for part in (base, autoencoder, text_encoder)),
            do="Start from embedded, or from a run's export.",
        )
    )
