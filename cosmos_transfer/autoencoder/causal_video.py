"""The embedded checkpoint's autoencoder: 4x4x4 pixels of video to 16 numbers.

Conventions
    The first frame is a latent frame of its own; every later latent frame holds the next four
    pixel frames. A latent frame is encoded and decoded by itself, as one picture whose channels
    are the colours of its four frames (the first frame is shown four times). That makes the
    autoencoder causal, lets any chunk be decoded alone, and keeps it two-dimensional, which is
    what two CPU cores can train.

    The encoder is linear: the whitened principal components of 4x4x4 patches. It needs no
    training, so that the denoiser can be trained on it from the first minute; the decoder is
    convolutional and may be trained further without touching the denoiser.

    A control is not compressed (:meth:`CausalVideoAutoencoder.encode_control`): the branches read
    all 192 numbers of a patch, so that an edge is known to the pixel.

    The decoder is controlled too. Sixteen numbers a patch cannot hold where every outline runs, and
    a sampler does not get them all right; the controls know. Each control has a
    :class:`DecoderBranch`, whose residuals are weighted and summed as those of the denoiser's
    branches are (``model.controlled_decoder``): no control, or weights of zero, is plain decoding.

    Latents leave :meth:`CausalVideoAutoencoder.encode` normalised to zero mean and unit variance
    per channel. Principal components are white already, so the statistics (buffers) stay 0 and 1
    unless an encoder of another kind is put in.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from einops import rearrange, repeat
from jaxtyping import Float
from torch import Tensor, nn

from cosmos_transfer.autoencoder.base import check_on_grid
from cosmos_transfer.shapes import Strides


@dataclass(frozen=True, slots=True, kw_only=True)
class CausalVideoConfig:
    """Sizes of the autoencoder."""

    latent_channels: int = 16
    width: int = 96  # channels of the decoder's trunk, at one cell per 4x4 pixels
    num_decoder_blocks: int = 4
    pixel_width: int = 24  # channels of the convolutions that run at full resolution
    num_pixel_layers: int = 1  # of those between the first and the last
    controls: tuple[str, ...] = ()  # those the decoder has a branch for
    time_stride: int = 4
    space_stride: int = 4


def zero_init(layer: nn.Conv2d) -> nn.Conv2d:
    """The layer, with weights and bias set to zero: its path starts as nothing."""
    nn.init.zeros_(layer.weight)
    assert layer.bias is not None
    nn.init.zeros_(layer.bias)
    return layer


class ChannelNorm(nn.Module):
    """RMS normalisation over channels at every cell: no statistics across space, so that padding
    or tiling a clip changes nothing away from its border."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1, width, 1, 1))

    def forward(self, x: Float[Tensor, "b d h w"]) -> Float[Tensor, "b d h w"]:
        """Scale every cell to unit root mean square, then each channel by its own factor."""
        return x * torch.rsqrt(x.square().mean(dim=1, keepdim=True) + 1e-6) * self.scale


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions around a SiLU, normalised per cell over channels."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = ChannelNorm(width)
        self.conv_in = nn.Conv2d(width, width, 3, padding=1)
        self.conv_out = zero_init(nn.Conv2d(width, width, 3, padding=1))

    def forward(self, x: Float[Tensor, "b d h w"]) -> Float[Tensor, "b d h w"]:
        """Add what the convolutions find."""
        return x + self.conv_out(nn.functional.silu(self.conv_in(self.norm(x))))


class DecoderBranch(nn.Module):
    """Says what one control adds to the decoder's trunk and to its full-resolution features.

    Nothing here looks at the latents, and both outputs start at zero.
    """

    def __init__(self, channels: int, width: int, detail_channels: int) -> None:
        super().__init__()
        self.read = nn.Conv2d(channels, width, 1)
        self.block = ResidualBlock(width)
        self.norm = ChannelNorm(width)
        self.to_trunk = zero_init(nn.Conv2d(width, width, 1))
        # The second reads the patch itself too, and so can copy an outline pixel by pixel.
        self.to_detail = zero_init(nn.Conv2d(width + channels, detail_channels, 1))

    def forward(
        self, patches: Float[Tensor, "bt p h w"]
    ) -> tuple[Float[Tensor, "bt d h w"], Float[Tensor, "bt e h w"]]:
        """Residuals of the trunk and of the folded full-resolution features."""
        x = self.norm(self.block(self.read(patches)))
        return self.to_trunk(x), self.to_detail(torch.cat([x, patches], dim=1))


