"""One clip against the controls it was given: every metric that applies, and why others do not.

What each metric is measured against
    ``edge_f1``, ``edge_f1_1px``  Canny edges of the output against the edge control
    ``blur_ssim``                 the output against the clip that went in, both blurred. The
                                  published metric compares with the input video, which there is
                                  the real video that the controls came from. A run of ours gets a
                                  simulator's clip, so that is its input: an output in other colours
                                  scores below 1 even when it is right, and a true render's own
                                  score, not 1, is what to hold it against.
    ``depth_si_rmse``             depth that an estimator finds in the output against the given one
    ``mask_miou``                 classes that an estimator finds in the output against the given
    ``seam_ratio``                the output against itself, where chunks of a long clip meet

An estimator errs by itself. Where it says by how much (``floor``: its error on true renders), the
report shows that beside the value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Integer, UInt8

from cosmos_transfer.controls.registry import ESTIMATOR_GROUP
from cosmos_transfer.errors import (
    EstimatorUnavailableError,
    NumericsError,
    ShapeError,
    explain,
)
from cosmos_transfer.inputs.segmentation import SegmentationClip
from cosmos_transfer.inputs.video import VideoClip
from cosmos_transfer.metrics.control import blur_ssim, depth_si_rmse, edge_f1, mask_miou
from cosmos_transfer.metrics.video import seam_ratio

if TYPE_CHECKING:
    from cosmos_transfer.metrics.predictors import Floor

PUBLISHED_THRESHOLDS = (100, 200)
ESTIMATED = ("depth", "seg")
LEAST_KNOWN_SHARE = 0.5
"""Of the pixels, the share whose class an estimator must know for its masks to mean anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One metric: what it is called, which way is better, and its range."""

    name: str
    shows: str


MEASURES = (
    Measure(name="edge_f1", shows="0 to 1, higher is better; edges that coincide"),
    Measure(name="edge_f1_1px", shows="0 to 1, higher is better; within one pixel"),
    Measure(name="blur_ssim", shows="-1 to 1, higher is better; blurred input"),
    Measure(name="depth_si_rmse", shows="metres up to 10, lower is better"),
    Measure(name="mask_miou", shows="0 to 1, higher is better"),
    Measure(name="seam_ratio", shows="lower is better; 1: no seam between chunks shows"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenControls:
    """What a clip was made from, at the clip's size and length; None for what took no part."""

    edge: UInt8[np.ndarray, "f h w 3"] | None = None
    edge_thresholds: tuple[int, int] = PUBLISHED_THRESHOLDS
    reference: UInt8[np.ndarray, "f h w 3"] | None = None  # the clip that went in
    depth: Float[np.ndarray, "f h w"] | None = None  # metres; not finite where there is none
    segmentation: SegmentationClip | None = None
    seams: Sequence[int] = ()  # the first frame that each chunk after the first made


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What was measured, what the estimators' own error is, and why the rest was not measured."""

    values: Mapping[str, float]
    left_out: Mapping[str, str]
    floors: Mapping[str, Floor] = field(default_factory=dict)

    def as_mapping(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "metrics": dict(self.values),
            "floors": {name: asdict(floor) for name, floor in self.floors.items()},
            "left_out": dict(self.left_out),
        }

    def lines(self) -> list[str]:
        """The report as a table, a line a metric."""
        shows = {measure.name: measure.shows for measure in MEASURES}
        lines = []
        for name, value in self.values.items():
            lines.append(f"{name:<14}{value:8.4f}   {shows[name]}")
            if (floor := self.floors.get(name)) is not None:
                lines.append(f"{'  floor':<14}{floor.mean:8.4f}   the estimator's own: {floor}")
        return lines + [f"{name:<14}       -   {why}" for name, why in self.left_out.items()]


def evaluate_clip(
    output: VideoClip,
    given: GivenControls,
    *,
    estimators: Mapping[str, Any] | None = None,
) -> Report:
    """Measure a clip by all that is given.

    Args:
        output: The clip, at the size of the controls.
        given: What to hold it against.
        estimators: What finds ``depth`` and ``seg`` in frames (``DepthEstimator``,
            ``SegmentationEstimator``); see :func:`find_estimators`.

    Returns:
        A report; a metric that is undefined for this clip is left out with its reason.
    """
    find = partial(_estimator, estimators=estimators or {})
    values: dict[str, float] = {}
    floors: dict[str, Floor] = {}
    left_out: dict[str, str] = {}
    for name, measure in _measures(output, given, find).items():
        try:
            values[name], floor = measure()
        except (NumericsError, ShapeError, EstimatorUnavailableError) as error:
            left_out[name] = " ".join(str(error).split())
            continue
        if floor is not None:
            floors[name] = floor
    return Report(values=values, left_out=left_out, floors=floors)


