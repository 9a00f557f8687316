"""What Cosmos-Transfer1 does differently: where its branches act, and how they read a control.

The base is diffusers' transformer. The branches add to its *first* blocks instead of to every
seventh. A branch reads the noisy latents as the base does; its control enters once, after its
first block, through a narrow perceptron, and every block's output leaves through a linear layer
that training started at zero.

Both take the calls that :class:`~cosmos_transfer.model.controlled.ControlledModel` makes.

Source:
    Cosmos-Transfer1, arXiv:2503.14492, and its published control encoder (``GeneralDITEncoder``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from diffusers.configuration_utils import ConfigMixin, register_to_config
from diffusers.models.controlnets.controlnet_cosmos import (
    CosmosEmbedding,
    CosmosLearnablePositionalEmbed,
    CosmosPatchEmbed,
    CosmosRotaryPosEmbed,
    CosmosTransformerBlock,
)
from diffusers.models.modeling_utils import ModelMixin
from jaxtyping import Float
from torch import Tensor, nn

from cosmos_transfer.errors import ShapeError, explain
from cosmos_transfer.model.diffusers_compat import CosmosTransformer3DModel

# Widths of the perceptron through which a control enters, between the network's own.
HINT_WIDTHS = (16, 16, 32, 32, 96, 96, 256)


class Transfer1Transformer(CosmosTransformer3DModel):
    """diffusers' Cosmos transformer whose first blocks are the controlled ones."""

    @register_to_config  # type: ignore[untyped-decorator]  # diffusers is untyped
    def __init__(
        self,
        in_channels: int = 17,
        out_channels: int = 16,
        num_attention_heads: int = 32,
        attention_head_dim: int = 128,
        num_layers: int = 28,
        mlp_ratio: float = 4.0,
        text_embed_dim: int = 1024,
        adaln_lora_dim: int = 256,
        max_size: Sequence[int] = (128, 240, 240),
        patch_size: Sequence[int] = (1, 2, 2),
        rope_scale: Sequence[float] = (2.0, 1.0, 1.0),
        concat_padding_mask: bool = True,
        extra_pos_embed_type: str | None = "learnable",
        use_crossattn_projection: bool = False,
        crossattn_proj_in_channels: int = 1024,
        encoder_hidden_states_channels: int = 1024,
        controlnet_block_every_n: int | None = 1,
        img_context_dim_in: int | None = None,
        img_context_num_tokens: int = 256,
        img_context_dim_out: int = 2048,
        num_controlled_blocks: int = 3,
    ) -> None:
        # diffusers' own parameters, all of them: its config names every one.
        super().__init__(
            in_channels=in_channels,
            out_channels=out_channels,
            num_attention_heads=num_attention_heads,
            attention_head_dim=attention_head_dim,
            num_layers=num_layers,
            mlp_ratio=mlp_ratio,
            text_embed_dim=text_embed_dim,
            adaln_lora_dim=adaln_lora_dim,
            max_size=tuple(max_size),
            patch_size=tuple(patch_size),
            rope_scale=tuple(rope_scale),
            concat_padding_mask=concat_padding_mask,
            extra_pos_embed_type=extra_pos_embed_type,
            use_crossattn_projection=use_crossattn_projection,
            crossattn_proj_in_channels=crossattn_proj_in_channels,
            encoder_hidden_states_channels=encoder_hidden_states_channels,
            controlnet_block_every_n=controlnet_block_every_n,
            img_context_dim_in=img_context_dim_in,
            img_context_num_tokens=img_context_num_tokens,
            img_context_dim_out=img_context_dim_out,
        )

    @property
    def controlled_blocks(self) -> tuple[int, ...]:
        """Indices of the blocks that receive a residual."""
        return tuple(range(self.config.num_controlled_blocks))

    def forward(
        self,
        *,
        block_controlnet_hidden_states: list[Tensor] | None = None,
        **inputs: Any,
    ) -> Any:
        """diffusers' forward, with one residual per controlled block."""
        residuals: list[Tensor | None] | None = None
        if block_controlnet_hidden_states is not None:
            expected = len(self.controlled_blocks)
            if len(block_controlnet_hidden_states) != expected:
                raise ShapeError(
                    explain(
                        "base model",
                        expected=f"{expected} residuals",
                        got=f"{len(block_controlnet_hidden_states)}",
                        do="Use branches that were trained on this base.",
                    )
                )
            rest = len(self.transformer_blocks) - expected
            residuals = [*block_controlnet_hidden_states, *[None] * rest]
        return super().forward(block_controlnet_hidden_states=residuals, **inputs)


