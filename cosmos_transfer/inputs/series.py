"""Numbered files: one file a frame, ordered by frame number, gaps refused.

Names are read as text around one counting number: ``rgb_0007.png``, ``frame-000123.png``,
``16.png``. Numbers may start anywhere, and may go up in equal steps (CARLA numbers the frames of
the simulation, and a slower sensor sees every tenth): those are no gaps, and are told. A glob
(``folder/rgb_*.png``) picks one series out of a folder that holds several.
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from cosmos_transfer.errors import MediaError, explain

log = logging.getLogger(__name__)

_NUMBER = re.compile(r"\d+")
_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Files in frame order; ``numbers`` go up by ``step``, or are empty where names carry none."""

    files: tuple[Path, ...]
    numbers: tuple[int, ...]
    step: int = 1


def is_pattern(path: Path) -> bool:
    """Whether the path is a glob of files in one folder rather than a path that exists."""
    return any(c in path.name for c in "*?[") and not path.exists()


def require_exists(path: Path, *, what: str) -> None:
    """Refuse a path where nothing is, naming the nearest thing that is there."""
    try:
        if path.exists():
            return
    except OSError as error:
        got = (error.strerror or str(error)).lower()
        raise MediaError(
            explain(str(path)[:80] + "...", expected=what, got=got, do="Check the path.")
        ) from error
    folder = path.parent
    do = "Check the spelling, and that relative paths start at the right folder."
    if not folder.is_dir():
        do = f"The folder {folder} is not there either; check the path."
    elif near := difflib.get_close_matches(path.name, (p.name for p in folder.iterdir()), n=1):
        do = f"Did you mean {folder / near[0]}?"
    raise MediaError(explain(str(path), expected=what, got="no such file or folder", do=do))


def list_series(path: Path, suffixes: Iterable[str], *, what: str) -> Series:
    """The files of a folder or a glob that end in one of ``suffixes``, in frame order."""
    wanted = {s.lower() for s in suffixes}
    if is_pattern(path):
        require_exists(path.parent, what="a folder")
        found = path.parent.glob(path.name)
    else:
        found = path.iterdir()
    files = sorted(
        p for p in found if p.suffix.lower() in wanted and p.is_file() and p.name[0] != "."
    )
    if not files:
        raise MediaError(
            explain(
                str(path),
                expected=f"{what} ({' '.join(sorted(wanted))})",
                got="none",
                do="Point at the folder that holds the frames.",
            )
        )
    return _ordered(path, files)


def _ordered(path: Path, files: list[Path]) -> Series:
    found = [list(_NUMBER.finditer(p.stem)) for p in files]
    counts = {len(matches) for matches in found}
    if counts == {0}:
        return Series(files=tuple(files), numbers=())
    slot = _counting_slot(found) if len(counts) == 1 else -1
    numbered: dict[int, Path] = {}
    patterns: dict[str, Path] = {}
    for file, matches in zip(files, found, strict=True):
        if not matches:
            raise MediaError(
                explain(
                    str(path),
                    expected="a frame number in every file name",
                    got=f"{file.name}",
                    do="Rename it, or name one series, as in 'folder/rgb_*.png'.",
                )
            )
        match = matches[slot]
        pattern = f"{file.stem[: match.start()]}*{file.stem[match.end() :]}{file.suffix}"
        patterns.setdefault(pattern, file)
        number = int(match.group())
        if len(patterns) > 1:
            first, second = list(patterns)[:2]
            raise MediaError(
                explain(
                    str(path),
                    expected="one series of frames",
                    got=f"at least two ({first} and {second})",
                    do=f"Name the one you mean, as in {path if path.is_dir() else path.parent}/"
                    f"{first}",
                )
            )
        if number in numbered:
            raise MediaError(
                explain(
                    str(path),
                    expected="one file per frame number",
                    got=f"two for {number} ({numbered[number].name} and {file.name})",
                    do="Keep one of them.",
                )
            )
        numbered[number] = file
    numbers = sorted(numbered)
    step = _step(numbers)
    if step > 1:
        log.warning(
            "%s: frames are numbered in steps of %d, from %d to %d; they are taken as they come",
            path,
            step,
            numbers[0],
            numbers[-1],
        )
    missing = sorted(set(range(numbers[0], numbers[-1] + 1, step)) - set(numbers))
    if missing:
        shown = ", ".join(map(str, missing[:_SHOWN])) + (", ..." if missing[_SHOWN:] else "")
        raise MediaError(
            explain(
                str(path),
                expected=f"every frame from {numbers[0]} to {numbers[-1]}",
                got=f"{len(numbers)} files with {len(missing)} missing ({shown})",
                do="Add the missing frames, or number the files consecutively.",
            )
        )
    return Series(files=tuple(numbered[n] for n in numbers), numbers=tuple(numbers), step=step)


def _step(numbers: list[int]) -> int:
    """By how much the numbers go up; 1 where they do not all go up by the same, or are only two."""
    steps = {b - a for a, b in pairwise(numbers)}
    return steps.pop() if len(steps) == 1 and len(numbers) > 2 else 1


def _counting_slot(found: list[list[re.Match[str]]]) -> int:
    """Which number in the names counts the frames: the only one that changes, or the last."""
    columns = list(zip(*([m.group() for m in matches] for matches in found), strict=True))
    changing = [i for i, column in enumerate(columns) if len(set(column)) > 1]
    return changing[0] if len(changing) == 1 else len(columns) - 1
