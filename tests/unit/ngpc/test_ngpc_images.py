"""Images in and out: depth, grey, palette, alpha, orientation."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image as PillowImage
from PIL import ImageOps

from ngpc.data.images import read_image, write_image
from ngpc.errors import MediaError


def checker() -> np.ndarray:
    rows, columns = np.mgrid[0:6, 0:9]
    return np.stack([rows * 40, columns * 25, 255 - rows * columns], axis=2).astype(np.uint8)


def test_a_png_comes_back_as_it_was_written(tmp_path: Path) -> None:
    path = write_image(tmp_path / "folder" / "image.png", checker() / 255)
    image = read_image(path)
    assert (image.height, image.width) == (6, 9)
    assert image.rgb_srgb.dtype == np.float32
    assert np.array_equal(np.rint(image.rgb_srgb * 255), checker())
    assert [entry.name for entry in path.parent.iterdir()] == ["image.png"]


def test_values_outside_are_clipped(tmp_path: Path) -> None:
    path = write_image(tmp_path / "image.png", np.array([[[-1.0, 0.5, 2.0]]]))
    assert (read_image(path).rgb_srgb * 255).tolist() == [[[0.0, 128.0, 255.0]]]


def test_nothing_is_overwritten_unless_asked(tmp_path: Path) -> None:
    path = write_image(tmp_path / "image.png", checker() / 255)
    with pytest.raises(MediaError, match="expected a new file, got one that exists"):
        write_image(path, np.zeros((2, 2, 3)))
    write_image(path, np.zeros((2, 2, 3)), overwrite=True)
    assert read_image(path).height == 2


def test_another_extension_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MediaError, match=r"ending in .png, got '.jpg'"):
        write_image(tmp_path / "image.jpg", checker() / 255)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied_once(orientation: int, tmp_path: Path) -> None:
    path = tmp_path / "image.png"
    picture = PillowImage.fromarray(checker())
    exif = picture.getexif()
    exif[0x0112] = orientation
    picture.save(path, exif=exif)
    expected = np.asarray(ImageOps.exif_transpose(PillowImage.open(path)))
    assert np.array_equal(np.rint(read_image(path).rgb_srgb * 255), expected)


def test_a_photograph_with_orientation_comes_upright(tmp_path: Path) -> None:
    path = tmp_path / "image.jpg"
    picture = PillowImage.fromarray(np.repeat(np.repeat(checker(), 8, axis=0), 8, axis=1))
    exif = picture.getexif()
    exif[0x0112] = 6
    picture.save(path, exif=exif, quality=95)
    image = read_image(path)
    assert (image.height, image.width) == (72, 48)
    expected = np.asarray(ImageOps.exif_transpose(PillowImage.open(path))) / 255
    assert np.abs(image.rgb_srgb - expected).mean() < 0.02


def test_sixteen_bits_keep_their_digits(tmp_path: Path) -> None:
    path = tmp_path / "image.png"
    values = np.array([[[1, 256, 65535]]], dtype=np.uint16)
    cv2.imwrite(str(path), values[:, :, ::-1])
    assert np.rint(read_image(path).rgb_srgb * 65535).tolist() == values.tolist()


def test_grey_and_palette_become_colour(tmp_path: Path) -> None:
    path = tmp_path / "image.png"
    PillowImage.fromarray(checker()[:, :, 0]).save(path)
    expected = np.repeat(checker()[:, :, :1], 3, axis=2)
    assert np.array_equal(np.rint(read_image(path).rgb_srgb * 255), expected)
    palette = PillowImage.fromarray(checker()).quantize(16)
    palette.save(path)
    assert np.array_equal(
        np.rint(read_image(path).rgb_srgb * 255), np.asarray(palette.convert("RGB"))
    )


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_transparent_pixels_are_shown_over_black(mode: str, tmp_path: Path) -> None:
    path = tmp_path / "image.png"
    colour = (200, 100, 51, 0) if mode == "RGBA" else (200, 0)
    picture = PillowImage.new(mode, (2, 1), colour)
    picture.putpixel((1, 0), (*colour[:-1], 255))
    picture.save(path)
    opaque = [200, 100, 51] if mode == "RGBA" else [200, 200, 200]
    assert np.rint(read_image(path).rgb_srgb * 255).tolist() == [[[0, 0, 0], opaque]]


def test_what_is_no_image_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MediaError, match=r"absent.png: expected a readable image"):
        read_image(tmp_path / "absent.png")
    path = tmp_path / "text.png"
    path.write_text("not an image")
    with pytest.raises(MediaError, match="expected a PNG, JPEG, WebP or TIFF"):
        read_image(path)
    path.write_bytes(b"")
    with pytest.raises(MediaError, match="got something else"):
        read_image(path)
