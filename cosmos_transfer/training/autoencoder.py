"""Trains the embedded autoencoder's decoder; its encoder is linear and stays as it is.

The decoder is shown latents with noise on them: those it will get from a sampler are never quite
the ones of a real clip, and what it learns to repair here it repairs there.
"""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from cosmos_transfer.autoencoder.causal_video import CausalVideoAutoencoder
from cosmos_transfer.training.batches import ClipPool
from cosmos_transfer.training.ema import MovingAverage
from cosmos_transfer.training.optimizer import MuonAdam

log = logging.getLogger(__name__)

# Largest standard deviation of the noise on latents, whose own is 1.
LATENT_NOISE = 0.25
GRADIENT_WEIGHT = 0.5
COOL_DOWN = 0.4
NUM_COMPONENT_CLIPS = 400


def fit_encoder(autoencoder: CausalVideoAutoencoder, pool: ClipPool, *, seed: int = 0) -> None:
    """Set the linear encoder to the principal components of clips drawn from ``pool``."""
    num_frames = pool.shards[0].looks.shape[2]
    rng = np.random.default_rng(seed)
    batch = pool.draw(NUM_COMPONENT_CLIPS, (), rng, num_frames=num_frames)
    autoencoder.start_from_principal_components(autoencoder.to_groups(batch.video))


def reconstruction_loss(
    decoded: Float[Tensor, "b c h w"], target: Float[Tensor, "b c h w"]
) -> Float[Tensor, ""]:
    """Absolute error of colours, and of their differences between neighbouring pixels: the second
    part is what keeps edges where they are and as steep as they are."""
    loss = (decoded - target).abs().mean()
    for axis in (-2, -1):
        loss = (
            loss + GRADIENT_WEIGHT * (decoded.diff(dim=axis) - target.diff(dim=axis)).abs().mean()
        )
    return loss


def train_decoder(
    autoencoder: CausalVideoAutoencoder,
    pool: ClipPool,
    *,
    run_dir: Path,
    duration_s: float,
    batch_size: int = 4,
    rate: float = 0.5,
    seed: int = 0,
) -> Path:
    """Train for ``duration_s`` seconds and leave the averaged weights in ``autoencoder``.

    Returns:
        Where the weights were written, too: ``run_dir/autoencoder.pt``.
    """
    run_dir.mkdir(parents=True, exist_ok=True)
    encoder_parameters = {id(p) for p in autoencoder.project.parameters()}
    for parameter in autoencoder.parameters():
        parameter.requires_grad_(id(parameter) not in encoder_parameters)
    optimizer = MuonAdam([("autoencoder", autoencoder)])
    average = MovingAverage(autoencoder, decay=0.995)
    num_frames = pool.shards[0].looks.shape[2]
    started = time.monotonic()
    losses: list[float] = []
    step = 0
    while (spent := time.monotonic() - started) < duration_s:
        rng = np.random.default_rng([seed, step])
        generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
        remaining = 1.0 - spent / duration_s
        optimizer.set_rate(rate * min(1.0, (step + 1) / 50, remaining / COOL_DOWN))
        target = autoencoder.to_groups(pool.draw(batch_size, (), rng, num_frames=num_frames).video)
        with torch.no_grad():
            latents = autoencoder.encode_groups(target)
            level = LATENT_NOISE * torch.rand(len(latents), 1, 1, 1, generator=generator)
            latents = latents + level * torch.randn(latents.shape, generator=generator)
        loss = reconstruction_loss(autoencoder.decode_groups(latents), target)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(autoencoder.parameters(), 1.0)
        optimizer.step()
        average.update(autoencoder)
        losses.append(loss.item())
        step += 1
        if len(losses) == 50:
            entry = {"step": step, "elapsed_s": round(spent, 1), "loss": round(np.mean(losses), 5)}
            with (run_dir / "metrics.jsonl").open("a") as file:
                file.write(json.dumps(entry) + "\n")
            log.info("%s", entry)
            losses = []
    autoencoder.load_state_dict(average.weights)
    path = run_dir / "autoencoder.pt"
    torch.save(average.weights, path)
    return path
