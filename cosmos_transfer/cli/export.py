"""``cosmos-transfer export``: the table of one or several jobs as JSON lines."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from cosmos_transfer.cli.parser import make_parser


def build_parser() -> argparse.ArgumentParser:
    """The command's own arguments."""
    parser = make_parser(
        "export",
        "Print the tables of jobs, one JSON object an item: name, state, seed, hash, attempts, "
        "metrics, outputs, error, and the folder it belongs to.",
    )
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    return parser


def main(argv: Sequence[str]) -> int:
    """Run the command; the number is the exit code."""
    arguments = build_parser().parse_args(argv)
    from cosmos_transfer.jobs.manifest import MANIFEST_NAME, Manifest

    for folder in arguments.folders:
        for row in Manifest(folder / MANIFEST_NAME).rows():
            content = {"folder": str(folder), **asdict(row)}
            print(json.dumps(content, ensure_ascii=False))
    return 0
