"""The page that tells the story: a request in, a clip out.

:meth:`TransferPipeline.generate` reads top to bottom like the folders of this package: inputs,
controls, weights, model, diffusion, long video, outputs.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor
from tqdm import tqdm

from cosmos_transfer.controls.base import ControlClip
from cosmos_transfer.diffusion.denoiser import Denoiser
from cosmos_transfer.diffusion.guidance import Guided
from cosmos_transfer.diffusion.noise import chunk_noise
from cosmos_transfer.diffusion.noise_schedule import checkpoint_sigmas
from cosmos_transfer.diffusion.phases import Phase, Phased, plan_phases
from cosmos_transfer.diffusion.samplers import get_sampler
from cosmos_transfer.diffusion.start import start_latents
from cosmos_transfer.diffusion.step_cache import StepCache
from cosmos_transfer.errors import ConfigError, NumericsError, explain
from cosmos_transfer.inputs.request import (
    GenerationRequest,
    request_from_mapping,
    request_to_mapping,
)
from cosmos_transfer.inputs.validate import CheckedRequest, check_request
from cosmos_transfer.inputs.video import file_sha256, resize_frames
from cosmos_transfer.long_video.cut import ChunkInputs, InputCutter, keep_reader, video_reader
from cosmos_transfer.long_video.plan import Chunk, given_latents, request_chunks
from cosmos_transfer.long_video.prompts import blend_tokens, prompt_shares
from cosmos_transfer.long_video.stitch import Stitcher, made_part
from cosmos_transfer.long_video.store import ChunkStore, FinishedChunk, identity
from cosmos_transfer.model.checkpoint import Checkpoint, checkpoint_info, load_checkpoint
from cosmos_transfer.model.controlled_decoder import decode_controlled
from cosmos_transfer.model.guardrail import Guardrail, choose_guardrail
from cosmos_transfer.model.prompt_cache import CachedTextEncoder, encoder_identity
from cosmos_transfer.offload.options import MemoryOptions
from cosmos_transfer.outputs.keep import KeptMetrics, keep_region
from cosmos_transfer.outputs.record import (
    GenerationRecord,
    WeightTotals,
    library_versions,
    weight_totals,
    write_record,
)
from cosmos_transfer.outputs.writer import check_destination, write_blocks, write_clip
from cosmos_transfer.parallel.apply import divide, parallel_facts, share_arrays
from cosmos_transfer.parallel.guidance import OwnPass
from cosmos_transfer.parallel.job import Job
from cosmos_transfer.parallel.mesh import MeshShape, check_mesh, choose_mesh
from cosmos_transfer.shapes import Size
from cosmos_transfer.weights.fusion import token_weights

log = logging.getLogger(__name__)

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
        _write_record_beside(written, self.record, overwrite=overwrite)
        return written


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FinishedFrames:
    """Some frames of a clip, done: of the input's size, the kept region in place.

    ``start`` is the index of the first of them in the clip; ``chunk`` of ``num_chunks`` is the one
    that finished them.
    """

    frames: UInt8[np.ndarray, "f h w 3"]
    start: int
    chunk: int
    num_chunks: int


@dataclass(slots=True, kw_only=True, eq=False)
class Run:
    """What stays the same over the chunks of one clip, and what they add up to."""

    checked: CheckedRequest
    inputs: InputCutter
    plan: tuple[Chunk, ...]
    text: tuple[Tensor, ...]
    negative: Tensor
    num_steps: int
    guidance_scale: float
    sigmas: tuple[float, ...]
    phases: tuple[Phase, ...]
    clock: _Clock
    caches: list[StepCache] = field(default_factory=list)
    weights: WeightTotals = field(default_factory=WeightTotals)
    kept: KeptMetrics = field(default_factory=KeptMetrics)
    num_resumed: int = 0


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
        self.job: Job | None = None

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

    def divide(self, job: Job) -> None:
        """Share every clip from now on with the other processes of a job.

        All of them must be given the same requests; the first writes and speaks.
        """
        divide(self.checkpoint.model, job, self.device)
        self.job = job

    def choose_mesh(
        self,
        requests: Sequence[GenerationRequest],
        num_processes: int,
        asked: Mapping[str, int] | None = None,
    ) -> MeshShape:
        """The mesh for some requests: as asked, or one that all of them can use.

        Args:
            requests: What will be made.
            num_processes: How many processes there are.
            asked: Processes by axis; axes left out are 1. Nothing: all are chosen.

        Raises:
            ConfigError: No such mesh; shows the equation with its numbers.
        """
        scale = self.checkpoint.info.guidance_scale
        facts = parallel_facts(
            self.checkpoint.model,
            min(len(each.controls) for each in requests),
            is_guided=all((each.guidance_scale or scale) != 1.0 for each in requests),
        )
        if not asked:
            return choose_mesh(num_processes, facts)
        return check_mesh(MeshShape(**asked), num_processes, facts)

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

    def generate(self, checked: CheckedRequest) -> GeneratedClip:
        """Make the clip of a request that was checked."""
        run = self.start(checked)
        frames = np.concatenate([each.frames for each in self._finished(run)])
        return GeneratedClip(
            frames=frames,
            times=checked.times,
            rate=checked.rate,
            is_still=checked.is_still,
            record=self._record(run),
        )

    def iterate(self, checked: CheckedRequest) -> Iterator[FinishedFrames]:
        """Make the clip of a request that was checked, and give its frames as they are finished.

        All of them come, in order, a chunk's at a time; only a chunk is held in memory.
        """
        yield from self._finished(self.start(checked))

    def write(
        self,
        checked: CheckedRequest,
        path: str | Path,
        *,
        overwrite: bool = False,
        resume: bool = False,
        on_frames: Callable[[FinishedFrames], None] | None = None,
    ) -> Path:
        """Make a clip and write it with its record as it is made; returns where the clip went.

        Memory does not grow with the clip's length (:mod:`cosmos_transfer.long_video.cut` says
        which inputs are kept whole). The file is the one that :meth:`generate` and
        :meth:`GeneratedClip.save` come to, byte for byte.

        Args:
            checked: The request.
            path: File name, with or without its ending.
            overwrite: Replace files that are there.
            resume: Keep finished chunks in a folder beside the clip until it is done, and begin
                behind those that an earlier run of the same request left there.
            on_frames: Called with every chunk's frames as they are finished.

        Raises:
            MediaError: One of the files is there already, or cannot be written.
        """
        path = Path(path)
        codec = checked.request.output_codec
        check_destination(path, codec=codec, overwrite=overwrite, is_still=checked.is_still)
        if checked.is_still:
            still = self.generate(checked)
            return still.save(path, overwrite=overwrite) if self.is_first else path
        run = self.start(checked)
        store = None
        if resume and len(run.plan) > 1:
            folder = path.with_name(f".{path.name}.chunks")
            store = ChunkStore(folder, identity(self._identity(run)), overwrite=overwrite)

        def blocks() -> Iterator[UInt8[np.ndarray, "f h w 3"]]:
            for each in self._finished(run, store):
                if on_frames is not None:
                    on_frames(each)
                yield each.frames

        if not self.is_first:  # one process of several writes
            for _ in self._finished(run, store):
                pass
            return path
        written = write_blocks(
            path, blocks(), times=checked.times, rate=checked.rate, codec=codec, overwrite=overwrite
        )
        _write_record_beside(written, self._record(run), overwrite=overwrite)
        if store is not None:
            store.remove()
        return written

    # --------------------------------------------------------------------------- one clip's run

    @torch.inference_mode()
    def start(self, checked: CheckedRequest) -> Run:
        """Read what a clip needs before its first chunk."""
        request, info = checked.request, self.checkpoint.info
        clock = _Clock()
        prompts = (request.prompt, *(prompt for _, prompt in request.prompt_schedule))
        if self.guardrail is not None:
            with clock("guardrail"):
                for prompt in prompts:
                    self.guardrail.check_prompt(prompt)
        plan = request_chunks(
            checked.num_frames, request, native_frames=info.native_frames, strides=info.strides
        )
        with clock("read"):
            inputs = InputCutter(
                checked, estimators=self.estimators, multiple=info.spatial_multiple
            )
        with clock("text"):
            *text, negative = self._encode_prompts((*prompts, request.negative_prompt))
        for note in self._words_left_out(request):
            log.warning("%s", note)
        steps = request.num_inference_steps or info.num_inference_steps
        guidance = info.guidance_scale if request.guidance_scale is None else request.guidance_scale
        if self.job is not None:
            self.choose_mesh([request], self.job.shape.size, asdict(self.job.shape))
        return Run(
            checked=checked,
            inputs=inputs,
            plan=plan,
            text=tuple(text),
            negative=negative,
            num_steps=steps,
            guidance_scale=guidance,
            sigmas=checkpoint_sigmas(
                steps,
                shift=info.shift,
                karras=info.karras,
                start=min(request.strength, info.first_sigma),
            ),
            phases=plan_phases(
                [each.steps for each in inputs.controls],
                steps,
                [each.step_ramp for each in inputs.controls],
            ),
            clock=clock,
        )

    def _finished(self, run: Run, store: ChunkStore | None = None) -> Iterator[FinishedFrames]:
        """Chunk after chunk, made or found finished; joined, and brought to the input's size."""
        stitcher = Stitcher(run.plan)
        finish = _Finish(run, self.guardrail)
        with self._progress(len(run.plan) * run.num_steps) as on_step:
            for chunk in run.plan:
                done = None if store is None else self._load(store, chunk)
                if done is None:
                    done = self.make_chunk(run, chunk, stitcher.given(), on_step=on_step)
                    if store is not None and self.is_first:
                        store.save(chunk.index, done)
                else:
                    run.num_resumed += 1
                    on_step(run.num_steps)
                run.weights.add(done.weights)
                frames = finish(stitcher.add(done.made))
                yield FinishedFrames(
                    frames=frames,
                    start=finish.num_frames - len(frames),
                    chunk=chunk.index,
                    num_chunks=len(run.plan),
                )

    @property
    def is_first(self) -> bool:
        """Whether this process is the one that writes and speaks."""
        return self.job is None or self.job.rank == 0

    def _load(self, store: ChunkStore, chunk: Chunk) -> FinishedChunk | None:
        """A chunk that was finished before, where the first process has it."""
        done = store.load(chunk.index) if self.is_first else None
        if self.job is None:
            return done
        arrays = None if done is None else (done.made, done.weights)
        shared = share_arrays(self.job, arrays)
        return None if shared is None else FinishedChunk(made=shared[0], weights=shared[1])

    @torch.inference_mode()
    def make_chunk(
        self,
        run: Run,
        chunk: Chunk,
        given: UInt8[np.ndarray, "_ h w 3"] | None,
        *,
        on_step: Callable[[int], None] | None = None,
    ) -> FinishedChunk:
        """Make one chunk: from the frames it is given and its inputs to the frames it makes.

        Args:
            run: What :meth:`start` read.
            chunk: One of its plan.
            given: Clean frames at the padded working size that it begins with.
            on_step: Called after every denoising step.
        """
        request, info, clock = run.checked.request, self.checkpoint.info, run.clock
        with clock("read"):
            inputs = run.inputs.at_frames(chunk.frame_indices)
        with clock("encode"):
            weights = self._token_weights(inputs, request.weight_rule)
            control_latents = self._encode_controls(inputs, weights)
            inherited = self._encode_given(given)
            clip = self._encode_clip(inputs)
        starts = (0, *(frame for frame, _ in request.prompt_schedule))
        text = blend_tokens(run.text, prompt_shares(starts, chunk))
        with clock("denoise"):
            denoisers = []
            for phase in run.phases:
                weights_now = weights
                if not phase.is_plain:
                    weights_now = self._token_weights(inputs, request.weight_rule, phase.factors)
                acting = _acting(inputs.controls, weights_now, control_latents)
                one = self._denoiser(run, text, acting, inherited)
                denoisers.append((float(run.sigmas[phase.last]), one))
            denoiser = denoisers[0][1] if len(denoisers) == 1 else Phased(tuple(denoisers))
            begin = start_latents(
                self._noise(run.checked, chunk, run.inputs.padded_size),
                run.sigmas[0],
                clip=clip,
                scale_noise=info.sigma_data is not None,
            )
            sample = get_sampler(info.sampler)
            latents = sample(
                denoiser,
                begin,
                run.sigmas,
                on_step=None if on_step is None else lambda _step: on_step(1),
            )
        _check_finite(latents, chunk)
        with clock("decode"):
            # What acts in the last steps decides what it looks like, here as there.
            piece = self._decode(latents, acting)
        return FinishedChunk(
            made=made_part(chunk, piece), weights=weight_totals(weights.cpu().numpy())
        )

    def _identity(self, run: Run) -> Mapping[str, Any]:
        """Everything that decides the frames of a run's chunks."""
        info, request = self.checkpoint.info, run.checked.request
        return {
            "request": request_to_mapping(replace(request, name=None, output_codec="h264")),
            "steps": run.num_steps,
            "guidance_scale": run.guidance_scale,
            "sigmas": run.sigmas,
            "inputs": [
                None if each.path is None else file_sha256(each.path) for each in run.checked.inputs
            ],
            "size": (run.checked.num_frames, str(run.inputs.padded_size)),
            "plan": [each.frame_indices for each in run.plan],
            "checkpoint": (info.id, info.location, sorted(info.sha256.items())),
            "device": (self.device.type, str(self.checkpoint.model.dtype)),
            "versions": library_versions(),
        }

    # ------------------------------------------------------------------ what goes in, what steers

    def _encode_prompts(self, prompts: Sequence[str]) -> list[Tensor]:
        encoder = self.checkpoint.text_encoder
        return [encoder.encode([text]).to(self.device) for text in prompts]

    def _words_left_out(self, request: GenerationRequest) -> Iterator[str]:
        for which, text in (
            ("prompt", request.prompt),
            *((f"prompt from frame {frame}", text) for frame, text in request.prompt_schedule),
            ("negative prompt", request.negative_prompt),
        ):
            if unknown := self.checkpoint.text_encoder.unknown_words(text):
                left_out = ", ".join(unknown)
                yield f"words of the {which} the text encoder left out: {left_out}"

    def _token_weights(
        self, inputs: ChunkInputs, rule: str, factors: Sequence[float] | None = None
    ) -> Float[Tensor, "k n"]:
        """The weights of a chunk; at some of the steps, times a factor per control."""
        maps = torch.from_numpy(inputs.maps.values)
        if factors is not None:
            maps = maps * torch.tensor(factors, dtype=maps.dtype)[:, None, None, None]
        info = self.checkpoint.info
        return token_weights(maps, info.strides, info.patch, rule).to(self.device)

    def _encode_controls(
        self, inputs: ChunkInputs, weights: Float[Tensor, "k n"]
    ) -> dict[str, Tensor]:
        return {
            control.name: self.checkpoint.autoencoder.encode_control(
                _to_video(control.picture).to(self.device)
            )
            # A branch that acts nowhere in this chunk is not run, and needs no latents.
            for control, weight in zip(inputs.controls, weights, strict=True)
            if bool(weight.any())
        }

    def _encode_clip(self, inputs: ChunkInputs) -> Float[Tensor, "1 c t hz wz"] | None:
        """Clean latents of the input, where sampling is to start from it."""
        if inputs.clip is None:
            return None
        return self.checkpoint.autoencoder.encode(_to_video(inputs.clip).to(self.device))

    def _encode_given(
        self, frames: UInt8[np.ndarray, "_ h w 3"] | None
    ) -> tuple[Tensor, int] | None:
        if frames is None:
            return None
        latents = self.checkpoint.autoencoder.encode(_to_video(frames).to(self.device))
        return latents, given_latents(len(frames), self.checkpoint.info.strides)

    # -------------------------------------------------------------------------- what predicts

    def _denoiser(
        self, run: Run, text: Tensor, acting: _Acting, inherited: tuple[Tensor, int] | None
    ) -> Denoiser:
        prompts = [text] if run.guidance_scale == 1.0 else [text, run.negative]
        is_divided = self.job is not None and self.job.size("guidance") == 2
        if self.job is not None and is_divided:
            prompts = [prompts[self.job.place("guidance")]]
        passes: list[Denoiser] = []
        for tokens in prompts:
            one: Denoiser = self.checkpoint.model.conditioned_on(
                tokens, acting.latents, acting.weights, inherited
            )
            if run.checked.request.step_cache > 0.0:  # each pass remembers for itself
                one = StepCache(one, run.checked.request.step_cache)
                run.caches.append(one)
            passes.append(one)
        if self.job is not None and is_divided:
            return OwnPass(self.job, passes[0], run.guidance_scale)
        return Guided(passes[0], passes[1] if len(passes) > 1 else None, run.guidance_scale)

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
        with tqdm(
            total=total,
            desc="denoise",
            unit="step",
            disable=not (self.show_progress and self.is_first),
        ) as bar:
            yield bar.update

    def _record(self, run: Run) -> GenerationRecord:
        checked, info, request = run.checked, self.checkpoint.info, run.checked.request
        resolved = replace(
            request, num_inference_steps=run.num_steps, guidance_scale=float(run.guidance_scale)
        )
        notes = [*checked.warnings]
        # What checking has said of a file, reading it says again.
        notes += [note for note in run.inputs.notes if note not in notes]
        notes += self._words_left_out(request)
        if run.caches:
            evaluated, asked = (
                sum(each.num_evaluations for each in run.caches),
                sum(each.num_calls for each in run.caches),
            )
            notes.append(
                f"step cache {request.step_cache:g}: the network ran {evaluated} of {asked} times"
            )
        if run.num_resumed:
            notes.append(f"resumed: {run.num_resumed} of {len(run.plan)} chunks were finished")
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
            working_size=run.inputs.working_size,
            padded_size=run.inputs.padded_size,
            num_frames=checked.num_frames,
            padded_frames=sum(chunk.num_padded for chunk in run.plan),
            rate=checked.rate,
            times=checked.times,
            chunks=tuple(
                {
                    "index": chunk.index,
                    "start": chunk.start,
                    "stop": chunk.stop,
                    "num_inherited": chunk.num_inherited,
                    "num_padded": chunk.num_padded,
                    "num_blended": chunk.num_blended,
                    "is_anchored": int(chunk.is_anchored),
                }
                for chunk in run.plan
            ),
            weights=run.weights.summaries([each.name for each in run.inputs.controls]),
            seeds={
                "seed": request.seed,
                "episode": request.episode,
                "variant": request.variant,
            },
            device=str(self.device),
            dtype=str(self.checkpoint.model.dtype).removeprefix("torch."),
            timings_s=run.clock.seconds,
            metrics={} if request.keep is None else {"kept_region": run.kept.values()},
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


