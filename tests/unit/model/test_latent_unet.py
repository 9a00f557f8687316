from __future__ import annotations

from dataclasses import asdict

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from cosmos_transfer.errors import ShapeError
from cosmos_transfer.model.controlled import ControlledModel
from cosmos_transfer.model.latent_unet import (
    Attention,
    LatentUNet,
    LatentUNetBranch,
    LatentUNetBranchConfig,
    LatentUNetConfig,
    ResidualBlock,
    embed_sigma,
    flow_preconditioning,
    pad_to_even,
    rotary_angles,
    rotate,
)
from tests.support.embedded import UNET, randomized, tiny_branch, tiny_unet
from tests.support.numerics import assert_agrees, relative_rms
from tests.support.tiny import randn

# Of a fixed network; from the code that the shipped weights were trained with.
RECORDED_SQUARE = 2.0040223633653973
RECORDED_CELL = (0.04460117186160, -0.42115166682664, -1.40444590129452, 0.98529788148177)

EPS32, EPS64 = float(torch.finfo(torch.float32).eps), float(torch.finfo(torch.float64).eps)
SIGMAS = torch.tensor([0.0, 1e-3, 0.2, 0.5, 0.9, 1.0], dtype=torch.float64)


def latents(batch: int, frames: int, height: int, width: int, *, seed: int = 1) -> Tensor:
    return randn(batch, UNET.latent_channels, frames, height, width, seed=seed)


def text(batch: int, *, seed: int = 2) -> Tensor:
    return randn(batch, 6, UNET.text_width, seed=seed)


def without_mixing_of_frames(unet: LatentUNet) -> LatentUNet:
    """The network with nothing in it that looks from one latent frame to another."""
    for module in unet.modules():
        if isinstance(module, ResidualBlock):
            nn.init.zeros_(module.conv_time.weight)
        if isinstance(module, Attention):
            nn.init.zeros_(module.self_out.weight)
    return unet


# ------------------------------------------------------------------------------ preconditioning


def test_what_is_to_be_learned_has_unit_variance_and_nothing_linear_left() -> None:
    # v = noise - clean, noisy = (1 - sigma) clean + sigma noise, both white with unit variance:
    # the target (v - skip noisy) / out is a sum of the two with these factors.
    skip, out, scale_in = flow_preconditioning(SIGMAS)
    of_clean = (-1.0 - skip * (1.0 - SIGMAS)) / out
    of_noise = (1.0 - skip * SIGMAS) / out
    one = torch.ones_like(SIGMAS)
    assert_agrees(of_clean.square() + of_noise.square(), one, rms=4 * EPS64)
    with_noisy = of_clean * (1.0 - SIGMAS) + of_noise * SIGMAS
    assert float(with_noisy.abs().max()) < 4 * EPS64
    variance_in = scale_in.square() * ((1.0 - SIGMAS).square() + SIGMAS.square())
    assert_agrees(variance_in, one, rms=4 * EPS64)


@torch.no_grad()
def test_an_untrained_network_is_the_best_linear_denoiser() -> None:
    unet, noisy = tiny_unet().double(), latents(3, 2, 4, 6).double()
    sigma = torch.tensor([0.1, 0.5, 1.0], dtype=torch.float64)
    (velocity,) = unet(noisy, sigma, text(3).double())
    for index, level in enumerate(sigma.tolist()):
        factor = (2 * level - 1) / ((1 - level) ** 2 + level**2)
        assert torch.equal(velocity[index], factor * noisy[index])


@torch.no_grad()
def test_numbers_of_a_fixed_network_do_not_move() -> None:
    unet, branch = tiny_unet(seed=11).double(), tiny_branch(seed=12).double()
    (residuals,) = branch(randn(2, 6, 3, 5, 7, seed=15).double())
    mask = torch.zeros(2, 1, 3, 5, 7, dtype=torch.float64)
    mask[:, :, :1] = 1.0
    (velocity,) = unet(
        latents(2, 3, 5, 7, seed=13).double(),
        torch.tensor([0.3, 0.8], dtype=torch.float64),
        text(2, seed=14).double(),
        residuals,
        mask,
    )
    # Rotary angles and the embedding of sigma are float32 in every dtype.
    assert_agrees(velocity.square().mean(), RECORDED_SQUARE, rms=4 * EPS32)
    assert_agrees(velocity[1, :, 2, 4, 6], RECORDED_CELL, rms=4 * EPS32)


