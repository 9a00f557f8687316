"""Find out what a path holds, and open it."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

from cosmos_transfer.datasets.base import EpisodeSource
from cosmos_transfer.datasets.clips import ClipFolder
from cosmos_transfer.datasets.hdf5 import HDF5Dataset, is_hdf5
from cosmos_transfer.datasets.lerobot import LeRobotDataset, read_info
from cosmos_transfer.datasets.lerobot_v21 import VERSION as V21
from cosmos_transfer.datasets.lerobot_v21 import LeRobotV21Dataset
from cosmos_transfer.errors import ConfigError, MediaError, explain


def open_source(
    path: str | Path, *, flip_vertical: bool = False, rate: Fraction | int | None = None
) -> EpisodeSource:
    """Open a LeRobot dataset (v3.0, v2.1), a robomimic or Isaac Lab file, or a folder of clips.

    Args:
        path: A folder, or an HDF5 file.
        flip_vertical: HDF5 only: the rows of its pictures run from the bottom up.
        rate: HDF5 only: its steps per second.

    Raises:
        MediaError: Nothing there that can be read.
        ConfigError: A setting that the source does not take, or a package that is not installed.
    """
    path = Path(path)
    if is_hdf5(path):
        return HDF5Dataset(path, flip_vertical=flip_vertical, rate=rate)
    if not path.is_dir():
        raise MediaError(
            explain(
                str(path),
                expected="a folder (LeRobot, clips) or an HDF5 file",
                got="another file" if path.exists() else "nothing there",
                do="Check the path.",
            )
        )
    if flip_vertical or rate is not None:
        raise ConfigError(
            explain(
                str(path),
                expected="flip_vertical and rate for HDF5 files only",
                got="a folder",
                do="Leave them out: videos say their own rate and are upright.",
            )
        )
    if not (path / "meta").exists():
        return ClipFolder(path)
    if read_info(path).get("codebase_version") == V21:
        return LeRobotV21Dataset(path)
    return LeRobotDataset(path)
