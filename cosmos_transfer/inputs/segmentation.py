"""Segmentation: integer ids per pixel and the name of each id.

Inside, a clip is int32 ids ``f h w`` with one table for all frames; frames are merged by class
name, so an id means the same thing throughout. Colours given to a model come from the class name
alone (:func:`class_color`). Labels that went through a lossy codec are snapped to the nearest
palette colour, and the share of pixels that had to be is reported.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from jaxtyping import Int32, UInt8

from cosmos_transfer.errors import ConfigError, MediaError, ShapeError, explain
from cosmos_transfer.inputs.class_colors import class_color
from cosmos_transfer.inputs.labels import (
    Label,
    LabelTable,
    Rgba,
    carla_labels,
    parse_labels,
    read_label_folder,
    read_labels,
)
from cosmos_transfer.inputs.media import (
    ARRAY_SUFFIXES,
    IMAGE_SUFFIXES,
    Array,
    decode_video,
    media_kind,
    read_array,
    read_picture,
    stream_info,
)
from cosmos_transfer.inputs.series import Series, is_pattern, list_series
from cosmos_transfer.inputs.video import no_frames, probe_clip
from cosmos_transfer.shapes import Size

__all__ = [
    "LastSegmentation",
    "SegmentationClip",
    "class_color",
    "colorize",
    "first_frame_notes",
    "open_segmentation",
    "probe_segmentation",
    "read_segmentation",
    "segmentation_from_array",
]

log = logging.getLogger(__name__)

UNLABELLED = "unlabelled"
# Palette found in a video without a table: how coarse the colour cells are, how near two colours
# may be, how many there may be, and the share of the picture that makes a colour a class.
_CELL = 8
_MERGE_DISTANCE = 30.0
_MAX_COLORS = 100
_MIN_SHARE = 5e-4
_FLAT_STEP = 16
# A pixel of a lossless picture further than this from every known colour is no class's.
_SNAP_DISTANCE = 30.0
# Two classes nearer than this are not told apart reliably after lossy compression.
_SAFE_DISTANCE = 48.0
_MAX_UNKNOWN_SHARE = 0.5
_LOSSLESS = frozenset({"ffv1", "png", "qtrle", "rawvideo", "huffyuv", "utvideo"})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SegmentationClip:
    """Ids and their names. Every id that occurs has a name."""

    ids: Int32[np.ndarray, "f h w"]
    names: dict[int, str]
    snapped_share: float = 0.0
    notes: tuple[str, ...] = ()

    @property
    def num_frames(self) -> int:
        """How many frames there are."""
        return len(self.ids)

    @property
    def size(self) -> Size:
        """Height and width."""
        return Size(*self.ids.shape[1:])


def colorize(clip: SegmentationClip) -> UInt8[np.ndarray, "f h w 3"]:
    """The picture a model is given: each class in its own fixed colour."""
    known = np.array(sorted(clip.names), dtype=np.int64)
    colors = np.array([class_color(clip.names[int(i)]) for i in known], dtype=np.uint8)
    if known[0] >= 0 and known[-1] < 2**16:
        table = np.zeros((int(known[-1]) + 1, 3), dtype=np.uint8)
        table[known] = colors
        return table[clip.ids]
    return colors[np.searchsorted(known, clip.ids)]


def segmentation_from_array(
    ids: Array, *, names: Mapping[int, str] | None = None, where: str = "segmentation"
) -> SegmentationClip:
    """A clip from integer ids in memory: ``f h w``, or ``h w`` for one frame.

    MuJoCo's ``f h w 2`` (object id, object type) is taken by object id; its background (-1) is
    unlabelled. One such frame, ``h w 2``, is known from ids two pixels wide by its background, the
    pair (-1, -1). Ids without a name are called ``class_<id>``.
    """
    if ids.dtype.kind not in "iub":
        raise _not_ids(where, ids)
    if _is_pairs(ids):
        ids = ids[..., 0]
    if ids.ndim == 4 and ids.shape[-1] == 1:
        ids = ids[..., 0]
    return _from_ids(ids[None] if ids.ndim == 2 else ids, names, where)


def _is_pairs(ids: Array) -> bool:
    """Whether the last axis is MuJoCo's (object id, object type).

    One frame ``h w 2`` is told from frames two pixels wide by its background.
    """
    if ids.ndim not in {3, 4} or ids.shape[-1] != 2 or ids.dtype.kind != "i":
        return False
    nothing = ids == -1
    return ids.ndim == 4 or (
        bool(nothing.any()) and bool((nothing[..., 0] == nothing[..., 1]).all())
    )


def _from_ids(ids: Array, names: Mapping[int, str] | None, where: str) -> SegmentationClip:
    """Name and merge ids whose axes are settled: ``f h w``."""
    if ids.ndim != 3 or 0 in ids.shape:
        raise _not_ids(where, ids)
    present = np.unique(ids)
    if int(present[-1]) > 2**31 - 1 or int(present[0]) < -(2**31):
        raise _not_ids(where, ids)
    found = {int(i): UNLABELLED if i < 0 else f"class_{i}" for i in present}
    table = {int(i): str(name) for i, name in (names or {}).items()}
    if names is not None:
        found |= {i: UNLABELLED for i in found if i not in table and i <= 0}
    return _merged(ids.astype(np.int32), found | table)


def read_segmentation(
    path: str | Path, *, labels: str | Path | Mapping[Any, Any] | None = None
) -> SegmentationClip:
    """Read a segmentation clip.

    Args:
        path: A folder (or a glob) of numbered pictures or arrays; a still; a ``.npy``/``.npz`` of
            ids; a video drawn in palette colours.
        labels: A JSON table, a folder with one table per frame, a table as a mapping, or "carla"
            ("carla-0.9.13" for the tags before 0.9.14). Without it, a folder's own JSON files
            are used if there are any; otherwise ids become ``class_<id>`` and colours
            ``#rrggbb``, which keep their colour.

    Raises:
        MediaError: Something is missing, unreadable, or looks like a photograph.
        ConfigError: The table cannot be read, or does not belong to these pictures.
        ShapeError: Frames of different sizes, or not one table per frame.
    """
    path = Path(path)
    kind = media_kind(path)
    if kind == "video":
        return _read_video(path, _one_table(labels))
    series = Series(files=(path,), numbers=())
    if kind == "folder":
        series = list_series(path, (*IMAGE_SUFFIXES, *ARRAY_SUFFIXES), what="segmentation frames")
    tables = _tables(path, labels, series)
    if kind == "array":
        return _from_array_file(path, read_array(path), tables)
    return _read_series(path, series, tables)


def open_segmentation(
    source: Path | np.ndarray, labels: str | Path | Mapping[Any, Any] | None, *, where: str
) -> SegmentationClip:
    """The segmentation that a request gives, as a path or as ids in memory."""
    if isinstance(source, np.ndarray):
        return segmentation_from_array(source, names=_array_names(labels, where), where=where)
    return read_segmentation(source, labels=labels)


class LastSegmentation:
    """:func:`open_segmentation`, keeping the last one it opened.

    Checking a request and summing up its weights ask for the same one after the other; this is
    what they share so that it is read once.
    """

    def __init__(self) -> None:
        self._source: Path | np.ndarray | None = None
        self._labels = ""
        self._clip: SegmentationClip | None = None

    def __call__(
        self,
        source: Path | np.ndarray,
        labels: str | Path | Mapping[Any, Any] | None,
        *,
        where: str,
    ) -> SegmentationClip:
        """Open it, unless it is the one that was opened last."""
        is_last = source is self._source or (
            isinstance(source, Path) and isinstance(self._source, Path) and source == self._source
        )
        if self._clip is None or not is_last or repr(labels) != self._labels:
            self._clip = open_segmentation(source, labels, where=where)
            self._source, self._labels = source, repr(labels)
        return self._clip


def _array_names(
    labels: str | Path | Mapping[Any, Any] | None, where: str
) -> dict[int, str] | None:
    """The names of an array's ids, from whatever the request calls its labels."""
    table = _one_table(labels)
    if table is None:
        return None
    names = {label.id: label.name for label in table if label.id is not None}
    if not names:
        raise ConfigError(
            explain(
                f"{where}, labels",
                expected="the name of every id",
                got="a table of colours",
                do="Give names by id, or the coloured pictures.",
            )
        )
    return names


