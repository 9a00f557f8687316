"""The record beside every clip: what was asked, what was done, with what, and how it came out.

One JSON file, complete enough to make the clip again. Sizes are [height, width], times and rates
are fractions as text, durations are seconds.
"""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from fractions import Fraction
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from cosmos_transfer.errors import MediaError, NumericsError, explain
from cosmos_transfer.outputs.writer import complete_file
from cosmos_transfer.shapes import Size

FORMAT = "cosmos-transfer record"
FORMAT_VERSION = 1
_PACKAGES = (
    "cosmos-transfer",
    "torch",
    "diffusers",
    "transformers",
    "numpy",
    "av",
    "opencv-python-headless",
    "pillow",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRecord:
    """Everything about one generated clip that is not its pixels."""

    request: Mapping[str, Any]
    """The resolved request (:func:`cosmos_transfer.inputs.request.request_to_mapping`)."""
    checkpoint: Mapping[str, Any]
    """Id and hashes."""
    inputs: tuple[Mapping[str, Any], ...] = ()
    """Per input: where, path, sha256, num_frames, size."""
    input_size: Size
    working_size: Size
    padded_size: Size
    num_frames: int
    padded_frames: int
    rate: Fraction
    times: tuple[Fraction, ...]
    chunks: tuple[Mapping[str, int], ...] = ()
    """The plan of a long clip: index, start, stop, num_inherited, num_padded."""
    weights: Mapping[str, Mapping[str, float | int]] = field(default_factory=dict)
    """Per control the mean, least and greatest effective weight (:class:`WeightTotals`)."""
    seeds: Mapping[str, int] = field(default_factory=dict)
    device: str = "cpu"
    dtype: str = "float32"
    versions: Mapping[str, str] = field(default_factory=lambda: library_versions())
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    timings_s: Mapping[str, float | int] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)
    """What was written beside the record, by role: file name relative to the record."""
    notes: tuple[str, ...] = ()


def weight_totals(values: Float[np.ndarray, "k n"]) -> Float[np.ndarray, "k 4"]:
    """Per control the sum, the least, the greatest and the number of some effective weights."""
    exact = values.astype(np.float64)
    count = np.full(len(exact), float(exact.shape[1]))
    return np.stack([exact.sum(axis=1), exact.min(axis=1), exact.max(axis=1), count], axis=1)


class WeightTotals:
    """Mean and range of every control's effective weights, over chunks as they come."""

    def __init__(self) -> None:
        self._totals: np.ndarray | None = None

    def add(self, totals: Float[np.ndarray, "k 4"]) -> None:
        """Count in what :func:`weight_totals` says of a chunk."""
        if self._totals is None:
            self._totals = totals.copy()
            return
        self._totals[:, [0, 3]] += totals[:, [0, 3]]
        self._totals[:, 1] = np.minimum(self._totals[:, 1], totals[:, 1])
        self._totals[:, 2] = np.maximum(self._totals[:, 2], totals[:, 2])

    def summaries(self, names: Sequence[str]) -> dict[str, dict[str, float]]:
        """Mean, least and greatest by control; what the record keeps."""
        rows = np.zeros((0, 4)) if self._totals is None else self._totals
        return {
            name: {"mean": float(total / count), "min": float(least), "max": float(most)}
            for name, (total, least, most, count) in zip(names, rows, strict=True)
        }


def library_versions() -> dict[str, str]:
    """Versions of Python and of the installed packages that decide the numbers."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def write_record(path: str | Path, record: GenerationRecord, *, overwrite: bool = False) -> Path:
    """Write the record as JSON, under a temporary name until complete.

    Raises:
        NumericsError: A metric, weight or timing is NaN or infinite.
        MediaError: The file is there already, or cannot be written.
    """
    path = Path(path)
    content: dict[str, Any] = {"format": FORMAT, "version": FORMAT_VERSION}
    for each in fields(record):
        content[each.name] = _plain(getattr(record, each.name), f"record, {each.name}")
    text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    with complete_file(path, overwrite=overwrite) as unfinished:
        unfinished.write_text(text, encoding="utf-8")
    return path


def read_record(path: str | Path) -> GenerationRecord:
    """Read a record back.

    Raises:
        MediaError: The file is missing, is not a record, or is of a later version.
    """
    path = Path(path)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        reason = "no such file" if isinstance(error, FileNotFoundError) else str(error)
        raise _not_a_record(path, " ".join(reason.split())) from error
    if not isinstance(content, dict) or content.pop("format", None) != FORMAT:
        raise _not_a_record(path, "another kind of JSON")
    if (found := content.pop("version", None)) != FORMAT_VERSION:
        raise _not_a_record(path, f"version {found}")
    known = {each.name for each in fields(GenerationRecord)}
    if strange := sorted(set(content) ^ known):
        what = "unknown" if strange[0] in content else "missing"
        raise _not_a_record(path, f"{strange[0]} {what}")
    try:
        for key in ("input_size", "working_size", "padded_size"):
            height, width = content[key]
            content[key] = Size(int(height), int(width))
        content["rate"] = Fraction(content["rate"])
        content["times"] = tuple(Fraction(t) for t in content["times"])
        for key in ("inputs", "chunks", "notes"):
            content[key] = tuple(content[key])
    except (TypeError, ValueError, ZeroDivisionError) as error:
        raise _not_a_record(path, f"values of another kind ({error})") from error
    return GenerationRecord(**content)


def _plain(value: Any, where: str) -> Any:
    """Plain JSON values; numbers must be finite."""
    if isinstance(value, Size):
        return [value.height, value.width]
    if isinstance(value, Path | Fraction):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(inner, f"{where}, {key}") for key, inner in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(inner, where) for inner in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        raise NumericsError(
            explain(
                where,
                expected="a finite number",
                got=f"{value}",
                do="Look at the output: something divided by nothing, or the latents overflowed.",
            )
        )
    return value


def _not_a_record(path: Path, got: str) -> MediaError:
    return MediaError(
        explain(
            str(path),
            expected=f"a record of version {FORMAT_VERSION} that generate wrote",
            got=got,
            do="Point at the .json file beside a generated clip.",
        )
    )
