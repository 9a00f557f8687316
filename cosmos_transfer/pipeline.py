"""The page that tells the story: a request in, a clip out.

:meth:`TransferPipeline.generate` reads top to bottom like the folders of this package: inputs,
controls, weights, model, diffusion, long video, outputs.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor
from tqdm import tqdm

from cosmos_transfer.controls.base import ControlClip
from cosmos_transfer.controls.given import Target
from cosmos_transfer.controls.registry import prepare_control
from cosmos_transfer.controls.seg import given_segmentation
from cosmos_transfer.diffusion.denoiser import Denoiser
from cosmos_transfer.diffusion.guidance import Guided
from cosmos_transfer.diffusion.noise import chunk_noise
from cosmos_transfer.diffusion.noise_schedule import checkpoint_sigmas
from cosmos_transfer.diffusion.phases import Phased, plan_phases
from cosmos_transfer.diffusion.samplers import get_sampler
from cosmos_transfer.diffusion.start import start_latents
from cosmos_transfer.diffusion.step_cache import StepCache
from cosmos_transfer.errors import ConfigError, NumericsError, explain
from cosmos_transfer.inputs.request import (
    CONTROL_NAMES,
    GenerationRequest,
    request_from_mapping,
    request_to_mapping,
)
from cosmos_transfer.inputs.validate import CheckedRequest, check_request
from cosmos_transfer.inputs.video import (
    VideoClip,
    file_sha256,
    match_length,
    read_clip,
    resize_frames,
)
from cosmos_transfer.long_video.plan import Chunk, plan_chunks
from cosmos_transfer.long_video.stitch import stitch
from cosmos_transfer.model.checkpoint import Checkpoint, checkpoint_info, load_checkpoint
from cosmos_transfer.model.controlled_decoder import decode_controlled
from cosmos_transfer.model.guardrail import Guardrail, choose_guardrail
from cosmos_transfer.model.prompt_cache import CachedTextEncoder, encoder_identity
from cosmos_transfer.offload.options import MemoryOptions
from cosmos_transfer.outputs.keep import keep_region, kept_metrics
from cosmos_transfer.outputs.record import GenerationRecord, weight_summary, write_record
from cosmos_transfer.outputs.writer import write_clip
from cosmos_transfer.shapes import Size, reflected_indices, round_up
from cosmos_transfer.weights.fusion import token_weights
from cosmos_transfer.weights.maps import WeightMaps, build_keep_mask, build_weight_maps

log = logging.getLogger(__name__)

INHERITED_FRAMES = 1
"""Frames that a chunk of a long clip takes over from the one before."""

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GeneratedClip:
    """What one request came to: frames of the input's size, length and times, and its record."""

    frames: UInt8[np.ndarray, "f h w 3"]
    times: tuple[Fraction, ...]
    rate: Fraction
    is_still: bool
    record: GenerationRecord

    def save(self, path: str | Path, *, codec: str | None = None, overwrite: bool = False) -> Path:
        """Write the clip and, beside it, its record; returns where the clip went.

        Args:
            path: File name, with or without its ending.
            codec: ``h264``, ``ffv1``, ``rgb`` or ``png``; what the request asked for by default.
            overwrite: Replace files that are there.

        Raises:
            MediaError: One of the two files is there already, or cannot be written; neither is.
        """
        written = write_clip(
            path,
            self.frames,
            times=self.times,
            rate=self.rate,
            codec=codec or str(self.record.request["output_codec"]),
            overwrite=overwrite,
            is_still=self.is_still,
        )
        record = replace(self.record, outputs={"clip": written.name})
        beside = written.with_name(f"{written.name if written.is_dir() else written.stem}.json")
        try:
            write_record(beside, record, overwrite=overwrite)
        except BaseException:
            if not overwrite:  # its name was free: a clip without its record is not left behind
                shutil.rmtree(written) if written.is_dir() else written.unlink()
            raise
        return written


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Conditions:
    """A request's inputs at the padded working size; everything a chunk is cut from."""

    controls: tuple[ControlClip, ...]
    steps: tuple[tuple[float, float] | None, ...]
    step_ramps: tuple[tuple[float, float] | None, ...]
    maps: WeightMaps
    working_size: Size
    padded_size: Size
    clip: UInt8[np.ndarray, "f h w 3"] | None = None  # what sampling starts from, below strength 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Acting:
    """The controls that act in a chunk: encoded, and how much each acts at every token."""

    latents: dict[str, Tensor]
    weights: dict[str, Float[Tensor, "1 n"]]


