"""What the page does, as plain functions: values of the page in, plain values out.

Nothing here knows Gradio. A user's mistake is a :class:`TransferError` with one sentence.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import secrets
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32, UInt8

from apps.studio import masks, sources, worker
from apps.studio.sources import Limits, Source
from cosmos_transfer.controls.registry import prepare_control
from cosmos_transfer.errors import ConfigError, explain
from cosmos_transfer.inputs.request import CONTROL_NAMES, GenerationRequest, request_from_mapping
from cosmos_transfer.inputs.segmentation import SegmentationClip, read_segmentation
from cosmos_transfer.inputs.validate import check_request
from cosmos_transfer.inputs.video import VideoClip, read_clip
from cosmos_transfer.jobs.looks import read_look
from cosmos_transfer.jobs.manifest import MANIFEST_NAME, Item, Manifest, Row
from cosmos_transfer.outputs.writer import slug
from cosmos_transfer.shapes import Size
from cosmos_transfer.weights.maps import WeightMaps, open_weight_maps

EVERYWHERE, PAINTED, CLASSES = "everywhere", "painted", "classes"
WHERE = (EVERYWHERE, PAINTED, CLASSES)
PRESETS = ("very_low", "low", "medium", "high", "very_high")
SHOWN_SIDE = 480
"""Longer side, in pixels, of what the page shows of a clip; weights and masks are shown on it."""
MAX_VARIANTS = 8
MAX_FRAMES = 257
LOST = "its process died while it was made"


@dataclass(frozen=True, slots=True, kw_only=True)
class Studio:
    """Where the app keeps things, what it takes, and which model runs."""

    root: Path
    model: Mapping[str, Any]  # arguments of TransferPipeline.from_pretrained
    recordings: Path | None = None
    limits: Limits = field(default_factory=Limits)

    @property
    def inputs(self) -> Path:
        """What was loaded."""
        return self.root / "inputs"

    @property
    def results(self) -> Path:
        """Finished clips, their records and specs: all that the page may serve."""
        return self.root / "results"

    @property
    def manifest(self) -> Manifest:
        """The queue; made where there is none."""
        return Manifest(self.root / MANIFEST_NAME, create=True)

    @property
    def checkpoint(self) -> str:
        """The checkpoint that runs."""
        return str(self.model.get("name_or_path", "embedded"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """How one control acts, as the page says it."""

    weight: float = 0.0
    where: str = EVERYWHERE
    classes: tuple[str, ...] = ()  # "robot 1.0", "table 0.3"
    start: float = 1.0  # factor of the weight in the first frame
    end: float = 1.0  # and in the last
    preset: str = "medium"
    mask: str | None = None  # id of a painted mask


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What to make of it; None is the checkpoint's own."""

    prompt: str
    looks: tuple[str, ...] = ()
    seed: int = 0
    steps: int | None = None
    guidance: float | None = None
    variants: int = 1
    frames: int | None = None


# ------------------------------------------------------------------------------------- what goes in


def load_upload(studio: Studio, path: str | Path | None) -> Source:
    """Take in an uploaded clip."""
    if path is None:
        raise ConfigError(
            explain("clip", expected="a file", got="none", do="Choose a clip to upload.")
        )
    return sources.upload_source(studio.inputs, Path(path), studio.limits)


def load_scene(studio: Studio, name: str) -> Source:
    """A built-in scene at the checkpoint's own size, or a recording."""
    if name in sources.recording_names(studio.recordings):
        return sources.recorded_source(studio.inputs, studio.recordings, name)
    size, num_frames = native_shape(studio.checkpoint)
    return sources.builtin_source(studio.inputs, name, size=size, num_frames=num_frames)


def scene_names(studio: Studio) -> tuple[str, ...]:
    """The built-in scenes, then the recordings."""
    from cosmos_transfer.cli.demo_inputs import SCENES

    return (
        *(each.family for each in SCENES),
        *sources.recording_names(studio.recordings),
    )


@lru_cache(maxsize=4)
def native_shape(checkpoint: str) -> tuple[Size, int]:
    """Size and length that a checkpoint was trained at."""
    from cosmos_transfer.model.checkpoint import checkpoint_info

    info = checkpoint_info(checkpoint)
    return info.native_size, info.native_frames


def find_source(studio: Studio, source_id: str) -> Source:
    """The source of that id."""
    return sources.load_source(studio.inputs, source_id)


# ------------------------------------------------------------------------------- what it looks like


def shown_size(source: Source) -> Size:
    """The size at which the page shows a clip."""
    scale = min(1.0, SHOWN_SIDE / max(source.height, source.width))
    return Size(max(2, round(source.height * scale)), max(2, round(source.width * scale)))


