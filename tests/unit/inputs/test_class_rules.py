from __future__ import annotations

import pytest

from cosmos_transfer.errors import ConfigError
from cosmos_transfer.inputs.class_rules import resolve_class_rule

NAMES = ["robot0_link1", "robot0_gripper", "Table", "wall", "car[3]"]


def resolve(rule: dict[str, float]) -> dict[str, float]:
    return resolve_class_rule(rule, NAMES, where="control 'edge', weight")


def test_a_glob_stands_for_all_the_classes_it_fits() -> None:
    assert resolve({"robot0_*": 0.5, "default": 0.1}) == {
        "Table": 0.1,
        "car[3]": 0.1,
        "robot0_gripper": 0.5,
        "robot0_link1": 0.5,
        "wall": 0.1,
    }


def test_a_class_that_is_named_follows_its_own_line() -> None:
    for rule in (
        {"robot0_gripper": 1.0, "robot0_*": 0.5},
        {"robot0_*": 0.5, "robot0_gripper": 1.0},
    ):
        values = resolve(rule)
        assert (values["robot0_gripper"], values["robot0_link1"], values["wall"]) == (1.0, 0.5, 0.0)


def test_of_several_globs_the_first_decides() -> None:
    assert resolve({"*gripper": 1.0, "robot0_*": 0.5})["robot0_gripper"] == 1.0
    assert resolve({"robot0_*": 0.5, "*gripper": 1.0})["robot0_gripper"] == 0.5


def test_case_and_surrounding_space_do_not_matter() -> None:
    assert resolve({" TABLE ": 1.0, "WA?L": 0.5, "Default": 0.2}) == {
        "Table": 1.0,
        "car[3]": 0.2,
        "robot0_gripper": 0.2,
        "robot0_link1": 0.2,
        "wall": 0.5,
    }


def test_brackets_in_a_name_are_the_name_itself() -> None:
    assert resolve({"car[3]": 1.0})["car[3]"] == 1.0


@pytest.mark.parametrize("name", ["tabel", "robot1_*", "*leg*"])
def test_a_line_that_fits_no_class_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="expected a class of") as caught:
        resolve({name: 1.0})
    assert "Did you mean" in str(caught.value)


def test_without_classes_there_is_nothing_to_name() -> None:
    with pytest.raises(ConfigError, match="names no class at all"):
        resolve_class_rule({"robot": 1.0}, [], where="rule")
    assert resolve_class_rule({"default": 1.0}, [], where="rule") == {}
