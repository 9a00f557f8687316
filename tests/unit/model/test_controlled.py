from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from cosmos_transfer.diffusion.denoiser import Denoiser
from cosmos_transfer.diffusion.noise_schedule import flow_sigmas
from cosmos_transfer.diffusion.samplers import SAMPLERS, get_sampler
from cosmos_transfer.errors import CheckpointError, ShapeError
from cosmos_transfer.model.controlled import ControlledModel
from tests.support import tiny
from tests.support.numerics import assert_agrees, relative_rms

CONTROLS = ("edge", "depth", "seg")
TOKENS = 48
LATENTS = tiny.randn(1, 16, 3, 8, 8, seed=100)
TEXT = tiny.randn(1, 7, tiny.TEXT_WIDTH, seed=101)
CONTROL_LATENTS = {
    name: tiny.randn(1, 16, 3, 8, 8, seed=102 + index) for index, name in enumerate(CONTROLS)
}


@pytest.fixture(scope="module")
def model() -> ControlledModel:
    return tiny.embedded_model(CONTROLS)


def uniform(**values):
    return {name: torch.full((1, TOKENS), value) for name, value in values.items()}


def denoiser(model, conditioning=None, **values):
    controls = {name: CONTROL_LATENTS[name] for name in values}
    return model.conditioned_on(TEXT, controls, uniform(**values), conditioning)


def count_calls(monkeypatch, model):
    calls = []
    for name, branch in model.branches.items():

        def forward(*arguments, _name=name, _original=branch.forward, **options):
            calls.append(_name)
            return _original(*arguments, **options)

        monkeypatch.setattr(branch, "forward", forward)
    return calls


def recorded_inputs(monkeypatch, model):
    seen = []
    original = model.transformer.forward

    def forward(**options):
        seen.append(options)
        return original(**options)

    monkeypatch.setattr(model.transformer, "forward", forward)
    return seen


# ------------------------------------------------------------------------------- denoising


def test_denoised_is_noisy_minus_sigma_times_velocity(model):
    bound = denoiser(model, edge=0.5)
    assert isinstance(bound, Denoiser)
    with torch.no_grad():
        velocity = model(
            LATENTS,
            torch.tensor([0.4]),
            TEXT,
            {"edge": CONTROL_LATENTS["edge"]},
            uniform(edge=0.5),
        )
    assert torch.equal(bound(LATENTS, 0.4), LATENTS - 0.4 * velocity)


@pytest.mark.parametrize("scale", [1.0, 1000.0])
def test_the_networks_are_told_sigma_times_the_timestep_scale(monkeypatch, model, scale):
    scaled = ControlledModel(model.transformer, {}, timestep_scale=scale)
    seen = recorded_inputs(monkeypatch, scaled)
    scaled.conditioned_on(TEXT, {}, {})(LATENTS, 0.3)
    assert seen[0]["timestep"].dtype == torch.float32
    assert_agrees(seen[0]["timestep"], [0.3 * scale], rms=1e-7)


def test_timesteps_are_not_rounded_by_half_precision(monkeypatch):
    half = tiny.embedded_model(()).to(torch.bfloat16)
    seen = recorded_inputs(monkeypatch, half)
    result = half.conditioned_on(TEXT, {}, {})(LATENTS, 0.9951)
    assert seen[0]["hidden_states"].dtype == torch.bfloat16
    assert_agrees(seen[0]["timestep"], [995.1], rms=1e-6)
    assert result.dtype == torch.float32


def test_every_clip_of_a_batch_has_its_own_sigma(model):
    batch = LATENTS.repeat(2, 1, 1, 1, 1)
    text = TEXT.repeat(2, 1, 1)
    with torch.no_grad():
        both = model(batch, torch.tensor([0.2, 0.9]), text, {}, {})
        second = model(LATENTS, torch.tensor([0.9]), TEXT, {}, {})
    assert_agrees(both[1:], second, rms=1e-5)
    assert relative_rms(both[:1], second) > 1e-2


