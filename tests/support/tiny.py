"""Tiny random models with the real architecture, built in milliseconds from a seed.

``transfer2_5_*``  every part Cosmos-Transfer2.5 has: projected text, image context, room for eight
                   control modalities
``transfer1_*``    Cosmos-Transfer1: controls on the first three blocks, learned positions, EDM
``embedded_*``     the embedded checkpoint's variant: none of those

Random initial weights everywhere, the branches' output projections included, so that every input
has an effect on every output.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from cosmos_transfer.model.controlled import ControlledModel
from cosmos_transfer.model.diffusers_compat import (
    AutoencoderKLWan,
    CosmosControlNetModel,
    CosmosTransformer3DModel,
)
from cosmos_transfer.model.transfer1 import Transfer1Branch, Transfer1Transformer

LATENT_CHANNELS = 16
HEADS, HEAD_WIDTH, TEXT_WIDTH = 4, 16, 32
TEXT_CHANNELS_2_5, TEXT_TOKENS = 48, 7
MAX_SIZE = (16, 32, 32)


def transfer2_5_transformer(*, seed: int = 0, num_layers: int = 2) -> CosmosTransformer3DModel:
    torch.manual_seed(seed)
    return CosmosTransformer3DModel(
        in_channels=LATENT_CHANNELS + 1,
        out_channels=LATENT_CHANNELS,
        num_attention_heads=HEADS,
        attention_head_dim=HEAD_WIDTH,
        num_layers=num_layers,
        text_embed_dim=TEXT_WIDTH,
        adaln_lora_dim=4,
        max_size=MAX_SIZE,
        rope_scale=(1.0, 3.0, 3.0),
        extra_pos_embed_type=None,
        use_crossattn_projection=True,
        crossattn_proj_in_channels=TEXT_CHANNELS_2_5,
        encoder_hidden_states_channels=TEXT_WIDTH,
        controlnet_block_every_n=1,
        img_context_dim_in=24,
        img_context_num_tokens=5,
        img_context_dim_out=HEADS * HEAD_WIDTH,
    ).eval()


def transfer2_5_branch(*, seed: int, num_blocks: int = 2) -> CosmosControlNetModel:
    torch.manual_seed(seed)
    return CosmosControlNetModel(
        n_controlnet_blocks=num_blocks,
        in_channels=8 * LATENT_CHANNELS + 2,
        latent_channels=LATENT_CHANNELS + 2,
        model_channels=HEADS * HEAD_WIDTH,
        num_attention_heads=HEADS,
        attention_head_dim=HEAD_WIDTH,
        text_embed_dim=TEXT_WIDTH,
        adaln_lora_dim=4,
        max_size=MAX_SIZE,
        rope_scale=(1.0, 3.0, 3.0),
        img_context_dim_in=24,
        img_context_dim_out=HEADS * HEAD_WIDTH,
        use_crossattn_projection=True,
        crossattn_proj_in_channels=TEXT_CHANNELS_2_5,
        encoder_hidden_states_channels=TEXT_WIDTH,
    ).eval()


def transfer2_5_model(controls: Sequence[str] = ("edge",), *, seed: int = 0) -> ControlledModel:
    branches = {
        name: transfer2_5_branch(seed=seed + 1 + index) for index, name in enumerate(controls)
    }
    return ControlledModel(transfer2_5_transformer(seed=seed), branches).eval()


def embedded_transformer(*, seed: int = 0, num_layers: int = 2) -> CosmosTransformer3DModel:
    torch.manual_seed(seed)
    return CosmosTransformer3DModel(
        in_channels=LATENT_CHANNELS + 1,
        out_channels=LATENT_CHANNELS,
        num_attention_heads=HEADS,
        attention_head_dim=HEAD_WIDTH,
        num_layers=num_layers,
        text_embed_dim=TEXT_WIDTH,
        adaln_lora_dim=4,
        max_size=MAX_SIZE,
        rope_scale=(1.0, 1.0, 1.0),
        extra_pos_embed_type=None,
        controlnet_block_every_n=1,
    ).eval()


def embedded_branch(*, seed: int, num_blocks: int = 2) -> CosmosControlNetModel:
    torch.manual_seed(seed)
    return CosmosControlNetModel(
        n_controlnet_blocks=num_blocks,
        in_channels=LATENT_CHANNELS + 2,
        latent_channels=LATENT_CHANNELS + 2,
        model_channels=HEADS * HEAD_WIDTH,
        num_attention_heads=HEADS,
        attention_head_dim=HEAD_WIDTH,
        text_embed_dim=TEXT_WIDTH,
        adaln_lora_dim=4,
        max_size=MAX_SIZE,
        rope_scale=(1.0, 1.0, 1.0),
    ).eval()


def embedded_model(
    controls: Sequence[str] = ("edge", "depth", "seg", "vis"), *, seed: int = 0
) -> ControlledModel:
    branches = {name: embedded_branch(seed=seed + 1 + index) for index, name in enumerate(controls)}
    return ControlledModel(embedded_transformer(seed=seed), branches, timestep_scale=1000.0).eval()


def wan_autoencoder(*, seed: int = 0) -> AutoencoderKLWan:
    """Wan's causal 4x8x8 autoencoder, narrow, with latent statistics unlike 0 and 1."""
    torch.manual_seed(seed)
    return AutoencoderKLWan(
        base_dim=4,
        z_dim=LATENT_CHANNELS,
        dim_mult=[1, 1, 1, 1],
        num_res_blocks=1,
        temperal_downsample=[False, True, True],
        latents_mean=[0.05 * index - 0.3 for index in range(LATENT_CHANNELS)],
        latents_std=[0.5 + 0.1 * index for index in range(LATENT_CHANNELS)],
    ).eval()


def randn(*shape: int, seed: int) -> Tensor:
    """Standard normal numbers from a seed of their own."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def transfer1_transformer(*, seed: int = 0, num_layers: int = 5) -> Transfer1Transformer:
    torch.manual_seed(seed)
    network = Transfer1Transformer(
        num_attention_heads=HEADS,
        attention_head_dim=HEAD_WIDTH,
        num_layers=num_layers,
        text_embed_dim=TEXT_WIDTH,
        adaln_lora_dim=4,
        max_size=MAX_SIZE,
    ).eval()
    return _with_positions(network, seed)


def transfer1_branch(*, seed: int) -> Transfer1Branch:
    torch.manual_seed(seed)
    network = Transfer1Branch(
        hint_channels=40,
        num_attention_heads=HEADS,
        attention_head_dim=HEAD_WIDTH,
        text_embed_dim=TEXT_WIDTH,
        adaln_lora_dim=4,
        max_size=MAX_SIZE,
    ).eval()
    return _with_positions(network, seed)


def transfer1_model(controls: Sequence[str] = ("edge",), *, seed: int = 0) -> ControlledModel:
    branches = {
        name: transfer1_branch(seed=seed + 1 + index) for index, name in enumerate(controls)
    }
    return ControlledModel(transfer1_transformer(seed=seed), branches, sigma_data=0.5).eval()


def _with_positions(network, seed: int):
    """Learned positions start at zero, where their normalisation has no direction."""
    with torch.no_grad():
        for index, table in enumerate(network.learnable_pos_embed.parameters()):
            table.copy_(randn(*table.shape, seed=100 * seed + index))
    return network
