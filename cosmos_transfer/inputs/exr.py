"""OpenEXR pictures: one float channel of depth. Needs the extra ``exr``.

Renderers call the channel differently: ``Z`` (Blender, Arnold), ``depth.Z``, ``distance``, or they
write grey into ``R``, ``G``, ``B``. The one that is meant is found by its name, or is the only one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32

from cosmos_transfer.errors import ConfigError, MediaError, ShapeError, explain
from cosmos_transfer.inputs.series import require_exists

EXR_SUFFIX = ".exr"
_MAGIC = b"\x76\x2f\x31\x01"
_DEPTH_NAMES = ("z", "depth", "distance", "y", "v")


def is_exr(path: Path) -> bool:
    """Whether a file is called ``.exr`` or begins as one."""
    if path.suffix.lower() == EXR_SUFFIX:
        return True
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def read_exr(path: Path) -> Float32[np.ndarray, "h w"]:
    """The depth channel of one picture, as it is in the file.

    Raises:
        ConfigError: The extra ``exr`` is not installed.
        MediaError: The file cannot be read.
        ShapeError: Several channels, none of which is called after depth.
    """
    require_exists(path, what="an OpenEXR picture")
    try:
        import OpenEXR
    except ImportError as error:
        raise ConfigError(
            explain(
                str(path),
                expected="the package OpenEXR to read it",
                got="none installed",
                do="Run pip install 'cosmos-transfer[exr]', or save the depth as .npy.",
            )
        ) from error
    try:
        with OpenEXR.File(str(path), separate_channels=True) as file:
            channels = {name: channel.pixels for name, channel in file.channels().items()}
    except (RuntimeError, ValueError, TypeError, OSError, MemoryError) as error:
        raise MediaError(
            explain(
                str(path),
                expected="an OpenEXR picture",
                got=f"one that cannot be read ({' '.join(str(error).split())})",
                do="Render it again.",
            )
        ) from error
    return np.asarray(_depth_channel(path, channels), dtype=np.float32)


def _depth_channel(path: Path, channels: dict[str, Any]) -> Any:
    if len(channels) == 1:
        return next(iter(channels.values()))
    by_end = {name.lower().rpartition(".")[2]: name for name in channels}
    for wanted in _DEPTH_NAMES:
        if wanted in by_end:
            return channels[by_end[wanted]]
    colours = [channels[by_end[each]] for each in ("r", "g", "b") if each in by_end]
    if colours and all(np.array_equal(colours[0], each, equal_nan=True) for each in colours):
        return colours[0]
    raise ShapeError(
        explain(
            str(path),
            expected="one channel of depth, called Z",
            got=", ".join(sorted(channels)) or "none",
            do="Write the depth pass alone.",
        )
    )
