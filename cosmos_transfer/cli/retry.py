"""``cosmos-transfer retry``: let items of a job wait again."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from cosmos_transfer.cli.parser import make_parser


def build_parser() -> argparse.ArgumentParser:
    """The command's own arguments."""
    parser = make_parser(
        "retry",
        "Let failed and refused items wait again; start the job's own command to make them.",
    )
    parser.add_argument("folder", type=Path, help="where the job's outputs go")
    parser.add_argument(
        "--state",
        choices=("failed", "refused", "done"),
        action="append",
        help="only items in this state (default: failed and refused)",
    )
    return parser


def main(argv: Sequence[str]) -> int:
    """Run the command; the number is the exit code."""
    arguments = build_parser().parse_args(argv)
    from cosmos_transfer.jobs.manifest import MANIFEST_NAME, Manifest

    states = arguments.state or ("failed", "refused")
    print(f"{Manifest(arguments.folder / MANIFEST_NAME).retry(states)} items wait again")
    return 0
