"""``cosmos-transfer augment``: a robot dataset in other looks."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from cosmos_transfer.cli.parser import make_parser
from cosmos_transfer.errors import ConfigError, explain

if TYPE_CHECKING:
    from cosmos_transfer.jobs.manifest import Row


def build_parser() -> argparse.ArgumentParser:
    """The command's own arguments."""
    parser = make_parser(
        "augment",
        "Make every look of every episode of a dataset and write them as a new one: LeRobot v3.0 "
        "and v2.1, robomimic and Isaac Lab HDF5, or a folder of clips. Actions, states, labels and "
        "times stay as they are. The job is kept in DESTINATION.job; stopped, the same command "
        "goes on. Exit code 1: some episodes were refused.",
    )
    parser.add_argument("source", type=Path, help="the dataset: a folder, or an HDF5 file")
    parser.add_argument("destination", type=Path, help="what to write; must not exist")
    parser.add_argument(
        "--look",
        action="append",
        default=[],
        metavar="TEXT",
        help="a prompt, or presets such as night or marble+dusk; may be given several times",
    )
    parser.add_argument("--looks-file", type=Path, metavar="FILE", help="one look a line")
    parser.add_argument("--prompt", default="", help="what is seen; stands before every look")
    parser.add_argument("--variants", type=int, default=1, metavar="N", help="clips of each look")
    parser.add_argument(
        "--control",
        action="append",
        default=[],
        metavar="NAME=WEIGHT",
        help="edge or vis, extracted from the video (default: edge=1)",
    )
    parser.add_argument("--camera", action="append", metavar="KEY", help="only this one")
    parser.add_argument("--accept", action="append", metavar="RULE", help="such as 'edge_f1>0.5'")
    parser.add_argument("--attempts", type=int, default=3, metavar="N", help="seeds to try")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, metavar="N", help="sampling steps")
    parser.add_argument("--checkpoint", default="embedded", metavar="NAME|FOLDER")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="processes (default 1)")
    parser.add_argument(
        "--ray", type=int, default=0, metavar="N", help="actors of a Ray cluster, not processes"
    )
    parser.add_argument("--ray-address", metavar="ADDRESS", help="of a cluster that runs already")
    parser.add_argument(
        "--ray-gpus", type=float, default=0.0, metavar="SHARE", help="of a GPU, for each actor"
    )
    parser.add_argument(
        "--flip-vertical",
        action="store_true",
        help="HDF5: pictures are stored with their rows from the bottom up",
    )
    parser.add_argument("--rate", metavar="N", help="HDF5: steps per second, where it says none")
    return parser


def main(argv: Sequence[str]) -> int:
    """Run the command; the number is the exit code."""
    arguments = build_parser().parse_args(argv)
    looks = list(arguments.look)
    if arguments.looks_file is not None:
        from cosmos_transfer.cli.requests import read_text

        lines = read_text(str(arguments.looks_file), "--looks-file").splitlines()
        looks += [line.strip() for line in lines if line.strip()]
    controls = dict(_control(each) for each in arguments.control) or None
    from cosmos_transfer.config import RaySettings
    from cosmos_transfer.jobs.augment import augment_dataset

    made = augment_dataset(
        arguments.source,
        arguments.destination,
        looks=looks,
        prompt=arguments.prompt,
        variants=arguments.variants,
        controls=controls,
        accept=arguments.accept,
        attempts=arguments.attempts,
        cameras=arguments.camera,
        seed=arguments.seed,
        settings={} if arguments.steps is None else {"num_inference_steps": arguments.steps},
        checkpoint=arguments.checkpoint,
        workers=arguments.workers,
        ray=RaySettings(
            actors=arguments.ray, address=arguments.ray_address, gpus=arguments.ray_gpus
        ),
        flip_vertical=arguments.flip_vertical,
        rate=None if arguments.rate is None else _rate(arguments.rate),
        on_item=_report,
        show_progress=True,
    )
    print(f"{made.root}: {made.num_episodes} episodes, {len(made.refused)} refused")
    return 1 if made.refused else 0


def _control(text: str) -> tuple[str, float]:
    name, _, weight = text.partition("=")
    try:
        return name, float(weight)
    except ValueError as error:
        raise ConfigError(
            explain("--control", expected="NAME=WEIGHT", got=repr(text), do="Write edge=0.8.")
        ) from error


def _rate(text: str) -> Fraction:
    try:
        rate = Fraction(text)
    except (ValueError, ZeroDivisionError):
        rate = Fraction(0)
    if rate <= 0:
        raise ConfigError(
            explain("--rate", expected="steps per second, above 0", got=repr(text), do="Write 20.")
        )
    return rate


def _report(row: Row, outcome: str) -> None:
    print(f"{row.name}: {outcome}", file=sys.stderr, flush=True)