def probe_segmentation(
    path: str | Path, *, labels: str | Path | Mapping[Any, Any] | None = None
) -> tuple[int, Size]:
    """How many frames there are and how large, after reading the labels and the first frame.

    Refuses what :func:`read_segmentation` would refuse, except for faults in later frames.
    """
    path = Path(path)
    kind = media_kind(path)
    if kind == "video":
        info = probe_clip(path)
        table = _one_table(labels)
        if table is not None:
            _check_coloured(path, table)
        return info.num_frames, info.size
    if kind != "folder":
        clip = read_segmentation(path, labels=labels)
        return clip.num_frames, clip.size
    series = list_series(path, (*IMAGE_SUFFIXES, *ARRAY_SUFFIXES), what="segmentation frames")
    tables = _tables(path, labels, series)
    first = Series(files=series.files[:1], numbers=series.numbers[:1])
    return len(series.files), _read_series(path, first, tables and tables[:1]).size


def first_frame_notes(
    path: Path, labels: str | Path | Mapping[Any, Any] | None = None
) -> tuple[str, ...]:
    """What there is to say about the colours of a video, such as the share of pixels that had to be
    snapped, by its first frame."""
    return _read_video(path, _one_table(labels), max_frames=1).notes


# ---------------------------------------------------------------------------- tables


