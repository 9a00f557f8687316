"""CARLA recordings: one folder a sensor, pictures named by the frame of the simulation.

Depth is CARLA's 24-bit coding in the order R, G, B, as ``save_to_disk`` writes it without a colour
converter; ``{"channel_order": "bgr"}`` in ``scene.json`` says that the sensor's ``raw_data`` was
kept (BGRA arrays). Semantic pictures hold the tag in red, or are drawn in the CityScapes palette;
the order of tags changed with version 0.9.14, so that a ``scene.json`` with
``{"carla_version": "0.9.13"}`` is asked of older recordings. ``{"fixed_delta_seconds": 0.05}``, the
world's step, gives the frame rate; names that go up in steps of two are frames two steps apart.

Source:
    CARLA documentation, sensors reference.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

from cosmos_transfer.errors import MediaError, explain
from cosmos_transfer.inputs.json_files import read_json
from cosmos_transfer.inputs.media import ARRAY_SUFFIXES, IMAGE_SUFFIXES
from cosmos_transfer.inputs.series import list_series
from cosmos_transfer.inputs.simulators.scene import SimulatorScene, first_that_exists

_SEMANTIC = ("semantic_segmentation", "semantic", "sensor.camera.semantic_segmentation")
_DEPTH = ("depth", "sensor.camera.depth")
_RGB = ("rgb", "sensor.camera.rgb")
SETTINGS_FILE = "scene.json"


def is_recording(path: Path) -> bool:
    """Whether a folder looks like CARLA's: the names of its sensors, or what scene.json says."""
    return first_that_exists(path, *_SEMANTIC) is not None or "carla_version" in _settings(path)


def open_recording(path: Path) -> SimulatorScene:
    """A recording of CARLA."""
    settings = _settings(path)
    controls: dict[str, dict[str, Any]] = {}
    if (depth := first_that_exists(path, *_DEPTH)) is not None:
        controls["depth"] = {"path": depth, "unit": "carla24"}
        if "channel_order" in settings:
            controls["depth"]["channel_order"] = settings["channel_order"]
    if (semantic := first_that_exists(path, *_SEMANTIC, "seg")) is not None:
        version = settings.get("carla_version")
        controls["seg"] = {
            "path": semantic,
            "labels": "carla" if version is None else f"carla-{version}",
        }
    video = first_that_exists(path, *_RGB)
    rate = _rate(path, settings)
    if rate is not None:
        rate /= _ticks_per_frame(video, *(each["path"] for each in controls.values()))
    return SimulatorScene(tool="carla", path=path, video=video, controls=controls, rate=rate)


def _settings(path: Path) -> dict[str, Any]:
    file = path / SETTINGS_FILE
    found = read_json(file, what="a scene's settings") if file.is_file() else {}
    return found if isinstance(found, dict) else {}


def _ticks_per_frame(*parts: Path | None) -> int:
    """Ticks of the world from one picture to the next: a sensor may see every tenth only."""
    for part in parts:
        if part is not None and part.is_dir():
            return list_series(part, (*IMAGE_SUFFIXES, *ARRAY_SUFFIXES), what="frames").step
    return 1


def _rate(path: Path, settings: dict[str, Any]) -> Fraction | None:
    step = settings.get("fixed_delta_seconds")
    if step is None:
        return None
    try:
        rate = 1 / Fraction(str(step))
        if rate <= 0:
            raise ValueError(step)
    except (ValueError, ZeroDivisionError) as error:
        raise MediaError(
            explain(
                str(path / SETTINGS_FILE),
                expected="fixed_delta_seconds above 0",
                got=repr(step),
                do="Write the world's step, such as 0.05.",
            )
        ) from error
    return rate