def test_one_control_serves_a_whole_batch(model):
    text = torch.cat([TEXT, 2.0 * TEXT])
    controls, weights = {"edge": CONTROL_LATENTS["edge"]}, uniform(edge=1.0)
    batch = model.conditioned_on(text, controls, weights)(LATENTS.repeat(2, 1, 1, 1, 1), 0.5)
    alone = model.conditioned_on(2.0 * TEXT, controls, weights)(LATENTS, 0.5)
    assert_agrees(batch[1:], alone, rms=1e-5)


def test_denoising_tracks_no_gradient_and_training_does(model):
    assert not denoiser(model, edge=1.0)(LATENTS, 0.5).requires_grad
    control = CONTROL_LATENTS["edge"].clone().requires_grad_()
    weights = {name: w.requires_grad_() for name, w in uniform(edge=0.5, depth=0.5).items()}
    velocity = model(
        LATENTS,
        torch.tensor([0.5]),
        TEXT,
        {"edge": control, "depth": CONTROL_LATENTS["depth"]},
        weights,
    )
    velocity.square().sum().backward()
    for leaf in (control, weights["edge"], weights["depth"]):
        assert float(leaf.grad.abs().max()) > 0.0
    assert model.branches["depth"].control_blocks[1].after_proj.weight.grad is not None
    model.zero_grad()


# -------------------------------------------------------------------------------- weights


def test_a_branch_with_zero_weights_is_not_run(monkeypatch, model):
    calls = count_calls(monkeypatch, model)
    bound = denoiser(model, edge=0.0, depth=0.3, seg=0.0)
    bound(LATENTS, 0.5)
    bound(LATENTS, 0.4)
    assert calls == ["depth", "depth"]


def test_zero_weights_are_no_controls_at_all(monkeypatch, model):
    seen = recorded_inputs(monkeypatch, model)
    zero = denoiser(model, edge=0.0, depth=0.0)(LATENTS, 0.5)
    assert seen[0]["block_controlnet_hidden_states"] is None
    assert torch.equal(zero, denoiser(model)(LATENTS, 0.5))


def test_a_weight_at_a_single_token_keeps_the_branch(monkeypatch, model):
    calls = count_calls(monkeypatch, model)
    weights = uniform(edge=0.0)
    weights["edge"][0, 17] = 1e-3
    model.conditioned_on(TEXT, {"edge": CONTROL_LATENTS["edge"]}, weights)(LATENTS, 0.5)
    assert calls == ["edge"]


def test_residuals_are_the_weighted_sum_of_the_branches(monkeypatch, model):
    seen = recorded_inputs(monkeypatch, model)
    maps = {
        name: torch.rand(1, TOKENS, generator=torch.Generator().manual_seed(index))
        for index, name in enumerate(CONTROLS)
    }
    model.conditioned_on(TEXT, CONTROL_LATENTS, maps)(LATENTS, 0.5)
    fused = seen[0]["block_controlnet_hidden_states"]
    assert len(fused) == 2

    expected = [torch.zeros(1, TOKENS, 64, dtype=torch.float64) for _ in fused]
    for name in CONTROLS:
        with torch.no_grad():
            (residuals,) = model.branches[name](
                controls_latents=CONTROL_LATENTS[name],
                latents=LATENTS,
                timestep=torch.tensor([500.0]),
                encoder_hidden_states=TEXT,
                condition_mask=torch.zeros(1, 1, 3, 8, 8),
                padding_mask=torch.zeros(1, 1, 8, 8),
                return_dict=False,
            )
        for block, residual in enumerate(residuals):
            expected[block] += residual.double() * maps[name][..., None].double()
    for got, want in zip(fused, expected, strict=True):
        assert_agrees(got, want, rms=2e-6)


def test_with_and_without_gradients_the_sum_is_the_same(model):
    arguments = (LATENTS, torch.tensor([0.5]), TEXT, CONTROL_LATENTS)
    weights = uniform(edge=0.5, depth=0.2, seg=0.3)
    with torch.no_grad():
        in_place = model(*arguments, weights)
    assert torch.equal(model(*arguments, weights).detach(), in_place)


