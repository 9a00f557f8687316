from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import report
from benchmarks.embedded import fidelity, timing
from benchmarks.embedded.__main__ import main
from benchmarks.embedded.bench import TRUE, WITHOUT
from benchmarks.embedded.fidelity import METRICS, measure, table_from_scores
from benchmarks.embedded.prompts import count_right, look_statistics, luminance, white_share
from benchmarks.embedded.weight_maps import half_changes
from benchmarks.held_out import HeldOutClip, held_out_clips, shuffled
from benchmarks.results_file import read_results, write_results
from cosmos_transfer.errors import NumericsError
from cosmos_transfer.metrics.predictors import (
    DepthPredictor,
    FrameNetwork,
    Predictors,
    SegmentationPredictor,
    save_predictor,
)
from cosmos_transfer.shapes import Size
from cosmos_transfer.training.data import FIRST_TRAINING_SEED
from cosmos_transfer.training.predictors import predictor_config
from cosmos_transfer.training.scenes import CLASS_NAMES


@pytest.fixture(scope="module")
def clips() -> list[HeldOutClip]:
    return list(held_out_clips(4, size=Size(64, 96), num_frames=9))


def test_clips_are_held_out_and_come_with_their_truth(clips: list[HeldOutClip]) -> None:
    assert [clip.seed for clip in clips] == [0, 1, 2, 3]
    assert all(clip.seed < FIRST_TRAINING_SEED for clip in clips)
    for clip in clips:
        assert clip.simulator.shape == clip.true_render.shape == (9, 64, 96, 3)
        assert clip.depth.shape == clip.class_ids.shape == (9, 64, 96)
        assert not np.array_equal(clip.simulator, clip.true_render)
        assert clip.ground().any()


def test_controls_are_what_the_pipeline_reads(clips: list[HeldOutClip]) -> None:
    controls = clips[0].controls({"edge": {"weight": 1.0, "mask": np.ones((2, 2))}, "depth": 0.25})
    assert list(controls) == ["edge", "depth"]
    assert "clip" not in controls["edge"]  # extracted from the clip
    assert controls["depth"]["weight"] == 0.25
    assert controls["depth"]["unit"] == "m"
    assert clips[0].controls({"seg": 1.0})["seg"]["labels"] == CLASS_NAMES


def test_a_look_is_changed_and_nothing_else(clips: list[HeldOutClip]) -> None:
    clip = next(clip for clip in clips if clip.family == "driving")
    prompt, day = clip.under(time_of_day="day", weather="clear")
    snowy, snow = clip.under(time_of_day="day", weather="snow")
    _, night = clip.under(time_of_day="night", weather="clear")
    assert "snow" in snowy
    assert "snow" not in prompt
    assert luminance(night) < luminance(day)
    assert white_share(snow, clip.ground()) > 0.5 > white_share(day, clip.ground())


def test_a_shuffled_clip_is_another_of_its_family(clips: list[HeldOutClip]) -> None:
    for clip, other in zip(clips, shuffled(clips), strict=True):
        assert other.seed != clip.seed
        kin = [each for each in clips if each.family == clip.family]
        assert other.family == clip.family or len(kin) == 1
    with pytest.raises(ValueError, match="two clips or more"):
        shuffled(clips[:1])


def test_white_has_no_colour_and_counts_on_the_ground_alone() -> None:
    frames = np.zeros((1, 2, 2, 3), dtype=np.uint8)
    frames[0, 0, 0] = (230, 235, 240)
    frames[0, 0, 1] = (255, 255, 180)  # bright and yellow
    frames[0, 1, 1] = (240, 240, 240)
    ground = np.array([[[True, True], [True, False]]])
    assert white_share(frames, ground) == pytest.approx(1 / 3)


def test_looks_are_counted_where_they_point_the_right_way() -> None:
    ground = np.ones((1, 2, 2), dtype=bool)

    def gray(level: int) -> np.ndarray:
        return np.full((1, 2, 2, 3), level, dtype=np.uint8)

    right = look_statistics({"night": gray(20), "day": gray(120), "snow": gray(200)}, ground)
    wrong = look_statistics({"night": gray(130), "day": gray(120), "snow": gray(30)}, ground)
    indoors = look_statistics({"night": gray(20), "day": gray(120)}, ground)
    counted = count_right([right, wrong, indoors])
    assert (counted["night_darker"], counted["num_clips"]) == (2, 3)
    assert (counted["snow_whiter"], counted["num_driving"]) == (1, 2)
    assert counted["means"]["luminance_day"]["value"] == pytest.approx(120)


def test_half_changes_see_only_their_half(clips: list[HeldOutClip]) -> None:
    clip = clips[0]
    blank = np.full_like(clip.simulator, 90)
    left_only = blank.copy()
    left_only[:, :, :48] = clip.simulator[:, :, :48]
    left, right = half_changes(left_only, blank, clip, tolerance=0)
    assert left > 0.9
    assert right == 0.0


