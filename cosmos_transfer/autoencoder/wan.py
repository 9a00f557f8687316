"""Wan 2.1's causal 4x8x8 autoencoder with 16 channels, which Cosmos-Transfer2.5 works in.

The networks are diffusers' ``AutoencoderKLWan``. Its encoder gives a distribution; the mode is
taken, so that encoding is a function of the clip alone (diffusers' own pipeline draws a sample).
Latents are normalised by the mean and standard deviation per channel in its config.
"""

from __future__ import annotations

import torch
from diffusers import AutoencoderKLWan
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from cosmos_transfer.autoencoder.base import check_on_grid
from cosmos_transfer.errors import CheckpointError, explain
from cosmos_transfer.shapes import Strides


class WanAutoencoder(nn.Module):
    """``AutoencoderKLWan`` behind the :class:`~cosmos_transfer.autoencoder.base.Autoencoder`."""

    latents_mean: Tensor
    latents_std: Tensor

    def __init__(self, network: AutoencoderKLWan) -> None:
        super().__init__()
        config = network.config
        for name in ("latents_mean", "latents_std"):
            if len(getattr(config, name, None) or ()) != config.z_dim:
                raise CheckpointError(
                    explain(
                        "autoencoder",
                        expected=f"{config.z_dim} numbers as {name} in its config",
                        got=f"{getattr(config, name, None)}",
                        do="Use the config.json published with the weights.",
                    )
                )
        self.network = network
        self.strides = Strides(
            time=2 ** sum(config.temperal_downsample),
            space=2 ** len(config.temperal_downsample) * int(config.patch_size or 1),
        )
        self.latent_channels = int(config.z_dim)
        # Not part of the checkpoint: its config holds them.
        self.register_buffer("latents_mean", torch.tensor(config.latents_mean), persistent=False)
        self.register_buffer("latents_std", torch.tensor(config.latents_std), persistent=False)

    @torch.no_grad()
    def encode(self, video: Float[Tensor, "b 3 f h w"]) -> Float[Tensor, "b c t hz wz"]:
        """Encode a clip that lies on the grid; the mode, normalised, in the video's dtype."""
        check_on_grid(video, self.strides)
        posterior = self.network.encode(video.to(self.network.dtype)).latent_dist
        mean, std = self._statistics()
        # Normalised in the video's dtype: half precision would lose a digit for nothing.
        return (posterior.mode().to(video.dtype) - mean.to(video.dtype)) / std.to(video.dtype)

    def encode_control(self, video: Float[Tensor, "b 3 f h w"]) -> Float[Tensor, "b c t hz wz"]:
        """Encode a control clip: Cosmos' branches read the same latents as its base."""
        return self.encode(video)

    @torch.no_grad()
    def decode(self, latents: Float[Tensor, "b c t hz wz"]) -> Float[Tensor, "b 3 f h w"]:
        """Decode normalised latents to video in [-1, 1], in the latents' dtype."""
        mean, std = self._statistics()
        raw = latents * std.to(latents.dtype) + mean.to(latents.dtype)
        (video,) = self.network.decode(raw.to(self.network.dtype), return_dict=False)
        return video.clamp(-1.0, 1.0).to(latents.dtype)

    def _statistics(self) -> tuple[Tensor, Tensor]:
        return (
            rearrange(self.latents_mean, "c -> 1 c 1 1 1"),
            rearrange(self.latents_std, "c -> 1 c 1 1 1"),
        )