@lru_cache(maxsize=8)
def _shown_clip(path: str, size: Size) -> VideoClip:
    return read_clip(path, max_frames=MAX_FRAMES, size=size)


@lru_cache(maxsize=8)
def _shown_control(
    studio_inputs: Path, source_id: str, name: str, preset: str
) -> UInt8[np.ndarray, "f h w 3"]:
    source = sources.load_source(studio_inputs, source_id)
    size = shown_size(source)
    clip = None if source.fields.get("video") is None else _shown_clip(source.fields["video"], size)
    choices = {name: Choice(weight=1.0, preset=preset)}
    control = _request(source, choices, {"prompt": ""}).controls[0]
    prepared = prepare_control(
        control,
        clip,
        size=size,
        num_frames=min(source.num_frames, MAX_FRAMES),
        length_policy="trim",
    )
    return prepared.picture


@lru_cache(maxsize=8)
def _segmentation(path: str, labels: str | None, size: Size, num_frames: int) -> SegmentationClip:
    import cv2

    found = read_segmentation(Path(path), labels=None if labels is None else Path(labels))
    ids = np.stack(
        [
            cv2.resize(frame, (size.width, size.height), interpolation=cv2.INTER_NEAREST)
            for frame in found.ids[:num_frames]
        ]
    )
    kept = {int(each) for each in np.unique(ids)}
    return SegmentationClip(
        ids=ids, names={key: name for key, name in found.names.items() if key in kept}
    )


def frame_pictures(
    studio: Studio, source_id: str, frame_index: int, presets: Mapping[str, str] | None = None
) -> dict[str, UInt8[np.ndarray, "h w 3"]]:
    """One frame of the clip (``input``) and of each of its controls, by name."""
    source = find_source(studio, source_id)
    index = _frame(source, frame_index)
    pictures = {}
    if source.fields.get("video") is not None:
        pictures["input"] = _shown_clip(source.fields["video"], shown_size(source)).frames[index]
    for name in source.controls:
        preset = (presets or {}).get(name, "medium")
        pictures[name] = _shown_control(studio.inputs, source.id, name, preset)[index]
    return pictures


def effective_weights(
    studio: Studio, source_id: str, choices: Mapping[str, Choice], frame_index: int
) -> WeightMaps:
    """The weights that act at one frame, the cap applied, at the size shown."""
    import torch

    from cosmos_transfer.weights.fusion import normalize_weights

    source = find_source(studio, source_id)
    request = _request(source, _acting(source, choices), {"prompt": ""}, studio)
    size, length = shown_size(source), min(source.num_frames, MAX_FRAMES)
    seg = source.fields["controls"].get("seg")
    segmentation = None
    if seg is not None and any(each.where == CLASSES for each in choices.values()):
        segmentation = _segmentation(seg["path"], seg.get("labels"), size, length)
    maps = open_weight_maps(
        request.controls,
        num_frames=length,
        size=size,
        segmentation=segmentation,
        length_policy="trim",
    ).at_frames([_frame(source, frame_index)])
    acting = normalize_weights(torch.from_numpy(maps.values), "cap").numpy()
    return WeightMaps(names=maps.names, values=acting)


def keep_mask(
    studio: Studio, source_id: str, editor: dict[str, Any] | None, frame_index: int
) -> tuple[str, float]:
    """Follow what was painted on a frame through the clip; returns the mask's id and its share."""
    source = find_source(studio, source_id)
    if source.fields.get("video") is None:
        raise ConfigError(
            explain("mask", expected="a clip to paint on", got="controls alone", do="Load a clip.")
        )
    size = shown_size(source)
    frames = _shown_clip(source.fields["video"], size).frames
    painted = masks.painted_mask(editor, size.height, size.width)
    tracked = masks.track_mask(frames, painted, _frame(source, frame_index))
    mask_id = secrets.token_hex(6)
    folder = studio.inputs / source.id / "masks"
    folder.mkdir(exist_ok=True)
    np.savez_compressed(folder / f"{mask_id}.npz", mask=tracked)
    return mask_id, float(tracked.mean())


def tracked_frame(
    studio: Studio, source_id: str, mask_id: str, frame_index: int
) -> Float32[np.ndarray, "h w"]:
    """One frame of a kept mask."""
    source = find_source(studio, source_id)
    with np.load(_mask_path(studio.inputs, source.id, mask_id), allow_pickle=False) as file:
        mask: np.ndarray = file["mask"]
    return mask[min(_frame(source, frame_index), len(mask) - 1)]


# -------------------------------------------------------------------------------- what is asked for


