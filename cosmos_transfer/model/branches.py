"""Control branches: control latents in, one residual per controlled block of the base out.

A Cosmos branch is diffusers' ``CosmosControlNetModel``. It reads one control's latents and the
same noisy latents, text and timestep as the base; its residual ``i`` is added at the end of the
base's block ``i * controlnet_block_every_n``. Weighting and summing branches is
:func:`cosmos_transfer.weights.fusion.fuse_residuals`, never the branch's own
``conditioning_scale``.

Networks are typed as plain modules here: another base with the same calls may stand in, and
importing diffusers takes seconds, which only :func:`new_branch` has to spend.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from cosmos_transfer.errors import CheckpointError, explain

# Weights of the base that every branch carries a copy of: attribute of the base -> of the branch.
SHARED_PARTS = {
    "patch_embed": "patch_embed_base",
    "time_embed": "time_embed",
    "learnable_pos_embed": "learnable_pos_embed",
    "crossattn_proj": "crossattn_proj",
    "img_context_proj": "img_context_proj",
}


def controlled_blocks(transformer: nn.Module) -> tuple[int, ...]:
    """Indices of a Cosmos base's blocks that receive a residual; empty for one without control."""
    stated: tuple[int, ...] | None = getattr(transformer, "controlled_blocks", None)
    if stated is not None:
        return stated
    config: Any = transformer.config
    blocks: Any = transformer.transformer_blocks
    if config.controlnet_block_every_n is None:
        return ()
    return tuple(range(0, len(blocks), config.controlnet_block_every_n))


def new_branch(
    transformer: nn.Module,
    *,
    control_channels: int | None = None,
    input_gain: float = 0.0,
) -> nn.Module:
    """A branch for ``transformer`` that starts as a copy of its blocks and says nothing yet.

    Its blocks are copies of the base's first ones and its outputs are zero, so that adding an
    untrained branch changes nothing.

    Args:
        transformer: The base, trained or not.
        control_channels: Channels of the control latents the branch has room for; the base's
            latent channels by default.
        input_gain: The projection through which the control enters is this times the identity. 0,
            the published recipe, makes the branch start blind to its control; 1 lets its blocks
            see the control from the first step on.

    Source:
        Cosmos-Transfer1, arXiv:2503.14492, section 3: copied blocks, zero-initialised outputs.
    """
    from cosmos_transfer.model.diffusers_compat import CosmosControlNetModel

    base: Any = transformer
    config = base.config
    if control_channels is None:
        control_channels = int(config.out_channels)
    num_blocks = len(controlled_blocks(transformer))
    if num_blocks == 0:
        raise CheckpointError(
            explain(
                "base model",
                expected="controlnet_block_every_n in its config",
                got="none",
                do="Build the base with the spacing of its controlled blocks.",
            )
        )
    branch = CosmosControlNetModel(
        n_controlnet_blocks=num_blocks,
        in_channels=control_channels + 2,  # the condition mask and the padding mask
        latent_channels=config.in_channels + 1,  # in_channels counts the condition mask already
        model_channels=config.num_attention_heads * config.attention_head_dim,
        num_attention_heads=config.num_attention_heads,
        attention_head_dim=config.attention_head_dim,
        mlp_ratio=config.mlp_ratio,
        text_embed_dim=config.text_embed_dim,
        adaln_lora_dim=config.adaln_lora_dim,
        patch_size=tuple(config.patch_size),
        max_size=tuple(config.max_size),
        rope_scale=tuple(config.rope_scale),
        extra_pos_embed_type=config.extra_pos_embed_type,
        img_context_dim_in=config.img_context_dim_in,
        img_context_dim_out=config.img_context_dim_out,
        use_crossattn_projection=config.use_crossattn_projection,
        crossattn_proj_in_channels=config.crossattn_proj_in_channels,
        encoder_hidden_states_channels=config.encoder_hidden_states_channels,
    )
    for base_name, branch_name in SHARED_PARTS.items():
        part = getattr(branch, branch_name, None)
        if isinstance(part, nn.Module):
            part.load_state_dict(getattr(base, base_name).state_dict())
    for block, base_block in zip(
        branch.control_blocks, base.transformer_blocks[:num_blocks], strict=True
    ):
        # The base's blocks have no before_proj and after_proj; every other key must match.
        keys = block.load_state_dict(base_block.state_dict(), strict=False)
        assert not keys.unexpected_keys
        assert all(key.startswith(("before_proj", "after_proj")) for key in keys.missing_keys)
        nn.init.zeros_(block.after_proj.weight)
        nn.init.zeros_(block.after_proj.bias)
    before = branch.control_blocks[0].before_proj
    with torch.no_grad():
        before.weight.copy_(input_gain * torch.eye(before.weight.shape[0]))
        before.bias.zero_()
        if branch.patch_embed.proj.weight.shape == base.patch_embed.proj.weight.shape:
            # Control latents live in the same space as the video's: read them the same way.
            branch.patch_embed.load_state_dict(base.patch_embed.state_dict())
    branch.to(base.device)
    return branch if branch.dtype == base.dtype else branch.to(base.dtype)


