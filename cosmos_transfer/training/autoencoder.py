"""Trains the embedded autoencoder's decoder; its encoder is linear and stays as it is.

The decoder is shown what a sampler makes of known clips (``training.near_samples``), together with
the controls that acted, and is to draw the clip itself: what it repairs in training it repairs at
run time.
"""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from cosmos_transfer.autoencoder.causal_video import CausalVideoAutoencoder
from cosmos_transfer.errors import CheckpointError, explain
from cosmos_transfer.model.controlled_decoder import controlled_residuals
from cosmos_transfer.training.batches import ClipPool
from cosmos_transfer.training.ema import MovingAverage
from cosmos_transfer.training.near_samples import NearSamples, draw_near_samples
from cosmos_transfer.training.networks import UNREADABLE_STATE, EmbeddedNetworks
from cosmos_transfer.training.optimizer import MuonAdam

log = logging.getLogger(__name__)

# Clips the denoiser makes at a time, and the steps that are taken on them: making them costs more
# than a step does.
SAMPLED_CLIPS = 12
SAMPLED_LATENT_FRAMES = 2  # a latent frame is decoded by itself: the first kind, and the other one
STEPS_PER_SAMPLING = 6
GRADIENT_WEIGHT = 0.5
CONTRAST_WEIGHT = 0.5
CONTRAST_WINDOW, CONTRAST_STRIDE = 8, 4  # pixels
COOL_DOWN = 0.4
NUM_COMPONENT_CLIPS = 400

DECODER_FILE = "autoencoder.pt"
"""The averaged weights, which are what is shipped."""
METRICS_FILE = "autoencoder_metrics.jsonl"
"""A line every fifty steps; the denoiser of the same run has a file of its own."""
STATE_FILE = "autoencoder_state.pt"
"""What a run keeps to be taken up again."""


def fit_encoder(autoencoder: CausalVideoAutoencoder, pool: ClipPool, *, seed: int = 0) -> None:
    """Set the linear encoder to the principal components of clips drawn from ``pool``."""
    num_frames = pool.shards[0].looks.shape[2]
    rng = np.random.default_rng(seed)
    batch = pool.draw(NUM_COMPONENT_CLIPS, (), rng, num_frames=num_frames)
    autoencoder.start_from_principal_components(autoencoder.to_groups(batch.video))


def reconstruction_loss(
    decoded: Float[Tensor, "*b h w"], target: Float[Tensor, "*b h w"]
) -> Float[Tensor, ""]:
    """Absolute error of colours, and of their differences between neighbouring pixels: the second
    part is what keeps edges where they are and as steep as they are."""
    loss = (decoded - target).abs().mean()
    for axis in (-2, -1):
        loss = (
            loss + GRADIENT_WEIGHT * (decoded.diff(dim=axis) - target.diff(dim=axis)).abs().mean()
        )
    return loss


def contrast_loss(
    decoded: Float[Tensor, "*b h w"], target: Float[Tensor, "*b h w"]
) -> Float[Tensor, ""]:
    """Absolute error of the local contrast: the root mean square, in windows of 8x8 pixels, of
    differences between neighbouring pixels.

    Where a sampler leaves open how a texture runs, the least absolute error is its mean, which is
    no texture; this says how much of one there is to be, and not how it runs.
    """
    loss = decoded.new_zeros(())
    for axis in (-2, -1):
        made, true = (_contrast(each.diff(dim=axis)) for each in (decoded, target))
        loss = loss + (made - true).abs().mean()
    return loss


def _contrast(differences: Float[Tensor, "*b h w"]) -> Float[Tensor, "bs 1 h2 w2"]:
    squares = differences.flatten(0, -3).square()[:, None]
    window = min(CONTRAST_WINDOW, *squares.shape[-2:])
    # The small number bounds the slope of the root where nothing changes.
    return (functional.avg_pool2d(squares, window, CONTRAST_STRIDE) + 1e-5).sqrt()


def decoder_loss(autoencoder: CausalVideoAutoencoder, samples: NearSamples) -> Float[Tensor, ""]:
    """The loss of samples decoded under the controls that made them."""
    residuals = controlled_residuals(autoencoder, samples.controls, samples.weights)
    decoded = autoencoder.decode(samples.latents, residuals, clamp=False)
    return reconstruction_loss(decoded, samples.video) + CONTRAST_WEIGHT * contrast_loss(
        decoded, samples.video
    )


