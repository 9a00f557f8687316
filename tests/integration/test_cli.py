"""From the command line to files, with a tiny random model."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cosmos_transfer.cli.main import main
from cosmos_transfer.cli.validate import check_all
from cosmos_transfer.inputs.request import GenerationRequest
from cosmos_transfer.inputs.video import read_clip
from cosmos_transfer.outputs.record import read_record
from cosmos_transfer.outputs.writer import write_clip
from cosmos_transfer.pipeline import TransferPipeline

TIMES = tuple(Fraction(n, 10) for n in (0, 1, 2, 3, 9, 10, 11, 19, 20, 21, 22))


@pytest.fixture
def launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A launch folder with a clip of 11 frames (two chunks), odd size and uneven times."""
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 256, (11, 5, 7, 3), dtype=np.uint8)
    frames = coarse.repeat(7, axis=1).repeat(7, axis=2)
    write_clip(tmp_path / "clip.mp4", frames, times=TIMES, rate=Fraction(10))
    Image.fromarray(frames[0]).save(tmp_path / "still.png")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def generate(checkpoint: Path, *overrides: str) -> int:
    return main(["generate", *overrides, f"model.checkpoint={checkpoint}", "model.device=cpu"])


def test_a_clip_comes_back_with_the_size_length_and_times_of_its_input(
    launch: Path, tiny_checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = generate(
        tiny_checkpoint, "video=clip.mp4", "prompt=snow", "controls.edge.weight=1.0", "name=out"
    )
    captured = capsys.readouterr()
    assert code == 0, captured.err
    (line,) = captured.out.splitlines()
    path = Path(line)
    assert path.relative_to(launch).parts[:2] == ("outputs", "generate")
    made = read_clip(path)
    assert (made.frames.shape, made.times) == ((11, 35, 49, 3), TIMES)
    assert {each.name for each in path.parent.iterdir()} == {"out.mp4", "out.json", "config.yaml"}
    assert "denoise" in captured.err
    assert "num_inference_steps: null" in (path.parent / "config.yaml").read_text("utf-8")


def test_the_same_command_twice_gives_the_same_bytes(launch: Path, tiny_checkpoint: Path) -> None:
    typed = ("video=clip.mp4", "prompt=snow", "controls.vis.weight=0.5", "name=out")
    for folder in ("a", "b"):
        assert generate(tiny_checkpoint, *typed, f"output.dir={folder}") == 0
    assert (launch / "a/out.mp4").read_bytes() == (launch / "b/out.mp4").read_bytes()


def test_the_plan_that_validate_shows_is_the_plan_that_is_run(
    launch: Path, tiny_checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    typed = ("video=clip.mp4", "prompt=snow")
    assert generate(tiny_checkpoint, *typed, "output.dir=a", "name=out") == 0
    chunks = read_record(launch / "a/out.json").chunks
    capsys.readouterr()
    assert main(["validate", *typed, f"model.checkpoint={tiny_checkpoint}"]) == 0
    ranges = ", ".join(f"{chunk['start']}-{chunk['stop'] - 1}" for chunk in chunks)
    assert len(chunks) == 2
    assert f"2 of at most 9 frames: {ranges}\n" in capsys.readouterr().out


def test_variants_are_different_clips_of_one_seed(launch: Path, tiny_checkpoint: Path) -> None:
    code = generate(
        tiny_checkpoint,
        "video=clip.mp4",
        "prompt=snow",
        "variants=2",
        "max_frames=5",
        "name=out",
        "output=frames",
        "output.dir=a",
    )
    assert code == 0
    first, second = (read_clip(launch / "a" / name) for name in ("out", "out-v1"))
    assert first.num_frames == second.num_frames == 5
    assert not np.array_equal(first.frames, second.frames)
    assert [read_record(launch / f"a/{name}.json").seeds for name in ("out", "out-v1")] == [
        {"seed": 0, "episode": 0, "variant": 0},
        {"seed": 0, "episode": 0, "variant": 1},
    ]


def test_a_batch_keeps_going_and_exits_with_one(
    launch: Path, tiny_checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    requests = [
        {"video": "none.mp4", "prompt": "snow", "name": "bad"},
        {"video": "still.png", "prompt": "snow", "name": "good"},
    ]
    text = "\n".join(json.dumps(each) for each in requests)
    (launch / "spec.jsonl").write_text(text, encoding="utf-8")
    assert generate(tiny_checkpoint, "spec=spec.jsonl", "output.dir=a") == 1
    assert "bad: " in capsys.readouterr().err
    assert {each.name for each in (launch / "a").iterdir()} == {
        "good.png",
        "good.json",
        "config.yaml",
    }
    assert Image.open(launch / "a/good.png").size == (49, 35)


def test_nothing_is_overwritten_unless_asked(
    launch: Path, tiny_checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    typed = ("video=still.png", "prompt=snow", "name=out", "output.dir=a")
    assert generate(tiny_checkpoint, *typed) == 0
    first = (launch / "a/out.png").read_bytes()
    assert generate(tiny_checkpoint, *typed, "seed=1") == 2
    assert "expected a name that is free" in capsys.readouterr().err
    assert (launch / "a/out.png").read_bytes() == first
    assert generate(tiny_checkpoint, *typed, "seed=1", "output.overwrite=true") == 0
    assert (launch / "a/out.png").read_bytes() != first


@pytest.mark.parametrize("taken", ["a/out.png", "a/out.json", "a"])
def test_a_place_that_cannot_be_written_is_refused_before_the_model_is_loaded(
    launch: Path,
    tiny_checkpoint: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    taken: str,
) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("the model was loaded")

    monkeypatch.setattr(TransferPipeline, "from_pretrained", never)
    (launch / taken).parent.mkdir(exist_ok=True)
    (launch / taken).write_text("mine", encoding="utf-8")
    assert generate(tiny_checkpoint, "video=still.png", "prompt=x", "name=out", "output.dir=a") == 2
    printed = capsys.readouterr().err
    assert len(printed.splitlines()) == 1
    assert str(launch / taken) in printed
    assert (launch / taken).read_text(encoding="utf-8") == "mine"
    assert not (launch / "a").is_dir() or len(list((launch / "a").iterdir())) == 1


def test_a_failure_while_generating_leaves_nothing(
    launch: Path,
    tiny_checkpoint: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from cosmos_transfer import pipeline

    def broken(*arguments: object, **settings: object) -> object:
        def sample(denoiser: object, latents: object, sigmas: object, **rest: object) -> object:
            return latents * float("nan")  # type: ignore[operator]

        return sample

    monkeypatch.setattr(pipeline, "get_sampler", broken)
    before = set(launch.rglob("*"))
    assert generate(tiny_checkpoint, "video=still.png", "prompt=snow", "output.dir=a") == 2
    assert "latents: expected finite numbers" in capsys.readouterr().err
    assert set(launch.rglob("*")) == before


def test_the_demo_runs_and_its_results_can_be_shown_and_measured(
    launch: Path, tiny_checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--checkpoint", str(tiny_checkpoint), "--steps", "1", "--output", "demo"]
    assert main(["demo", *arguments]) == 0
    lines = capsys.readouterr().out.splitlines()
    printed = [Path(line.split()[-1]) for line in lines]
    assert all(path.exists() for path in printed)
    records = [path for path in printed if path.suffix == ".json"]
    assert sum(path.suffix == ".mp4" for path in printed) == len(records) == 6
    assert len({read_record(path).request["prompt"] for path in records}) == 6
    with Image.open(launch / "demo/sheet.png") as sheet:
        assert sheet.width > 1000
    assert main(["evaluate", "--json", str(records[0])]) == 0
    report = json.loads(capsys.readouterr().out)[str(records[0])]
    assert {"edge_f1", "edge_f1_1px", "blur_ssim"} <= set(report["metrics"])
    assert main(["show", *map(str, records[:3])]) == 0
    assert Path(capsys.readouterr().out.strip()).exists()


def test_a_request_can_be_made_again_from_its_record(launch: Path, tiny_checkpoint: Path) -> None:
    from cosmos_transfer.inputs.request import request_from_mapping
    from cosmos_transfer.model.checkpoint import checkpoint_info

    typed = ("video=clip.mp4", "prompt=snow", "controls.edge.weight=0.5", "name=out")
    assert generate(tiny_checkpoint, *typed, "output.dir=a") == 0
    request = request_from_mapping(read_record(launch / "a/out.json").request)
    assert isinstance(request, GenerationRequest)
    assert check_all([request], checkpoint_info(tiny_checkpoint)).num_failed == 0


def test_the_plan_of_a_clip_with_uneven_times_says_so(
    launch: Path, tiny_checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    typed = ("video=clip.mp4", "prompt=x", f"model.checkpoint={tiny_checkpoint}")
    assert main(["validate", *typed]) == 0
    assert "0 to 2.200 s, at uneven times, " in capsys.readouterr().out
