"""Our loop against diffusers' own ``Cosmos2_5_TransferPipeline``, on tiny random models.

Same networks (two layers, every part the published model has), same noise, prompt embeddings,
control clip and steps. Their pipeline draws its control and conditioning latents from the
encoder's distribution; the tiny autoencoder's is made so narrow (a standard deviation of 3e-7)
that the draw is the mode to within a tenth of what is compared.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from cosmos_transfer.autoencoder.wan import WanAutoencoder
from cosmos_transfer.diffusion.guidance import Guided
from cosmos_transfer.diffusion.noise_schedule import karras_sigmas
from cosmos_transfer.diffusion.samplers import unipc
from cosmos_transfer.model.controlled import ControlledModel
from tests.support import tiny
from tests.support.numerics import assert_agrees, relative_rms

NUM_STEPS, NVIDIA_GUIDANCE = 5, 3.0
CHUNK_FRAMES, HEIGHT, WIDTH = 9, 64, 48
LATENT_GRID = (3, 8, 6)
NUM_TOKENS = 3 * 4 * 3
AGREES = 1e-5


class PassAll:
    """Stands where their pipeline insists on a safety checker."""

    def to(self, device):
        return self

    def check_text_safety(self, prompt):
        return True

    def check_video_safety(self, frames):
        return frames


@dataclass(frozen=True)
class Case:
    model: ControlledModel
    autoencoder: WanAutoencoder
    text: Tensor
    negative_text: Tensor
    noise: Tensor


@pytest.fixture(scope="module")
def case() -> Case:
    network = tiny.wan_autoencoder()
    with torch.no_grad():
        # The second half of the encoder's last channels is the log-variance, clamped at -30.
        network.quant_conv.weight[tiny.LATENT_CHANNELS :] = 0.0
        network.quant_conv.bias[tiny.LATENT_CHANNELS :] = -60.0
    return Case(
        model=tiny.transfer2_5_model(("edge", "seg"), seed=0),
        autoencoder=WanAutoencoder(network),
        text=tiny.randn(1, tiny.TEXT_TOKENS, tiny.TEXT_CHANNELS_2_5, seed=10),
        negative_text=tiny.randn(1, tiny.TEXT_TOKENS, tiny.TEXT_CHANNELS_2_5, seed=11),
        noise=tiny.randn(1, tiny.LATENT_CHANNELS, *LATENT_GRID, seed=12),
    )


def control_clip(num_frames: int = CHUNK_FRAMES) -> Tensor:
    """A control clip in [0, 1], f 3 h w: what their pipeline preprocesses to [-1, 1]."""
    return torch.sigmoid(tiny.randn(num_frames, 3, HEIGHT, WIDTH, seed=13))


def published_scheduler():
    from diffusers import UniPCMultistepScheduler

    return UniPCMultistepScheduler(
        use_karras_sigmas=True,
        use_flow_sigmas=True,
        prediction_type="flow_prediction",
        sigma_max=200.0,
        sigma_min=0.01,
    )


def theirs(
    case: Case,
    *,
    control: str = "edge",
    scale: float = 1.0,
    guidance: float = NVIDIA_GUIDANCE,
    num_frames: int = CHUNK_FRAMES,
    **options,
) -> Tensor:
    from diffusers import Cosmos2_5_TransferPipeline

    pipeline = Cosmos2_5_TransferPipeline(
        text_encoder=None,
        tokenizer=None,
        transformer=case.model.transformer,
        vae=case.autoencoder.network,
        scheduler=published_scheduler(),
        controlnet=case.model.branches[control],
        safety_checker=PassAll(),
    )
    pipeline.set_progress_bar_config(disable=True)
    return pipeline(
        controls=control_clip(num_frames)[None],
        controls_conditioning_scale=scale,
        height=HEIGHT,
        width=WIDTH,
        num_frames_per_chunk=CHUNK_FRAMES,
        num_inference_steps=NUM_STEPS,
        guidance_scale=guidance,
        generator=torch.Generator().manual_seed(0),
        latents=case.noise.clone(),
        prompt_embeds=case.text,
        negative_prompt_embeds=case.negative_text,
        output_type="latent",
        **options,
    ).frames


def encode_control(case: Case, start: int = 0, num_frames: int = CHUNK_FRAMES) -> Tensor:
    frames = control_clip(num_frames)[start : start + CHUNK_FRAMES]
    return case.autoencoder.encode(2.0 * frames.movedim(0, 1)[None] - 1.0)


def ours(
    case: Case,
    weights: dict[str, float],
    *,
    guidance_scale: float = NVIDIA_GUIDANCE + 1.0,
    controls: dict[str, Tensor] | None = None,
    conditioning: tuple[Tensor, int] | None = None,
    model: ControlledModel | None = None,
) -> Tensor:
    model = model or case.model
    if controls is None:
        controls = {name: encode_control(case) for name in weights}
    maps = {name: torch.full((1, NUM_TOKENS), value) for name, value in weights.items()}
    conditional, unconditional = (
        model.conditioned_on(text, controls, maps, conditioning)
        for text in (case.text, case.negative_text)
    )
    denoiser = Guided(conditional, unconditional, guidance_scale)
    return unipc.sample(denoiser, case.noise, karras_sigmas(NUM_STEPS))


def test_one_control_with_guidance(case):
    assert_agrees(ours(case, {"edge": 1.0}), theirs(case), rms=AGREES)


def test_one_control_without_guidance(case):
    # Theirs is off up to a guidance of 1.
    ours_off = ours(case, {"edge": 1.0}, guidance_scale=1.0)
    assert_agrees(ours_off, theirs(case, guidance=0.0), rms=AGREES)
    assert relative_rms(ours_off, theirs(case)) > 1e-2


def test_a_weight_is_their_conditioning_scale(case):
    assert_agrees(ours(case, {"seg": 0.3}), theirs(case, control="seg", scale=0.3), rms=AGREES)


def test_zero_weights_equal_no_controls(case):
    none = ours(case, {})
    assert torch.equal(ours(case, {"edge": 0.0, "seg": 0.0}), none)
    assert_agrees(none, theirs(case, scale=0.0), rms=AGREES)


def test_weights_of_one_and_zero_equal_the_single_branch(case):
    controls = {"edge": encode_control(case), "seg": encode_control(case).flip(-1)}
    assert torch.equal(
        ours(case, {"edge": 1.0, "seg": 0.0}, controls=controls), ours(case, {"edge": 1.0})
    )
    assert_agrees(
        ours(case, {"edge": 1.0, "seg": 0.0}, controls=controls), theirs(case), rms=AGREES
    )


def test_a_second_control_matters(case):
    both = ours(case, {"edge": 0.5, "seg": 0.5})
    assert relative_rms(both, theirs(case)) > 1e-3


def test_half_of_a_branch_twice_is_the_branch(case):
    twins = ControlledModel(
        case.model.transformer,
        {"edge": case.model.branches["edge"], "vis": case.model.branches["edge"]},
    )
    assert_agrees(ours(case, {"edge": 0.5, "vis": 0.5}, model=twins), theirs(case), rms=AGREES)


@pytest.mark.parametrize("clean_sigma", [0.1, 0.0001])
def test_a_second_chunk_inherits_a_frame(case, clean_sigma):
    # Two chunks of 9 frames share one; their pipeline decodes the first chunk and encodes its
    # last frame again, and starts both chunks from the same latents when given some.
    num_frames = 2 * CHUNK_FRAMES - 1
    expected = theirs(case, num_frames=num_frames, conditional_frame_timestep=clean_sigma)
    controls = [
        {"edge": encode_control(case, start, num_frames)} for start in (0, CHUNK_FRAMES - 1)
    ]
    first = ours(case, {"edge": 1.0}, controls=controls[0])
    last_frame = case.autoencoder.decode(first)[:, :, -1:]
    inherited = case.autoencoder.encode(last_frame)
    model = ControlledModel(
        case.model.transformer, dict(case.model.branches), clean_sigma=clean_sigma
    )
    second = ours(
        case, {"edge": 1.0}, controls=controls[1], conditioning=(inherited, 1), model=model
    )
    assert torch.equal(second[:, :, :1], inherited)
    assert_agrees(torch.cat([first, second[:, :, 1:]], dim=2), expected, rms=AGREES)


@pytest.mark.parametrize(
    "fault",
    [
        {"weights": {"edge": 0.99}},
        {"weights": {"edge": 1.0}, "guidance_scale": NVIDIA_GUIDANCE},
        {"weights": {"edge": 1.0}, "timestep_scale": 0.99},
        {"weights": {"seg": 1.0}},
    ],
    ids=["weights-off-by-1%", "nvidias-guidance-taken-for-ours", "timestep-off-by-1%", "swapped"],
)
def test_a_planted_fault_is_caught(case, fault):
    weights, scale = fault["weights"], fault.get("timestep_scale", 1.0)
    model = ControlledModel(case.model.transformer, dict(case.model.branches), timestep_scale=scale)
    options = {key: fault[key] for key in ("guidance_scale",) if key in fault}
    with pytest.raises(AssertionError, match="relative RMS"):
        assert_agrees(ours(case, weights, model=model, **options), theirs(case), rms=AGREES)
