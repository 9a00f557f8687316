"""Class rules: a number for every class of a segmentation, by its name.

A rule is a mapping such as ``{gripper: 1.0, "robot0_*": 0.5, default: 0.0}``. Names are compared
without regard to case and surrounding space. A name with ``*``, ``?`` or ``[...]`` is a glob and
may stand for several classes; a class that is named itself follows that line, whatever globs it
fits, and of several globs the first one written decides. ``default`` is every other class, 0 where
it is left out.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from cosmos_transfer.errors import ConfigError, explain

DEFAULT_CLASS = "default"
MAX_LISTED = 12


def resolve_class_rule(
    rule: Mapping[str, float], names: Iterable[str], *, where: str, of: str = "the segmentation"
) -> dict[str, float]:
    """The number of every class in ``names``.

    Args:
        rule: Number by class name, glob or ``default``.
        names: The classes that there are.
        where: What the rule belongs to, for errors.
        of: What has the classes, for errors.

    Raises:
        ConfigError: A line of the rule fits no class.
    """
    present = sorted(set(names))
    lines = {fold(name): value for name, value in rule.items()}
    globs = [(pattern, value) for pattern, value in lines.items() if is_glob(pattern)]
    folded = {fold(name) for name in present}
    for name in rule:
        pattern = fold(name)
        if pattern == DEFAULT_CLASS or pattern in folded:
            continue
        if is_glob(pattern) and any(fnmatchcase(each, pattern) for each in folded):
            continue
        raise ConfigError(
            explain(where, expected=f"a class of {of}", got=f"'{name}'", do=_nearest(name, present))
        )
    default = lines.get(DEFAULT_CLASS, 0.0)
    return {name: _value_of(fold(name), lines, globs, default) for name in present}


def fold(name: str) -> str:
    """The form of a class name in which names are compared."""
    return name.strip().casefold()


def is_glob(name: str) -> bool:
    """Whether a name of a rule stands for more than itself."""
    return any(character in name for character in "*?[")


def _value_of(
    name: str, lines: Mapping[str, float], globs: Iterable[tuple[str, float]], default: float
) -> float:
    if name in lines:
        return lines[name]
    return next((value for pattern, value in globs if fnmatchcase(name, pattern)), default)


def _nearest(name: str, present: list[str]) -> str:
    folded = {fold(each): each for each in present}
    close = difflib.get_close_matches(fold(name), folded, n=1, cutoff=0.0)
    if not close:
        return "The segmentation names no class at all: give it a label table."
    listed = ", ".join(present[:MAX_LISTED]) + (", ..." if len(present) > MAX_LISTED else "")
    return f"Did you mean '{folded[close[0]]}'? It has: {listed}."