class TransferPipeline:
    """A checkpoint, ready to turn requests into clips."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        device: torch.device,
        show_progress: bool = True,
        estimators: Mapping[str, Any] | None = None,
        guardrail: Guardrail | None = None,
    ) -> None:
        self.checkpoint = checkpoint
        self.device = device
        self.show_progress = show_progress
        self.estimators = estimators
        self.guardrail = guardrail

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str | Path = "embedded",
        *,
        device: str = "auto",
        dtype: str | torch.dtype | None = None,
        show_progress: bool = True,
        estimators: Mapping[str, Any] | None = None,
        local_files_only: bool = False,
        guardrail: str = "auto",
        prompt_cache: str | Path | None = None,
        memory: MemoryOptions | None = None,
    ) -> TransferPipeline:
        """Load a checkpoint.

        Args:
            name_or_path: ``embedded``, a folder, or a hub id.
            device: ``cpu``, ``cuda``, or ``auto`` for cuda where there is one.
            dtype: What the networks compute in; float32 on a CPU, bfloat16 elsewhere.
            show_progress: Draw a progress bar on stderr.
            estimators: What finds depth or seg in RGB, by control name; see
                :mod:`cosmos_transfer.controls.registry`.
            local_files_only: Ask no hub.
            guardrail: ``auto`` (on for NVIDIA's checkpoints, as their licence asks), ``on`` or
                ``off``; see :mod:`cosmos_transfer.model.guardrail`.
            prompt_cache: Folder of prompts that ``cosmos-transfer embed`` encoded; the text
                encoder is not loaded.
            memory: How to make it fit: tiles, eight bits, blocks on the host or on disk.

        Raises:
            GuardrailError: The guardrail is to be on and is not there.
            CheckpointError: The checkpoint is missing, damaged, or of another architecture.
            ConfigError: A device or dtype that is not there.
        """
        place, computes_in = _device(device), _dtype(dtype)
        info = checkpoint_info(name_or_path, local_files_only=local_files_only)
        guard = choose_guardrail(guardrail, is_published=info.is_published, device=str(place))
        checkpoint = load_checkpoint(
            name_or_path,
            device=place,
            dtype=computes_in,
            local_files_only=local_files_only,
            with_text_encoder=prompt_cache is None,
            memory=memory,
        )
        if prompt_cache is not None:
            identity = encoder_identity(checkpoint.model.transformer, info.id)
            checkpoint = replace(checkpoint, text_encoder=CachedTextEncoder(prompt_cache, identity))
        return cls(
            checkpoint,
            device=place,
            show_progress=show_progress,
            estimators=estimators,
            guardrail=guard,
        )

    def __call__(
        self,
        *,
        prompt: str,
        video: str | Path | np.ndarray | None = None,
        controls: Mapping[str, Any] | Sequence[Any] | None = None,
        **settings: Any,
    ) -> GeneratedClip:
        """Make one clip.

        Args:
            prompt: How the new clip looks.
            video: The clip to restyle: a path, frames (f h w 3, uint8), or one picture (h w 3); may
                be left out where a control is given as a clip.
            controls: Per control (``edge``, ``depth``, ``seg``, ``vis``) its weight, or a mapping
                of :class:`~cosmos_transfer.inputs.request.ControlRequest`'s fields; or a list of
                such requests.
            settings: The other fields of
                :class:`~cosmos_transfer.inputs.request.GenerationRequest`.

        Raises:
            TransferError: The request cannot be honoured; nothing has been generated.
        """
        given = {"prompt": prompt, "video": video, "controls": controls, **settings}
        request = request_from_mapping(
            {key: value for key, value in given.items() if value is not None}
        )
        estimators = None if self.estimators is None else tuple(self.estimators)
        return self.generate(check_request(request, self.checkpoint.info, estimators=estimators))

    @torch.inference_mode()
    def generate(self, checked: CheckedRequest) -> GeneratedClip:
        """Make the clip of a request that was checked."""
        request, info = checked.request, self.checkpoint.info
        clock = _Clock()
        if self.guardrail is not None:
            with clock("guardrail"):
                self.guardrail.check_prompt(request.prompt)
        with clock("read"):
            conditions = self._read(checked)
        with clock("text"):
            text, negative = self._encode_prompts(request.prompt, request.negative_prompt)
        for note in self._words_left_out(request):
            log.warning("%s", note)
        plan = plan_chunks(
            checked.num_frames,
            chunk_frames=info.native_frames,
            overlap=min(INHERITED_FRAMES, info.native_frames - 1),
            strides=info.strides,
        )
        steps = request.num_inference_steps or info.num_inference_steps
        guidance = info.guidance_scale if request.guidance_scale is None else request.guidance_scale
        sigmas = checkpoint_sigmas(
            steps,
            shift=info.shift,
            karras=info.karras,
            start=min(request.strength, info.first_sigma),
        )
        caches: list[StepCache] = []
        sample = get_sampler(info.sampler)
        phases = plan_phases(conditions.steps, steps, conditions.step_ramps)

        pieces: list[UInt8[np.ndarray, "_ h w 3"]] = []
        weights: list[Float[Tensor, "k _"]] = []
        with self._progress(len(plan) * steps) as on_step:
            for chunk in plan:
                with clock("encode"):
                    chunk_weights = self._token_weights(conditions, chunk, request.weight_rule)
                    control_latents = self._encode_controls(conditions, chunk, chunk_weights)
                    inherited = self._encode_inherited(pieces, chunk)
                with clock("denoise"):
                    denoisers = []
                    for phase in phases:
                        weights_now = chunk_weights
                        if not phase.is_plain:
                            weights_now = self._token_weights(
                                conditions, chunk, request.weight_rule, phase.factors
                            )
                        acting = _acting(conditions.controls, weights_now, control_latents)
                        one = self._denoiser(
                            text, negative, acting, inherited, guidance, request.step_cache, caches
                        )
                        denoisers.append((float(sigmas[phase.last]), one))
                    denoiser = denoisers[0][1] if len(phases) == 1 else Phased(tuple(denoisers))
                    noise = self._noise(checked, chunk, conditions.padded_size)
                    begin = start_latents(
                        noise,
                        sigmas[0],
                        clip=self._encode_clip(conditions, chunk),
                        scale_noise=info.sigma_data is not None,
                    )
                    latents = sample(denoiser, begin, sigmas, on_step=on_step)
                _check_finite(latents, chunk)
                with clock("decode"):
                    # What acts in the last steps decides what it looks like, here as there.
                    pieces.append(self._decode(latents, acting))
                weights.append(chunk_weights)
        with clock("resize"):
            frames = _uncrop(stitch(plan, pieces), conditions.working_size, checked.size)
        metrics: dict[str, Any] = {}
        if request.keep is not None:
            with clock("keep"):
                frames, metrics["kept_region"] = _keep_region(checked, frames)
        if self.guardrail is not None:
            with clock("guardrail"):
                frames = self.guardrail.check_frames(frames)
        return GeneratedClip(
            frames=frames,
            times=checked.times,
            rate=checked.rate,
            is_still=checked.is_still,
            record=self._record(
                checked, conditions, plan, weights, steps, guidance, clock, metrics, caches
            ),
        )

    # ------------------------------------------------------------------ what goes in, what steers

    def _read(self, checked: CheckedRequest) -> _Conditions:
        request, size = checked.request, checked.working_size
        clip = _read_video(checked, size)
        # In one order, whatever the request's: sums of residuals then agree to the last bit.
        asked = sorted(request.controls, key=lambda each: CONTROL_NAMES.index(each.name))
        controls = [
            prepare_control(
                control,
                clip,
                size=size,
                num_frames=checked.num_frames,
                length_policy=checked.length_policy,
                estimators=self.estimators,
            )
            for control in asked
        ]
        maps = build_weight_maps(
            asked,
            num_frames=checked.num_frames,
            size=size,
            segmentation=next((c.segmentation for c in controls if c.segmentation), None),
            length_policy=checked.length_policy,
        )
        multiple = self.checkpoint.info.spatial_multiple
        padded = Size(round_up(size.height, multiple), round_up(size.width, multiple))
        return _Conditions(
            controls=tuple(
                replace(control, picture=_pad(control.picture, padded), segmentation=None)
                for control in controls
            ),
            steps=tuple(each.steps for each in asked),
            step_ramps=tuple(each.step_ramp for each in asked),
            maps=maps.padded_to(padded),
            working_size=size,
            padded_size=padded,
            clip=None if clip is None or request.strength >= 1.0 else _pad(clip.frames, padded),
        )

    def _encode_prompts(self, prompt: str, negative: str) -> tuple[Tensor, Tensor]:
        encoder = self.checkpoint.text_encoder
        encoded = [encoder.encode([text]).to(self.device) for text in (prompt, negative)]
        return encoded[0], encoded[1]

    def _words_left_out(self, request: GenerationRequest) -> Iterator[str]:
        for which, text in (
            ("prompt", request.prompt),
            ("negative prompt", request.negative_prompt),
        ):
            if unknown := self.checkpoint.text_encoder.unknown_words(text):
                left_out = ", ".join(unknown)
                yield f"words of the {which} the text encoder left out: {left_out}"

    def _token_weights(
        self,
        conditions: _Conditions,
        chunk: Chunk,
        rule: str,
        factors: Sequence[float] | None = None,
    ) -> Float[Tensor, "k n"]:
        """The weights of a chunk; at some of the steps, times a factor per control."""
        maps = torch.from_numpy(conditions.maps.at_frames(list(chunk.frame_indices)).values)
        if factors is not None:
            maps = maps * torch.tensor(factors, dtype=maps.dtype)[:, None, None, None]
        info = self.checkpoint.info
        return token_weights(maps, info.strides, info.patch, rule).to(self.device)

    def _encode_controls(
        self, conditions: _Conditions, chunk: Chunk, weights: Float[Tensor, "k n"]
    ) -> dict[str, Tensor]:
        frames = list(chunk.frame_indices)
        return {
            control.name: self.checkpoint.autoencoder.encode_control(
                _to_video(control.picture[frames]).to(self.device)
            )
            # A branch that acts nowhere in this chunk is not run, and needs no latents.
            for control, weight in zip(conditions.controls, weights, strict=True)
            if bool(weight.any())
        }

    def _encode_clip(
        self, conditions: _Conditions, chunk: Chunk
    ) -> Float[Tensor, "1 c t hz wz"] | None:
        """Clean latents of the input, where sampling is to start from it."""
        if conditions.clip is None:
            return None
        video = _to_video(conditions.clip[list(chunk.frame_indices)])
        return self.checkpoint.autoencoder.encode(video.to(self.device))

    def _encode_inherited(
        self, pieces: list[UInt8[np.ndarray, "_ h w 3"]], chunk: Chunk
    ) -> tuple[Tensor, int] | None:
        if chunk.num_inherited == 0:
            return None
        # Chunks before the last are never padded, so the inherited frames are the last ones.
        frames = pieces[-1][-chunk.num_inherited :]
        latents = self.checkpoint.autoencoder.encode(_to_video(frames).to(self.device))
        return latents, latents.shape[2]

    # -------------------------------------------------------------------------- what predicts

    def _denoiser(
        self,
        text: Tensor,
        negative: Tensor,
        acting: _Acting,
        inherited: tuple[Tensor, int] | None,
        guidance_scale: float,
        step_cache: float,
        caches: list[StepCache],
    ) -> Denoiser:
        prompts = [text] if guidance_scale == 1.0 else [text, negative]
        passes: list[Denoiser] = []
        for tokens in prompts:
            one: Denoiser = self.checkpoint.model.conditioned_on(
                tokens, acting.latents, acting.weights, inherited
            )
            if step_cache > 0.0:  # each pass remembers for itself
                one = StepCache(one, step_cache)
                caches.append(one)
            passes.append(one)
        return Guided(passes[0], passes[1] if len(passes) > 1 else None, guidance_scale)

    def _noise(
        self, checked: CheckedRequest, chunk: Chunk, size: Size
    ) -> Float[Tensor, "1 c t h w"]:
        info, request = self.checkpoint.info, checked.request
        shape = (
            info.latent_channels,
            info.strides.latent_frames(chunk.num_frames),
            size.height // info.strides.space,
            size.width // info.strides.space,
        )
        noise = chunk_noise(
            shape,
            seed=request.seed,
            episode=request.episode,
            variant=request.variant,
            chunk=chunk.index,
        )
        return noise[None].to(self.device)

    def _decode(
        self,
        latents: Float[Tensor, "1 c t hz wz"],
        acting: _Acting,
    ) -> UInt8[np.ndarray, "f h w 3"]:
        autoencoder = self.checkpoint.autoencoder
        video = decode_controlled(autoencoder, latents, acting.latents, acting.weights)[0].float()
        frames = ((video + 1.0) * 127.5).round().clamp(0.0, 255.0).to(torch.uint8)
        return np.ascontiguousarray(frames.permute(1, 2, 3, 0).cpu().numpy())

    # --------------------------------------------------------------------------- what comes out

    @contextmanager
    def _progress(self, total: int) -> Iterator[Any]:
        with tqdm(total=total, desc="denoise", unit="step", disable=not self.show_progress) as bar:
            yield lambda _step: bar.update(1)

    def _record(
        self,
        checked: CheckedRequest,
        conditions: _Conditions,
        plan: tuple[Chunk, ...],
        weights: list[Float[Tensor, "k _"]],
        num_steps: int,
        guidance_scale: float,
        clock: _Clock,
        metrics: Mapping[str, Any],
        caches: Sequence[StepCache] = (),
    ) -> GenerationRecord:
        info, request = self.checkpoint.info, checked.request
        resolved = replace(
            request, num_inference_steps=num_steps, guidance_scale=float(guidance_scale)
        )
        effective = torch.cat(weights, dim=1).cpu().numpy()
        notes = [*checked.warnings]
        # What checking has said of a file, reading it says again.
        read = (f"control '{each.name}': {n}" for each in conditions.controls for n in each.notes)
        notes += [note for note in dict.fromkeys(read) if note not in notes]
        notes += self._words_left_out(request)
        if caches:
            run, asked = (
                sum(each.num_evaluations for each in caches),
                sum(each.num_calls for each in caches),
            )
            notes.append(
                f"step cache {request.step_cache:g}: the network ran {run} of {asked} times"
            )
        if self.guardrail is not None:
            notes.append(f"guardrail: {self.guardrail.name}")
        elif info.is_published:
            notes.append("guardrail: switched off, which the checkpoint's licence may not allow")
        return GenerationRecord(
            request=request_to_mapping(resolved),
            checkpoint={"id": info.id, "sha256": dict(info.sha256)},
            inputs=tuple(
                {
                    "where": each.where,
                    "path": None if each.path is None else str(each.path),
                    "sha256": None if each.path is None else file_sha256(each.path),
                    "num_frames": each.num_frames,
                    "size": each.size,
                }
                for each in checked.inputs
            ),
            input_size=checked.size,
            working_size=conditions.working_size,
            padded_size=conditions.padded_size,
            num_frames=checked.num_frames,
            padded_frames=sum(chunk.num_padded for chunk in plan),
            rate=checked.rate,
            times=checked.times,
            chunks=tuple(
                {
                    "index": chunk.index,
                    "start": chunk.start,
                    "stop": chunk.stop,
                    "num_inherited": chunk.num_inherited,
                    "num_padded": chunk.num_padded,
                }
                for chunk in plan
            ),
            weights={
                control.name: weight_summary(values)
                for control, values in zip(conditions.controls, effective, strict=True)
            },
            seeds={
                "seed": request.seed,
                "episode": request.episode,
                "variant": request.variant,
            },
            device=str(self.device),
            dtype=str(self.checkpoint.model.dtype).removeprefix("torch."),
            timings_s=clock.seconds,
            metrics=metrics,
            notes=tuple(notes),
        )


class _Clock:
    """Seconds spent per stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        spent = time.perf_counter() - started
        self.seconds[stage] = round(self.seconds.get(stage, 0.0) + spent, 4)


def _acting(
    controls: Sequence[ControlClip],
    weights: Float[Tensor, "k n"],
    control_latents: Mapping[str, Tensor],
) -> _Acting:
    active = {
        control.name: weight[None]
        for control, weight in zip(controls, weights, strict=True)
        if bool(weight.any())
    }
    return _Acting(latents={name: control_latents[name] for name in active}, weights=active)


def _keep_region(
    checked: CheckedRequest, made: UInt8[np.ndarray, "f h w 3"]
) -> tuple[UInt8[np.ndarray, "f h w 3"], dict[str, float | None]]:
    """Put the kept region of the input back, and say how much that is."""
    request = checked.request
    original = _read_video(checked, checked.size)
    assert request.keep is not None
    assert original is not None
    segmentation = None
    if isinstance(request.keep, Mapping):
        seg = next(each for each in request.controls if each.name == "seg")
        target = Target(
            size=checked.size, num_frames=checked.num_frames, length_policy=checked.length_policy
        )
        segmentation = given_segmentation(seg, target)
    mask = build_keep_mask(
        request.keep,
        num_frames=checked.num_frames,
        size=checked.size,
        segmentation=segmentation,
        length_policy=checked.length_policy,
    )
    frames = keep_region(made, original.frames, mask)
    return frames, kept_metrics(frames, original.frames, mask)


def _read_video(checked: CheckedRequest, size: Size) -> VideoClip | None:
    """The clip at a size; None where the request has controls alone."""
    request = checked.request
    if request.video is None:
        return None
    if isinstance(request.video, np.ndarray):
        # A picture is given without a time axis.
        video = request.video[None] if request.video.ndim == 3 else request.video
        frames, path = video[: request.max_frames], None
    else:
        clip = read_clip(
            request.video,
            max_frames=request.max_frames,
            rate=request.rate,
            size=size,
        )
        frames, path = clip.frames, clip.path
    indices = match_length(
        len(frames), checked.num_frames, checked.length_policy, where=f"video {path or 'array'}"
    )
    if len(frames) != checked.num_frames:
        frames = frames[indices]
    if request.flip_vertical:
        frames = np.ascontiguousarray(frames[:, ::-1])
    return VideoClip(
        frames=resize_frames(frames, size, how="area"),
        times=checked.times,
        rate=checked.rate,
        path=path,
        is_still=checked.is_still,
    )


def _pad(frames: UInt8[np.ndarray, "f y x 3"], size: Size) -> UInt8[np.ndarray, "f h w 3"]:
    if frames.shape[1:3] == (size.height, size.width):
        return frames
    rows = reflected_indices(frames.shape[1], size.height)
    columns = reflected_indices(frames.shape[2], size.width)
    return frames[:, list(rows)][:, :, list(columns)]


def _uncrop(
    frames: UInt8[np.ndarray, "f y x 3"], working: Size, size: Size
) -> UInt8[np.ndarray, "f h w 3"]:
    """Cut the padding off and scale back to the input's size."""
    kept = frames[:, : working.height, : working.width]
    return np.ascontiguousarray(resize_frames(kept, size, how="lanczos"))


def _to_video(frames: UInt8[np.ndarray, "f h w 3"]) -> Float[Tensor, "1 3 f h w"]:
    video = torch.from_numpy(np.ascontiguousarray(frames)).permute(3, 0, 1, 2)
    return video[None].float() / 127.5 - 1.0


def _check_finite(latents: Tensor, chunk: Chunk) -> None:
    if not bool(torch.isfinite(latents).all()):
        raise NumericsError(
            explain(
                f"chunk {chunk.index}, latents",
                expected="finite numbers",
                got="NaN or infinity",
                do="Run in float32 (dtype), or with a smaller guidance_scale.",
            )
        )


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise ConfigError(
            explain("device", expected="auto, cpu or cuda", got=repr(name), do="Use one of these.")
        )
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            explain(
                "device",
                expected="a CUDA device",
                got="none on this machine",
                do="Set model.device=cpu, or install a CUDA build of torch.",
            )
        )
    return device


def _dtype(dtype: str | torch.dtype | None) -> torch.dtype | None:
    if dtype is None or isinstance(dtype, torch.dtype):
        return dtype
    if dtype not in DTYPES:
        raise ConfigError(
            explain(
                "dtype",
                expected="one of " + ", ".join(DTYPES),
                got=repr(dtype),
                do="Leave it unset for the device's own.",
            )
        )
    return DTYPES[dtype]
