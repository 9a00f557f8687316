"""Arrays of MuJoCo's renderer.

``mujoco.Renderer`` gives RGB (h w 3, uint8), depth in metres along the axis (h w, float32; the
background is at ``zfar * extent``) and segmentation (h w 2, int32: object id and object type; the
background is -1, -1), all upright. :func:`scene_from_arrays` takes them as they are; a ``.npz``
with the same names is a recording.

Raw OpenGL buffers, which older tools keep, run from the bottom up (``flip``) and hold depth from 0
at the near plane to 1 at the far one: with ``planes`` they become metres.

Source:
    MuJoCo documentation, ``mujoco.Renderer``.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from cosmos_transfer.errors import ShapeError, explain
from cosmos_transfer.inputs.media import read_arrays
from cosmos_transfer.inputs.simulators.scene import SimulatorScene

GEOM = 5
"""``mjOBJ_GEOM``: what the renderer tells apart unless asked otherwise."""
# Times of a simulation are sums of its step: this is far below any, and far above their rounding.
_MICROSECOND = 1_000_000
_PLANES = ("znear", "zfar", "extent")


def scene_from_arrays(
    *,
    rgb: np.ndarray | None = None,
    depth: np.ndarray | None = None,
    segmentation: np.ndarray | None = None,
    names: Mapping[int, str] | None = None,
    times: np.ndarray | None = None,
    flip: bool = False,
    planes: tuple[float, float, float] | None = None,
    path: Path = Path("arrays"),
) -> SimulatorScene:
    """A scene from what ``mujoco.Renderer`` returned, frame by frame stacked.

    Args:
        rgb: Colours, uint8, f h w 3.
        depth: Metres, float, f h w.
        segmentation: Object id and type, signed integers, f h w 2.
        names: Class name by geom id: ``{i: model.geom(i).name for i in range(model.ngeom)}``.
        times: ``data.time`` of every frame in seconds, f.
        flip: Turn pictures upside down, as raw OpenGL buffers need.
        planes: ``znear``, ``zfar`` and ``stat.extent`` of the model, where ``depth`` is a buffer in
            [0, 1] instead of metres.
        path: What errors call the arrays.

    Raises:
        ShapeError: Arrays of different lengths, or a segmentation without its two channels.
    """
    lengths = {
        name: len(array)
        for name, array in (
            ("rgb", rgb),
            ("depth", depth),
            ("segmentation", segmentation),
            ("times", times),
        )
        if array is not None
    }
    if len(set(lengths.values())) != 1:
        raise ShapeError(
            explain(
                str(path),
                expected="rgb, depth, segmentation and times of one length",
                got=", ".join(f"{name} {length}" for name, length in lengths.items()) or "nothing",
                do="Keep one of each for every frame.",
            )
        )
    step = -1 if flip else 1
    controls: dict[str, dict[str, Any]] = {}
    if depth is not None:
        controls["depth"] = {"clip": depth[:, ::step], "unit": "m"}
        if planes is not None:
            names_of = ("near", "far", "extent")
            controls["depth"] |= {"unit": "mujoco01", **dict(zip(names_of, planes, strict=True))}
    if segmentation is not None:
        ids = _geom_ids(segmentation, path)[:, ::step]
        table = {0: "background"} | {
            int(number) + 1: str(name) or f"geom_{number}" for number, name in (names or {}).items()
        }
        controls["seg"] = {"clip": ids, "labels": table}
    exact = _exact_times(times)
    return SimulatorScene(
        tool="mujoco",
        path=path,
        video=None if rgb is None else rgb[:, ::step],
        controls=controls,
        times=exact,
        rate=None if exact is None or len(exact) < 2 else (len(exact) - 1) / exact[-1],
    )


def is_recording(path: Path) -> bool:
    """Whether a file is a ``.npz``, which no other simulator writes."""
    return path.is_file() and path.suffix.lower() == ".npz"


def open_recording(path: Path) -> SimulatorScene:
    """A ``.npz`` with ``rgb``, ``depth``, ``segmentation``, ``names`` by geom id, ``times``; with
    ``znear``, ``zfar`` and ``extent`` where depth is a buffer, and ``flip`` where rows run from the
    bottom up.

    Raises:
        ShapeError: Some of the planes without the others.
    """
    found = read_arrays(path)
    names = found.get("names")
    planes = [float(found[each]) for each in _PLANES if each in found]
    if planes and len(planes) != len(_PLANES):
        raise ShapeError(
            explain(
                str(path),
                expected=f"{', '.join(_PLANES)}, or none of them",
                got=", ".join(each for each in _PLANES if each in found),
                do="Keep model.vis.map.znear, model.vis.map.zfar and model.stat.extent.",
            )
        )
    return scene_from_arrays(
        rgb=found.get("rgb"),
        depth=found.get("depth"),
        segmentation=found.get("segmentation"),
        names=None if names is None else dict(enumerate(names.tolist())),
        times=found.get("times"),
        flip=bool(found.get("flip", False)),
        planes=(planes[0], planes[1], planes[2]) if planes else None,
        path=path,
    )


def _geom_ids(segmentation: np.ndarray, path: Path) -> np.ndarray:
    """One id a pixel: geom id + 1, 0 for the background and for whatever is no geom."""
    if segmentation.ndim != 4 or segmentation.shape[-1] != 2 or segmentation.dtype.kind != "i":
        raise ShapeError(
            explain(
                f"{path}, segmentation",
                expected="signed integers of shape frames x height x width x 2 (id, type)",
                got=f"shape {segmentation.shape} {segmentation.dtype}",
                do="Stack what the renderer returns with segmentation rendering enabled.",
            )
        )
    numbers, kinds = segmentation[..., 0], segmentation[..., 1]
    return np.where(kinds == GEOM, numbers + 1, 0).astype(np.int32)


def _exact_times(times: np.ndarray | None) -> tuple[Fraction, ...] | None:
    if times is None:
        return None
    ticks = np.rint((times - times[0]) * _MICROSECOND).astype(np.int64)
    return tuple(Fraction(int(tick), _MICROSECOND) for tick in ticks)
