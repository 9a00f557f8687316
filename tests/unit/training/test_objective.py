from __future__ import annotations

import pytest
import torch
from torch import Tensor

from cosmos_transfer.model.controlled import ControlledModel
from cosmos_transfer.training.objective import (
    SIGMA_CENTRE,
    SIGMA_SPREAD,
    draw_sigma,
    flow_loss,
    visibility_weights,
)
from tests.support.embedded import UNET, tiny_branch, tiny_unet
from tests.support.numerics import assert_agrees
from tests.support.tiny import randn


def white(batch: int, frames: int = 3, *, seed: int) -> Tensor:
    return randn(batch, UNET.latent_channels, frames, 6, 8, seed=seed)


def text(batch: int) -> Tensor:
    return randn(batch, 6, UNET.text_width, seed=3)


@torch.no_grad()
def test_an_untrained_network_has_loss_one_at_every_sigma() -> None:
    model = ControlledModel(tiny_unet(), {})
    sigma = torch.tensor([0.02, 0.25, 0.5, 0.75, 0.98])
    loss = flow_loss(model, white(5, seed=1), text(5), {}, {}, sigma=sigma, noise=white(5, seed=2))
    assert loss.shape == (5,)
    # A mean of 576 squares of unit normals: a standard deviation of sqrt(2 / 576) = 0.06.
    assert float((loss - 1.0).abs().max()) < 0.25
    assert abs(float(loss.mean()) - 1.0) < 0.1


@torch.no_grad()
def test_a_network_that_knows_the_answer_has_no_loss() -> None:
    clean, noise = white(2, seed=1), white(2, seed=2)

    class Knows(ControlledModel):
        def forward(self, *_: object, **__: object) -> Tensor:
            return noise - clean

    model = Knows(tiny_unet(), {})
    sigma = torch.tensor([0.3, 0.9])
    assert flow_loss(model, clean, text(2), {}, {}, sigma=sigma, noise=noise).tolist() == [0.0, 0.0]


@torch.no_grad()
def test_the_loss_is_the_error_times_the_variance_of_the_noisy_latents() -> None:
    model = ControlledModel(tiny_unet(seed=4), {}).eval()
    clean, noise, sigma = white(2, seed=1), white(2, seed=2), torch.tensor([0.2, 0.7])
    loss = flow_loss(model, clean, text(2), {}, {}, sigma=sigma, noise=noise)
    for index, level in enumerate(sigma.tolist()):
        noisy = (1 - level) * clean[index] + level * noise[index]
        velocity = model(noisy[None], sigma[index : index + 1], text(2)[index : index + 1], {}, {})
        error = (velocity[0] - (noise - clean)[index]).square().mean()
        assert_agrees(loss[index], error * ((1 - level) ** 2 + level**2), rms=1e-5)


@torch.no_grad()
def test_given_frames_reach_the_model_clean_and_are_left_out_of_the_loss() -> None:
    seen: list[Tensor] = []

    class Watched(ControlledModel):
        def forward(self, noisy: Tensor, *rest: object, **more: object) -> Tensor:
            seen.append(noisy)
            assert rest[-1] == 1
            wrong = torch.zeros_like(noisy)
            wrong[:, :, 0] = 1e6
            return wrong

    model = Watched(tiny_unet(), {})
    clean, noise, sigma = white(2, seed=1), white(2, seed=2), torch.tensor([0.4, 0.6])
    loss = flow_loss(model, clean, text(2), {}, {}, sigma=sigma, noise=noise, num_clean_frames=1)
    assert torch.equal(seen[0][:, :, 0], clean[:, :, 0])
    level = sigma[:, None, None, None, None]
    assert torch.equal(seen[0][:, :, 1:], ((1 - level) * clean + level * noise)[:, :, 1:])
    assert float(loss.max()) < 10.0


def test_controls_reach_the_loss() -> None:
    model = ControlledModel(tiny_unet(seed=4), {"edge": tiny_branch(seed=5)})
    clean, noise, sigma = white(1, seed=1), white(1, seed=2), torch.tensor([0.5])
    control = {"edge": randn(1, 6, 3, 6, 8, seed=6)}
    losses = [
        flow_loss(
            model,
            clean,
            text(1),
            control,
            {"edge": torch.full((1, 144), weight)},
            sigma=sigma,
            noise=noise,
        )
        for weight in (0.0, 1.0)
    ]
    without = flow_loss(model, clean, text(1), {}, {}, sigma=sigma, noise=noise)
    assert_agrees(losses[0], without, rms=1e-5)
    assert abs(float(losses[1].detach() - without.detach())) > 1e-3
    losses[1].sum().backward()
    assert all(parameter.grad is not None for parameter in model.branches.parameters())


def test_sigma_is_logit_normal_and_comes_from_the_generator() -> None:
    sigma = draw_sigma(20_000, torch.Generator().manual_seed(0))
    assert float(sigma.min()) > 0.0
    assert float(sigma.max()) < 1.0
    logits = torch.logit(sigma.double())
    assert float(logits.mean()) == pytest.approx(SIGMA_CENTRE, abs=0.04)
    assert float(logits.std()) == pytest.approx(SIGMA_SPREAD, abs=0.03)
    assert torch.equal(sigma, draw_sigma(20_000, torch.Generator().manual_seed(0)))


@torch.no_grad()
def test_channels_count_by_their_weights() -> None:
    model = ControlledModel(tiny_unet(), {})
    clean, noise, sigma = white(2, seed=1), white(2, seed=2), torch.tensor([0.4, 0.8])

    def loss(channel_weights: Tensor | None) -> Tensor:
        return flow_loss(
            model,
            clean,
            text(2),
            {},
            {},
            sigma=sigma,
            noise=noise,
            channel_weights=channel_weights,
        )

    channels = UNET.latent_channels
    one_by_one = [loss(channels * torch.eye(channels)[index]) for index in range(channels)]
    assert_agrees(torch.stack(one_by_one).mean(dim=0), loss(None), rms=1e-6)
    weights = visibility_weights(torch.tensor([4.0, 1.0, 1.0, 0.25]))
    assert_agrees(weights, [16 / 9, 8 / 9, 8 / 9, 4 / 9], rms=1e-6)
    expected = sum(w * each for w, each in zip(weights, one_by_one, strict=True)) / channels
    assert_agrees(loss(weights), expected, rms=1e-6)