def _one_table(labels: str | Path | Mapping[Any, Any] | None) -> LabelTable | None:
    """One table for the whole clip; per-frame tables are merged."""
    if labels is None:
        return None
    if isinstance(labels, Mapping):
        return parse_labels(labels, where="labels")
    if str(labels).lower().startswith("carla") and not Path(labels).exists():
        return carla_labels(str(labels).lower())
    path = Path(labels)
    if path.is_dir() or is_pattern(path):
        _, tables = read_label_folder(path)
        return tuple(dict.fromkeys(chain.from_iterable(tables)))
    return read_labels(path)


def _tables(
    path: Path, labels: str | Path | Mapping[Any, Any] | None, series: Series
) -> tuple[LabelTable, ...] | None:
    """One table for all frames (a tuple of one) or one per frame."""
    if labels is None and path.is_dir() and any(path.glob("*.json")):
        labels = path
    if labels is None:
        return None
    folder = None if isinstance(labels, Mapping) else Path(labels)
    if folder is None or not (folder.is_dir() or is_pattern(folder)):
        table = _one_table(labels)
        assert table is not None
        return (table,)
    label_series, tables = read_label_folder(folder)
    if len(tables) == 1:
        return tables
    if len(tables) != len(series.files):
        raise ShapeError(
            explain(
                str(folder),
                expected=f"one label table for each of the {len(series.files)} frames",
                got=f"{len(tables)}",
                do="Give one table for all frames, or one per frame.",
            )
        )
    if label_series.numbers and series.numbers and label_series.numbers != series.numbers:
        raise ShapeError(
            explain(
                str(folder),
                expected=f"label tables numbered like the frames, {series.numbers[0]} to "
                f"{series.numbers[-1]}",
                got=f"{label_series.numbers[0]} to {label_series.numbers[-1]}",
                do="Give the tables that belong to these frames.",
            )
        )
    return tables


# ---------------------------------------------------------------------------- ids


