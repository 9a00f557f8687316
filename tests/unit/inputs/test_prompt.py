from __future__ import annotations

import json

import pytest
import torch

from cosmos_transfer.inputs.prompt import (
    PADDING_ID,
    VocabularyTextConfig,
    VocabularyTextEncoder,
    split_words,
)
from tests.support.embedded import randomized
from tests.support.numerics import assert_agrees, relative_rms

CONFIG = VocabularyTextConfig(
    words=("brick", "night", "snow", "table", "wall"),
    ignored_words=("a", "in", "the"),
    max_words=6,
    width=8,
    num_heads=2,
)


def encoder() -> VocabularyTextEncoder:
    return randomized(VocabularyTextEncoder(CONFIG).eval(), 1, scale=0.5)


def same(one: str, other: str) -> bool:
    with torch.no_grad():
        a, b = encoder().encode([one, other])
    return torch.equal(a, b)


def test_words_are_ids_from_one_padded_with_zeros() -> None:
    ids = encoder().tokenize(["snow, brick wall", "", "night"])
    assert ids.tolist() == [[3, 1, 5, 0, 0, 0], [PADDING_ID] * 6, [2, 0, 0, 0, 0, 0]]


def test_unknown_words_are_dropped_and_reported() -> None:
    prompt = "a purple snow in the NIGHT, with purple glitter"
    assert encoder().unknown_words(prompt) == ("purple", "with", "glitter")
    assert same(prompt, "snow night")


def test_articles_and_the_like_are_dropped_without_a_word() -> None:
    assert encoder().unknown_words("the snow in a night") == ()


@pytest.mark.parametrize(
    "prompt",
    ["SNOW Night", "snow-night", "snow/night!", " snow\n\tnight ", "snow_night", "1snow2night"],
)
def test_capitals_digits_and_punctuation_do_not_matter(prompt: str) -> None:
    assert same(prompt, "snow night")
    assert encoder().unknown_words(prompt) == ()


def test_words_of_other_scripts_are_reported_not_taken_apart() -> None:
    assert encoder().unknown_words("snow, ночь, 雪, café") == ("ночь", "雪", "café")
    assert encoder().unknown_words("snowé") == ("snowé",)


def test_word_order_matters() -> None:
    with torch.no_grad():
        one, other = encoder().encode(["brick wall, snow table", "brick table, snow wall"])
    assert relative_rms(one.mean(dim=0), other.mean(dim=0)) > 0.01


def test_every_word_matters() -> None:
    with torch.no_grad():
        encoded = encoder().encode(["", "snow", "night", "snow night", "snow snow"])
    means = encoded.mean(dim=1)
    distances = torch.cdist(means, means) + torch.eye(5)
    assert float(distances.min()) > 0.01


def test_words_beyond_the_longest_prompt_are_reported() -> None:
    prompt = "snow night brick wall the table snow brick night"
    assert encoder().unknown_words(prompt) == ("brick", "night")
    assert same(prompt, "snow night brick wall table snow")
    assert encoder().unknown_words("the " * 100 + "snow") == ()


def test_the_empty_prompt_has_tokens_of_its_own_as_any_prompt_has() -> None:
    with torch.no_grad():
        encoded = encoder().encode(["", "!?", "snow"])
    assert encoded.shape == (3, 6, 8)
    assert torch.equal(encoded[0], encoded[1])
    assert bool(torch.isfinite(encoded).all())
    assert encoder().unknown_words("") == ()


@torch.no_grad()
def test_prompts_of_a_batch_do_not_meet() -> None:
    prompts = ["snow", "brick wall, night", ""]
    together = encoder().encode(prompts)
    for prompt, tokens in zip(prompts, together, strict=True):
        (alone,) = encoder().encode([prompt])
        assert_agrees(alone, tokens, rms=16 * float(torch.finfo(torch.float32).eps))


def test_no_prompts_are_no_tokens() -> None:
    assert encoder().tokenize([]).shape == (0, 6)


def test_training_and_evaluation_encode_alike() -> None:
    # torch takes another path through the layer in evaluation mode.
    network = encoder()
    with torch.no_grad():
        evaluated = network.encode(["snow night"])
    trained = network.train().encode(["snow night"])
    assert_agrees(evaluated, trained, rms=16 * float(torch.finfo(torch.float32).eps))


def test_its_config_builds_it_again() -> None:
    network = encoder()
    again = VocabularyTextEncoder.from_config(json.loads(json.dumps(network.config)))
    again.load_state_dict(network.state_dict())
    assert again.unknown_words("the purple snow") == ("purple",)
    with torch.no_grad():
        assert torch.equal(again.eval().encode(["snow wall"]), network.encode(["snow wall"]))


def test_a_prompt_is_split_into_words() -> None:
    assert split_words("A snowy street, at 5 o'clock") == [
        "a",
        "snowy",
        "street",
        "at",
        "o",
        "clock",
    ]
