"""``cosmos-transfer plan``: what a request costs, before it runs."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence

from cosmos_transfer.cli.parser import make_parser
from cosmos_transfer.errors import ConfigError, explain


def build_parser() -> argparse.ArgumentParser:
    """The command's own arguments."""
    parser = make_parser(
        "plan",
        "Print the peak memory of a request, stage by stage, and which options make it fit which "
        "card. Networks are run without weights at the request's sizes; nothing is downloaded.",
    )
    parser.add_argument(
        "what",
        choices=["memory", "scaling"],
        help="memory; scaling: predicted seconds on 1 to 64 GPUs beside the published table",
    )
    parser.add_argument(
        "--checkpoint",
        default="2b",
        metavar="NAME",
        help="2b (Cosmos-Transfer2.5), 7b (Cosmos-Transfer1), embedded, or a folder (default: 2b)",
    )
    parser.add_argument(
        "--size", metavar="HxW", help="height and width; unset: the checkpoint's own"
    )
    parser.add_argument(
        "--frames", type=int, metavar="N", help="frames; unset: one chunk of the checkpoint's"
    )
    parser.add_argument(
        "--controls",
        default="edge",
        metavar="NAMES",
        help="controls, separated by commas; or none (default: edge)",
    )
    parser.add_argument(
        "--dtype",
        default="bfloat16",
        choices=["bfloat16", "float16", "float32"],
        help="what the networks compute in (default: bfloat16)",
    )
    parser.add_argument(
        "--device", default="cuda", choices=["cuda", "cpu"], help="cuda or cpu (default: cuda)"
    )
    return parser


def main(argv: Sequence[str]) -> int:
    """Run the command; the number is the exit code."""
    arguments = build_parser().parse_args(argv)
    if arguments.what == "scaling":
        from cosmos_transfer.planning import scaling

        given = scaling.constants()
        print(f"{given['hardware']}\n{given['network']}")
        print(f"efficiency, fitted on one GPU: {scaling.efficiency(given):.3f}")
        print(scaling.table(given))
        return 0
    size = _size(arguments.size)
    import torch

    from cosmos_transfer.planning import memory
    from cosmos_transfer.planning.networks import networks_of
    from cosmos_transfer.planning.workload import workload_of

    controls = tuple(
        name for name in arguments.controls.split(",") if name and name.strip() != "none"
    )
    dtype = getattr(torch, arguments.dtype)
    work = workload_of(
        arguments.checkpoint, size=size, num_frames=arguments.frames, num_controls=len(controls)
    )
    networks = networks_of(arguments.checkpoint, controls, dtype)
    found = memory.count(networks, work, dtype=dtype)
    on_gpu = arguments.device == "cuda"
    process = memory.CUDA_CONTEXT_BYTES if on_gpu else memory.process_bytes(networks.family)
    ways = memory.ways(networks, on_gpu=on_gpu)
    plans = [
        (
            way,
            memory.plan(
                found,
                options,
                on_gpu=on_gpu,
                with_text_encoder=with_text,
                process_bytes=process,
            ),
        )
        for way, options, with_text in ways
    ]
    height, width = work.size.height, work.size.width
    print(
        f"{arguments.checkpoint}, {work.num_frames} frames of {height}x{width} in chunks of "
        f"{work.chunk_frames}, {len(controls)} controls, {arguments.dtype} on {arguments.device}"
    )
    print(
        f"weights in GB: base {found.base_bytes / 1e9:.2f}, branches "
        f"{found.branch_bytes / 1e9:.2f}, autoencoder {found.autoencoder_bytes / 1e9:.2f}, text "
        f"encoder {found.text_encoder_bytes / 1e9:.2f}; the process {process / 1e9:.2f}"
    )
    print(memory.table(plans))
    return 0


def _size(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    matched = re.fullmatch(r"(\d+)\s*[xX]\s*(\d+)", text.strip())
    if matched is None:
        raise ConfigError(
            explain("--size", expected="height x width", got=repr(text), do="Write 704x1280.")
        )
    return int(matched[1]), int(matched[2])
