from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import report
from benchmarks.embedded import attributes, bench, diversity, fidelity, timing
from benchmarks.embedded.__main__ import main, parse
from benchmarks.embedded.__main__ import run as run_command
from benchmarks.embedded.bars import bars
from benchmarks.embedded.bench import TRUE, WITHOUT, Bench
from benchmarks.embedded.clip_log import ClipLog
from benchmarks.embedded.fidelity import METRICS, Yardstick, summarise_table
from benchmarks.embedded.parts import PARTS
from benchmarks.embedded.prompts import count_right, look_statistics, luminance, white_share
from benchmarks.embedded.weight_maps import half_changes
from benchmarks.held_out import HeldOutClip, held_out_clip, partner
from benchmarks.results_file import read_results, write_results
from cosmos_transfer.errors import NumericsError
from cosmos_transfer.metrics.control import blur_ssim
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
    return [held_out_clip(seed, size=Size(64, 96), num_frames=9) for seed in range(4)]


@pytest.fixture(scope="module")
def predictors() -> Predictors:
    torch.manual_seed(0)
    return Predictors(
        depth=DepthPredictor(FrameNetwork(predictor_config("depth"))),
        seg=SegmentationPredictor(FrameNetwork(predictor_config("seg"))),
    )


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


def test_a_partner_is_another_clip_of_its_family(clips: list[HeldOutClip]) -> None:
    for clip in clips:
        other = partner(clip.seed)
        assert other != clip.seed
        found = held_out_clip(other, size=Size(8, 8), num_frames=1)
        assert found.family == clip.family


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


def test_an_undefined_metric_stops_the_table(
    clips: list[HeldOutClip], predictors: Predictors
) -> None:
    values = Yardstick(clips[0], predictors).measure(clips[0].true_render)
    assert set(values) == set(METRICS)
    assert values["blur_ssim_render"] == pytest.approx(1.0)
    assert values["blur_ssim"] == blur_ssim(clips[0].true_render, clips[0].simulator)
    featureless = replace(clips[0], simulator=np.full_like(clips[0].simulator, 9))
    with pytest.raises(NumericsError, match=r"clip 0: .*at least one edge"):
        Yardstick(featureless, predictors).measure(clips[0].true_render)


def test_shares_are_of_the_gap_between_none_and_true() -> None:
    levels = {TRUE: 0.9, "shuffled true render": 0.2, WITHOUT: 0.1, "edge at 1": 0.5}
    scores = {name: dict.fromkeys(METRICS, level) for name, level in levels.items()}
    table = summarise_table([scores] * 3)
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
    monkeypatch.setattr(diversity, "NUM_SEEDS", 2)
    monkeypatch.setattr(attributes, "NUM_SCENES", 1)
    monkeypatch.setattr(attributes, "NUM_STEPS", 1)
    for family, looks in bench.SIX_LOOKS.items():
        monkeypatch.setitem(bench.SIX_LOOKS, family, dict(list(looks.items())[:3]))
    torch.manual_seed(0)
    for task in ("depth", "seg"):
        save_predictor(
            tmp_path / "judges/predictors" / task,
            FrameNetwork(predictor_config(task)),
            floor=None,
        )
    command = [
        *("--steps", "1", "--device", "cpu", "--kept", str(tmp_path / "kept")),
        *("--checkpoint", str(tiny_checkpoint), "--predictors", str(tmp_path / "judges")),
        *("--results", str(tmp_path / "results")),
    ]
    everything = [*PARTS, "timing"]
    everything.remove("mujoco")  # needs a library to draw with
    main(["--clips", "1", "--only", ",".join(everything), *command])
    printed = capsys.readouterr().out
    (run,) = read_results("embedded", tmp_path / "results")
    assert run["checkpoint"]["id"] == "tiny-random"
    rows = run["table"]["rows"]
    assert list(rows) == ["true render", "shuffled true render", *few]
    assert (
        rows["true render"]["edge_f1"]["value"] > rows["shuffled true render"]["edge_f1"]["value"]
    )
    assert rows["no controls"] != rows["edge at 1"]
    assert run["prompts"]["true renders"]["night_darker"] == 1
    assert run["timing"]["steps"] == 1
    assert run["sharpness"]["gradient_energy"]["ratio"]["value"] > 0
    assert run["sharpness"]["flicker"]["true_render"]["value"] > 0
    assert run["classifier"]["attributes"]["time_of_day"]["num_clips"] == 1
    assert run["diversity"]["distance"]["true_renders"]["value"] > 0
    assert run["seeds"]["distance"]["value"] > 0
    assert set(run["mask"]) == {"edge_f1", "edge_f1_1px"}
    assert run["clips_measured"]["table"] == 1
    for title in ("Fidelity", "Share of the gap", "Sharpness", "Prompts", "Weight maps", "Time"):
        assert title in printed
    assert "four controls close, mask mIoU" in printed
    report.write_readme(tmp_path / "README.md", tmp_path / "results")
    page = (tmp_path / "README.md").read_text()
    assert run["file"] in page
    assert "| edge at 1" in page

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("made again")

    monkeypatch.setattr(Bench, "generate", refuse)  # what was measured is not measured again
    again = run_command(parse(["--clips", "1", "--only", "sharpness,table", *command]))
    assert again["clips_measured"] == {"table": 1, "sharpness": 1}


