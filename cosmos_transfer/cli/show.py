"""``cosmos-transfer show``: the contact sheet of a result."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cosmos_transfer.cli.parser import make_parser

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Float, UInt8

    from cosmos_transfer.cli.recorded import RecordedRun
    from cosmos_transfer.outputs.sheet import SheetRow


def build_parser() -> argparse.ArgumentParser:
    """The command's own arguments."""
    parser = make_parser(
        "show",
        "Draw the contact sheet of a result: the input, its controls, their weight maps and the "
        "output over time. Several records of the same input share one sheet.",
    )
    parser.add_argument(
        "records", nargs="+", type=Path, metavar="RECORD.json", help="the record beside a clip"
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="PNG",
        help="where to draw it; unset: beside the first record, as <name>_sheet.png",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace a sheet that is there")
    parser.add_argument(
        "--columns", type=int, default=5, metavar="N", help="how many moments to show (default: 5)"
    )
    parser.add_argument(
        "--height",
        type=int,
        default=96,
        metavar="N",
        help="height of each picture in pixels (default: 96)",
    )
    return parser


def main(argv: Sequence[str]) -> int:
    """Run the command; the number is the exit code."""
    arguments = build_parser().parse_args(argv)
    from cosmos_transfer.cli.recorded import read_run
    from cosmos_transfer.outputs.sheet import write_sheet

    first: Path = arguments.records[0]
    runs = [read_run(path) for path in arguments.records]
    sheet = sheet_of(runs, columns=arguments.columns, cell_height=arguments.height)
    path = arguments.output or first.with_name(f"{first.stem}_sheet.png")
    print(write_sheet(path, sheet, overwrite=arguments.overwrite))
    return 0


def sheet_of(
    runs: Sequence[RecordedRun], *, columns: int = 5, cell_height: int = 96, title: str = ""
) -> UInt8[np.ndarray, "h w 3"]:
    """One sheet: input, controls and weight maps of the first run, the output of every run."""
    from cosmos_transfer.outputs.sheet import SheetRow, contact_sheet

    first = runs[0]
    rows: list[SheetRow] = []
    if first.clip is not None:
        name = first.clip.path.name if first.clip.path is not None else ""
        rows.append(SheetRow(title="input", frames=first.clip.frames, note=name))
    rows += [
        SheetRow(title=control.name, frames=control.picture, note=control.source)
        for control in first.controls
    ]
    from cosmos_transfer.cli.validate import apply_rule

    rows += weight_rows(first.maps.names, apply_rule(first.maps.values, first.request.weight_rule))
    rows += [SheetRow(title="output", frames=run.output, note=run.request.prompt) for run in runs]
    return contact_sheet(
        rows,
        times_s=[float(time) for time in first.record.times],
        columns=columns,
        cell_height=cell_height,
        title=title,
    )


def weight_rows(names: Sequence[str], maps: Float[np.ndarray, "k f h w"]) -> list[SheetRow]:
    """A row per weight map; the controls that act everywhere with one strength share a row.

    Args:
        names: The controls.
        maps: Their weights that act, after the rule over controls.
    """
    from cosmos_transfer.outputs.sheet import SheetRow, weight_picture

    alike: dict[float, list[str]] = {}
    rows: list[SheetRow] = []
    for name, values in zip(names, maps, strict=True):
        low, high = float(values.min()), float(values.max())
        if low == high:
            alike.setdefault(low, []).append(name)
            continue
        note = f"{low:.2g} to {high:.2g}, mean {values.mean():.2f}"
        rows.append(SheetRow(title=f"weight of {name}", frames=weight_picture(values), note=note))
    for strength, those in alike.items():
        rows.append(
            SheetRow(
                title=f"weight of {those[0]}" if len(those) == 1 else "weights",
                frames=weight_picture(maps[list(names).index(those[0])]),
                note=f"{', '.join(those)}: {strength:.2g} everywhere",
            )
        )
    return rows
