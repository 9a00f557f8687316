from __future__ import annotations

import json
import logging
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from cosmos_transfer.errors import ConfigError, MediaError
from cosmos_transfer.inputs.request import (
    ControlRequest,
    GenerationRequest,
    load_requests,
    read_rate,
    request_from_mapping,
    request_to_mapping,
)


def request(**values):
    return request_from_mapping({"prompt": "snow", "video": "a.mp4", **values})


def only(built):
    (control,) = built.controls
    return control


# ------------------------------------------------------------------------- this package's words
def test_a_request_in_our_own_words():
    built = request(
        negative_prompt="blur",
        controls={
            "edge": 0.5,
            "seg": {"path": "seg/", "weight": {"robot": 1, "default": 0}, "labels": "l.json"},
            "blur": {"weight": "map.npy", "mask": "m.png", "invert": True, "preset": "high"},
            "depth": "depth.npy",
        },
        num_inference_steps=12,
        guidance_scale=2,
        seed=7,
        resolution="input",
        rate="30000/1001",
    )
    edge, seg, vis, depth = built.controls
    assert (edge.name, edge.weight, edge.path) == ("edge", 0.5, None)
    assert seg.weight == {"robot": 1.0, "default": 0.0}
    assert seg.path == Path("seg")
    assert (vis.name, vis.weight, vis.mask, vis.invert, vis.preset) == (
        "vis",
        Path("map.npy"),
        Path("m.png"),
        True,
        "high",
    )
    assert (depth.path, depth.weight) == (Path("depth.npy"), 1.0)
    assert (built.guidance_scale, built.rate) == (2.0, Fraction(30000, 1001))
    assert (built.num_inference_steps, built.seed, built.resolution) == (12, 7, "input")


def test_what_is_left_out_is_the_checkpoints_own():
    built = request()
    assert (
        built.num_inference_steps is built.guidance_scale is built.rate is built.max_frames is None
    )
    assert (built.seed, built.weight_rule, built.length_policy) == (0, "cap", "refuse")
    assert (built.resolution, built.output_codec) == ("native", "h264")


def test_arrays_may_be_given_instead_of_paths():
    video = np.zeros((3, 8, 8, 3), np.uint8)
    built = request_from_mapping(
        {"prompt": "x", "video": video, "controls": {"seg": np.zeros((3, 8, 8), np.int32)}}
    )
    assert built.video is video
    assert only(built).clip.dtype == np.int32
    assert only(built).is_given


def test_controls_may_be_listed():
    built = request(controls=["edge", {"name": "vis", "weight": 0.2}, ControlRequest(name="seg")])
    assert [c.name for c in built.controls] == ["edge", "vis", "seg"]


def test_relative_paths_start_at_the_spec_then_at_the_current_folder(tmp_path, monkeypatch):
    spec, here = tmp_path / "specs", tmp_path / "here"
    for folder in (spec, here):
        folder.mkdir()
    (spec / "both.mp4").touch()
    (here / "both.mp4").touch()
    (here / "only_here.mp4").touch()
    monkeypatch.chdir(here)
    values = {"prompt": "x", "video": "both.mp4"}
    assert request_from_mapping(values, base_dir=spec).video == spec / "both.mp4"
    values["video"] = "only_here.mp4"
    assert request_from_mapping(values, base_dir=spec).video == Path("only_here.mp4")
    values["video"] = "nowhere.mp4"
    assert request_from_mapping(values, base_dir=spec).video == spec / "nowhere.mp4"


def test_a_prompt_may_stand_in_a_file(tmp_path):
    (tmp_path / "p.txt").write_text("a snowy street\n", encoding="utf-8")
    values = {"prompt_path": "p.txt", "video": "a.mp4"}
    assert request_from_mapping(values, base_dir=tmp_path).prompt == "a snowy street"
    with pytest.raises(ConfigError, match="both"):
        request_from_mapping(values | {"prompt": "x"}, base_dir=tmp_path)
    values["prompt_path"] = "missing.txt"
    with pytest.raises(ConfigError, match=r"prompt_path: .*missing\.txt"):
        request_from_mapping(values, base_dir=tmp_path)


