from __future__ import annotations

import pytest
import torch

from cosmos_transfer.autoencoder.base import Autoencoder
from cosmos_transfer.autoencoder.causal_video import CausalVideoAutoencoder, CausalVideoConfig
from cosmos_transfer.autoencoder.wan import WanAutoencoder
from cosmos_transfer.errors import CheckpointError, ShapeError
from cosmos_transfer.shapes import Strides
from tests.support import tiny
from tests.support.numerics import assert_agrees


def clip(num_frames=5, height=16, width=24, seed=0):
    return tiny.randn(1, 3, num_frames, height, width, seed=seed).clamp(-1.0, 1.0)


@pytest.fixture(scope="module")
def network():
    return tiny.wan_autoencoder()


@pytest.fixture(scope="module")
def autoencoder(network):
    return WanAutoencoder(network)


def test_both_autoencoders_keep_the_protocol(autoencoder):
    embedded = CausalVideoAutoencoder(CausalVideoConfig(width=8, pixel_width=2))
    for candidate in (autoencoder, embedded):
        assert isinstance(candidate, Autoencoder)
        video = clip(1 + 2 * candidate.strides.time, 32, 16)
        latents = candidate.encode(video)
        space = candidate.strides.space
        assert latents.shape == (1, candidate.latent_channels, 3, 32 // space, 16 // space)
        assert candidate.decode(latents).shape == video.shape


def test_strides_are_wans(autoencoder):
    assert autoencoder.strides == Strides(time=4, space=8)
    assert autoencoder.latent_channels == 16


def test_latents_are_the_mode_normalised_per_channel(autoencoder, network):
    with torch.no_grad():
        mode = network.encode(clip()).latent_dist.mode()
    latents = autoencoder.encode(clip())
    for channel in (0, 5, 15):
        expected = (mode[:, channel] - (0.05 * channel - 0.3)) / (0.5 + 0.1 * channel)
        assert_agrees(latents[:, channel], expected, rms=1e-6)


def test_decoding_undoes_the_normalisation(autoencoder, network):
    raw = tiny.randn(1, 16, 2, 2, 3, seed=1)
    mean, std = torch.tensor(network.config.latents_mean), torch.tensor(network.config.latents_std)
    normalised = (raw - mean[:, None, None, None]) / std[:, None, None, None]
    with torch.no_grad():
        expected = network.decode(raw).sample
    assert_agrees(autoencoder.decode(normalised), expected, rms=1e-5)


def test_encoding_draws_no_random_numbers(autoencoder):
    state = torch.get_rng_state()
    first = autoencoder.encode(clip())
    assert torch.equal(state, torch.get_rng_state())
    assert torch.equal(first, autoencoder.encode(clip()))


def test_a_clip_is_encoded_the_same_alone_and_in_a_batch(autoencoder):
    both = autoencoder.encode(torch.cat([clip(seed=1), clip(seed=2)]))
    assert_agrees(both[1:], autoencoder.encode(clip(seed=2)), rms=1e-6)


@pytest.mark.parametrize("num_frames", [2, 4, 8])
def test_a_length_off_the_grid_is_refused_rather_than_cut(autoencoder, num_frames):
    with pytest.raises(ShapeError, match=f"got {num_frames}"):
        autoencoder.encode(clip(num_frames))


@pytest.mark.parametrize(("height", "width"), [(12, 16), (16, 20)])
def test_a_size_off_the_grid_is_refused(autoencoder, height, width):
    with pytest.raises(ShapeError, match=f"multiples of 8, got {height}x{width}"):
        autoencoder.encode(clip(5, height, width))


def test_half_precision_networks_take_and_give_float32():
    half = WanAutoencoder(tiny.wan_autoencoder().to(torch.bfloat16))
    full = WanAutoencoder(tiny.wan_autoencoder())
    latents = half.encode(clip())
    assert latents.dtype == torch.float32
    assert_agrees(latents, full.encode(clip()), rms=0.1)
    assert half.decode(latents).dtype == torch.float32


def test_a_config_without_statistics_is_refused():
    network = tiny.wan_autoencoder()
    network.register_to_config(latents_mean=[0.0])
    with pytest.raises(CheckpointError, match="16 numbers as latents_mean"):
        WanAutoencoder(network)