class Transfer1Branch(ModelMixin, ConfigMixin):
    """One control's encoder: the base's first blocks again, and what they add to the base's.

    Named as diffusers names its control nets where both have a part: ``patch_embed`` reads the
    control, ``patch_embed_base`` the latents.
    """

    @register_to_config  # type: ignore[untyped-decorator]  # diffusers is untyped
    def __init__(
        self,
        n_controlnet_blocks: int = 3,
        hint_channels: int = 128,
        latent_channels: int = 18,
        num_attention_heads: int = 32,
        attention_head_dim: int = 128,
        mlp_ratio: float = 4.0,
        text_embed_dim: int = 1024,
        adaln_lora_dim: int = 256,
        max_size: Sequence[int] = (128, 240, 240),
        patch_size: Sequence[int] = (1, 2, 2),
        rope_scale: Sequence[float] = (2.0, 1.0, 1.0),
        model_channels: int | None = None,
    ) -> None:
        super().__init__()
        max_size, patch_size = tuple(max_size), tuple(patch_size)
        width = num_attention_heads * attention_head_dim
        self.register_to_config(model_channels=width)
        # One channel more for the padding mask; the latents' count includes theirs.
        self.patch_embed = CosmosPatchEmbed(hint_channels + 1, width, patch_size, bias=False)
        self.patch_embed_base = CosmosPatchEmbed(latent_channels, width, patch_size, bias=False)
        self.rope = CosmosRotaryPosEmbed(
            attention_head_dim,
            max_size=max_size,
            patch_size=patch_size,
            rope_scale=tuple(rope_scale),
        )
        self.learnable_pos_embed = CosmosLearnablePositionalEmbed(
            width, max_size=max_size, patch_size=patch_size
        )
        self.time_embed = CosmosEmbedding(width, width)
        self.control_blocks = nn.ModuleList(
            CosmosTransformerBlock(
                num_attention_heads=num_attention_heads,
                attention_head_dim=attention_head_dim,
                cross_attention_dim=text_embed_dim,
                mlp_ratio=mlp_ratio,
                adaln_lora_dim=adaln_lora_dim,
                qk_norm="rms_norm",
                out_bias=False,
            )
            for _ in range(n_controlnet_blocks)
        )
        self.zero_blocks = nn.ModuleList(
            nn.Linear(width, width) for _ in range(n_controlnet_blocks)
        )
        layers: list[nn.Module] = []
        for before, after in zip((width, *HINT_WIDTHS[:-1]), HINT_WIDTHS, strict=True):
            layers += [nn.Linear(before, after), nn.SiLU()]
        self.hint_layers = nn.Sequential(*layers, nn.Linear(HINT_WIDTHS[-1], width))
        self.gradient_checkpointing = False

    def forward(
        self,
        controls_latents: Float[Tensor, "b p t h w"],
        latents: Float[Tensor, "b c t h w"],
        timestep: Float[Tensor, " b"],
        encoder_hidden_states: Float[Tensor, "b m d"],
        condition_mask: Float[Tensor, "b 1 t h w"],
        padding_mask: Float[Tensor, "1 1 h w"],
        return_dict: bool = False,
    ) -> tuple[list[Float[Tensor, "b n w2"]]]:
        """One residual per controlled block, before any weight."""
        padding = padding_mask[:, :, None].expand(latents.shape[0], 1, latents.shape[2], -1, -1)
        noisy = torch.cat([latents, condition_mask, padding], dim=1)
        rotary = self.rope(noisy)
        positions = self.learnable_pos_embed(noisy)
        hidden = self.patch_embed_base(noisy).flatten(1, 3)
        time, embedded_time = self.time_embed(hidden, timestep)
        hint = self._hint(controls_latents, padding)
        residuals = []
        for index, (block, out) in enumerate(
            zip(self.control_blocks, self.zero_blocks, strict=True)
        ):
            hidden = block(
                hidden,
                encoder_hidden_states,
                embedded_time,
                time,
                rotary,
                positions,
            )
            if index == 0:
                hidden = hidden + hint
            residuals.append(out(hidden))
        return (residuals,)

    def _hint(
        self, control: Float[Tensor, "b p t h w"], padding: Float[Tensor, "b 1 t h w"]
    ) -> Float[Tensor, "b n w2"]:
        room = self.config.hint_channels
        if control.shape[1] > room:
            raise ShapeError(
                explain(
                    "control branch",
                    expected=f"control latents of at most {room} channels",
                    got=f"{control.shape[1]}",
                    do="Encode the control with the checkpoint's autoencoder.",
                )
            )
        free = control.new_zeros(control.shape[0], room - control.shape[1], *control.shape[2:])
        tokens = self.patch_embed(torch.cat([control, free, padding], dim=1)).flatten(1, 3)
        return self.hint_layers(tokens)
