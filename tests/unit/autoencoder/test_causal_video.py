from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from einops import rearrange
from torch import Tensor, nn

from cosmos_transfer.autoencoder.base import Autoencoder
from cosmos_transfer.autoencoder.causal_video import CausalVideoAutoencoder
from cosmos_transfer.errors import ShapeError
from cosmos_transfer.shapes import Strides
from cosmos_transfer.training.networks import AUTOENCODER as SHIPPED
from tests.support.embedded import AUTOENCODER, randomized
from tests.support.numerics import assert_agrees
from tests.support.tiny import randn

# Of a fixed network; from the code that the shipped decoder was trained with.
RECORDED_LATENTS = 1.829779123775474
RECORDED_PIXEL = (-0.19458007059623, -0.45659844104598, 0.61838519905809)

EPS32, EPS64 = float(torch.finfo(torch.float32).eps), float(torch.finfo(torch.float64).eps)


def tiny(*, seed: int | None = 0) -> CausalVideoAutoencoder:
    torch.manual_seed(0)
    autoencoder = CausalVideoAutoencoder(AUTOENCODER).eval()
    return autoencoder if seed is None else randomized(autoencoder, seed)


def video(batch: int, frames: int, height: int, width: int, *, seed: int = 1) -> Tensor:
    return randn(batch, 3, frames, height, width, seed=seed).clamp(-1.0, 1.0)


def test_it_is_what_the_pipeline_asks_for() -> None:
    autoencoder = tiny()
    assert isinstance(autoencoder, Autoencoder)
    assert autoencoder.strides == Strides(time=4, space=4)
    assert autoencoder.latent_channels == 4
    assert autoencoder.control_channels == 192