# ------------------------------------------------------------------------- NVIDIA's words
def test_a_transfer1_spec_is_read_as_it_is(caplog):
    with caplog.at_level(logging.WARNING):
        built = request_from_mapping(
            {
                "prompt": "a robot",
                "input_video_path": "assets/in.mp4",
                "sigma_max": 80,
                "guidance": 5,
                "num_steps": 35,
                "fps": 24,
                "canny_threshold": "low",
                "blur_strength": "high",
                "vis": {"control_weight": 0.25},
                "edge": {"control_weight": "0.5"},
                "seg": {"input_control": "seg.mp4", "input_control_prompt": "robot"},
                "depth": {"input_control": "depth.mp4", "control_weight": 0.25, "ckpt_path": None},
                "upsample_prompt": False,
                "offload_text_encoder_model": False,
            }
        )
    by_name = {c.name: c for c in built.controls}
    assert built.video == Path("assets/in.mp4")
    assert built.guidance_scale == 6.0  # v = c + 5 (c - u)
    assert (built.num_inference_steps, built.rate) == (35, 24)
    assert (by_name["edge"].weight, by_name["edge"].preset) == (0.5, "low")
    assert (by_name["vis"].weight, by_name["vis"].preset) == (0.25, "high")
    assert (by_name["seg"].path, by_name["seg"].weight) == (Path("seg.mp4"), 0.5)
    assert "default of 0.5" in caplog.text
    assert by_name["depth"].path == Path("depth.mp4")


def test_a_transfer1_batch_line_is_read():
    built = request_from_mapping(
        {
            "visual_input": "in.mp4",
            "prompt": "x",
            "control_overrides": {"seg": {"input_control": "s.mp4", "control_weight": 1.0}},
        }
    )
    assert (built.video, only(built).path) == (Path("in.mp4"), Path("s.mp4"))


def test_a_transfer25_spec_is_read_as_it_is():
    built = request_from_mapping(
        {
            "name": "robot_edge",
            "prompt": "x",
            "video_path": "in.mp4",
            "max_frames": 93,
            "num_conditional_frames": 1,
            "resolution": "720",
            "guidance": 3,
            "num_steps": 35,
            "seed": 2025,
            "show_input": False,
            "keep_input_resolution": True,
            "sigma_max": None,
            "edge": {
                "control_path": "e.mp4",
                "control_weight": 1.0,
                "mask_path": "m.mp4",
                "mask_prompt": None,
                "preset_edge_threshold": "very_low",
            },
            "blur": {"preset_blur_strength": "low"},
        }
    )
    edge, vis = built.controls
    assert (edge.path, edge.mask, edge.preset) == (Path("e.mp4"), Path("m.mp4"), "very_low")
    assert (vis.name, vis.preset, vis.weight) == ("vis", "low", 1.0)
    assert (built.name, built.resolution, built.guidance_scale) == ("robot_edge", 720, 4.0)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_conditional_frames", 0),
        ("context_frame_index", 3),
        ("image_context_path", "style.jpg"),
        ("keep_input_resolution", False),
        ("upsample_prompt", True),
        ("keypoint", {"control_weight": 1.0}),
        ("regional_prompts", [{"prompt": "a"}]),
        ("guided_generation_mask", "m.npz"),
    ],
)
def test_a_foreign_key_that_cannot_be_honoured_is_refused_by_name(key, value):
    with pytest.raises(ConfigError, match=f"a spec without {key}"):
        request(**{key: value})


@pytest.mark.parametrize(
    ("key", "advice"),
    [
        ("mask_prompt", "Give the mask itself"),
        ("control_weight_prompt", "Give the mask itself"),
        ("control_prompt", "Give the segmentation itself"),
        ("input_control_prompt", "Give the segmentation itself"),
        ("sigma_max", "leave it out"),
    ],
)
def test_a_foreign_key_of_a_control_is_refused_by_name(key, advice):
    with pytest.raises(ConfigError, match=rf"control 'seg', {key}: .*{advice}"):
        request(seg={key: "robot"})


@pytest.mark.parametrize(
    ("sigma_max", "strength"), [(80, 1.0), ("80", 1.0), (None, 1.0), (35, 35 / 36), (1.0, 0.5)]
)
def test_sigma_max_is_a_ratio_of_noise_to_signal(sigma_max, strength):
    assert request(sigma_max=sigma_max).strength == pytest.approx(strength)


@pytest.mark.parametrize("sigma_max", [0, -1, float("nan"), "many", True])
def test_a_sigma_max_that_is_no_ratio_is_refused(sigma_max):
    with pytest.raises(ConfigError, match="sigma_max: expected a number above 0"):
        request(sigma_max=sigma_max)