def _from_array_file(
    path: Path, array: Array, tables: tuple[LabelTable, ...] | None
) -> SegmentationClip:
    if array.ndim in {3, 4} and array.shape[-1] in {3, 4} and array.dtype == np.uint8:
        frames = array if array.ndim == 4 else array[None]
        return _ColorReader(path, tables, lossless=True).read(iter(frames))
    if tables is not None and len(tables) > 1:
        clip = segmentation_from_array(array, where=str(path))
        return _read_ids(path, iter(clip.ids), tables)
    return segmentation_from_array(
        array, names=_id_names(path, tables[0]) if tables else None, where=str(path)
    )


def _id_names(path: Path, table: LabelTable) -> dict[int, str]:
    names = {label.id: label.name for label in table if label.id is not None}
    if not names:
        raise ConfigError(
            explain(
                str(path),
                expected="a label table of ids, because the frames hold ids",
                got="a table of colours",
                do="Give the id table, or the coloured pictures.",
            )
        )
    return names


def _read_series(
    path: Path, series: Series, tables: tuple[LabelTable, ...] | None
) -> SegmentationClip:
    first, frames = _first_of(path, _series_pixels(series.files))
    if first.ndim == 2:
        return _read_ids(path, frames, tables)
    if first.ndim == 3 and first.shape[-1] in {3, 4}:
        return _ColorReader(path, tables, lossless=not _is_jpeg(series.files[0])).read(frames)
    raise _not_ids(str(path), first)


def _first_of(path: Path, frames: Iterator[Array]) -> tuple[Array, Iterator[Array]]:
    """The first frame, and all of them again."""
    first = next(frames, None)
    if first is None:
        raise no_frames(path)
    return first, chain([first], frames)


def _is_jpeg(path: Path) -> bool:
    return path.suffix.lower() in {".jpg", ".jpeg"}


def _series_pixels(files: Iterable[Path]) -> Iterator[Array]:
    for file in files:
        pixels = read_array(file) if file.suffix.lower() in ARRAY_SUFFIXES else read_picture(file)
        if pixels.ndim == 3 and pixels.shape[-1] == 2:
            pixels = pixels[..., 0]
        if pixels.ndim == 3 and pixels.shape[-1] == 1:
            pixels = pixels[..., 0]
        yield pixels


def _read_ids(
    path: Path, frames: Iterator[Array], tables: tuple[LabelTable, ...] | None
) -> SegmentationClip:
    """Frames of ids; where the tables disagree from frame to frame, ids are renumbered by name."""
    if tables is None or len(tables) == 1:
        ids = _stacked(path, frames)
        names = _id_names(path, tables[0]) if tables else None
        return _from_ids(ids, names, str(path))
    by_frame = [_id_names(path, table) for table in tables]
    numbers = _numbers_by_name(by_frame)
    renumbered: list[Array] = []
    for frame, names in zip(frames, by_frame, strict=True):
        present, inverse = np.unique(frame, return_inverse=True)
        new = [numbers[names.get(int(i), UNLABELLED)] for i in present]
        renumbered.append(np.array(new, dtype=np.int32)[inverse].reshape(frame.shape))
    ids = _stacked(path, iter(renumbered))
    return SegmentationClip(ids=ids, names={i: name for name, i in numbers.items()})


def _numbers_by_name(by_frame: Sequence[Mapping[int, str]]) -> dict[str, int]:
    """Each name's first id where ids never change their meaning; otherwise 1, 2, ... by name."""
    meaning: dict[int, set[str]] = {}
    for names in by_frame:
        for i, name in names.items():
            meaning.setdefault(i, set()).add(name)
    numbers: dict[str, int] = {}
    if all(len(found) == 1 for found in meaning.values()):
        for i in sorted(meaning):
            numbers.setdefault(next(iter(meaning[i])), i)
        free = 0 if 0 not in numbers.values() else max(numbers.values()) + 1
        numbers.setdefault(UNLABELLED, free)
    else:
        found = sorted(set().union(*meaning.values()) - {UNLABELLED})
        numbers = {UNLABELLED: 0} | {name: i for i, name in enumerate(found, start=1)}
    return numbers


