"""``cosmos-transfer validate``: refuse what can be refused, print the plan, load no model."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cosmos_transfer.cli.generate import KEYS
from cosmos_transfer.cli.main import one_line
from cosmos_transfer.errors import ConfigError, TransferError, explain

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Float, UInt8

    from cosmos_transfer.inputs.request import GenerationRequest
    from cosmos_transfer.inputs.segmentation import LastSegmentation
    from cosmos_transfer.inputs.validate import CheckedRequest
    from cosmos_transfer.long_video.plan import Chunk
    from cosmos_transfer.model.checkpoint import CheckpointInfo
    from cosmos_transfer.shapes import Size

HELP = f"""\
usage: cosmos-transfer validate KEY=VALUE ... [--json] [--sheet PNG] [--controls FOLDER]

Check a request: open and decode every file, compare sizes, lengths and times, look at masks and
weights. Prints the plan: sizes, frame counts, times, effective weights, chunks. Loads no model.

  cosmos-transfer validate video=sim.mp4 prompt="a snowy street at night" controls.edge.weight=1.0
  cosmos-transfer validate spec=requests.jsonl --json

{KEYS}
other:
  --json                     print the plans as JSON, refused requests with their reason
  --sheet PNG                draw what goes in: the clip, the controls, and where each of them acts
                             (weights after the rule; white is 1), one picture a request;
                             output.overwrite=true replaces one that is there
  --controls FOLDER          write the controls as the model is given them, in a folder for each
                             request that scene=FOLDER reads again: pictures without loss, and of
                             a segmentation both the ids and the colours
  --help                     print this text
"""

# Options that name something to write: what, and an example.
_FILES = {"--sheet": ("a file", "in.png"), "--controls": ("a folder", "controls/")}
# Weight maps are summed up at this short side: their means do not depend on the size.
MAP_SHORT_SIDE = 64
# Pictures of a sheet of inputs are this high.
SHEET_HEIGHT = 96


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRequest:
    """A request that can be honoured: the name of its output, and what will be done."""

    name: str
    checked: CheckedRequest
    weights: Mapping[str, tuple[float, float, float]]
    padded_size: Size
    chunks: tuple[Chunk, ...]
    chunk_frames: int
    num_inference_steps: int
    guidance_scale: float
    checkpoint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedBatch:
    """The requests that can be honoured, with the name of each output; the others' reasons."""

    good: tuple[tuple[str, CheckedRequest], ...]
    refused: tuple[tuple[str, str], ...]
    plans: tuple[PlannedRequest, ...] = ()

    @property
    def num_failed(self) -> int:
        """How many requests cannot be honoured."""
        return len(self.refused)


def main(argv: Sequence[str]) -> int:
    """Run the command; the number is the exit code."""
    if "--help" in argv or "-h" in argv:
        print(HELP, end="")
        return 0
    overrides, as_json, files = _split(argv)
    from cosmos_transfer.cli.compose import compose
    from cosmos_transfer.cli.requests import build_requests
    from cosmos_transfer.config import GenerateSettings
    from cosmos_transfer.model.checkpoint import checkpoint_info

    try:
        settings = compose("generate", overrides, GenerateSettings)
        requests = build_requests(settings, overrides)
        info = checkpoint_info(settings.model.checkpoint)
        batch = check_all(requests, info, with_plans=True)
    except TransferError as error:
        if as_json:
            print(json.dumps({"requests": [_refused_json("", one_line(error))]}, indent=2))
        raise
    if as_json:
        plans = [plan_json(plan) for plan in batch.plans]
        plans += [_refused_json(name, reason) for name, reason in batch.refused]
        print(json.dumps({"requests": plans}, indent=2, ensure_ascii=False))
    else:
        print_plans(batch)
    if "--sheet" in files:
        _draw_sheets(batch, files["--sheet"], overwrite=settings.output.overwrite)
    if "--controls" in files:
        _write_controls(batch, files["--controls"])
    return 1 if batch.num_failed else 0


