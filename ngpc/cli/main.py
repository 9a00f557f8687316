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
from typing import Any

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

    _add_scene_fits(kinds)
    _add_render(commands)
    _add_make(commands)

    backends = commands.add_parser("backends", help="list what can run here, and why not")
    backends.set_defaults(module="ngpc.cli.backends", function="backends_command")

    hardware = commands.add_parser(
        "hardware",
        help="what a neural graphics processing cluster would give",
        description="The published figures of the NGPC paper beside the model's (--report), or "
        "what a cluster would give for a frame that was measured (--breakdown) or is measured now "
        "(--measure).",
    )
    what = hardware.add_mutually_exclusive_group(required=True)
    what.add_argument("--report", action="store_true", help="published figures beside the model's")
    what.add_argument(
        "--breakdown",
        type=Path,
        metavar="JSON",
        help="seconds of one frame: {NAME: {encoding_s, mlp_s, rest_s}}",
    )
    what.add_argument(
        "--measure",
        type=Path,
        nargs="+",
        metavar="FIELD",
        help="measure one frame of each fitted field here, then say what a cluster would give",
    )
    hardware.add_argument("--height", type=int, default=270, metavar="ROWS", help="of --measure")
    hardware.add_argument("--width", type=int, default=480, metavar="COLUMNS", help="of --measure")
    _add_placement(hardware)
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


def _add_scene_fits(kinds: Any) -> None:
    sdf = kinds.add_parser(
        "sdf",
        help="train a signed distance on a mesh",
        description="Train a signed distance on a mesh. DIR receives field.safetensors, mesh.ply "
        "(its surface), render.png and record.json.",
    )
    sdf.add_argument("mesh", type=Path, metavar="MESH", help="OBJ, PLY or STL")
    _add_fit(sdf, batch="points per step", function="fit_sdf_command")
    nerf = kinds.add_parser(
        "nerf",
        help="train a radiance field on posed pictures",
        description="Train a radiance field on posed pictures. DIR receives field.safetensors, "
        "render.png and record.json.",
    )
    nerf.add_argument(
        "data",
        type=Path,
        metavar="DATA",
        help="transforms.json of nerf-synthetic, instant-ngp or nerfstudio, or its folder",
    )
    nerf.add_argument(
        "--test",
        type=Path,
        metavar="JSON",
        help="held-out views (default: transforms_test.json beside DATA)",
    )
    _add_fit(nerf, batch="samples per step, along all its rays", function="fit_nerf_command")
    volume = kinds.add_parser(
        "volume",
        help="train a volume field on densities",
        description="Train density and scattered light on a volume under a sky. DIR receives "
        "field.safetensors, render.png and record.json.",
    )
    volume.add_argument("volume", type=Path, metavar="VOLUME", help="NPY or NRRD")
    volume.add_argument(
        "--optical-depth",
        type=float,
        default=20.0,
        metavar="X",
        help="across the cube, where it is densest (default: 20)",
    )
    _add_fit(volume, batch="points per step", function="fit_volume_command")


def _add_fit(parser: argparse.ArgumentParser, *, batch: str, function: str) -> None:
    parser.add_argument("--output", type=Path, required=True, metavar="DIR")
    parser.add_argument("--overwrite", action="store_true", help="replace a fit that is in DIR")
    parser.add_argument("--resume", action="store_true", help="go on with a run that was stopped")
    parser.add_argument("--steps", type=int, metavar="N", help="Adam steps")
    parser.add_argument("--batch-size", type=int, metavar="N", help=batch)
    parser.add_argument("--learning-rate", type=float, metavar="X")
    parser.add_argument("--seed", type=int, metavar="N")
    _add_placement(parser)
    parser.set_defaults(module="ngpc.cli.fit_fields", function=function)