def _merged(ids: Int32[np.ndarray, "f h w"], names: dict[int, str]) -> SegmentationClip:
    """Give ids that share a name one id: the lowest."""
    lowest: dict[str, int] = {}
    for i in sorted(names):
        lowest.setdefault(names[i], i)
    moved = {i: lowest[name] for i, name in names.items() if lowest[name] != i}
    if moved:
        ids = ids.copy()
        for old, new in moved.items():
            ids[ids == old] = new
    return SegmentationClip(ids=ids, names={i: name for name, i in lowest.items()})


def _stacked(path: Path, frames: Iterator[Array]) -> Array:
    kept: list[Array] = []
    for frame in frames:
        if frame.ndim != 2 or frame.dtype.kind not in "iub":
            raise _not_ids(str(path), frame)
        if kept and frame.shape != kept[0].shape:
            raise ShapeError(
                explain(
                    str(path),
                    expected=f"every frame to be {Size(*kept[0].shape)}, like the first",
                    got=f"{Size(*frame.shape)} at frame {len(kept)}",
                    do="Scale the frames to one size with nearest-neighbour.",
                )
            )
        kept.append(frame)
    if not kept:
        raise _not_ids(str(path), np.empty((0, 0)))
    return np.stack(kept)


def _not_ids(where: str, array: Array) -> ShapeError:
    return ShapeError(
        explain(
            where,
            expected="class ids: whole numbers of shape frames x height x width",
            got=f"shape {array.shape} {array.dtype}",
            do="Save integer ids, or coloured pictures with a label table.",
        )
    )


# ---------------------------------------------------------------------------- colours


def _packed(pixels: Array) -> Array:
    """Colours as whole numbers r + 256 g + 65536 b (+ 2^24 a), which is also Isaac's id layout."""
    packed = pixels[..., 0].astype(np.uint32)
    for channel in range(1, pixels.shape[-1]):
        packed |= pixels[..., channel].astype(np.uint32) << (8 * channel)
    return packed


def _pack(color: Rgba, num_channels: int) -> int:
    return sum(value << (8 * channel) for channel, value in enumerate(color[:num_channels]))


def _unpack(packed: Array) -> Array:
    """``n 3`` colours of packed numbers."""
    return np.stack([packed >> shift & 255 for shift in (0, 8, 16)], axis=-1).astype(np.int32)


_EXACT, _SNAPPED, _UNKNOWN = 0, 1, 2


class _Lookup:
    """Packed colours to ids; colours that are not in the table are settled once and remembered."""

    def __init__(self, pairs: Mapping[int, int], *, snap_all: bool) -> None:
        self.snap_all = snap_all
        self.palette = _unpack(np.array(list(pairs), dtype=np.uint32))
        self.palette_ids = np.array(list(pairs.values()), dtype=np.int32)
        self.colors = np.array(sorted(pairs), dtype=np.uint32)
        self.ids = np.array([pairs[color] for color in sorted(pairs)], dtype=np.int32)
        self.states = np.full(len(pairs), _EXACT, dtype=np.uint8)

    def __call__(self, packed: Array) -> tuple[Array, Array]:
        """The id of every pixel, and whether its colour was exact, snapped or unknown."""
        place = self._place(packed)
        strange = np.unique(packed[self.colors[place] != packed])
        if len(strange):
            self._settle(strange)
            place = self._place(packed)
        return self.ids[place], self.states[place]

    def _place(self, packed: Array) -> Array:
        return np.minimum(np.searchsorted(self.colors, packed), len(self.colors) - 1)

    def _settle(self, strange: Array) -> None:
        nearest, distance = _nearest(_unpack(strange), self.palette)
        near = self.snap_all | (distance <= _SNAP_DISTANCE)
        # Unlabelled is id 0 wherever ids come from colours.
        ids = np.where(near, self.palette_ids[nearest], 0).astype(np.int32)
        states = np.where(near, _SNAPPED, _UNKNOWN).astype(np.uint8)
        order = np.argsort(colors := np.concatenate([self.colors, strange]))
        self.colors = colors[order]
        self.ids = np.concatenate([self.ids, ids])[order]
        self.states = np.concatenate([self.states, states])[order]


