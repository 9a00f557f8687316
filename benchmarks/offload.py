"""Bitmap-sparse weights: size, decoding rate, loading through a slow reader, price of pruning.

    python -m benchmarks.offload                  all; about two minutes

``decode``  GB of weights a second, one thread, into memory used again, per decoder and dtype, at
            half zeros; the definition in PyTorch beside the compiled decoder.
``load``    Linear layers as a transformer block has them, in bf16, half of them zero, read from a
            file at 200 MB/s: dense, and compressed with decoding. Paired runs; the median ratio.
``price``   The embedded model pruned: error of its output, PSNR of the clip it makes.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from benchmarks.results_file import FOLDER, hardware, write_results
from cosmos_transfer.offload import cpu
from cosmos_transfer.offload.bitmap import pack, unpack
from cosmos_transfer.offload.files import PackedFile, write_packed
from cosmos_transfer.planning.pruned_checkpoint import prune_checkpoint

RATE = 200e6  # bytes a second: a SATA disk, a network share
WIDTH, NUM_BLOCKS, SPARSITY = 1024, 6, 0.5
DTYPES = (torch.bfloat16, torch.float16, torch.float32, torch.int8)


class Throttle:
    """Sleeps so that reads come no faster than a rate."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._ready = time.perf_counter()

    def __call__(self, num_bytes: int) -> None:
        """Wait as long as a reader of that rate would take."""
        self._ready = max(self._ready, time.perf_counter()) + num_bytes / self._rate
        time.sleep(max(0.0, self._ready - time.perf_counter()))


def sparse(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> Tensor:
    """Random weights, half of them zero."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(shape, generator=generator) * (50 if dtype == torch.int8 else 1)
    values[torch.rand(shape, generator=generator) < SPARSITY] = 0
    return values.to(dtype)


def decode_rates(repeats: int) -> dict[str, Any]:
    """GB of output a second."""
    rates: dict[str, Any] = {}
    for dtype in DTYPES:
        weight = sparse((4096, 2048), dtype, 0)
        packed, room = pack(weight), torch.empty_like(weight).fill_(1)
        row: dict[str, Any] = {"stored_over_dense": packed.num_bytes / packed.num_dense_bytes}
        for decoder in ("definition", "cpu"):
            work = partial(unpack, packed, decoder=decoder, out=room)
            count = 3 if decoder == "definition" else repeats
            seconds = [_seconds(work) for _ in range(count)]
            assert torch.equal(room, weight)
            row[decoder] = packed.num_dense_bytes / statistics.median(seconds) / 1e9
        rates[str(dtype).removeprefix("torch.")] = row
    return rates


def load_ratio(folder: Path, pairs: int) -> dict[str, Any]:
    """Seconds to have all weights, dense and compressed, through the throttled reader."""
    shapes = {
        "attn1.to_q": (WIDTH, WIDTH),
        "attn1.to_k": (WIDTH, WIDTH),
        "attn1.to_v": (WIDTH, WIDTH),
        "attn1.to_out.0": (WIDTH, WIDTH),
        "ff.net.0.proj": (4 * WIDTH, WIDTH),
        "ff.net.2": (WIDTH, 4 * WIDTH),
    }
    weights = {
        f"blocks.{block}.{name}.weight": sparse(shape, torch.bfloat16, seed=block)
        for block in range(NUM_BLOCKS)
        for name, shape in shapes.items()
    }
    save_file(weights, folder / "dense.safetensors")
    sizes = write_packed(folder / "packed.safetensors", weights)
    rooms = {name: torch.empty_like(weight) for name, weight in weights.items()}

    def load(name: str) -> None:
        file = PackedFile(folder / name, on_read=Throttle(RATE))
        for each in file.names():
            file.read_dense(each, out=rooms[each])

    seconds: dict[str, list[float]] = {"dense": [], "packed": []}
    for _ in range(pairs):
        for kind, each in seconds.items():
            each.append(_seconds(lambda k=kind: load(f"{k}.safetensors")))
    for name, weight in weights.items():
        assert torch.equal(rooms[name], weight), name
    return {
        "rate_mb_s": RATE / 1e6,
        "dense_mb": sizes.dense / 1e6,
        "stored_over_dense": sizes.ratio,
        "dense_s": statistics.median(seconds["dense"]),
        "packed_s": statistics.median(seconds["packed"]),
        "times_faster": statistics.median(
            dense / packed for dense, packed in zip(*seconds.values(), strict=True)
        ),
    }


def prices(folder: Path) -> dict[str, Any]:
    """What pruning the embedded model costs."""
    found = {}
    for method in ("magnitude", "wanda"):
        for sparsity in (0.3, 0.5):
            name = f"{method} {sparsity}"
            report = prune_checkpoint(
                "embedded", folder / name.replace(" ", "-"), sparsity=sparsity, method=method
            )
            found[name] = {
                "stored_over_dense": report.ratio,
                "output_error": {str(k): v for k, v in report.output_error.items()},
                "psnr_db": report.psnr_db,
            }
    return found


def text(results: dict[str, Any]) -> str:
    """The results for a person."""
    lines = ["decoding, GB/s of output, one thread    stored  definition  compiled"]
    for dtype, row in results["decode"].items():
        lines.append(
            f"  {dtype:<36}  {row['stored_over_dense']:.3f}  {row['definition']:10.2f}  "
            f"{row['cpu']:8.2f}"
        )
    load = results["load"]
    lines.append(
        f"loading {load['dense_mb']:.0f} MB at {load['rate_mb_s']:.0f} MB/s: dense "
        f"{load['dense_s']:.2f} s, compressed {load['packed_s']:.2f} s, "
        f"{load['times_faster']:.2f} times faster"
    )
    for name, row in results["price"].items():
        errors = ", ".join(f"{k}: {v:.3f}" for k, v in row["output_error"].items())
        lines.append(f"{name:<14} {row['psnr_db']:.1f} dB; error by sigma {errors}")
    return "\n".join(lines)


def _seconds(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def main(argv: Sequence[str] | None = None) -> None:
    """Run, write the results, print them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.offload")
    parser.add_argument("--pairs", type=int, default=5, help="paired loading runs")
    parser.add_argument("--results", type=Path, default=FOLDER)
    arguments = parser.parse_args(argv)
    if reason := cpu.why_unavailable():
        raise SystemExit(f"the compiled decoder does not run here: {reason}")
    torch.set_num_threads(1)
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        results = {
            "benchmark": "offload",
            "hardware": hardware(),
            "decode": decode_rates(15),
            "load": load_ratio(folder, arguments.pairs),
            "price": prices(folder),
        }
    path = write_results(results, arguments.results)
    print(text(results))
    print(f"\nresults: {path}")


if __name__ == "__main__":
    main()