def test_parts_that_are_not_there_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--only", "table,tabel"])
    assert "got tabel" in capsys.readouterr().err


def test_a_log_that_was_cut_short_is_read_up_to_there(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    log = ClipLog(path)
    log.add(3, {"mask": (1.0, 2.0), "regions": None})
    with path.open("a") as file:
        file.write('{"part": "table", "se')
    read = ClipLog(path)
    assert read.values == log.values == {"mask": {3: [1.0, 2.0]}, "regions": {3: None}}
    assert read.has("regions", 3)
    assert not read.has("table", 3)


def run_of(checkpoint: str = "embedded", weights: str = "new", **parts: object) -> dict:
    machine = {"gpu": None, "cores": 2, "processor": "P", "threads": 1, "load_average": 0.0}
    settings = {"steps": 12, "sampler": "euler", "guidance_scale": 1.5}
    return {
        "date": "today",
        "commit": "abc",
        "device": "cpu",
        "hardware": machine,
        "checkpoint": {"id": checkpoint, "sha256": {"model": weights}},
        "settings": settings | {"num_clips": 48},
        **parts,
    }


def timing_of(seconds: float, steps: int = 12) -> dict:
    return {
        "seconds": seconds,
        "fastest": 1.0,
        "slowest": 9.0,
        "stages": {"decode": 0.1},
        "steps": steps,
        "guidance_scale": 1.5,
        "size": "96x64",
        "num_frames": 9,
        "runs": 3,
        "threads": 1,
    }


def table_of(*shares: float) -> dict:
    value = sum(shares) / len(shares)
    each = {m: {"value": value, "standard_error": 0.01} for m in METRICS}
    levels = {"true render": [1.0] * len(shares), "no controls": [0.0] * len(shares)}
    per_clip = levels | {"all four at 0.25": list(shares)}
    return {
        "rows": {},
        "shares": {"all four at 0.25": each},
        "floors": {},
        "per_clip": {name: dict.fromkeys(METRICS, values) for name, values in per_clip.items()},
    }


def test_the_page_takes_every_part_from_the_newest_run_on_the_most_clips() -> None:
    runs = [
        run_of(file="d.json", timing=timing_of(7.0), clips_measured={"timing": 4}),
        run_of(file="c.json", timing=timing_of(5.0)),
        run_of(file="b.json", timing=timing_of(3.0)),
        run_of(file="a.json", weights="old", table=table_of(0.5)),
        run_of("embedded-fast", file="e.json", timing=timing_of(2.0, 4)),
    ]
    page = report.readme(runs)
    assert "5.0 s (median" in page
    assert "results/c.json" in page
    assert "7.0 s (median" not in page
    assert "Fidelity" not in page  # of weights that were replaced
    assert page.index("# embedded-fast") > page.index("results/c.json")
    assert "at most 15" in page
    assert "at most 90" in page


def test_a_variant_is_held_against_the_newest_weights_on_the_clips_of_both(tmp_path: Path) -> None:
    for name, run in (
        ("3", run_of(table=table_of(0.1), clips_measured={"table": 1})),
        ("2", run_of(table=table_of(0.8, 0.8, 0.1), clips_measured={"table": 3})),
        ("1", run_of(weights="old", table=table_of(0.2))),
    ):
        (tmp_path / f"{name}_embedded.json").write_text(json.dumps(run))
    fast = run_of("embedded-fast", table=table_of(0.6, 0.6))
    held = report.against(fast, tmp_path)
    found = {bar.what: bar for bar in bars(fast, held)}
    kept = found["kept of the share closed, mask mIoU"]
    assert kept.value == pytest.approx(0.75)
    assert kept.verdict == "short by 0.15"
    assert report.against(run_of(table=table_of(0.6)), tmp_path) is None


def test_bars_say_what_is_missing() -> None:
    run = run_of(
        timing=timing_of(20.0, steps=4),
        sharpness={
            "gradient_energy": {"ratio": {"value": 0.72, "standard_error": 0.01}},
            "flicker": {"ratio": {"value": 1.6, "standard_error": 0.01}},
        },
        table=table_of(0.8),
    )
    verdicts = {bar.what.split(",")[0]: bar.verdict for bar in bars(run)}
    assert verdicts["gradient energy over the true render's"] == "met"
    assert verdicts["flicker over the true render's"] == "short by 0.1"
    assert verdicts["seconds for 9 frames"] == "short by 5"
    assert verdicts["four controls close"] in ("met", "")


def test_results_name_date_hardware_and_commit(tmp_path: Path) -> None:
    machine = {"gpu": None, "cores": 2, "processor": "Some CPU @ 2 GHz"}
    path = write_results({"benchmark": "embedded", "hardware": machine}, tmp_path)
    content = json.loads(path.read_text())
    assert "2x-some-cpu-2-ghz" in path.name
    assert content["commit"].rstrip("+") in path.name
    assert content["date"].endswith("UTC")
    (read,) = read_results("embedded", tmp_path)
    assert read["file"] == path.name
