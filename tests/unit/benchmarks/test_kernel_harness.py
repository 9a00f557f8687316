"""The harness of kernels: a wrong backend is not timed, a machine without a GPU is told."""

from __future__ import annotations

import json
import os
import subprocess
import types
from pathlib import Path

import pytest
import torch

from benchmarks import gpu_check, run
from benchmarks.parity import judge
from ngpc.backends import reference


def test_the_definition_is_right_and_is_timed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["mlp", "--backends", "reference", "--points", "64"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("copy ")
    assert [line.split()[:3] for line in lines[1:]] == [
        ["mlp", "reference", "forward"],
        ["mlp", "reference", "forward+backward"],
    ]


def test_a_wrong_backend_is_named_and_not_timed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = types.SimpleNamespace(
        apply_mlp=lambda *args, **options: 1.001 * reference.apply_mlp(*args, **options)
    )
    real = run.importlib.import_module
    calls = []

    def planted(name: str) -> object:
        # The first import is the backend under test, the second the definition.
        calls.append(name)
        return wrong if len(calls) == 1 else real(name)

    monkeypatch.setattr(run.importlib, "import_module", planted)
    monkeypatch.setattr(run, "ceilings", lambda dtype, device: (1.0, 1.0))
    assert run.main(["mlp", "--backends", "reference", "--points", "64"]) == 1
    printed = capsys.readouterr().out
    assert "not timed, value is wrong" in printed
    assert "Mpoint/s" not in printed


@pytest.mark.parametrize(("name", "reason"), [("triton", "runs on cuda"), ("numba", "one of auto")])
def test_a_backend_that_cannot_run_is_one_line(
    name: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run.main(["mlp", "--backends", name]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert reason in line


def test_nan_is_wrong() -> None:
    verdicts = judge(lambda x: x * float("nan"), lambda x: 2 * x, [torch.ones(3)], names=["x"])
    assert [verdict.is_right for verdict in verdicts] == [False, False]


def test_the_grid_is_judged_in_every_precision() -> None:
    report: dict = {"correctness": []}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "NUM_CHECKED", 17)
        assert gpu_check.check_all(report, "reference", "cpu")
    kinds = {(entry["kernel"], entry["dtype"]) for entry in report["correctness"]}
    assert len(kinds) == 6


def test_without_a_gpu_the_script_says_so(repository: Path, tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("needs a CUDA device to be absent")
    output = tmp_path / "report.json"
    done = subprocess.run(
        [repository / "scripts" / "gpu_check.sh", output],
        capture_output=True, text=True, check=False, env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.strip().splitlines()[-1].startswith("gpu_check: expected a CUDA device")
    assert not output.exists()


def test_steps_are_timed_failures_and_late_ones_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_check, "ways", lambda: ["reference", "no_such_way"])
    monkeypatch.setattr(gpu_check, "ceilings", lambda dtype, device: (1.0, 1.0))
    monkeypatch.setattr(gpu_check, "KERNELS", {"mlp": run.mlp})
    report: dict = {"timings": [], "left_out": [], "ceilings": {}}
    path = tmp_path / "report.json"
    gpu_check.time_all(report, float("inf"), path, device="cpu", sizes=(8,))
    assert {timing["dtype"] for timing in report["timings"]} == set(run.DTYPES)
    assert len(report["timings"]) == 6
    assert len(report["left_out"]) == 3
    assert all("ModuleNotFoundError" in line for line in report["left_out"])
    assert json.loads(path.read_text()) == report
    report = {"timings": [], "left_out": [], "ceilings": {}}
    gpu_check.time_all(report, 0.0, path, device="cpu", sizes=(8,))
    assert not report["timings"]
    assert all(line.endswith("no time left") for line in report["left_out"])


def test_the_report_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    gpu_check.write({"a": 1}, path)
    gpu_check.write({"a": 2}, path)
    assert json.loads(path.read_text()) == {"a": 2}
    assert list(tmp_path.iterdir()) == [path]
