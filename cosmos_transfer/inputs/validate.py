"""Checking a request against its files before any model is loaded.

Everything that can be refused is refused here: files are opened and decoded, frames counted,
sizes, lengths and times compared, masks looked at. What comes back are the facts that planning
needs. Nothing here imports torch.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from importlib.metadata import entry_points
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np

from cosmos_transfer.errors import (
    ConfigError,
    EstimatorUnavailableError,
    ShapeError,
    explain,
)
from cosmos_transfer.inputs.class_rules import resolve_class_rule
from cosmos_transfer.inputs.depth import depth_from_array, depth_media_kind, read_depth
from cosmos_transfer.inputs.masks import check_not_empty, mask_coverage, open_mask
from cosmos_transfer.inputs.media import media_kind
from cosmos_transfer.inputs.request import (
    CONTROL_NAMES,
    ControlRequest,
    GenerationRequest,
    acting_steps,
)
from cosmos_transfer.inputs.segmentation import (
    LastSegmentation,
    SegmentationClip,
    first_frame_notes,
    probe_segmentation,
)
from cosmos_transfer.inputs.series import is_pattern
from cosmos_transfer.inputs.video import (
    DEFAULT_RATE,
    ClipInfo,
    check_frames,
    common_length,
    match_length,
    nominal_rate,
    probe_clip,
    uniform_times,
)
from cosmos_transfer.shapes import Size, same_aspect, working_size

log = logging.getLogger(__name__)

ESTIMATOR_GROUP = "cosmos_transfer.estimators"
_EXTRACTED = frozenset({"edge", "vis"})


@runtime_checkable
class CheckpointFacts(Protocol):
    """What checking needs to know of a checkpoint."""

    @property
    def native_size(self) -> Size:
        """The size it was trained at."""
        ...

    @property
    def controls(self) -> tuple[str, ...]:
        """The controls it has a branch for."""
        ...

    @property
    def num_inference_steps(self) -> int:
        """How many denoising steps it takes unless told."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedInput:
    """One file or array of a request, as it was found."""

    where: str
    path: Path | None
    num_frames: int
    size: Size
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedRequest:
    """A request whose inputs exist and fit together.

    ``length_policy`` is what reading the inputs must apply: the request's own, or ``trim`` where
    ``max_frames`` cut inputs that agree. ``effective_weights`` has the controls whose weight is a
    number, after the rule, at a place where all of them act.
    """

    request: GenerationRequest
    num_frames: int
    size: Size
    working_size: Size
    rate: Fraction
    times: tuple[Fraction, ...]
    is_still: bool
    length_policy: str
    inputs: tuple[CheckedInput, ...]
    effective_weights: Mapping[str, float]
    warnings: tuple[str, ...]