def find_estimators(predictors: str | Path | None) -> dict[str, Any]:
    """What finds depth and classes in an output: what is installed, then a checkpoint's predictors.

    Args:
        predictors: The checkpoint whose predictors serve where nothing is installed; they know
            nothing but procedural scenes. None for no predictors.

    Raises:
        CheckpointError: The checkpoint has no predictors, or they are damaged.
    """
    found: dict[str, Any] = {}
    for name in ESTIMATED:
        if offered := tuple(entry_points(group=ESTIMATOR_GROUP, name=name)):
            found[name] = offered[0].load()()
    if predictors is not None and len(found) < len(ESTIMATED):
        from cosmos_transfer.metrics.predictors import load_predictors

        loaded = load_predictors(predictors)
        found = {"depth": loaded.depth, "seg": loaded.seg} | found
    return found


def mask_agreement(found: SegmentationClip, given: SegmentationClip, known: set[str]) -> float:
    """Mean IoU of classes by name; pixels of a given class that is not ``known`` do not count.

    Raises:
        NumericsError: Most of the picture is of classes that are not known.
    """
    unknown = [number for number, name in given.names.items() if name not in known]
    share = float(1.0 - np.isin(given.ids, unknown).mean())
    if share < LEAST_KNOWN_SHARE:
        raise NumericsError(
            explain(
                "mask mIoU",
                expected=f"at least {LEAST_KNOWN_SHARE:.0%} of the pixels in classes that the "
                "estimator knows",
                got=f"{share:.0%}",
                do="Pass an estimator that knows the classes of this clip.",
            )
        )
    # Ids are the files' own; classes are told apart by name.
    names = sorted({*given.names.values(), *found.names.values()})
    number_of = {name: index for index, name in enumerate(names)}
    ids, wanted = (_renumbered(each, number_of) for each in (found, given))
    ignored = [number_of[given.names[number]] for number in unknown]
    return mask_miou(ids, wanted, ignored=ignored)


def _renumbered(
    clip: SegmentationClip, number_of: Mapping[str, int]
) -> Integer[np.ndarray, "f h w"]:
    """Ids by name instead of the clip's own."""
    values, places = np.unique(clip.ids, return_inverse=True)
    numbers = np.array([number_of[clip.names[int(value)]] for value in values])
    return numbers[places].reshape(clip.ids.shape)


_Measured = tuple[float, "Floor | None"]


def _measures(
    output: VideoClip, given: GivenControls, find: Callable[[str], Any]
) -> dict[str, Callable[[], _Measured]]:
    """The metrics that the controls and chunks call for, not computed yet."""
    frames = output.frames
    asked: dict[str, Callable[[], _Measured]] = {}
    if given.edge is not None:
        lower, upper = given.edge_thresholds
        for name, tolerance in (("edge_f1", 0), ("edge_f1_1px", 1)):
            asked[name] = partial(
                _plain, edge_f1, frames, given.edge, tolerance=tolerance, lower=lower, upper=upper
            )
    if given.reference is not None:
        asked["blur_ssim"] = partial(_plain, blur_ssim, frames, given.reference)
    if given.depth is not None:
        asked["depth_si_rmse"] = partial(_depth, output, given.depth, find)
    if given.segmentation is not None:
        asked["mask_miou"] = partial(_masks, output, given.segmentation, find)
    if given.seams:
        asked["seam_ratio"] = partial(_plain, seam_ratio, frames, given.seams)
    return asked


def _plain(measure: Callable[..., float], *arguments: Any, **settings: Any) -> _Measured:
    return measure(*arguments, **settings), None


def _depth(
    output: VideoClip, depth: Float[np.ndarray, "f h w"], find: Callable[[str], Any]
) -> _Measured:
    estimator = find("depth")
    value = depth_si_rmse(estimator(output).metres, depth)
    return value, getattr(estimator, "floor", None)


def _masks(output: VideoClip, given: SegmentationClip, find: Callable[[str], Any]) -> _Measured:
    estimator = find("seg")
    found = estimator(output)
    # An estimator that does not say what it knows is taken to know what it was asked about.
    names: Mapping[int, str] = getattr(estimator, "names", given.names)
    value = mask_agreement(found, given, set(names.values()))
    return value, getattr(estimator, "floor", None)


def _estimator(name: str, *, estimators: Mapping[str, Any]) -> Any:
    if name in estimators:
        return estimators[name]
    raise EstimatorUnavailableError(
        explain(
            f"control '{name}'",
            expected="an estimator to find it in the output",
            got="none",
            do=f"Install a package with the entry point '{name}' in {ESTIMATOR_GROUP}, or name a "
            "checkpoint that has predictors.",
        )
    )