def test_stacked_weights_follow_the_order_of_the_controls(model):
    controls = {name: CONTROL_LATENTS[name] for name in ("seg", "edge")}
    stacked = torch.stack([torch.full((1, TOKENS), 0.9), torch.full((1, TOKENS), 0.1)])
    by_order = model.conditioned_on(TEXT, controls, stacked)(LATENTS, 0.5)
    by_name = model.conditioned_on(TEXT, controls, uniform(edge=0.1, seg=0.9))(LATENTS, 0.5)
    assert torch.equal(by_order, by_name)


def test_weights_act_mostly_where_they_are(model):
    # Attention spreads some of it: the far half must change too, but by less.
    weights = torch.zeros(3, 4, 4)
    weights[:, :, :2] = 1.0
    bound = model.conditioned_on(
        TEXT, {"edge": CONTROL_LATENTS["edge"]}, {"edge": weights.reshape(1, -1)}
    )
    change = (bound(LATENTS, 0.9) - denoiser(model)(LATENTS, 0.9)).abs()
    near, far = change[..., :4].mean(), change[..., 4:].mean()
    assert near > 3.0 * far > 0.0


# -------------------------------------------------------------------------- inherited frames


def test_inherited_frames_replace_noisy_ones_and_come_back_exactly(monkeypatch, model):
    seen = recorded_inputs(monkeypatch, model)
    clean = tiny.randn(1, 16, 2, 8, 8, seed=7)
    result = denoiser(model, conditioning=(clean, 1), edge=0.5)(LATENTS, 0.8)
    assert torch.equal(seen[0]["hidden_states"][:, :, :1], clean[:, :, :1])
    assert torch.equal(seen[0]["hidden_states"][:, :, 1:], LATENTS[:, :, 1:])
    mask = seen[0]["condition_mask"]
    assert mask[:, :, :1].eq(1.0).all()
    assert mask[:, :, 1:].eq(0.0).all()
    assert torch.equal(result[:, :, :1], clean[:, :, :1])


@pytest.mark.parametrize("name", SAMPLERS)
def test_inherited_frames_survive_a_whole_run(model, name):
    clean = tiny.randn(1, 16, 2, 8, 8, seed=7)
    bound = denoiser(model, conditioning=(clean, 2), edge=0.5)
    result = get_sampler(name)(bound, LATENTS, flow_sigmas(3))
    assert_agrees(result[:, :, :2], clean, rms=1e-6)
    assert relative_rms(result[:, :, 2:], denoiser(model, edge=0.5)(LATENTS, 1.0)[:, :, 2:]) > 1e-3


def test_inherited_frames_may_be_told_a_sigma_of_their_own(monkeypatch, model):
    told = ControlledModel(model.transformer, {}, timestep_scale=1000.0, clean_sigma=0.1)
    seen = recorded_inputs(monkeypatch, told)
    bound = told.conditioned_on(TEXT, {}, {}, (LATENTS[:, :, :1], 1))
    bound(LATENTS, 0.5)
    told.conditioned_on(TEXT, {}, {})(LATENTS, 0.5)
    assert_agrees(seen[0]["timestep"][0, 0, :, 0, 0], [100.0, 500.0, 500.0], rms=1e-6)
    assert seen[1]["timestep"].shape == (1,)


def test_a_constant_sigma_per_frame_is_the_sigma_of_the_clip(model):
    same = ControlledModel(model.transformer, {}, timestep_scale=1000.0, clean_sigma=0.5)
    plain = ControlledModel(model.transformer, {}, timestep_scale=1000.0)
    conditioning = (LATENTS[:, :, :1], 1)
    assert_agrees(
        same.conditioned_on(TEXT, {}, {}, conditioning)(LATENTS, 0.5),
        plain.conditioned_on(TEXT, {}, {}, conditioning)(LATENTS, 0.5),
        rms=1e-5,
    )


def test_no_inherited_frames_is_no_conditioning(model):
    clean = tiny.randn(1, 16, 1, 8, 8, seed=7)
    assert torch.equal(
        denoiser(model, conditioning=(clean, 0), edge=0.5)(LATENTS, 0.5),
        denoiser(model, edge=0.5)(LATENTS, 0.5),
    )


