"""What docs/inputs.md and docs/scenes.md show is what is read."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from cosmos_transfer.inputs.depth import DEPTH_UNITS
from cosmos_transfer.inputs.labels import parse_labels
from cosmos_transfer.inputs.request import ControlRequest
from cosmos_transfer.inputs.simulators import TOOLS, open_scene


@pytest.fixture
def inputs(repository: Path) -> str:
    return (repository / "docs" / "inputs.md").read_text(encoding="utf-8")


def json_blocks(text: str) -> list[str]:
    return re.findall(r"```json\n(.*?)```", text, re.DOTALL)


def test_every_label_table_that_is_shown_is_read(inputs: str) -> None:
    (block,) = json_blocks(inputs)
    tables = [parse_labels(json.loads(line), where="docs") for line in block.strip().splitlines()]
    assert [sorted(label.name for label in table) for table in tables] == [
        ["BACKGROUND", "robot"],
        ["robot", "table"],
        ["table"],
        ["table"],
    ]


def test_every_unit_of_depth_has_its_row(inputs: str) -> None:
    rows = re.findall(r"^\| `(\w+)` \|", inputs, re.MULTILINE)
    assert [row for row in rows if row in DEPTH_UNITS] == list(DEPTH_UNITS)


def test_every_setting_of_a_control_is_explained(inputs: str) -> None:
    elsewhere = {"name", "clip", "preset", "mask", "weight", "path"}
    for field in ControlRequest.__dataclass_fields__:
        assert field in elsewhere or re.search(rf"\b{field}\b", inputs), field


def test_the_layout_that_is_shown_opens(repository: Path, tmp_path: Path) -> None:
    text = (repository / "docs" / "scenes.md").read_text(encoding="utf-8")
    (settings,) = json_blocks(text)
    (tmp_path / "scene.json").write_text(settings)
    np.save(tmp_path / "rgb.npy", np.zeros((2, 8, 8, 3), np.uint8))
    np.save(tmp_path / "depth.npy", np.full((2, 8, 8), 1500, np.uint16))
    np.save(tmp_path / "seg.npy", np.full((2, 8, 8), 2, np.int32))
    scene = open_scene(tmp_path)
    depth, seg = scene.depth(), scene.segmentation()
    assert depth is not None
    assert seg is not None
    assert depth.metres.max() == np.float32(1.5)
    assert set(seg.names.values()) == {"table", "robot"}
    assert scene.tool in TOOLS
