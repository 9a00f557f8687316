"""Controls as files: what a model is given, in a folder that ``scene=FOLDER`` reads again.

Pictures are PNG, so that no label and no edge passes through a lossy codec. Of a segmentation both
are written, because both are asked for: the ids with the table of their names (``seg``,
``labels.json``), and the picture in the classes' fixed colours (``seg_colors``).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from cosmos_transfer.controls.base import ControlClip
from cosmos_transfer.errors import MediaError, explain
from cosmos_transfer.inputs.class_colors import class_color
from cosmos_transfer.inputs.segmentation import SegmentationClip
from cosmos_transfer.outputs.writer import complete_file, write_clip

SETTINGS_FILE = "scene.json"
LABELS_FILE = "labels.json"
_MOST_ID = 2**16 - 1


def write_controls(
    folder: str | Path,
    controls: Sequence[ControlClip],
    *,
    times: Sequence[Fraction],
    rate: Fraction,
) -> Path:
    """Write every control into a folder of its own below a new folder; returns that.

    Args:
        folder: A name that is free, or an empty folder.
        controls: As ``controls.registry.prepare_control`` makes them.
        times: When each frame is shown, in seconds from 0.
        rate: Frames per second.

    Raises:
        MediaError: Something is there already, or it cannot be written.
    """
    folder = Path(folder)
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise MediaError(
            explain(
                str(folder),
                expected="a folder name that is free",
                got="something that is there already",
                do="Choose another name.",
            )
        )
    settings: dict[str, Any] = {"rate": str(rate), "times": [str(each) for each in times]}
    for control in controls:
        picture = "seg_colors" if control.segmentation is not None else control.name
        write_clip(folder / picture, control.picture, times=times, rate=rate, codec="png")
        if control.segmentation is not None:
            _write_ids(folder, control.segmentation)
            settings["seg"] = {"labels": LABELS_FILE}
        elif control.name == "depth":
            settings["depth"] = {"unit": "relative", "direction": "near_bright"}
    _write_json(folder / SETTINGS_FILE, settings)
    return folder


def _write_ids(folder: Path, clip: SegmentationClip) -> None:
    clip = _within_sixteen_bits(clip)
    dtype = np.uint8 if max(clip.names) < 256 else np.uint16
    for index, ids in enumerate(clip.ids):
        with complete_file(folder / "seg" / f"{index:06d}.png", overwrite=False) as unfinished:
            Image.fromarray(ids.astype(dtype)).save(unfinished, format="PNG")
    table = [
        {"id": number, "name": name, "color": list(class_color(name))}
        for number, name in sorted(clip.names.items())
    ]
    _write_json(folder / LABELS_FILE, table)


def _within_sixteen_bits(clip: SegmentationClip) -> SegmentationClip:
    """The clip with its own ids or, where a picture cannot hold one of them, with 0, 1, 2, ..."""
    known = np.array(sorted(clip.names), dtype=np.int64)
    if known[0] >= 0 and known[-1] <= _MOST_ID:
        return clip
    names = {index: clip.names[int(number)] for index, number in enumerate(known)}
    return replace(clip, ids=np.searchsorted(known, clip.ids).astype(np.int32), names=names)


def _write_json(path: Path, content: Any) -> None:
    with complete_file(path, overwrite=False) as unfinished:
        unfinished.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
