from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cosmos_transfer.cli.compose import compose
from cosmos_transfer.cli.requests import build_requests, output_names
from cosmos_transfer.cli.validate import apply_rule
from cosmos_transfer.config import GenerateSettings
from cosmos_transfer.errors import ConfigError
from cosmos_transfer.inputs.request import GenerationRequest
from cosmos_transfer.weights.fusion import normalize_weights


def built(*overrides: str) -> tuple[GenerationRequest, ...]:
    return build_requests(compose("generate", overrides, GenerateSettings), overrides)


def asked(**values: object) -> GenerationRequest:
    return GenerationRequest(**{"video": Path("a.mp4"), "prompt": "snow"} | values)  # type: ignore[arg-type]


def test_every_setting_reaches_the_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (request,) = built(
        "video=a.mp4",
        "prompt=snow",
        "negative_prompt=fog",
        "num_inference_steps=7",
        "guidance_scale=1.5",
        "seed=3",
        "episode=4",
        "variant=5",
        "resolution=128",
        "length_policy=hold",
        "weight_rule=always",
        "max_frames=6",
        "rate=30000/1001",
        "name=x",
        "output=ffv1",
        "controls.edge.weight=0.5",
        "controls.edge.preset=low",
        "controls.edge.mask=m.png",
        "controls.edge.invert=true",
        "controls.edge.ramp=[1,0]",
        "controls.depth.path=d.npy",
        "controls.depth.unit=mm",
        "controls.depth.near=0.1",
        "controls.depth.far=20",
        "controls.depth.invalid=[0]",
        "controls.seg.path=s",
        "controls.seg.labels=l.json",
        "controls.seg.weight={robot: 1, default: 0.25}",
    )
    assert request.video == tmp_path / "a.mp4"
    assert (request.prompt, request.negative_prompt) == ("snow", "fog")
    assert (request.num_inference_steps, request.guidance_scale) == (7, 1.5)
    assert (request.seed, request.episode, request.variant) == (3, 4, 5)
    assert (request.resolution, request.length_policy) == (128, "hold")
    assert (request.weight_rule, request.max_frames, request.name) == ("always", 6, "x")
    assert (request.rate, request.output_codec) == (Fraction(30000, 1001), "ffv1")
    edge, depth, seg = request.controls
    assert (edge.name, edge.weight, edge.preset) == ("edge", 0.5, "low")
    assert (edge.mask, edge.invert, edge.ramp) == (tmp_path / "m.png", True, (1.0, 0.0))
    assert (depth.path, depth.unit, depth.near, depth.far) == (tmp_path / "d.npy", "mm", 0.1, 20)
    assert depth.invalid == (0.0,)
    assert (seg.path, seg.labels) == (tmp_path / "s", tmp_path / "l.json")
    assert seg.weight == {"robot": 1.0, "default": 0.25}


def test_a_prompt_file_may_hold_what_the_grammar_refuses(tmp_path: Path) -> None:
    text = "snow, at night: 'deep' (very) = \"white\"; #1 夜"
    (tmp_path / "prompt.txt").write_text(f"{text}\n", encoding="utf-8")
    (request,) = built("video=a.mp4", f"prompt_file={tmp_path / 'prompt.txt'}")
    assert request.prompt == text


def test_each_line_of_a_prompts_file_is_a_request(tmp_path: Path) -> None:
    (tmp_path / "prompts.txt").write_text("snow, deep\n\n  night \n", encoding="utf-8")
    requests = built("video=a.mp4", f"prompts_file={tmp_path / 'prompts.txt'}", "variants=2")
    assert [(each.prompt, each.variant) for each in requests] == [
        ("snow, deep", 0),
        ("snow, deep", 1),
        ("night", 0),
        ("night", 1),
    ]


def test_a_prompts_file_without_a_prompt_is_refused(tmp_path: Path) -> None:
    (tmp_path / "prompts.txt").write_text("\n \n", encoding="utf-8")
    with pytest.raises(ConfigError, match="one prompt a line"):
        built("video=a.mp4", f"prompts_file={tmp_path / 'prompts.txt'}")


def test_variants_count_on_from_the_variant(tmp_path: Path) -> None:
    requests = built("video=a.mp4", "prompt=snow", "variant=3", "variants=2")
    assert [each.variant for each in requests] == [3, 4]
    assert [each.seed for each in requests] == [0, 0]


def test_only_what_is_typed_changes_a_spec(tmp_path: Path) -> None:
    spec = tmp_path / "spec.json"
    content = {"video": "a.mp4", "prompt": "snow", "seed": 9, "resolution": 64, "rate": 10}
    spec.write_text(json.dumps(content), encoding="utf-8")
    (request,) = built(f"spec={spec}", "num_inference_steps=3", "rate=25", "output.codec=png")
    assert (request.seed, request.resolution) == (9, 64)
    assert (request.num_inference_steps, request.rate) == (3, 25)
    assert request.output_codec == "png"
    (untouched,) = built(f"spec={spec}")
    assert (untouched.rate, untouched.output_codec) == (10, "h264")


def test_paths_in_a_relative_spec_become_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs" / "a.yaml").write_text("video: a.mp4\nprompt: snow\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    (request,) = built("spec=specs/a.yaml")
    assert request.video == tmp_path / "specs" / "a.mp4"


def test_output_names_are_short_and_all_different() -> None:
    names = output_names(
        [
            asked(name="a"),
            asked(name="a"),
            asked(name="a", variant=2),
            asked(name="../../etc/passwd"),
            asked(name=".hidden"),
            asked(prompt="a/b:" * 100),
            asked(prompt="夜" * 200),
        ]
    )
    assert names[:3] == ("a", "a-r2", "a-v2")
    assert len(set(names)) == len(names)
    assert all(len(name.encode()) <= 84 and "/" not in name and name[0] != "." for name in names)


@given(st.data(), st.sampled_from(["cap", "always", "none"]))
def test_the_rule_that_is_shown_is_the_rule_that_acts(data: st.DataObject, rule: str) -> None:
    flat = data.draw(st.lists(st.floats(0, 1, width=32), min_size=6, max_size=6))
    maps = np.array(flat, np.float32).reshape(3, 1, 1, 2)
    acts = normalize_weights(torch.from_numpy(maps), rule).numpy()
    np.testing.assert_allclose(apply_rule(maps, rule), acts, rtol=1e-6, atol=0)
