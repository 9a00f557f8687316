"""``cosmos-transfer demo``: render two clips, restyle each three times, draw the contact sheet."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cosmos_transfer.cli.parser import make_parser

if TYPE_CHECKING:
    from cosmos_transfer.cli.generate import Made

SHEET_COLUMNS = 4
SHEET_HEIGHTS = (64, 128)  # of a picture, in pixels


def build_parser() -> argparse.ArgumentParser:
    """The command's own arguments."""
    parser = make_parser(
        "demo",
        "Render one held-out clip of each procedural family, with the depth and the segmentation "
        "that a simulator would give; restyle it by three prompts, steered by all four controls, "
        "the edges within a soft mask; draw everything on one contact sheet. Prints the paths.",
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FOLDER",
        help="where results go; unset: outputs/demo/<date>/<time>",
    )
    parser.add_argument(
        "--checkpoint",
        default="embedded",
        metavar="NAME|FOLDER",
        help="which model runs (default: embedded)",
    )
    parser.add_argument(
        "--steps", type=int, metavar="N", help="sampling steps; unset: the checkpoint's own"
    )
    return parser


def main(argv: Sequence[str]) -> int:
    """Run the command; the number is the exit code."""
    arguments = build_parser().parse_args(argv)
    from cosmos_transfer.cli.demo_inputs import SCENES, write_demo_scene
    from cosmos_transfer.cli.generate import generate_all, output_folder
    from cosmos_transfer.cli.recorded import read_run
    from cosmos_transfer.cli.requests import build_requests
    from cosmos_transfer.cli.show import sheet_of
    from cosmos_transfer.cli.validate import check_all
    from cosmos_transfer.config import GenerateSettings, ModelSettings
    from cosmos_transfer.model.checkpoint import checkpoint_info
    from cosmos_transfer.outputs.sheet import beside, write_sheet

    info = checkpoint_info(arguments.checkpoint)
    asked = None if arguments.output is None else str(arguments.output)
    folder = output_folder(asked, "demo")
    made: list[Made] = []
    sheets = []
    height = _sheet_height(info.native_size.height)
    for scene in SCENES:
        print(f"{scene.family}: rendering the input", file=sys.stderr)
        spec = write_demo_scene(
            scene,
            folder / "inputs" / scene.family,
            size=info.native_size,
            num_frames=info.native_frames,
        )
        settings = GenerateSettings(
            spec=str(spec),
            num_inference_steps=arguments.steps,
            model=ModelSettings(checkpoint=arguments.checkpoint),
        )
        typed = [] if arguments.steps is None else [f"num_inference_steps={arguments.steps}"]
        batch = check_all(build_requests(settings, typed), info)
        # Any failure is the demo's own, so the first one ends it.
        outcome = generate_all(batch.good, settings, folder=folder / scene.family, is_batch=False)
        made += outcome.made
        runs = [read_run(each.record_path) for each in outcome.made]
        sheets.append(sheet_of(runs, columns=SHEET_COLUMNS, cell_height=height, title=scene.family))
    sheet = write_sheet(folder / "sheet.png", beside(sheets))
    for each in made:
        print(f"record  {each.record_path}")
    print(f"inputs  {folder / 'inputs'}")
    print(f"sheet   {sheet}")
    return 0


def _sheet_height(native: int) -> int:
    """A whole multiple of the native height, so that nothing is blurred, unless that is large."""
    least, most = SHEET_HEIGHTS
    return most if native > most else native * -(-least // native)
