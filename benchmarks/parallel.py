"""Two processes of one thread each beside one process of one thread, on the same clip.

    python -m benchmarks.parallel                guidance, with the embedded model
    python -m benchmarks.parallel --only ulysses

``guidance``  the embedded checkpoint at its native size: seconds of a clip of three chunks,
              without loading
``ulysses``   a Cosmos transformer with four times the embedded model's tokens: seconds of a step
              with one branch

One process and two take turns, and the ratio is that of the medians, so that what else runs on the
machine weighs on both. Two processes need two free cores to be faster. What each process sent is
counted, and predicted: guidance exchanges the latents once a step; ulysses sends, in every block, a
share ``1 / 2`` of this process' queries, keys, values and results.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from benchmarks.results_file import hardware, write_results

WIDTH, HEADS, BLOCKS = 128, 4, 4
GRID = (3, 64, 96)  # latent frames, rows and columns; tokens are patches of 2 x 2
STEPS = 4


def guidance(processes: int) -> tuple[Callable[[], Any], Callable[[], int], int]:
    """What is timed, the bytes sent so far, and the bytes predicted of one run."""
    import numpy as np
    import torch

    from cosmos_transfer.inputs.request import request_from_mapping
    from cosmos_transfer.inputs.validate import check_request
    from cosmos_transfer.parallel.mesh import MeshShape
    from cosmos_transfer.pipeline import TransferPipeline

    pipeline = TransferPipeline.from_pretrained("embedded", device="cpu", show_progress=False)
    info, size = pipeline.checkpoint.info, pipeline.checkpoint.info.native_size
    job = None
    if processes > 1:
        job = _join(MeshShape(guidance=2))
        pipeline.divide(job)
    num_frames = 1 + 3 * (info.native_frames - 1)
    frames = np.random.default_rng(0).integers(
        0, 256, (num_frames, size.height, size.width, 3), dtype=np.uint8
    )
    controls = {"edge": 0.5, "vis": 0.5}
    values = {"video": frames, "prompt": "snow", "controls": controls, "num_inference_steps": STEPS}
    checked = check_request(request_from_mapping(values), info)
    latents = (
        info.latent_channels * info.strides.latent_frames(info.native_frames)
        * (size.height // info.strides.space) * (size.width // info.strides.space)
    )  # fmt: skip
    torch.set_num_threads(1)
    return (
        lambda: pipeline.generate(checked),
        lambda: 0 if job is None else job.bytes_sent,
        3 * STEPS * latents * 4 if processes > 1 else 0,
    )


def ulysses(processes: int) -> tuple[Callable[[], Any], Callable[[], int], int]:
    """As :func:`guidance`."""
    import torch

    from cosmos_transfer.model.branches import new_branch
    from cosmos_transfer.model.controlled import ControlledModel
    from cosmos_transfer.model.diffusers_compat import CosmosTransformer3DModel
    from cosmos_transfer.parallel.apply import divide
    from cosmos_transfer.parallel.mesh import MeshShape

    torch.manual_seed(0)
    base = CosmosTransformer3DModel(
        in_channels=17, out_channels=16, num_attention_heads=HEADS,
        attention_head_dim=WIDTH // HEADS, num_layers=BLOCKS, text_embed_dim=64,
        adaln_lora_dim=32, max_size=(16, 128, 128), rope_scale=(1.0, 1.0, 1.0),
        extra_pos_embed_type=None, controlnet_block_every_n=2,
    ).eval()  # fmt: skip
    model = ControlledModel(base, {"edge": new_branch(base, input_gain=1.0)}).eval()
    job = None
    if processes > 1:
        job = _join(MeshShape(ulysses=2))
        divide(model, job, torch.device("cpu"))
    noise = torch.randn(1, 16, *GRID)
    tokens = GRID[0] * GRID[1] // 2 * GRID[2] // 2
    denoiser = model.conditioned_on(
        torch.randn(1, 16, 64), {"edge": noise}, torch.ones(1, 1, tokens)
    )
    blocks = BLOCKS + len(model.branches["edge"].control_blocks)
    predicted = blocks * 4 * (tokens // 2) * WIDTH // 2 * 4
    torch.set_num_threads(1)
    return (
        lambda: denoiser(noise, 0.5),
        lambda: 0 if job is None else job.bytes_sent,
        predicted if processes > 1 else 0,
    )


CASES: dict[str, Callable[[int], tuple[Callable[[], Any], Callable[[], int], int]]] = {
    "guidance": guidance,
    "ulysses": ulysses,
}
_STACK = ExitStack()


def _join(shape: Any) -> Any:
    import torch

    from cosmos_transfer.parallel.job import joined

    return _STACK.enter_context(joined(shape, torch.device("cpu")))


def work(case: str, processes: int) -> None:
    """One process: runs once for every line on stdin, and answers with seconds and bytes."""
    with _STACK:
        run, sent, predicted = CASES[case](processes)
        run()  # warm
        print("ready", flush=True)
        for _line in sys.stdin:
            before, started = sent(), time.perf_counter()
            run()
            seconds = time.perf_counter() - started
            answer = {"seconds": seconds, "sent": sent() - before, "predicted": predicted}
            print(json.dumps(answer), flush=True)


def measure(case: str, repeats: int) -> dict[str, Any]:
    """One process and two, in turns."""
    groups = {count: [_start(case, rank, count) for rank in range(count)] for count in (1, 2)}
    for group in groups.values():
        for process in group:
            assert _answer(process) == "ready"
    times: dict[int, list[float]] = {1: [], 2: []}
    traffic = {}
    for _ in range(repeats):
        for count, group in groups.items():
            for process in group:
                assert process.stdin is not None
                process.stdin.write("go\n")
                process.stdin.flush()
            told = [json.loads(_answer(process)) for process in group]
            times[count].append(max(each["seconds"] for each in told))
            traffic[count] = told[0]
    for group in groups.values():
        for process in group:
            process.communicate()
    medians = {count: statistics.median(each) for count, each in times.items()}
    return {
        "seconds": {str(count): value for count, value in medians.items()},
        "faster": medians[1] / medians[2],
        "bytes_sent": traffic[2]["sent"],
        "bytes_predicted": traffic[2]["predicted"],
        "load_average": os.getloadavg()[0],
    }


def _answer(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def _start(case: str, rank: int, count: int) -> subprocess.Popen[str]:
    environment = os.environ | {
        "RANK": str(rank), "WORLD_SIZE": str(count), "LOCAL_RANK": str(rank),
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_PORT + count), "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.parallel", "--work", case],
        env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


_PORT = 29_400 + os.getpid() % 500


def main(argv: Sequence[str] | None = None) -> None:
    """Run, write the results, print them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.parallel")
    parser.add_argument("--only", choices=CASES, action="append")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--work", choices=CASES, help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.work is not None:
        work(arguments.work, int(os.environ["WORLD_SIZE"]))
        return
    machine = hardware()
    cases = {name: measure(name, arguments.repeats) for name in arguments.only or CASES}
    results = {"benchmark": "parallel", "hardware": machine, "cases": cases}
    print(json.dumps(cases, indent=1))
    print(f"results: {write_results(results)}")


if __name__ == "__main__":
    main()
