"""Numbers, masks, files and class rules become one weight map per control on the pixel grid.

A control's map is the product of

* its weight: a number, a map (file or array), or a rule over the classes of a segmentation;
* its mask, if any: white applies the control, ``invert`` turns it round; soft values are kept
  unless ``binary`` makes them black or white;
* its ramp, if any: a factor that runs linearly from the first frame to the last.

Everything is float32 in [0, 1], ``k f h w``. A map of another size is resized by area (box)
means, which keep its mean and leave a constant exactly constant. A still acts on every frame. In
a long video a map is cut by frame index (:meth:`WeightMaps.at_frames`), never stretched.

Nothing ever means everywhere by accident: a mask, a map or a class rule that selects no pixel is
an error unless ``allow_empty`` is set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, Float32, Int

from cosmos_transfer.controls.base import require_same_aspect
from cosmos_transfer.errors import ConfigError, ShapeError, explain
from cosmos_transfer.inputs.class_rules import DEFAULT_CLASS, fold, resolve_class_rule
from cosmos_transfer.inputs.masks import check_not_empty, read_mask
from cosmos_transfer.inputs.request import ControlRequest
from cosmos_transfer.inputs.segmentation import SegmentationClip
from cosmos_transfer.inputs.video import match_length
from cosmos_transfer.shapes import Size, reflected_indices


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightMaps:
    """How much every control acts at every pixel; finite and in [0, 1], one map per name."""

    names: tuple[str, ...]
    values: Float32[np.ndarray, "k f h w"]

    def __post_init__(self) -> None:
        """Refuse maps that break the invariant."""
        if self.values.ndim != 4 or len(self.names) != self.values.shape[0]:
            raise ShapeError(
                explain(
                    "weight maps",
                    expected=f"{len(self.names)} maps (k f h w)",
                    got=f"an array of shape {self.values.shape}",
                    do="Give one map per control name.",
                )
            )
        for name, values in zip(self.names, self.values, strict=True):
            _check_range(f"weight of control '{name}'", values)

    @property
    def num_frames(self) -> int:
        """Pixel frames of every map."""
        return int(self.values.shape[1])

    @property
    def size(self) -> Size:
        """Height and width of every map in pixels."""
        return Size(int(self.values.shape[2]), int(self.values.shape[3]))

    @property
    def active(self) -> tuple[str, ...]:
        """The controls that act somewhere; the branches of the others need not run."""
        return tuple(
            name for name, values in zip(self.names, self.values, strict=True) if values.any()
        )

    def at_frames(self, frame_indices: Sequence[int]) -> WeightMaps:
        """The maps of the frames of a chunk, cut exactly as the clip and the controls are cut."""
        return WeightMaps(names=self.names, values=self.values[:, list(frame_indices)])

    def padded_to(self, size: Size) -> WeightMaps:
        """Reflect-pad at the bottom and the right, as the clip is padded to the model's grid."""
        rows = reflected_indices(self.size.height, size.height)
        columns = reflected_indices(self.size.width, size.width)
        return WeightMaps(
            names=self.names, values=self.values[:, :, list(rows)][:, :, :, list(columns)]
        )

    def largest_sum(self) -> float:
        """The most that all controls ask for together at one pixel, before any rule."""
        if not self.names:
            return 0.0
        return float(self.values.sum(axis=0, dtype=np.float64).max())


def build_weight_maps(
    controls: Sequence[ControlRequest],
    *,
    num_frames: int,
    size: Size,
    segmentation: SegmentationClip | None = None,
    length_policy: str = "refuse",
) -> WeightMaps:
    """Build the weight map of every control of a request, for the whole clip.

    Args and errors are those of :func:`open_weight_maps`.
    """
    source = open_weight_maps(
        controls,
        num_frames=num_frames,
        size=size,
        segmentation=segmentation,
        length_policy=length_policy,
    )
    return source.at_frames(range(num_frames))