@pytest.mark.parametrize("strength", [0, 1.5, float("nan"), "half"])
def test_a_strength_out_of_range_is_refused(strength):
    with pytest.raises(ConfigError, match=r"strength: expected a number from 0\.01 to 1"):
        request(strength=strength)


def test_starting_from_a_clip_needs_one():
    with pytest.raises(ConfigError, match="strength: expected a video to start from"):
        request_from_mapping(
            {"prompt": "x", "strength": 0.5, "controls": {"depth": {"path": "d.npy"}}}
        )


def test_a_step_cache_out_of_range_is_refused():
    with pytest.raises(ConfigError, match="step_cache: expected a number from 0"):
        request(step_cache=1.0)


def test_mask_polarity_is_stated():
    masked = {"mask": "m.png", "mask_polarity": "black_applies"}
    assert only(request(edge=masked)).invert
    assert not only(request(edge=masked | {"mask_polarity": "white_applies"})).invert
    with pytest.raises(ConfigError, match="white_applies or black_applies"):
        request(edge=masked | {"mask_polarity": "white"})


# ------------------------------------------------------------------------- what is refused
@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"promt": "x"}, r"request: expected a known key, got 'promt'\. Did you mean 'prompt'\?"),
        ({"controlls": {}}, r"got 'controlls'\. Did you mean 'controls'\?"),
        ({"controls": {"edgy": 1}}, r"got 'edgy'\. Did you mean 'edge'\?"),
        ({"edge": {"wieght": 1}}, r"control 'edge': .*got 'wieght'\. Did you mean 'weight'\?"),
        ({"edge": None}, r"control 'edge': expected a weight, .*got nothing.*edge: 1\.0"),
        ({"controls": {"edge": True}}, "got True"),
        ({"controls": 3}, "controls"),
        ({"edge": -0.5}, r"control 'edge', weight: expected a number from 0 to 1, got -0\.5"),
        ({"seg": 4.0, "edge": 1.0}, r"from 0 to 1, got 4\. .*divide all weights by the largest"),
        ({"edge": math.nan}, "got nan"),
        ({"edge": {"weight": {"robot": 2}}}, r"weight of class 'robot': .*got 2"),
        ({"edge": {"weight": {}}}, "got an empty one"),
        ({"edge": {"weight": [0.5]}}, "a number from 0 to 1"),
        ({"edge": {"ramp": [1.0]}}, "ramp: expected 2 numbers"),
        ({"edge": {"ramp": [0, 2]}}, "ramp: expected a number from 0 to 1, got 2"),
        ({"edge": {"preset": "meduim"}}, r"preset: .*Did you mean 'medium'\?"),
        ({"edge": {"invert": "yes"}}, "true or false"),
        ({"edge": {"path": ""}}, "a path"),
        ({"edge": 1, "controls": {"edge": 1}}, r"edge: expected it once"),
        ({"vis": 1, "blur": 1}, "expected it once"),
        ({"video_path": "b.mp4"}, "video: expected it once"),
        ({"depth": {"unit": "feet"}}, "unit: expected one of m, mm"),
        ({"depth": {"kind": "slanted"}}, "kind: expected one of planar, ray"),
        ({"depth": {"near": 3, "far": 2}}, r"near: expected less than far \(2\), got 3"),
        ({"depth": {"invalid": "zero"}}, "invalid: expected a list of numbers"),
        ({"depth": {"intrinsics": [1, 2]}}, "intrinsics: expected 4 numbers"),
        ({"num_inference_steps": 0}, "from 1 to 1000, got 0"),
        ({"num_inference_steps": 2.5}, "whole number"),
        ({"guidance_scale": 0.5}, r"guidance_scale: expected a number of at least 1, got 0\.5"),
        ({"guidance": "high"}, "guidance: expected a number"),
        ({"seed": -1}, "seed: expected a whole number of at least 0, got -1"),
        ({"seed": True}, "seed: expected a whole number"),
        ({"resolution": "large"}, "native, input, or the short side"),
        ({"resolution": 3}, r"16 to 8192\), got 3"),
        ({"length_policy": "cut"}, "refuse, trim, hold, loop"),
        ({"weight_rule": "sum"}, "cap, always, none"),
        ({"output_codec": "hevc"}, "h264, ffv1, rgb, png"),
        ({"max_frames": 0}, "max_frames: expected a whole number of at least 1, got 0"),
        ({"rate": 0}, "rate: expected frames per second"),
        ({"rate": "fast"}, "rate: expected frames per second"),
        ({"prompt": 7}, "prompt: expected text, got 7"),
        ({"prompt": "x" * 10_000}, r"prompt: expected at most 2,000 characters, got 10,000"),
        ({"negative_prompt": "x" * 2_001}, "negative_prompt: .*got 2,001"),
        ({"prompt": None}, "prompt: expected a description"),
        ({"video": None}, "video: expected a video, or a control with a path, got neither"),
        ({"video": 7}, "video: expected a path, got 7"),
        ({"name": ""}, "name: expected text"),
    ],
    ids=lambda value: None if isinstance(value, str) else "-".join(value),
)
def test_a_mistake_is_one_line_that_says_where(values, message):
    with pytest.raises(ConfigError, match=message) as caught:
        request(**values)
    text = str(caught.value)
    assert "\n" not in text
    assert ": expected " in text
    assert ", got " in text
    assert len(text) < 400


