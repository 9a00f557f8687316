from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import cv2
import numpy as np
import pytest

from cosmos_transfer.cli import evaluate, show
from cosmos_transfer.cli.demo_inputs import SCENES, write_demo_scene
from cosmos_transfer.cli.evaluate import evaluate_run
from cosmos_transfer.cli.recorded import RecordedRun, read_run
from cosmos_transfer.errors import ConfigError, MediaError, ShapeError
from cosmos_transfer.inputs.depth import DepthClip
from cosmos_transfer.inputs.request import GenerationRequest, load_requests, request_to_mapping
from cosmos_transfer.inputs.segmentation import SegmentationClip
from cosmos_transfer.inputs.video import VideoClip, file_sha256, read_clip
from cosmos_transfer.metrics.predictors import Floor
from cosmos_transfer.outputs.record import GenerationRecord, write_record
from cosmos_transfer.outputs.writer import write_clip
from cosmos_transfer.shapes import Size

SIZE = Size(32, 48)
FRAMES = 5


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> GenerationRequest:
    """The first request of a small demo scene, with all four controls and a mask."""
    folder = tmp_path_factory.mktemp("scene")
    spec = write_demo_scene(SCENES[0], folder, size=SIZE, num_frames=FRAMES)
    return load_requests(spec)[0]


def record_of(request: GenerationRequest, folder: Path, frames: np.ndarray) -> Path:
    """Write an output and its record, as if the request had made these frames."""
    assert isinstance(request.video, Path)
    clip = read_clip(request.video)
    write_clip(folder / "out.mp4", frames, times=clip.times, rate=clip.rate, codec="ffv1")
    record = GenerationRecord(
        request=request_to_mapping(request),
        checkpoint={"id": "none"},
        inputs=(
            {"where": "video", "path": str(request.video), "sha256": file_sha256(request.video)},
        ),
        input_size=clip.size,
        working_size=clip.size,
        padded_size=clip.size,
        num_frames=clip.num_frames,
        padded_frames=clip.num_frames,
        rate=clip.rate,
        times=clip.times,
        outputs={"clip": "out.mp4"},
    )
    return write_record(folder / "out.json", record)


@pytest.fixture
def faithful(scene: GenerationRequest, tmp_path: Path) -> Path:
    """The record of an output that is its own input."""
    assert isinstance(scene.video, Path)
    return record_of(scene, tmp_path, read_clip(scene.video).frames)


def perfect_depth(run: RecordedRun):
    return lambda clip: DepthClip(metres=np.nan_to_num(run.depth, nan=1.0, posinf=1.0) * 3)


def perfect_ids(run: RecordedRun):
    """The right classes under other numbers."""
    truth = run.segmentation
    assert truth is not None
    names = {number + 100: name for number, name in truth.names.items()}
    return lambda clip: SegmentationClip(ids=truth.ids + 100, names=names)


def test_a_run_comes_back_as_the_model_saw_it(faithful: Path) -> None:
    run = read_run(faithful)
    assert [control.name for control in run.controls] == ["edge", "depth", "seg", "vis"]
    assert run.output.shape == (FRAMES, SIZE.height, SIZE.width, 3)
    assert all(control.picture.shape == run.output.shape for control in run.controls)
    assert run.maps.values.shape == (4, FRAMES, SIZE.height, SIZE.width)
    assert run.maps.values[0].max() == np.float32(0.25)
    assert run.maps.values[0].min() == np.float32(0.125)
    assert (run.maps.values[1:] == np.float32(0.25)).all()


def test_an_output_that_is_its_input_scores_perfectly(faithful: Path) -> None:
    run = read_run(faithful)
    report = evaluate_run(run, {"depth": perfect_depth(run), "seg": perfect_ids(run)})
    assert report.left_out == {}
    assert report.values["edge_f1"] == 1.0
    assert report.values["blur_ssim"] == 1.0
    assert report.values["mask_miou"] == 1.0
    assert report.values["depth_si_rmse"] == pytest.approx(0.0, abs=1e-5)  # metres, float32 depth


def test_an_output_of_another_scene_scores_worse(scene: GenerationRequest, tmp_path: Path) -> None:
    assert isinstance(scene.video, Path)
    mirrored = np.ascontiguousarray(read_clip(scene.video).frames[:, ::-1, ::-1])
    run = read_run(record_of(scene, tmp_path, mirrored))
    report = evaluate_run(run, {"depth": perfect_depth(run), "seg": perfect_ids(run)})
    assert report.values["edge_f1"] < 0.6
    assert report.values["edge_f1"] < report.values["edge_f1_1px"]
    assert report.values["blur_ssim"] < 0.9