class PlainBase(torch.nn.Module):
    """A base that is not diffusers': the same call, tokens of one cell, no condition on sigma."""

    dtype = torch.float32
    config = SimpleNamespace(
        in_channels=17,
        out_channels=16,
        patch_size=(1, 1, 1),
        max_size=(64, 64, 64),
        img_context_dim_in=None,
    )

    def forward(self, *, hidden_states, block_controlnet_hidden_states, **_):
        residual = block_controlnet_hidden_states[0].mean(dim=2)
        return (hidden_states + residual.reshape(hidden_states[:, :1].shape),)


class PlainBranch(torch.nn.Module):
    config = SimpleNamespace(patch_size=(1, 1, 1), latent_channels=18)

    def forward(self, *, controls_latents, **_):
        return ([controls_latents.flatten(2).transpose(1, 2)],)


def test_other_networks_stand_in_and_read_controls_of_their_own_width():
    model = ControlledModel(PlainBase(), {"edge": PlainBranch()})
    control = tiny.randn(1, 40, 3, 8, 8, seed=9)
    weights = torch.linspace(0.0, 1.0, 192)[None]
    result = model.conditioned_on(TEXT, {"edge": control}, {"edge": weights})(LATENTS, 0.5)
    velocity = LATENTS + control.mean(dim=1, keepdim=True) * weights.reshape(1, 1, 3, 8, 8)
    assert_agrees(result, LATENTS - 0.5 * velocity, rms=1e-6)


# --------------------------------------------------------------------------- what is refused


def test_controls_without_a_branch_are_named(model):
    with pytest.raises(ShapeError, match="edge, depth, seg, got vis"):
        model.conditioned_on(TEXT, {"vis": LATENTS}, uniform(vis=1.0))


def test_weights_of_other_controls_are_refused(model):
    controls = {"edge": CONTROL_LATENTS["edge"]}
    with pytest.raises(ShapeError, match="expected weights of edge, got depth"):
        model.conditioned_on(TEXT, controls, uniform(depth=1.0))
    with pytest.raises(ShapeError, match=r"one map per control \(1\), got 2"):
        model.conditioned_on(TEXT, controls, torch.ones(2, 1, TOKENS))


@pytest.mark.parametrize("num_tokens", [1, 12, 47])
def test_token_weights_of_another_size_are_refused_rather_than_spread(model, num_tokens):
    controls = {"edge": CONTROL_LATENTS["edge"]}
    bound = model.conditioned_on(TEXT, controls, {"edge": torch.ones(1, num_tokens)})
    with pytest.raises(ShapeError, match=f"48 token weights, got {num_tokens}"):
        bound(LATENTS, 0.5)


def test_control_latents_of_another_size_are_refused(model):
    bound = model.conditioned_on(TEXT, {"edge": LATENTS[:, :, :2]}, {"edge": torch.ones(1, 48)})
    with pytest.raises(ShapeError, match="control 'edge'"):
        bound(LATENTS, 0.5)


@pytest.mark.parametrize(
    ("size", "message"),
    [
        ((3, 7, 8), "latent rows in multiples of 2, at most 32, got 7"),
        ((17, 8, 8), "latent frames in multiples of 1, at most 16, got 17"),
        ((1, 8, 34), "latent columns in multiples of 2, at most 32, got 34"),
    ],
)
def test_latents_beyond_the_positions_are_refused(model, size, message):
    with pytest.raises(ShapeError, match=f"model: expected {message}"):
        model.conditioned_on(TEXT, {}, {})(torch.zeros(1, 16, *size), 0.5)


def test_latents_up_to_the_last_position_are_made(model):
    result = model.conditioned_on(TEXT, {}, {})(tiny.randn(1, 16, 16, 2, 32, seed=5), 0.5)
    assert bool(torch.isfinite(result).all())


def test_too_few_inherited_frames_are_refused(model):
    with pytest.raises(ShapeError, match="2 inherited frames, got 1"):
        denoiser(model, conditioning=(LATENTS[:, :, :1], 2))


def test_a_branch_of_another_base_is_refused(model):
    with pytest.raises(CheckpointError, match="'edge': expected controlled blocks 2, as in the"):
        ControlledModel(model.transformer, {"edge": tiny.embedded_branch(seed=0, num_blocks=1)})