class _ColorReader:
    """Coloured frames to ids, by table (one, or one per frame) or by the colours themselves."""

    def __init__(
        self, path: Path, tables: tuple[LabelTable, ...] | None, *, lossless: bool
    ) -> None:
        self.path = path
        self.tables = tables
        self.lossless = lossless
        self.numbers: dict[str, int] = {UNLABELLED: 0}
        self.num_snapped = 0
        self.num_unknown = 0
        self.unknown_examples: dict[int, None] = {}
        if tables is not None:
            found = sorted({label.name for table in tables for label in table} - {UNLABELLED})
            self.numbers |= {name: i for i, name in enumerate(found, start=1)}

    def read(self, frames: Iterator[Array]) -> SegmentationClip:
        """All frames; the first decides how the pixels are meant."""
        first, frames = _first_of(self.path, frames)
        if self.tables is not None:
            decode = self._id_decoder(first)
            if decode is not None:
                return _read_ids(self.path, map(decode, frames), self.tables)
        num_channels = first.shape[-1]
        if self.tables is None:
            ids = _stacked(self.path, (self._own_colors(frame) for frame in frames))
        else:
            lookups = [self._lookup(table, num_channels) for table in self.tables]
            ids = _stacked(
                self.path,
                (
                    self._by_table(frame, lookups[index if len(lookups) > 1 else 0])
                    for index, frame in enumerate(frames)
                ),
            )
        return self._clip(ids)

    def _id_decoder(self, first: Array) -> Any:
        """How to read ids out of colour channels, where the table speaks of ids; None otherwise."""
        assert self.tables is not None
        labels = [label for table in self.tables for label in table]
        if all(label.id is not None for label in labels):
            has_colors = any(label.color is not None for label in labels)
            if has_colors and int(first[..., 1:3].max()) > 0 and not self._has_tags(first):
                return None
            if has_colors:  # CARLA's raw pictures: the tag is in the red channel
                return lambda frame: frame[..., 0].astype(np.int32)
            opaque = first.shape[-1] == 4 and bool((first[..., 3] == 255).all())
            channels = 3 if opaque else first.shape[-1]
            return lambda frame: _packed(frame[..., :channels]).astype(np.int64)
        if any(label.color is None for label in labels):
            raise ConfigError(
                explain(
                    str(self.path),
                    expected="a colour for every class, because the frames are coloured",
                    got=f"none for {next(x.name for x in labels if x.color is None)!r}",
                    do="Complete the label table.",
                )
            )
        return None

    def _has_tags(self, first: Array) -> bool:
        """Whether the pixels are tags with instance numbers beside them, as in CARLA's instance
        segmentation: red holds ids of the table, and the colours are not its colours."""
        assert self.tables is not None
        labels = [label for table in self.tables for label in table]
        if not np.isin(first[..., 0], [label.id for label in labels if label.id is not None]).all():
            return False
        known = [_pack(label.color, 3) for label in labels if label.color is not None]
        has_tags = bool(np.isin(_packed(first[..., :3]), known).mean() < 1 - _MAX_UNKNOWN_SHARE)
        if has_tags:
            log.warning("%s: read as instances: the class is in red", self.path)
        return has_tags

    def _lookup(self, table: LabelTable, num_channels: int) -> _Lookup:
        pairs: dict[int, int] = {}
        for label in table:
            assert label.color is not None
            packed = _pack(label.color, num_channels)
            number = self.numbers[label.name]
            if num_channels == 3 and label.color[3] == 0:
                # An alpha of 0 is Isaac's background: it shares its RGB with opaque black.
                pairs.setdefault(packed, number)
            else:
                pairs[packed] = number
        return _Lookup(pairs, snap_all=not self.lossless)

    def _by_table(self, frame: Array, lookup: _Lookup) -> Array:
        ids, state = lookup(_packed(frame))
        self.num_snapped += int((state == _SNAPPED).sum())
        unknown = state == _UNKNOWN
        if unknown.any():
            self.num_unknown += int(unknown.sum())
            for color in np.unique(_packed(frame)[unknown])[:3].tolist():
                self.unknown_examples.setdefault(color)
        return ids

    def _own_colors(self, frame: Array) -> Array:
        """Each colour its own class, named ``#rrggbb``."""
        packed = _packed(frame[..., :3])
        colors, inverse = np.unique(packed, return_inverse=True)
        if len(colors) > _MAX_COLORS and len(colors) + len(self.numbers) > 4 * _MAX_COLORS:
            raise MediaError(
                explain(
                    str(self.path),
                    expected=f"a segmentation with at most {4 * _MAX_COLORS} colours",
                    got=f"{len(colors)} in one frame",
                    do="Give labels, or check that this is not a photograph.",
                )
            )
        numbers = [
            self.numbers.setdefault("#{:02x}{:02x}{:02x}".format(*rgb), len(self.numbers))
            for rgb in _unpack(colors)
        ]
        return np.array(numbers, dtype=np.int32)[inverse].reshape(packed.shape)

    def _clip(self, ids: Array) -> SegmentationClip:
        notes: list[str] = []
        unknown_share = self.num_unknown / ids.size
        if unknown_share > _MAX_UNKNOWN_SHARE:
            example = tuple(_unpack(np.array(list(self.unknown_examples)[:1]))[0].tolist())
            raise ConfigError(
                explain(
                    str(self.path),
                    expected="colours that the label table knows",
                    got=f"{unknown_share:.0%} of the pixels in others, such as {example}",
                    do="Give the label table that belongs to these pictures.",
                )
            )
        if self.num_unknown:
            examples = ", ".join(
                str(tuple(c)) for c in _unpack(np.array(list(self.unknown_examples)[:3])).tolist()
            )
            notes.append(
                f"{unknown_share:.2%} of the pixels have colours no label names ({examples}); "
                "they are unlabelled"
            )
        snapped = self.num_snapped / ids.size
        if self.num_snapped:
            notes.append(f"{snapped:.2%} of the pixels were snapped to the nearest label colour")
        for note in notes:
            log.warning("%s: %s", self.path, note)
        names = {i: name for name, i in self.numbers.items()}
        present = set(np.unique(ids).tolist())
        if self.tables is None:
            names = {i: name for i, name in names.items() if i in present}
        return SegmentationClip(ids=ids, names=names, snapped_share=snapped, notes=tuple(notes))


