"""``cosmos-transfer evaluate``: how well a result follows the controls it was given."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cosmos_transfer.cli.main import one_line
from cosmos_transfer.cli.parser import make_parser
from cosmos_transfer.errors import CheckpointError, TransferError

if TYPE_CHECKING:
    from cosmos_transfer.cli.recorded import RecordedRun
    from cosmos_transfer.metrics.evaluate import Report

EMBEDDED = "embedded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimated:
    """A metric that needs an estimator, and what to say where the control has no raw form."""

    metric: str
    without_truth: str


ESTIMATED = {
    "depth": Estimated(
        metric="depth_si_rmse",
        without_truth="the depth was given as a picture; give metres, with controls.depth.unit",
    ),
    "seg": Estimated(
        metric="mask_miou",
        without_truth="the segmentation was given as a picture; give ids and their labels",
    ),
}


def build_parser() -> argparse.ArgumentParser:
    """The command's own arguments."""
    parser = make_parser(
        "evaluate",
        "Measure a result against the controls it was given: edge F1, blur SSIM, depth si-RMSE, "
        "mask mIoU, and the seams of a long clip. Compared at the working size. Depth and masks "
        "of the output are estimated: by an installed estimator, or by a checkpoint's small "
        "predictors, which know procedural scenes only; their own error on true renders is the "
        "floor. What cannot be measured is left out, and why is said.",
    )
    parser.add_argument(
        "records", nargs="+", type=Path, metavar="RECORD.json", help="the record beside a clip"
    )
    parser.add_argument(
        "--predictors",
        metavar="NAME|FOLDER",
        help="the checkpoint whose predictors find depth and masks (default: embedded, for what a "
        "checkpoint of that kind made)",
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
            reports[str(path)] = evaluate_run(read_run(path), predictors=arguments.predictors)
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


def evaluate_run(
    run: RecordedRun,
    estimators: Mapping[str, Any] | None = None,
    *,
    predictors: str | Path | None = None,
) -> Report:
    """Measure one run against the controls it was given.

    Args:
        run: See :func:`cosmos_transfer.cli.recorded.read_run`.
        estimators: What finds ``depth`` and ``seg`` in the output's frames (``DepthEstimator``,
            ``SegmentationEstimator``); if not given, those of installed packages, then predictors.
        predictors: The checkpoint whose predictors to use; by default ``embedded``, for a run of a
            checkpoint in its layout.
    """
    from cosmos_transfer.controls.edge import EDGE_PRESETS
    from cosmos_transfer.inputs.video import VideoClip
    from cosmos_transfer.metrics.evaluate import (
        PUBLISHED_THRESHOLDS,
        GivenControls,
        evaluate_clip,
        find_estimators,
    )

    # Only checkpoints in the embedded layout have their parts' hashes in the record.
    if predictors is None and run.record.checkpoint.get("sha256"):
        predictors = EMBEDDED
    left_out: dict[str, str] = {}
    asked = {control.name for control in run.controls}
    if estimators is None and asked & ESTIMATED.keys():
        try:
            estimators = find_estimators(predictors)
        except CheckpointError as error:
            left_out = {
                ESTIMATED[name].metric: one_line(error) for name in asked & ESTIMATED.keys()
            }
    edge = run.control_request("edge")
    # A given edge picture has no thresholds of its own: the published metric's are used.
    thresholds = (
        PUBLISHED_THRESHOLDS if edge is None or edge.is_given else EDGE_PRESETS[edge.preset]
    )
    pictures = {control.name: control.picture for control in run.controls}
    given = GivenControls(
        edge=pictures.get("edge"),
        edge_thresholds=thresholds,
        reference=run.clip.frames if run.clip is not None and "vis" in asked else None,
        depth=run.depth,
        segmentation=run.segmentation,
        seams=[chunk["start"] + chunk["num_inherited"] for chunk in run.record.chunks[1:]],
    )
    output = VideoClip(frames=run.output, times=run.record.times, rate=run.record.rate)
    report = evaluate_clip(output, given, estimators=estimators)
    left_out = {**report.left_out, **left_out}
    for name, raw in (("depth", given.depth), ("seg", given.segmentation)):
        if name in asked and raw is None:
            left_out[ESTIMATED[name].metric] = ESTIMATED[name].without_truth
    return replace(report, left_out=left_out)