def open_weight_maps(
    controls: Sequence[ControlRequest],
    *,
    num_frames: int,
    size: Size,
    segmentation: SegmentationClip | None = None,
    length_policy: str = "refuse",
) -> WeightMapSource:
    """Read what the maps of a request are made of; maps are made for the frames asked for.

    Args:
        controls: Controls in the order of the maps.
        num_frames: Length of the clip in pixel frames.
        size: Working size of the clip.
        segmentation: Ids and class names of the clip; needed by class rules.
        length_policy: What to do with a moving map whose length is not ``num_frames``; see
            :func:`cosmos_transfer.inputs.video.match_length`. A still acts on every frame.

    Raises:
        ConfigError: A weight outside [0, 1], a class that does not exist, nothing selected.
        ShapeError: A map of another length or aspect ratio than the clip.
    """
    names = tuple(control.name for control in controls)
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ConfigError(
            explain(
                "controls",
                expected="every control once",
                got=f"{', '.join(repeated)} more than once",
                do="Merge their masks into one control.",
            )
        )
    rows = []
    for control in controls:
        fit = _Fit(f"control '{control.name}'", num_frames, size, length_policy)
        weight = _base_weight(control, fit, segmentation)
        mask = ramp = None
        if control.mask is not None:
            values = read_mask(
                control.mask,
                invert=control.invert,
                binary=control.binary,
                where=f"{fit.where}, mask",
            )
            check_not_empty(values, where=f"{fit.where}, mask", allow_empty=control.allow_empty)
            mask = fit(values, "mask")
        elif control.invert:
            raise ConfigError(
                explain(
                    fit.where,
                    expected="a mask to turn round",
                    got="invert without a mask",
                    do="Name the picture under mask, or drop invert.",
                )
            )
        if control.ramp is not None:
            first, last = control.ramp
            ramp = np.linspace(first, last, num_frames, dtype=np.float64).astype(np.float32)
            _check_range(f"{fit.where}, ramp", ramp)
        rows.append(_Row(weight=weight, mask=mask, ramp=ramp))
    return WeightMapSource(names=names, size=size, rows=tuple(rows))


def build_keep_mask(
    keep: Path | np.ndarray | Mapping[str, float],
    *,
    num_frames: int,
    size: Size,
    segmentation: SegmentationClip | None = None,
    length_policy: str = "refuse",
) -> Float32[np.ndarray, "f h w"]:
    """The region of the input that stays: 1 is kept, 0 is made anew; of the whole clip.

    Args and errors are those of :func:`open_keep_mask`.
    """
    mask = open_keep_mask(
        keep,
        num_frames=num_frames,
        size=size,
        segmentation=segmentation,
        length_policy=length_policy,
    )
    return np.broadcast_to(mask.at_frames(range(num_frames)), (num_frames, size.height, size.width))


def open_keep_mask(
    keep: Path | np.ndarray | Mapping[str, float],
    *,
    num_frames: int,
    size: Size,
    segmentation: SegmentationClip | None = None,
    length_policy: str = "refuse",
) -> MapSource:
    """Read the region of the input that stays; the mask is made for the frames asked for.

    Args:
        keep: A mask or map, or a number per class.
        num_frames: Length of the clip.
        size: The clip's own size.
        segmentation: Ids and class names at that size; needed by a class rule.
        length_policy: What to do with a moving mask of another length.

    Raises:
        ConfigError: Nothing is kept, or a class that does not exist.
        ShapeError: A mask of another length or aspect ratio than the clip.
    """
    fit = _Fit("keep", num_frames, size, length_policy)
    if isinstance(keep, Mapping):
        return _class_weight("keep", keep, fit, segmentation, allow_empty=False)
    values = read_mask(keep, where="keep")
    check_not_empty(values, where="keep", allow_empty=False)
    return fit(values, "mask")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MapSource:
    """A map at the size and length it was given in; resized for the frames asked for."""

    values: Float[np.ndarray, "g y x"]
    indices: Int[np.ndarray, " f"] | None  # frame of the clip -> frame of the map; None: a still
    size: Size

    def at_frames(
        self, frame_indices: Sequence[int]
    ) -> Float32[np.ndarray, "_ {self.size.height} {self.size.width}"]:
        """The map of those frames at the working size; one frame where it is a still."""
        if self.indices is None:
            return area_resize(self.values, self.size)
        return area_resize(self.values[self.indices[list(frame_indices)]], self.size)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Row:
    """What one control's map is the product of."""

    weight: MapSource | np.float32
    mask: MapSource | None
    ramp: Float32[np.ndarray, " f"] | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WeightMapSource:
    """The weight maps of a clip that need not stand in memory whole."""

    names: tuple[str, ...]
    size: Size
    rows: tuple[_Row, ...]

    def at_frames(self, frame_indices: Sequence[int]) -> WeightMaps:
        """The maps of those frames, cut exactly as the clip and the controls are cut."""
        frames = list(frame_indices)
        shape = (len(self.rows), len(frames), self.size.height, self.size.width)
        values = np.empty(shape, dtype=np.float32)
        for row, of in zip(values, self.rows, strict=True):
            row[:] = of.weight.at_frames(frames) if isinstance(of.weight, MapSource) else of.weight
            if of.mask is not None:
                row *= of.mask.at_frames(frames)
            if of.ramp is not None:
                row *= of.ramp[frames][:, None, None]
        return WeightMaps(names=self.names, values=values)