def _nearest(colors: Array, palette: Array) -> tuple[Array, Array]:
    """For each colour the index of the nearest palette entry, and the distance to it."""
    best = np.zeros(len(colors), dtype=np.int64)
    least = np.full(len(colors), np.iinfo(np.int64).max)
    for index, entry in enumerate(palette):
        distance = ((colors - entry) ** 2).sum(axis=-1)
        closer = distance < least
        best[closer] = index
        least[closer] = distance[closer]
    return best, np.sqrt(least.astype(np.float64))


# ---------------------------------------------------------------------------- video


def _read_video(
    path: Path, table: LabelTable | None, *, max_frames: int | None = None
) -> SegmentationClip:
    info = stream_info(path)
    lossless = info.codec in _LOSSLESS or (info.codec == "h264" and info.pixel_format == "gbrp")
    notes: list[str] = []
    if table is None:
        if lossless:
            frames = islice(_video_frames(path), max_frames)
            return _ColorReader(path, None, lossless=True).read(frames)
        table = _found_palette(path)
    _check_coloured(path, table)
    if not lossless:
        notes += _near_colors(table)
    # A palette video has no transparency: background and unlabelled black are one colour.
    frames = islice(_video_frames(path), max_frames)
    clip = _ColorReader(path, (table,), lossless=lossless).read(frames)
    for note in notes:
        log.warning("%s: %s", path, note)
    return SegmentationClip(
        ids=clip.ids,
        names=clip.names,
        snapped_share=clip.snapped_share,
        notes=(*clip.notes, *notes),
    )