def _split(argv: Sequence[str]) -> tuple[list[str], bool, dict[str, Path]]:
    """The overrides, whether JSON is wanted, and where the files that are asked for go."""
    overrides: list[str] = []
    as_json, files = False, {}
    rest = iter(argv)
    for each in rest:
        option, _, value = each.partition("=")
        if each == "--json":
            as_json = True
        elif option in _FILES:
            value = value or next(rest, "")
            if not value:
                what, example = _FILES[option]
                do = f"Write {option} {example}."
                raise ConfigError(explain(option, expected=what, got="nothing", do=do))
            files[option] = Path(value)
        else:
            overrides.append(each)
    return overrides, as_json, files


def check_all(
    requests: Sequence[GenerationRequest], info: CheckpointInfo, *, with_plans: bool = False
) -> CheckedBatch:
    """Check every request; with several, one that is refused leaves the others going.

    Raises:
        TransferError: The only request is refused.
    """
    from cosmos_transfer.cli.requests import output_names
    from cosmos_transfer.inputs.segmentation import LastSegmentation
    from cosmos_transfer.inputs.validate import check_request

    good: list[tuple[str, CheckedRequest]] = []
    refused: list[tuple[str, str]] = []
    plans: list[PlannedRequest] = []
    segmentations = LastSegmentation()
    for name, request in zip(output_names(requests), requests, strict=True):
        try:
            checked = check_request(request, info, segmentations=segmentations)
            if with_plans:
                plans.append(plan_of(name, checked, info, segmentations))
        except TransferError as error:
            if len(requests) == 1:
                raise
            refused.append((name, one_line(error)))
            print(f"{name}: {one_line(error)}", file=sys.stderr)
        else:
            good.append((name, checked))
    return CheckedBatch(good=tuple(good), refused=tuple(refused), plans=tuple(plans))


def plan_of(
    name: str, checked: CheckedRequest, info: CheckpointInfo, segmentations: LastSegmentation
) -> PlannedRequest:
    """What will be done for one request."""
    from cosmos_transfer.long_video.plan import request_chunks
    from cosmos_transfer.shapes import Size, round_up

    request, size = checked.request, checked.working_size
    multiple = info.spatial_multiple
    scale = info.guidance_scale if request.guidance_scale is None else request.guidance_scale
    chunks = request_chunks(
        checked.num_frames, request, native_frames=info.native_frames, strides=info.strides
    )
    return PlannedRequest(
        name=name,
        checked=checked,
        weights=effective_weights(checked, segmentations),
        padded_size=Size(round_up(size.height, multiple), round_up(size.width, multiple)),
        chunks=chunks,
        chunk_frames=request.chunk_frames or info.native_frames,
        num_inference_steps=request.num_inference_steps or info.num_inference_steps,
        guidance_scale=scale,
        checkpoint=info.id,
    )


def print_plans(batch: CheckedBatch) -> None:
    """Print what will be done for each request."""
    for plan in batch.plans:
        print("\n".join(plan_lines(plan)))
    if batch.num_failed or len(batch.good) > 1:
        print(f"{len(batch.good)} of {len(batch.good) + batch.num_failed} requests can be made")


def plan_lines(plan: PlannedRequest) -> list[str]:
    """The plan of one request, as the lines to print."""
    checked, request = plan.checked, plan.checked.request
    rows = [("prompt", _shortened(request.prompt))]
    for found in checked.inputs:
        what = str(found.path) if found.path is not None else "array"
        frames = f"{found.num_frames} frames" if found.num_frames != 1 else "1 frame"
        note = f", {found.note}" if found.note else ""
        rows.append((found.where, f"{frames}, {found.size}, {what}{note}"))
    rows += [
        (f"control '{control.name}'", f"extracted from the video, preset {control.preset}")
        for control in request.controls
        if not control.is_given
    ]
    worked_on = f"worked on at {checked.working_size}, padded to {plan.padded_size}"
    rows += [
        ("size", f"{checked.size}, {worked_on}"),
        ("frames", f"{checked.num_frames}, {_span(checked)}"),
        ("weights", _weights_shown(plan)),
        (
            "chunks",
            f"{len(plan.chunks)} of at most {plan.chunk_frames} frames: {_shown(plan.chunks)}",
        ),
        (
            "sampling",
            f"{plan.num_inference_steps} steps, guidance scale {plan.guidance_scale:g}, "
            f"seed {request.seed}",
        ),
        ("checkpoint", plan.checkpoint),
    ]
    rows += [("note", warning) for warning in checked.warnings]
    width = max(len(label) for label, _ in rows)
    return [plan.name, *(f"  {label:<{width}}  {text}" for label, text in rows)]


