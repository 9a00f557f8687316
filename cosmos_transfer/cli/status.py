"""``cosmos-transfer status``: how far a job is."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from cosmos_transfer.cli.parser import make_parser


def build_parser() -> argparse.ArgumentParser:
    """The command's own arguments."""
    parser = make_parser("status", "How far a job is: counts, clips per hour, time left.")
    parser.add_argument("folder", type=Path, help="where the job's outputs go")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def main(argv: Sequence[str]) -> int:
    """Run the command; the number is the exit code."""
    arguments = build_parser().parse_args(argv)
    from cosmos_transfer.jobs.manifest import MANIFEST_NAME, Manifest

    progress = Manifest(arguments.folder / MANIFEST_NAME).progress()
    if arguments.json:
        content = {
            **progress.counts,
            "items_per_hour": progress.items_per_hour,
            "remaining_s": progress.remaining_s,
        }
        print(json.dumps(content))
        return 0
    for state, count in progress.counts.items():
        print(f"{state:<9}{count:>8}")
    if progress.items_per_hour is not None and progress.remaining_s is not None:
        print(f"{progress.items_per_hour:.0f} clips/hour, {progress.remaining_s:.0f} s left")
    return 0
