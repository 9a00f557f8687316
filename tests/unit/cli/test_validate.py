from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cosmos_transfer.cli.main import USER_MISTAKE, main
from cosmos_transfer.inputs import segmentation
from tests.unit.inputs.media_files import numbered_frames, write_video


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_video(tmp_path / "clip.mp4", numbered_frames(5, 32, 48))
    ids = np.zeros((5, 32, 48), np.int32)
    ids[:, 8:24, 8:24] = 1
    np.save(tmp_path / "seg.npy", ids)
    (tmp_path / "labels.json").write_text('{"0": "wall", "1": "robot0_hand"}')
    half = np.zeros((32, 48), np.uint8)
    half[:, 24:] = 255
    Image.fromarray(half).save(tmp_path / "half.png")
    return tmp_path


RULE = 'controls.seg.weight="{\\"robot0_*\\": 1.0, default: 0.25}"'
SEG = ("controls.seg.path=seg.npy", "controls.seg.labels=labels.json", RULE)


def planned(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, object]]:
    main(["validate", *arguments, "--json"])
    return json.loads(capsys.readouterr().out)["requests"]


def test_the_plan_is_json_for_machines(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (plan,) = planned(capsys, "video=clip.mp4", "prompt=snow", "controls.edge.mask=half.png", *SEG)
    assert plan["ok"] is True
    assert plan["size"] == {"height": 32, "width": 48}
    assert plan["num_frames"] == 5
    assert plan["times"] == ["0", "1/10", "1/5", "3/10", "2/5"]
    assert plan["extracted"] == ["edge"]
    assert plan["chunks"] == [[0, 5]]
    (mask,) = (each for each in plan["inputs"] if each["where"] == "control 'edge', mask")
    assert mask["note"] == "covers 50.0% of the clip, read as luma"
    # The robot covers a sixth, none of it under the mask: there seg is 0.25 of 1.25 on the right.
    weights = plan["weights"]
    assert weights["edge"] == pytest.approx({"mean": 0.4, "minimum": 0.0, "maximum": 0.8})
    assert weights["seg"]["minimum"] == pytest.approx(0.2)
    assert weights["seg"]["mean"] == pytest.approx(0.5 * 0.2 + 1 / 6 + (0.5 - 1 / 6) * 0.25)


def test_a_refused_request_is_json_too(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "video=clop.mp4", "prompt=snow", "--json"]) == USER_MISTAKE
    out, err = capsys.readouterr()
    (refused,) = json.loads(out)["requests"]
    assert refused["ok"] is False
    assert "Did you mean" in refused["error"]
    assert len(err.strip().splitlines()) == 1


def test_a_spec_that_cannot_be_read_is_refused_in_json(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (files / "bad.json").write_text('{"prompt": "a", "video": "clip.mp4", "wieght": 1}')
    assert main(["validate", "spec=bad.json", "--json"]) == USER_MISTAKE
    (refused,) = json.loads(capsys.readouterr().out)["requests"]
    assert "'wieght'" in refused["error"]


def test_one_refused_request_of_a_spec_leaves_the_others(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [{"name": "good", "prompt": "a", "video": "clip.mp4", "edge": 1.0}]
    lines.append({"name": "bad", "prompt": "b", "video": "none.mp4", "edge": 1.0})
    (files / "batch.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert main(["validate", "spec=batch.jsonl", "--json"]) == 1
    plans = json.loads(capsys.readouterr().out)["requests"]
    assert [(each["name"], each["ok"]) for each in plans] == [("good", True), ("bad", False)]


def test_a_segmentation_is_read_once(
    files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened: list[Path] = []
    read = segmentation.read_array

    def counted(path: Path) -> np.ndarray:
        opened.append(path)
        return read(path)

    monkeypatch.setattr(segmentation, "read_array", counted)
    planned(capsys, "video=clip.mp4", "prompt=snow", *SEG, 'keep="{wall: 1.0}"')
    assert len(opened) == 1


def test_the_sheet_shows_what_goes_in(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["video=clip.mp4", "prompt=snow", "controls.edge.mask=half.png", "keep=half.png"]
    assert main(["validate", *arguments, "--sheet", "in.png"]) == 0
    sheet = np.asarray(Image.open(files / "in.png"))
    capsys.readouterr()
    # Four rows of 96 pixels: the input, edge, its weight, what is kept.
    assert sheet.shape[0] == 22 + 4 * 100 + 4
    weight = sheet[22 + 2 * 100 + 4 + 40, 168 : 168 + 144]
    assert weight[:70].max() <= 4  # inferno begins a little above black
    assert (weight[74:] == 255).all()
    assert main(["validate", *arguments, "--sheet=in.png"]) == USER_MISTAKE
    assert "overwrite" in capsys.readouterr().err
    assert main(["validate", *arguments, "--sheet", "in.png", "output.overwrite=true"]) == 0


def test_a_sheet_without_a_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "video=a.mp4", "prompt=x", "--sheet"]) == USER_MISTAKE
    assert "--sheet: expected a file" in capsys.readouterr().err


def test_the_controls_are_written_as_the_model_is_given_them(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    request = ("video=clip.mp4", "prompt=snow", "controls.edge.weight=0.5", *SEG)
    assert main(["validate", *request, "--controls", "out"]) == 0
    assert sorted(each.name for each in (files / "out").iterdir()) == [
        *("edge", "labels.json", "scene.json", "seg", "seg_colors"),
    ]
    assert len(list((files / "out" / "seg").iterdir())) == 5
    capsys.readouterr()
    (plan,) = planned(capsys, "scene=out", "prompt=snow")
    assert plan["ok"] is True
    assert plan["times"] == ["0", "1/10", "1/5", "3/10", "2/5"]
    assert main(["validate", *request, "--controls", "out"]) == USER_MISTAKE
    assert "there already" in capsys.readouterr().err
