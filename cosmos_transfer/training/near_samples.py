"""Samples that lie near clips that are known: what the decoder learns to repair.

A clip's latents are carried part of the way into noise and brought back by the denoiser, under
controls and weights drawn as in its own training. What returns shows the clip as a sampler would:
the right scene, with outlines and small things where the sampler put them. The decoder is to make
the clip of it, with the help of the same controls under the same weights.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from cosmos_transfer.training.batches import ClipPool
from cosmos_transfer.training.control_draw import draw_active
from cosmos_transfer.training.data import CONTROL_NAMES
from cosmos_transfer.training.networks import EmbeddedNetworks

# How far into noise a clip is carried: little repairs nothing, all of it shows another clip.
LEAST_SIGMA = 0.25
LARGEST_SIGMA = 0.9
FEWEST_STEPS, MOST_STEPS = 2, 4
# Share of the clips shown as the encoder left them but for plain noise of at most this deviation,
# so that a true clip still decodes to itself.
SHARE_ENCODED = 0.3
ENCODED_NOISE = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class NearSamples:
    """Latents, the clips that they should decode to, and the controls that acted."""

    video: Float[Tensor, "b 3 f h w"]
    latents: Float[Tensor, "b z t hz wz"]
    controls: dict[str, Float[Tensor, "b p t hz wz"]]
    weights: dict[str, Float[Tensor, "b n"]]

    def at(self, clips: np.ndarray) -> NearSamples:
        """Some of the clips, by their numbers."""
        index = torch.from_numpy(clips)
        return NearSamples(
            video=self.video[index],
            latents=self.latents[index],
            controls={name: each[index] for name, each in self.controls.items()},
            weights={name: each[index] for name, each in self.weights.items()},
        )


@torch.no_grad()
def draw_near_samples(
    networks: EmbeddedNetworks,
    pool: ClipPool,
    rng: np.random.Generator,
    *,
    num_clips: int,
    num_latent_frames: int,
    device: str = "cpu",
) -> NearSamples:
    """Draw crops of clips and let the denoiser make them again.

    Args:
        networks: Whose denoiser samples; nothing of it is changed.
        pool: Where clips come from.
        rng: Decides everything.
        num_clips: Clips to draw; they share which controls are active.
        num_latent_frames: How long they are.
        device: Where the networks are.
    """
    active = draw_active(CONTROL_NAMES, rng)
    strides = networks.autoencoder.strides
    batch = pool.draw(
        num_clips,
        active,
        rng,
        num_frames=strides.pixel_frames(num_latent_frames),
        crop=pool.crop_size(strides.space),
    )
    encoded = networks.encode_batch(batch, rng, device=device)
    clean = encoded.clean
    text = networks.text_encoder.encode(batch.prompts)
    generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
    noise = torch.randn(clean.shape, generator=generator).to(device)
    start = torch.from_numpy(rng.uniform(LEAST_SIGMA, LARGEST_SIGMA, num_clips)).float().to(device)
    num_steps = int(rng.integers(FEWEST_STEPS, MOST_STEPS + 1))

    made = clean + _spread(start) * (noise - clean)
    for step in range(num_steps):
        sigma = start * (1.0 - step / num_steps)
        velocity = networks.model(made, sigma, text, encoded.controls, encoded.weights)
        made = made - _spread(start / num_steps) * velocity
    level = torch.from_numpy(rng.uniform(0.0, ENCODED_NOISE, num_clips)).float().to(device)
    only_noisy = clean + _spread(level) * noise
    is_encoded = torch.from_numpy(rng.random(num_clips) < SHARE_ENCODED).to(device)
    latents = torch.where(_spread(is_encoded), only_noisy, made)
    return NearSamples(
        video=batch.video.to(device),
        latents=latents,
        controls=encoded.controls,
        weights=encoded.weights,
    )


def _spread(values: Shaped[Tensor, " b"]) -> Shaped[Tensor, "b 1 1 1 1"]:
    return values[:, None, None, None, None]
