from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from cosmos_transfer.autoencoder.causal_video import CausalVideoAutoencoder
from cosmos_transfer.errors import CheckpointError
from cosmos_transfer.training.autoencoder import (
    METRICS_FILE,
    contrast_loss,
    decoder_loss,
    fit_encoder,
    put_decoder,
    reconstruction_loss,
    train_decoder,
)
from cosmos_transfer.training.batches import ClipPool
from cosmos_transfer.training.near_samples import draw_near_samples
from cosmos_transfer.training.networks import EmbeddedNetworks, new_networks
from tests.support.embedded import AUTOENCODER, UNET
from tests.support.shards import write_shards
from tests.support.tiny import randn


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> ClipPool:
    pool = ClipPool(write_shards(tmp_path_factory.mktemp("shards")))
    pool.refresh()
    return pool


def networks_for(pool: ClipPool) -> EmbeddedNetworks:
    torch.manual_seed(0)
    networks = new_networks(AUTOENCODER, UNET)
    fit_encoder(networks.autoencoder, pool)
    return networks


def fitted(pool: ClipPool) -> CausalVideoAutoencoder:
    return networks_for(pool).autoencoder


def error_of(networks: EmbeddedNetworks, pool: ClipPool) -> float:
    """The loss on samples that no step of a run with seed 0 is taken on."""
    losses = []
    for seed in range(4):
        samples = draw_near_samples(
            networks, pool, np.random.default_rng([9, seed]), num_clips=8, num_latent_frames=2
        )
        with torch.no_grad():
            losses.append(float(decoder_loss(networks.autoencoder, samples)))
    return sum(losses) / len(losses)


def test_the_loss_counts_colours_and_their_steps() -> None:
    target = randn(2, 3, 5, 6, seed=1)
    assert float(reconstruction_loss(target, target)) == 0.0
    # A shift of all colours leaves steps alone; a checkerboard of the same size doubles them.
    assert float(reconstruction_loss(target + 0.5, target)) == pytest.approx(0.5, rel=1e-5)
    rows, columns = torch.meshgrid(torch.arange(5), torch.arange(6), indexing="ij")
    board = 0.5 - (rows + columns) % 2
    assert float(reconstruction_loss(target + board, target)) == pytest.approx(1.5, rel=1e-5)


def test_the_contrast_of_a_blurred_picture_is_too_small_and_of_other_noise_it_is_right() -> None:
    target = 0.3 * randn(2, 3, 32, 48, seed=1)
    other = 0.3 * randn(2, 3, 32, 48, seed=2)
    blurred = torch.nn.functional.avg_pool2d(target, 3, stride=1, padding=1)
    assert float(contrast_loss(target, target)) == 0.0
    assert float(contrast_loss(other, target)) < 0.25 * float(contrast_loss(blurred, target))
    # By definition: in flat noise of deviation s, differences have deviation s * sqrt 2, on 2 axes.
    flat = torch.zeros_like(target)
    assert float(contrast_loss(flat, target)) == pytest.approx(2 * 0.3 * 2**0.5, rel=0.05)


def test_latents_of_a_fitted_encoder_are_white(pool: ClipPool) -> None:
    autoencoder = fitted(pool)
    with torch.no_grad():
        batch = [
            torch.from_numpy(shard.looks.reshape(-1, *shard.looks.shape[2:])).permute(0, 4, 1, 2, 3)
            / 127.5
            - 1.0
            for shard in pool.shards
        ]
        latents = autoencoder.encode(torch.cat(batch)).transpose(0, 1).flatten(1)
    assert float(latents.mean(dim=1).abs().max()) < 0.2
    assert float((latents.std(dim=1) - 1.0).abs().max()) < 0.2


def test_training_betters_the_decoder_and_leaves_the_encoder(
    pool: ClipPool, tmp_path: Path
) -> None:
    networks = networks_for(pool)
    autoencoder = networks.autoencoder
    denoiser = {name: value.clone() for name, value in networks.model.state_dict().items()}
    encoder = {name: value.clone() for name, value in autoencoder.project.state_dict().items()}
    before = error_of(networks, pool)
    path = train_decoder(networks, pool, run_dir=tmp_path, duration_s=8.0, rate=1.0)
    after = error_of(networks, pool)
    assert after < 0.97 * before
    for name, value in encoder.items():
        assert torch.equal(value, autoencoder.project.state_dict()[name])
    for name, value in denoiser.items():
        assert torch.equal(value, networks.model.state_dict()[name]), name
    again = networks_for(pool)
    put_decoder(again.autoencoder, path)
    assert error_of(again, pool) == after
    assert {each.name for each in tmp_path.iterdir()} >= {"autoencoder.pt", "autoencoder_state.pt"}


