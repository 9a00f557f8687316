"""``batch -m``: several values of a setting as one job, or as jobs that a launcher starts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cosmos_transfer.cli.compose import launch, sweep_points
from cosmos_transfer.cli.main import main
from cosmos_transfer.config import GenerateSettings
from cosmos_transfer.errors import ConfigError
from cosmos_transfer.jobs.manifest import Manifest, Row


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of jobs whose items are their prompts and seeds, written to files."""

    def build(*_: Any) -> Any:
        def make(row: Row, folder: Path) -> Mapping[str, Any]:
            text = f"{row.payload['prompt']} | {row.seed}"
            (folder / f"{row.name}.txt").write_text(text)
            return {}

        return make

    monkeypatch.setattr("cosmos_transfer.cli.batch.build_maker", build)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "out"


def texts(folder: Path) -> list[str]:
    return sorted(path.read_text() for path in folder.glob("*.txt"))


def test_a_sweep_is_every_combination_in_order() -> None:
    points = sweep_points(["video=a.mp4", "seed=1,2", "look=night,fog", "controls.blur.weight=1"])
    assert [point[1:3] for point in points] == [
        ["seed=1", "look=night"],
        ["seed=1", "look=fog"],
        ["seed=2", "look=night"],
        ["seed=2", "look=fog"],
    ]
    assert {point[3] for point in points} == {"controls.vis.weight=1"}


def test_a_sweep_is_one_job(written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    typed = ["video=a.mp4", "prompt=a street", "look=night,fog", "seed=range(2)"]
    assert main(["batch", "-m", *typed, "output.dir=out"]) == 0
    assert capsys.readouterr().out == "4 done\n"
    assert texts(written) == [
        "a street, at night | 0",
        "a street, at night | 1",
        "a street, thick fog | 0",
        "a street, thick fog | 1",
    ]
    assert len({row.hash for row in Manifest(written / "job.sqlite").rows()}) == 4


def test_without_m_alternatives_are_refused(
    written: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["batch", "video=a.mp4", "prompt=a, b", "output.dir=out"]) == 2
    assert "a list of alternatives" in capsys.readouterr().err
    typed = ["video=a.mp4", "prompt=a", "output.dir=out", "hydra/launcher=slurm"]
    assert main(["batch", *typed]) == 2
    assert "expected -m with hydra/launcher=slurm" in capsys.readouterr().err


def test_a_job_has_one_folder_and_one_model(
    written: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    typed = ["video=a.mp4", "prompt=a"]
    assert main(["batch", "-m", *typed, "output.dir=a,b"]) == 2
    assert "expected output.dir=FOLDER, got 2 of them" in capsys.readouterr().err
    assert main(["batch", "-m", *typed, "output.dir=out", "model.device=cpu,cuda"]) == 2
    assert "a sweep over models" in capsys.readouterr().err


def test_each_point_of_a_launcher_is_a_job_and_export_joins_them(
    written: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (written.parent / "prompts.txt").write_text("a\nb\nc\n")
    typed = ["video=x.mp4", "prompts_file=prompts.txt", "shard=range(2)", "shards=2"]
    assert main(["batch", "-m", *typed, "output.dir=out", "hydra/launcher=basic"]) == 0
    assert capsys.readouterr().out == "3 done\n"
    assert (texts(written / "0"), texts(written / "1")) == (["a | 0", "c | 0"], ["b | 0"])
    shards = [str(written / "0"), str(written / "1")]
    assert main(["status", "--json", *shards]) == 0
    assert json.loads(capsys.readouterr().out)["done"] == 3
    assert main(["export", *shards]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sorted(row["payload"]["prompt"] for row in rows) == ["a", "b", "c"]


def test_other_processes_get_settings_and_a_folder(tmp_path: Path) -> None:
    def task(settings: GenerateSettings, folder: Path) -> tuple[int, str, str]:
        return settings.seed, str(settings.look.time), str(folder)

    returned = launch(
        "generate",
        ["seed=3,4", "look=night"],
        ["hydra/launcher=local"],
        task,
        schema=GenerateSettings,
        folder=tmp_path / "a folder",
    )
    assert returned == [
        (seed, "at night", str(tmp_path / "a folder" / str(number)))
        for number, seed in enumerate((3, 4))
    ]


def test_slurm_is_told_what_was_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hydra_plugins.hydra_submitit_launcher.submitit_launcher import SlurmLauncher

    told: dict[str, Any] = {}

    def instead(self: SlurmLauncher, job_overrides: Any, initial_job_idx: int) -> list[Any]:
        told.update(self.params, points=[list(each) for each in job_overrides])
        return []

    monkeypatch.setattr(SlurmLauncher, "launch", instead)
    slurm = ["hydra/launcher=slurm", "hydra.launcher.partition=gpu"]
    settings: dict[str, Any] = {"schema": GenerateSettings, "folder": tmp_path}
    assert launch("generate", ["seed=1,2"], slurm, print, **settings) == []
    assert (told["partition"], told["timeout_min"]) == ("gpu", 720)
    assert told["points"] == [["seed=1"], ["seed=2"]]
    with pytest.raises(ConfigError, match="seeed"):
        launch("generate", ["seeed=1,2"], slurm, print, **settings)


@pytest.mark.parametrize(("shard", "shards"), [(2, 2), (-1, 2), (0, 0)])
def test_a_shard_that_is_none_is_refused(shard: int, shards: int) -> None:
    with pytest.raises(ConfigError, match="shard: expected 0 to shards - 1"):
        GenerateSettings(shard=shard, shards=shards)
