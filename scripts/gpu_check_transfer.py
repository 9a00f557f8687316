"""What a GPU makes of Cosmos-Transfer2.5-2B at 720p x 93 frames, with random weights.

    python scripts/gpu_check_transfer.py --out gpu_check_transfer.json     on a GPU, about 4 minutes
    python scripts/gpu_check_transfer.py --tiny                            anywhere, a few seconds

One and four branches; then each option alone: compiled blocks, CUDA graphs, other attention
kernels, eight-bit storage, blocks on the host, the step cache's saving, bitmap decoding. Seconds a
step are a median after one warm-up; ``bf16_share`` is the matrix work of a step over that of the
card's own fastest bf16 product in the same run. Every section has a budget of time: one that would
not fit is named as left out.
The memory plan is made for the same sizes and stands beside the measured peak.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from cosmos_transfer.errors import TransferError
from cosmos_transfer.model.architectures import TRANSFER2_5_2B, build_base, build_branch
from cosmos_transfer.model.branches import SHARED_PARTS
from cosmos_transfer.model.controlled import ControlledModel
from cosmos_transfer.model.speed import speed_up
from cosmos_transfer.offload.bitmap import pack, unpack
from cosmos_transfer.offload.options import MemoryOptions, store_in_eight_bits
from cosmos_transfer.planning import memory
from cosmos_transfer.planning.networks import networks_of
from cosmos_transfer.planning.workload import workload_of

CONTROLS = ("edge", "depth", "seg", "vis")
GRID, TINY_GRID = (24, 88, 160), (2, 4, 4)
TINY = {
    "num_attention_heads": 4,
    "attention_head_dim": 16,
    "text_embed_dim": 32,
    "adaln_lora_dim": 4,
    "encoder_hidden_states_channels": 32,
    "crossattn_proj_in_channels": 48,
    "img_context_dim_in": 24,
    "img_context_dim_out": 64,
}


def build(controls: Sequence[str], device: str, dtype: torch.dtype, tiny: bool) -> ControlledModel:
    """Random networks of the published size, branches sharing what they share."""
    base_changes = {**TINY, "num_layers": 8, "img_context_num_tokens": 5} if tiny else {}
    branch_changes = {**TINY, "model_channels": 64, "n_controlnet_blocks": 2} if tiny else {}
    torch.manual_seed(0)
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            base: Any = build_base(TRANSFER2_5_2B, **base_changes)
            branches = {name: build_branch(TRANSFER2_5_2B, **branch_changes) for name in controls}
    finally:
        torch.set_default_dtype(torch.float32)
    for branch in branches.values():
        for base_part, part in SHARED_PARTS.items():
            if isinstance(getattr(branch, part, None), torch.nn.Module):
                setattr(branch, part, getattr(base, base_part))
    return ControlledModel(base, branches).eval().requires_grad_(False)


def inputs(model: ControlledModel, grid: tuple[int, ...], device: str) -> tuple[Any, ...]:
    """One call's inputs: latents, sigma, text, controls, weights."""
    tokens = grid[0] * grid[1] * grid[2] // 4
    config = model.transformer.config
    make = {"device": device, "dtype": model.dtype}
    text = torch.randn(1, 512, config.encoder_hidden_states_channels, **make)
    controls = {name: torch.randn(1, 16, *grid, **make) for name in model.branches}
    share = 1.0 / max(1, len(controls))
    weights = {name: torch.full((1, tokens), share, **make) for name in controls}
    noise = torch.randn(1, 16, *grid, device=device)
    return noise, torch.full((1,), 0.5, device=device), text, controls, weights


def step_seconds(model: ControlledModel, given: tuple[Any, ...], device: str, runs: int) -> float:
    """Median seconds of a step: two passes, as guidance takes."""
    seconds = []
    for index in range(runs + 1):
        _wait(device)
        started = time.perf_counter()
        for _ in range(2):
            model(*given)
        _wait(device)
        if index:  # the first warms up
            seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def flops(controls: Sequence[str], tiny: bool) -> float:
    """Floating-point operations of a step's matrix products, two passes."""
    model = build(controls, "meta", torch.bfloat16, tiny)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(*inputs(model, TINY_GRID if tiny else GRID, "meta"))
    return 2.0 * counter.get_total_flops()


def bf16_rate(device: str, tiny: bool) -> float:
    """Operations a second of a large bf16 product on this device."""
    side = 256 if tiny else 8192
    a = torch.randn(side, side, device=device, dtype=torch.bfloat16)
    seconds = []
    for _ in range(8):
        _wait(device)
        started = time.perf_counter()
        a @ a
        _wait(device)
        seconds.append(time.perf_counter() - started)
    return 2.0 * side**3 / min(seconds[1:])


def decode(device: str, tiny: bool) -> dict[str, Any]:
    """GB of weights a second, decoded on the device, and whether every bit came back."""
    weight = torch.randn(256 if tiny else 8192, 256 if tiny else 8192).to(torch.bfloat16)
    weight[torch.rand(weight.shape) < 0.5] = 0
    packed = pack(weight).to(device)
    decoder = "triton" if device == "cuda" else "auto"
    got = unpack(packed, decoder=decoder)
    seconds = []
    for _ in range(8):
        _wait(device)
        started = time.perf_counter()
        unpack(packed, decoder=decoder)
        _wait(device)
        seconds.append(time.perf_counter() - started)
    return {
        "gb_s": packed.num_dense_bytes / statistics.median(seconds) / 1e9,
        "is_exact": bool(torch.equal(got.cpu().view(torch.int16), weight.view(torch.int16))),
    }