def plan_json(plan: PlannedRequest) -> dict[str, Any]:
    """The plan of one request, as plain values."""
    checked, request = plan.checked, plan.checked.request
    return {
        "name": plan.name,
        "ok": True,
        "prompt": request.prompt,
        "inputs": [
            {
                "where": found.where,
                "path": None if found.path is None else str(found.path),
                "num_frames": found.num_frames,
                "size": _height_width(found.size),
                "note": found.note,
            }
            for found in checked.inputs
        ],
        "extracted": [control.name for control in request.controls if not control.is_given],
        "size": _height_width(checked.size),
        "working_size": _height_width(checked.working_size),
        "padded_size": _height_width(plan.padded_size),
        "num_frames": checked.num_frames,
        "rate": str(checked.rate),
        "times": [str(time) for time in checked.times],
        "weights": {
            name: {"mean": mean, "minimum": low, "maximum": high}
            for name, (mean, low, high) in plan.weights.items()
        },
        "weight_rule": request.weight_rule,
        "chunks": [[chunk.start, chunk.stop] for chunk in plan.chunks],
        "num_inference_steps": plan.num_inference_steps,
        "guidance_scale": plan.guidance_scale,
        "seed": request.seed,
        "checkpoint": plan.checkpoint,
        "warnings": list(checked.warnings),
    }


def _height_width(size: Size) -> dict[str, int]:
    return {"height": size.height, "width": size.width}


def _refused_json(name: str, reason: str) -> dict[str, Any]:
    return {"name": name, "ok": False, "error": reason}


def _draw_sheets(batch: CheckedBatch, path: Path, *, overwrite: bool) -> None:
    """One picture a request; with several, each is called after its output."""
    from cosmos_transfer.outputs.sheet import write_sheet

    for plan in batch.plans:
        to = path if len(batch.plans) == 1 else path.with_name(f"{path.stem}-{plan.name}.png")
        write_sheet(to, input_sheet(plan.checked), overwrite=overwrite)


def _write_controls(batch: CheckedBatch, folder: Path) -> None:
    """A folder of controls; with several requests, one for each, called after its output."""
    from cosmos_transfer.cli.recorded import read_inputs
    from cosmos_transfer.outputs.control_folder import write_controls

    for plan in batch.plans:
        checked = plan.checked
        _, controls, _, _ = read_inputs(checked, checked.working_size)
        to = folder if len(batch.plans) == 1 else folder / plan.name
        write_controls(to, controls, times=checked.times, rate=checked.rate)


def input_sheet(checked: CheckedRequest, *, columns: int = 5) -> UInt8[np.ndarray, "h w 3"]:
    """What goes into a request: the clip, the controls, and the maps of their weights that act."""
    from cosmos_transfer.cli.recorded import read_inputs
    from cosmos_transfer.cli.show import weight_rows
    from cosmos_transfer.outputs.sheet import SheetRow, contact_sheet, weight_picture
    from cosmos_transfer.shapes import working_size
    from cosmos_transfer.weights.maps import build_keep_mask

    short_side = min(checked.size.height, checked.size.width, SHEET_HEIGHT)
    size = working_size(checked.size, short_side=short_side)
    clip, controls, maps, segmentation = read_inputs(checked, size)
    rows = [] if clip is None else [SheetRow(title="input", frames=clip.frames)]
    rows += [SheetRow(title=each.name, frames=each.picture, note=each.source) for each in controls]
    rows += weight_rows(maps.names, apply_rule(maps.values, checked.request.weight_rule))
    if checked.request.keep is not None:
        kept = build_keep_mask(
            checked.request.keep,
            num_frames=checked.num_frames,
            size=size,
            segmentation=segmentation,
            length_policy=checked.length_policy,
        )
        rows.append(SheetRow(title="keep", frames=weight_picture(kept), note="white stays"))
    times = [float(time) for time in checked.times]
    return contact_sheet(rows, times_s=times, columns=columns, cell_height=SHEET_HEIGHT)


