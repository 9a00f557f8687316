"""The controls by name, and the one way from a request to the clip that a branch reads.

``edge`` and ``vis`` are extracted from RGB right here. ``depth`` and ``seg`` are taken from the
user or the simulator; to estimate them from RGB an estimator must be at hand: passed by the
caller, or offered by an installed package as the entry point ``depth`` or ``seg`` of the group
``cosmos_transfer.estimators`` (a function without arguments that makes one). None ships with this
package, and without one the control is refused by name; nothing is ever made up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from cosmos_transfer.controls.base import ControlClip
from cosmos_transfer.controls.depth import prepare_depth
from cosmos_transfer.controls.edge import EDGE_PRESETS, prepare_edge
from cosmos_transfer.controls.given import Target
from cosmos_transfer.controls.seg import prepare_seg
from cosmos_transfer.controls.vis import BLUR_PRESETS, prepare_vis
from cosmos_transfer.errors import ConfigError, EstimatorUnavailableError, explain
from cosmos_transfer.inputs.request import ControlRequest
from cosmos_transfer.inputs.video import VideoClip
from cosmos_transfer.shapes import Size

ESTIMATOR_GROUP = "cosmos_transfer.estimators"


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """One control: its name, its presets, and whether RGB alone is not enough for it."""

    name: str
    shows: str
    presets: tuple[str, ...] = ()
    needs_estimator: bool = False


CONTROLS = (
    Control(name="edge", shows="Canny edges", presets=tuple(EDGE_PRESETS)),
    Control(name="depth", shows="depth, near is bright", needs_estimator=True),
    Control(name="seg", shows="classes in fixed colours", needs_estimator=True),
    Control(name="vis", shows="the clip, blurred", presets=tuple(BLUR_PRESETS)),
)


def find_control(name: str) -> Control:
    """The control of that name, or an error that lists the names there are."""
    for control in CONTROLS:
        if control.name == name:
            return control
    raise ConfigError(
        explain(
            "controls",
            expected="one of " + ", ".join(c.name for c in CONTROLS),
            got=f"{name!r}",
            do="Choose one of these names.",
        )
    )


def require_source(request: ControlRequest, estimators: Mapping[str, Any] | None = None) -> None:
    """Refuse a control that is neither given nor can be extracted; loads no estimator.

    Raises:
        EstimatorUnavailableError: It must be estimated and no estimator is at hand.
    """
    control = find_control(request.name)
    if not control.needs_estimator or request.path is not None or request.clip is not None:
        return
    if request.name in (estimators or {}) or _offered(request.name):
        return
    raise EstimatorUnavailableError(
        explain(
            f"control '{request.name}'",
            expected="a path, or an installed estimator to find it in the video",
            got="neither",
            do=f"Set controls.{request.name}.path, or install a package with the entry point "
            f"'{request.name}' in the group {ESTIMATOR_GROUP}.",
        )
    )


def prepare_control(
    request: ControlRequest,
    clip: VideoClip | None,
    *,
    size: Size,
    num_frames: int,
    length_policy: str = "refuse",
    estimators: Mapping[str, Any] | None = None,
) -> ControlClip:
    """Take a control as it is given, or extract it from the clip.

    Args:
        request: What the user asked for.
        clip: The input clip, its frames already at the working size; None if there is none.
        size: The working size.
        num_frames: Length of the clip.
        length_policy: What to do with a given control of another length.
        estimators: Estimators by control name (``DepthEstimator``, ``SegmentationEstimator``);
            they take precedence over installed ones.

    Raises:
        ConfigError: An unknown control or preset, or nothing to extract from.
        ShapeError: A given control of another length or aspect ratio than the clip.
        EstimatorUnavailableError: The control must be estimated and no estimator is at hand.
    """
    require_source(request, estimators)
    target = Target(size=size, num_frames=num_frames, length_policy=length_policy)
    if request.name == "edge":
        return prepare_edge(request, clip, target)
    if request.name == "vis":
        return prepare_vis(request, clip, target)
    estimator = None
    if request.path is None and request.clip is None:
        estimator = _load(request.name, estimators)
    if request.name == "depth":
        return prepare_depth(request, clip, target, estimator)
    return prepare_seg(request, clip, target, estimator)


def _offered(name: str) -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group=ESTIMATOR_GROUP, name=name))


def _load(name: str, estimators: Mapping[str, Any] | None) -> Any:
    if estimators is not None and name in estimators:
        return estimators[name]
    offered = _offered(name)
    if len(offered) > 1:
        raise ConfigError(
            explain(
                f"control '{name}', estimator",
                expected="one installed estimator",
                got=", ".join(sorted(point.value for point in offered)),
                do="Uninstall all but one, or pass estimators={...} in Python.",
            )
        )
    try:
        return offered[0].load()()
    except ImportError as error:
        raise EstimatorUnavailableError(
            explain(
                f"control '{name}', estimator {offered[0].value}",
                expected="an estimator that can be imported",
                got=str(error),
                do="Install what it needs.",
            )
        ) from error
