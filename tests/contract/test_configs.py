"""Every YAML file composes and becomes typed settings."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest
import yaml

from cosmos_transfer.cli.compose import CONFIG_DIR, compose, to_yaml
from cosmos_transfer.config import GenerateSettings

GROUPS = ("look", "model", "output", "experiment")
CHOICES = [
    f"{group}={path.stem}"
    for group in GROUPS
    for path in sorted((CONFIG_DIR / group).glob("*.yaml"))
]
CONTROLS = sorted(path.stem for path in (CONFIG_DIR / "control").glob("*.yaml"))


def test_no_config_file_is_left_out() -> None:
    covered = {CONFIG_DIR / f"{choice.replace('=', '/')}.yaml" for choice in CHOICES}
    covered |= {CONFIG_DIR / "control" / f"{name}.yaml" for name in CONTROLS}
    covered.add(CONFIG_DIR / "generate.yaml")
    covered |= {CONFIG_DIR / f"hydra/launcher/{name}.yaml" for name in ("local", "slurm")}
    assert set(CONFIG_DIR.rglob("*.yaml")) == covered


@pytest.mark.parametrize("choice", CHOICES)
def test_every_group_choice_composes(choice: str) -> None:
    assert isinstance(compose("generate", [choice], GenerateSettings), GenerateSettings)


@pytest.mark.parametrize("choice", CHOICES)
def test_a_file_gives_each_value_it_states(choice: str) -> None:
    settings = compose("generate", [choice], GenerateSettings)
    group, _, name = choice.partition("=")
    text = (CONFIG_DIR / group / f"{name}.yaml").read_text(encoding="utf-8")
    stated = {key: value for key, value in yaml.safe_load(text).items() if key != "defaults"}
    where = settings if group == "experiment" else getattr(settings, group)
    assert stated
    _assert_holds(where, stated)


@pytest.mark.parametrize("name", CONTROLS)
def test_every_control_turns_its_control_on_and_no_other(name: str) -> None:
    settings = compose("generate", [f"+control@controls.{name}={name}"], GenerateSettings)
    assert list(settings.controls.given()) == [name]
    assert settings.controls.given()[name]["weight"] == 1.0


def test_without_a_word_no_control_takes_part() -> None:
    assert compose("generate", [], GenerateSettings).controls.given() == {}


def test_composed_defaults_are_those_of_the_dataclass() -> None:
    assert compose("generate", [], GenerateSettings) == GenerateSettings()


def test_settings_survive_the_way_through_yaml(tmp_path: Path) -> None:
    settings = compose("generate", ["experiment=edge_and_vis", "seed=3"], GenerateSettings)
    again = yaml.safe_load(to_yaml(settings))
    assert again["controls"]["edge"]["weight"] == 0.75
    assert again["seed"] == 3


def test_the_folder_at_the_root_shows_the_same_files(repository: Path) -> None:
    assert (repository / "configs" / "cosmos_transfer").resolve() == CONFIG_DIR


def _assert_holds(settings: object, stated: dict[str, object]) -> None:
    known = {each.name for each in fields(settings)}  # type: ignore[arg-type]
    for key, value in stated.items():
        assert key in known
        held = getattr(settings, key)
        if is_dataclass(held) and isinstance(value, dict):
            _assert_holds(held, value)
        else:
            assert held == value
