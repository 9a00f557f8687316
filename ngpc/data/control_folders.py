"""A rendered clip with its controls, in the layout that ``cosmos-transfer`` reads as a scene::

    DIR/
      rgb/0000.png ...   the clip
      depth.npy          f h w float32, metres along the camera's axis; 0 where there is none
      seg.npy            f h w uint8 ids, where the scene has labels
      scene.json         rate, times, how depth is meant, the labels' names

Everything is written beside its place and moved there at the end.
"""

from __future__ import annotations

import io
import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from ngpc.data.images import replace_file, write_image
from ngpc.errors import MediaError, explain
from ngpc.geometry.cameras import Intrinsics

BACKGROUND = "background"  # the name of id 0


def write_control_folder(
    folder: Path,
    *,
    rgb_srgb: Sequence[Float[np.ndarray, "h w 3"]],
    depth_m: Sequence[Float[np.ndarray, "h w"]],
    ids: Sequence[Int[np.ndarray, "h w"]] | None,
    labels: Mapping[int, str],
    intrinsics: Intrinsics,
    rate: Fraction,
    overwrite: bool = False,
) -> Path:
    """Write a clip and its controls; the folder appears complete or not at all.

    Args:
        folder: Where to; parents are made.
        rgb_srgb: Frames in [0, 1].
        depth_m: Their depths; 0 is unknown.
        ids: Their ids, or None for a scene without labels.
        labels: Names of the ids; 0 is the background.
        intrinsics: Of the camera, the same for all frames.
        rate: Frames per second.
        overwrite: Whether a folder that is there is replaced.

    Raises:
        MediaError: it exists, or cannot be written.
    """
    refuse_existing(folder, overwrite=overwrite)
    settings: dict[str, Any] = {
        "rate": str(rate),
        "times": [str(index / rate) for index in range(len(rgb_srgb))],
        "depth": {
            "unit": "m",
            "kind": "planar",
            "invalid": [0],
            "intrinsics": [
                intrinsics.focal_x,
                intrinsics.focal_y,
                intrinsics.centre_x,
                intrinsics.centre_y,
            ],
        },
    }
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as place:
        made = Path(place) / folder.name
        for index, frame in enumerate(rgb_srgb):
            write_image(made / "rgb" / f"{index:04d}.png", frame)
        _write_array(made / "depth.npy", np.stack(depth_m).astype(np.float32))
        if ids is not None:
            _write_array(made / "seg.npy", np.stack(ids).astype(np.uint8))
            names = {0: BACKGROUND, **labels}
            settings["seg"] = {"labels": {str(key): name for key, name in names.items()}}
        replace_file(made / "scene.json", (json.dumps(settings, indent=1) + "\n").encode())
        if folder.exists():
            shutil.rmtree(folder)
        made.rename(folder)
    return folder


def refuse_existing(folder: Path, *, overwrite: bool) -> None:
    """Refuse a folder that is there, and always one that no run of ours has written.

    Raises:
        MediaError: it exists and is not to be replaced, or holds something else.
    """
    if not folder.exists():
        return
    is_ours = folder.is_dir() and (folder / "scene.json").is_file()
    if not overwrite or not is_ours:
        raise MediaError(
            explain(
                str(folder),
                expected="a folder that does not exist" if is_ours else "no folder, or a scene",
                got="one that exists" if is_ours else "something else of that name",
                do="Choose another folder" + (" or add --overwrite." if is_ours else "."),
            )
        )


def _write_array(path: Path, values: np.ndarray) -> None:
    buffer = io.BytesIO()
    np.save(buffer, values, allow_pickle=False)
    replace_file(path, buffer.getvalue())
