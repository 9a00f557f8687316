"""Faults of the stock Cosmos-Transfer2.5 pipeline that made no noise, each shown to be gone.

The stock pipeline lost frames, stretched controls, drew control latents at random, spread one
token's weight over a clip, decoded noise after zero steps, and more, without an error. One test
a fault; the fault is named in the test's docstring or name.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from cosmos_transfer import TransferPipeline
from cosmos_transfer.autoencoder.wan import WanAutoencoder
from cosmos_transfer.diffusion.guidance import Guided
from cosmos_transfer.diffusion.noise import chunk_noise
from cosmos_transfer.diffusion.noise_schedule import flow_sigmas
from cosmos_transfer.errors import ConfigError, ShapeError, TransferError
from cosmos_transfer.inputs.request import request_from_mapping
from cosmos_transfer.long_video.plan import plan_chunks
from cosmos_transfer.model.controlled import ControlledModel
from cosmos_transfer.shapes import Strides
from tests.support import tiny

GRID, NUM_TOKENS = (3, 4, 6), 18


@pytest.fixture(scope="module")
def pipeline(tiny_checkpoint):
    return TransferPipeline.from_pretrained(tiny_checkpoint, show_progress=False)


@pytest.fixture(scope="module")
def model():
    return tiny.transfer2_5_model(("edge", "seg"))


@pytest.fixture(scope="module")
def autoencoder():
    return WanAutoencoder(tiny.wan_autoencoder())


def clip(num_frames, height=32, width=48, seed=0):
    return np.random.default_rng(seed).integers(0, 255, (num_frames, height, width, 3), np.uint8)


def make(pipeline, video, **settings):
    settings = {"controls": {"edge": 1.0}, "num_inference_steps": 1} | settings
    return pipeline(prompt="snow", video=video, **settings)


def condition(model, weights, *, controls=None, batch=1):
    text = tiny.randn(batch, tiny.TEXT_TOKENS, tiny.TEXT_CHANNELS_2_5, seed=1)
    controls = controls or {name: tiny.randn(1, 16, *GRID, seed=2) for name in weights}
    return model.conditioned_on(text, controls, weights)


# 1. Frame counts off the autoencoder's grid.


@pytest.mark.parametrize("num_frames", [1, 2, 8, 10, 17, 23])
def test_no_frame_count_loses_or_moves_a_frame(pipeline, num_frames):
    """29 frames in chunks of 8 came back as 17."""
    assert len(make(pipeline, clip(num_frames)).frames) == num_frames


@pytest.mark.parametrize("chunk_frames", [8, 10, 92, 120])
def test_a_chunk_length_off_the_grid_is_refused(chunk_frames):
    with pytest.raises(TransferError, match="expected"):
        plan_chunks(200, chunk_frames=chunk_frames, overlap=1, strides=Strides(time=4, space=8))


@pytest.mark.parametrize("num_frames", [2, 3, 4, 8])
def test_the_autoencoder_drops_no_frames(autoencoder, num_frames):
    """Encoding 2, 3 or 4 frames gave the latents of one."""
    with pytest.raises(ShapeError, match=r"1 \+ 4 \* i frames"):
        autoencoder.encode(torch.zeros(1, 3, num_frames, 16, 16))


# 2. Limits on positions, per axis, in latents.


def test_long_clips_in_pixels_are_not_refused_for_their_latent_limit(model):
    """Chunks of 129 pixel frames were refused although their 33 latent frames fit."""
    limit = tiny.MAX_SIZE[0]
    denoiser = model.conditioned_on(
        tiny.randn(1, tiny.TEXT_TOKENS, tiny.TEXT_CHANNELS_2_5, seed=1), {}, {}
    )
    latents = tiny.randn(1, 16, limit, 2, 2, seed=3)
    assert denoiser(latents, 0.5).shape == latents.shape


def test_more_positions_than_the_model_has_are_refused_on_every_axis(model):
    text = tiny.randn(1, tiny.TEXT_TOKENS, tiny.TEXT_CHANNELS_2_5, seed=1)
    for shape, axis in (((17, 2, 2), "frames"), ((1, 34, 2), "rows"), ((1, 2, 34), "columns")):
        with pytest.raises(ShapeError, match=f"latent {axis}"):
            model.conditioned_on(text, {}, {})(tiny.randn(1, 16, *shape, seed=3), 0.5)


# 3. Widths guessed from heights; other aspect ratios stretched.


@pytest.mark.parametrize(("height", "width"), [(30, 50), (64, 64), (33, 43), (48, 27)])
def test_every_size_comes_back_as_it_went_in(pipeline, height, width):
    """A square of 64 came back 80 wide; 1280x720 at height 480 was an error."""
    assert make(pipeline, clip(5, height, width)).frames.shape == (5, height, width, 3)


def test_a_control_of_another_aspect_is_refused_rather_than_stretched(pipeline):
    with pytest.raises(TransferError, match="aspect"):
        make(pipeline, clip(5, 32, 48), controls={"edge": {"path": clip(5, 48, 48)}})


def test_a_shorter_control_is_refused_rather_than_shortening_the_clip(pipeline):
    """num_frames beyond the controls silently gave fewer frames."""
    with pytest.raises(TransferError, match="7"):
        make(pipeline, clip(9), controls={"edge": {"path": clip(7)}})


# 4. Batches and seeds.


def test_a_batch_of_prompts_runs_and_equals_its_members(model):
    """num_videos_per_prompt=2 with embeddings was a shape error."""
    weights = {"edge": torch.full((1, NUM_TOKENS), 0.7)}
    both = condition(model, weights, batch=2)
    noise = tiny.randn(2, 16, *GRID, seed=5)
    together = both(noise, 0.5)
    for i in range(2):
        alone = model.conditioned_on(
            both.text_tokens[i : i + 1], {"edge": both.control_latents["edge"][:1]}, weights
        )
        torch.testing.assert_close(together[i : i + 1], alone(noise[i : i + 1], 0.5))


def test_a_run_without_a_seed_is_still_the_same_twice(pipeline):
    first, again = (make(pipeline, clip(5)).frames for _ in range(2))
    assert np.array_equal(first, again)


def test_every_chunk_draws_noise_of_its_own():
    """The same noise started every chunk."""
    first, second = (chunk_noise((4, 4), seed=7, chunk=chunk) for chunk in (0, 1))
    assert not torch.equal(first, second)


# 5. Numbers that mean nothing.


@pytest.mark.parametrize("steps", [0, -1, 2.5, math.nan])
def test_steps_that_are_none_are_refused(pipeline, steps):
    """Zero steps decoded the noise."""
    with pytest.raises(ConfigError, match="num_inference_steps"):
        make(pipeline, clip(5), num_inference_steps=steps)
    with pytest.raises(ConfigError):
        flow_sigmas(0)


@pytest.mark.parametrize("weight", [math.nan, -0.5, math.inf])
def test_weights_that_are_no_strength_are_refused(pipeline, model, weight):
    """A NaN scale made black frames with a NumPy warning."""
    with pytest.raises(ConfigError, match="weight"):
        make(pipeline, clip(5), controls={"edge": weight})
    with pytest.raises(ShapeError, match="control 'edge': expected finite weights of at least 0"):
        condition(model, {"edge": torch.full((1, NUM_TOKENS), weight)})


@pytest.mark.parametrize("scale", [math.nan, math.inf, -1.0])
def test_guidance_that_cannot_be_acted_on_is_refused(pipeline, scale):
    with pytest.raises(ConfigError, match="guidance_scale"):
        make(pipeline, clip(5), guidance_scale=scale)
    with pytest.raises(ConfigError, match="guidance_scale"):
        Guided(lambda x, s: x, lambda x, s: x, scale)


# 6. Residuals and scales of another shape.


def test_a_one_token_weight_is_not_spread_over_the_clip(model):
    denoiser = condition(model, {"edge": torch.ones(1, 1)})
    with pytest.raises(ShapeError, match="18 token weights"):
        denoiser(tiny.randn(1, 16, *GRID, seed=5), 0.5)


@pytest.mark.parametrize("num_residuals", [2, 4])
def test_residuals_too_few_or_too_many_are_refused(num_residuals):
    """A list too long was cut without a word."""
    base = tiny.transfer1_transformer()
    residual = torch.zeros(1, NUM_TOKENS, 64)
    with pytest.raises(ShapeError, match=f"3 residuals, got {num_residuals}"):
        base(
            hidden_states=tiny.randn(1, 16, *GRID, seed=5),
            timestep=torch.ones(1),
            encoder_hidden_states=torch.zeros(1, 4, 32),
            block_controlnet_hidden_states=[residual] * num_residuals,
            condition_mask=torch.zeros(1, 1, *GRID),
            padding_mask=torch.zeros(1, 1, 4, 6),
            return_dict=False,
        )


def test_a_control_of_weight_zero_is_no_control_rather_than_a_black_clip(model):
    """Zero control latents still gave a residual."""
    none = condition(model, {})
    noise = tiny.randn(1, 16, *GRID, seed=5)
    off = condition(model, {"edge": torch.zeros(1, NUM_TOKENS)})
    assert torch.equal(off(noise, 0.5), none(noise, 0.5))
    black = condition(
        model,
        {"edge": torch.ones(1, NUM_TOKENS)},
        controls={"edge": torch.zeros(1, 16, *GRID)},
    )
    assert not torch.allclose(black(noise, 0.5), none(noise, 0.5))


# 7. Randomness where there should be none.


def test_control_latents_are_the_mode_and_not_a_draw(autoencoder):
    video = tiny.randn(1, 3, 5, 16, 16, seed=9).clamp(-1, 1)
    torch.manual_seed(0)
    first = autoencoder.encode_control(video)
    torch.manual_seed(1)
    assert torch.equal(first, autoencoder.encode_control(video))


# 8. The conditioning timestep is a parameter; without one all frames share theirs.


def test_inherited_frames_share_the_clips_time_unless_told_otherwise(model, monkeypatch):
    seen = []
    forward = model.transformer.forward

    def record(*args, timestep, **inputs):
        seen.append(timestep)
        return forward(*args, timestep=timestep, **inputs)

    monkeypatch.setattr(model.transformer, "forward", record)
    text = tiny.randn(1, tiny.TEXT_TOKENS, tiny.TEXT_CHANNELS_2_5, seed=1)
    clean = (tiny.randn(1, 16, 1, 4, 6, seed=4), 1)
    for clean_sigma in (None, 0.0001):
        told = ControlledModel(model.transformer, {}, clean_sigma=clean_sigma)
        told.conditioned_on(text, {}, {}, clean)(tiny.randn(1, 16, *GRID, seed=5), 0.5)
    assert seen[0].shape == (1,)
    assert seen[1].flatten().tolist() == pytest.approx([0.0001, 0.5, 0.5])


# 9. Latents of a chunk keep their own frames.


def test_chunks_meet_without_a_gap_or_a_repeat():
    plan = plan_chunks(101, chunk_frames=93, overlap=1, strides=Strides(time=4, space=8))
    made = [list(chunk.frame_indices)[chunk.num_inherited :] for chunk in plan]
    kept = [index for part in made for index in part]
    assert kept[:101] == list(range(101))


# 10. A short last chunk is short; it is not filled up with one frame over and over.


@pytest.mark.parametrize("num_frames", range(94, 190))
def test_the_last_chunk_holds_less_than_one_latent_frame(num_frames):
    plan = plan_chunks(num_frames, chunk_frames=93, overlap=1, strides=Strides(time=4, space=8))
    assert plan[-1].num_padded < 4


# Words taken for others.


def test_nvidias_guidance_is_one_less_than_the_fields():
    spec = {"prompt": "x", "video": clip(5), "guidance": 3, "controls": {"edge": 1.0}}
    assert request_from_mapping(spec).guidance_scale == 4.0


def test_the_padding_mask_may_meet_a_batch(model):
    """A batch of two with its own padding mask was a shape error."""
    denoiser = condition(model, {"edge": torch.ones(1, NUM_TOKENS)}, batch=2)
    assert denoiser(tiny.randn(2, 16, *GRID, seed=5), 0.5).shape == (2, 16, *GRID)


def test_networks_with_an_image_context_are_given_its_zeros(model, monkeypatch):
    """Text without the zeros of the image context was another model's input."""
    seen = []
    forward = model.transformer.forward

    def record(*args, encoder_hidden_states, **inputs):
        seen.append(encoder_hidden_states)
        return forward(*args, encoder_hidden_states=encoder_hidden_states, **inputs)

    monkeypatch.setattr(model.transformer, "forward", record)
    condition(model, {})(tiny.randn(1, 16, *GRID, seed=5), 0.5)
    (text_and_image,) = seen
    assert isinstance(text_and_image, tuple)
    assert text_and_image[1].shape == (1, 5, 24)
    assert not text_and_image[1].any()
