"""``cosmos-transfer evaluate``: how well a result follows the controls it was given."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cosmos_transfer.cli.main import one_line
from cosmos_transfer.cli.parser import make_parser
from cosmos_transfer.errors import (
    EstimatorUnavailableError,
    NumericsError,
    ShapeError,
    TransferError,
    explain,
)

if TYPE_CHECKING:
    from cosmos_transfer.cli.recorded import RecordedRun
    from cosmos_transfer.inputs.video import VideoClip


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One metric: what it is called, which way is better, and its range."""

    name: str
    shows: str
    control: str | None = None


MEASURES = (
    Measure(name="edge_f1", shows="0 to 1, higher is better; edges that coincide", control="edge"),
    Measure(name="edge_f1_1px", shows="0 to 1, higher is better; within one pixel", control="edge"),
    Measure(name="blur_ssim", shows="-1 to 1, higher is better; blurred input", control="vis"),
    Measure(name="depth_si_rmse", shows="metres up to 10, lower is better", control="depth"),
    Measure(name="mask_miou", shows="0 to 1, higher is better", control="seg"),
    Measure(name="seam_ratio", shows="lower is better; 1: no seam between chunks shows"),
)


def build_parser() -> argparse.ArgumentParser:
    """The command's own arguments."""
    parser = make_parser(
        "evaluate",
        "Measure a result against the controls it was given: edge F1, blur SSIM, depth si-RMSE, "
        "mask mIoU, and the seams of a long clip. Compared at the working size. Depth and masks "
        "of the output are estimated; without an estimator they are left out, and that is said.",
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What was measured, and why the rest was not."""

    values: Mapping[str, float]
    left_out: Mapping[str, str]

    def as_mapping(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"metrics": dict(self.values), "left_out": dict(self.left_out)}

    def lines(self) -> list[str]:
        """The report as a table, a line a metric."""
        shows = {measure.name: measure.shows for measure in MEASURES}
        lines = [f"{name:<14}{value:8.4f}   {shows[name]}" for name, value in self.values.items()]
        return lines + [f"{name:<14}       -   {why}" for name, why in self.left_out.items()]


def evaluate_run(run: RecordedRun, estimators: Mapping[str, Any] | None = None) -> Report:
    """Measure one run against the controls it was given.

    Args:
        run: See :func:`cosmos_transfer.cli.recorded.read_run`.
        estimators: What finds ``depth`` and ``seg`` in the output's frames (``DepthEstimator``,
            ``SegmentationEstimator``); those of the checkpoint and of installed packages unless
            given.
    """
    values: dict[str, float] = {}
    left_out: dict[str, str] = {}
    for name, measure in _measurements(run, estimators).items():
        try:
            values[name] = measure()
        except (NumericsError, ShapeError, EstimatorUnavailableError) as error:
            left_out[name] = one_line(error)
    return Report(values=values, left_out=left_out)


def _measurements(
    run: RecordedRun, estimators: Mapping[str, Any] | None
) -> dict[str, Callable[[], float]]:
    """The metrics that the run's controls and chunks call for, not computed yet."""
    from cosmos_transfer.controls.edge import EDGE_PRESETS
    from cosmos_transfer.metrics.control import blur_ssim, edge_f1
    from cosmos_transfer.metrics.video import seam_ratio

    asked: dict[str, Callable[[], float]] = {}
    for control in run.controls:
        request = run.control_request(control.name)
        assert request is not None
        if control.name == "edge":
            # A given edge picture has no thresholds of its own: the published metric's are used.
            preset = "medium" if request.is_given else request.preset
            lower, upper = EDGE_PRESETS[preset]
            for name, tolerance in (("edge_f1", 0), ("edge_f1_1px", 1)):
                asked[name] = partial(
                    edge_f1,
                    run.output,
                    control.picture,
                    tolerance=tolerance,
                    lower=lower,
                    upper=upper,
                )
        elif control.name == "vis" and run.clip is not None:
            asked["blur_ssim"] = partial(blur_ssim, run.output, run.clip.frames)
        elif control.name == "depth":
            asked["depth_si_rmse"] = partial(_depth_error, run, estimators)
        elif control.name == "seg":
            asked["mask_miou"] = partial(_mask_agreement, run, estimators)
    seams = [chunk["start"] + chunk["num_inherited"] for chunk in run.record.chunks[1:]]
    if seams:
        asked["seam_ratio"] = partial(seam_ratio, run.output, seams)
    return asked


def _depth_error(run: RecordedRun, estimators: Mapping[str, Any] | None) -> float:
    from cosmos_transfer.metrics.control import depth_si_rmse

    truth = run.depth
    if truth is None:
        raise NumericsError(
            explain(
                "depth si-RMSE",
                expected="depth in a unit",
                got="a picture of relative depth",
                do="Give metric depth, with controls.depth.unit.",
            )
        )
    found = _estimator("depth", estimators)(_as_clip(run))
    return depth_si_rmse(found.metres, truth)


def _mask_agreement(run: RecordedRun, estimators: Mapping[str, Any] | None) -> float:
    import numpy as np

    from cosmos_transfer.metrics.control import mask_miou

    truth = run.segmentation
    if truth is None:
        raise NumericsError(
            explain(
                "mask mIoU",
                expected="ids with names",
                got="a coloured picture",
                do="Give ids and their label table.",
            )
        )
    found = _estimator("seg", estimators)(_as_clip(run))
    # Ids are the files' own; classes are told apart by name.
    names = sorted({*truth.names.values(), *found.names.values()})
    number = {name: index for index, name in enumerate(names)}
    both = [
        np.vectorize(
            {key: number[name] for key, name in each.names.items()}.__getitem__, otypes=[np.int64]
        )(each.ids)
        for each in (found, truth)
    ]
    return mask_miou(both[0], both[1])


def _as_clip(run: RecordedRun) -> VideoClip:
    from cosmos_transfer.inputs.video import VideoClip

    return VideoClip(frames=run.output, times=run.record.times, rate=run.record.rate)


def _estimator(name: str, estimators: Mapping[str, Any] | None) -> Callable[[VideoClip], Any]:
    from cosmos_transfer.controls.registry import ESTIMATOR_GROUP

    if estimators is not None and name in estimators:
        passed: Callable[[VideoClip], Any] = estimators[name]
        return passed
    offered = tuple(entry_points(group=ESTIMATOR_GROUP, name=name))
    if not offered:
        raise EstimatorUnavailableError(
            explain(
                f"control '{name}'",
                expected="an estimator to find it in the output",
                got="none installed",
                do=f"Install a package with the entry point '{name}' in {ESTIMATOR_GROUP}.",
            )
        )
    made: Callable[[VideoClip], Any] = offered[0].load()()
    return made