@pytest.mark.parametrize(("frames", "latent_frames"), [(1, 1), (5, 2), (9, 3), (13, 4)])
@pytest.mark.parametrize(("height", "width"), [(4, 4), (4, 28), (20, 8)])
@torch.no_grad()
def test_any_size_on_the_grid_comes_back(
    frames: int, latent_frames: int, height: int, width: int
) -> None:
    autoencoder, clip = tiny(), video(2, frames, height, width)
    latents = autoencoder.encode(clip)
    assert latents.shape == (2, 4, latent_frames, height // 4, width // 4)
    assert autoencoder.encode_control(clip).shape == (2, 192, *latents.shape[2:])
    decoded = autoencoder.decode(latents)
    assert decoded.shape == clip.shape
    assert float(decoded.abs().max()) <= 1.0


@pytest.mark.parametrize(
    ("shape", "said"),
    [((2, 8, 8), "1 \\+ 4"), ((5, 6, 8), "multiples of 4"), ((5, 8, 6), "multiples of 4")],
)
def test_a_clip_off_the_grid_is_refused(shape: tuple[int, int, int], said: str) -> None:
    for call in (tiny().encode, tiny().encode_control):
        with pytest.raises(ShapeError, match=said):
            call(video(1, *shape))


@pytest.mark.parametrize("frame", range(9))
@torch.no_grad()
def test_a_frame_changes_the_latent_frame_it_belongs_to_and_no_other(frame: int) -> None:
    autoencoder, clip = tiny(), video(1, 9, 8, 12)
    other = clip.clone()
    other[:, :, frame] = -other[:, :, frame]
    for encode in (autoencoder.encode, autoencoder.encode_control):
        changed = (encode(clip) != encode(other)).flatten(3).any(dim=3).any(dim=1)[0]
        assert changed.tolist() == [t == (frame + 3) // 4 for t in range(3)]


@pytest.mark.parametrize("latent_frame", range(3))
@torch.no_grad()
def test_a_latent_frame_changes_its_own_frames_and_no_other(latent_frame: int) -> None:
    autoencoder, latents = tiny(), randn(1, 4, 3, 2, 3, seed=2)
    other = latents.clone()
    other[:, :, latent_frame] += 0.5
    moved = (autoencoder.decode(latents) != autoencoder.decode(other)).flatten(3).any(3).any(1)[0]
    start, stop = autoencoder.strides.frame_groups(3)[latent_frame]
    assert moved.tolist() == [start <= f < stop for f in range(9)]


@torch.no_grad()
def test_one_latent_frame_decodes_to_the_first_picture_of_the_clip() -> None:
    autoencoder, latents = tiny(), randn(2, 4, 3, 2, 3, seed=3)
    alone = autoencoder.decode(latents[:, :, :1])
    assert alone.shape == (2, 3, 1, 8, 12)
    assert_agrees(alone, autoencoder.decode(latents)[:, :, :1], rms=2 * EPS32)


@torch.no_grad()
def test_clips_of_a_batch_do_not_meet() -> None:
    autoencoder, clip = tiny(), video(3, 5, 8, 8)
    latents = autoencoder.encode(clip)
    decoded = autoencoder.decode(latents)
    for index in range(3):
        alone = autoencoder.encode(clip[index : index + 1])
        assert_agrees(alone, latents[index : index + 1], rms=4 * EPS32)
        assert_agrees(autoencoder.decode(alone), decoded[index : index + 1], rms=16 * EPS32)


@pytest.mark.parametrize("frames", [1, 5, 9])
def test_groups_come_back_as_the_clip(frames: int) -> None:
    autoencoder, clip = tiny(), video(2, frames, 8, 12)
    groups = autoencoder.to_groups(clip)
    assert groups.shape == (2 * (1 + (frames - 1) // 4), 12, 8, 12)
    assert torch.equal(autoencoder.from_groups(groups, 2), clip)


def test_the_channels_of_a_group_are_colour_then_frame() -> None:
    autoencoder, clip = tiny(), video(1, 9, 8, 8)
    groups = autoencoder.to_groups(clip)
    for colour in range(3):
        for offset in range(4):
            assert torch.equal(groups[2, 4 * colour + offset], clip[0, colour, 5 + offset])
            assert torch.equal(groups[0, 4 * colour + offset], clip[0, colour, 0])


@pytest.mark.parametrize("frames", [1, 9])
def test_a_control_is_folded_without_loss(frames: int) -> None:
    autoencoder, clip = tiny(), video(2, frames, 8, 12)
    folded = autoencoder.encode_control(clip)
    pictures = nn.functional.pixel_shuffle(rearrange(folded, "b p t h w -> (b t) p h w"), 4)
    assert torch.equal(autoencoder.from_groups(pictures, 2), clip)


def test_principal_components_reconstruct_as_well_as_anything_linear_can() -> None:
    # Correlated patches, in float64; the best error of rank 4 is the sum of the eigenvalues that
    # are left out, found here from the singular values of the data.
    autoencoder = tiny(seed=None).double()
    clip = video(6, 9, 16, 16, seed=4).double().cumsum(dim=3).cumsum(dim=4)
    groups = autoencoder.to_groups(clip)
    autoencoder.start_from_principal_components(groups)
    with torch.no_grad():
        raw = autoencoder.encode_groups(groups)
        error = autoencoder.decode_groups(raw) - groups

    data = rearrange(groups, "b c (h p) (w q) -> (b h w) (c p q)", p=4, q=4).numpy()
    singular = np.linalg.svd(data - data.mean(axis=0), compute_uv=False)
    best = (singular[4:] ** 2).sum() / data.size
    assert_agrees(error.square().mean(), best, rms=1e6 * EPS64)
    assert best < 0.5 * (singular**2).sum() / data.size  # rank 4 says much of it, and not all
    assert best > 0.0

    rows = rearrange(raw, "b z h w -> (b h w) z")
    assert float(rows.mean(dim=0).abs().max()) < 1e-9
    assert_agrees(torch.cov(rows.T), torch.eye(4), rms=1e7 * EPS64)


@torch.no_grad()
def test_latent_statistics_normalise_and_cancel_on_the_way_back() -> None:
    plain, normalised = tiny(), tiny()
    normalised.latent_mean.copy_(torch.tensor([0.5, -1.0, 2.0, 0.0]))
    normalised.latent_std.copy_(torch.tensor([0.5, 2.0, 3.0, 1.0]))
    clip = video(1, 5, 8, 8)
    raw, latents = plain.encode(clip), normalised.encode(clip)
    expected = torch.stack(
        [(raw[:, 0] - 0.5) / 0.5, (raw[:, 1] + 1.0) / 2.0, (raw[:, 2] - 2.0) / 3.0, raw[:, 3]],
        dim=1,
    )
    assert_agrees(latents, expected, rms=4 * EPS32)
    assert_agrees(normalised.decode(latents), plain.decode(raw), rms=16 * EPS32)


def test_its_config_builds_it_again() -> None:
    autoencoder = tiny()
    config = json.loads(json.dumps(autoencoder.config))
    again = CausalVideoAutoencoder.from_config(config)
    assert again.settings == AUTOENCODER
    again.load_state_dict(autoencoder.state_dict())
    clip = video(1, 5, 8, 8)
    with torch.no_grad():
        assert torch.equal(again.encode(clip), autoencoder.encode(clip))


def test_the_shipped_size_keeps_its_parameters() -> None:
    # Trained weights are loaded by these names and shapes.
    shapes = {
        name: tuple(value.shape)
        for name, value in CausalVideoAutoencoder(SHIPPED).state_dict().items()
    }
    assert len(shapes) == 85
    assert shapes["project.weight"] == (16, 192, 1, 1)
    assert shapes["unproject.weight"] == (192, 16, 1, 1)
    assert shapes["decoder.1.norm.scale"] == (1, 96, 1, 1)
    assert shapes["detail.5.weight"] == (12, 32, 3, 3)
    assert shapes["branches.seg.to_detail.weight"] == (512, 288, 1, 1)


@torch.no_grad()
def test_numbers_of_a_fixed_network_do_not_move() -> None:
    plain = CausalVideoAutoencoder(replace(AUTOENCODER, controls=())).eval()
    autoencoder = randomized(plain, 7).double()
    latents = autoencoder.encode(video(1, 5, 8, 8, seed=8).double())
    decoded = autoencoder.decode(0.3 * latents)
    assert_agrees(latents.square().mean(), RECORDED_LATENTS, rms=1e-9)
    assert_agrees(decoded[0, :, 3, 2, 5], RECORDED_PIXEL, rms=1e-9)
