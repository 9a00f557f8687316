"""Every mistake is one line, exit code 2, no file left behind, and no torch."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cosmos_transfer.outputs.writer import write_clip

# Runs command lines one after the other, each in a fork of one process that has loaded what they
# need, and says of each: exit code, stdout, stderr, whether torch came along, which files it left.
RUNNER = """\
import io, json, os, sys, traceback
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
import hydra, cosmos_transfer.cli.requests, cosmos_transfer.inputs.validate
import cosmos_transfer.weights.maps
from cosmos_transfer.cli.main import main

def outcome(arguments):
    out, err = io.StringIO(), io.StringIO()
    before = set(Path().rglob("*"))
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = main(arguments)
        except SystemExit as stop:
            code = stop.code
        except BaseException:
            traceback.print_exc()
            code = 1
    left = sorted(str(path) for path in set(Path().rglob("*")) - before)
    return [code, out.getvalue(), err.getvalue(), "torch" in sys.modules, left]

for line in sys.stdin:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, (json.dumps(outcome(json.loads(line))) + "\\n").encode())
        os._exit(0)
    os.close(writer)
    with open(reader) as answer:
        sys.stdout.write(answer.readline())
    os.waitpid(child, 0)
    sys.stdout.flush()
"""

FRAMES, HEIGHT, WIDTH = 9, 32, 48


@dataclass(frozen=True)
class Ran:
    code: int
    stdout: str
    stderr: str
    torch_loaded: bool
    files_left: list[str]


@pytest.fixture(scope="module")
def run(inputs: Path) -> Iterator[Callable[..., Ran]]:
    """Runs a command line in the folder of the inputs."""
    runner = subprocess.Popen(
        [sys.executable, "-c", RUNNER],
        cwd=inputs,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert runner.stdin is not None
    assert runner.stdout is not None

    def ask(*arguments: str) -> Ran:
        runner.stdin.write(json.dumps(arguments) + "\n")
        runner.stdin.flush()
        return Ran(*json.loads(runner.stdout.readline()))

    yield ask
    runner.stdin.close()
    assert runner.wait(timeout=60) == 0


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Good files, and a file for each way to be wrong."""
    folder = tmp_path_factory.mktemp("inputs")
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 256, (FRAMES, HEIGHT, WIDTH, 3), dtype=np.uint8)
    write_clip(folder / "video.mp4", frames, rate=Fraction(8))
    write_clip(folder / "short.mp4", frames[:5], rate=Fraction(8))
    whole = (folder / "video.mp4").read_bytes()
    (folder / "cut.mp4").write_bytes(whole[: len(whole) // 3])
    (folder / "text.mp4").write_text("this is no video", encoding="utf-8")
    (folder / "nothing.mp4").touch()
    np.save(folder / "no_frames.npy", np.zeros((0, HEIGHT, WIDTH, 3), np.uint8))
    (folder / "no_pictures").mkdir()
    Image.new("L", (40, 40), 255).save(folder / "square.png")
    Image.new("L", (WIDTH, HEIGHT), 0).save(folder / "black.png")
    depth = np.full((FRAMES, HEIGHT, WIDTH), 2.0, np.float32)
    np.save(folder / "depth.npy", depth)
    np.save(folder / "nan_depth.npy", np.full_like(depth, np.nan))
    Image.fromarray(np.full((HEIGHT, WIDTH), 1500, np.uint16)).save(folder / "depth16.png")
    ids = np.zeros((FRAMES, HEIGHT, WIDTH), np.int32)
    ids[:, :8] = 1
    np.save(folder / "ids.npy", ids)
    table = {"0": {"class": "table"}, "1": {"class": "robot"}}
    (folder / "labels.json").write_text(json.dumps(table), encoding="utf-8")
    (folder / "long_prompt.txt").write_text("a" * 10_000, encoding="utf-8")
    (folder / "latin1.txt").write_bytes("Küche".encode("latin-1"))
    (folder / "broken.json").write_text('{"prompt": "x",', encoding="utf-8")
    request = {"video": "video.mp4", "prompt": "x", "controls": {"edge": 1.0}}
    (folder / "unknown.yaml").write_text(json.dumps(request | {"gidance": 3}), encoding="utf-8")
    negative = request | {"controls": {"edge": {"weight": -0.5}}}
    (folder / "negative.json").write_text(json.dumps(negative), encoding="utf-8")
    lines = [request, request | {"video": "missing.mp4"}]
    text = "\n".join(json.dumps(line) for line in lines)
    (folder / "two.jsonl").write_text(text, encoding="utf-8")
    return folder


BASE = ("video=video.mp4", "prompt=snow")
SEG = ("controls.seg.path=ids.npy", "controls.seg.labels=labels.json")

# Words that the one line must contain, by case.
MISTAKES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    # The eight of the contract.
    "missing file": (("video=missing.mp4", "prompt=snow"), ("missing.mp4",)),
    "broken mp4, cut": (("video=cut.mp4", "prompt=snow"), ("cut.mp4",)),
    "broken mp4, text": (("video=text.mp4", "prompt=snow"), ("text.mp4",)),
    "broken mp4, empty": (("video=nothing.mp4", "prompt=snow"), ("nothing.mp4",)),
    "unknown key": ((*BASE, "controls.edge.wieght=1"), ("'controls.edge.wieght'", "weight")),
    "unknown key in a spec": (("spec=unknown.yaml",), ("gidance", "guidance")),
    "mask of another aspect ratio": (
        (*BASE, "controls.edge.mask=square.png"),
        ("square.png", "48x32", "40x40"),
    ),
    "negative weight": ((*BASE, "controls.edge.weight=-0.5"), ("control 'edge'", "-0.5")),
    "negative weight in a spec": (("spec=negative.json",), ("control 'edge'", "-0.5")),
    "NaN depth": (
        (*BASE, "controls.depth.path=nan_depth.npy", "controls.depth.unit=m"),
        ("nan_depth.npy",),
    ),
    "zero frames, array": (("video=no_frames.npy", "prompt=snow"), ("no_frames.npy",)),
    "zero frames, folder": (("video=no_pictures", "prompt=snow"), ("no_pictures",)),
    "prompt of 10,000 characters": (
        ("video=video.mp4", "prompt_file=long_prompt.txt"),
        ("prompt", "2,000", "10,000"),
    ),
    # More of their kind.
    "weight above one": (
        (*BASE, "controls.edge.weight=4.0"),
        ("control 'edge'", "from 0 to 1", "4"),
    ),
    "weight that is no number": ((*BASE, "controls.edge.weight=strong"), ("strong",)),
    "weight NaN": ((*BASE, "controls.edge.weight=nan"), ("control 'edge'", "nan")),
    "empty mask": (
        (*BASE, "controls.edge.mask=black.png"),
        ("control 'edge', mask", "allow_empty"),
    ),
    "control of another length": (
        (*BASE, "controls.edge.path=short.mp4"),
        ("short.mp4", "video.mp4", "9", "5"),
    ),
    "class that is not there": (
        (*BASE, *SEG, "controls.seg.weight={robt: 1.0}"),
        ("robt", "'robot'"),
    ),
    "16-bit depth without a unit": (
        (*BASE, "controls.depth.path=depth16.png"),
        ("depth16.png", "unit"),
    ),
    "depth that nobody gives": ((*BASE, "controls.depth.weight=1.0"), ("control 'depth'", "path")),
    "preset": ((*BASE, "controls.edge.preset=hihg"), ("'hihg'", "high")),
    "no prompt": (("video=video.mp4",), ("prompt",)),
    "no video": (("prompt=snow", "controls.edge.weight=1.0"), ("video",)),
    "prompt file missing": (("video=video.mp4", "prompt_file=none.txt"), ("none.txt",)),
    "prompt file in another encoding": (
        ("video=video.mp4", "prompt_file=latin1.txt"),
        ("latin1.txt", "UTF-8"),
    ),
    "prompt with a comma": (("video=video.mp4", "prompt=a, b"), ("'prompt=\"a, b\"'",)),
    "spec that is no JSON": (("spec=broken.json",), ("broken.json", "line 1")),
    "spec missing": (("spec=none.yaml",), ("none.yaml",)),
    "guidance below one": ((*BASE, "guidance_scale=0"), ("guidance_scale", "at least 1")),
    "no steps": ((*BASE, "num_inference_steps=0"), ("num_inference_steps", "0")),
    "negative seed": ((*BASE, "seed=-1"), ("seed", "-1")),
    "rate": ((*BASE, "rate=fast"), ("rate", "fast")),
    "length policy": ((*BASE, "length_policy=cut"), ("length_policy", "cut")),
    "codec": ((*BASE, "output.codec=h265"), ("output_codec", "h264", "h265")),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line_and_leaves_nothing(
    name: str, run: Callable[..., Ran], tiny_checkpoint: Path
) -> None:
    arguments, words = MISTAKES[name]
    ran = run("generate", *arguments, f"model.checkpoint={tiny_checkpoint}")
    assert ran.code == 2, ran
    lines = ran.stderr.splitlines()
    assert len(lines) == 1, ran.stderr
    assert "expected" in lines[0]
    assert ", got " in lines[0]
    assert all(word in lines[0] for word in words), lines[0]
    assert ran.stdout == ""
    assert ran.files_left == []
    assert not ran.torch_loaded


def test_a_checkpoint_that_is_not_there_is_named(run: Callable[..., Ran]) -> None:
    ran = run("generate", *BASE, "model.checkpoint=./no/such/folder")
    assert ran.code == 2
    assert "no/such/folder" in ran.stderr
    assert len(ran.stderr.splitlines()) == 1
    assert not ran.torch_loaded


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("no-such-command",),
        ("generate",),
        ("generat", "video=a.mp4"),
        ("show",),
        ("show", "none.json"),
        ("evaluate", "none.json"),
        ("evaluate", "labels.json"),
        ("show", "--colums", "3", "none.json"),
    ],
)
def test_a_command_typed_wrong_exits_with_two(
    run: Callable[..., Ran], arguments: tuple[str, ...]
) -> None:
    ran = run(*arguments)
    assert ran.code == 2, ran.stderr
    assert not ran.torch_loaded