def _add_render(commands: Any) -> None:
    render = commands.add_parser(
        "render",
        help="render a fitted field",
        description="Render the field of an image to a PNG, or that of a scene along a camera path "
        "to pictures (--output) and to a clip with its controls (--controls).",
    )
    render.add_argument("field", type=Path, metavar="FIELD.safetensors")
    render.add_argument("--output", type=Path, metavar="PNG|DIR", help="a PNG; a folder of scenes")
    render.add_argument(
        "--controls",
        type=Path,
        metavar="DIR",
        help="clip, metric depth, ids and times, for cosmos-transfer generate scene=DIR",
    )
    render.add_argument("--overwrite", action="store_true", help="replace what is there")
    render.add_argument("--height", type=int, metavar="ROWS")
    render.add_argument(
        "--width", type=int, metavar="COLUMNS", help="one of the two keeps the aspect ratio"
    )
    image = render.add_argument_group("image")
    image.add_argument(
        "--region",
        type=float,
        nargs=4,
        default=(0.0, 0.0, 1.0, 1.0),
        metavar=("LEFT", "TOP", "RIGHT", "BOTTOM"),
        help="what to show, as fractions of the image (0 0 1 1 is all of it)",
    )
    scene = render.add_argument_group("scene")
    scene.add_argument(
        "--path",
        default="orbit",
        metavar="PATH",
        help="orbit, dataset, or a JSON file of frames with a transform_matrix (default: orbit)",
    )
    scene.add_argument("--data", type=Path, metavar="DATA", help="the posed set of --path dataset")
    scene.add_argument("--frames", type=int, metavar="N", help="frames (an orbit: 24)")
    scene.add_argument("--rate", default="24", metavar="FPS", help="of the clip (default: 24)")
    scene.add_argument("--radius", type=float, metavar="UNITS", help="of the orbit")
    scene.add_argument("--elevation", type=float, metavar="DEGREES", help="of the orbit")
    scene.add_argument("--start", type=float, default=-60.0, metavar="DEGREES", help="of the orbit")
    scene.add_argument(
        "--sweep", type=float, default=360.0, metavar="DEGREES", help="how far the orbit goes round"
    )
    scene.add_argument(
        "--background",
        type=float,
        nargs=3,
        default=(0.8, 0.8, 0.8),
        metavar=("R", "G", "B"),
        help="behind the scene, in [0, 1]; clouds have their sky",
    )
    scene.add_argument(
        "--metres-per-unit",
        type=float,
        default=1.0,
        metavar="X",
        help="of the world, for the depth of --controls (default: 1)",
    )
    _add_placement(render)
    render.set_defaults(module="ngpc.cli.render", function="render_command")


def _add_make(commands: Any) -> None:
    make = commands.add_parser("make", help="make a scene, mesh or volume to try things on")
    kinds = make.add_subparsers(dest="kind", required=True, metavar="KIND")
    posed = kinds.add_parser(
        "posed",
        help="solids on a table, ray-traced from all sides, with depth and ids",
        description="Write posed pictures in the layout of nerf-synthetic.",
    )
    posed.add_argument("output", type=Path, metavar="DIR")
    posed.add_argument("--views", type=int, default=60, metavar="N")
    posed.add_argument("--held-out", type=int, default=8, metavar="N")
    posed.add_argument("--size", type=int, default=128, metavar="PIXELS")
    mesh = kinds.add_parser("mesh", help="a solid, cut and joined", description="Write a mesh.")
    mesh.add_argument("output", type=Path, metavar="PLY")
    mesh.add_argument("--solid", default="drilled", help="torus, drilled or blob")
    volume = kinds.add_parser("volume", help="a cloud", description="Write a density volume.")
    volume.add_argument("output", type=Path, metavar="NPY")
    volume.add_argument("--resolution", type=int, default=48, metavar="CELLS")
    for kind, function in (
        (posed, "make_posed_command"),
        (mesh, "make_mesh_command"),
        (volume, "make_volume_command"),
    ):
        kind.add_argument("--seed", type=int, default=0, metavar="N")
        kind.add_argument("--overwrite", action="store_true", help="replace what is there")
        kind.set_defaults(module="ngpc.cli.make", function=function)


def _add_placement(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", default="cpu", help="as torch names it (default: cpu)")
    parser.add_argument(
        "--backend", default="auto", help="a name out of `ngpc backends` (default: auto)"
    )


if __name__ == "__main__":
    sys.exit(main())
