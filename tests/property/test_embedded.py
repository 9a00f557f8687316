"""What holds for the embedded checkpoint's parts at any size, any length, any noise level."""

from __future__ import annotations

import torch
from einops import rearrange
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from cosmos_transfer.autoencoder.causal_video import CausalVideoAutoencoder
from cosmos_transfer.model.latent_unet import flow_preconditioning
from cosmos_transfer.shapes import Strides
from cosmos_transfer.training.optimizer import orthogonalize
from cosmos_transfer.weights.fusion import token_weights
from tests.support.embedded import AUTOENCODER, UNET, tiny_branch, tiny_unet
from tests.support.numerics import assert_agrees
from tests.support.tiny import randn

few = settings(max_examples=25, deadline=None)
latent_frames, cells = st.integers(1, 4), st.integers(1, 6)


@few
@given(t=latent_frames, h=cells, w=cells, batch=st.integers(1, 3))
def test_clips_fold_and_unfold_without_loss(t: int, h: int, w: int, batch: int) -> None:
    autoencoder = CausalVideoAutoencoder(AUTOENCODER)
    clip = randn(batch, 3, 4 * t - 3, 4 * h, 4 * w, seed=t)
    folded = autoencoder.encode_control(clip)
    assert folded.shape == (batch, 192, t, h, w)
    pictures = nn.functional.pixel_shuffle(rearrange(folded, "b p t h w -> (b t) p h w"), 4)
    assert torch.equal(autoencoder.from_groups(pictures, batch), clip)


@few
@given(t=latent_frames, h=cells, w=cells)
@torch.no_grad()
def test_residuals_have_one_token_a_cell_and_one_weight_a_token(t: int, h: int, w: int) -> None:
    unet, branch = tiny_unet(seed=1), tiny_branch(seed=2)
    (residuals,) = branch(randn(1, 6, t, h, w, seed=3))
    maps = torch.rand(1, 4 * t - 3, 4 * h, 4 * w, generator=torch.Generator().manual_seed(4))
    weights = token_weights(maps, Strides(time=4, space=4), (1, 1, 1))
    weighted = [each * weights[..., None] for each in residuals]
    noisy = randn(1, UNET.latent_channels, t, h, w, seed=5)
    text = randn(1, 3, UNET.text_width, seed=6)
    (velocity,) = unet(noisy, torch.tensor([0.4]), text, weighted)
    assert velocity.shape == noisy.shape
    assert bool(torch.isfinite(velocity).all())


@settings(deadline=None)
@given(sigma=st.floats(0.0, 1.0))
def test_the_velocity_is_split_into_what_is_known_and_what_is_not(sigma: float) -> None:
    skip, out, scale_in = (
        float(each) for each in flow_preconditioning(torch.tensor(sigma, dtype=torch.float64))
    )
    variance = (1 - sigma) ** 2 + sigma**2
    assert abs(scale_in**2 * variance - 1.0) < 1e-12
    # The velocity has variance 2: what noisy latents tell of it, and what is left to learn.
    assert abs(skip**2 * variance + out**2 - 2.0) < 1e-12


@few
@given(rows=st.integers(1, 24), columns=st.integers(1, 24), seed=st.integers(0, 1000))
def test_orthogonalizing_ignores_the_size_of_the_gradient(
    rows: int, columns: int, seed: int
) -> None:
    matrix = randn(rows, columns, seed=seed)
    one = orthogonalize(matrix)
    assert one.shape == matrix.shape
    assert_agrees(orthogonalize(1e3 * matrix), one, rms=1e-2)
    assert float(torch.linalg.matrix_norm(one.double(), 2)) < 1.3