def test_validate_prints_the_plan_without_torch(
    run: Callable[..., Ran], tiny_checkpoint: Path
) -> None:
    ran = run(
        "validate",
        *BASE,
        "controls.edge.weight=0.75",
        "controls.depth.path=depth.npy",
        "controls.depth.unit=m",
        "controls.depth.weight=0.5",
        *SEG,
        "controls.seg.weight={robot: 1.0}",
        f"model.checkpoint={tiny_checkpoint}",
    )
    assert ran.code == 0, ran.stderr
    assert not ran.torch_loaded
    for words in (
        "9 frames, 48x32",
        "worked on at 96x64",
        "0 to 1.000 s, 8 a second",
        "1 of at most 9 frames: 0-8",
        "2 steps, guidance scale 1.5",
        "tiny-random",
        # A quarter of the picture is robot: there the three weights share 2.25, elsewhere 1.25.
        "edge 0.533 (0.333 to 0.6)",
        "seg 0.111 (0 to 0.444)",
    ):
        assert words in ran.stdout, ran.stdout


def test_a_dry_run_prints_plan_and_settings_and_makes_nothing(
    run: Callable[..., Ran], tiny_checkpoint: Path
) -> None:
    ran = run("generate", *BASE, "dry_run=true", "seed=5", f"model.checkpoint={tiny_checkpoint}")
    assert ran.code == 0, ran.stderr
    assert "worked on at 96x64" in ran.stdout
    assert "seed: 5" in ran.stdout
    assert ran.files_left == []
    assert not ran.torch_loaded


