"""How a network's inputs and output relate to noisy and clean latents.

Samplers know one convention, rectified flow: ``noisy = (1 - s) * clean + s * noise`` with ``s``
in [0, 1]. A network trained on it is read by :class:`Flow`. Cosmos-Transfer1 was trained as an EDM
denoiser, on ``x = clean + sigma * noise`` with sigma from 0 to 80; with ``s = sigma / (1 + sigma)``
the two noisy latents differ by the factor ``1 - s`` alone, and :class:`Edm` translates.

Source:
    Karras et al., arXiv:2206.00364, equation 7 and table 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

# Transfer1 tells its network that inherited frames carry this much noise (they carry none here:
# 0.2 % of the data's deviation, which would only make two runs of a clip differ).
TRANSFER1_CLEAN_SIGMA = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """A network that predicts the velocity ``noise - clean``."""

    timestep_scale: float

    def network_input(
        self, noisy: Float[Tensor, "b c t h w"], sigma: Float[Tensor, " b"], num_clean_frames: int
    ) -> Float[Tensor, "b c t h w"]:
        """The noisy latents as they are."""
        return noisy

    def timestep(self, sigma: Float[Tensor, " b"]) -> Float[Tensor, " b"]:
        """What the time embedding receives, in float32: half precision would round steps away."""
        return sigma.to(torch.float32) * self.timestep_scale

    def denoised(
        self,
        noisy: Float[Tensor, "b c t h w"],
        output: Float[Tensor, "b c t h w"],
        sigma: float,
    ) -> Float[Tensor, "b c t h w"]:
        """Estimate of the clean latents."""
        return noisy - sigma * output


@dataclass(frozen=True, slots=True)
class Edm:
    """A network preconditioned as EDM's ``F``: unit variance in, unit variance out.

    ``sigma_data`` is the standard deviation of the latents it was trained on.
    """

    sigma_data: float

    def network_input(
        self, noisy: Float[Tensor, "b c t h w"], sigma: Float[Tensor, " b"], num_clean_frames: int
    ) -> Float[Tensor, "b c t h w"]:
        """``c_in * x``; frames that are clean are scaled by the ``c_in`` of nearly no noise."""
        s = rearrange(sigma.to(torch.float64), "b -> b 1 1 1 1")
        scale = ((s**2 + (self.sigma_data * (1.0 - s)) ** 2) ** -0.5).to(noisy)
        scaled = noisy * scale
        if num_clean_frames == 0:
            return scaled
        clean = noisy[:, :, :num_clean_frames] / math.hypot(TRANSFER1_CLEAN_SIGMA, self.sigma_data)
        return torch.cat([clean, scaled[:, :, num_clean_frames:]], dim=2)

    def timestep(self, sigma: Float[Tensor, " b"]) -> Float[Tensor, " b"]:
        """``c_noise``: a quarter of the logarithm of the ratio of noise to signal."""
        s = sigma.to(torch.float64)
        return (0.25 * torch.log(s / (1.0 - s))).to(torch.float32)

    def denoised(
        self,
        noisy: Float[Tensor, "b c t h w"],
        output: Float[Tensor, "b c t h w"],
        sigma: float,
    ) -> Float[Tensor, "b c t h w"]:
        """``c_skip * x + c_out * F``, with x the noisy latents in EDM's scale."""
        data, signal = self.sigma_data, 1.0 - sigma
        variance = sigma**2 + (data * signal) ** 2
        skip = data**2 * signal / variance
        out = sigma * data / math.sqrt(variance)
        return skip * noisy + out * output
