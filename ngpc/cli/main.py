"""The ``ngpc`` command: words to functions. Help and mistakes need no torch.

A user's mistake is one line on stderr and exit code 2; a bug keeps its traceback and exits 1.
Results go to stdout, progress to stderr.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from ngpc.errors import NgpcError


def build_parser() -> argparse.ArgumentParser:
    """The command line, in full."""
    parser = argparse.ArgumentParser(
        prog="ngpc", description="Fit neural fields, render them, and see what they run on."
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="say what is chosen and why")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    fit = commands.add_parser("fit", help="train a field")
    kinds = fit.add_subparsers(dest="kind", required=True, metavar="KIND")
    image = kinds.add_parser(
        "image",
        help="train a field on an image",
        description=(
            "Train a field on an image. DIR receives field.safetensors, render.png and record.json."
        ),
    )
    image.add_argument("image", type=Path, metavar="IMAGE", help="PNG, JPEG, WebP or TIFF")
    image.add_argument("--output", type=Path, required=True, metavar="DIR")
    image.add_argument("--overwrite", action="store_true", help="replace a fit that is in DIR")
    image.add_argument(
        "--config",
        type=Path,
        metavar="JSON",
        help="loss, optimizer, encoding, network as tiny-cuda-nn spells them "
        "(see configs/ngpc/image)",
    )
    image.add_argument("--steps", type=int, metavar="N", help="Adam steps")
    image.add_argument("--batch-size", type=int, metavar="N", help="pixels per step")
    image.add_argument("--learning-rate", type=float, metavar="X")
    image.add_argument("--seed", type=int, metavar="N")
    _add_placement(image)
    image.set_defaults(module="ngpc.cli.fit", function="fit_image_command")

    render = commands.add_parser(
        "render",
        help="render a fitted field to a PNG",
        description="Render a fitted field to a PNG of any size, whole or a region of it.",
    )
    render.add_argument("field", type=Path, metavar="FIELD.safetensors")
    render.add_argument("--output", type=Path, required=True, metavar="PNG")
    render.add_argument("--overwrite", action="store_true", help="replace an existing PNG")
    render.add_argument("--height", type=int, metavar="ROWS")
    render.add_argument(
        "--width", type=int, metavar="COLUMNS", help="one of the two keeps the aspect ratio"
    )
    render.add_argument(
        "--region",
        type=float,
        nargs=4,
        default=(0.0, 0.0, 1.0, 1.0),
        metavar=("LEFT", "TOP", "RIGHT", "BOTTOM"),
        help="what to show, as fractions of the image (0 0 1 1 is all of it)",
    )
    _add_placement(render)
    render.set_defaults(module="ngpc.cli.render", function="render_command")

    backends = commands.add_parser("backends", help="list what can run here, and why not")
    backends.set_defaults(module="ngpc.cli.backends", function="backends_command")

    hardware = commands.add_parser(
        "hardware",
        help="what a neural graphics processing cluster would give",
        description="The published figures of the NGPC paper beside the model's (--report), or "
        "what a cluster would give for a measured frame (--breakdown).",
    )
    what = hardware.add_mutually_exclusive_group(required=True)
    what.add_argument("--report", action="store_true", help="published figures beside the model's")
    what.add_argument(
        "--breakdown",
        type=Path,
        metavar="JSON",
        help="seconds of one frame: {NAME: {encoding_s, mlp_s, rest_s}}",
    )
    hardware.add_argument("--processors", type=int, default=64, metavar="N", help="8, 16, 32 or 64")
    hardware.add_argument(
        "--calibration", default="published", choices=("published", "fitted"), metavar="NAME"
    )
    hardware.set_defaults(module="ngpc.cli.hardware", function="hardware_command")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    arguments = build_parser().parse_args(argv)
    logging.basicConfig(
        level=logging.INFO if arguments.verbose else logging.WARNING,
        format="%(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    try:
        command = getattr(importlib.import_module(arguments.module), arguments.function)
        return command(arguments)
    except NgpcError as error:
        print(f"ngpc: {error}", file=sys.stderr)
        return 2


def _add_placement(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", default="cpu", help="as torch names it (default: cpu)")
    parser.add_argument(
        "--backend", default="auto", help="a name out of `ngpc backends` (default: auto)"
    )


if __name__ == "__main__":
    sys.exit(main())
