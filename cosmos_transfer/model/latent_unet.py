"""The embedded checkpoint's networks: a convolutional U-Net over latents and its control branches.

They stand behind the same calls as diffusers' ``CosmosTransformer3DModel`` and
``CosmosControlNetModel``, so that :class:`~cosmos_transfer.model.controlled.ControlledModel`, the
weight maps, the fusion and the samplers do not know which of the two they drive. Tokens are the
cells of the latent grid (a patch of 1x1x1), time-slowest.

Why not a small transformer: on two CPU cores a transformer of the same cost learns to place an edge
far more slowly than convolutions that see the neighbouring cells from the first step on; the model
card shows both curves.

Conventions
    ``timestep`` is sigma, in [0, 1]; ``noisy = (1 - sigma) * clean + sigma * noise``.
    The networks' output is the velocity ``noise - clean``. Inside, it is preconditioned: what the
    convolutions learn has unit variance at every sigma, and an untrained network already is the
    best linear denoiser of white, unit-variance latents.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

# Frequencies of the embedding of sigma, in radians per unit of sigma.
LOWEST_FREQUENCY = 1.0
HIGHEST_FREQUENCY = 200.0
ROPE_BASE = 1_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentUNetConfig:
    """Sizes of the base network."""

    latent_channels: int = 16
    width: int = 64  # at the latent grid
    inner_width: int = 160  # at half of it
    num_outer_blocks: int = 2  # before the down-sampling, and again after the up-sampling
    num_inner_blocks: int = 3
    text_width: int = 64
    head_width: int = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentUNetBranchConfig:
    """Sizes of one control branch."""

    control_channels: int = 192
    latent_channels: int = 16
    width: int = 64
    num_blocks: int = 2  # controlled blocks of the base


def flow_preconditioning(
    sigma: Float[Tensor, "*b"],
) -> tuple[Float[Tensor, "*b"], Float[Tensor, "*b"], Float[Tensor, "*b"]]:
    """Factors with ``velocity = skip * noisy + out * network(scale_in * noisy)``, in that order.

    For clean latents and noise that are white with unit variance, ``skip * noisy`` is the best
    linear estimate of the velocity, and what remains to be learned has unit variance after
    division by ``out``. With ``v = (1 - sigma)^2 + sigma^2`` the variance of the noisy latents:
    ``skip = (2 sigma - 1) / v``, ``out = scale_in = v^-1/2``.

    Source:
        The construction of Karras et al., arXiv:2206.00364, appendix B.6, for rectified flow.
    """
    variance = (1.0 - sigma).square() + sigma.square()
    scale = variance.rsqrt()
    return (2.0 * sigma - 1.0) / variance, scale, scale


class CellNorm(nn.Module):
    """RMS normalisation over channels in every cell; nothing is averaged over space or time."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width, 1, 1))

    def forward(self, x: Float[Tensor, "bt d h w"]) -> Float[Tensor, "bt d h w"]:
        """Scale every cell to unit root mean square, then each channel by its own factor."""
        return x * torch.rsqrt(x.square().mean(dim=1, keepdim=True) + 1e-6) * self.scale


