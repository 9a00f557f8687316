"""The embedded checkpoint's networks at a size for tests, with weights that all matter.

Untrained, half of the layers are zero and hide what stands before them; :func:`randomized` fills
every parameter from a seed, so that a forward pass is also the same on every version of torch.
"""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import nn

from cosmos_transfer.autoencoder.causal_video import CausalVideoConfig
from cosmos_transfer.inputs.prompt import split_words
from cosmos_transfer.model.latent_unet import (
    LatentUNet,
    LatentUNetBranch,
    LatentUNetBranchConfig,
    LatentUNetConfig,
)
from cosmos_transfer.training.data import CONTROL_NAMES
from cosmos_transfer.training.networks import EmbeddedNetworks, new_networks
from cosmos_transfer.training.scenes import VOCABULARY
from tests.support.tiny_words import tiny_text_encoder

Module = TypeVar("Module", bound=nn.Module)

UNET = LatentUNetConfig(
    latent_channels=4,
    width=16,
    inner_width=24,
    num_outer_blocks=2,
    num_inner_blocks=2,
    text_width=8,
    head_width=8,
)
SCENE_WORDS = sorted(
    {
        word
        for values in VOCABULARY.values()
        for synonyms in values.values()
        for phrase in synonyms
        for word in split_words(phrase)
    }
)
AUTOENCODER = CausalVideoConfig(
    latent_channels=4, width=8, num_decoder_blocks=1, pixel_width=2, controls=CONTROL_NAMES
)


def randomized(module: Module, seed: int, *, scale: float = 0.15) -> Module:
    """Every parameter drawn anew, in the order of their names; scales of norms around 1."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in sorted(module.named_parameters()):
            values = scale * torch.randn(parameter.shape, generator=generator)
            parameter.copy_(values + 1.0 if name.endswith("scale") else values)
    return module


def tiny_unet(*, seed: int | None = None) -> LatentUNet:
    """A small base; untrained without a seed, random everywhere with one."""
    torch.manual_seed(0)
    unet = LatentUNet(UNET).eval()
    return unet if seed is None else randomized(unet, seed)


def tiny_branch(*, seed: int | None = None, control_channels: int = 6) -> LatentUNetBranch:
    """A branch for :func:`tiny_unet`."""
    torch.manual_seed(1)
    branch = LatentUNetBranch(
        LatentUNetBranchConfig(
            control_channels=control_channels,
            latent_channels=UNET.latent_channels,
            width=UNET.width,
            num_blocks=LatentUNet.num_controlled_blocks,
        )
    ).eval()
    return branch if seed is None else randomized(branch, seed)


def tiny_networks(*, seed: int | None = None) -> EmbeddedNetworks:
    """All parts of the embedded checkpoint, small; it knows the words of the scenes' prompts."""
    torch.manual_seed(2)
    text_encoder = tiny_text_encoder(SCENE_WORDS, width=UNET.text_width, max_words=16)
    networks = new_networks(AUTOENCODER, UNET, text_encoder.settings)
    networks.text_encoder.load_state_dict(text_encoder.state_dict())
    return networks if seed is None else randomized(networks, seed)
