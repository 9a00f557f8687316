"""The grammar of prompts says what its labels say, in many words, and none of the held-out ones."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import numpy as np

from cosmos_transfer.training import prompts as grammar
from cosmos_transfer.training.prompts import (
    ATTRIBUTES,
    draw_attributes,
    paraphrase,
    read_look,
    reword,
    write_prompt,
)
from cosmos_transfer.training.scenes import FAMILIES, describe_look, draw_look

HELD_OUT = Path(__file__).resolve().parents[3] / "benchmarks" / "prompts_heldout.tsv"


def rng(*seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_prompts_of_the_scenes_are_read_exactly() -> None:
    for seed in range(400):
        look = draw_look(rng(seed), FAMILIES[seed % 2])
        said = read_look(describe_look(look, rng(seed, 1)))
        assert said == look.attributes() | {"family": look.family}, seed


def test_a_prompt_is_labelled_with_what_was_asked_for() -> None:
    for seed in range(200):
        attributes = draw_attributes(rng(seed))
        labels = write_prompt(attributes, rng(seed)).attributes
        assert attributes.items() <= labels.items()
        assert set(labels) - set(attributes) <= {"family"}
        assert all(value in ATTRIBUTES[name] for name, value in labels.items())


def test_attributes_of_the_two_families_do_not_mix() -> None:
    drawn = [draw_attributes(rng(seed)) for seed in range(500)]
    assert not any("weather" in each and {"table", "wall"} & each.keys() for each in drawn)
    counts = Counter(name for each in drawn for name in each)
    assert all(counts[name] > 50 for name in ATTRIBUTES)
    assert any(not each for each in drawn)


def test_one_look_has_many_wordings_and_a_seed_has_one() -> None:
    look = draw_look(rng(3), "tabletop")
    wordings = {paraphrase(look, rng(seed)) for seed in range(50)}
    assert len(wordings) > 45
    assert paraphrase(look, rng(1)) == paraphrase(look, rng(1))


def test_rewording_empties_a_share_of_the_prompts() -> None:
    reworded = reword(["a street in snow at night"] * 400, rng(0), share_empty=0.25)
    assert 60 < reworded.count("") < 140
    assert reword(["a street"], rng(0), share_empty=1.0) == [""]


def test_most_rewordings_name_everything() -> None:
    attributes = {"time_of_day": "night", "weather": "snow", "family": "driving"}
    named: list[int] = []
    original = grammar.write_prompt

    def counted(attributes, generator):
        named.append(len(attributes))
        return original(attributes, generator)

    grammar.write_prompt, kept = counted, grammar.write_prompt
    try:
        for seed in range(200):
            paraphrase(attributes, rng(seed))
    finally:
        grammar.write_prompt = kept
    assert 120 < named.count(3) < 190


def test_the_held_out_words_are_not_in_the_grammar() -> None:
    source = Path(grammar.__file__).read_text("utf-8")
    spoken = set(re.findall(r"[a-z]+", " ".join(re.findall(r'"([^"]*)"', source)).lower()))
    # A word that stands for a value nowhere but in the held-out prompts.
    for word in (
        "walnut",
        "mahogany",
        "pine",
        "bamboo",
        "granite",
        "travertine",
        "quartz",
        "linen",
        "cotton",
        "gingham",
        "aluminium",
        "chrome",
        "zinc",
        "iron",
        "masonry",
        "brickwork",
        "stucco",
        "gypsum",
        "ceramic",
        "porcelain",
        "mosaic",
        "emulsion",
        "turquoise",
        "blizzard",
        "drizzle",
        "downpour",
        "haze",
        "hazy",
        "smog",
        "twilight",
        "sundown",
        "midday",
        "afternoon",
        "moonlit",
        "starlit",
        "nocturnal",
        "motorway",
        "highway",
        "freeway",
        "boulevard",
        "avenue",
        "gripper",
        "cobot",
    ):
        assert word not in spoken, word


def test_held_out_prompts_are_labelled_with_values_that_exist() -> None:
    names = ("time_of_day", "weather", "table", "wall", "family")
    rows = [
        line.split("\t")
        for line in HELD_OUT.read_text("utf-8").splitlines()
        if line and not line.startswith("#")
    ]
    assert len(rows) > 150
    for *labels, _ in rows:
        for name, label in zip(names, labels, strict=True):
            assert label in ("-", "?") or set(label.split("|")) <= set(ATTRIBUTES[name])
