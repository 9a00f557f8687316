from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from cosmos_transfer.autoencoder.causal_video import CausalVideoAutoencoder
from cosmos_transfer.errors import CheckpointError
from cosmos_transfer.training.autoencoder import (
    fit_encoder,
    put_decoder,
    reconstruction_loss,
    train_decoder,
)
from cosmos_transfer.training.batches import ClipPool
from tests.support.embedded import AUTOENCODER
from tests.support.shards import write_shards
from tests.support.tiny import randn


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> ClipPool:
    pool = ClipPool(write_shards(tmp_path_factory.mktemp("shards")))
    pool.refresh()
    return pool


def fitted(pool: ClipPool, *, seed: int = 0) -> CausalVideoAutoencoder:
    torch.manual_seed(0)
    autoencoder = CausalVideoAutoencoder(AUTOENCODER)
    fit_encoder(autoencoder, pool, seed=seed)
    return autoencoder


def error_of(autoencoder: CausalVideoAutoencoder, pool: ClipPool) -> float:
    losses = []
    with torch.no_grad():
        for shard in pool.shards:
            video = torch.from_numpy(shard.looks[:, 0]).permute(0, 4, 1, 2, 3) / 127.5 - 1.0
            groups = autoencoder.to_groups(video)
            decoded = autoencoder.decode_groups(autoencoder.encode_groups(groups))
            losses.append(float(reconstruction_loss(decoded, groups)))
    return sum(losses) / len(losses)


def test_the_loss_counts_colours_and_their_steps() -> None:
    target = randn(2, 3, 5, 6, seed=1)
    assert float(reconstruction_loss(target, target)) == 0.0
    # A shift of all colours leaves steps alone; a checkerboard of the same size doubles them.
    assert float(reconstruction_loss(target + 0.5, target)) == pytest.approx(0.5, rel=1e-5)
    rows, columns = torch.meshgrid(torch.arange(5), torch.arange(6), indexing="ij")
    board = 0.5 - (rows + columns) % 2
    assert float(reconstruction_loss(target + board, target)) == pytest.approx(1.5, rel=1e-5)


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
    autoencoder = fitted(pool)
    encoder = {name: value.clone() for name, value in autoencoder.project.state_dict().items()}
    before = error_of(autoencoder, pool)
    path = train_decoder(autoencoder, pool, run_dir=tmp_path, duration_s=2.5, rate=1.0)
    assert error_of(autoencoder, pool) < 0.97 * before
    for name, value in encoder.items():
        assert torch.equal(value, autoencoder.project.state_dict()[name])
    again = fitted(pool)
    put_decoder(again, path)
    assert error_of(again, pool) == error_of(autoencoder, pool)
    assert {each.name for each in tmp_path.iterdir()} >= {"autoencoder.pt", "autoencoder_state.pt"}


def test_a_stopped_run_is_taken_up(pool: ClipPool, tmp_path: Path) -> None:
    train_decoder(fitted(pool), pool, run_dir=tmp_path, duration_s=0.3, save_every_s=0.0)
    first = torch.load(tmp_path / "autoencoder_state.pt", weights_only=True)
    assert first["num_steps"] > 0
    # No time at all: what comes back is what was saved.
    autoencoder = fitted(pool)
    train_decoder(autoencoder, pool, run_dir=tmp_path, duration_s=0.0)
    for name, value in first["average"].items():
        assert torch.equal(autoencoder.state_dict()[name], value), name
    train_decoder(fitted(pool), pool, run_dir=tmp_path, duration_s=0.3)
    second = torch.load(tmp_path / "autoencoder_state.pt", weights_only=True)
    assert second["num_steps"] > first["num_steps"]
    assert second["num_updates"] == second["num_steps"]
    if (tmp_path / "metrics.jsonl").exists():
        steps = [json.loads(each)["step"] for each in (tmp_path / "metrics.jsonl").open()]
        assert steps == sorted(steps)


def test_a_decoder_of_another_encoder_is_refused(pool: ClipPool, tmp_path: Path) -> None:
    other = fitted(pool)
    with torch.no_grad():
        other.project.weight.neg_()
    train_decoder(other, pool, run_dir=tmp_path, duration_s=0.0)
    autoencoder = fitted(pool)
    with pytest.raises(CheckpointError, match="another encoder"):
        put_decoder(autoencoder, tmp_path / "autoencoder.pt")
    with pytest.raises(CheckpointError, match="another encoder"):
        train_decoder(autoencoder, pool, run_dir=tmp_path, duration_s=0.0)


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