def attention_kernels(model: ControlledModel, given: tuple[Any, ...], device: str) -> Any:
    """Seconds a step under each kernel that runs here."""
    found: dict[str, Any] = {}
    for backend in ("native", "_native_cudnn", "flash", "_flash_3_hub"):
        try:
            speed_up(model, attention=backend)
            found[backend] = step_seconds(model, given, device, 1)
        except (TransferError, RuntimeError, ValueError, ImportError, OSError) as error:
            found[backend] = f"not here: {' '.join(str(error).split())[:80]}"
    speed_up(model, attention="native")
    return found


def planned(controls: Sequence[str], options: MemoryOptions) -> float:
    """The memory plan's denoising stage in GB, for the same sizes."""
    work = workload_of("2b", size=None, num_frames=None, num_controls=len(controls))
    found = memory.count(
        networks_of("2b", tuple(controls), torch.bfloat16), work, dtype=torch.bfloat16
    )
    stages = memory.plan(
        found,
        options,
        on_gpu=True,
        with_text_encoder=False,
        process_bytes=memory.CUDA_CONTEXT_BYTES,
    ).stages
    (stage,) = (each for each in stages if each.name == "denoise")
    # The script holds no autoencoder.
    return (stage.total - found.autoencoder_bytes) / 1e9


class Sections:
    """Runs sections within a budget of time and keeps what they found."""

    def __init__(self, budget_s: float) -> None:
        self._end = time.perf_counter() + budget_s
        self.results: dict[str, Any] = {}

    def run(self, name: str, needs_s: float, work: Callable[[], Any]) -> None:
        """Run a section, unless it would not end in time."""
        left = self._end - time.perf_counter()
        if left < needs_s:
            self.results[name] = f"left out: {left:.0f} s left, about {needs_s:.0f} s needed"
        else:
            started = time.perf_counter()
            try:
                self.results[name] = work()
            except (RuntimeError, TransferError, ImportError, ValueError) as error:
                self.results[name] = f"failed: {' '.join(str(error).split())[:300]}"
            took = time.perf_counter() - started
            print(f"{name} ({took:.1f} s): {self.results[name]}", file=sys.stderr, flush=True)


def measured(
    controls: Sequence[str],
    device: str,
    tiny: bool,
    prepare: Callable[[ControlledModel], Any] | None = None,
    runs: int = 2,
) -> dict[str, Any]:
    """Seconds a step and peak memory of one way to run."""
    dtype = torch.bfloat16
    model = build(controls, device, dtype, tiny)
    if prepare is not None:
        prepare(model)
    given = inputs(model, TINY_GRID if tiny else GRID, device)
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    row: dict[str, Any] = {"s_per_step": step_seconds(model, given, device, runs)}
    if device == "cuda":
        row["peak_gb"] = torch.cuda.max_memory_reserved() / 1e9
    del model, given
    if device == "cuda":
        torch.cuda.empty_cache()
    return row


@torch.inference_mode()
def check(device: str, tiny: bool, budget_s: float) -> dict[str, Any]:
    """All sections."""
    sections = Sections(budget_s)
    place = torch.device(device)
    rate = bf16_rate(device, tiny)
    sections.results["bf16_tflops"] = rate / 1e12

    def whole(controls: Sequence[str]) -> dict[str, Any]:
        row = measured(controls, device, tiny)
        row["bf16_share"] = flops(controls, tiny) / row["s_per_step"] / rate
        if not tiny:
            row["planned_gb"] = planned(controls, MemoryOptions())
        return row

    def option(prepare: Callable[[ControlledModel], Any]) -> Callable[[], dict[str, Any]]:
        return lambda: measured(("edge",), device, tiny, prepare, runs=1)

    def fp8(model: ControlledModel) -> None:
        for network in (model.transformer, *model.branches.values()):
            one: Any = network
            store_in_eight_bits(one, torch.bfloat16)

    def group(model: ControlledModel) -> None:
        for network in (model.transformer, *model.branches.values()):
            one: Any = network
            one.enable_group_offload(
                onload_device=place,
                offload_device=torch.device("cpu"),
                offload_type="block_level",
                num_blocks_per_group=1,
                use_stream=device == "cuda",
            )

    def kernels() -> Any:
        model = build(("edge",), device, torch.bfloat16, tiny)
        return attention_kernels(model, inputs(model, TINY_GRID if tiny else GRID, device), device)

    sections.run("decode", 5, lambda: decode(device, tiny))
    sections.run("one branch", 30, lambda: whole(CONTROLS[:1]))
    sections.run("four branches", 40, lambda: whole(CONTROLS))
    sections.run("compiled", 60, option(lambda model: speed_up(model, compile="default")))
    sections.run("fp8", 20, option(fp8))
    sections.run("group offload", 30, option(group))
    sections.run("attention", 40, kernels)
    sections.run(
        "CUDA graphs", 60, option(lambda model: speed_up(model, compile="reduce-overhead"))
    )
    return {
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "torch": torch.__version__,
        "is_tiny": tiny,
        **sections.results,
    }


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def main(argv: Sequence[str] | None = None) -> int:
    """Check, write, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--tiny", action="store_true", help="tiny networks, on any device")
    parser.add_argument("--budget", type=float, default=240.0, help="seconds (default: 240)")
    arguments = parser.parse_args(argv)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and not arguments.tiny:
        print("gpu_check_transfer: expected a CUDA device, found none. Add --tiny to try it here.")
        return 2
    results = check(device, arguments.tiny, arguments.budget)
    text = json.dumps(results, indent=1)
    if arguments.out is not None:
        arguments.out.write_text(text + "\n", encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
