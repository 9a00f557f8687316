"""``cosmos-transfer evaluate``: how well a result follows the controls it was given."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cosmos_transfer.cli.main import one_line
from cosmos_transfer.cli.parser import make_parser
from cosmos_transfer.errors import TransferError

if TYPE_CHECKING:
    from cosmos_transfer.cli.recorded import RecordedRun
    from cosmos_transfer.metrics.evaluate import Report

RELATIVE_DEPTH = "the given depth is a picture of relative depth; set controls.depth.unit"
COLOURED_SEG = "the given segmentation is a coloured picture; give ids and their label table"


def build_parser() -> argparse.ArgumentParser:
    """The command's own arguments."""
    parser = make_parser(
        "evaluate",
        "Measure a result against the controls it was given: edge F1, blur SSIM, depth si-RMSE, "
        "mask mIoU, and the seams of a long clip. Compared at the working size. Depth and masks "
        "of the output are estimated: by what is installed, or, for the embedded model, by two "
        "small predictors beside it, whose own error (the floor) is shown. Without an estimator "
        "they are left out, and that is said.",
    )
    parser.add_argument(
        "records", nargs="+", type=Path, metavar="RECORD.json", help="the record beside a clip"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser


def main(argv: Sequence[str]) -> int:
    """Run the command; the number is the exit code."""
    arguments = build_parser().parse_args(argv)
    from cosmos_transfer.cli.recorded import read_run

    reports: dict[str, Report] = {}
    for path in arguments.records:
        try:
            reports[str(path)] = evaluate_run(read_run(path))
        except TransferError as error:
            if len(arguments.records) == 1:
                raise
            print(one_line(error), file=sys.stderr)
    if arguments.json:
        content = {path: report.as_mapping() for path, report in reports.items()}
        print(json.dumps(content, indent=2))
    else:
        for path, report in reports.items():
            print(path)
            print("\n".join(f"  {line}" for line in report.lines()))
    return 1 if len(reports) < len(arguments.records) else 0


def evaluate_run(run: RecordedRun, estimators: Mapping[str, Any] | None = None) -> Report:
    """Measure one run against the controls it was given.

    Args:
        run: See :func:`cosmos_transfer.cli.recorded.read_run`.
        estimators: What finds ``depth`` and ``seg`` in the output's frames (``DepthEstimator``,
            ``SegmentationEstimator``); those of installed packages unless given, then the
            predictors beside the embedded checkpoint for a run of a checkpoint in its layout.
    """
    from dataclasses import replace

    from cosmos_transfer.controls.edge import EDGE_PRESETS
    from cosmos_transfer.inputs.video import VideoClip
    from cosmos_transfer.metrics.evaluate import (
        PUBLISHED_THRESHOLDS,
        GivenControls,
        evaluate_clip,
    )

    pictures = {control.name: control.picture for control in run.controls}
    edge = run.control_request("edge")
    # A given edge picture has no thresholds of its own: the published metric's are used.
    thresholds = (
        PUBLISHED_THRESHOLDS if edge is None or edge.is_given else EDGE_PRESETS[edge.preset]
    )
    given = GivenControls(
        edge=pictures.get("edge"),
        edge_thresholds=thresholds,
        reference=run.clip.frames if run.clip is not None and "vis" in pictures else None,
        depth=run.depth,
        segmentation=run.segmentation,
        seams=[chunk["start"] + chunk["num_inherited"] for chunk in run.record.chunks[1:]],
    )
    report = evaluate_clip(
        VideoClip(frames=run.output, times=run.record.times, rate=run.record.rate),
        given,
        estimators=estimators,
        # Only checkpoints in the embedded layout have their parts' hashes in the record.
        use_predictors=bool(run.record.checkpoint.get("sha256")),
    )
    left_out = dict(report.left_out)
    if "depth" in pictures and given.depth is None:
        left_out["depth_si_rmse"] = RELATIVE_DEPTH
    if "seg" in pictures and given.segmentation is None:
        left_out["mask_miou"] = COLOURED_SEG
    return replace(report, left_out=left_out)
