"""Distils the embedded model to a few steps without guidance (``embedded-fast``).

The student starts as the teacher. For a step of its own grid of sigmas, from ``sigma`` to the next,
the teacher takes several guided steps; the student is to predict the one velocity that leads where
those led. Where the teacher goes is settled by the noise it starts from, so that the student is not
asked for a mean of clips, as the teacher was in its own training.

Source:
    Progressive distillation: Salimans & Ho, arXiv:2202.00512; of guided models: Meng et al.,
    arXiv:2210.03142.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from cosmos_transfer.diffusion.noise_schedule import flow_sigmas
from cosmos_transfer.training.batches import Batch, ClipPool
from cosmos_transfer.training.loop import Trainer, TrainingConfig
from cosmos_transfer.training.networks import EmbeddedNetworks, EncodedBatch
from cosmos_transfer.training.objective import visibility_weights
from cosmos_transfer.training.prompts import reword


@dataclass(frozen=True, slots=True, kw_only=True)
class DistillationConfig:
    """The student's grid of sigmas, and what the teacher does between two of them."""

    num_steps: int = 3
    shift: float = 3.0
    teacher_steps: int = 4  # in each of the student's
    guidance_scale: float = 1.5


class Distiller(Trainer):
    """Trains base and branches to go where the teacher's guided steps lead."""

    def __init__(
        self,
        networks: EmbeddedNetworks,
        teacher: EmbeddedNetworks,
        pool: ClipPool,
        config: TrainingConfig,
        distillation: DistillationConfig,
    ) -> None:
        super().__init__(networks, pool, config)
        self.teacher = teacher.to(config.device).eval().requires_grad_(False)
        self.distillation = distillation
        self._sigmas = torch.tensor(
            flow_sigmas(distillation.num_steps, shift=distillation.shift)
        ).to(config.device)

    @property
    def _trained(self) -> str:
        return "distill"

    def _loss(self, batch: Batch, rng: np.random.Generator, generator: torch.Generator) -> Tensor:
        config, networks = self.config, self.networks
        encoded = networks.encode_batch(batch, rng, device=config.device)
        clean = encoded.clean
        prompts = reword(batch.prompts, rng, share_empty=config.share_no_text)
        given = rng.random() < config.share_clean_first and clean.shape[2] > 1
        num_clean_frames = 1 if given else 0
        with torch.no_grad():
            text = networks.text_encoder.encode(prompts)
            without = networks.text_encoder.encode([""] * len(prompts))
        step = torch.randint(len(self._sigmas) - 1, (len(clean),), generator=generator)
        sigma, end = self._sigmas[step], self._sigmas[step + 1]
        noise = torch.randn(clean.shape, generator=generator).to(config.device)
        noisy = clean + _spread(sigma) * (noise - clean)
        noisy[:, :, :num_clean_frames] = clean[:, :, :num_clean_frames]

        reached = guided_path(
            self.teacher,
            noisy,
            text,
            without,
            encoded,
            sigma=sigma,
            end=end,
            num_steps=self.distillation.teacher_steps,
            guidance_scale=self.distillation.guidance_scale,
            num_clean_frames=num_clean_frames,
        )
        wanted = (noisy - reached) / _spread(sigma - end)
        velocity = networks.model(
            noisy, sigma, text, encoded.controls, encoded.weights, num_clean_frames
        )
        squares = (velocity - wanted)[:, :, num_clean_frames:].square()
        channels = visibility_weights(networks.autoencoder.channel_deviations)
        return (squares * channels[:, None, None, None]).mean()


@torch.no_grad()
def guided_path(
    networks: EmbeddedNetworks,
    noisy: Float[Tensor, "b c t h w"],
    text: Float[Tensor, "b m d"],
    without_text: Float[Tensor, "b m d"],
    encoded: EncodedBatch,
    *,
    sigma: Float[Tensor, " b"],
    end: Float[Tensor, " b"],
    num_steps: int,
    guidance_scale: float,
    num_clean_frames: int = 0,
) -> Float[Tensor, "b c t h w"]:
    """Where Euler steps of equal size from ``sigma`` to ``end`` lead, with guidance.

    Args:
        networks: Whose denoiser is followed.
        noisy: Latents at ``sigma``; the first ``num_clean_frames`` of them clean, and kept.
        text: Tokens of the prompts.
        without_text: Tokens of empty prompts.
        encoded: Controls and their weights.
        sigma: Where each clip starts.
        end: Where it stops, below ``sigma``.
        num_steps: Steps in between.
        guidance_scale: 1 is none.
        num_clean_frames: Latent frames at the start that are given.
    """
    size = (sigma - end) / num_steps
    latents = noisy
    for step in range(num_steps):
        at = sigma - step * size
        velocity, unguided = (
            networks.model(latents, at, tokens, encoded.controls, encoded.weights, num_clean_frames)
            for tokens in (text, without_text)
        )
        velocity = unguided + guidance_scale * (velocity - unguided)
        moved = latents - _spread(size) * velocity
        latents = torch.cat([latents[:, :, :num_clean_frames], moved[:, :, num_clean_frames:]], 2)
    return latents


def _spread(values: Shaped[Tensor, " b"]) -> Shaped[Tensor, "b 1 1 1 1"]:
    return values[:, None, None, None, None]