def check_request(
    request: GenerationRequest,
    checkpoint_info: CheckpointFacts | None = None,
    *,
    estimators: Collection[str] | None = None,
    segmentations: LastSegmentation | None = None,
) -> CheckedRequest:
    """Open everything a request names and refuse what cannot be honoured.

    Args:
        request: The request; its own ranges were checked when it was built.
        checkpoint_info: The checkpoint's facts; without them its controls and native size are
            not checked.
        estimators: Controls that can be estimated from RGB besides edge and vis; those of
            installed packages unless given.
        segmentations: Keeps the segmentation that class rules needed for the caller.

    Raises:
        TransferError: One of its kinds, with one line that says where, what was expected, what
            came, and what to do.
    """
    _check_controls(request, checkpoint_info, estimators)
    found: list[CheckedInput] = []
    warnings: list[str] = []
    clip: ClipInfo | None = None
    if request.video is not None:
        clip = _probe_video(request)
        path = request.video if isinstance(request.video, Path) else None
        found.append(
            CheckedInput(where="video", path=path, num_frames=clip.num_frames, size=clip.size)
        )
    classes = _check_class_rules(request, segmentations or LastSegmentation())
    for control in request.controls:
        if control.is_given:
            found.append(_check_control(control, warnings, classes))
    main = found[0]
    if clip is None:
        clip = _clip_of_control(request, main)
    if request.times is not None:
        clip = _at_times(clip, request.times, request.rate)
    for control in request.controls:
        found += _check_maps(control)
    found += _check_keep(request)

    limit = request.max_frames or max(each.num_frames for each in found)
    moving = [each for each in found if each is main or not _is_still_map(each)]
    counts = [min(each.num_frames, limit) for each in moving]
    num_frames = common_length(counts, request.length_policy)
    for each, count in zip(moving, counts, strict=True):
        match_length(
            count,
            num_frames,
            request.length_policy,
            where=_shown(each),
            reference=_shown(main),
        )
    for each in found:
        if not same_aspect(each.size, main.size):
            raise ShapeError(
                explain(
                    _shown(each),
                    expected=f"the aspect ratio of {_shown(main)} ({main.size})",
                    got=f"{each.size}",
                    do="Crop or pad it to the same field of view; only scaling is done for you.",
                )
            )
    effective, heavy = _effective_weights(request)
    heavy += _never_acting(request, checkpoint_info)
    warnings += heavy
    for warning in heavy:  # What depth files have to say was said as they were read.
        log.warning("%s", warning)
    cut = request.max_frames is not None and request.length_policy == "refuse"
    return CheckedRequest(
        request=request,
        num_frames=num_frames,
        size=main.size,
        working_size=_working_size(request, main.size, checkpoint_info),
        rate=clip.rate,
        times=clip.times[:num_frames],
        is_still=clip.kind == "still",
        length_policy="trim" if cut else request.length_policy,
        inputs=tuple(found),
        effective_weights=effective,
        warnings=tuple(warnings),
    )


# ---------------------------------------------------------------------------- clips


def _probe_video(request: GenerationRequest) -> ClipInfo:
    video = request.video
    if isinstance(video, np.ndarray):
        is_still = video.ndim == 3
        video = video[None] if is_still else video
        check_frames(video, where="video")
        rate = request.rate or DEFAULT_RATE
        return ClipInfo(
            num_frames=len(video),
            size=Size(*video.shape[1:3]),
            rate=rate,
            times=uniform_times(len(video), rate),
            kind="still" if is_still else "array",
        )
    assert video is not None
    return probe_clip(video, rate=request.rate)


def _at_times(clip: ClipInfo, times: tuple[Fraction, ...], rate: Fraction | None) -> ClipInfo:
    """The clip shown at the times that the request gives."""
    if len(times) != clip.num_frames:
        raise ShapeError(
            explain(
                "times",
                expected=f"one for each of the {clip.num_frames} frames",
                got=f"{len(times)}",
                do="Give as many times as frames, or leave times out.",
            )
        )
    if rate is None and len(times) > 1:
        rate = nominal_rate(times)
    return replace(clip, times=times, rate=rate or clip.rate)


def _clip_of_control(request: GenerationRequest, main: CheckedInput) -> ClipInfo:
    """Times of a request without a video: its first control's, where that has a clock."""
    if main.path is not None and media_kind(main.path) == "video":
        return probe_clip(main.path, rate=request.rate)
    rate = request.rate or DEFAULT_RATE
    return ClipInfo(
        num_frames=main.num_frames,
        size=main.size,
        rate=rate,
        times=uniform_times(main.num_frames, rate),
        kind="still" if main.path is not None and media_kind(main.path) == "image" else "folder",
    )


def _check_controls(
    request: GenerationRequest,
    checkpoint_info: CheckpointFacts | None,
    estimators: Collection[str] | None,
) -> None:
    known = CONTROL_NAMES if checkpoint_info is None else checkpoint_info.controls
    for control in request.controls:
        where = f"control '{control.name}'"
        if control.name not in known:
            raise ConfigError(
                explain(
                    where,
                    expected=f"a control of this checkpoint ({', '.join(known)})",
                    got=control.name,
                    do="Leave it out, or choose another checkpoint.",
                )
            )
        if control.invert and control.mask is None:
            raise ConfigError(
                explain(
                    where,
                    expected="a mask to turn round",
                    got="invert without a mask",
                    do="Name the picture under mask, or drop invert.",
                )
            )
        if control.is_given:
            continue
        if request.video is None:
            raise ConfigError(
                explain(
                    where,
                    expected="a path, or a video to extract it from",
                    got="neither",
                    do=f"Set controls.{control.name}.path, or give a video.",
                )
            )
        if control.name in _EXTRACTED:
            continue
        if estimators is None:
            estimators = {point.name for point in entry_points(group=ESTIMATOR_GROUP)}
        if control.name not in estimators:
            raise EstimatorUnavailableError(
                explain(
                    where,
                    expected="a path, or an installed estimator to find it in the video",
                    got="neither",
                    do=f"Set controls.{control.name}.path.",
                )
            )


