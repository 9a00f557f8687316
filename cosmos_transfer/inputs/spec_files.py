"""Spec files: YAML, JSON (with comments if need be), and JSON Lines, told apart by their content.

Safe loaders only; a key given twice is refused rather than one of the two winning.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from cosmos_transfer.errors import ConfigError, MediaError, explain
from cosmos_transfer.inputs.series import require_exists

_YAML_SUFFIXES = frozenset({".yaml", ".yml"})
# A string, or a comment, or a comma before a closing bracket: strings come first and are kept.
_JSON_EXTRAS = re.compile(
    r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/|,(?=\s*(?://[^\n]*\s*|/\*.*?\*/\s*)*[}\]])', re.DOTALL
)


class _DuplicateKeyError(ValueError):
    """A key that stands twice in one mapping."""


class _Loader(yaml.SafeLoader):
    """Plain values only, and no key twice."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """Build one mapping; refuse a repeated key."""
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            try:
                repeated = key in seen
                seen.add(key)
            except TypeError:
                continue
            if repeated:
                raise _DuplicateKeyError(
                    f"the key {key!r} twice, line {key_node.start_mark.line + 1}"
                )
        mapping: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        return mapping


def read_spec_file(path: Path) -> tuple[str, list[Mapping[str, Any]]]:
    """The format that was found, and the request mappings in the file.

    Raises:
        MediaError: The file is missing or is not text.
        ConfigError: The text is no spec; the message says where it stops making sense.
    """
    require_exists(path, what="a spec file (YAML, JSON or JSON Lines)")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise MediaError(
            explain(
                str(path),
                expected="a spec file in UTF-8 text",
                got=" ".join(str(error).split()),
                do="Save it as YAML, JSON or JSON Lines.",
            )
        ) from error
    try:
        spec_format, content = _parse(path, text)
    except _DuplicateKeyError as error:
        raise ConfigError(
            explain(str(path), expected="each key once", got=str(error), do="Remove one of them.")
        ) from error
    except RecursionError as error:
        raise ConfigError(
            explain(
                str(path),
                expected="requests of plain values",
                got="brackets nested too deeply",
                do="Check the brackets; something may have been pasted into something else.",
            )
        ) from error
    entries = content if isinstance(content, list) else [content]
    for entry in entries:
        if not isinstance(entry, Mapping):
            raise ConfigError(
                explain(
                    str(path),
                    expected="a request (key: value pairs) or a list of them",
                    got=f"{spec_format} holding {_kind(entry)}",
                    do="See docs for an example spec.",
                )
            )
    if not entries:
        raise ConfigError(
            explain(str(path), expected="at least one request", got="an empty list", do="Add one.")
        )
    return spec_format, entries


def _kind(value: object) -> str:
    return "nothing" if value is None else f"{type(value).__name__} {str(value)[:40]!r}"


def _parse(path: Path, text: str) -> tuple[str, Any]:
    if path.suffix.lower() in _YAML_SUFFIXES:
        return "YAML", _yaml(path, text)
    try:
        return "JSON", _json(text)
    except json.JSONDecodeError as error:
        whole = error
    lines = [line for line in text.splitlines() if line.strip()]
    try:
        return "JSON Lines", [_json(line) for line in lines]
    except json.JSONDecodeError:
        pass
    plain = _JSON_EXTRAS.sub(lambda match: match.group(1) or "", text)
    try:
        return "JSON with comments", _json(plain)
    except json.JSONDecodeError:
        pass
    if (several := _concatenated(plain)) is not None:
        return "several JSON objects in a row", several
    if path.suffix.lower() not in {".json", ".jsonl", ".jsonc"}:
        return "YAML", _yaml(path, text)
    raise ConfigError(
        explain(
            str(path),
            expected="JSON or JSON Lines",
            got=f"text that stops making sense at line {whole.lineno}, column {whole.colno} "
            f"({whole.msg})",
            do="Check the commas, quotes and brackets there.",
        )
    ) from whole


def _json(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_unique)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _DuplicateKeyError(f"the key {key!r} twice")
        found[key] = value
    return found


def _concatenated(text: str) -> list[Any] | None:
    decoder = json.JSONDecoder(object_pairs_hook=_unique)
    entries: list[Any] = []
    rest = text.strip()
    while rest:
        try:
            entry, end = decoder.raw_decode(rest)
        except json.JSONDecodeError:
            return None
        entries.append(entry)
        rest = rest[end:].lstrip(", \t\r\n")
    return entries if len(entries) > 1 else None


def _yaml(path: Path, text: str) -> Any:
    try:
        documents = list(yaml.load_all(text, Loader=_Loader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = " ".join(str(getattr(error, "problem", None) or "not YAML").split())
        raise ConfigError(
            explain(
                str(path),
                expected="YAML of plain values",
                got=f"text that stops making sense{place} ({problem})",
                do="Check the indentation and quotes there.",
            )
        ) from error
    return documents[0] if len(documents) == 1 else documents
