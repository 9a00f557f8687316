"""The networks of the embedded checkpoint, built new or loaded to be trained further."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from cosmos_transfer.autoencoder.causal_video import CausalVideoAutoencoder, CausalVideoConfig
from cosmos_transfer.errors import CheckpointError, explain
from cosmos_transfer.inputs.prompt import (
    VocabularyTextConfig,
    VocabularyTextEncoder,
    split_words,
)
from cosmos_transfer.model.checkpoint import load_checkpoint
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
from cosmos_transfer.training.scenes import VOCABULARY

STATE_FILE = "state.pt"
"""What a run keeps in its folder to be taken up again."""
# What reading a state that is damaged, or of other networks, raises.
UNREADABLE_STATE = (OSError, EOFError, LookupError, RuntimeError, ValueError, UnpicklingError)

# Words that prompts contain and that say nothing about the picture.
FILLER_WORDS = frozenset(
    "view scene picture image video clip behind wall table tabletop desk driving city".split()  # noqa: SIM905
)
# Left out without a word in the record.
IGNORED_WORDS = frozenset(
    "a an the of in on with at and by to from for is it some very under through".split()  # noqa: SIM905
)

AUTOENCODER = CausalVideoConfig(pixel_width=32, num_pixel_layers=2, controls=CONTROL_NAMES)
"""The shipped autoencoder's sizes."""


def vocabulary_words() -> tuple[str, ...]:
    """Every word of every synonym in the scenes' vocabulary, and the filler words."""
    words = {
        word
        for values in VOCABULARY.values()
        for synonyms in values.values()
        for phrase in synonyms
        for word in split_words(phrase)
    }
    return tuple(sorted(words | FILLER_WORDS))


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
        text_encoder: VocabularyTextEncoder,
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
) -> EmbeddedNetworks:
    """Untrained networks; the autoencoder still needs its principal components."""
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
    text_encoder = VocabularyTextEncoder(
        VocabularyTextConfig(
            words=vocabulary_words(), ignored_words=sorted(IGNORED_WORDS), width=base.text_width
        )
    )
    model = ControlledModel(LatentUNet(base), branches, timestep_scale=1.0)
    return EmbeddedNetworks(autoencoder_network, text_encoder, model)


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
        and isinstance(text_encoder, VocabularyTextEncoder)
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
