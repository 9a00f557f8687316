"""Frames of a clip in the making, as numbered pictures that any viewer can follow."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from cosmos_transfer.errors import MediaError, explain


def write_preview(folder: Path, frames: UInt8[np.ndarray, "f h w 3"], *, start: int) -> Path:
    """Write frames as ``000000.jpg`` and so on; each appears under its name when it is complete.

    Args:
        folder: Created where it is not there.
        frames: sRGB.
        start: Index of the first of them in the clip.

    Raises:
        MediaError: The folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for index, frame in enumerate(frames, start):
            unfinished = folder / f"{index:06d}.part"
            Image.fromarray(frame).save(unfinished, format="JPEG", quality=90)
            unfinished.replace(unfinished.with_suffix(".jpg"))
    except OSError as error:
        raise MediaError(
            explain(
                str(folder),
                expected="a folder that can be written",
                got=" ".join(str(error).split()),
                do="Check its permissions and the free space.",
            )
        ) from error
    return folder
