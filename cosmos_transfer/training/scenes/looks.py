"""What a clip may look like, and the words for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

FAMILIES = ("tabletop", "driving")

# Attribute -> value -> the words that name it. Prompts use no other words for these values.
VOCABULARY: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "time_of_day": {
        "day": ("day", "daytime", "daylight", "noon", "sunlit"),
        "dusk": ("dusk", "sunset", "evening light", "golden hour"),
        "night": ("night", "nighttime", "midnight", "after dark"),
    },
    "weather": {
        "clear": ("clear weather", "a clear sky", "dry weather", "dry"),
        "fog": ("fog", "thick fog", "mist", "foggy", "misty"),
        "rain": ("rain", "rainy weather", "heavy rain", "rainy", "wet"),
        "snow": ("snow", "snowfall", "snowy weather", "snowy", "snow covered"),
    },
    "table": {
        "wood": ("wooden", "wood", "oak"),
        "marble": ("marble", "veined marble"),
        "cloth": ("cloth covered", "checked cloth", "tablecloth"),
        "metal": ("metal", "steel", "brushed metal"),
    },
    "wall": {
        "brick": ("brick", "red brick"),
        "plaster": ("plaster", "plastered", "rough plaster"),
        "painted": ("painted", "colourful painted"),
        "tiled": ("tiled", "white tile"),
    },
    "family": {
        "tabletop": ("robot arm", "robotic arm", "manipulator", "robot"),
        "driving": ("street", "city street", "road", "drive"),
    },
}

# Words that stand before a noun, and those that need no "at".
ADJECTIVES = frozenset({"dry", "foggy", "misty", "rainy", "wet", "snowy", "snow covered", "sunlit"})
BARE_TIMES = frozenset({"daytime", "nighttime", "after dark"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Materials and light of one rendering. `variation` settles what words leave open."""

    family: str
    time_of_day: str
    weather: str = "clear"  # indoors it is always clear, and goes unmentioned
    table: str | None = None
    wall: str | None = None
    variation: int = 0

    def attributes(self) -> dict[str, str]:
        """Return the attributes that a prompt has to name."""
        if self.family == "driving":
            return {"time_of_day": self.time_of_day, "weather": self.weather}
        return {
            "time_of_day": self.time_of_day,
            "table": str(self.table),
            "wall": str(self.wall),
        }


def draw_look(rng: np.random.Generator, family: str) -> Look:
    """Draw a look in which all attributes are independent."""
    time_of_day = _pick(rng, tuple(VOCABULARY["time_of_day"]))
    variation = int(rng.integers(2**31))
    if family == "driving":
        weather = _pick(rng, tuple(VOCABULARY["weather"]))
        return Look(family=family, time_of_day=time_of_day, weather=weather, variation=variation)
    return Look(
        family=family,
        time_of_day=time_of_day,
        table=_pick(rng, tuple(VOCABULARY["table"])),
        wall=_pick(rng, tuple(VOCABULARY["wall"])),
        variation=variation,
    )


def describe_look(look: Look, rng: np.random.Generator) -> str:
    """Write a prompt that names every attribute of a look, in one of many wordings."""
    words = {
        attribute: _pick(rng, VOCABULARY[attribute][value])
        for attribute, value in look.attributes().items()
    }
    if look.family == "driving":
        head, clauses = _describe_street(rng, words["weather"])
    else:
        head, clauses = _describe_table(rng, words["table"], words["wall"])
    time = words["time_of_day"]
    if time in ADJECTIVES:
        head = _with_article(f"{time} scene of {head}")
    else:
        clauses.append(_time_clause(rng, time))
    order = [clauses[int(index)] for index in rng.permutation(len(clauses))]
    parts = [head, *order] if rng.random() < 0.75 else [*order, head]
    return _pick(rng, (", ", ", ", " ")).join(parts)


def _describe_street(rng: np.random.Generator, weather: str) -> tuple[str, list[str]]:
    """Return what is shown, and clauses to go with it."""
    subject = _pick(rng, VOCABULARY["family"]["driving"])
    clauses = []
    if weather in ADJECTIVES:
        subject = f"{weather} {subject}"
    elif weather == "a clear sky":
        clauses.append("under a clear sky")
    else:
        clauses.append(_pick(rng, (f"in {weather}", f"with {weather}", weather)))
    if subject.endswith("drive"):
        through = _pick(rng, ("", " through the city"))
        return f"{_with_article(subject)}{through}", clauses
    opening = _pick(rng, ("", "", "driving on ", "view of "))
    return f"{opening}{_with_article(subject)}", clauses


def _describe_table(rng: np.random.Generator, table: str, wall: str) -> tuple[str, list[str]]:
    """Return what is shown, and clauses to go with it."""
    subject = _with_article(_pick(rng, VOCABULARY["family"]["tabletop"]))
    if table == "tablecloth":
        surface = _pick(rng, ("a table with a tablecloth", "a tablecloth"))
    else:
        surface = _with_article(f"{table} {_pick(rng, ('table', 'tabletop', 'desk'))}")
    head = _pick(
        rng, (f"{subject} on {surface}", f"{subject} on {surface}", f"{surface} and {subject}")
    )
    return head, [_pick(rng, (f"{wall} wall", f"{_with_article(wall)} wall behind"))]


def _time_clause(rng: np.random.Generator, word: str) -> str:
    if word in BARE_TIMES:
        return word
    preposition = "in" if word in ("day", "daylight", "evening light") else "at"
    return word if word == "day" else _pick(rng, (f"{preposition} {word}", word))


def _with_article(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def _pick(rng: np.random.Generator, options: Sequence[str]) -> str:
    return options[int(rng.integers(len(options)))]
