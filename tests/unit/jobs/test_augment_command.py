"""``cosmos-transfer augment`` from the command line, with a tiny random checkpoint."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from cosmos_transfer.cli.main import main
from cosmos_transfer.datasets.hdf5 import HDF5Dataset
from cosmos_transfer.datasets.lerobot import LeRobotDataset
from cosmos_transfer.inputs.video import read_clip
from cosmos_transfer.outputs.writer import write_clip
from cosmos_transfer.pipeline import TransferPipeline
from tests.support.lerobot import CAMERAS, build_lerobot
from tests.support.restyle import Inverter
from tests.support.robomimic import build_robomimic


@pytest.fixture
def clips(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        coarse = rng.integers(0, 256, (3, 4, 6, 3), dtype=np.uint8)
        frames = coarse.repeat(8, axis=1).repeat(8, axis=2)
        write_clip(tmp_path / "clips" / f"{name}.mp4", frames, rate=Fraction(10))
    return tmp_path / "clips"


def test_a_folder_of_clips_in_two_looks(
    clips: Path, tiny_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "looks.txt").write_text("snow\n\n")
    out = tmp_path / "out"
    typed = [str(clips), str(out), "--look", "night", "--looks-file", str(tmp_path / "looks.txt")]
    typed += ["--prompt", "a robot arm", "--control", "edge=0.5", "--control", "vis=0.5"]
    typed += ["--checkpoint", str(tiny_checkpoint), "--steps", "1"]
    assert main(["augment", *typed]) == 0
    printed = capsys.readouterr()
    assert printed.out == f"{out}: 4 episodes, 0 refused\n"
    assert printed.err.count(": done\n") == 4
    source, made = read_clip(clips / "b.mp4"), read_clip(out / "b-v1.mp4")
    assert (made.frames.shape, made.times) == (source.frames.shape, source.times)
    assert "| a robot arm, at night |" in (out / "README.md").read_text()


def test_a_lerobot_dataset_keeps_its_rows(tiny_checkpoint: Path, tmp_path: Path) -> None:
    source = build_lerobot(tmp_path / "arm", num_episodes=2)
    typed = [str(source), str(tmp_path / "new"), "--look", "snow", "--camera", CAMERAS[0]]
    assert main(["augment", *typed, "--checkpoint", str(tiny_checkpoint), "--steps", "1"]) == 0
    old, new = LeRobotDataset(source), LeRobotDataset(tmp_path / "new")
    assert new.table().equals(old.table())
    pictures = [each.frames(each.episodes[1], CAMERAS[0]) for each in (old, new)]
    assert pictures[0].shape == pictures[1].shape
    assert not np.array_equal(*pictures)


def test_what_is_refused_is_counted_and_the_exit_code_is_one(
    clips: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(TransferPipeline, "from_pretrained", lambda *_, **__: Inverter())
    typed = [str(clips), str(tmp_path / "out"), "--look", "night", "--look", "drifted"]
    assert main(["augment", *typed, "--attempts", "1", "--accept", "edge_f1>0.5"]) == 1
    printed = capsys.readouterr()
    assert printed.out.endswith("out: 2 episodes, 2 refused\n")
    assert "episode-000001-v1: refused: 1 seeds tried; the last missed edge_f1 > 0.5" in printed.err


def test_hdf5_settings_reach_the_file(
    tiny_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = build_robomimic(tmp_path / "can.hdf5", upside_down=True)
    out = tmp_path / "out.hdf5"
    typed = [str(source), str(out), "--look", "snow", "--steps", "1", "--flip-vertical"]
    typed += ["--rate", "30", "--camera", "table_cam", "--checkpoint", str(tiny_checkpoint)]
    assert main(["augment", *typed]) == 0
    assert len(HDF5Dataset(out).episodes) == 3
    capsys.readouterr()
    assert main(["augment", str(source), str(tmp_path / "x"), "--look", "a", "--rate", "-1"]) == 2
    assert "--rate: expected steps per second, above 0, got '-1'" in capsys.readouterr().err


def test_a_control_without_a_number_is_refused(
    clips: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    typed = [str(clips), str(tmp_path / "out"), "--look", "a", "--control", "edge"]
    assert main(["augment", *typed]) == 2
    assert "--control: expected NAME=WEIGHT, got 'edge'" in capsys.readouterr().err
