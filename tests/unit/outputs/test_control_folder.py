"""Controls written and read again through the layout of a scene."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from cosmos_transfer.controls.base import ControlClip
from cosmos_transfer.controls.registry import prepare_control
from cosmos_transfer.errors import MediaError
from cosmos_transfer.inputs.request import request_from_mapping
from cosmos_transfer.inputs.segmentation import (
    SegmentationClip,
    colorize,
    read_segmentation,
    segmentation_from_array,
)
from cosmos_transfer.inputs.simulators import open_scene
from cosmos_transfer.inputs.validate import check_request
from cosmos_transfer.outputs.control_folder import LABELS_FILE, write_controls
from cosmos_transfer.shapes import Size
from tests.unit.inputs.media_files import smooth_frames

TIMES = tuple(Fraction(tick, 600) for tick in (0, 20, 60, 75))
NUMBERS = np.arange(4 * 12 * 16).reshape(4, 12, 16)


def controls(ids: SegmentationClip) -> list[ControlClip]:
    picture = smooth_frames(4, 12, 16)
    edge = np.where(picture > 128, np.uint8(255), np.uint8(0))
    grey = np.repeat(picture[..., :1], 3, axis=-1)
    return [
        ControlClip(name="edge", picture=edge, source="extracted"),
        ControlClip(name="vis", picture=picture, source="extracted"),
        ControlClip(name="depth", picture=grey, source="given"),
        ControlClip(name="seg", picture=colorize(ids), source="given", segmentation=ids),
    ]


def test_what_is_written_is_read_as_the_same_controls(tmp_path: Path) -> None:
    ids = segmentation_from_array(NUMBERS % 3, names={0: "floor", 1: "robot", 2: "box"})
    made = controls(ids)
    folder = write_controls(tmp_path / "out", made, times=TIMES, rate=Fraction(30))
    request = request_from_mapping({"prompt": "snow", "scene": str(folder)})
    checked = check_request(request)
    assert (checked.times, checked.num_frames) == (TIMES, 4)
    for control in made:
        asked = next(each for each in request.controls if each.name == control.name)
        again = prepare_control(asked, None, size=Size(12, 16), num_frames=4)
        np.testing.assert_array_equal(again.picture, control.picture, err_msg=control.name)


@pytest.mark.parametrize("offset", [-1, 0, 300, 70_000])
def test_of_a_segmentation_ids_and_colours_are_both_written(tmp_path: Path, offset: int) -> None:
    ids = segmentation_from_array(
        NUMBERS % 3 + offset, names={offset: "floor", offset + 1: "robot", offset + 2: "box"}
    )
    write_controls(tmp_path, controls(ids), times=TIMES, rate=Fraction(30))
    by_id = read_segmentation(tmp_path / "seg", labels=tmp_path / LABELS_FILE)
    by_color = read_segmentation(tmp_path / "seg_colors", labels=tmp_path / LABELS_FILE)
    for again in (by_id, by_color):
        names = np.vectorize(again.names.get)(again.ids)
        np.testing.assert_array_equal(names, np.vectorize(ids.names.get)(ids.ids))
    if 0 <= offset < 2**16:
        np.testing.assert_array_equal(by_id.ids, ids.ids)
    scene = open_scene(tmp_path).segmentation()
    assert scene is not None
    assert scene.names == by_id.names


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("x")
    with pytest.raises(MediaError, match="there already"):
        write_controls(tmp_path, [], times=TIMES, rate=Fraction(30))
    assert [each.name for each in tmp_path.iterdir()] == ["mine.txt"]