def _check_coloured(path: Path, table: LabelTable) -> None:
    if any(label.color is None for label in table):
        raise ConfigError(
            explain(
                str(path),
                expected="a label table of colours, because the frames are a coloured video",
                got="a table of ids",
                do="Give class colours, or the id pictures instead of the video.",
            )
        )


def _video_frames(path: Path) -> Iterator[Array]:
    for frame in decode_video(path, "rgb24"):
        assert frame.pixels is not None
        yield frame.pixels


def _near_colors(table: LabelTable) -> list[str]:
    """A note where two classes are too alike to survive lossy compression."""
    colors = np.array([label.color[:3] for label in table if label.color], dtype=np.int32)
    named = [label.name for label in table]
    if len(colors) < 2:
        return []
    distance = np.sqrt(((colors[:, None] - colors[None]) ** 2).sum(-1).astype(np.float64))
    distance[np.tril_indices(len(colors))] = np.inf
    first, second = np.unravel_index(int(distance.argmin()), distance.shape)
    near = int((distance < _SAFE_DISTANCE).sum())
    if not near:
        return []
    return [
        f"{near} pairs of classes have colours too alike for a lossy video (closest: "
        f"{named[int(first)]} and {named[int(second)]}); give the pictures as PNG or FFV1"
    ]


def _found_palette(path: Path) -> LabelTable:
    """The colours a lossy video was drawn in: the peaks of its colour histogram."""
    counts: dict[int, int] = {}
    cells: dict[int, int] = {}
    total = 0
    for index, frame in enumerate(_video_frames(path)):
        if index & (index - 1) and index % 32:
            continue
        # Blends along borders are no classes: only flat surroundings count.
        steps = cv2.morphologyEx(frame, cv2.MORPH_GRADIENT, np.ones((3, 3), np.uint8))
        total += frame.shape[0] * frame.shape[1]
        packed = _packed(frame)[steps.max(-1) <= _FLAT_STEP]
        for color, count in zip(
            *(a.tolist() for a in np.unique(packed, return_counts=True)), strict=True
        ):
            counts[color] = counts.get(color, 0) + count
    colors = np.array(list(counts), dtype=np.uint32)
    weight = np.array(list(counts.values()), dtype=np.int64)
    cell = _packed(_unpack(colors) // _CELL)
    for place, value in zip(cell.tolist(), weight.tolist(), strict=True):
        cells[place] = cells.get(place, 0) + value
    rgb = _unpack(colors)
    palette: list[Array] = []
    for place in sorted(cells, key=lambda c: -cells[c]):
        if cells[place] < _MIN_SHARE * total / 8:
            break
        inside = cell == place
        color = np.average(rgb[inside], axis=0, weights=weight[inside]).round()
        if any(np.linalg.norm(color - other) < _MERGE_DISTANCE for other in palette):
            continue
        distance = ((rgb - color) ** 2).sum(-1)
        core = weight[distance <= _CELL**2].sum()
        # A class is a peak; the shading of a filmed thing is a slope.
        if core < _MIN_SHARE * total or core < 0.5 * weight[distance <= _MERGE_DISTANCE**2].sum():
            continue
        palette.append(color)
        if len(palette) > _MAX_COLORS:
            raise MediaError(
                explain(
                    str(path),
                    expected=f"a segmentation drawn in at most {_MAX_COLORS} colours",
                    got="more",
                    do="Give labels, or check that this is not a photograph.",
                )
            )
    if not palette:
        raise MediaError(
            explain(
                str(path),
                expected="a segmentation drawn in flat colours",
                got="no colour that fills an area",
                do="Give labels, or check that this is not a photograph.",
            )
        )
    found = [tuple(int(v) for v in color) for color in palette]
    return tuple(
        Label(name="#{:02x}{:02x}{:02x}".format(*rgb), color=(rgb[0], rgb[1], rgb[2], 255))
        for rgb in found
    )
