"""Pictures named by the moment they were taken, in microseconds, as in nuScenes.

``n015-2018-07-24__CAM_FRONT__1532402927612460.jpg``: the last number of the name is the time. The
gaps between frames are kept as they are, 50 or 100 ms and more where a sweep is missing.

Source:
    nuScenes devkit, ``sample_data.filename`` and ``sample_data.timestamp``.
"""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import numpy as np

from cosmos_transfer.errors import MediaError, ShapeError, explain
from cosmos_transfer.inputs.media import IMAGE_SUFFIXES, read_picture
from cosmos_transfer.inputs.simulators.scene import SimulatorScene

_TIME = re.compile(r"(\d{13,17})$")  # microseconds since 1970, or since a drive began
_MICROSECOND = 1_000_000


def is_timestamped(path: Path) -> bool:
    """Whether a folder holds pictures that are all named by a time."""
    if not path.is_dir():
        return False
    files = _pictures(path)
    return bool(files) and all(_TIME.search(file.stem) for file in files)


def open_timestamped(path: Path) -> SimulatorScene:
    """The pictures of one camera, in the order of their times.

    Raises:
        MediaError: A picture without a time, or two of the same.
        ShapeError: Pictures of different sizes.
    """
    ticks: dict[int, Path] = {}
    for file in _pictures(path):
        found = _TIME.search(file.stem)
        if found is None or int(found.group(1)) in ticks:
            raise MediaError(
                explain(
                    str(file),
                    expected="a name that ends in a time of its own, in microseconds",
                    got=file.name,
                    do="Keep the pictures of one camera in one folder.",
                )
            )
        ticks[int(found.group(1))] = file
    if not ticks:
        raise MediaError(
            explain(str(path), expected="pictures", got="none", do="Name a camera's folder.")
        )
    order = sorted(ticks)
    frames = [read_picture(ticks[tick], mode="RGB") for tick in order]
    sizes = {frame.shape for frame in frames}
    if len(sizes) > 1:
        raise ShapeError(
            explain(
                str(path),
                expected="pictures of one size",
                got=", ".join(f"{shape[1]}x{shape[0]}" for shape in sorted(sizes)),
                do="Keep the pictures of one camera in one folder.",
            )
        )
    times = tuple(Fraction(tick - order[0], _MICROSECOND) for tick in order)
    return SimulatorScene(
        tool="timestamps",
        path=path,
        video=np.stack(frames),
        times=times,
        rate=None if len(times) < 2 else (len(times) - 1) / times[-1],
    )


def _pictures(path: Path) -> list[Path]:
    return sorted(
        each for each in path.iterdir() if each.is_file() and each.suffix.lower() in IMAGE_SUFFIXES
    )