def share_parts(transformer: nn.Module, branches: Mapping[str, nn.Module]) -> tuple[str, ...]:
    """Let branches use the base's modules where their copies are identical, to save memory.

    Returns:
        The branches' modules that were replaced, as ``branch.module``.
    """
    shared = []
    for name, branch in branches.items():
        for base_name, branch_name in SHARED_PARTS.items():
            part, base_part = (
                getattr(branch, branch_name, None),
                getattr(transformer, base_name, None),
            )
            if part is None or base_part is None:
                continue
            if _same_weights(part.state_dict(), base_part.state_dict()):
                setattr(branch, branch_name, base_part)
                shared.append(f"{name}.{branch_name}")
    return tuple(shared)


class TextProjection(nn.Sequential):
    """The projection of text tokens, which lets tokens pass that were projected before.

    Its weights are named as those of the layers it is made of.
    """

    def forward(self, tokens: Float[Tensor, "b m d"]) -> Float[Tensor, "b m d2"]:
        """Project, unless the tokens have the width of projected ones."""
        first: Any = self[0]
        if tokens.shape[-1] == first.out_features != first.in_features:
            return tokens
        projected: Tensor = super().forward(tokens)
        return projected


def project_text_once(transformer: nn.Module, branches: Mapping[str, nn.Module]) -> bool:
    """Let the text be projected once a run instead of in every network at every step.

    Only where the base and all branches share one projection, which :func:`share_parts` sees to
    after it has found them equal.

    Returns:
        Whether text may be projected beforehand.
    """
    projection = getattr(transformer, "crossattn_proj", None)
    networks = (transformer, *branches.values())
    if not isinstance(projection, nn.Sequential):
        return False
    if any(getattr(network, "crossattn_proj", None) is not projection for network in networks):
        return False
    if not isinstance(projection, TextProjection):
        once = TextProjection(*projection)
        for network in networks:
            network.crossattn_proj = once
    return True


def _same_weights(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


def check_branch(name: str, transformer: nn.Module, branch: nn.Module) -> None:
    """Refuse a branch whose residuals would not fit the base; compares what both configs state.

    Raises:
        CheckpointError: Another width, patch size or number of controlled blocks.
    """
    base: Any = transformer.config
    config: Any = branch.config
    facts = {
        "patch size": (tuple(base.patch_size), tuple(config.patch_size)),
        "latent channels": (base.in_channels + 1, config.latent_channels),
    }
    if hasattr(base, "controlnet_block_every_n"):
        facts["controlled blocks"] = (
            len(controlled_blocks(transformer)),
            config.n_controlnet_blocks,
        )
        facts["width"] = (
            base.num_attention_heads * base.attention_head_dim,
            config.model_channels,
        )
    for fact, (expected, got) in facts.items():
        if expected != got:
            raise CheckpointError(
                explain(
                    f"control branch '{name}'",
                    expected=f"{fact} {expected}, as in the base",
                    got=f"{got}",
                    do="Load a branch that was trained on this base.",
                )
            )
