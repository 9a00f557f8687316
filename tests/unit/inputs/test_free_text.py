from __future__ import annotations

import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cosmos_transfer.inputs.free_text import (
    FIRST_WORD_ID,
    PADDING_ID,
    PAUSE_ID,
    FreeTextEncoder,
    split_prompt,
    stems,
)
from tests.support.embedded import randomized
from tests.support.numerics import assert_agrees, relative_rms
from tests.support.tiny_words import tiny_text_encoder

# Most frequent first, as in the table.
WORDS = ("a", "the", "wall", "snow", "night", "table", "brick", "snowy", "storm")
EPS = float(torch.finfo(torch.float32).eps)


def encoder() -> FreeTextEncoder:
    torch.manual_seed(5)
    return randomized(tiny_text_encoder(WORDS, width=8).eval(), 1, scale=0.5)


def ids(*words: str) -> list[int]:
    return [PAUSE_ID if w == "," else WORDS.index(w) + FIRST_WORD_ID for w in words]


def tokenized(prompt: str) -> list[int]:
    (row,) = encoder().tokenize([prompt]).tolist()
    return row


def same(one: str, other: str) -> bool:
    with torch.no_grad():
        a, b = encoder().encode([one, other])
    return torch.equal(a, b)


def test_words_and_pauses_are_ids_padded_to_the_longest_prompt() -> None:
    rows = encoder().tokenize(["snow, brick wall", "", "night"]).tolist()
    assert rows[0] == ids("snow", ",", "brick", "wall")
    assert rows[1] == [PADDING_ID] * 4
    assert rows[2] == [*ids("night"), 0, 0, 0]


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ("SNOW night", ["snow", "night"]),
        ("snow-night", ["snow", "night"]),
        ("1snow2night", ["snow", "night"]),
        ("...snow!", ["snow"]),
        ("snow,, night", ["snow", ",", "night"]),
        ("night's snow", ["night", "snow"]),
        ("nights", ["night"]),
        ("tables", ["table"]),
        ("snowing", ["snow"]),
        ("snowed in", ["snow"]),
        ("bricky", ["brick"]),
        ("snowstorm", ["snow", "storm"]),
        ("snowstorms", []),
        ("bricck wall", ["brick", "wall"]),
        ("nigth", ["night"]),
        ("snw", []),
        ("tabel", ["table"]),
        ("brik", ["brick"]),
        ("br\N{LATIN SMALL LETTER I WITH DIAERESIS}ck", ["brick"]),
    ],
)
def test_a_word_is_found_under_its_stem_as_a_compound_or_amended(
    prompt: str, words: list[str]
) -> None:
    assert tokenized(prompt) == (ids(*words) or [PADDING_ID])


def test_the_table_is_asked_before_the_stem() -> None:
    assert tokenized("snowy") == ids("snowy")


def test_of_several_spellings_one_slip_away_the_frequent_one_is_meant() -> None:
    # "walll" doubles a letter; "wabl" could be several words by exchange, none by doubling.
    assert tokenized("walll") == ids("wall")
    assert tokenized("tball") == [PADDING_ID]


def test_unknown_words_are_left_out_and_reported_once() -> None:
    prompt = "a purple snow in the NIGHT, with purple glitter"
    assert encoder().unknown_words(prompt) == ("purple", "in", "with", "glitter")
    assert same(prompt, "a snow the night")
    assert encoder().unknown_words("") == ()
    assert encoder().unknown_words("snow, brick.") == ()


def test_words_of_other_scripts_are_reported_not_taken_apart() -> None:
    assert encoder().unknown_words("snow, ночь, 雪") == ("ночь", "雪")


def test_words_without_room_are_reported() -> None:
    prompt = "snow night brick wall the table snow brick night storm"
    assert encoder().unknown_words(prompt) == ("night", "storm")
    assert tokenized(prompt) == tokenized("snow night brick wall the table snow brick")


def test_word_order_and_pauses_matter() -> None:
    prompts = ["brick wall, snow table", "brick table, snow wall", "brick wall snow, table"]
    with torch.no_grad():
        first, second, third = encoder().encode(prompts)
    assert relative_rms(first, second) > 0.002
    assert relative_rms(first, third) > 0.0005


def test_every_word_matters() -> None:
    with torch.no_grad():
        encoded = encoder().encode(["", "snow", "night", "snow night", "snow snow"]).flatten(1)
    distances = torch.cdist(encoded, encoded) + torch.eye(5)
    assert float(distances.min()) > 0.01


def test_any_prompt_has_as_many_tokens_the_empty_one_too() -> None:
    with torch.no_grad():
        encoded = encoder().encode(["", "!?", "snow"])
    assert encoded.shape == (3, 3, 8)
    assert torch.equal(encoded[0], encoded[1])
    assert bool(torch.isfinite(encoded).all())
    assert encoder().tokenize([]).shape == (0, 1)


@torch.no_grad()
def test_prompts_of_a_batch_do_not_meet() -> None:
    prompts = ["snow", "brick wall, night", ""]
    together = encoder().encode(prompts)
    for prompt, tokens in zip(prompts, together, strict=True):
        (alone,) = encoder().encode([prompt])
        assert_agrees(alone, tokens, rms=64 * EPS)


def test_training_and_evaluation_encode_alike() -> None:
    # torch takes another path through its layers in evaluation mode.
    network = encoder()
    with torch.no_grad():
        evaluated = network.encode(["snow night", "brick"])
    trained = network.train().encode(["snow night", "brick"])
    assert_agrees(evaluated, trained, rms=64 * EPS)


def test_the_vectors_are_the_table_in_units_of_its_scales() -> None:
    network = encoder()
    row = network.vectors(network.tokenize(["snow,"]))
    assert torch.equal(row[0, 0], network.table[WORDS.index("snow")] * network.scales)
    pause = network.vectors(network.tokenize(["snow, snow"]))[0, 1]
    assert torch.equal(pause, torch.zeros(4))


def test_its_config_and_state_build_it_again() -> None:
    network = encoder()
    again = FreeTextEncoder.from_config(json.loads(json.dumps(network.config)))
    assert again.unknown_words("snow") == ("snow",)
    again.load_state_dict(network.state_dict())
    assert again.unknown_words("the purple snow") == ("purple",)
    with torch.no_grad():
        assert torch.equal(again.eval().encode(["snow wall"]), network.encode(["snow wall"]))


def test_stems_have_three_letters_or_more() -> None:
    assert "snow" in list(stems("snowing"))
    assert "shady" in list(stems("shadiness"))
    assert set(stems("ties")) == {"tie"}
    assert list(stems("as")) == []


def test_contractions_are_two_words() -> None:
    assert list(split_prompt("it isn\N{RIGHT SINGLE QUOTATION MARK}t night")) == [
        "it",
        "is",
        "not",
        "night",
    ]
    assert list(split_prompt("can't")) == ["can", "not"]


@settings(max_examples=60, deadline=None)
@given(prompt=st.text(max_size=200))
def test_any_text_is_a_prompt(prompt: str) -> None:
    network = encoder()
    (row,) = network.tokenize([prompt]).tolist()
    assert 1 <= len(row) <= network.settings.max_words
    assert all(0 <= each < FIRST_WORD_ID + len(WORDS) for each in row)
    pieces = list(split_prompt(prompt))
    assert set(network.unknown_words(prompt)) <= set(pieces)
