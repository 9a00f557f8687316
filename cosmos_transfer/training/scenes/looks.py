"""What a clip may look like, and the words for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

FAMILIES = ("tabletop", "driving")

# Attribute -> value -> the words that name it. Prompts use no other words for these values.
VOCABULARY: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "time_of_day": {
        "day": ("day", "daytime", "daylight", "noon"),
        "dusk": ("dusk", "sunset", "evening light", "golden hour"),
        "night": ("night", "nighttime", "midnight", "after dark"),
    },
    "weather": {
        "clear": ("clear weather", "a clear sky", "dry weather"),
        "fog": ("fog", "thick fog", "mist"),
        "rain": ("rain", "rainy weather", "heavy rain"),
        "snow": ("snow", "snowfall", "snowy weather"),
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
    subject = _pick(rng, VOCABULARY["family"][look.family])
    clauses = [_time_clause(rng, words["time_of_day"])]
    if look.family == "driving":
        clauses.append(f"{_pick(rng, ('in', 'with', ''))} {words['weather']}".strip())
        head = _driving_head(rng, subject)
    else:
        table = words["table"]
        if table == "tablecloth":
            surface = _pick(rng, ("table with a tablecloth", "tablecloth"))
        else:
            surface = f"{table} {_pick(rng, ('table', 'tabletop', 'desk'))}"
        clauses.append(_pick(rng, (f"{words['wall']} wall", f"{words['wall']} wall behind")))
        article = "an" if surface[0] in "aeiou" else "a"
        head = _pick(
            rng,
            (
                f"{subject} on {article} {surface}",
                f"a {subject} on {article} {surface}",
                f"{article} {surface} with a {subject}",
                surface,
            ),
        )
    rng.shuffle(clauses)
    parts = [head, *clauses] if rng.random() < 0.75 else [*clauses, head]
    separator = _pick(rng, (", ", ", ", " "))
    return separator.join(parts)


def _time_clause(rng: np.random.Generator, word: str) -> str:
    if word in ("after dark", "evening light", "daylight", "golden hour"):
        return word
    if word in ("night", "midnight", "noon", "dusk", "sunset"):
        return _pick(rng, (f"at {word}", word))
    return word


def _driving_head(rng: np.random.Generator, subject: str) -> str:
    if subject == "drive":
        return _pick(rng, ("a drive", "a drive through the city"))
    return _pick(
        rng, (f"a {subject}", f"driving on a {subject}", f"{subject}", f"view of a {subject}")
    )


def _pick(rng: np.random.Generator, options: Sequence[str]) -> str:
    return options[int(rng.integers(len(options)))]