def read_classes(chips: Sequence[str]) -> dict[str, float]:
    """``["robot 1.0", "table 0.3"]`` as a class rule; what is not named is 0.

    Raises:
        ConfigError: A chip that is not a class and a number from 0 to 1.
    """
    rule: dict[str, float] = {}
    for chip in chips:
        name, _, number = str(chip).strip().rpartition(" ")
        try:
            weight = float(number)
        except ValueError:
            weight = -1.0
        if not name.strip() or not 0.0 <= weight <= 1.0:
            raise ConfigError(
                explain(
                    "classes",
                    expected="a class and its weight from 0 to 1, such as robot 1.0",
                    got=repr(str(chip)[:40]),
                    do="Write it so, or choose one of the list.",
                )
            )
        rule[name.strip()] = weight
    return rule


def request_values(
    source: Source, choices: Mapping[str, Choice], look: Look, *, name: str, inputs: Path
) -> dict[str, Any]:
    """The request as plain values: the manifest's payload and the spec file's content."""
    controls = {}
    for key, choice in _acting(source, choices).items():
        controls[key] = _control_values(source, key, choice, inputs)
    if not controls:
        raise ConfigError(
            explain(
                "controls",
                expected="one that acts",
                got="all weights at 0",
                do="Move a slider up.",
            )
        )
    prompt = read_look("+".join(look.looks), look.prompt) if look.looks else look.prompt.strip()
    if not prompt:
        raise ConfigError(
            explain("prompt", expected="a look in words", got="nothing", do="Write a prompt.")
        )
    values: dict[str, Any] = {
        "name": name,
        **{key: value for key, value in source.fields.items() if value is not None},
        "prompt": prompt,
        "controls": controls,
        "seed": int(look.seed),
    }
    if look.steps:
        values["num_inference_steps"] = int(look.steps)
    if look.guidance:
        values["guidance_scale"] = float(look.guidance)
    frames = min(int(look.frames or source.num_frames), MAX_FRAMES)
    if frames < source.num_frames:
        values["max_frames"] = frames
    return values


def submit(
    studio: Studio, source_id: str, choices: Mapping[str, Choice], look: Look
) -> tuple[str, ...]:
    """Put one job per variant into the queue; returns their names.

    Raises:
        TransferError: The request cannot be honoured; nothing was queued.
    """
    from cosmos_transfer.model.checkpoint import checkpoint_info

    source = find_source(studio, source_id)
    if not 1 <= look.variants <= MAX_VARIANTS:
        raise ConfigError(
            explain(
                "variants",
                expected=f"1 to {MAX_VARIANTS}",
                got=f"{look.variants}",
                do="Choose one of these.",
            )
        )
    stem = f"{slug(look.prompt or 'clip')[:40].strip('-')}-{secrets.token_hex(3)}"
    items = []
    for variant in range(look.variants):
        name = stem if look.variants == 1 else f"{stem}-v{variant + 1}"
        values = request_values(source, choices, look, name=name, inputs=studio.inputs)
        if variant:
            values["variant"] = variant
        items.append(Item(name=name, payload=values, seed=int(look.seed)))
    request = request_from_mapping(items[0].payload)
    check_request(request, checkpoint_info(studio.checkpoint))
    studio.manifest.add(items)
    return tuple(item.name for item in items)