def test_a_stopped_run_is_taken_up(pool: ClipPool, tmp_path: Path) -> None:
    train_decoder(networks_for(pool), pool, run_dir=tmp_path, duration_s=0.3, save_every_s=0.0)
    first = torch.load(tmp_path / "autoencoder_state.pt", weights_only=True)
    assert first["num_steps"] > 0
    # No time at all: what comes back is what was saved.
    networks = networks_for(pool)
    train_decoder(networks, pool, run_dir=tmp_path, duration_s=0.0)
    for name, value in first["average"].items():
        assert torch.equal(networks.autoencoder.state_dict()[name], value), name
    train_decoder(networks_for(pool), pool, run_dir=tmp_path, duration_s=0.3)
    second = torch.load(tmp_path / "autoencoder_state.pt", weights_only=True)
    assert second["num_steps"] > first["num_steps"]
    assert second["num_updates"] == second["num_steps"]
    if (tmp_path / METRICS_FILE).exists():
        steps = [json.loads(each)["step"] for each in (tmp_path / METRICS_FILE).open()]
        assert steps == sorted(steps)


def test_a_decoder_of_another_encoder_is_refused(pool: ClipPool, tmp_path: Path) -> None:
    other = networks_for(pool)
    with torch.no_grad():
        other.autoencoder.project.weight.neg_()
    train_decoder(other, pool, run_dir=tmp_path, duration_s=0.0)
    autoencoder = fitted(pool)
    with pytest.raises(CheckpointError, match="another encoder"):
        put_decoder(autoencoder, tmp_path / "autoencoder.pt")
    with pytest.raises(CheckpointError, match="another encoder"):
        train_decoder(networks_for(pool), pool, run_dir=tmp_path, duration_s=0.0)


def test_near_samples_are_drawn_from_the_generator_alone(pool: ClipPool) -> None:
    networks = networks_for(pool)
    first, same, other = (
        draw_near_samples(
            networks, pool, np.random.default_rng(seed), num_clips=5, num_latent_frames=3
        )
        for seed in (3, 3, 4)
    )
    assert torch.equal(first.latents, same.latents)
    assert first.latents.shape != other.latents.shape or not torch.equal(
        first.latents, other.latents
    )
    assert first.controls.keys() == first.weights.keys()
    some = first.at(np.array([4, 1]))
    assert torch.equal(some.video, first.video[[4, 1]])
    for name, weights in some.weights.items():
        assert torch.equal(weights, first.weights[name][[4, 1]])


def test_a_denoiser_that_knows_the_answer_gives_the_clip_back(pool: ClipPool) -> None:
    """Planted: with the true velocity, the latents that come back are the clip's own."""
    networks = networks_for(pool)
    clean: dict[str, torch.Tensor] = {}
    encode = networks.autoencoder.encode

    def remember(video: torch.Tensor) -> torch.Tensor:
        clean["latents"] = encode(video)
        return clean["latents"]

    def velocity(noisy: torch.Tensor, sigma: torch.Tensor, *_: object) -> torch.Tensor:
        return (noisy - clean["latents"]) / sigma[:, None, None, None, None]

    networks.autoencoder.encode = remember  # type: ignore[method-assign]
    networks.model.forward = velocity  # type: ignore[method-assign,assignment]
    samples = draw_near_samples(
        networks, pool, np.random.default_rng(0), num_clips=16, num_latent_frames=3
    )
    error = (samples.latents - clean["latents"]).square().mean(dim=(1, 2, 3, 4)).sqrt()
    known = error < 1e-4
    assert 4 <= int(known.sum()) < 16  # the others are the encoder's own, with noise on them
    assert float(error.max()) < 0.31


@pytest.mark.parametrize("content", [None, b"", b"text"], ids=["missing", "empty", "text"])
def test_damaged_decoder_weights_are_named(
    pool: ClipPool, tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "autoencoder.pt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"autoencoder\.pt") as caught:
        put_decoder(fitted(pool), path)
    assert "\n" not in str(caught.value)
