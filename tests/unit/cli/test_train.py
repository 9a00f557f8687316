from __future__ import annotations

from pathlib import Path

import pytest

from cosmos_transfer.cli.main import main
from cosmos_transfer.model.checkpoint import checkpoint_info
from cosmos_transfer.training.data import read_shard, shard_paths


def refused(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    code = main(["train", *argv])
    captured = capsys.readouterr()
    assert code == 2
    assert captured.out == ""
    (line,) = captured.err.strip().splitlines()
    return line


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("base", "edge"), "no name of a branch"),
        (("data", "edge"), "no name of a branch"),
        (("branch", "lidar"), "edge, depth, seg, vis"),
        (("branch",), "edge, depth, seg, vis"),
        (("joint", "--minutes", "-1"), "--minutes"),
        (("joint", "--batch-size", "0"), "--batch-size"),
        (("data", "--scenes", "0"), "--scenes"),
        (("data", "--size", "0", "96"), "--size"),
        (("data", "--frames", "0"), "--frames"),
        (("joint", "--share-crop", "1.5"), "share_crop"),
        (("joint", "--threads", "0"), "--threads"),
        (("joint", "--device", "abacus"), "--device"),
        (("everything",), "invalid choice"),
        (("export",), "--output"),
    ],
    ids=str,
)
def test_mistakes_are_one_line(
    argv: tuple[str, ...],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert said in refused(capsys, *argv)
    assert list(tmp_path.iterdir()) == []


def test_clips_are_asked_for_before_anything_is_trained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "nothing"
    for what in ("joint", "base", "autoencoder"):
        assert "train data" in refused(capsys, what, "--data", str(folder))


def test_the_commands_run_in_their_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cosmos_transfer.training.autoencoder.NUM_COMPONENT_CLIPS", 4)
    data, run, out = tmp_path / "data", tmp_path / "run", tmp_path / "checkpoint"
    folders = ["--data", str(data), "--run", str(run), "--batch-size", "1", "--threads", "1"]
    small = ["--size", "32", "48", "--frames", "9"]
    assert main(["train", "data", "--data", str(data), "--scenes", "1", *small]) == 0
    (shard,) = shard_paths(data)
    assert capsys.readouterr().out.strip() == str(shard)
    assert read_shard(shard).looks.shape == (1, 2, 9, 32, 48, 3)

    assert "--start-from" in refused(capsys, "branch", "edge", *folders)
    assert main(["train", "joint", *folders, "--minutes", "0.001"]) == 0
    assert "resumed" not in capsys.readouterr().err
    assert main(["train", "joint", *folders, "--minutes", "0"]) == 0
    assert "resumed at step" in capsys.readouterr().err
    assert main(["train", "autoencoder", *folders, "--minutes", "0.001"]) == 0
    assert main(["train", "export", *folders, "--output", str(out)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(out)
    assert checkpoint_info(out).controls == ("edge", "depth", "seg", "vis")

    fast = ["--data", str(data), "--run", str(tmp_path / "fast"), "--batch-size", "1"]
    assert main(["train", "distill", *fast, "--start-from", str(out), "--minutes", "0.001"]) == 0
    capsys.readouterr()
    assert "a run of `distill`" in refused(capsys, "joint", *fast)
    assert main(["train", "export", *fast, "--fast", "--output", str(tmp_path / "few")]) == 0
    info = checkpoint_info(tmp_path / "few")
    assert (info.id, info.guidance_scale) == ("embedded-fast", 1.0)
    capsys.readouterr()

    branch = [*folders[:2], "--run", str(tmp_path / "branch"), *folders[4:]]
    start = ["--start-from", str(out), "--minutes", "0.001"]
    assert main(["train", "branch", "seg", *branch, *start]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "branch" / "state.pt")
    assert "a run of `seg`" in refused(capsys, "branch", "vis", *branch, *start)