# ------------------------------------------------------------------------------------- what it does


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job as the page shows it."""

    id: int
    name: str
    prompt: str
    state: str  # waiting, running, done, refused, failed, cancelled
    stage: str
    share: float
    left_s: float | None
    error: str | None
    metrics: Mapping[str, float]


def jobs(studio: Studio) -> tuple[Job, ...]:
    """All jobs, the newest first."""
    return tuple(_job(studio, row) for row in reversed(studio.manifest.rows()))


def find_job(studio: Studio, name: str | None) -> Job | None:
    """The job of that name."""
    return next((job for job in jobs(studio) if job.name == name), None)


def cancel(studio: Studio, name: str | None) -> str:
    """Stop a job: at once where it waits, at its next denoising step where it runs."""
    manifest = studio.manifest
    row = next((each for each in manifest.rows() if each.name == name), None)
    if row is None or row.state not in ("waiting", "running"):
        raise ConfigError(
            explain(
                "cancel",
                expected="a job that waits or runs",
                got="none" if row is None else f"one that is {row.state}",
                do="Choose another.",
            )
        )
    folder = worker.item_folder(studio.root, row.id)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cancel").touch()
    manifest.give_up(row, worker.CANCELLED)
    return row.name


def result_files(studio: Studio, name: str | None) -> dict[str, Path]:
    """The files of a finished job: ``clip``, ``record``, ``spec``, and ``input`` where it moves."""
    row = next((each for each in studio.manifest.rows("done") if each.name == name), None)
    if row is None:
        return {}
    found: dict[str, Path] = {}
    kinds = {".json": "record", ".yaml": "spec"}
    for output in row.outputs:
        kind = kinds.get(Path(output).suffix, "clip")
        found["input" if Path(output).stem.endswith("-input") else kind] = studio.results / output
    return {kind: path for kind, path in found.items() if path.is_file()}


def preview_path(studio: Studio, job: Job) -> Path | None:
    """The estimate of the first frame of a job that runs."""
    path = worker.item_folder(studio.root, job.id) / "preview.png"
    return path if path.is_file() else None


class Workers:
    """Keeps the process alive that works the queue; one for each device.

    What a process that died was making has failed; the rest goes on in a new one.
    """

    def __init__(self, studio: Studio) -> None:
        self.studio = studio
        self._process: Any = None
        self._lock = threading.Lock()

    def ensure(self) -> None:
        """Start the process where none runs and something waits."""
        with self._lock:
            if self._process is not None and self._process.is_alive():
                return
            manifest = self.studio.manifest
            for row in manifest.release_abandoned():
                if self._process is not None:
                    manifest.give_up(row, LOST)
            if not manifest.progress().counts["waiting"]:
                return
            context = multiprocessing.get_context("spawn")
            self._process = context.Process(
                target=worker.serve,
                args=(self.studio.root, dict(self.studio.model), os.getpid()),
                daemon=True,
            )
            self._process.start()

    def stop(self) -> None:
        """End the process; what it was making waits again."""
        with self._lock:
            if self._process is not None:
                self._process.terminate()
                self._process.join()
                self._process = None
                self.studio.manifest.release_abandoned()


# ------------------------------------------------------------------------------------------ details


def _job(studio: Studio, row: Row) -> Job:
    said: dict[str, Any] = {}
    if row.state == "running":
        path = worker.item_folder(studio.root, row.id) / "progress.json"
        try:
            said = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            said = {}
    was_cancelled = row.state == "failed" and row.error == worker.CANCELLED
    return Job(
        id=row.id,
        name=row.name,
        prompt=str(row.payload.get("prompt", "")),
        state="cancelled" if was_cancelled else row.state,
        stage=str(said.get("stage", "starting" if row.state == "running" else "")),
        share=1.0 if row.state == "done" else float(said.get("share", 0.0)),
        left_s=said.get("left_s"),
        error=None if was_cancelled else row.error,
        metrics=row.metrics,
    )


def _acting(source: Source, choices: Mapping[str, Choice]) -> dict[str, Choice]:
    return {
        name: choices[name]
        for name in CONTROL_NAMES
        if name in choices and name in source.controls and choices[name].weight > 0
    }


def _control_values(source: Source, name: str, choice: Choice, inputs: Path) -> dict[str, Any]:
    values: dict[str, Any] = dict(source.fields["controls"].get(name, {}))
    weight = min(max(float(choice.weight), 0.0), 1.0)
    values["weight"] = weight
    if choice.where == CLASSES:
        rule = read_classes(choice.classes)
        if not rule:
            raise ConfigError(
                explain(
                    f"control '{name}'",
                    expected="a class",
                    got="none",
                    do="Choose one, or let it act everywhere.",
                )
            )
        values["weight"] = {each: round(weight * share, 6) for each, share in rule.items()}
    elif choice.where == PAINTED:
        values["mask"] = str(_mask_path(inputs, source.id, choice.mask))
    if (choice.start, choice.end) != (1.0, 1.0):
        values["ramp"] = [float(choice.start), float(choice.end)]
    if name in ("edge", "vis") and "path" not in values and choice.preset != "medium":
        values["preset"] = choice.preset
    return values


def _request(
    source: Source,
    choices: Mapping[str, Choice],
    values: Mapping[str, Any],
    studio: Studio | None = None,
) -> GenerationRequest:
    inputs = Path() if studio is None else studio.inputs
    controls = {
        name: _control_values(source, name, choice, inputs) for name, choice in choices.items()
    }
    return request_from_mapping({**source.fields, **values, "controls": controls})


def _mask_path(inputs: Path, source_id: str, mask_id: str | None) -> Path:
    path = inputs / source_id / "masks" / f"{mask_id}.npz"
    if not mask_id or not re.fullmatch(r"[0-9a-f]{12}", str(mask_id)) or not path.is_file():
        raise ConfigError(
            explain(
                "mask",
                expected="one that was painted on this clip",
                got="none",
                do="Paint one and keep it, or let the control act everywhere.",
            )
        )
    return path


def _frame(source: Source, frame_index: int) -> int:
    return min(max(int(frame_index or 0), 0), min(source.num_frames, MAX_FRAMES) - 1)