class _Finish:
    """From frames at the padded working size to the input's own, the kept region put back."""

    def __init__(self, run: Run, guardrail: Guardrail | None) -> None:
        self._run = run
        self._guardrail = guardrail
        self.num_frames = 0
        keeps = run.checked.request.keep is not None
        self._mask = keep_reader(run.checked) if keeps else None
        self._original = video_reader(run.checked, run.checked.size) if keeps else None

    def __call__(self, padded: UInt8[np.ndarray, "f y x 3"]) -> UInt8[np.ndarray, "f h w 3"]:
        run = self._run
        indices = range(self.num_frames, self.num_frames + len(padded))
        with run.clock("resize"):
            frames = to_input_size(padded, run.inputs.working_size, run.checked.size)
        if self._mask is not None and self._original is not None:
            with run.clock("keep"):
                original = self._original.at_frames(indices)
                mask = np.broadcast_to(self._mask.at_frames(indices), frames.shape[:3])
                frames = keep_region(frames, original, mask)
                run.kept.add(frames, original, mask)
        if self._guardrail is not None:
            with run.clock("guardrail"):
                frames = self._guardrail.check_frames(frames)
        self.num_frames += len(frames)
        return frames


def _write_record_beside(written: Path, record: GenerationRecord, *, overwrite: bool) -> None:
    record = replace(record, outputs={"clip": written.name})
    beside = written.with_name(f"{written.name if written.is_dir() else written.stem}.json")
    try:
        write_record(beside, record, overwrite=overwrite)
    except BaseException:
        if not overwrite:  # its name was free: a clip without its record is not left behind
            shutil.rmtree(written) if written.is_dir() else written.unlink()
        raise


def to_input_size(
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
