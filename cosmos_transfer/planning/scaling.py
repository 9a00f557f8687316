"""How long a generation takes on N GPUs, from operations, bytes and link speed.

    time = operations / (N * flops * efficiency) + bytes / link speed + collectives * latency

Guidance halves the GPUs into two groups; within a group attention goes by heads (four all-to-alls
per block: queries, keys, values, result). ``efficiency`` is the one constant that is fitted, on
one GPU. Constants and sources stand in ``scaling.toml``; guidance's own exchange is left out.
"""

from __future__ import annotations

import tomllib
from importlib import resources
from typing import Any

from cosmos_transfer.errors import ConfigError, explain


def constants() -> dict[str, Any]:
    """The tables of ``scaling.toml``."""
    return tomllib.loads(resources.files(__package__).joinpath("scaling.toml").read_text("utf-8"))


def mesh(gpus: int, heads: int) -> tuple[int, int]:
    """Guidance groups (1 or 2) and GPUs per group; ``ConfigError`` where heads do not divide."""
    groups = 2 if gpus > 1 and gpus % 2 == 0 else 1
    if gpus < 1 or heads % (gpus // groups):
        raise ConfigError(
            explain(
                "plan scaling",
                expected=f"GPUs = guidance x ulysses with ulysses a divisor of {heads} heads",
                got=f"{gpus} = {groups} x {gpus // groups}",
                do="Choose a power of two up to twice the heads.",
            )
        )
    return groups, gpus // groups


def operations(network: dict[str, Any]) -> float:
    """Floating-point operations of one generation; projections, attention and the MLP."""
    tokens, width = network["tokens"], network["width"]
    block = 2 * 14 * tokens * width**2 + 4 * tokens**2 * width
    return 2.0 * network["steps"] * (network["blocks"] + network["branch_blocks"]) * block


def efficiency(given: dict[str, Any]) -> float:
    """The share of the peak that makes the one-GPU entry come out; dimensionless."""
    peak: float = given["hardware"]["flops"]
    return operations(given["network"]) / (peak * given["published"]["1"])


def seconds(gpus: int, given: dict[str, Any]) -> float:
    """Predicted seconds of diffusion on ``gpus`` GPUs of one NVLink domain."""
    hardware, network = given["hardware"], given["network"]
    groups, ranks = mesh(gpus, network["heads"])
    compute = operations(network) / (gpus * hardware["flops"] * efficiency(given))
    if ranks == 1:
        return compute
    sent = 2 * network["tokens"] / ranks * network["width"] * (ranks - 1) / ranks
    runs = 2 // groups * network["steps"] * (network["blocks"] + network["branch_blocks"])
    return compute + 4 * runs * (sent / hardware["link_bytes"] + hardware["latency_s"])


def table(given: dict[str, Any]) -> str:
    """Predicted beside published, one line per entry, with the difference in per cent."""
    lines = ["GPUs  predicted s  published s  difference"]
    for gpus, published in given["published"].items():
        found = seconds(int(gpus), given)
        lines.append(f"{gpus:>4}  {found:11.2f}  {published:11.1f}  {found / published - 1:+10.1%}")
    return "\n".join(lines)