def _check_control(
    control: ControlRequest, warnings: list[str], classes: SegmentationClip | None
) -> CheckedInput:
    where = f"control '{control.name}'"
    if control.name == "depth":
        return _check_depth(control, where, warnings)
    if control.clip is not None:
        shape = control.clip.shape if control.clip.ndim > 2 else (1, *control.clip.shape)
        return CheckedInput(
            where=where, path=None, num_frames=shape[0], size=Size(shape[1], shape[2])
        )
    assert control.path is not None
    if control.name == "seg" and classes is not None:
        num_frames, size = classes.num_frames, classes.size
        warnings += [f"{where}: {note}" for note in classes.notes]
    elif control.name == "seg":
        num_frames, size = probe_segmentation(control.path, labels=control.labels)
        if media_kind(control.path) == "video":
            notes = first_frame_notes(control.path, control.labels)
            warnings += [f"{where}, first frame: {note}" for note in notes]
    else:
        info = probe_clip(control.path)
        num_frames, size = info.num_frames, info.size
    return CheckedInput(where=where, path=control.path, num_frames=num_frames, size=size)


def _check_depth(control: ControlRequest, where: str, warnings: list[str]) -> CheckedInput:
    if (
        control.path is not None
        and control.unit in (None, "relative")
        and depth_media_kind(control.path) == "video"
    ):
        info = probe_clip(control.path)
        return CheckedInput(
            where=where, path=control.path, num_frames=info.num_frames, size=info.size
        )
    if control.clip is not None and control.clip.ndim == 4:
        # A picture that was drawn already.
        check_frames(control.clip, where=where)
        shape = control.clip.shape
        return CheckedInput(
            where=where, path=None, num_frames=shape[0], size=Size(shape[1], shape[2])
        )
    if control.clip is not None:
        depth = depth_from_array(control.clip, where=where, **control.depth_settings)
    else:
        assert control.path is not None
        depth = read_depth(control.path, **control.depth_settings)
    warnings += [f"{where}: {note}" for note in depth.notes]
    return CheckedInput(
        where=where, path=control.path, num_frames=depth.num_frames, size=depth.size
    )


# ---------------------------------------------------------------------------- weights


def _check_maps(control: ControlRequest) -> list[CheckedInput]:
    """Masks and weight maps: readable, in range, and selecting something."""
    found: list[CheckedInput] = []
    for key, source in (("mask", control.mask), ("weight", control.weight)):
        if not isinstance(source, Path | np.ndarray):
            continue
        where = f"control '{control.name}', {key}"
        if key == "weight" and isinstance(source, Path) and _is_missing(source):
            raise ConfigError(
                explain(
                    where,
                    expected="a number from 0 to 1, or a file with a weight map",
                    got=f"{source}, which is no file",
                    do="Check the number, or the path.",
                )
            )
        is_mask = key == "mask"
        mask = open_mask(
            source,
            invert=is_mask and control.invert,
            binary=is_mask and control.binary,
            where=where,
        )
        values = mask.values
        check_not_empty(values, where=where, allow_empty=control.allow_empty)
        found.append(
            CheckedInput(
                where=where,
                path=source if isinstance(source, Path) else None,
                num_frames=len(values),
                size=Size(*values.shape[1:]),
                note=f"{'covers' if is_mask else 'mean'} {mask_coverage(values):.1%}"
                f"{' of the clip' if is_mask else ''}, read as {mask.read_as}",
            )
        )
    return found