def test_what_cannot_be_measured_is_left_out_with_its_reason(faithful: Path) -> None:
    report = evaluate_run(read_run(faithful), {})
    assert set(report.values) == {"edge_f1", "edge_f1_1px", "blur_ssim"}
    assert "got none" in report.left_out["depth_si_rmse"]
    assert "got none" in report.left_out["mask_miou"]


def test_seams_are_measured_where_there_are_chunks(faithful: Path) -> None:
    run = read_run(faithful)
    chunks = (
        {"index": 0, "start": 0, "stop": 3, "num_inherited": 0, "num_padded": 0},
        {"index": 1, "start": 2, "stop": 5, "num_inherited": 1, "num_padded": 0},
    )
    frames = run.output.copy()
    frames[3:] = 255 - frames[3:]
    cut = replace(run, output=frames, record=replace(run.record, chunks=chunks))
    assert evaluate_run(cut, {}).values["seam_ratio"] > 5


def test_an_estimator_that_knows_its_floor_has_it_printed(faithful: Path) -> None:
    run = read_run(faithful)
    known = Floor(
        metric="mask_miou", mean=0.75, standard_error=0.01, num_clips=48, measured_on="scenes"
    )

    class Judge:
        floor = known

        def __call__(self, clip: VideoClip) -> SegmentationClip:
            return perfect_ids(run)(clip)

    report = evaluate_run(run, {"seg": Judge()})
    assert report.floors == {"mask_miou": known}
    assert any("0.7500" in line and "n=48" in line for line in report.lines())
    assert report.as_mapping()["floors"]["mask_miou"]["num_clips"] == 48


def test_evaluate_prints_a_table_or_json(
    faithful: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nothing = ["--predictors", str(faithful.parent)]
    assert evaluate.main([str(faithful), *nothing]) == 0
    table = capsys.readouterr().out
    assert "edge_f1" in table
    assert "1.0000" in table
    assert evaluate.main(["--json", str(faithful), *nothing]) == 0
    report = json.loads(capsys.readouterr().out)[str(faithful)]
    assert report["metrics"]["edge_f1"] == 1.0
    assert set(report["left_out"]) == {"depth_si_rmse", "mask_miou"}


def test_one_unreadable_record_of_two_leaves_the_other(
    faithful: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert evaluate.main([str(faithful), "none.json"]) == 1
    captured = capsys.readouterr()
    assert "edge_f1" in captured.out
    assert "none.json" in captured.err


def test_show_draws_a_row_for_everything(
    faithful: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert show.main([str(faithful), "--columns", "3", "--height", "32"]) == 0
    path = Path(capsys.readouterr().out.strip())
    assert path == faithful.with_name("out_sheet.png")
    picture = cv2.imread(str(path))
    rows = 1 + 4 + 2 + 1  # three controls act everywhere alike: one row of weights for them
    assert picture.shape[0] == 22 + rows * 36 + 4
    assert picture.shape[1] == 168 + 3 * 52 + 4


def test_a_sheet_replaces_another_only_when_asked(faithful: Path) -> None:
    show.main([str(faithful)])
    with pytest.raises(MediaError, match="a name that is free"):
        show.main([str(faithful)])
    assert show.main([str(faithful), "--overwrite"]) == 0


def test_an_input_that_changed_is_refused(
    scene: GenerationRequest, tmp_path: Path, faithful: Path
) -> None:
    assert isinstance(scene.video, Path)
    other = tmp_path / "other.mp4"
    write_clip(other, read_clip(scene.video).frames[::-1], rate=Fraction(8))
    record = json.loads(faithful.read_text(encoding="utf-8"))
    record["inputs"][0]["path"] = str(other)
    faithful.write_text(json.dumps(record), encoding="utf-8")
    with pytest.raises(MediaError, match=r"other\.mp4.*another content"):
        read_run(faithful)
    other.unlink()
    with pytest.raises(MediaError, match="nothing there"):
        read_run(faithful)


def test_an_output_of_another_length_is_refused(scene: GenerationRequest, faithful: Path) -> None:
    assert isinstance(scene.video, Path)
    frames = read_clip(scene.video).frames[:3]
    write_clip(faithful.with_suffix(".mp4"), frames, rate=Fraction(8), codec="ffv1", overwrite=True)
    with pytest.raises(ShapeError, match="the 5 frames of its record, got 3"):
        read_run(faithful)


def test_a_run_from_arrays_cannot_be_read_back(scene: GenerationRequest, tmp_path: Path) -> None:
    assert isinstance(scene.video, Path)
    frames = read_clip(scene.video).frames
    path = record_of(scene, tmp_path, frames)
    record = json.loads(path.read_text(encoding="utf-8"))
    record["request"] = request_to_mapping(replace(scene, video=frames))
    path.write_text(json.dumps(record), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"arrays in memory \(video\)"):
        read_run(path)
