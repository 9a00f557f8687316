"""Several processes make what one makes. Real processes, over gloo, on this machine.

Every process imports torch anew, so the cases of one number of processes run in one start.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from cosmos_transfer.errors import ConfigError
from cosmos_transfer.inputs.video import read_clip
from cosmos_transfer.outputs.record import read_record
from cosmos_transfer.outputs.writer import write_clip
from cosmos_transfer.parallel.context import apply_plan
from cosmos_transfer.parallel.job import Job, Watch
from cosmos_transfer.parallel.mesh import MeshShape
from tests.support import tiny
from tests.support.ranks import ROOT, free_port, run_ranks
from tests.support.tiny_pipeline import save_tiny

# Bit-equal where the order of sums is one process' own; a ring sums in another order.
TWO = {
    "base:guidance": 0.0,
    "base:control": 0.0,
    "base:ulysses": 0.0,
    "base:ring": 1e-6,
    "odd:ulysses": 1e-6,
    "odd:ring": 1e-6,
    "three_heads:ulysses": 1e-6,
    "per_frame:ulysses": 0.0,
}
FOUR = {
    "base:guidance_ulysses": 0.0,
    "base:guidance_control": 0.0,
    "odd:ring_ulysses": 1e-6,
}


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    names = dict.fromkeys(case.split(":")[0] for case in (*TWO, *FOUR))
    cases = [f"{name}:one" for name in names]
    (made,) = run_ranks("tests.support.rank_cases", 1, tmp_path_factory.mktemp("one"), *cases)
    return made


@pytest.mark.parametrize(("count", "cases"), [(2, TWO), (4, FOUR)], ids=["2", "4"])
def test_several_processes_make_the_latents_of_one(
    single: dict[str, torch.Tensor], tmp_path: Path, count: int, cases: dict[str, float]
) -> None:
    ranks = run_ranks("tests.support.rank_cases", count, tmp_path, *cases)
    wrong = {}
    for case, allowed in cases.items():
        expected = single[f"{case.split(':')[0]}:one"]
        for rank, made in enumerate(ranks):
            error = float((made[case] - expected).norm() / expected.norm())
            if error > allowed:
                wrong[case, rank] = error
            assert int(made[f"{case} bytes"]) > 0
    assert wrong == {}


def test_a_plan_without_its_attention_is_refused() -> None:
    # Nothing is exchanged before the plan is refused.
    job = Job(shape=MeshShape(ulysses=2), rank=0, mesh=None, watch=Watch.__new__(Watch))
    for network in (tiny.transfer2_5_transformer(), tiny.transfer2_5_branch(seed=1)):
        with pytest.raises(ConfigError, match="CosmosAttnProcessor2_0 in block 0"):
            apply_plan(network, job, per_frame_time=False)


# ------------------------------------------------------------------------------------- the command


def command(checkpoint: Path, out: Path) -> list[str]:
    return [
        "-m", "cosmos_transfer", "generate", f"model.checkpoint={checkpoint}", "video=in.mp4",
        "prompt=snow", "controls.edge.weight=1.0", "controls.vis.weight=0.5", "name=made",
        "output.codec=rgb", f"output.dir={out}", "num_inference_steps=40",
    ]  # fmt: skip


def start(arguments: list[str], folder: Path, rank: int, port: int) -> subprocess.Popen[str]:
    environment = os.environ | {
        "RANK": str(rank),
        "WORLD_SIZE": "2",
        "LOCAL_RANK": str(rank),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
    }
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def start_two(folder: Path, checkpoint: Path) -> list[subprocess.Popen[str]]:
    port = free_port()
    return [start(command(checkpoint, folder / "out"), folder, rank, port) for rank in (0, 1)]


@pytest.mark.slow  # five starts, and the 20 s after which a process is given up
def test_a_dead_rank_ends_the_job_and_a_new_start_goes_on(tmp_path: Path) -> None:
    checkpoint = save_tiny(tmp_path / "tiny")
    frames = np.random.default_rng(0).integers(0, 256, (41, 16, 24, 3), dtype=np.uint8)
    write_clip(tmp_path / "in.mp4", frames, rate=10, codec="rgb")
    whole = subprocess.run(
        [sys.executable, *command(checkpoint, tmp_path / "whole")],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
    )  # fmt: skip
    assert whole.returncode == 0, whole.stderr

    first, second = start_two(tmp_path, checkpoint)
    chunk = tmp_path / "out" / ".made.chunks" / "chunk-00001.npz"
    while not chunk.exists():
        assert first.poll() is None, first.communicate()
        time.sleep(0.01)
    second.send_signal(signal.SIGKILL)
    killed = time.monotonic()
    _, told = first.communicate(timeout=60)
    assert time.monotonic() - killed < 60
    assert first.returncode not in (0, None)
    assert "rank 1: expected a sign of life" in told
    assert not (tmp_path / "out" / "made.mp4").exists()

    ranks = start_two(tmp_path, checkpoint)
    said = [rank.communicate(timeout=280) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], said
    assert said[0][0].strip().endswith("made.mp4")
    assert said[1] == ("", "")
    record = read_record(tmp_path / "out" / "made.json")
    assert any(note.startswith("resumed: ") for note in record.notes)
    made, alone = (read_clip(tmp_path / name / "made.mp4") for name in ("out", "whole"))
    assert np.array_equal(made.frames, alone.frames)