def test_the_shipped_size_keeps_its_parameters() -> None:
    # Trained weights are loaded by these names and shapes.
    base = LatentUNet(LatentUNetConfig()).state_dict()
    assert len(base) == 107
    assert sum(value.numel() for value in base.values()) == 2_679_568
    assert base["inner_blocks.2.conv_time.weight"].shape == (160, 160, 3)
    assert base["attention.1.norm_heads.weight"].shape == (32,)
    branch = LatentUNetBranch(LatentUNetBranchConfig()).state_dict()
    assert len(branch) == 24
    assert branch["read.weight"].shape == (64, 192, 1, 1)
    assert branch["outputs.1.1.weight"].shape == (64, 64, 1, 1)


def test_settings_build_the_same_network_again() -> None:
    unet, branch = tiny_unet(seed=1), tiny_branch(seed=2)
    for module in (unet, branch):
        again = type(module).from_config(asdict(module.settings))
        again.load_state_dict(module.state_dict())
        assert again.settings == module.settings


# ---------------------------------------------------------------------------------------- sizes


@pytest.mark.parametrize("size", [(1, 1, 1), (2, 3, 1), (3, 5, 7), (1, 4, 6), (4, 2, 5)], ids=str)
@torch.no_grad()
def test_any_size_comes_back(size: tuple[int, int, int]) -> None:
    unet, branch = tiny_unet(seed=3), tiny_branch(seed=4)
    (residuals,) = branch(randn(2, 6, *size, seed=5))
    assert [tuple(each.shape) for each in residuals] == [(2, size[0] * size[1] * size[2], 16)] * 2
    noisy = latents(2, *size)
    (velocity,) = unet(noisy, torch.tensor([0.3, 0.7]), text(2), residuals)
    assert velocity.shape == noisy.shape
    assert bool(torch.isfinite(velocity).all())


def test_odd_sides_are_made_even_by_repeating_the_last_row_and_column() -> None:
    x = torch.arange(6.0).reshape(1, 1, 2, 3)
    assert pad_to_even(x)[0, 0].tolist() == [[0.0, 1.0, 2.0, 2.0], [3.0, 4.0, 5.0, 5.0]]
    assert pad_to_even(x.mT)[0, 0].tolist() == [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0], [2.0, 5.0]]


@torch.no_grad()
def test_clips_of_a_batch_do_not_meet() -> None:
    unet, noisy, tokens = tiny_unet(seed=3), latents(4, 3, 4, 5), text(4)
    sigma, order = torch.tensor([0.1, 0.4, 0.6, 0.9]), torch.tensor([2, 0, 3, 1])
    mask = torch.zeros(4, 1, 3, 4, 5)
    mask[:, :, 0] = 1.0
    residuals = [randn(4, 60, 16, seed=6), randn(4, 60, 16, seed=7)]
    (straight,) = unet(noisy, sigma, tokens, residuals, mask)
    (permuted,) = unet(
        noisy[order], sigma[order], tokens[order], [each[order] for each in residuals], mask
    )
    assert_agrees(permuted, straight[order], rms=8 * EPS32)
    (alone,) = unet(noisy[:1], sigma[:1], tokens[:1], [each[:1] for each in residuals], mask[:1])
    assert_agrees(alone, straight[:1], rms=32 * EPS32)


# ----------------------------------------------------------------------------------------- time


