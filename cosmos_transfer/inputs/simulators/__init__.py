"""Recordings of simulators, recognised by how they are laid out.

:func:`open_scene` finds out which tool wrote a folder (or takes its name) and returns one
:class:`~cosmos_transfer.inputs.simulators.scene.SimulatorScene`: where the clip, the depth and the
segmentation are and how to read them. Nothing is decoded here.

==========  ======================================================================
tool        recognised by
==========  ======================================================================
plain       ``scene.json``, or folders named ``rgb``, ``depth``, ``seg``
isaac       ``rgb_0000.png`` beside ``semantic_segmentation_0000.png`` (BasicWriter)
cosmos      ``shaded_seg`` or ``segmentation`` beside ``rgb`` (CosmosWriter's clips)
carla       ``semantic_segmentation`` or ``semantic`` and ``depth`` beside ``rgb``
mujoco      one ``.npz`` with ``rgb``, and ``depth`` or ``segmentation``
timestamps  pictures named by a time in microseconds, as nuScenes does
==========  ======================================================================

A folder that holds one recording and nothing else of the kind (a render product, ``clip_0000``)
stands for it; where it holds several, one must be named.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cosmos_transfer.errors import ConfigError, MediaError, explain
from cosmos_transfer.inputs.series import require_exists
from cosmos_transfer.inputs.simulators import carla, isaac, mujoco, plain, timestamps
from cosmos_transfer.inputs.simulators.scene import SimulatorScene, check_numbers

__all__ = ["TOOLS", "SimulatorScene", "open_scene"]

_READERS: dict[str, tuple[Callable[[Path], bool], Callable[[Path], SimulatorScene]]] = {
    "mujoco": (mujoco.is_recording, mujoco.open_recording),
    "isaac": (isaac.is_basic_writer, isaac.open_basic_writer),
    "cosmos": (isaac.is_cosmos_writer, isaac.open_cosmos_writer),
    "carla": (carla.is_recording, carla.open_recording),
    "plain": (plain.is_scene, plain.open_plain),
    "timestamps": (timestamps.is_timestamped, timestamps.open_timestamped),
}
TOOLS = tuple(_READERS)


def open_scene(path: str | Path, *, tool: str | None = None) -> SimulatorScene:
    """Find out what a simulator wrote, and how to read it.

    Args:
        path: The recording's folder, or MuJoCo's ``.npz``.
        tool: One of :data:`TOOLS`, where the layout does not tell.

    Raises:
        MediaError: Nothing is there, or nothing that any of the tools writes, or pictures and
            controls that are not of the same frames.
        ConfigError: An unknown tool, or settings beside the recording that cannot be read.
    """
    path = Path(path)
    require_exists(path, what="a simulator's recording")
    if tool is not None:
        if tool not in _READERS:
            raise ConfigError(
                explain(
                    "scene, tool",
                    expected=f"one of {', '.join(TOOLS)}",
                    got=repr(tool),
                    do="Leave it out to have the layout recognised.",
                )
            )
        return check_numbers(_READERS[tool][1](path))
    for recognises, read in _READERS.values():
        if recognises(path):
            return check_numbers(read(path))
    inner = [each for each in _folders(path) if any(known(each) for known, _ in _READERS.values())]
    if len(inner) == 1:
        return open_scene(inner[0])
    if inner:
        listed = ", ".join(each.name for each in inner[:6]) + (", ..." if len(inner) > 6 else "")
        raise MediaError(
            explain(
                str(path),
                expected="one recording",
                got=f"{len(inner)} ({listed})",
                do=f"Name one of them, such as {inner[0]}.",
            )
        )
    raise MediaError(
        explain(
            str(path),
            expected="a recording with an rgb, depth or seg folder, or a scene.json",
            got=_listing(path),
            do="Name the clip and the controls one by one (video, controls.depth.path, ...).",
        )
    )


def _folders(path: Path) -> list[Path]:
    return sorted(each for each in path.iterdir() if each.is_dir()) if path.is_dir() else []


def _listing(path: Path) -> str:
    if path.is_file():
        return f"a {path.suffix or 'nameless'} file"
    names = sorted(each.name for each in path.iterdir())
    return (
        ", ".join(names[:6]) + (", ..." if len(names) > 6 else "") if names else "an empty folder"
    )
