"""Isaac Sim's Replicator: BasicWriter folders and CosmosWriter clips.

BasicWriter puts every annotator into one folder, or into one folder each below a render product:
``rgb_0000.png``, ``distance_to_image_plane_0000.npy`` (metres along the axis),
``distance_to_camera_0000.npy`` (metres to the camera's centre), ``semantic_segmentation_0000.png``
with ``semantic_segmentation_labels_0000.json``, ``camera_params_0000.json``. Numbers may start
anywhere.

CosmosWriter's ``clip_0000`` holds folders of pictures: ``rgb``, ``shaded_seg``, ``segmentation``,
``depth`` (8-bit, near is bright: not metric) and ``edges``.

Source:
    Replicator documentation, BasicWriter; IsaacSim sources, CosmosWriter.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cosmos_transfer.errors import MediaError, explain
from cosmos_transfer.inputs.json_files import read_json
from cosmos_transfer.inputs.simulators.scene import SimulatorScene, first_that_exists

_RGB = "rgb"
_PLANAR = "distance_to_image_plane"
_RAY = "distance_to_camera"
_SEMANTIC = "semantic_segmentation"


def is_basic_writer(path: Path) -> bool:
    """Whether a folder is one render product of BasicWriter."""
    return path.is_dir() and any(
        _annotator(path, name, suffix) is not None
        for name, suffix in ((_SEMANTIC, "png"), (_PLANAR, "npy"), (_RAY, "npy"))
    )


def open_basic_writer(path: Path) -> SimulatorScene:
    """A render product of BasicWriter."""
    controls: dict[str, dict[str, Any]] = {}
    if (planar := _annotator(path, _PLANAR, "npy")) is not None:
        controls["depth"] = {"path": planar, "unit": "m"}
    elif (ray := _annotator(path, _RAY, "npy")) is not None:
        controls["depth"] = {
            "path": ray,
            "unit": "m",
            "kind": "ray",
            "intrinsics": _intrinsics(path),
        }
    if (semantic := _annotator(path, _SEMANTIC, "png")) is not None:
        labels = semantic.with_name(f"{_SEMANTIC}_labels_*.json")
        has_labels = any(labels.parent.glob(labels.name))
        controls["seg"] = {"path": semantic} | ({"labels": labels} if has_labels else {})
    return SimulatorScene(
        tool="isaac", path=path, video=_annotator(path, _RGB, "png"), controls=controls
    )


def is_cosmos_writer(path: Path) -> bool:
    """Whether a folder is one clip of CosmosWriter."""
    return (path / "shaded_seg").exists() or (
        (path / "segmentation").is_dir() and (path / "edges").exists()
    )


def open_cosmos_writer(path: Path) -> SimulatorScene:
    """A clip of CosmosWriter."""
    controls: dict[str, dict[str, Any]] = {}
    if (depth := first_that_exists(path, "depth", "depth.mp4")) is not None:
        controls["depth"] = {"path": depth, "unit": "relative"}
    if (edge := first_that_exists(path, "edges", "edges.mp4")) is not None:
        controls["edge"] = {"path": edge}
    if (seg := first_that_exists(path, "segmentation", "segmentation.mp4")) is not None:
        mapping = first_that_exists(path, "segmentation_mapping.json", "segmentation/mapping.json")
        controls["seg"] = {"path": seg} | ({} if mapping is None else {"labels": mapping})
    return SimulatorScene(
        tool="cosmos",
        path=path,
        video=first_that_exists(path, "rgb", "rgb.mp4"),
        controls=controls,
    )


def _annotator(path: Path, name: str, suffix: str) -> Path | None:
    """The glob of one annotator's files, in the folder itself or in one of its name."""
    for folder in (path, path / name):
        # Digits only: semantic_segmentation_labels_0000 is another annotator's.
        if folder.is_dir() and any(folder.glob(f"{name}_[0-9]*.{suffix}")):
            return folder / f"{name}_[0-9]*.{suffix}"
    return None


def _intrinsics(path: Path) -> tuple[float, float, float, float]:
    """Focal lengths and centre in pixels, from the first frame's ``camera_params``."""
    pattern = _annotator(path, "camera_params", "json")
    if pattern is None:
        raise MediaError(
            explain(
                str(path),
                expected="camera_params_0000.json beside distance_to_camera",
                got="none",
                do="Record camera_params too, or distance_to_image_plane instead.",
            )
        )
    file = min(pattern.parent.glob(pattern.name))
    params = read_json(file, what="camera parameters")
    try:
        width, height = (float(each) for each in params["renderProductResolution"])
        aperture_x, aperture_y = (float(each) for each in params["cameraAperture"])
        focal = float(params["cameraFocalLength"])
        offset_x, offset_y = (float(each) for each in params.get("cameraApertureOffset", (0, 0)))
        fx, fy = width * focal / aperture_x, height * focal / aperture_y
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise MediaError(
            explain(
                str(file),
                expected="cameraFocalLength, cameraAperture and renderProductResolution",
                got=f"something else ({' '.join(str(error).split())})",
                do="Give the file as Replicator wrote it.",
            )
        ) from error
    return (
        fx,
        fy,
        width * (0.5 + offset_x / aperture_x),
        height * (0.5 + offset_y / aperture_y),
    )