def zeroed(layer: nn.Module) -> nn.Module:
    """The layer with all its weights set to zero."""
    for parameter in layer.parameters():
        nn.init.zeros_(parameter)
    return layer


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions in each latent frame and one over three neighbouring frames.

    ``condition`` (per latent frame) scales and shifts the features between the convolutions; a
    block built with a condition width of 0 takes none. Frames are folded into the batch: CPU
    libraries run 2D convolutions best.
    """

    def __init__(self, width: int, condition_width: int, width_in: int | None = None) -> None:
        super().__init__()
        width_in = width_in or width
        self.norm_in = CellNorm(width_in)
        self.conv_in = nn.Conv2d(width_in, width, 3, padding=1)
        self.norm_out = CellNorm(width)
        self.modulation = zeroed(nn.Linear(condition_width, 2 * width)) if condition_width else None
        self.conv_out = zeroed(nn.Conv2d(width, width, 3, padding=1))
        self.conv_time = nn.Conv1d(width, width, 3, padding=1)
        zeroed(self.conv_time)
        self.skip = nn.Conv2d(width_in, width, 1) if width_in != width else nn.Identity()

    def forward(
        self,
        x: Float[Tensor, "bt c h w"],
        condition: Float[Tensor, "bt e"] | None,
        num_frames: int,
    ) -> Float[Tensor, "bt d h w"]:
        """Add what the convolutions find; frames are folded into the batch, time fastest."""
        hidden = self.norm_out(self.conv_in(functional.silu(self.norm_in(x))))
        if self.modulation is not None:
            scale, shift = self.modulation(condition)[:, :, None, None].chunk(2, dim=1)
            hidden = hidden * (1.0 + scale) + shift
        hidden = functional.silu(hidden)
        return self.skip(x) + self.conv_out(hidden) + self._over_time(hidden, num_frames)

    def _over_time(
        self, hidden: Float[Tensor, "bt d h w"], num_frames: int
    ) -> Float[Tensor, "bt d h w"]:
        # Three 1x1 convolutions on shifted frames: no transposition of the whole tensor. Frames
        # before the first and after the last one count as zero.
        weight: Tensor = self.conv_time.weight
        taps = weight[..., None, None].unbind(2)
        middle = functional.conv2d(hidden, taps[1], self.conv_time.bias)
        if num_frames == 1:
            return middle
        frames = hidden.unflatten(0, (-1, num_frames))
        before = functional.conv2d(frames[:, :-1].flatten(0, 1), taps[0])
        after = functional.conv2d(frames[:, 1:].flatten(0, 1), taps[2])
        before = before.unflatten(0, (-1, num_frames - 1))
        after = after.unflatten(0, (-1, num_frames - 1))
        sides = functional.pad(before, (0, 0, 0, 0, 0, 0, 1, 0)) + functional.pad(
            after, (0, 0, 0, 0, 0, 0, 0, 1)
        )
        return middle + sides.flatten(0, 1)


def rotary_angles(num_frames: int, height: int, width: int, head_width: int) -> Tensor:
    """Rotary angles of every token (t h w), ``n e/2``: a quarter of them for time, the rest for
    rows and columns. Positions are cells, so that other sizes keep the distances of training."""
    half = head_width // 2
    parts = (half - 2 * (3 * half // 8), 3 * half // 8, 3 * half // 8)
    grids = torch.meshgrid(
        torch.arange(num_frames), torch.arange(height), torch.arange(width), indexing="ij"
    )
    angles = [
        grid.reshape(-1, 1) * ROPE_BASE ** (-torch.arange(part) / part)
        for grid, part in zip(grids, parts, strict=True)
    ]
    return torch.cat(angles, dim=1)


def rotate(x: Float[Tensor, "b a n e"], angles: Float[Tensor, "n e2"]) -> Float[Tensor, "b a n e"]:
    """Rotate pairs of features by their token's angles."""
    first, second = x.chunk(2, dim=-1)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1)


