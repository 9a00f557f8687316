from __future__ import annotations

from pathlib import Path

import pytest

from cosmos_transfer.cli.compose import compose
from cosmos_transfer.cli.requests import build_requests
from cosmos_transfer.config import GenerateSettings
from cosmos_transfer.errors import ConfigError
from cosmos_transfer.jobs.looks import look_names, read_look
from cosmos_transfer.model.checkpoint import load_checkpoint


def prompts(*overrides: str) -> list[str]:
    settings = compose("generate", overrides, GenerateSettings)
    return [request.prompt for request in build_requests(settings, overrides)]


def test_a_preset_by_name_is_the_same_everywhere(tmp_path: Path) -> None:
    video = "video=a.mp4"
    assert prompts("prompt=a robot arm", "look=night", video) == ["a robot arm, at night"]
    assert read_look("night", "a robot arm") == "a robot arm, at night"
    both = ["a robot arm, veined marble table, at dusk"]
    assert prompts("prompt=a robot arm", "look=[dusk,marble]", video) == both
    assert [read_look("dusk+marble", "a robot arm")] == both
    assert prompts("look=fog", video) == [read_look("fog")]
    listed = tmp_path / "prompts.txt"
    listed.write_text("a street\na drive\n")
    assert prompts(f"prompts_file={listed}", "look=rain", video) == [
        "a street, heavy rain",
        "a drive, heavy rain",
    ]
    spec = tmp_path / "spec.yaml"
    spec.write_text("{prompt: a street, video: a.mp4}")
    (tmp_path / "a.mp4").touch()
    assert prompts(f"spec={spec}", "look=snow") == ["a street, snow"]


def test_a_sentence_is_a_look_of_its_own() -> None:
    assert read_look("a wooden table, night") == "a wooden table, night"
    assert read_look("two + two", "sum") == "sum, two + two"


@pytest.mark.parametrize("text", ["nigth", "night+nothing", ""])
def test_a_preset_that_is_not_there_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="presets joined by"):
        read_look(text)


def test_the_embedded_model_knows_the_words_of_every_preset() -> None:
    encoder = load_checkpoint("embedded").text_encoder
    assert encoder is not None
    assert len(look_names()) >= 16
    for name in look_names():
        assert encoder.unknown_words(read_look(name)) == (), name
