"""A folder that says itself what it holds: what to write from a simulator of your own.

::

    scene/
      rgb/ or rgb.mp4            the clip
      depth/ or depth.npy        one depth a pixel; metres, unless scene.json says otherwise
      seg/ or seg.npy            ids, or colours of a table
      edge/ or edge.mp4          edges, white on black
      vis/ or vis.mp4            the clip blurred
      scene.json                 how to read them; may be left out

``scene.json``, every key optional: ``rate`` (a number, or "30000/1001"), ``times`` (seconds of
every frame), ``flip_vertical`` (of the clip), ``depth`` and ``seg`` (fields of a control: ``unit``,
``kind``, ``invalid``, ``near``, ``far``, ``direction``, ``intrinsics``, ``channel_order``,
``extent``, ``labels``, ``flip_vertical``). A key that is not known is an error.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

from cosmos_transfer.errors import ConfigError, explain
from cosmos_transfer.inputs.json_files import read_json
from cosmos_transfer.inputs.simulators.scene import SimulatorScene, first_that_exists

SETTINGS_FILE = "scene.json"
_ENDINGS = ("", ".mp4", ".mkv", ".npy", ".npz", ".png")
_NAMES = {"video": "rgb", "edge": "edge", "depth": "depth", "seg": "seg", "vis": "vis"}
_CONTROL_KEYS = {
    "edge": ("flip_vertical",),
    "depth": (
        *("unit", "kind", "invalid", "near", "far", "direction", "intrinsics"),
        *("channel_order", "extent", "flip_vertical"),
    ),
    "seg": ("labels", "flip_vertical"),
    "vis": ("flip_vertical",),
}
_KEYS = ("rate", "times", "flip_vertical", *_CONTROL_KEYS)


def is_scene(path: Path) -> bool:
    """Whether a folder is laid out so."""
    return path.is_dir() and any(_part(path, name) for name in _NAMES.values())


def open_plain(path: Path) -> SimulatorScene:
    """A folder in the layout above.

    Raises:
        ConfigError: ``scene.json`` holds something else.
    """
    file = path / SETTINGS_FILE
    settings = read_json(file, what="a scene's settings") if file.is_file() else {}
    if not isinstance(settings, dict):
        raise _wrong(file, "a mapping of settings", type(settings).__name__)
    _refuse_unknown(file, settings, _KEYS)
    controls: dict[str, dict[str, Any]] = {}
    for name in ("edge", "depth", "seg", "vis"):
        part = _part(path, _NAMES[name])
        if part is None:
            continue
        told = settings.get(name, {})
        if not isinstance(told, dict):
            raise _wrong(file, f"a mapping under {name}", repr(told))
        _refuse_unknown(file, told, _CONTROL_KEYS.get(name, ()))
        controls[name] = {"path": part} | told
        labels = told.get("labels")
        if isinstance(labels, str) and not labels.lower().startswith("carla"):
            controls[name]["labels"] = path / labels
    return SimulatorScene(
        tool="plain",
        path=path,
        video=_part(path, _NAMES["video"]),
        controls=controls,
        times=_times(file, settings),
        rate=_fraction(file, "rate", settings["rate"]) if "rate" in settings else None,
        flip_vertical=_flag(file, settings),
    )


def _part(path: Path, name: str) -> Path | None:
    return first_that_exists(path, *(f"{name}{ending}" for ending in _ENDINGS))


def _times(file: Path, settings: dict[str, Any]) -> tuple[Fraction, ...] | None:
    times = settings.get("times")
    if times is None:
        return None
    if not isinstance(times, list) or not times:
        raise _wrong(file, "a list of seconds under times", repr(times))
    exact = [_fraction(file, "times", each) for each in times]
    return tuple(each - exact[0] for each in exact)


def _fraction(file: Path, key: str, value: Any) -> Fraction:
    try:
        if isinstance(value, bool):
            raise TypeError
        return Fraction(str(value))
    except (TypeError, ValueError, ZeroDivisionError):
        raise _wrong(file, f"a number or a fraction under {key}", repr(value)) from None


def _flag(file: Path, settings: dict[str, Any]) -> bool:
    value = settings.get("flip_vertical", False)
    if not isinstance(value, bool):
        raise _wrong(file, "true or false under flip_vertical", repr(value))
    return value


def _refuse_unknown(file: Path, settings: dict[str, Any], known: tuple[str, ...]) -> None:
    for key in settings:
        if key not in known:
            raise _wrong(file, f"keys among {', '.join(known) or 'none'}", repr(key))


def _wrong(file: Path, expected: str, got: str) -> ConfigError:
    return ConfigError(
        explain(str(file), expected=expected, got=got, do="See docs/scenes.md for the layout.")
    )
