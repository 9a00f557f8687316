"""What every control hands to the model: a picture per frame at the working size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np
from jaxtyping import UInt8

from cosmos_transfer.errors import ConfigError, ShapeError, explain
from cosmos_transfer.inputs.segmentation import SegmentationClip
from cosmos_transfer.shapes import Size, same_aspect

Preset = TypeVar("Preset")


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlClip:
    """One control as the clip that its branch sees."""

    name: str
    picture: UInt8[np.ndarray, "f h w 3"]
    source: Literal["given", "extracted"]
    notes: tuple[str, ...] = ()
    """What was done to it on the way, for the record."""
    segmentation: SegmentationClip | None = None
    """The ids behind a seg control, at the working size: class rules of weights read them."""


def find_preset(control: str, presets: Mapping[str, Preset], name: str) -> Preset:
    """The preset of that name, or an error that lists the names there are."""
    if name in presets:
        return presets[name]
    raise ConfigError(
        explain(
            f"control '{control}', preset",
            expected="one of " + ", ".join(presets),
            got=f"{name!r}",
            do="Choose one of these names.",
        )
    )


def require_same_aspect(where: str, size: Size, wanted: Size) -> None:
    """Refuse a picture whose aspect ratio is not the clip's: stretching it would move things."""
    if not same_aspect(size, wanted):
        raise ShapeError(
            explain(
                where,
                expected=f"the aspect ratio of the clip ({wanted})",
                got=f"{size}",
                do="Crop or pad it to the clip's aspect ratio.",
            )
        )