class Attention(nn.Module):
    """Self-attention over all cells of all latent frames, then cross-attention to the text."""

    def __init__(self, width: int, text_width: int, head_width: int) -> None:
        super().__init__()
        self.head_width = head_width
        self.norm_self = nn.RMSNorm(width, eps=1e-6)
        self.to_qkv = nn.Linear(width, 3 * width, bias=False)
        self.self_out = zeroed(nn.Linear(width, width))
        self.norm_cross = nn.RMSNorm(width, eps=1e-6)
        self.to_query = nn.Linear(width, width, bias=False)
        self.to_key_value = nn.Linear(text_width, 2 * width, bias=False)
        self.cross_out = zeroed(nn.Linear(width, width))
        self.norm_heads = nn.RMSNorm(head_width, eps=1e-6)

    def forward(
        self, x: Float[Tensor, "bt d h w"], text: Float[Tensor, "b m e"], num_frames: int
    ) -> Float[Tensor, "bt d h w"]:
        """Let every cell look at all others, then at the text."""
        height, width = x.shape[-2:]
        tokens = rearrange(x, "(b t) d h w -> b (t h w) d", t=num_frames)
        angles = rotary_angles(num_frames, height, width, self.head_width).to(tokens.device)
        query, key, value = (
            self._heads(y) for y in self.to_qkv(self.norm_self(tokens)).chunk(3, -1)
        )
        query, key = (rotate(self.norm_heads(y), angles) for y in (query, key))
        attended = functional.scaled_dot_product_attention(query, key, value)
        tokens = tokens + self.self_out(rearrange(attended, "b a n e -> b n (a e)"))
        query = self.norm_heads(self._heads(self.to_query(self.norm_cross(tokens))))
        key, value = (self._heads(y) for y in self.to_key_value(text).chunk(2, -1))
        attended = functional.scaled_dot_product_attention(query, self.norm_heads(key), value)
        tokens = tokens + self.cross_out(rearrange(attended, "b a n e -> b n (a e)"))
        return rearrange(tokens, "b (t h w) d -> (b t) d h w", t=num_frames, h=height)

    def _heads(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b a n e"]:
        return rearrange(x, "b n (a e) -> b a n e", e=self.head_width)


class LatentUNet(nn.Module):
    """Predicts the velocity of noisy latents from sigma, text and the branches' residuals.

    Residuals are added after the last block before the down-sampling and after the first one after
    the up-sampling: the first tells the inner blocks what is where, the second draws it.
    """

    num_controlled_blocks = 2

    def __init__(self, settings: LatentUNetConfig) -> None:
        super().__init__()
        self.settings = settings
        width, inner = settings.width, settings.inner_width
        condition = 2 * width
        self.config = SimpleNamespace(
            in_channels=settings.latent_channels + 1,
            out_channels=settings.latent_channels,
            patch_size=(1, 1, 1),
            max_size=(1_024, 1_024, 1_024),
            img_context_dim_in=None,
        )
        self.embed_sigma = nn.Sequential(
            nn.Linear(width, condition), nn.SiLU(), nn.Linear(condition, condition)
        )
        self.embed_text = nn.Linear(settings.text_width, condition)
        self.read = nn.Conv2d(settings.latent_channels + 1, width, 3, padding=1)
        self.down_blocks = nn.ModuleList(
            ResidualBlock(width, condition) for _ in range(settings.num_outer_blocks)
        )
        self.down = nn.Conv2d(width, inner, 2, stride=2)
        self.inner_blocks = nn.ModuleList(
            ResidualBlock(inner, condition) for _ in range(settings.num_inner_blocks)
        )
        self.attention = nn.ModuleList(
            Attention(inner, settings.text_width, settings.head_width)
            for _ in range(settings.num_inner_blocks - 1)
        )
        self.up = nn.ConvTranspose2d(inner, width, 2, stride=2)
        self.up_blocks = nn.ModuleList(
            ResidualBlock(width, condition, 2 * width if i == 0 else width)
            for i in range(settings.num_outer_blocks)
        )
        self.norm = CellNorm(width)
        self.write = zeroed(nn.Conv2d(width, settings.latent_channels, 3, padding=1))

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights."""
        return self.read.weight.dtype

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> LatentUNet:
        """Build an untrained network from the fields of its settings."""
        return cls(LatentUNetConfig(**config))

    def forward(
        self,
        hidden_states: Float[Tensor, "b c t h w"],
        timestep: Float[Tensor, " b"],
        encoder_hidden_states: Float[Tensor, "b m e"],
        block_controlnet_hidden_states: list[Float[Tensor, "b n d"]] | None = None,
        condition_mask: Float[Tensor, "b 1 t h w"] | None = None,
        padding_mask: Tensor | None = None,
        return_dict: bool = False,
    ) -> tuple[Float[Tensor, "b c t h w"]]:
        """Predict the velocity; argument names are those of diffusers' Cosmos transformer.

        Args:
            hidden_states: Noisy latents; frames whose condition mask is 1 are clean.
            timestep: Sigma of each clip, in [0, 1].
            encoder_hidden_states: Text tokens.
            block_controlnet_hidden_states: One fused residual per controlled block.
            condition_mask: 1 at latent frames that are given.
            padding_mask: Accepted for the shared signature; this network sees no padding.
            return_dict: Accepted for the shared signature; the result is always a tuple.
        """
        batch_size, _, num_frames, height, _ = hidden_states.shape
        if condition_mask is None:
            condition_mask = torch.zeros_like(hidden_states[:, :1])
        text = encoder_hidden_states
        sigma = timestep[:, None] * (1.0 - condition_mask[:, 0, :, 0, 0])  # b t
        skip, out, scale_in = (y[:, None, :, None, None] for y in flow_preconditioning(sigma))
        condition = self.embed_sigma(embed_sigma(sigma, self.settings.width).to(self.dtype))
        condition = condition + self.embed_text(text.mean(dim=1))[:, None]
        condition = functional.silu(condition).flatten(0, 1)  # (b t) e
        residuals = [
            rearrange(y, "b (t h w) d -> (b t) d h w", t=num_frames, h=height)
            for y in block_controlnet_hidden_states or ()
        ]

        # Sigma is float32 in every dtype; from here on the networks' own.
        frames = torch.cat([hidden_states * scale_in, condition_mask], dim=1).to(self.dtype)
        x = self.read(rearrange(frames, "b c t h w -> (b t) c h w"))
        for block in self.down_blocks:
            x = block(x, condition, num_frames)
        if residuals:
            x = x + residuals[0]
        inner = self.down(pad_to_even(x))
        inner = self.inner_blocks[0](inner, condition, num_frames)
        for attention, block in zip(self.attention, self.inner_blocks[1:], strict=True):
            inner = block(attention(inner, text, num_frames), condition, num_frames)
        x = torch.cat([x, self.up(inner)[..., : x.shape[-2], : x.shape[-1]]], dim=1)
        for index, block in enumerate(self.up_blocks):
            x = block(x, condition, num_frames)
            if index == 0 and residuals:
                x = x + residuals[1]
        x = self.write(functional.silu(self.norm(x)))
        predicted = rearrange(x, "(b t) c h w -> b c t h w", b=batch_size)
        return (skip * hidden_states + out * predicted,)


def embed_sigma(sigma: Float[Tensor, "b t"], width: int) -> Float[Tensor, "b t d"]:
    """Sines and cosines of sigma at geometrically spaced frequencies."""
    spacing = math.log(HIGHEST_FREQUENCY / LOWEST_FREQUENCY)
    exponents = torch.linspace(0.0, spacing, width // 2, device=sigma.device)
    angles = sigma[..., None] * LOWEST_FREQUENCY * exponents.exp()
    return torch.cat([angles.cos(), angles.sin()], dim=-1)


def pad_to_even(x: Float[Tensor, "b d h w"]) -> Float[Tensor, "b d h2 w2"]:
    """Repeat the last row and column where their number is odd."""
    return functional.pad(x, (0, x.shape[-1] % 2, 0, x.shape[-2] % 2), mode="replicate")


class LatentUNetBranch(nn.Module):
    """Reads one control and says what it adds to each controlled block of the base.

    Unlike a Cosmos branch it does not look at the noisy latents: what a control says about a
    place is the same at every step, and is computed once. Its outputs start at zero.
    """

    reads_latents = False

    def __init__(self, settings: LatentUNetBranchConfig) -> None:
        super().__init__()
        self.settings = settings
        width = settings.width
        self.config = SimpleNamespace(
            n_controlnet_blocks=settings.num_blocks,
            model_channels=width,
            patch_size=(1, 1, 1),
            latent_channels=settings.latent_channels + 2,
        )
        self.read = nn.Conv2d(settings.control_channels, width, 1)
        self.blocks = nn.ModuleList(ResidualBlock(width, 0) for _ in range(settings.num_blocks))
        self.outputs = nn.ModuleList(
            nn.Sequential(CellNorm(width), zeroed(nn.Conv2d(width, width, 1)))
            for _ in range(settings.num_blocks)
        )

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights."""
        return self.read.weight.dtype

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> LatentUNetBranch:
        """Build an untrained branch from the fields of its settings."""
        return cls(LatentUNetBranchConfig(**config))

    def forward(
        self,
        controls_latents: Float[Tensor, "b c t h w"],
        latents: Tensor | None = None,
        timestep: Tensor | None = None,
        encoder_hidden_states: Tensor | None = None,
        condition_mask: Tensor | None = None,
        padding_mask: Tensor | None = None,
        return_dict: bool = False,
    ) -> tuple[list[Float[Tensor, "b n d"]]]:
        """One residual per controlled block; argument names are those of diffusers' branch.

        Args:
            controls_latents: The encoded control clip. The other arguments are accepted for the
                shared signature and not read.
        """
        batch_size, _, num_frames = controls_latents.shape[:3]
        x = self.read(rearrange(controls_latents, "b c t h w -> (b t) c h w"))
        residuals = []
        for block, output in zip(self.blocks, self.outputs, strict=True):
            x = block(x, None, num_frames)
            residuals.append(rearrange(output(x), "(b t) d h w -> b (t h w) d", b=batch_size))
        return (residuals,)