@pytest.mark.parametrize("num_frames", [1, 2, 3, 5])
@torch.no_grad()
def test_shifted_products_are_the_convolution_over_time(num_frames: int) -> None:
    # Also for one frame: its neighbours are absent, which counts as zero.
    block = randomized(ResidualBlock(6, 0), 5).double()
    hidden = randn(2 * num_frames, 6, 3, 4, seed=8).double()
    got = block._over_time(hidden, num_frames)

    series = (
        hidden.reshape(2, num_frames, 6, 3, 4).permute(0, 3, 4, 2, 1).reshape(-1, 6, num_frames)
    )

    def convolved(weight: Tensor) -> Tensor:
        out = functional.conv1d(series, weight, block.conv_time.bias, padding=1)
        return out.reshape(2, 3, 4, 6, num_frames).permute(0, 4, 3, 1, 2).reshape(hidden.shape)

    assert_agrees(got, convolved(block.conv_time.weight), rms=8 * EPS64)
    if num_frames > 1:  # a check that cannot see before from after would be none
        assert relative_rms(got, convolved(block.conv_time.weight.flip(2))) > 0.01


@pytest.mark.parametrize(("tap", "source"), [(0, [None, 0, 1]), (1, [0, 1, 2]), (2, [1, 2, None])])
@torch.no_grad()
def test_taps_are_the_frame_before_itself_and_the_frame_after(
    tap: int, source: list[int | None]
) -> None:
    block = ResidualBlock(6, 0)  # conv_time starts at zero
    block.conv_time.weight[:, :, tap] = torch.eye(6)
    frames = randn(3, 6, 2, 2, seed=9)
    moved = block._over_time(frames, 3)
    for index, place in enumerate(source):
        expected = torch.zeros(6, 2, 2) if place is None else frames[place]
        assert torch.equal(moved[index], expected)


@torch.no_grad()
def test_given_frames_are_told_sigma_zero() -> None:
    unet, noisy, tokens = without_mixing_of_frames(tiny_unet(seed=3)), latents(1, 2, 4, 4), text(1)
    mask = torch.zeros(1, 1, 2, 4, 4)
    mask[:, :, 0] = 1.0
    at = {s: unet(noisy, torch.tensor([s]), tokens, None, mask)[0] for s in (0.0, 0.3, 0.8)}
    assert torch.equal(at[0.3][:, :, 0], at[0.0][:, :, 0])
    assert torch.equal(at[0.8][:, :, 0], at[0.0][:, :, 0])
    assert relative_rms(at[0.3][:, :, 1], at[0.8][:, :, 1]) > 0.05
    (unmasked,) = unet(noisy, torch.tensor([0.0]), tokens)
    assert relative_rms(unmasked[:, :, 0], at[0.0][:, :, 0]) > 0.01  # the mask itself is read


@torch.no_grad()
def test_frames_see_each_other_through_convolutions_and_through_attention() -> None:
    noisy, tokens, sigma = latents(1, 3, 4, 4), text(1), torch.tensor([0.5])
    other = noisy.clone()
    other[:, :, 2] += 1.0

    def first_frame_moves(unet: LatentUNet) -> bool:
        a, b = (unet(each, sigma, tokens)[0] for each in (noisy, other))
        return not torch.equal(a[:, :, 0], b[:, :, 0])

    assert not first_frame_moves(without_mixing_of_frames(tiny_unet(seed=3)))
    only_attention = tiny_unet(seed=3)
    for module in only_attention.modules():
        if isinstance(module, ResidualBlock):
            nn.init.zeros_(module.conv_time.weight)
    assert first_frame_moves(only_attention)
    only_convolutions = tiny_unet(seed=3)
    for module in only_convolutions.modules():
        if isinstance(module, Attention):
            nn.init.zeros_(module.self_out.weight)
    assert first_frame_moves(only_convolutions)


@torch.no_grad()
def test_rotary_scores_depend_on_distance_alone() -> None:
    # Query and key at two places; moving both by the same step in time, rows and columns.
    size = (4, 5, 6)
    angles = rotary_angles(*size, 16).double()
    assert angles.shape == (120, 8)
    query, key = randn(16, seed=3).double(), randn(16, seed=4).double()

    def score(at: tuple[int, int, int], to: tuple[int, int, int]) -> Tensor:
        places = [t * 30 + h * 6 + w for t, h, w in (at, to)]
        turned = [
            rotate(x.expand(1, 1, 1, 16), angles[place : place + 1])
            for x, place in zip((query, key), places, strict=True)
        ]
        return (turned[0] * turned[1]).sum()

    # The angles themselves are float32.
    for step in ((1, 0, 0), (0, 2, 0), (0, 0, 3), (1, 2, 3)):
        moved = tuple(a + b for a, b in zip((2, 2, 2), step, strict=True))
        back = tuple(b + 1 for b in step)
        assert_agrees(score((2, 2, 2), (1, 1, 1)), score(moved, back), rms=64 * EPS32)
    assert relative_rms(score((2, 2, 2), (1, 1, 1)), score((2, 2, 2), (0, 1, 1))) > 1e-3


