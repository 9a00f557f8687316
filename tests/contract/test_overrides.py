"""What people type: taken as it stands, or refused with the form to type instead."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosmos_transfer.cli.compose import compose, quoted_form
from cosmos_transfer.config import GenerateSettings
from cosmos_transfer.errors import ConfigError

TRIPS = [
    "snow, at night",
    "a wooden table (oak), it's dusk",
    'he said "go"',
    "a=b",
    "кухня ночью",
    "夜の道",
    "red & blue; green #3!",
    "~/clips/a.mp4",
    "[wet] {road}",
    "ends with a backslash \\",
    "price ${HOME}",
    "two\nlines",
]


def composed(*overrides: str) -> GenerateSettings:
    return compose("generate", overrides, GenerateSettings)


@pytest.mark.parametrize("text", TRIPS)
def test_the_quoted_form_gives_the_text_back(text: str) -> None:
    (argument,) = shlex.split(quoted_form("prompt", text))
    assert composed(argument).prompt == text


@pytest.mark.parametrize("text", TRIPS)
def test_an_unquoted_text_is_taken_whole_or_refused_with_its_quoted_form(text: str) -> None:
    taken, refusal = None, ""
    try:
        taken = composed(f"prompt={text}").prompt
    except ConfigError as error:
        refusal = str(error)
    shows_the_way = quoted_form("prompt", text) in refusal and "prompt_file=FILE" in refusal
    assert taken == text or shows_the_way


@settings(max_examples=20, deadline=None)
@given(st.text(st.characters(codec="utf-8", exclude_categories=("C",)), min_size=1, max_size=20))
def test_any_text_can_be_quoted(text: str) -> None:
    (argument,) = shlex.split(quoted_form("prompt", text))
    assert composed(argument).prompt == text


@pytest.mark.parametrize("text", ["007", "1e3", "true", "3.50", "-1"])
def test_a_text_that_looks_like_a_number_stays_a_text(text: str) -> None:
    assert composed(f"name={text}").name == text


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("promt=x", "Did you mean prompt?"),
        ("controls.egde.weight=1", "Did you mean controls.edge.weight?"),
        ("controls.edge.wieght=1", "Did you mean controls.edge.weight?"),
        ("+promt=x", "Did you mean prompt?"),
        ("seed=abc", "seed: expected integer, got 'abc'"),
        ("guidance_scale=1,2", "guidance_scale: expected one value"),
        ("model=embeded", "Did you mean embedded?"),
        ("model.dtype=int4", "model.dtype: expected one of auto, float32"),
        ("controls.seg.weight.robot=1", "expected the whole table in controls.seg.weight"),
        ("variants=0", "variants: expected at least 1, got 0"),
        ("video", "expected key=value"),
    ],
)
def test_a_mistake_is_named_with_what_to_do(override: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        composed(override)
    assert expected in str(caught.value)


def test_blur_is_another_word_for_vis() -> None:
    assert composed("controls.blur.weight=0.3").controls.given() == {"vis": {"weight": 0.3}}


def test_a_table_of_class_weights_is_one_value() -> None:
    given_controls = composed("controls.seg.weight={robot: 1.0, default: 0}").controls.given()
    assert given_controls == {"seg": {"weight": {"robot": 1.0, "default": 0}}}


def test_a_prompt_in_two_places_is_refused() -> None:
    with pytest.raises(ConfigError, match="Drop prompt_file"):
        composed("prompt=a", "prompt_file=b.txt")


def test_a_spec_and_a_request_together_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"spec=a\.yaml together with video"):
        composed("spec=a.yaml", "video=b.mp4")
