from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from cosmos_transfer.training.autoencoder import fit_encoder
from cosmos_transfer.training.batches import ClipPool
from cosmos_transfer.training.distill import DistillationConfig, Distiller, guided_path
from cosmos_transfer.training.loop import TrainingConfig
from cosmos_transfer.training.networks import EmbeddedNetworks, EncodedBatch
from tests.support.embedded import tiny_networks
from tests.support.shards import write_shards
from tests.support.tiny import randn


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> ClipPool:
    pool = ClipPool(write_shards(tmp_path_factory.mktemp("shards")))
    pool.refresh()
    return pool


def networks_for(pool: ClipPool, seed: int | None) -> EmbeddedNetworks:
    networks = tiny_networks(seed=seed)
    fit_encoder(networks.autoencoder, pool)
    return networks


def distiller(pool: ClipPool, folder: Path, **settings: float) -> Distiller:
    config = TrainingConfig(
        data_dir=pool.folder, run_dir=folder, batch_size=4, share_single=1.0, warmup_steps=1
    )
    made = Distiller(
        networks_for(pool, 5),
        networks_for(pool, 5),
        pool,
        config,
        DistillationConfig(**settings),  # type: ignore[arg-type]
    )
    made.optimizer.set_rate(0.2)
    return made


def nothing(clean: torch.Tensor) -> EncodedBatch:
    return EncodedBatch(clean=clean, controls={}, weights={})


def test_the_teacher_is_followed_with_guidance_and_keeps_given_frames() -> None:
    """Planted: a velocity that is the mean of the text says where the path ends."""
    networks = tiny_networks(seed=1)

    def velocity(
        noisy: torch.Tensor, sigma: torch.Tensor, text: torch.Tensor, *_: object
    ) -> torch.Tensor:
        return text.mean(dim=(1, 2))[:, None, None, None, None].expand_as(noisy)

    networks.model.forward = velocity  # type: ignore[method-assign,assignment]
    noisy = randn(2, 4, 3, 2, 2, seed=0)
    with_text, without = torch.full((2, 3, 8), 2.0), torch.full((2, 3, 8), 0.5)
    sigma, end = torch.tensor([1.0, 0.6]), torch.tensor([0.6, 0.0])
    reached = guided_path(
        networks,
        noisy,
        with_text,
        without,
        nothing(noisy),
        sigma=sigma,
        end=end,
        num_steps=5,
        guidance_scale=3.0,
        num_clean_frames=1,
    )
    assert torch.equal(reached[:, :, :1], noisy[:, :, :1])
    way = (0.5 + 3.0 * (2.0 - 0.5)) * (sigma - end)
    expected = noisy - way[:, None, None, None, None]
    assert torch.allclose(reached[:, :, 1:], expected[:, :, 1:], atol=1e-5)


def test_one_unguided_step_of_the_teacher_is_what_the_student_does_already(
    pool: ClipPool, tmp_path: Path
) -> None:
    made = distiller(pool, tmp_path, teacher_steps=1, guidance_scale=1.0)
    assert made.step() < 1e-8
    assert distiller(pool, tmp_path, teacher_steps=3, guidance_scale=1.0).step() > 1e-6
    assert distiller(pool, tmp_path, teacher_steps=1, guidance_scale=9.0).step() > 1e-6


def test_the_student_learns_and_nothing_else_moves(pool: ClipPool, tmp_path: Path) -> None:
    made = distiller(pool, tmp_path, guidance_scale=3.0)
    teacher = {name: value.clone() for name, value in made.teacher.state_dict().items()}
    losses = []
    for _ in range(25):
        made.num_steps = 2
        losses.append(made.step())
    assert losses[-1] < 0.8 * losses[0]
    for name, value in made.teacher.state_dict().items():
        assert torch.equal(value, teacher[name]), name
        if name.startswith(("text_encoder.", "autoencoder.")):
            assert torch.equal(value, made.networks.state_dict()[name]), name
    made.save()
    again = distiller(pool, tmp_path, guidance_scale=3.0)
    assert again.resume()
    assert again.num_steps == made.num_steps
    assert np.isfinite(again.step())