class CausalVideoAutoencoder(nn.Module):
    """Video in [-1, 1] to normalised latents and back."""

    latent_mean: Tensor
    latent_std: Tensor

    def __init__(self, config: CausalVideoConfig) -> None:
        super().__init__()
        self.settings = config
        self.strides = Strides(time=config.time_stride, space=config.space_stride)
        self.latent_channels = config.latent_channels
        patch = 3 * config.time_stride * config.space_stride**2
        self.unshuffle = nn.PixelUnshuffle(config.space_stride)
        self.project = nn.Conv2d(patch, config.latent_channels, 1)
        self.decoder = nn.Sequential(
            nn.Conv2d(config.latent_channels, config.width, 3, padding=1),
            *(ResidualBlock(config.width) for _ in range(config.num_decoder_blocks)),
            ChannelNorm(config.width),
        )
        self.unproject = nn.Conv2d(config.latent_channels, patch, 1)
        detail_channels = config.pixel_width * config.space_stride**2
        self.to_detail = nn.Conv2d(config.width, detail_channels, 1)
        self.shuffle = nn.PixelShuffle(config.space_stride)
        self.detail = nn.Sequential(
            *(
                layer
                for _ in range(config.num_pixel_layers)
                for layer in (
                    nn.SiLU(),
                    nn.Conv2d(config.pixel_width, config.pixel_width, 3, padding=1),
                )
            ),
            nn.SiLU(),
            zero_init(nn.Conv2d(config.pixel_width, 3 * config.time_stride, 3, padding=1)),
        )
        self.branches = nn.ModuleDict(
            {name: DecoderBranch(patch, config.width, detail_channels) for name in config.controls}
        )
        self.register_buffer("latent_mean", torch.zeros(config.latent_channels))
        self.register_buffer("latent_std", torch.ones(config.latent_channels))

    @property
    def config(self) -> dict[str, Any]:
        """The settings as a JSON-ready mapping."""
        return asdict(self.settings)

    @property
    def channel_deviations(self) -> Float[Tensor, " z"]:
        """Deviations of the latent channels before whitening, in the units of pixels: a row of the
        encoder is a component of unit length divided by its deviation."""
        return self.project.weight.detach().flatten(1).norm(dim=1).reciprocal()

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> CausalVideoAutoencoder:
        """Build an untrained autoencoder from :attr:`config`."""
        controls = tuple(config.get("controls", ()))  # a JSON list
        return cls(CausalVideoConfig(**config | {"controls": controls}))

    def to_groups(self, video: Float[Tensor, "b 3 f h w"]) -> Float[Tensor, "bt c h w"]:
        """Frames to one picture a latent frame; channels are (colour, frame of the group)."""
        check_on_grid(video, self.strides)
        stride = self.strides.time
        first = repeat(video[:, :, :1], "b c 1 h w -> b c s h w", s=stride)
        return rearrange(
            torch.cat([first, video[:, :, 1:]], dim=2),
            "b c (t s) h w -> (b t) (c s) h w",
            s=stride,
        )

    def from_groups(
        self, groups: Float[Tensor, "bt c h w"], batch_size: int
    ) -> Float[Tensor, "b 3 f h w"]:
        """The inverse of :meth:`to_groups`; the first group's four pictures are averaged."""
        video = rearrange(
            groups, "(b t) (c s) h w -> b c t s h w", b=batch_size, s=self.strides.time
        )
        first = video[:, :, 0].mean(dim=2, keepdim=True)
        return torch.cat([first, rearrange(video[:, :, 1:], "b c t s h w -> b c (t s) h w")], dim=2)

    def encode_groups(self, groups: Float[Tensor, "bt c h w"]) -> Float[Tensor, "bt z hz wz"]:
        """Pictures of four frames to raw latents, before normalisation."""
        return self.project(self.unshuffle(groups))

    def decode_groups(
        self,
        raw_latents: Float[Tensor, "bt z hz wz"],
        residuals: tuple[Float[Tensor, "bt d hz wz"], Float[Tensor, "bt e hz wz"]] | None = None,
    ) -> Float[Tensor, "bt c h w"]:
        """Raw latents to pictures of four frames, unclamped.

        Args:
            raw_latents: Latents before normalisation.
            residuals: What the controls add, fused: to the trunk and to the folded features.
        """
        x = self.decoder[0](raw_latents)
        if residuals is not None:
            x = x + residuals[0]
        features = self.to_detail(self.decoder[1:](x))
        if residuals is not None:
            features = features + residuals[1]
        return self.shuffle(self.unproject(raw_latents)) + self.detail(self.shuffle(features))

    @torch.no_grad()
    def start_from_principal_components(self, groups: Float[Tensor, "bt c h w"]) -> None:
        """Set the two linear projections to the whitened principal components of ``groups``.

        The decoder's convolutional path ends in zero weights, so the untrained autoencoder is then
        exactly the best linear one, and training only has to find what convolutions add to it.
        """
        patches = rearrange(self.unshuffle(groups), "b c h w -> (b h w) c").double()
        mean = patches.mean(dim=0)
        variances, components = torch.linalg.eigh(torch.cov((patches - mean).T))
        keep = slice(-self.latent_channels, None)
        std = variances[keep].clamp_min(1e-12).sqrt()
        whiten = components[:, keep].T / std[:, None]
        assert self.project.bias is not None
        assert self.unproject.bias is not None
        self.project.weight.copy_(whiten[:, :, None, None])
        self.project.bias.copy_(-whiten @ mean)
        self.unproject.weight.copy_((components[:, keep] * std)[:, :, None, None])
        self.unproject.bias.copy_(mean)

    def encode(self, video: Float[Tensor, "b 3 f h w"]) -> Float[Tensor, "b z t hz wz"]:
        """Encode a clip whose length lies on ``1 + 4 i`` and whose sides are multiples of 4."""
        raw = self.encode_groups(self.to_groups(video))
        raw = (raw - self.latent_mean[:, None, None]) / self.latent_std[:, None, None]
        return rearrange(raw, "(b t) z h w -> b z t h w", b=video.shape[0])

    @property
    def control_channels(self) -> int:
        """Channels of what :meth:`encode_control` returns."""
        return 3 * self.strides.time * self.strides.space**2

    def encode_control(self, video: Float[Tensor, "b 3 f h w"]) -> Float[Tensor, "b p t hz wz"]:
        """Fold a control clip onto the latent grid without loss."""
        patches = self.unshuffle(self.to_groups(video))
        return rearrange(patches, "(b t) p h w -> b p t h w", b=video.shape[0])

    def run_branch(
        self, name: str, control: Float[Tensor, "b p t hz wz"]
    ) -> list[Float[Tensor, "b n _"]]:
        """What one control adds at weight 1: one residual per place, tokens time-slowest."""
        patches = rearrange(control, "b p t h w -> (b t) p h w")
        return [
            rearrange(residual, "(b t) d h w -> b (t h w) d", b=control.shape[0])
            for residual in self.branches[name](patches)
        ]

    def decode(
        self,
        latents: Float[Tensor, "b z t hz wz"],
        residuals: list[Float[Tensor, "b n _"]] | None = None,
        *,
        clamp: bool = True,
    ) -> Float[Tensor, "b 3 f h w"]:
        """Decode normalised latents to video in [-1, 1].

        Args:
            latents: What the sampler made.
            residuals: What the controls add, weighted and summed over them; see
                :meth:`run_branch`.
            clamp: Cut what lies outside [-1, 1]; training needs to see it.
        """
        batch_size, _, num_frames, height, _ = latents.shape
        raw = rearrange(latents, "b z t h w -> (b t) z h w")
        raw = raw * self.latent_std[:, None, None] + self.latent_mean[:, None, None]
        folded = None
        if residuals:
            trunk, detail = (
                rearrange(each, "b (t h w) d -> (b t) d h w", t=num_frames, h=height)
                for each in residuals
            )
            folded = (trunk, detail)
        video = self.from_groups(self.decode_groups(raw, folded), batch_size)
        return video.clamp(-1.0, 1.0) if clamp else video
