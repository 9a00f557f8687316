"""Label tables: which id or colour means which class, in the JSON dialects that simulators write.

Read here: Isaac Sim's ``{"(r, g, b, a)": {"class": name}}`` with any spacing and its id form
``{"7": {"class": name}}``, plain ``{"7": name}``, lists of ``{id, name, color}``,
``{"segmentation_mapping": {name: [r, g, b, a]}}``, and ``{name: [r, g, b]}``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cosmos_transfer.errors import ConfigError, explain
from cosmos_transfer.inputs.class_colors import CARLA_CLASSES, CARLA_CLASSES_OLD, KNOWN_COLORS
from cosmos_transfer.inputs.json_files import read_json
from cosmos_transfer.inputs.series import Series, list_series

_WRAPPERS = (
    "segmentation_mapping",
    "idToLabels",
    "idToSemantics",
    "labels",
    "classes",
    "categories",
)
_NAME_KEYS = ("class", "name", "label", "category")
_COLOR_KEYS = ("color", "colour", "rgb", "rgba")
_INTEGERS = re.compile(r"-?\d+")
_COLOR_KEY = re.compile(r"[\[(]?\s*\d+\s*(?:,\s*\d+\s*){2,3}[\])]?")
_HEX = re.compile(r"#([0-9a-fA-F]{6})([0-9a-fA-F]{2})?")

Rgba = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """One class: its name, and the id or the colour (alpha 255 unless said) that stands for it."""

    name: str
    id: int | None = None
    color: Rgba | None = None


LabelTable = tuple[Label, ...]


def carla_labels(version: str) -> LabelTable:
    """CARLA's tags and colours; "carla" is 0.9.14 and later, otherwise e.g. "carla-0.9.13"."""
    parts = tuple(int(n) for n in _INTEGERS.findall(version.replace("-", " ")))
    if parts and parts < (0, 9, 14):
        return tuple(
            Label(name=name, id=tag, color=(*KNOWN_COLORS[name], 255))
            for tag, name in enumerate(CARLA_CLASSES_OLD)
        )
    return tuple(
        Label(name=name, id=tag, color=(*rgb, 255)) for tag, (name, rgb) in enumerate(CARLA_CLASSES)
    )


def read_labels(path: Path) -> LabelTable:
    """The table in one JSON file."""
    do = "Give the table that the simulator wrote beside the pictures."
    return parse_labels(read_json(path, what="a label table", do=do), where=str(path))


def read_label_folder(path: Path) -> tuple[Series, tuple[LabelTable, ...]]:
    """One table per frame, in frame order."""
    series = list_series(path, (".json",), what="label tables")
    return series, tuple(read_labels(file) for file in series.files)


def parse_labels(content: Any, *, where: str) -> LabelTable:
    """A table from parsed JSON, in any of the dialects above."""
    while isinstance(content, Mapping) and len(content) <= 2:
        inner = next((content[key] for key in _WRAPPERS if key in content), None)
        if not isinstance(inner, Mapping | list):
            break
        content = inner
    if isinstance(content, list):
        labels = tuple(_from_entry(entry, where) for entry in content)
    elif isinstance(content, Mapping):
        labels = tuple(_from_pair(str(key), value, where) for key, value in content.items())
    else:
        raise _not_a_table(where, type(content).__name__)
    if not labels:
        raise _not_a_table(where, "an empty one")
    return labels


def _from_entry(entry: Any, where: str) -> Label:
    if not isinstance(entry, Mapping):
        raise _not_a_table(where, f"the entry {entry!r}")
    name = _name(entry, where)
    raw_id = next((entry[key] for key in ("id", "trainId", "tag", "value") if key in entry), None)
    raw_color = next((entry[key] for key in _COLOR_KEYS if key in entry), None)
    color = None if raw_color is None else _color(raw_color, where)
    if raw_id is None and color is None:
        raise _not_a_table(where, f"the entry {dict(entry)!r} without id and color")
    return Label(name=name, id=None if raw_id is None else _id(raw_id, where), color=color)


def _from_pair(key: str, value: Any, where: str) -> Label:
    if _COLOR_KEY.fullmatch(key.strip()) or _HEX.fullmatch(key.strip()):
        return Label(name=_name(value, where), color=_color(key, where))
    if _INTEGERS.fullmatch(key.strip()):
        color = None
        if isinstance(value, Mapping):
            raw = next((value[k] for k in _COLOR_KEYS if k in value), None)
            color = None if raw is None else _color(raw, where)
        return Label(name=_name(value, where), id=int(key), color=color)
    if isinstance(value, list | tuple) or (isinstance(value, str) and _HEX.fullmatch(value)):
        return Label(name=key, color=_color(value, where))
    if isinstance(value, int) and not isinstance(value, bool):
        return Label(name=key, id=value)
    raise _not_a_table(where, f"the entry {key!r}: {value!r}")


def _name(value: Any, where: str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        for key in _NAME_KEYS:
            if isinstance(value.get(key), str):
                return str(value[key])
        texts = [v for v in value.values() if isinstance(v, str)]
        if len(texts) == 1:
            return texts[0]
    raise _not_a_table(where, f"{value!r} where a class name should be")


def _id(value: Any, where: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and _INTEGERS.fullmatch(value.strip()):
        return int(value)
    raise _not_a_table(where, f"the id {value!r}")


def _color(value: Any, where: str) -> Rgba:
    if isinstance(value, str):
        if match := _HEX.fullmatch(value.strip()):
            channels = list(bytes.fromhex(match.group(1) + (match.group(2) or "ff")))
        else:
            channels = [int(n) for n in _INTEGERS.findall(value)]
    elif isinstance(value, list | tuple) and all(isinstance(v, int | float) for v in value):
        whole = all(isinstance(v, int) for v in value)
        fractions = not whole and all(0 <= v <= 1 for v in value)
        channels = [round(v * 255) if fractions else round(v) for v in value]
    else:
        channels = []
    if len(channels) == 3:
        channels.append(255)
    if len(channels) != 4 or not all(0 <= c <= 255 for c in channels):
        raise _not_a_table(where, f"the colour {value!r}")
    red, green, blue, alpha = channels
    return red, green, blue, alpha


def _not_a_table(where: str, got: str) -> ConfigError:
    return ConfigError(
        explain(
            where,
            expected="a label table such as {'(r, g, b, a)': {'class': name}} or {'7': name}",
            got=got,
            do="Give ids or colours with their class names.",
        )
    )
