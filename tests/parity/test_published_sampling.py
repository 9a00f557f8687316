"""Our loop against ``plain_sampling``: both families, one and several controls, one and three
chunks, weights of every kind, in float64."""

from __future__ import annotations

import pytest
import torch

from cosmos_transfer.autoencoder.wan import WanAutoencoder
from cosmos_transfer.diffusion.guidance import Guided
from cosmos_transfer.diffusion.noise_schedule import checkpoint_sigmas
from cosmos_transfer.diffusion.samplers import get_sampler
from cosmos_transfer.diffusion.start import start_latents
from cosmos_transfer.long_video.plan import plan_chunks
from cosmos_transfer.model.controlled import ControlledModel
from cosmos_transfer.shapes import Strides
from cosmos_transfer.weights.fusion import token_weights
from tests.parity import plain_sampling as plain
from tests.support import tiny
from tests.support.numerics import assert_agrees, relative_rms

AGREES = 1e-5
CONTROLS = ("edge", "depth", "seg", "vis")
NUM_STEPS, NVIDIA_GUIDANCE = 4, 3.0
FRAMES, HEIGHT, WIDTH = 9, 32, 48
GRID = (3, 4, 6)
NUM_TOKENS = 3 * 2 * 3
STRIDES, PATCH = Strides(time=4, space=8), (1, 2, 2)


def randn(*shape, seed):
    return tiny.randn(*shape, seed=seed).double()


def texts(channels):
    return [randn(1, tiny.TEXT_TOKENS, channels, seed=seed) for seed in (10, 11)]


def control_latents(names, *, chunk=0):
    return {n: randn(1, 16, *GRID, seed=20 + 10 * chunk + i) for i, n in enumerate(names)}


def weight_maps(num_controls, kind):
    """Pixel maps k f h w: numbers, or soft maps that differ by place and time."""
    if kind == "numbers":
        return torch.tensor([0.7, 1.0, 0.4, 0.9][:num_controls])[:, None, None, None].expand(
            -1, FRAMES, HEIGHT, WIDTH
        )
    ramp = torch.linspace(0, 1, WIDTH).expand(FRAMES, HEIGHT, WIDTH)
    later = torch.linspace(0, 1, FRAMES)[:, None, None].expand(FRAMES, HEIGHT, WIDTH)
    return torch.stack([ramp, 1 - ramp, later, 0.5 * later + 0.5 * ramp][:num_controls])


def tokens_of(maps):
    """The weights of our rule, and the plain ones: area means of the groups of frames."""
    ours = token_weights(maps, STRIDES, PATCH, "cap").double()
    return ours, ours[:, None].unbind(0)


def our_run(model, noise, names, controls, weights, sigmas, sampler, text, inherited=None):
    conditional, unconditional = (
        model.conditioned_on(
            each, controls, dict(zip(names, weights[:, None], strict=True)), inherited
        )
        for each in text
    )
    denoiser = Guided(conditional, unconditional, NVIDIA_GUIDANCE + 1.0)
    return get_sampler(sampler)(denoiser, noise, sigmas)


# ------------------------------------------------------------------------- Cosmos-Transfer2.5


@pytest.fixture(scope="module")
def model_2_5():
    return tiny.transfer2_5_model(CONTROLS).double()


@pytest.mark.parametrize("kind", ["numbers", "maps"])
@pytest.mark.parametrize("names", [("edge",), CONTROLS], ids=["one", "four"])
@pytest.mark.parametrize("karras", [(200.0, 0.01), None], ids=["karras", "shift5"])
def test_2_5_in_one_chunk(model_2_5, names, kind, karras):
    text, noise, controls = texts(48), randn(1, 16, *GRID, seed=1), control_latents(names)
    ours, theirs = tokens_of(weight_maps(len(names), kind))
    sigmas = checkpoint_sigmas(NUM_STEPS, shift=5.0, karras=karras)
    grid = (
        plain.shifted_flow_grid(NUM_STEPS, 5.0)
        if karras is None
        else plain.karras_flow_grid(NUM_STEPS, *karras)
    )
    got = our_run(model_2_5, noise, names, controls, ours, sigmas, "unipc", text)
    with torch.no_grad():
        want = plain.sample_2_5(
            model_2_5.transformer,
            [model_2_5.branches[n] for n in names],
            noise,
            *text,
            [controls[n] for n in names],
            theirs,
            guidance=NVIDIA_GUIDANCE,
            grid=grid,
        )
    assert_agrees(got, want, rms=AGREES)


@pytest.mark.parametrize("clean_sigma", [None, 0.1], ids=["shared-time", "own-time"])
@pytest.mark.parametrize("names", [("edge",), ("edge", "seg")], ids=["one", "two"])
def test_2_5_in_three_chunks(names, clean_sigma):
    base = tiny.transfer2_5_model(CONTROLS).double()
    model = ControlledModel(base.transformer, dict(base.branches), clean_sigma=clean_sigma)
    autoencoder = WanAutoencoder(tiny.wan_autoencoder().double())
    text = texts(48)
    ours, theirs = tokens_of(weight_maps(len(names), "maps"))
    sigmas = checkpoint_sigmas(NUM_STEPS, shift=1.0, karras=(200.0, 0.01))
    plan = plan_chunks(25, chunk_frames=FRAMES, overlap=1, strides=STRIDES)
    assert [(c.start, c.num_inherited) for c in plan] == [(0, 0), (8, 1), (16, 1)]
    got, want = [], []
    for chunk in plan:
        noise = randn(1, 16, *GRID, seed=chunk.index)
        controls = control_latents(names, chunk=chunk.index)
        inherited = [None, None]
        if chunk.num_inherited:
            inherited = [
                autoencoder.encode(autoencoder.decode(each[-1])[:, :, -1:]) for each in (got, want)
            ]
        given = None if inherited[0] is None else (inherited[0], 1)
        got.append(our_run(model, noise, names, controls, ours, sigmas, "unipc", text, given))
        with torch.no_grad():
            want.append(
                plain.sample_2_5(
                    base.transformer,
                    [base.branches[n] for n in names],
                    noise,
                    *text,
                    [controls[n] for n in names],
                    theirs,
                    guidance=NVIDIA_GUIDANCE,
                    grid=plain.karras_flow_grid(NUM_STEPS, 200.0, 0.01),
                    inherited=inherited[1],
                    clean_sigma=clean_sigma,
                )
            )
    assert_agrees(torch.cat(got, dim=2), torch.cat(want, dim=2), rms=AGREES)