@dataclass(frozen=True, slots=True)
class _Fit:
    """Brings a map to the clip's length and working size, or says why it cannot."""

    where: str
    num_frames: int
    size: Size
    length_policy: str

    def __call__(self, values: Float[np.ndarray, "g y x"], what: str) -> MapSource:
        where = f"{self.where}, {what}"
        count, height, width = values.shape
        require_same_aspect(where, Size(height, width), self.size)
        indices = None
        if count > 1:
            indices = match_length(count, self.num_frames, self.length_policy, where=where)
        return MapSource(values=values, indices=indices, size=self.size)


def _base_weight(
    control: ControlRequest, fit: _Fit, segmentation: SegmentationClip | None
) -> MapSource | np.float32:
    weight = control.weight
    if isinstance(weight, Mapping):
        return _class_weight(
            f"{fit.where}, weight", weight, fit, segmentation, allow_empty=control.allow_empty
        )
    if isinstance(weight, str | Path) or (isinstance(weight, np.ndarray) and weight.ndim > 0):
        values = read_mask(weight, where=f"{fit.where}, weight")
        check_not_empty(values, where=f"{fit.where}, weight", allow_empty=control.allow_empty)
        return fit(values, "weight")
    number = np.float32(weight)
    _check_range(f"{fit.where}, weight", number)
    return number


def _class_weight(
    where: str,
    rule: Mapping[str, float],
    fit: _Fit,
    segmentation: SegmentationClip | None,
    *,
    allow_empty: bool,
) -> MapSource:
    if segmentation is None:
        raise ConfigError(
            explain(
                where,
                expected="a segmentation for its class names",
                got="a class rule and no segmentation",
                do="Add a seg control with ids and names, or give a number or a mask.",
            )
        )
    for name, value in rule.items():
        _check_range(f"{where} of class '{name}'", np.float32(value))
    by_name = resolve_class_rule(rule, segmentation.names.values(), where=where)
    # An id without a name is of no class that a rule could name.
    default = next((value for name, value in rule.items() if fold(name) == DEFAULT_CLASS), 0.0)
    ids, place = np.unique(segmentation.ids, return_inverse=True)
    of_id = np.array(
        [by_name.get(segmentation.names.get(int(i), ""), default) for i in ids], dtype=np.float32
    )
    values = of_id[place.reshape(segmentation.ids.shape)]
    if any(value > 0 for value in rule.values()):
        check_not_empty(values, where=where, allow_empty=allow_empty)
    return fit(values, "weight")


def area_resize(
    values: Float[np.ndarray, "f y x"], size: Size
) -> Float32[np.ndarray, "f {size.height} {size.width}"]:
    """Resize maps by the mean over the area that each new pixel covers, up or down.

    The mean of the map is kept, values stay within their range, and a constant stays exactly the
    same constant: the sums run in float64 and are rounded once.
    """
    height, width = values.shape[1:]
    if (height, width) == (size.height, size.width):
        return values.astype(np.float32)
    rows = _area_matrix(height, size.height)
    columns = _area_matrix(width, size.width)
    resized = np.empty((len(values), size.height, size.width), dtype=np.float32)
    for frame, source in zip(resized, values, strict=True):  # one frame at a time: bounded memory
        frame[:] = rows @ source.astype(np.float64) @ columns.T
    return resized


def _area_matrix(length: int, new_length: int) -> Float[np.ndarray, "{new_length} {length}"]:
    """Share of every source pixel in every new pixel along one axis; rows sum to one."""
    # In units of 1 / new_length source pixels, all edges are whole numbers: overlaps are exact.
    new_edges = np.arange(new_length + 1, dtype=np.int64)[:, None] * length
    old_edges = np.arange(length + 1, dtype=np.int64)[None, :] * new_length
    overlap = np.minimum(new_edges[1:], old_edges[:, 1:]) - np.maximum(
        new_edges[:-1], old_edges[:, :-1]
    )
    return np.maximum(overlap, 0) / length


def _check_range(where: str, values: np.ndarray | np.float32) -> None:
    """Refuse weights that are not finite numbers in [0, 1]."""
    array = np.asarray(values)
    if array.size == 0:
        return
    low, high = float(array.min()), float(array.max())
    if np.isfinite(low) and np.isfinite(high) and low >= 0.0 and high <= 1.0:
        return
    got = f"{low:g}" if low == high else f"{low:g} to {high:g}"
    raise ConfigError(
        explain(
            where,
            expected="finite values in [0, 1]",
            got=got,
            do="Scale them to 0 (off) .. 1 (full strength).",
        )
    )
