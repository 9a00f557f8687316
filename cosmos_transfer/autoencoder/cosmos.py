"""Cosmos' causal 8x8x8 tokenizer with 16 channels, which Cosmos-Transfer1 works in.

The networks are diffusers' ``AutoencoderKLCosmos``. Its statistics are per channel *and* per latent
frame; latents are normalised by them and then scaled to a standard deviation of a half, which is
what Transfer1's networks were trained on.
"""

from __future__ import annotations

import torch
from diffusers import AutoencoderKLCosmos
from jaxtyping import Float
from torch import Tensor, nn

from cosmos_transfer.autoencoder.base import check_on_grid
from cosmos_transfer.errors import CheckpointError, ShapeError, explain
from cosmos_transfer.shapes import Strides

# Standard deviation of the latents that Transfer1's networks see.
SIGMA_DATA = 0.5


class CosmosAutoencoder(nn.Module):
    """``AutoencoderKLCosmos`` behind the :class:`~cosmos_transfer.autoencoder.base.Autoencoder`."""

    latents_mean: Tensor
    latents_std: Tensor

    def __init__(self, network: AutoencoderKLCosmos) -> None:
        super().__init__()
        config = network.config
        channels = int(config.latent_channels)
        for name in ("latents_mean", "latents_std"):
            values = getattr(config, name, None) or ()
            if not values or len(values) % channels:
                raise CheckpointError(
                    explain(
                        "autoencoder",
                        expected=f"{channels} numbers a latent frame as {name} in its config",
                        got=f"{len(values)}",
                        do="Use the config.json published with the weights.",
                    )
                )
        self.network = network
        self.strides = Strides(
            time=int(config.temporal_compression_ratio),
            space=int(config.spatial_compression_ratio),
        )
        self.latent_channels = channels
        for name in ("latents_mean", "latents_std"):
            table = torch.tensor(getattr(config, name)).reshape(1, channels, -1, 1, 1)
            self.register_buffer(name, table, persistent=False)

    @torch.no_grad()
    def encode(self, video: Float[Tensor, "b 3 f h w"]) -> Float[Tensor, "b c t hz wz"]:
        """Encode a clip that lies on the grid; the mode, normalised to a deviation of a half."""
        check_on_grid(video, self.strides)
        raw = self.network.encode(video.to(self.network.dtype)).latent_dist.mode().to(video.dtype)
        mean, std = self._statistics(raw)
        return (raw - mean) / std * SIGMA_DATA

    def encode_control(self, video: Float[Tensor, "b 3 f h w"]) -> Float[Tensor, "b c t hz wz"]:
        """Encode a control clip: Cosmos' branches read the same latents as its base."""
        return self.encode(video)

    @torch.no_grad()
    def decode(self, latents: Float[Tensor, "b c t hz wz"]) -> Float[Tensor, "b 3 f h w"]:
        """Decode normalised latents to video in [-1, 1], in the latents' dtype."""
        mean, std = self._statistics(latents)
        raw = latents / SIGMA_DATA * std + mean
        (video,) = self.network.decode(raw.to(self.network.dtype), return_dict=False)
        return video.clamp(-1.0, 1.0).to(latents.dtype)

    def _statistics(self, latents: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and deviation of as many latent frames; one entry stands for any number."""
        num_frames, known = latents.shape[2], self.latents_mean.shape[2]
        if known != 1 and num_frames > known:
            raise ShapeError(
                explain(
                    "autoencoder",
                    expected=f"at most {known} latent frames, as its statistics cover",
                    got=f"{num_frames}",
                    do="Generate in chunks of the checkpoint's own length.",
                )
            )
        stop = min(known, num_frames)
        return (
            self.latents_mean[:, :, :stop].to(latents.dtype),
            self.latents_std[:, :, :stop].to(latents.dtype),
        )