def effective_weights(
    checked: CheckedRequest, segmentations: LastSegmentation
) -> Mapping[str, tuple[float, float, float]]:
    """Mean, least and greatest weight per control, after the rule."""
    from cosmos_transfer.shapes import working_size
    from cosmos_transfer.weights.maps import build_weight_maps

    request = checked.request
    size = checked.working_size
    short_side = min(size.height, size.width, MAP_SHORT_SIDE)
    needs_classes = any(isinstance(control.weight, Mapping) for control in request.controls)
    seg = next((each for each in request.controls if each.name == "seg"), None)
    segmentation = None
    if needs_classes and seg is not None and seg.segmentation_source is not None:
        segmentation = segmentations(seg.segmentation_source, seg.labels, where="control 'seg'")
        if seg.flip_vertical:
            segmentation = replace(segmentation, ids=segmentation.ids[:, ::-1])
    maps = build_weight_maps(
        request.controls,
        num_frames=checked.num_frames,
        size=working_size(size, short_side=short_side),
        segmentation=segmentation,
        length_policy=checked.length_policy,
    )
    values = apply_rule(maps.values, request.weight_rule)
    return {
        name: (float(each.mean()), float(each.min()), float(each.max()))
        for name, each in zip(maps.names, values, strict=True)
    }


def apply_rule(maps: Float[np.ndarray, "k f h w"], rule: str) -> Float[np.ndarray, "k f h w"]:
    """The rule over controls, for showing; what acts is :func:`weights.fusion.token_weights`.

    That one works on tensors, and loading torch would take longer than everything else here. A
    test holds the two together.
    """
    import numpy as np

    if rule == "none" or len(maps) == 0:
        return maps
    total = maps.sum(axis=0, dtype=np.float64)
    divisor = np.maximum(total, 1.0) if rule == "cap" else np.where(total > 0, total, 1.0)
    return (maps / divisor).astype(np.float32)


def _weights_shown(plan: PlannedRequest) -> str:
    if not plan.checked.request.controls:
        return "no controls: the prompt alone decides"
    shown = []
    for name, (mean, low, high) in plan.weights.items():
        wide = high - low > 5e-4
        shown.append(f"{name} {mean:.3g}" + (f" ({low:.3g} to {high:.3g})" if wide else ""))
    return f"{', '.join(shown)} (rule {plan.checked.request.weight_rule})"


def _span(checked: CheckedRequest) -> str:
    rate = float(checked.rate)
    if checked.num_frames == 1:
        return "a still" if checked.is_still else "a single moment"
    span = f"0 to {float(checked.times[-1]):.3f} s"
    gaps = [float(b - a) for a, b in pairwise(checked.times)]
    # Clocks of milliseconds round the times of a constant rate.
    if max(gaps) - min(gaps) > 0.0025:
        return f"{span}, at uneven times, {rate:.6g} a second on average"
    return f"{span}, {rate:.6g} a second ({checked.rate})"


def _shown(chunks: Sequence[Chunk]) -> str:
    ranges = [f"{chunk.start}-{chunk.stop - 1}" for chunk in chunks]
    return ", ".join(ranges if len(ranges) <= 8 else [*ranges[:4], "...", *ranges[-2:]])


def _shortened(text: str, limit: int = 80) -> str:
    folded = " ".join(text.split())
    return folded if len(folded) <= limit else f"{folded[: limit - 3]}..."
