from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from cosmos_transfer.errors import ShapeError
from cosmos_transfer.outputs.sheet import (
    GAP,
    HEADER,
    LABEL_WIDTH,
    SheetRow,
    contact_sheet,
    evenly_spaced,
    weight_picture,
    write_sheet,
)


def clip(num_frames: int, height: int = 8, width: int = 12) -> np.ndarray:
    """Frame i is the grey i * 20."""
    frames = np.arange(num_frames, dtype=np.uint8)[:, None, None, None] * 20
    return np.broadcast_to(frames, (num_frames, height, width, 3)).copy()


def cell(sheet: np.ndarray, row: int, column: int, height: int, width: int) -> np.ndarray:
    top = HEADER + row * (height + GAP)
    left = LABEL_WIDTH + column * (width + GAP)
    return sheet[top : top + height, left : left + width]


def test_each_cell_shows_its_frame_of_its_row() -> None:
    rows = [SheetRow(title="a", frames=clip(9)), SheetRow(title="b", frames=255 - clip(9))]
    sheet = contact_sheet(rows, times_s=[i / 8 for i in range(9)], columns=3, cell_height=16)
    for column, frame in enumerate([0, 4, 8]):
        assert (cell(sheet, 0, column, 16, 24) == frame * 20).all()
        assert (cell(sheet, 1, column, 16, 24) == 255 - frame * 20).all()


def test_a_row_keeps_its_aspect_ratio() -> None:
    rows = [SheetRow(title="a", frames=clip(1)), SheetRow(title="b", frames=clip(1, 8, 6) + 7)]
    sheet = contact_sheet(rows, times_s=[0.0], cell_height=16)
    assert (cell(sheet, 1, 0, 16, 24)[:, :12] == 7).all()
    assert (cell(sheet, 1, 0, 16, 24)[:, 12:] > 200).all()


def test_pixels_are_kept_at_the_clips_own_size_and_repeated_at_twice_that() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (1, 16, 24, 3), dtype=np.uint8)
    for scale in (1, 2):
        sheet = contact_sheet(
            [SheetRow(title="a", frames=noise)], times_s=[0.0], cell_height=16 * scale
        )
        repeated = noise[0].repeat(scale, 0).repeat(scale, 1)
        np.testing.assert_array_equal(cell(sheet, 0, 0, 16 * scale, 24 * scale), repeated)


@pytest.mark.parametrize(
    ("num_frames", "columns", "expected"),
    [(1, 5, [0]), (2, 5, [0, 1]), (9, 5, [0, 2, 4, 6, 8]), (121, 3, [0, 60, 120])],
)
def test_moments_run_from_the_first_frame_to_the_last(
    num_frames: int, columns: int, expected: list[int]
) -> None:
    assert evenly_spaced(num_frames, columns) == expected


def test_labels_are_drawn() -> None:
    def draw(title: str, note: str) -> np.ndarray:
        row = SheetRow(title=title, frames=clip(1), note=note)
        return contact_sheet([row], times_s=[0.0], cell_height=48)[:, :LABEL_WIDTH]

    empty = draw("", "")
    assert (draw("edge", "") < 100).sum() > 30
    assert not np.array_equal(draw("", "a long prompt " * 30), empty)


def test_weights_are_told_apart_and_the_ends_are_black_and_white() -> None:
    picture = weight_picture(np.linspace(0, 1, 256, dtype=np.float32)[None, None])
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 250
    assert picture[0, 0, 0].max() < 10
    assert (picture[0, 0, -1] == 255).all()


def test_rows_of_different_lengths_are_refused() -> None:
    rows = [SheetRow(title="a", frames=clip(2)), SheetRow(title="b", frames=clip(3))]
    with pytest.raises(ShapeError, match="a: 2, b: 3"):
        contact_sheet(rows, times_s=[0.0, 0.1])


def test_a_sheet_is_written_as_it_is_and_nothing_beside_it(tmp_path: Path) -> None:
    sheet = contact_sheet([SheetRow(title="a", frames=clip(2))], times_s=[0.0, 0.1])
    path = write_sheet(tmp_path / "new" / "sheet.png", sheet)
    assert [each.name for each in path.parent.iterdir()] == ["sheet.png"]
    assert np.array_equal(cv2.imread(str(path))[:, :, ::-1], sheet)
