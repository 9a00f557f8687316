from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from cosmos_transfer import TransferPipeline
from cosmos_transfer.cli.embed import main as embed
from cosmos_transfer.errors import CheckpointError, ConfigError
from cosmos_transfer.model.branches import TextProjection, share_parts
from cosmos_transfer.model.controlled import ControlledModel
from cosmos_transfer.model.prompt_cache import CachedTextEncoder, encoder_identity
from tests.support import tiny

GRID, NUM_TOKENS = (2, 4, 4), 8


class Encoder:
    """Counts, and gives every prompt tokens of its own."""

    def __init__(self):
        self.asked = []

    def encode(self, prompts):
        self.asked += prompts
        return torch.cat([tiny.randn(1, 7, 48, seed=len(prompt)) for prompt in prompts])

    def unknown_words(self, prompt):
        return ("flurb",) if "flurb" in prompt else ()


def shared_model():
    """A model whose branches share the base's projection, as published ones do."""
    model = tiny.transfer2_5_model(("edge",))
    branch = model.branches["edge"]
    branch.crossattn_proj.load_state_dict(model.transformer.crossattn_proj.state_dict())
    share_parts(model.transformer, {"edge": branch})
    return ControlledModel(model.transformer, {"edge": branch})


# -------------------------------------------------------------------------- projected once


def test_text_is_projected_once_a_run_and_the_result_is_the_same():
    apart = tiny.transfer2_5_model(("edge",))
    once = shared_model()
    assert isinstance(once.transformer.crossattn_proj, TextProjection)
    assert once.branches["edge"].crossattn_proj is once.transformer.crossattn_proj
    # The same weights, projected in every network at every step.
    apart.branches["edge"].crossattn_proj.load_state_dict(
        once.transformer.crossattn_proj.state_dict()
    )
    assert not isinstance(apart.transformer.crossattn_proj, TextProjection)
    text, noise = tiny.randn(1, 7, 48, seed=1), tiny.randn(1, 16, *GRID, seed=2)
    control = {"edge": tiny.randn(1, 16, *GRID, seed=3)}
    weights = {"edge": torch.ones(1, NUM_TOKENS)}
    bound = once.conditioned_on(text, control, weights)
    assert bound.text_tokens.shape[-1] == tiny.TEXT_WIDTH
    calls = []
    once.transformer.crossattn_proj[0].register_forward_hook(lambda *_: calls.append(1))
    assert torch.equal(bound(noise, 0.5), apart.conditioned_on(text, control, weights)(noise, 0.5))
    assert not calls


def test_projected_text_may_be_given_instead():
    model = shared_model()
    text, noise = tiny.randn(1, 7, 48, seed=1), tiny.randn(1, 16, *GRID, seed=2)
    projected = model.transformer.crossattn_proj(text)
    got = model.conditioned_on(projected, {}, {})(noise, 0.5)
    assert torch.equal(got, model.conditioned_on(text, {}, {})(noise, 0.5))


def test_the_projections_weights_keep_their_names():
    names = shared_model().transformer.state_dict().keys()
    assert {"crossattn_proj.0.weight", "crossattn_proj.0.bias"} <= names


# ------------------------------------------------------------------------------- the cache


def test_a_prompt_is_encoded_and_projected_once(tmp_path):
    encoder, model = Encoder(), shared_model()
    projection = model.transformer.crossattn_proj
    cache = CachedTextEncoder(tmp_path, "a", encoder=encoder, projection=projection)
    first = cache.encode(["snow", "night rain"])
    again = cache.encode(["night rain", "snow"])
    assert encoder.asked == ["snow", "night rain"]
    assert torch.equal(first, again.flip(0))
    assert first.shape == (2, 7, tiny.TEXT_WIDTH)
    elsewhere = CachedTextEncoder(tmp_path, "a")
    assert torch.equal(elsewhere.encode(["snow"]), first[:1])
    assert (cache.unknown_words("flurb"), elsewhere.unknown_words("flurb")) == (("flurb",), ())


def test_a_prompt_that_was_not_encoded_says_where_to(tmp_path):
    with pytest.raises(CheckpointError, match=r"got 'snow'\. Run cosmos-transfer embed"):
        CachedTextEncoder(tmp_path, "a").encode(["snow"])


def test_another_checkpoints_cache_is_not_read(tmp_path):
    CachedTextEncoder(tmp_path, "a", encoder=Encoder()).encode(["snow"])
    with pytest.raises(CheckpointError, match="encoded before"):
        CachedTextEncoder(tmp_path, "b").encode(["snow"])


@pytest.mark.parametrize("damage", ["text", "swapped", "no tokens"])
def test_a_damaged_file_is_refused(tmp_path, damage):
    cache = CachedTextEncoder(tmp_path, "a", encoder=Encoder())
    cache.encode(["snow", "rain"])
    path = cache.path_of("snow")
    if damage == "text":
        path.write_text("no")
    elif damage == "swapped":
        shutil.copy(cache.path_of("rain"), path)
    else:
        save_file({"other": torch.zeros(1)}, path, {"prompt": "snow"})
    with pytest.raises(CheckpointError, match=r"encoded prompt .*Delete the file"):
        cache.encode(["snow"])


def test_identity_is_the_projections_in_any_dtype():
    model = shared_model()
    one = encoder_identity(model.transformer, "name")
    assert one == encoder_identity(model.transformer.to(torch.bfloat16), "another name")
    assert one != encoder_identity(tiny.transfer2_5_transformer(seed=9), "name")
    assert encoder_identity(tiny.embedded_transformer(), "name") == "name"


# ----------------------------------------------------------------------------- the command


def test_embedding_here_and_generating_there_gives_the_same_clip(tiny_checkpoint, tmp_path, capsys):
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("night\n\nsnow\n")
    assert (
        embed(
            [
                "snow flurb",
                "--file",
                str(prompts),
                "--cache",
                str(tmp_path / "cache"),
                "--checkpoint",
                str(tiny_checkpoint),
            ]
        )
        == 0
    )
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 4  # the empty prompt too
    assert "flurb" in said.err
    video = np.random.default_rng(0).integers(0, 255, (5, 32, 48, 3), np.uint8)
    frames = []
    for cache in (None, tmp_path / "cache"):
        pipeline = TransferPipeline.from_pretrained(
            tiny_checkpoint, show_progress=False, prompt_cache=cache
        )
        frames.append(
            pipeline(prompt="snow", video=video, controls={"edge": 1.0}, guidance_scale=2.0).frames
        )
    assert np.array_equal(*frames)
    assert "known" in _again(tmp_path, tiny_checkpoint, capsys)


def _again(folder, checkpoint, capsys):
    embed(["night", "--cache", str(folder / "cache"), "--checkpoint", str(checkpoint)])
    return capsys.readouterr().out


def test_no_prompt_is_a_mistake(tmp_path):
    with pytest.raises(ConfigError, match="a prompt, or --file"):
        embed(["--cache", str(tmp_path)])
    with pytest.raises(ConfigError, match="a text file in UTF-8"):
        embed(["--cache", str(tmp_path), "--file", str(tmp_path / "none.txt")])
