"""The published checkpoints' sizes: what each network is built with, before any weight is read.

Plain numbers, so that planning can count parameters without torch. ``build_base`` and
``build_branch`` make the networks; under ``torch.device("meta")`` they take no memory.

Source:
    Cosmos-Transfer2.5-2B and Cosmos-Transfer1-7B as published by NVIDIA; the 2.5 port in
    diffusers' conversion script.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from cosmos_transfer.errors import CheckpointError, explain

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """One published family: its networks' classes and their settings.

    ``controls`` are the branches NVIDIA trained, by our names; ``native_frames`` the length of a
    chunk; ``base_parameters`` and ``branch_parameters`` the published counts.
    """

    name: str
    base_class: str
    base: Mapping[str, Any]
    branch_class: str
    branch: Mapping[str, Any]
    controls: tuple[str, ...]
    native_frames: int
    base_parameters: int
    branch_parameters: int


TRANSFER2_5_2B = Architecture(
    name="Cosmos-Transfer2.5-2B",
    base_class="CosmosTransformer3DModel",
    base=MappingProxyType(
        {
            "in_channels": 17,  # 16 latent channels and the condition mask
            "out_channels": 16,
            "num_attention_heads": 16,
            "attention_head_dim": 128,
            "num_layers": 28,
            "mlp_ratio": 4.0,
            "text_embed_dim": 1024,
            "adaln_lora_dim": 256,
            "max_size": (128, 240, 240),
            "patch_size": (1, 2, 2),
            "rope_scale": (1.0, 3.0, 3.0),
            "concat_padding_mask": True,
            "extra_pos_embed_type": None,
            "use_crossattn_projection": True,
            "crossattn_proj_in_channels": 100352,  # 28 layers of 3584
            "encoder_hidden_states_channels": 1024,
            "controlnet_block_every_n": 7,
            "img_context_dim_in": 1152,
            "img_context_num_tokens": 256,
            "img_context_dim_out": 2048,
        }
    ),
    branch_class="CosmosControlNetModel",
    branch=MappingProxyType(
        {
            "n_controlnet_blocks": 4,
            "in_channels": 130,  # eight modalities of 16, the condition and the padding mask
            "latent_channels": 18,
            "model_channels": 2048,
            "num_attention_heads": 16,
            "attention_head_dim": 128,
            "mlp_ratio": 4.0,
            "text_embed_dim": 1024,
            "adaln_lora_dim": 256,
            "patch_size": (1, 2, 2),
            "max_size": (128, 240, 240),
            "rope_scale": (1.0, 3.0, 3.0),
            "extra_pos_embed_type": None,
            "img_context_dim_in": 1152,
            "img_context_dim_out": 2048,
            "use_crossattn_projection": True,
            "crossattn_proj_in_channels": 100352,
            "encoder_hidden_states_channels": 1024,
        }
    ),
    controls=("edge", "depth", "seg", "vis"),
    native_frames=93,
    base_parameters=2_413_864_960,
    branch_parameters=471_255_040,
)

TRANSFER1_7B = Architecture(
    name="Cosmos-Transfer1-7B",
    base_class="Transfer1Transformer",
    base=MappingProxyType(
        {
            "in_channels": 17,
            "out_channels": 16,
            "num_attention_heads": 32,
            "attention_head_dim": 128,
            "num_layers": 28,
            "mlp_ratio": 4.0,
            "text_embed_dim": 1024,
            "adaln_lora_dim": 256,
            "max_size": (128, 240, 240),
            "patch_size": (1, 2, 2),
            "rope_scale": (2.0, 1.0, 1.0),
            "num_controlled_blocks": 3,
        }
    ),
    branch_class="Transfer1Branch",
    branch=MappingProxyType(
        {
            "n_controlnet_blocks": 3,
            "hint_channels": 128,
            "latent_channels": 18,
            "num_attention_heads": 32,
            "attention_head_dim": 128,
            "mlp_ratio": 4.0,
            "text_embed_dim": 1024,
            "adaln_lora_dim": 256,
            "max_size": (128, 240, 240),
            "patch_size": (1, 2, 2),
            "rope_scale": (2.0, 1.0, 1.0),
        }
    ),
    controls=("edge", "depth", "seg", "vis", "keypoint", "hdmap", "lidar", "upscale"),
    native_frames=121,
    base_parameters=7_236_208_640,
    branch_parameters=890_089_248,  # of the published module; NVIDIA states no count
)

ARCHITECTURES = (TRANSFER2_5_2B, TRANSFER1_7B)


def build_base(architecture: Architecture, **changes: Any) -> nn.Module:
    """The base with random weights; ``changes`` replace settings, for smaller ones of its kind."""
    return _build(architecture.base_class, {**architecture.base, **changes})


def build_branch(architecture: Architecture, **changes: Any) -> nn.Module:
    """One control branch with random weights; ``changes`` replace settings."""
    return _build(architecture.branch_class, {**architecture.branch, **changes})


def _build(name: str, settings: Mapping[str, Any]) -> nn.Module:
    from cosmos_transfer.model import diffusers_compat, transfer1

    for module in (diffusers_compat, transfer1):
        if hasattr(module, name):
            network: nn.Module = getattr(module, name)(**settings)
            return network
    raise CheckpointError(
        explain("architecture", expected="a network class", got=name, do="Use one of the presets.")
    )