def train_decoder(
    networks: EmbeddedNetworks,
    pool: ClipPool,
    *,
    run_dir: Path,
    duration_s: float,
    batch_size: int = 4,
    rate: float = 0.5,
    seed: int = 0,
    device: str = "cpu",
    save_every_s: float = 240.0,
) -> Path:
    """Train for ``duration_s`` seconds and leave the averaged weights in the autoencoder.

    The denoiser of ``networks`` makes what the decoder is trained on, and is not changed. A run
    that was stopped is taken up from what it saved last.

    Returns:
        Where the weights were written, too: ``run_dir/autoencoder.pt``.

    Raises:
        CheckpointError: The folder holds a run of another encoder, or a damaged one.
    """
    run_dir.mkdir(parents=True, exist_ok=True)
    autoencoder = networks.to(device).autoencoder
    networks.requires_grad_(False)
    encoder_parameters = {id(p) for p in autoencoder.project.parameters()}
    for parameter in autoencoder.parameters():
        parameter.requires_grad_(id(parameter) not in encoder_parameters)
    optimizer = MuonAdam([("autoencoder", autoencoder)])
    average = MovingAverage(autoencoder, decay=0.995)
    step = _resume(run_dir, autoencoder, average, optimizer)
    samples: NearSamples | None = None
    started = last_save = time.monotonic()
    losses: list[float] = []
    while (spent := time.monotonic() - started) < duration_s:
        if samples is None or step % STEPS_PER_SAMPLING == 0:
            sampling = np.random.default_rng([seed, step // STEPS_PER_SAMPLING])
            samples = draw_near_samples(
                networks,
                pool,
                sampling,
                num_clips=max(SAMPLED_CLIPS, batch_size),
                num_latent_frames=SAMPLED_LATENT_FRAMES,
                device=device,
            )
        remaining = 1.0 - spent / duration_s
        optimizer.set_rate(rate * min(1.0, (step + 1) / 50, remaining / COOL_DOWN))
        rng = np.random.default_rng([seed, 1, step])
        loss = decoder_loss(
            autoencoder, samples.at(rng.choice(len(samples.video), batch_size, replace=False))
        )
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(autoencoder.parameters(), 1.0)
        optimizer.step()
        average.update(autoencoder)
        losses.append(loss.item())
        step += 1
        if len(losses) == 50:
            entry = {
                "step": step,
                "elapsed_s": round(spent, 1),
                "loss": round(float(np.mean(losses)), 5),
            }
            with (run_dir / METRICS_FILE).open("a") as file:
                file.write(json.dumps(entry) + "\n")
            log.info("%s", entry)
            losses = []
        if time.monotonic() - last_save > save_every_s:
            _save(run_dir, autoencoder, average, optimizer, step)
            last_save = time.monotonic()
    _save(run_dir, autoencoder, average, optimizer, step)
    autoencoder.load_state_dict(average.weights)
    return run_dir / DECODER_FILE


def put_decoder(autoencoder: CausalVideoAutoencoder, path: Path) -> None:
    """Load autoencoder weights that were trained apart, if they are of the same encoder.

    Raises:
        CheckpointError: No such file, a damaged one, or weights of another encoder.
    """
    _put(autoencoder, _read(path), path)


def _save(
    run_dir: Path,
    autoencoder: CausalVideoAutoencoder,
    average: MovingAverage,
    optimizer: MuonAdam,
    step: int,
) -> None:
    state = {
        "weights": autoencoder.state_dict(),
        "average": average.weights,
        "num_updates": average.num_updates,
        "optimizer": optimizer.state_dict(),
        "num_steps": step,
    }
    for name, content in ((STATE_FILE, state), (DECODER_FILE, average.weights)):
        partial = run_dir / f".{name}.partial"
        torch.save(content, partial)
        partial.replace(run_dir / name)


def _resume(
    run_dir: Path,
    autoencoder: CausalVideoAutoencoder,
    average: MovingAverage,
    optimizer: MuonAdam,
) -> int:
    """Take up what was saved in the folder; the number of steps done."""
    path = run_dir / STATE_FILE
    if not path.is_file():
        return 0
    state = _read(path)
    _put(autoencoder, state["weights"], path)
    device = next(autoencoder.parameters()).device
    average.weights = {name: value.to(device) for name, value in state["average"].items()}
    average.num_updates = state["num_updates"]
    optimizer.load_state_dict(state["optimizer"])
    return int(state["num_steps"])


def _read(path: Path) -> dict[str, Any]:
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except UNREADABLE_STATE as error:
        raise _unfit(path, str(error).splitlines()[0] if str(error) else "nothing") from error
    return state


def _put(autoencoder: CausalVideoAutoencoder, weights: dict[str, Tensor], path: Path) -> None:
    encoder = autoencoder.project.weight
    try:
        if not torch.allclose(
            weights["project.weight"].to(encoder.device), encoder, rtol=1e-3, atol=1e-3
        ):
            raise _unfit(path, "those of another encoder")
        autoencoder.load_state_dict(weights)
    except UNREADABLE_STATE as error:
        raise _unfit(path, str(error).splitlines()[0]) from error


def _unfit(path: Path, got: str) -> CheckpointError:
    return CheckpointError(
        explain(
            str(path),
            expected="weights of an autoencoder with the same linear encoder",
            got=got,
            do="Train the decoder in a folder of its own, with the encoder of the run.",
        )
    )