def test_an_undefined_metric_stops_the_table(clips: list[HeldOutClip]) -> None:
    predictors = Predictors(
        depth=DepthPredictor(FrameNetwork(predictor_config("depth"))),
        seg=SegmentationPredictor(FrameNetwork(predictor_config("seg"))),
    )
    assert set(measure(clips[0].true_render, clips[0], predictors)) == set(METRICS)
    featureless = replace(clips[0], simulator=np.full_like(clips[0].simulator, 9))
    with pytest.raises(NumericsError, match=r"clip 0: .*at least one edge"):
        measure(clips[0].true_render, featureless, predictors)


def test_shares_are_of_the_gap_between_none_and_true() -> None:
    levels = {TRUE: 0.9, "shuffled true render": 0.2, WITHOUT: 0.1, "edge at 1": 0.5}
    scores = {name: [dict.fromkeys(METRICS, level)] * 3 for name, level in levels.items()}
    table = table_from_scores(scores)
    assert list(table["rows"]) == list(levels)
    assert list(table["shares"]) == ["edge at 1"]
    assert table["shares"]["edge at 1"]["mask_miou"]["value"] == pytest.approx(0.5)


def test_the_whole_benchmark_on_a_tiny_model(
    tiny_checkpoint: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    few = ("no controls", "all four at 0.25", "edge at 1")
    monkeypatch.setattr(fidelity, "CONDITIONS", {name: fidelity.CONDITIONS[name] for name in few})
    monkeypatch.setattr(timing, "TIMED_STEPS", 1)
    torch.manual_seed(0)
    for task in ("depth", "seg"):
        save_predictor(
            tmp_path / "judges/predictors" / task,
            FrameNetwork(predictor_config(task)),
            floor=None,
        )
    main(
        [
            *("--clips", "2", "--steps", "1", "--device", "cpu"),
            *("--checkpoint", str(tiny_checkpoint), "--predictors", str(tmp_path / "judges")),
            *("--results", str(tmp_path / "results")),
        ]
    )
    printed = capsys.readouterr().out
    (run,) = read_results("embedded", tmp_path / "results")
    assert run["checkpoint"]["id"] == "tiny-random"
    assert run["settings"]["seeds"] == [0, 1]
    rows = run["table"]["rows"]
    assert list(rows) == ["true render", "shuffled true render", *few]
    assert (
        rows["true render"]["edge_f1"]["value"] > rows["shuffled true render"]["edge_f1"]["value"]
    )
    assert rows["no controls"] != rows["edge at 1"]
    assert run["prompts"]["true renders"]["night_darker"] == 2
    assert run["timing"]["steps"] == 1
    assert run["sharpness"]["gradient_energy"]["ratio"]["value"] > 0
    assert run["sharpness"]["flicker"]["true_render"]["value"] > 0
    assert set(run["mask"]) == {"edge_f1", "edge_f1_1px"}
    for title in ("Fidelity", "Share of the gap", "Sharpness", "Prompts", "Weight maps", "Time"):
        assert title in printed
    report.write_readme(tmp_path / "README.md", tmp_path / "results")
    page = (tmp_path / "README.md").read_text()
    assert run["file"] in page
    assert "| edge at 1" in page


def test_the_page_takes_every_part_from_the_newest_run_on_the_most_clips() -> None:
    common = {
        "date": "today",
        "commit": "abc",
        "device": "cpu",
        "hardware": {
            "gpu": None,
            "cores": 2,
            "processor": "P",
            "threads": 1,
            "load_average": 0.0,
        },
        "checkpoint": {"id": "embedded"},
    }
    settings = {"steps": 12, "sampler": "euler", "guidance_scale": 1.5}
    timing = {
        "fastest": 1.0,
        "slowest": 9.0,
        "stages": {"decode": 0.1},
        "steps": 12,
        "num_frames": 9,
        "runs": 3,
    }
    runs = [
        common
        | {
            "file": f"{name}.json",
            "settings": settings | {"num_clips": num_clips},
            "timing": timing | {"seconds": seconds},
        }
        for name, num_clips, seconds in (("c", 4, 7.0), ("b", 48, 5.0), ("a", 48, 3.0))
    ]
    page = report.readme(runs)
    assert "5.0 s (median" in page
    assert "results/b.json" in page
    assert "Fidelity" not in page


def test_results_name_date_hardware_and_commit(tmp_path: Path) -> None:
    machine = {"gpu": None, "cores": 2, "processor": "Some CPU @ 2 GHz"}
    path = write_results({"benchmark": "embedded", "hardware": machine}, tmp_path)
    content = json.loads(path.read_text())
    assert "2x-some-cpu-2-ghz" in path.name
    assert content["commit"].rstrip("+") in path.name
    assert content["date"].endswith("UTC")
    (read,) = read_results("embedded", tmp_path)
    assert read["file"] == path.name
