"""``cosmos-transfer prune``: a checkpoint with zeros among its weights, stored compressed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from cosmos_transfer.cli.parser import make_parser


def build_parser() -> argparse.ArgumentParser:
    """The command's own arguments."""
    parser = make_parser(
        "prune",
        "Set the least of a checkpoint's weights to zero and store it compressed: a bit an element "
        "and the values that are left. Half the weights gone is 0.56 of the size in bf16. Pruning "
        "changes what the model makes; how much is printed. The result loads like any checkpoint.",
    )
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="'embedded' or a folder")
    parser.add_argument("output", type=Path, metavar="FOLDER", help="where the result goes")
    parser.add_argument(
        "--sparsity",
        type=float,
        default=0.5,
        metavar="S",
        help="share of each matrix that becomes zero (default: 0.5)",
    )
    parser.add_argument(
        "--method",
        default="magnitude",
        metavar="M",
        help="magnitude, or wanda: weighed by the inputs of a trial run (default: magnitude)",
    )
    parser.add_argument(
        "--clip",
        type=Path,
        metavar="FILE",
        help="the clip of the trial run; unset: a drawn one",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace a result that is there")
    return parser


def main(argv: Sequence[str]) -> int:
    """Run the command; the number is the exit code."""
    arguments = build_parser().parse_args(argv)
    from cosmos_transfer.planning.pruned_checkpoint import prune_checkpoint

    report = prune_checkpoint(
        arguments.checkpoint,
        arguments.output,
        sparsity=arguments.sparsity,
        method=arguments.method,
        clip=arguments.clip,
        overwrite=arguments.overwrite,
    )
    print(report.text(), file=sys.stderr)
    print(report.folder)
    return 0
