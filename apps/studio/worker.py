"""The process that makes clips: one for each device, working the manifest in order.

It says how far it is in ``work/<item>/progress.json`` and shows its estimate of the first frame in
``preview.png`` beside it; a file ``cancel`` there stops the item at its next denoising step.
"""

from __future__ import annotations

import copy
import json
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from cosmos_transfer.errors import TransferError
from cosmos_transfer.jobs.manifest import MANIFEST_NAME, Manifest, Row
from cosmos_transfer.jobs.run import Make, work

if TYPE_CHECKING:
    from cosmos_transfer.model.controlled import ControlledModel

POLL_S = 0.3
PREVIEWS = 6
"""Times that a job shows its estimate."""
CANCELLED = "cancelled"


class CancelledError(TransferError):
    """Somebody asked for an item to be stopped."""


def item_folder(root: Path, row_id: int) -> Path:
    """Where an item that runs says how far it is."""
    return root / "work" / str(row_id)


def serve(root: Path, model: Mapping[str, Any], parent: int) -> None:
    """Work whatever waits, for as long as the process ``parent`` lives.

    Args:
        root: The app's folder.
        model: Arguments of :meth:`TransferPipeline.from_pretrained`.
        parent: Id of the process that started this one.
    """
    manifest = Manifest(root / MANIFEST_NAME)
    make: Make | None = None
    while os.getppid() == parent:
        if manifest.progress().counts["waiting"]:
            make = make or build_maker(root, model)
            work(
                manifest,
                root / "results",
                make,
                keep_going=True,
                stopped=lambda: os.getppid() != parent,
            )
        time.sleep(POLL_S)


def build_maker(root: Path, model: Mapping[str, Any]) -> Make:
    """What makes one item: the clip, its record, its spec, the input as browsers play it."""
    import torch

    from cosmos_transfer.cli.evaluate import evaluate_run
    from cosmos_transfer.cli.recorded import read_run
    from cosmos_transfer.inputs.request import request_from_mapping
    from cosmos_transfer.inputs.validate import check_request
    from cosmos_transfer.inputs.video import read_clip
    from cosmos_transfer.long_video.plan import request_chunks
    from cosmos_transfer.outputs.writer import write_clip
    from cosmos_transfer.pipeline import TransferPipeline

    pipeline = TransferPipeline.from_pretrained(**model, show_progress=False)
    checkpoint, info = pipeline.checkpoint, pipeline.checkpoint.info

    def make(row: Row, folder: Path) -> Mapping[str, Any]:
        began = time.monotonic()
        request = request_from_mapping(row.payload, where=row.name)
        checked = check_request(request, info)
        chunks = request_chunks(
            checked.num_frames,
            request,
            native_frames=info.native_frames,
            strides=info.strides,
        )
        steps = request.num_inference_steps or info.num_inference_steps
        guidance = info.guidance_scale if request.guidance_scale is None else request.guidance_scale
        passes = 1 if guidance == 1.0 else 2
        watch = Watch(
            item_folder(root, row.id),
            total=len(chunks) * steps * passes * (2 if info.sampler == "heun" else 1),
            decode=lambda latents: checkpoint.autoencoder.decode(latents[:, :, :1])[0, :, 0],
        )
        watched = replace(checkpoint, model=watched_model(checkpoint.model, watch))
        clip = TransferPipeline(
            watched,
            device=pipeline.device,
            show_progress=False,
            guardrail=pipeline.guardrail,
        ).generate(checked)
        made = clip.save(folder / row.name)
        spec = yaml.safe_dump(dict(row.payload), sort_keys=False, allow_unicode=True, width=96)
        (folder / f"{row.name}.yaml").write_text(spec, encoding="utf-8")
        if isinstance(request.video, Path) and not checked.is_still:
            shown = read_clip(request.video, max_frames=request.max_frames)
            write_clip(
                folder / f"{row.name}-input.mp4", shown.frames, times=shown.times, rate=shown.rate
            )
        watch.say("measuring", 1.0)
        with torch.inference_mode():
            report = evaluate_run(read_run(made.with_suffix(".json")))
        return {**report.values, "seconds": round(time.monotonic() - began, 1)}

    return make


class Watch:
    """Counts the network's evaluations, says how far they are, and looks whether to stop."""

    def __init__(self, folder: Path, *, total: int, decode: Any = None) -> None:
        self.folder = folder
        self.total = max(1, total)
        self.calls = 0
        self.decode = decode
        self.began = time.monotonic()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.say("starting", 0.0)

    def __call__(self, latents: Any) -> None:
        """One evaluation more, with the clean latents that it estimates.

        Raises:
            CancelledError: The item is to stop.
        """
        if (self.folder / "cancel").exists():
            raise CancelledError(CANCELLED)
        self.calls += 1
        self.say("denoising", min(self.calls / self.total, 1.0))
        every = max(1, self.total // PREVIEWS)
        if self.decode is not None and self.calls % every == 0:
            self._show(self.decode(latents))

    def say(self, stage: str, share: float) -> None:
        """Write how far the item is."""
        spent = time.monotonic() - self.began
        left = spent * (1 - share) / share if share > 0 else None
        said = {"stage": stage, "share": round(share, 4), "left_s": left}
        unfinished = self.folder / ".progress.json"
        unfinished.write_text(json.dumps(said), encoding="utf-8")
        os.replace(unfinished, self.folder / "progress.json")

    def _show(self, picture: Any) -> None:
        """Write a frame: c h w in [-1, 1]."""
        from PIL import Image

        pixels = ((picture.float() + 1) * 127.5).clamp(0, 255).byte().permute(1, 2, 0).cpu()
        unfinished = self.folder / ".preview.png"
        Image.fromarray(pixels.numpy()).save(unfinished, format="PNG")
        os.replace(unfinished, self.folder / "preview.png")


def watched_model(model: ControlledModel, watch: Watch) -> ControlledModel:
    """The model with the same weights, whose every evaluation is told to a watch."""
    watched = copy.copy(model)

    def conditioned_on(*conditions: Any, **more: Any) -> Any:
        denoiser = model.conditioned_on(*conditions, **more)

        def denoise(noisy_latents: Any, sigma: float) -> Any:
            denoised = denoiser(noisy_latents, sigma)
            watch(denoised)
            return denoised

        return denoise

    watched.conditioned_on = conditioned_on  # type: ignore[method-assign]
    return watched