def _is_missing(path: Path) -> bool:
    return not path.exists() and not is_pattern(path)


def _check_keep(request: GenerationRequest) -> list[CheckedInput]:
    """The mask of the kept region: readable, and keeping something."""
    keep = request.keep
    if not isinstance(keep, Path | np.ndarray):
        return []
    mask = open_mask(keep, where="keep")
    values = mask.values
    check_not_empty(values, where="keep", allow_empty=False)
    return [
        CheckedInput(
            where="keep, mask",
            path=keep if isinstance(keep, Path) else None,
            num_frames=len(values),
            size=Size(*values.shape[1:]),
            note=f"keeps {mask_coverage(values):.1%} of the clip, read as {mask.read_as}",
        )
    ]


def _is_still_map(found: CheckedInput) -> bool:
    """Whether it is one mask or weight map for all frames."""
    return found.num_frames == 1 and found.where.endswith((", mask", ", weight"))


def _check_class_rules(
    request: GenerationRequest, segmentations: LastSegmentation
) -> SegmentationClip | None:
    """Refuse rules that name no class; the segmentation they were held against, if any."""
    rules = {
        f"control '{control.name}', weight": control.weight
        for control in request.controls
        if isinstance(control.weight, Mapping)
    }
    if isinstance(request.keep, Mapping):
        rules["keep"] = request.keep
    if not rules:
        return None
    seg = next((c for c in request.controls if c.name == "seg"), None)
    source = None if seg is None else seg.segmentation_source
    if seg is None or source is None:
        raise ConfigError(
            explain(
                next(iter(rules)),
                expected="a segmentation for its class names",
                got="a class rule and no segmentation",
                do="Add a seg control with ids and names, or give a number or a mask.",
            )
        )
    classes = segmentations(source, seg.labels, where="control 'seg'")
    of = "the segmentation" if seg.path is None else str(seg.path)
    for where, rule in rules.items():
        resolve_class_rule(rule, classes.names.values(), where=where, of=of)
    return classes


def _effective_weights(request: GenerationRequest) -> tuple[dict[str, float], list[str]]:
    """Weights that are numbers after the rule, and a warning where they ask for more than 1."""
    asked = {
        control.name: control.weight
        for control in request.controls
        if isinstance(control.weight, float)
    }
    total = sum(asked.values())
    divide = (request.weight_rule == "cap" and total > 1) or (
        request.weight_rule == "always" and total > 0
    )
    effective = {name: weight / total if divide else weight for name, weight in asked.items()}
    if total <= 1:
        return effective, []
    shares = ", ".join(f"{name} {weight:.3g}" for name, weight in effective.items())
    if divide:
        told = f"where all of them act they are divided by that sum ({shares})"
    else:
        told = "weight_rule none leaves them so; the output may follow the input too closely"
    return effective, [f"controls: the weights add up to {total:.3g}, more than 1; {told}"]


def _never_acting(request: GenerationRequest, checkpoint_info: CheckpointFacts | None) -> list[str]:
    """A warning for every control whose share of the steps holds none of them."""
    num_steps = request.num_inference_steps
    if num_steps is None and checkpoint_info is not None:
        num_steps = checkpoint_info.num_inference_steps
    if num_steps is None:
        return []
    return [
        f"control '{control.name}': none of the {num_steps} denoising steps lies between "
        f"{control.steps[0]:g} and {control.steps[1]:g}; it never acts"
        for control in request.controls
        if control.steps is not None and not acting_steps(control.steps, num_steps)
    ]


# ---------------------------------------------------------------------------- sizes


def _working_size(
    request: GenerationRequest, size: Size, checkpoint_info: CheckpointFacts | None
) -> Size:
    if request.resolution == "input" or (
        request.resolution == "native" and checkpoint_info is None
    ):
        return size
    if isinstance(request.resolution, int):
        return working_size(size, short_side=request.resolution)
    assert checkpoint_info is not None
    native = checkpoint_info.native_size
    return working_size(size, short_side=min(native.height, native.width))


def _shown(found: CheckedInput) -> str:
    return found.where if found.path is None else f"{found.where} ({found.path})"
