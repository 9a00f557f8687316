"""``cosmos-transfer validate``: refuse what can be refused, print the plan, load no model."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from cosmos_transfer.cli.generate import KEYS
from cosmos_transfer.cli.main import one_line
from cosmos_transfer.errors import TransferError

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Float

    from cosmos_transfer.inputs.request import GenerationRequest
    from cosmos_transfer.inputs.validate import CheckedRequest
    from cosmos_transfer.long_video.plan import Chunk
    from cosmos_transfer.model.checkpoint import CheckpointInfo

HELP = f"""\
usage: cosmos-transfer validate KEY=VALUE ...

Check a request: open and decode every file, compare sizes, lengths and times, look at masks and
weights. Prints the plan: sizes, frame counts, times, effective weights, chunks. Loads no model.

  cosmos-transfer validate video=sim.mp4 prompt="a snowy street at night" controls.edge.weight=1.0
  cosmos-transfer validate spec=requests.jsonl

{KEYS}
other:
  --help                     print this text
"""

# Weight maps are summed up at this short side: their means do not depend on the size.
MAP_SHORT_SIDE = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedBatch:
    """The requests that can be honoured, with the name of each output, and how many cannot."""

    good: tuple[tuple[str, CheckedRequest], ...]
    num_failed: int


def main(argv: Sequence[str]) -> int:
    """Run the command; the number is the exit code."""
    if "--help" in argv or "-h" in argv:
        print(HELP, end="")
        return 0
    from cosmos_transfer.cli.compose import compose
    from cosmos_transfer.cli.requests import build_requests
    from cosmos_transfer.config import GenerateSettings
    from cosmos_transfer.model.checkpoint import checkpoint_info

    settings = compose("generate", argv, GenerateSettings)
    requests = build_requests(settings, argv)
    info = checkpoint_info(settings.model.checkpoint)
    batch = check_all(requests, info)
    print_plans(batch, info)
    return 1 if batch.num_failed else 0


def check_all(requests: Sequence[GenerationRequest], info: CheckpointInfo) -> CheckedBatch:
    """Check every request; with several, one that is refused leaves the others going.

    Raises:
        TransferError: The only request is refused.
    """
    from cosmos_transfer.cli.requests import output_names
    from cosmos_transfer.inputs.validate import check_request

    good: list[tuple[str, CheckedRequest]] = []
    for name, request in zip(output_names(requests), requests, strict=True):
        try:
            good.append((name, check_request(request, info)))
        except TransferError as error:
            if len(requests) == 1:
                raise
            print(f"{name}: {one_line(error)}", file=sys.stderr)
    return CheckedBatch(good=tuple(good), num_failed=len(requests) - len(good))


def print_plans(batch: CheckedBatch, info: CheckpointInfo) -> None:
    """Print what will be done for each request."""
    for name, checked in batch.good:
        print("\n".join(plan_lines(name, checked, info)))
    if batch.num_failed or len(batch.good) > 1:
        print(f"{len(batch.good)} of {len(batch.good) + batch.num_failed} requests can be made")


def plan_lines(name: str, checked: CheckedRequest, info: CheckpointInfo) -> list[str]:
    """The plan of one request, as the lines to print."""
    from cosmos_transfer.long_video.plan import plan_chunks
    from cosmos_transfer.shapes import Size, round_up

    request, size = checked.request, checked.working_size
    multiple = info.spatial_multiple
    padded = Size(round_up(size.height, multiple), round_up(size.width, multiple))
    chunks = plan_chunks(
        checked.num_frames,
        chunk_frames=info.native_frames,
        overlap=min(1, info.native_frames - 1),
        strides=info.strides,
    )
    steps = request.num_inference_steps or info.num_inference_steps
    scale = info.guidance_scale if request.guidance_scale is None else request.guidance_scale
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
    rows += [
        ("size", f"{checked.size}, worked on at {size}, padded to {padded}"),
        ("frames", f"{checked.num_frames}, {_span(checked)}"),
        ("weights", _weights_shown(checked)),
        ("chunks", f"{len(chunks)} of at most {info.native_frames} frames: {_shown(chunks)}"),
        ("sampling", f"{steps} steps, guidance scale {scale:g}, seed {request.seed}"),
        ("checkpoint", info.id),
    ]
    rows += [("note", warning) for warning in checked.warnings]
    width = max(len(label) for label, _ in rows)
    return [name, *(f"  {label:<{width}}  {text}" for label, text in rows)]


def effective_weights(checked: CheckedRequest) -> Mapping[str, tuple[float, float, float]]:
    """Mean, least and greatest weight per control, after the rule."""
    from cosmos_transfer.inputs.segmentation import read_segmentation
    from cosmos_transfer.shapes import working_size
    from cosmos_transfer.weights.maps import build_weight_maps

    request = checked.request
    size = checked.working_size
    short_side = min(size.height, size.width, MAP_SHORT_SIDE)
    needs_classes = any(isinstance(control.weight, Mapping) for control in request.controls)
    seg = next((each for each in request.controls if each.name == "seg" and each.path), None)
    segmentation = None
    if needs_classes and seg is not None and seg.path is not None:
        segmentation = read_segmentation(seg.path, labels=seg.labels)
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


def _weights_shown(checked: CheckedRequest) -> str:
    if not checked.request.controls:
        return "no controls: the prompt alone decides"
    shown = []
    for name, (mean, low, high) in effective_weights(checked).items():
        wide = high - low > 5e-4
        shown.append(f"{name} {mean:.3g}" + (f" ({low:.3g} to {high:.3g})" if wide else ""))
    return f"{', '.join(shown)} (rule {checked.request.weight_rule})"


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
