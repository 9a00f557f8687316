"""Images as arrays: ``h w 3`` float32, ``rgb_srgb`` in [0, 1], upright.

Depth (8 or 16 bits), grey, palette and alpha are resolved here; nothing later asks about them.
Transparent pixels are shown over black.
"""

from __future__ import annotations

import logging
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from jaxtyping import Float
from PIL import Image as PillowImage
from PIL import UnidentifiedImageError

from ngpc.errors import MediaError, explain

logger = logging.getLogger(__name__)

EXIF_ORIENTATION = 0x0112


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """One picture in memory."""

    rgb_srgb: Float[np.ndarray, "h w 3"]
    """``h w 3`` float32 in [0, 1]."""
    path: Path | None = None

    @property
    def height(self) -> int:
        """Rows."""
        return int(self.rgb_srgb.shape[0])

    @property
    def width(self) -> int:
        """Columns."""
        return int(self.rgb_srgb.shape[1])


def read_image(path: Path) -> Image:
    """Read PNG, JPEG, WebP or TIFF, 8 or 16 bits per channel, EXIF orientation applied once.

    Raises:
        MediaError: the file is missing, or is not such an image.
    """
    try:
        data = np.fromfile(path, dtype=np.uint8)
    except OSError as error:
        raise MediaError(
            explain(
                str(path),
                expected="a readable image",
                got=error.strerror or "nothing",
                do="Check the path.",
            )
        ) from error
    pixels = cv2.imdecode(data, cv2.IMREAD_UNCHANGED) if data.size else None
    if pixels is None or pixels.dtype not in (np.uint8, np.uint16):
        raise MediaError(
            explain(
                str(path),
                expected="a PNG, JPEG, WebP or TIFF of 8 or 16 bits per channel",
                got="something else" if pixels is None else f"{pixels.dtype} pixels",
                do="Convert it, for example to PNG.",
            )
        )
    white = 255.0 if pixels.dtype == np.uint8 else 65535.0
    values = pixels.astype(np.float32) / np.float32(white)
    if values.ndim == 2:
        values = values[:, :, None]
    has_alpha = values.shape[2] in (2, 4)
    alpha = values[:, :, -1:] if has_alpha else None
    colour = values[:, :, :-1] if has_alpha else values
    colour = np.repeat(colour, 3, axis=2) if colour.shape[2] == 1 else colour[:, :, ::-1]
    if alpha is not None and bool((alpha < 1.0).any()):
        logger.info("%s: transparent pixels are shown over black", path)
        colour = colour * alpha
    return Image(rgb_srgb=_upright(colour, _orientation(path)), path=path)


def write_image(
    path: Path, rgb_srgb: Float[np.ndarray, "*_shape"], *, overwrite: bool = False
) -> Path:
    """Write ``h w 3`` values in [0, 1] as an 8-bit PNG; values outside are clipped.

    The file appears complete or not at all.

    Raises:
        MediaError: the file exists already, or cannot be written.
    """
    if path.suffix.lower() != ".png":
        raise MediaError(
            explain(
                str(path),
                expected="a name ending in .png",
                got=repr(path.suffix),
                do="Rename the output.",
            )
        )
    if path.exists() and not overwrite:
        raise MediaError(
            explain(
                str(path),
                expected="a new file",
                got="one that exists",
                do="Choose another name or ask to overwrite.",
            )
        )
    pixels = np.rint(np.clip(rgb_srgb, 0.0, 1.0) * 255.0).astype(np.uint8)
    encoded, data = cv2.imencode(".png", np.ascontiguousarray(pixels[:, :, ::-1]))
    if not encoded:
        raise MediaError(
            explain(
                str(path),
                expected="pixels that PNG can hold",
                got=f"shape {rgb_srgb.shape}",
                do="Choose a smaller size.",
            )
        )
    replace_file(path, data.tobytes())
    return path


def replace_file(path: Path, content: bytes) -> None:
    """Write a file under a temporary name, then give it its own.

    Raises:
        MediaError: the folder cannot be made or written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise MediaError(
            explain(
                str(path),
                expected="a place to write to",
                got=error.strerror or "none",
                do="Choose another output.",
            )
        ) from error


def _orientation(path: Path) -> int:
    """EXIF orientation, 1 (upright) where none is given."""
    try:
        with PillowImage.open(path) as image:
            orientation = image.getexif().get(EXIF_ORIENTATION, 1)
    except (UnidentifiedImageError, OSError):
        return 1
    return orientation if orientation in range(1, 9) else 1


def _upright(pixels: np.ndarray, orientation: int) -> np.ndarray:
    """Undo an EXIF orientation: codes 5 to 8 are transposed; then mirrored along the axes."""
    if orientation >= 5:
        pixels = pixels.transpose(1, 0, 2)
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    return np.ascontiguousarray(pixels)
