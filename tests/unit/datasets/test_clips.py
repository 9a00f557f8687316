from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from cosmos_transfer.datasets.clips import ClipFolder
from cosmos_transfer.errors import ConfigError, MediaError
from cosmos_transfer.inputs.video import read_clip
from cosmos_transfer.jobs.augment import augment_dataset
from cosmos_transfer.outputs.writer import write_clip
from tests.support.restyle import Inverter

UNEVEN = tuple(Fraction(each, 10) for each in (0, 1, 2, 5))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "clips"
    for index, name in enumerate(["a.mp4", "sub/b.mp4"]):
        frames = np.full((4, 16, 24, 3), 60 + 40 * index, np.uint8)
        write_clip(root / name, frames, times=UNEVEN, rate=Fraction(10))
    (root / "sub/b.txt").write_text("labels of b")
    return root


def test_a_folder_of_clips_keeps_names_times_and_companions(source: Path, tmp_path: Path) -> None:
    made = augment_dataset(source, tmp_path / "out", looks=["night", "fog"], restyle=Inverter())
    assert made.num_episodes == 4
    found = {str(path.relative_to(made.root)) for path in made.root.rglob("*") if path.is_file()}
    assert found == {
        *("a-v0.mp4", "a-v1.mp4", "sub/b-v0.mp4", "sub/b-v1.mp4", "sub/b-v0.txt", "sub/b-v1.txt"),
        *("provenance.json", "README.md", "sheet.png"),
    }
    clip = read_clip(made.root / "sub/b-v1.mp4")
    assert clip.times == UNEVEN
    assert abs(int(clip.frames.mean()) - 155) <= 2
    assert (made.root / "sub/b-v1.txt").read_text() == "labels of b"


def test_clips_of_one_name_are_refused(source: Path) -> None:
    (source / "a.mkv").write_bytes((source / "a.mp4").read_bytes())
    with pytest.raises(MediaError, match="two named a"):
        ClipFolder(source)


def test_a_folder_without_clips_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MediaError, match="expected a LeRobot dataset, or videos"):
        ClipFolder(tmp_path)


def test_a_camera_that_is_not_there_is_refused(source: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="camera 'front'"):
        augment_dataset(
            source, tmp_path / "out", looks=["a"], cameras=["front"], restyle=Inverter()
        )
