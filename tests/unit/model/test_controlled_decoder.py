"""The decoder hears the controls under the same weights as the denoiser does."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from cosmos_transfer.autoencoder.causal_video import CausalVideoAutoencoder
from cosmos_transfer.model.controlled_decoder import controlled_residuals, decode_controlled
from tests.support.embedded import AUTOENCODER, randomized
from tests.support.tiny import randn

GRID = (2, 3, 4)
NUM_TOKENS = 24


@pytest.fixture
def autoencoder() -> CausalVideoAutoencoder:
    return randomized(CausalVideoAutoencoder(AUTOENCODER).eval(), 5)


@pytest.fixture
def latents() -> Tensor:
    return randn(1, AUTOENCODER.latent_channels, *GRID, seed=1)


def control(autoencoder: CausalVideoAutoencoder, seed: int) -> Tensor:
    return randn(1, autoencoder.control_channels, *GRID, seed=seed)


def test_no_control_and_zero_weights_are_plain_decoding(
    autoencoder: CausalVideoAutoencoder, latents: Tensor
) -> None:
    plain = autoencoder.decode(latents)
    assert torch.equal(decode_controlled(autoencoder, latents, {}, {}), plain)
    edge = {"edge": control(autoencoder, 2)}
    silent = decode_controlled(autoencoder, latents, edge, {"edge": torch.zeros(1, NUM_TOKENS)})
    assert torch.equal(silent, plain)
    heard = decode_controlled(autoencoder, latents, edge, {"edge": torch.ones(1, NUM_TOKENS)})
    assert not torch.equal(heard, plain)


def test_an_untrained_branch_says_nothing(latents: Tensor) -> None:
    torch.manual_seed(0)
    untrained = CausalVideoAutoencoder(AUTOENCODER)
    edge = {"edge": control(untrained, 2)}
    weights = {"edge": torch.ones(1, NUM_TOKENS)}
    assert torch.equal(
        decode_controlled(untrained, latents, edge, weights), untrained.decode(latents)
    )


def test_residuals_are_the_weighted_sum_over_controls(autoencoder: CausalVideoAutoencoder) -> None:
    controls = {"edge": control(autoencoder, 2), "seg": control(autoencoder, 3)}
    weights = {name: torch.rand(1, NUM_TOKENS) for name in controls}
    together = controlled_residuals(autoencoder, controls, weights)
    for index, fused in enumerate(together):
        expected = sum(
            weights[name][..., None].double() * autoencoder.run_branch(name, each)[index].double()
            for name, each in controls.items()
        )
        assert isinstance(expected, Tensor)
        torch.testing.assert_close(fused.double(), expected, rtol=1e-5, atol=1e-6)


def test_a_token_with_no_weight_adds_nothing_there(autoencoder: CausalVideoAutoencoder) -> None:
    weights = torch.ones(1, NUM_TOKENS)
    weights[:, 7] = 0.0
    for fused in controlled_residuals(
        autoencoder, {"edge": control(autoencoder, 2)}, {"edge": weights}
    ):
        silent = (fused == 0).all(dim=-1)[0]
        assert silent.nonzero().flatten().tolist() == [7]


def test_residuals_land_on_their_own_cells(
    autoencoder: CausalVideoAutoencoder, latents: Tensor
) -> None:
    """Heard in the second latent frame alone, a control moves no pixel of the first."""
    weights = torch.zeros(1, *GRID)
    weights[:, 1] = 1.0
    moved = decode_controlled(
        autoencoder, latents, {"edge": control(autoencoder, 2)}, {"edge": weights.flatten(1)}
    )
    same = (moved == autoencoder.decode(latents)).all(dim=1).flatten(2).all(dim=2)[0]
    assert same.tolist() == [True, False, False, False, False]


def test_a_control_the_decoder_has_no_branch_for_is_left_to_the_denoiser(latents: Tensor) -> None:
    bare = CausalVideoAutoencoder(replace(AUTOENCODER, controls=("seg",)))
    edge = {"edge": control(bare, 2)}
    weights = {"edge": torch.ones(1, NUM_TOKENS)}
    assert controlled_residuals(bare, edge, weights) == []
    assert torch.equal(decode_controlled(bare, latents, edge, weights), bare.decode(latents))
