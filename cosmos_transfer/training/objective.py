"""What training minimises: rectified flow under randomly drawn controls.

``noisy = (1 - sigma) * clean + sigma * noise``; the model predicts ``noise - clean``. Squared
errors are multiplied by ``(1 - sigma)^2 + sigma^2``, the variance of the noisy latents, so that
every sigma asks for the same amount (``model.latent_unet.flow_preconditioning``).
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from cosmos_transfer.model.controlled import ControlledModel

# Sigma is drawn logit-normal; both in logits. Most draws are noisy: controls decide what a clip
# shows while sigma is above about 0.6, and hardly matter to the loss below.
SIGMA_CENTRE = 1.6
SIGMA_SPREAD = 1.4


def draw_sigma(batch_size: int, generator: torch.Generator) -> Float[Tensor, " b"]:
    """Noise levels in (0, 1), most of them near 1.

    Source:
        Logit-normal sampling: Stable Diffusion 3, arXiv:2403.03206, section 3.1.
    """
    return torch.sigmoid(SIGMA_CENTRE + SIGMA_SPREAD * torch.randn(batch_size, generator=generator))


def flow_loss(
    model: ControlledModel,
    clean_latents: Float[Tensor, "b c t h w"],
    text_tokens: Float[Tensor, "b m d"],
    control_latents: Mapping[str, Float[Tensor, "b p t h w"]],
    weights: Mapping[str, Float[Tensor, "b n"]],
    *,
    sigma: Float[Tensor, " b"],
    noise: Float[Tensor, "b c t h w"],
    num_clean_frames: int = 0,
    channel_weights: Float[Tensor, " c"] | None = None,
) -> Float[Tensor, " b"]:
    """The loss of every clip; 1 is what the best linear denoiser of white latents gets.

    Frames that are given clean are left out of it. ``channel_weights`` (mean 1) say how much each
    latent channel counts; all the same by default.
    """
    level = sigma[:, None, None, None, None]
    noisy = (1.0 - level) * clean_latents + level * noise
    if num_clean_frames:
        noisy = torch.cat(
            [clean_latents[:, :, :num_clean_frames], noisy[:, :, num_clean_frames:]], dim=2
        )
    velocity = model(noisy, sigma, text_tokens, control_latents, weights, num_clean_frames)
    error = (velocity - (noise - clean_latents))[:, :, num_clean_frames:]
    variance = (1.0 - sigma).square() + sigma.square()
    squares = error.square()
    if channel_weights is not None:
        squares = squares * channel_weights[:, None, None, None]
    return squares.flatten(1).mean(dim=1) * variance


def visibility_weights(deviations: Float[Tensor, " c"]) -> Float[Tensor, " c"]:
    """Loss weights of whitened channels, mean 1, from their deviations before whitening.

    Whitening makes a channel that moves pixels by a hundredth count like the one that holds their
    mean colour. The square root stands between that and the error of pixels.
    """
    roots = deviations.sqrt()
    return roots / roots.mean()
