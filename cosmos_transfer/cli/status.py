"""``cosmos-transfer status``: how far a job is."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from cosmos_transfer.cli.parser import make_parser

if TYPE_CHECKING:
    from cosmos_transfer.jobs.manifest import Progress

FOLLOW_S = 2.0


def build_parser() -> argparse.ArgumentParser:
    """The command's own arguments."""
    parser = make_parser(
        "status", "How far a job, or several together, are: counts, clips per hour, time left."
    )
    parser.add_argument(
        "folders", nargs="+", type=Path, metavar="FOLDER", help="where the job's outputs go"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--follow", action="store_true", help="print a line every two seconds until all came out"
    )
    return parser


def main(argv: Sequence[str]) -> int:
    """Run the command; the number is the exit code."""
    arguments = build_parser().parse_args(argv)
    from cosmos_transfer.jobs.manifest import MANIFEST_NAME, Manifest, joined

    manifests = [Manifest(folder / MANIFEST_NAME) for folder in arguments.folders]
    progress = joined([each.progress() for each in manifests])
    while arguments.follow and progress.counts["waiting"] + progress.counts["running"]:
        print(f"{_counts(progress)}; {_rate(progress)}", flush=True)
        time.sleep(FOLLOW_S)
        progress = joined([each.progress() for each in manifests])
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
    if progress.items_per_hour is not None:
        print(_rate(progress))
    return 0


def _counts(progress: Progress) -> str:
    return ", ".join(f"{count} {state}" for state, count in progress.counts.items() if count)


def _rate(progress: Progress) -> str:
    if progress.items_per_hour is None or progress.remaining_s is None:
        return "no rate yet"
    left = timedelta(seconds=round(progress.remaining_s))
    return f"{progress.items_per_hour:.0f} clips/hour, {left} left"
