"""The guardrail is on for published weights, and never silently absent."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from cosmos_transfer import TransferPipeline
from cosmos_transfer.errors import ConfigError, GuardrailError, TransferError
from cosmos_transfer.model import guardrail as module
from cosmos_transfer.model.guardrail import CosmosGuardrail, Guardrail, choose_guardrail

FRAMES = np.zeros((3, 8, 8, 3), np.uint8)


class Checker:
    """The calls of NVIDIA's checker."""

    def __init__(self, *, text=True, video=lambda frames: frames):
        self.text, self.video, self.asked = text, video, []

    def to(self, device):
        self.asked.append(device)
        return self

    def check_text_safety(self, prompt):
        self.asked.append(prompt)
        if isinstance(self.text, Exception):
            raise self.text
        return self.text

    def check_video_safety(self, frames):
        self.asked.append(frames.shape)
        return self.video(frames)


@pytest.fixture
def installed(monkeypatch):
    """Pretend that cosmos-guardrail is installed."""
    checker = Checker()
    monkeypatch.setitem(
        sys.modules, module.PACKAGE, SimpleNamespace(CosmosSafetyChecker=lambda: checker)
    )
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: object())
    return checker


def test_embedded_weights_have_none_and_published_ones_have_one(installed):
    assert choose_guardrail("auto", is_published=False, device="cpu") is None
    guardrail = choose_guardrail("auto", is_published=True, device="cpu")
    assert isinstance(guardrail, Guardrail)
    assert installed.asked == ["cpu"]
    assert choose_guardrail("on", is_published=False, device="cpu") is not None
    assert choose_guardrail("off", is_published=True, device="cpu") is None


def test_a_missing_package_stops_published_weights_before_they_load(monkeypatch):
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(GuardrailError, match=r"cosmos-guardrail, as the checkpoint's licence"):
        choose_guardrail("auto", is_published=True, device="cpu")


def test_weights_that_cannot_be_fetched_are_no_guardrail(installed, monkeypatch):
    def gated():
        raise OSError("401 gated repo")

    monkeypatch.setattr(sys.modules[module.PACKAGE], "CosmosSafetyChecker", gated)
    with pytest.raises(GuardrailError, match="401 gated repo"):
        choose_guardrail("auto", is_published=True, device="cpu")


def test_an_unknown_mode_is_named():
    with pytest.raises(ConfigError, match=r"model\.guardrail: expected one of auto, on, off"):
        choose_guardrail("maybe", is_published=False, device="cpu")


def test_what_it_refuses_is_refused():
    with pytest.raises(GuardrailError, match="a prompt it lets pass, got 'a bad thing'"):
        CosmosGuardrail(Checker(text=False)).check_prompt("a bad thing")
    with pytest.raises(GuardrailError, match="frames it lets pass"):
        CosmosGuardrail(Checker(video=lambda frames: None)).check_frames(FRAMES)


def test_an_error_inside_it_is_a_refusal():
    def broken(frames):
        raise RuntimeError("no face model")

    with pytest.raises(GuardrailError, match="an answer about the prompt, got ValueError: x"):
        CosmosGuardrail(Checker(text=ValueError("x"))).check_prompt("a street")
    with pytest.raises(GuardrailError, match=r"an answer about the frames.*no face model"):
        CosmosGuardrail(Checker(video=broken)).check_frames(FRAMES)


def test_frames_of_another_shape_are_refused():
    with pytest.raises(GuardrailError, match="frames of shape"):
        CosmosGuardrail(Checker(video=lambda frames: frames[:1])).check_frames(FRAMES)


def test_the_frames_it_returns_are_the_ones_shown(tiny_checkpoint):
    blurred = Checker(video=lambda frames: np.full_like(frames, 7))
    pipeline = TransferPipeline.from_pretrained(tiny_checkpoint, show_progress=False)
    pipeline.guardrail = CosmosGuardrail(blurred)
    video = np.random.default_rng(0).integers(0, 255, (5, 32, 48, 3), np.uint8)
    clip = pipeline(prompt="snow", video=video, controls={"edge": 1.0}, num_inference_steps=1)
    assert (clip.frames == 7).all()
    assert blurred.asked == ["snow", (5, 32, 48, 3)]
    assert "guardrail: cosmos-guardrail" in clip.record.notes


def test_a_refused_prompt_generates_nothing(tiny_checkpoint, monkeypatch):
    pipeline = TransferPipeline.from_pretrained(tiny_checkpoint, show_progress=False)
    pipeline.guardrail = CosmosGuardrail(Checker(text=False))
    monkeypatch.setattr(pipeline, "_finished", lambda run: pytest.fail("went on"))
    video = np.zeros((5, 32, 48, 3), np.uint8)
    with pytest.raises(TransferError, match="guardrail"):
        pipeline(prompt="snow", video=video, controls={"edge": 1.0})