def test_zero_frames_are_refused_at_once():
    with pytest.raises(ConfigError, match="at least one frame"):
        GenerationRequest(prompt="x", video=np.zeros((0, 8, 8, 3), np.uint8))


def test_a_control_twice_is_refused():
    edge = ControlRequest(name="edge")
    with pytest.raises(ConfigError, match="edge 2 times"):
        GenerationRequest(prompt="x", video="a.mp4", controls=(edge, edge))


def test_a_path_and_an_array_at_once_are_refused():
    with pytest.raises(ConfigError, match="both"):
        ControlRequest(name="seg", path=Path("a"), clip=np.zeros((1, 2, 2), np.int32))


def test_a_control_alone_needs_no_video():
    built = request_from_mapping({"prompt": "x", "depth": {"path": "d.npy"}})
    assert built.video is None


def test_a_prompt_at_the_limit_is_taken():
    assert len(request(prompt="x" * 2_000).prompt) == 2_000


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (24, Fraction(24)),
        (29.97, Fraction(30000, 1001)),
        ("29.97", Fraction(30000, 1001)),
        ("24000/1001", Fraction(24000, 1001)),
        (12.5, Fraction(25, 2)),
    ],
)
def test_rates_are_fractions(given, expected):
    assert read_rate(given) == expected


# ------------------------------------------------------------------------- spec files
SPEC = {"prompt": "snow", "video": "a.mp4", "edge": 0.5}


@pytest.mark.parametrize(
    ("name", "text", "found", "count"),
    [
        ("a.json", json.dumps(SPEC), "JSON", 1),
        ("a.json", json.dumps([SPEC, SPEC]), "JSON", 2),
        ("a.jsonl", json.dumps(SPEC) + "\n\n" + json.dumps(SPEC) + "\n", "JSON Lines", 2),
        ("a.jsonl", json.dumps(SPEC, indent=4), "JSON", 1),
        ("a.jsonl", json.dumps([SPEC] * 3, indent=4), "JSON", 3),
        ("a.jsonl", json.dumps(SPEC, indent=2) + "\n" + json.dumps(SPEC, indent=2), "in a row", 2),
        ("a.json", "// why\n" + json.dumps(SPEC)[:-1] + ', /* "x" */ }', "with comments", 1),
        ("a.yaml", "prompt: snow\nvideo: a.mp4\ncontrols: {edge: 0.5}\n", "YAML", 1),
        ("a.yml", "- {prompt: snow, video: a.mp4, edge: 0.5}\n" * 2, "YAML", 2),
        ("a.json", "\ufeff" + json.dumps(SPEC), "JSON", 1),
    ],
    ids=range(10),
)
def test_the_format_is_recognised_and_told(tmp_path, caplog, name, text, found, count):
    (tmp_path / name).write_text(text, encoding="utf-8")
    with caplog.at_level(logging.INFO):
        requests = load_requests(tmp_path / name)
    assert len(requests) == count
    assert all(only(r).weight == 0.5 for r in requests)
    assert requests[0].video == tmp_path / "a.mp4"
    assert f"{found}" in caplog.text


def test_comment_marks_inside_text_are_kept(tmp_path):
    (tmp_path / "a.json").write_text('{"prompt": "a // b /* c */, }", "video": "a.mp4",}')
    assert load_requests(tmp_path / "a.json")[0].prompt == "a // b /* c */, }"


def test_broken_json_says_where(tmp_path):
    (tmp_path / "a.json").write_text('{"prompt": "x",\n "video" "a.mp4"}')
    with pytest.raises(ConfigError, match="line 2, column"):
        load_requests(tmp_path / "a.json")


