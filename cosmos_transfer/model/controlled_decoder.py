"""Latents to video under the same controls and the same weights that steered the denoiser."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from cosmos_transfer.autoencoder.base import Autoencoder
from cosmos_transfer.autoencoder.causal_video import CausalVideoAutoencoder
from cosmos_transfer.weights.fusion import fuse_residuals


def decode_controlled(
    autoencoder: Autoencoder,
    latents: Float[Tensor, "b c t hz wz"],
    control_latents: Mapping[str, Float[Tensor, "b p t hz wz"]],
    weights: Mapping[str, Float[Tensor, "b n"]],
) -> Float[Tensor, "b 3 f h w"]:
    """Decode; where the decoder has branches of its own, let the active controls draw in it.

    Args:
        autoencoder: Any; one without branches decodes the latents alone.
        latents: What the sampler made.
        control_latents: The encoded clips of the active controls.
        weights: Token weights of the same controls, one token a latent cell.
    """
    if not isinstance(autoencoder, CausalVideoAutoencoder):
        return autoencoder.decode(latents)
    return autoencoder.decode(latents, controlled_residuals(autoencoder, control_latents, weights))


def controlled_residuals(
    autoencoder: CausalVideoAutoencoder,
    control_latents: Mapping[str, Float[Tensor, "b p t hz wz"]],
    weights: Mapping[str, Float[Tensor, "b n"]],
) -> list[Float[Tensor, "b n _"]]:
    """What the controls add to the decoder: ``sum_k w_k r_k``, as in the denoiser.

    Empty where no active control has a branch in the decoder.
    """
    names = [name for name in control_latents if name in autoencoder.branches]
    if not names:
        return []
    return fuse_residuals(
        [autoencoder.run_branch(name, control_latents[name]) for name in names],
        torch.stack([weights[name] for name in names]),
    )
