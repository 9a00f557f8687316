"""What can be worked on: uploaded clips, built-in scenes, recordings of a simulator.

A source is a folder under ``inputs`` with its files and a ``source.json``: what a request says of
it. It is found by its id, which is no path: whatever else comes is refused.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import av
import yaml

from cosmos_transfer.errors import ConfigError, MediaError, TransferError, explain
from cosmos_transfer.inputs.request import CONTROL_NAMES, request_from_mapping
from cosmos_transfer.inputs.segmentation import read_segmentation
from cosmos_transfer.inputs.simulators import open_scene
from cosmos_transfer.inputs.validate import check_request
from cosmos_transfer.inputs.video import file_sha256
from cosmos_transfer.outputs.writer import slug
from cosmos_transfer.shapes import Size

SOURCE_FILE = "source.json"
_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,99}")
_MEGABYTE = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The largest clip that the app takes."""

    size_bytes: int = 200 * _MEGABYTE
    duration_s: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A clip and the controls that come with it; ``fields`` are those of a request."""

    id: str
    title: str
    fields: Mapping[str, Any]
    num_frames: int
    height: int
    width: int
    rate: float
    classes: tuple[str, ...]

    @property
    def controls(self) -> tuple[str, ...]:
        """The controls there can be: those that came with it, and what is found in its frames."""
        given = self.fields["controls"]
        found = () if self.fields.get("video") is None else ("edge", "vis")
        return tuple(name for name in CONTROL_NAMES if name in given or name in found)


def load_source(inputs: Path, source_id: str) -> Source:
    """The source of that id.

    Raises:
        ConfigError: There is none; a path is none either.
    """
    path = inputs / str(source_id) / SOURCE_FILE
    if not _ID.fullmatch(str(source_id)) or not path.is_file():
        raise ConfigError(
            explain(
                "clip",
                expected="one that was loaded here",
                got=repr(str(source_id)[:60]) if source_id else "none",
                do="Load a clip first.",
            )
        )
    values = json.loads(path.read_text(encoding="utf-8"))
    return Source(**{**values, "classes": tuple(values["classes"])})


def upload_source(inputs: Path, upload: Path, limits: Limits) -> Source:
    """Take in an uploaded file; the same content is the same source.

    Raises:
        TransferError: It is empty, too large, too long, or nothing that decodes.
    """
    check_upload(upload, limits)
    source_id = f"clip-{file_sha256(upload)[:16]}"
    folder = inputs / source_id
    if (folder / SOURCE_FILE).is_file():
        return load_source(inputs, source_id)
    kept = folder / f"video{upload.suffix.lower()}"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(upload, kept)
    try:
        return _write(folder, upload.stem[:60], {"video": str(kept), "controls": {}})
    except TransferError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise _about_upload(error, kept, upload) from error


def check_upload(upload: Path, limits: Limits) -> None:
    """Refuse a file by its size and by the duration its header says, before it is decoded."""
    size = upload.stat().st_size
    if size == 0:
        raise MediaError(
            explain(upload.name, expected="a clip", got="an empty file", do="Upload it again.")
        )
    if size > limits.size_bytes:
        raise MediaError(
            explain(
                upload.name,
                expected=f"at most {limits.size_bytes / _MEGABYTE:g} MB",
                got=f"{size / _MEGABYTE:.0f} MB",
                do="Cut it shorter, or use the command line.",
            )
        )
    try:
        with av.open(str(upload)) as container:
            duration_s = (container.duration or 0) / av.time_base
    except (av.FFmpegError, OSError, ValueError):
        return  # a picture or an array, or nothing: the reader says which
    if duration_s > limits.duration_s:
        raise MediaError(
            explain(
                upload.name,
                expected=f"at most {limits.duration_s:g} seconds",
                got=f"{duration_s:.0f}",
                do="Cut it shorter, or use the command line.",
            )
        )


def builtin_source(inputs: Path, family: str, *, size: Size, num_frames: int) -> Source:
    """A procedural scene with its depth and its segmentation; rendered the first time."""
    from cosmos_transfer.cli.demo_inputs import SCENES, write_demo_scene

    scene = next((each for each in SCENES if each.family == family), None)
    if scene is None:
        raise ConfigError(
            explain(
                "scene",
                expected=f"one of {', '.join(each.family for each in SCENES)}",
                got=repr(str(family)[:60]),
                do="Choose one of them.",
            )
        )
    source_id = f"scene-{family}-{size.height}x{size.width}x{num_frames}"
    folder = inputs / source_id
    if (folder / SOURCE_FILE).is_file():
        return load_source(inputs, source_id)
    spec = write_demo_scene(scene, folder, size=size, num_frames=num_frames)
    first = yaml.safe_load(spec.read_text(encoding="utf-8"))[0]
    controls = {}
    for name, given in first["controls"].items():
        values = {k: v for k, v in given.items() if k not in ("weight", "mask")}
        for key in ("path", "labels"):
            if key in values:
                values[key] = str(folder / values[key])
        controls[name] = values
    fields = {"video": str(folder / first["video"]), "controls": controls}
    return _write(folder, f"{family.capitalize()} scene", fields)


def recorded_source(inputs: Path, recordings: Path | None, name: str) -> Source:
    """A simulator's recording out of the folder that the app was started with."""
    known = recording_names(recordings)
    if recordings is None or name not in known:
        raise ConfigError(
            explain(
                "recording",
                expected=f"one of {', '.join(known)}" if known else "a folder of recordings",
                got=repr(str(name)[:60]),
                do="Start the app with --recordings FOLDER." if not known else "Choose one.",
            )
        )
    fields = open_scene(recordings / name).request_fields()
    plain = json.loads(json.dumps(fields, default=str))
    folder = inputs / f"recording-{slug(name)}"
    folder.mkdir(parents=True, exist_ok=True)
    return _write(folder, name, {"video": None, **plain})


def recording_names(recordings: Path | None) -> tuple[str, ...]:
    """The recordings there are."""
    if recordings is None:
        return ()
    return tuple(
        sorted(
            each.name
            for each in recordings.iterdir()
            if each.is_dir() or each.suffix.lower() == ".npz"
        )
    )


def _write(folder: Path, title: str, fields: Mapping[str, Any]) -> Source:
    quiet = {name: {**given, "weight": 0.25} for name, given in fields["controls"].items()}
    request = request_from_mapping({**fields, "controls": quiet, "prompt": ""})
    checked = check_request(request)
    seg = next((each for each in request.controls if each.name == "seg"), None)
    classes: tuple[str, ...] = ()
    if seg is not None and seg.path is not None:
        found = read_segmentation(seg.path, labels=seg.labels)
        classes = tuple(sorted(set(found.names.values())))
    source = Source(
        id=folder.name,
        title=title,
        fields=fields,
        num_frames=checked.num_frames,
        height=checked.size.height,
        width=checked.size.width,
        rate=float(checked.rate),
        classes=classes,
    )
    unfinished = folder / f".{SOURCE_FILE}"
    unfinished.write_text(json.dumps(asdict(source)), encoding="utf-8")
    os.replace(unfinished, folder / SOURCE_FILE)
    return source


def _about_upload(error: TransferError, kept: Path, upload: Path) -> TransferError:
    """The same error, about the file as its owner calls it."""
    return type(error)(str(error).replace(str(kept), upload.name))