# ------------------------------------------------------------------------------------ residuals


@torch.no_grad()
def test_untrained_branches_change_nothing() -> None:
    unet, noisy, tokens = tiny_unet(seed=3), latents(2, 3, 4, 5), text(2)
    (residuals,) = tiny_branch()(randn(2, 6, 3, 4, 5, seed=5))
    sigma = torch.tensor([0.3, 0.7])
    assert torch.equal(unet(noisy, sigma, tokens, residuals)[0], unet(noisy, sigma, tokens)[0])


@pytest.mark.parametrize("cell", [(0, 0, 0), (1, 7, 2), (2, 4, 9)], ids=str)
@torch.no_grad()
def test_a_residual_acts_at_its_own_cell(cell: tuple[int, int, int]) -> None:
    # Tokens run time-slowest, then rows. Without anything that mixes frames, the second residual
    # reaches as far as what follows it: two 3x3 convolutions of a block and the last one.
    frames, height, width = 3, 8, 11
    unet = without_mixing_of_frames(tiny_unet(seed=3))
    noisy, tokens, sigma = latents(1, frames, height, width), text(1), torch.tensor([0.5])
    (before,) = unet(noisy, sigma, tokens)
    t, h, w = cell
    for block, reach in ((0, None), (1, 3)):
        residuals = [torch.zeros(1, frames * height * width, 16) for _ in range(2)]
        residuals[block][0, (t * height + h) * width + w] = 5.0
        moved = (unet(noisy, sigma, tokens, residuals)[0] - before).abs().sum(dim=1)[0]
        assert moved.flatten(1).sum(dim=1).nonzero().flatten().tolist() == [t]
        assert float(moved[t, h, w]) > 0.0
        if reach is not None:
            rows, columns = moved[t].nonzero().T
            assert int((rows - h).abs().max()) <= reach
            assert int((columns - w).abs().max()) <= reach
            assert int((rows - h).abs().max()) > 0


@torch.no_grad()
def test_a_branch_reads_its_control_at_the_same_cell() -> None:
    branch = randomized(tiny_branch(), 5)
    for block in branch.blocks:
        assert isinstance(block, ResidualBlock)
        nn.init.zeros_(block.conv_time.weight)
    control = randn(1, 6, 3, 8, 11, seed=5)
    other = control.clone()
    other[0, :, 1, 4, 5] += 1.0
    # One block of two 3x3 convolutions before the first output, two before the second.
    for a, b, reach in zip(branch(control)[0], branch(other)[0], (2, 4), strict=True):
        moved = (a - b).abs().sum(dim=2).reshape(3, 8, 11)
        assert moved.flatten(1).sum(dim=1).nonzero().flatten().tolist() == [1]
        rows, columns = moved[1].nonzero().T
        assert (int((rows - 4).abs().max()), int((columns - 5).abs().max())) == (
            min(reach, 4),
            reach,
        )


def test_a_branch_says_the_same_at_every_step() -> None:
    branch, control = tiny_branch(seed=5), randn(1, 6, 2, 4, 4, seed=5)
    one = branch(control, latents=randn(1, 4, 2, 4, 4, seed=1), timestep=torch.tensor([0.1]))[0]
    two = branch(control, latents=randn(1, 4, 2, 4, 4, seed=2), timestep=torch.tensor([0.9]))[0]
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


# -------------------------------------------------------------------------------------- as a model


def controlled(*, seed: int | None = 3) -> ControlledModel:
    names = ("edge", "depth", "seg", "vis")
    branches = {
        name: tiny_branch(seed=None if seed is None else seed + 1 + index)
        for index, name in enumerate(names)
    }
    return ControlledModel(tiny_unet(seed=seed), branches, timestep_scale=1.0).eval()