# --------------------------------------------------------------------------- Cosmos-Transfer1


@pytest.fixture(scope="module")
def model_1():
    model = tiny.transfer1_model(CONTROLS).double()
    for network in (model.transformer, *model.branches.values()):
        network.learnable_pos_embed.float()  # diffusers normalises them in float32 or below
    return model


def run_both_1(model, names, kind, *, sampler, sigma_max=80.0, from_clip=False, chunks=1):
    """``num_steps`` of the published sampler, its last call included."""
    text = texts(tiny.TEXT_WIDTH)
    ours, theirs = tokens_of(weight_maps(len(names), kind))
    start = sigma_max / (1.0 + sigma_max)
    sigmas = checkpoint_sigmas(
        NUM_STEPS + 1, shift=1.0, karras=(80.0, 0.002), start=start if from_clip else 1.0
    )
    method = {"res2ab": plain.res_2ab, "heun_edm": plain.heun_edm}[sampler]
    got, want = [], []
    for chunk in range(chunks):
        noise, controls = randn(1, 16, *GRID, seed=chunk), control_latents(names, chunk=chunk)
        clip = 0.5 * randn(1, 16, *GRID, seed=90 + chunk) if from_clip else None
        begin = start_latents(noise, sigmas[0], clip=clip, scale_noise=True)
        # The autoencoder is another's business here: the last latent frame is handed on.
        last = [each[-1][:, :, -1:] if each else None for each in (got, want)]
        given = None if last[0] is None else (last[0], 1)
        got.append(our_run(model, begin, names, controls, ours, sigmas, sampler, text, given))
        with torch.no_grad():
            want.append(
                plain.sample_1(
                    model.transformer,
                    [model.branches[n] for n in names],
                    noise,
                    *text,
                    [controls[n] for n in names],
                    theirs,
                    guidance=NVIDIA_GUIDANCE,
                    num_steps=NUM_STEPS,
                    sigma_max=sigma_max,
                    clip=clip,
                    inherited=last[1],
                    method=method,
                )
            )
    return torch.cat(got, dim=2), torch.cat(want, dim=2)


@pytest.mark.parametrize("sampler", ["res2ab", "heun_edm"])
@pytest.mark.parametrize("kind", ["numbers", "maps"])
@pytest.mark.parametrize("names", [("edge",), CONTROLS], ids=["one", "four"])
def test_1_in_one_chunk(model_1, names, kind, sampler):
    assert_agrees(*run_both_1(model_1, names, kind, sampler=sampler), rms=AGREES)


@pytest.mark.parametrize("names", [("vis",), ("vis", "depth")], ids=["one", "two"])
def test_1_in_three_chunks(model_1, names):
    assert_agrees(*run_both_1(model_1, names, "maps", sampler="res2ab", chunks=3), rms=AGREES)


@pytest.mark.parametrize("sigma_max", [2.0, 35.0])
def test_1_from_a_clip_under_sigma_max(model_1, sigma_max):
    got, want = run_both_1(
        model_1, ("edge",), "numbers", sampler="res2ab", sigma_max=sigma_max, from_clip=True
    )
    assert_agrees(got, want, rms=AGREES)


def test_a_lower_strength_keeps_more_of_the_clip(model_1):
    clip = 0.5 * randn(1, 16, *GRID, seed=90)
    distances = [
        relative_rms(
            run_both_1(
                model_1, ("edge",), "numbers", sampler="res2ab", sigma_max=s, from_clip=True
            )[0],
            clip,
        )
        for s in (0.1, 1.0, 10.0)
    ]
    assert distances == sorted(distances)


@pytest.mark.parametrize(
    "fault",
    ["sigma_data", "hint_twice", "blocks", "guidance"],
)
def test_a_planted_fault_in_family_1_is_caught(model_1, fault, monkeypatch):
    if fault == "sigma_data":
        model = ControlledModel(model_1.transformer, dict(model_1.branches), sigma_data=0.505)
        got, want = run_both_1(model, ("edge",), "maps", sampler="res2ab")
    elif fault == "hint_twice":
        hint = model_1.branches["edge"]._hint
        monkeypatch.setattr(model_1.branches["edge"], "_hint", lambda *a: 1.01 * hint(*a))
        got, want = run_both_1(model_1, ("edge",), "maps", sampler="res2ab")
    elif fault == "blocks":
        forward = type(model_1.branches["edge"]).forward

        def swapped(self, *args, **inputs):
            (residuals,) = forward(self, *args, **inputs)
            return (residuals[::-1],)

        monkeypatch.setattr(type(model_1.branches["edge"]), "forward", swapped)
        got, want = run_both_1(model_1, ("edge",), "maps", sampler="res2ab")
    else:
        monkeypatch.setattr("tests.parity.plain_sampling.guided", lambda c, u, g: u + g * (c - u))
        got, want = run_both_1(model_1, ("edge",), "maps", sampler="res2ab")
    assert relative_rms(got, want) > AGREES