def test_a_batch_keeps_going_and_exits_with_one(
    run: Callable[..., Ran], tiny_checkpoint: Path
) -> None:
    ran = run("validate", "spec=two.jsonl", f"model.checkpoint={tiny_checkpoint}")
    assert ran.code == 1
    assert "missing.mp4" in ran.stderr
    assert len(ran.stderr.splitlines()) == 1
    assert "1 of 2 requests can be made" in ran.stdout


def test_values_typed_beside_a_spec_hold_for_all_its_requests(
    run: Callable[..., Ran], tiny_checkpoint: Path
) -> None:
    ran = run(
        "validate", "spec=two.jsonl", "seed=41", "variants=2", f"model.checkpoint={tiny_checkpoint}"
    )
    assert ran.stdout.count("seed 41") == 2
    assert "2 of 4 requests can be made" in ran.stdout
    refused = run("validate", "spec=two.jsonl", "controls.edge.weight=1")
    assert refused.code == 2
    assert "Write it into the spec file." in refused.stderr


def test_relative_paths_start_at_the_launch_folder(
    run: Callable[..., Ran], inputs: Path, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(f"video: {inputs / 'video.mp4'}\nprompt: snow\n", encoding="utf-8")
    for arguments in (("video=./video.mp4", "prompt=snow"), (f"spec={spec}",)):
        ran = run("validate", *arguments, f"model.checkpoint={tiny_checkpoint}")
        assert ran.code == 0, ran.stderr


def test_a_bug_keeps_its_traceback_and_exits_with_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from cosmos_transfer.cli import main as cli

    def broken(argv: list[str]) -> int:
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        cli.run_command(broken, [])


@pytest.mark.parametrize(
    ("raised", "code"), [(KeyboardInterrupt(), 130), (None, 0)], ids=["interrupted", "done"]
)
def test_other_outcomes_have_their_codes(raised: BaseException | None, code: int) -> None:
    from cosmos_transfer.cli.main import run_command

    def command(argv: list[str]) -> int:
        if raised is not None:
            raise raised
        return 0

    outcome: Callable[[], int] = lambda: run_command(command, [])  # noqa: E731
    assert outcome() == code