@torch.no_grad()
def test_the_controlled_model_drives_it() -> None:
    model = controlled()
    assert (model.patch, model.latent_channels) == ((1, 1, 1), 4)
    control = {"edge": randn(1, 6, 3, 4, 5, seed=5), "vis": randn(1, 6, 3, 4, 5, seed=6)}
    weights = torch.rand(2, 1, 60, generator=torch.Generator().manual_seed(1))
    given = latents(1, 1, 4, 5, seed=8)
    denoiser = model.conditioned_on(text(1), control, weights, (given, 1))
    denoised = denoiser(latents(1, 3, 4, 5), 0.6)
    assert torch.equal(denoised[:, :, :1], given)
    without = model.conditioned_on(text(1), {}, torch.zeros(0, 1, 60), (given, 1))
    assert relative_rms(without(latents(1, 3, 4, 5), 0.6), denoised) > 0.01


@torch.no_grad()
def test_branches_are_run_once_for_all_steps_and_say_the_same() -> None:
    model = controlled()
    control = {name: randn(1, 6, 2, 4, 5, seed=i) for i, name in enumerate(("edge", "seg", "vis"))}
    weights = {name: torch.full((1, 40), 0.3 + 0.1 * i) for i, name in enumerate(control)}
    runs: list[str] = []
    for name, branch in model.branches.items():
        branch.register_forward_hook(lambda *_, name=name: runs.append(name))
    denoiser = model.conditioned_on(text(1), control, weights)
    noisy = latents(1, 2, 4, 5)
    for level in (0.9, 0.5, 0.1):
        denoised = denoiser(noisy, level)
        assert runs == ["edge", "seg", "vis"]
        velocity = model(noisy, torch.tensor([level]), text(1), control, weights)
        assert torch.equal(denoised, noisy - level * velocity)
        del runs[3:]


def test_a_control_of_another_size_is_refused() -> None:
    model, control = controlled(), {"edge": randn(1, 6, 3, 5, 4, seed=5)}
    denoiser = model.conditioned_on(text(1), control, torch.ones(1, 1, 60))
    with pytest.raises(ShapeError, match="control 'edge'"):
        denoiser(latents(1, 3, 4, 5), 0.5)


def test_gradients_reach_every_parameter() -> None:
    model = controlled()
    control = {name: randn(2, 6, 3, 4, 5, seed=i) for i, name in enumerate(model.branches)}
    weights = {name: torch.full((2, 60), 0.25) for name in control}
    velocity = model(latents(2, 3, 4, 5), torch.tensor([0.3, 0.8]), text(2), control, weights, 1)
    (velocity * randn(*velocity.shape, seed=9)).sum().backward()
    dead = [
        name
        for name, parameter in model.named_parameters()
        if parameter.grad is None or not bool(parameter.grad.abs().sum() > 0)
    ]
    assert dead == []


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@torch.no_grad()
def test_half_precision_runs_and_is_near(dtype: torch.dtype) -> None:
    # A dozen layers of rounding; one wrong layer would be off by tens of percent.
    control = {"edge": randn(1, 6, 3, 4, 5, seed=5)}
    weights = torch.full((1, 1, 60), 0.5)
    noisy, given = latents(1, 3, 4, 5), (latents(1, 1, 4, 5, seed=8), 1)
    exact = controlled().conditioned_on(text(1), control, weights, given)(noisy, 0.6)
    half = controlled().to(dtype).conditioned_on(text(1), control, weights, given)(noisy, 0.6)
    assert half.dtype == torch.float32
    assert_agrees(half, exact, rms=16 * float(torch.finfo(dtype).eps))


def test_sigmas_are_told_apart() -> None:
    embedded = embed_sigma(torch.linspace(0.0, 1.0, 101)[None], 16)[0]
    assert embedded.shape == (101, 16)
    distances = torch.cdist(embedded, embedded) + 10.0 * torch.eye(101)
    assert float(distances.min()) > 0.1