def test_broken_yaml_says_where(tmp_path):
    (tmp_path / "a.yaml").write_text("prompt: x\n video: [a\n")
    with pytest.raises(ConfigError, match=r"line \d") as caught:
        load_requests(tmp_path / "a.yaml")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.yaml", "prompt: x\nprompt: y\nvideo: a.mp4\n"),
        ("a.json", '{"prompt": "x", "prompt": "y", "video": "a.mp4"}'),
    ],
)
def test_a_key_that_stands_twice_is_refused(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match="'prompt' twice"):
        load_requests(tmp_path / name)


def test_yaml_runs_no_code(tmp_path):
    marker = tmp_path / "made"
    (tmp_path / "a.yaml").write_text(
        f"prompt: !!python/object/apply:pathlib.Path.touch [!!python/name:x {marker}]\n"
    )
    with pytest.raises(ConfigError):
        load_requests(tmp_path / "a.yaml")
    assert not marker.exists()


def test_a_mistake_in_a_spec_names_the_file_and_the_request(tmp_path):
    lines = [json.dumps(SPEC), json.dumps(SPEC | {"edge": -1})]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    with pytest.raises(ConfigError, match=r"a\.jsonl, request 2 \(JSON Lines\): control 'edge'"):
        load_requests(tmp_path / "a.jsonl")


@pytest.mark.parametrize("text", ["[]", "3", '"x"', "[1, 2]", ""])
def test_what_is_no_spec_is_refused(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(ConfigError):
        load_requests(tmp_path / "a.json")


def test_a_missing_spec_is_refused(tmp_path):
    with pytest.raises(MediaError, match="no such file"):
        load_requests(tmp_path / "a.json")


def test_two_requests_of_one_name_are_refused(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps([SPEC | {"name": "a"}] * 2))
    with pytest.raises(ConfigError, match="'a' 2 times"):
        load_requests(tmp_path / "a.json")


# ------------------------------------------------------------------------- for the record
def test_a_request_goes_into_a_record_and_comes_back():
    built = request(
        controls={"edge": {"weight": np.full((4, 4), 0.5, np.float32)}, "depth": {"path": "d.npy"}},
        rate=29.97,
    )
    plain = json.loads(json.dumps(request_to_mapping(built), allow_nan=False))
    assert plain["rate"] == "30000/1001"
    assert plain["controls"]["edge"]["weight"]["array"] == [4, 4]
    assert len(plain["controls"]["edge"]["weight"]["sha256"]) == 64
    assert plain["controls"]["depth"]["invalid"] == [0.0, "inf", "nan"]
    plain["controls"].pop("edge")
    again = request_from_mapping(plain)
    assert request_to_mapping(again)["controls"]["depth"] == plain["controls"]["depth"]


def test_a_class_rule_may_come_as_text() -> None:
    """Hydra's grammar has no keys with a star; as text the same table is one value."""
    request = request_from_mapping(
        {
            "video": "clip.mp4",
            "prompt": "snow",
            "controls": {"seg": {"path": "seg", "weight": '{"robot0_*": 1.0, default: 0.25}'}},
        }
    )
    assert request.controls[0].weight == {"robot0_*": 1.0, "default": 0.25}
    with pytest.raises(ConfigError, match="of class 'robot'"):
        request_from_mapping(
            {"video": "clip.mp4", "prompt": "snow", "controls": {"seg": {"weight": "{robot: 2}"}}}
        )


def test_an_empty_prompt_file_is_a_mistake(tmp_path):
    (tmp_path / "prompt.txt").write_text(" \n")
    with pytest.raises(ConfigError, match=r"prompt_path: expected a prompt, got .*empty"):
        request_from_mapping({"prompt_path": "prompt.txt", "video": "a.mp4"}, base_dir=tmp_path)


@pytest.mark.parametrize(
    ("key", "ours"),
    [("steps", "num_inference_steps"), ("cfg", "guidance_scale"), ("num_frames", "max_frames")],
)
def test_what_other_tools_call_it_leads_to_our_word(key, ours):
    with pytest.raises(ConfigError, match=f"Did you mean '{ours}'"):
        request_from_mapping({"prompt": "x", "video": "a.mp4", key: 3})
    with pytest.raises(ConfigError, match="Did you mean 'flip_vertical'"):
        request_from_mapping({"prompt": "x", "video": "a.mp4", "edge": {"flip": True}})
