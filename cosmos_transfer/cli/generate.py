"""``cosmos-transfer generate``: make new clips from a clip, its controls and a prompt."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from cosmos_transfer.cli.main import one_line
from cosmos_transfer.errors import ConfigError, TransferError, explain

if TYPE_CHECKING:
    from cosmos_transfer.config import GenerateSettings
    from cosmos_transfer.inputs.validate import CheckedRequest
    from cosmos_transfer.pipeline import FinishedFrames, TransferPipeline

KEYS = """\
what goes in:
  video=FILE                 a clip, a still, a GIF, a folder of numbered images, .npy or .npz
  scene=FOLDER               a simulator's recording (Isaac, CARLA, MuJoCo, or your own layout): the
                             clip, its controls and its times; controls.NAME.weight picks some
  prompt="TEXT"              how the new clip looks; or prompt_file=FILE, or prompts_file=FILE with
                             one prompt a line (a clip for each)
  negative_prompt="TEXT"     what to stay away from; or negative_prompt_file=FILE
  spec=FILE                  YAML, JSON or JSONL with one or several requests, instead of the above;
                             files written for Cosmos-Transfer1 and 2.5 are read as they are

what steers (NAME is edge, depth, seg or vis; blur is another word for vis):
  controls.NAME.weight=W     a number in [0, 1], a file with a weight map, or, with a segmentation,
                             a table: 'controls.seg.weight={robot: 1.0, default: 0.2}'
  controls.NAME.path=FILE    the control clip; edge and vis are extracted from the video without it
  controls.NAME.mask=FILE    where the weight holds: white applies it (invert=true: black does;
                             binary=true: no grey)
  controls.NAME.ramp=[A,B]   factor of the weight from the first frame to the last
  controls.NAME.steps=[A,B]  act between these shares of the denoising steps: [0,0.5] is the first
                             half; .step_ramp=[A,B]: factor of the weight over those steps
  keep=FILE                  the region of the input that stays: white is put back after decoding;
                             or a table of classes
  controls.NAME.allow_empty=true   an all-black mask is meant
  controls.edge.preset=P, controls.vis.preset=P    very_low, low, medium, high, very_high
  controls.depth.unit=U      m, mm, kitti256, tum5000, carla24, mujoco01, lerobot12, relative
  controls.depth.kind=planar|ray   also .invalid, .near, .far, .direction, .intrinsics,
                             .channel_order (carla24: rgb, bgr), .extent (mujoco01)
  flip_vertical=true         the rows of the video run from the bottom up; for a control's clip,
                             controls.NAME.flip_vertical=true
  controls.seg.labels=FILE   the table of class names
  weight_rule=cap|always|none      cap: divide by the sum where the weights together exceed 1

how it is made (unset: the checkpoint's own):
  num_inference_steps=N  guidance_scale=G (1 = off)  seed=N  episode=N  variant=N
  strength=S                 below 1: start from the clip, this far towards noise (Transfer1's
                             sigma_max as a ratio r is r / (1 + r))
  step_cache=T               skip the network where its output will move less than T (0.15 is a
                             good one); 0, the default, never does
  variants=N                 N clips of the same request, differing in their noise
  resolution=native|input|N  working size: the checkpoint's, the input's, or N pixels short side
  length_policy=refuse|trim|hold|loop    where a control is shorter or longer than the video
  max_frames=N  rate=FPS

long clips (made in chunks; each begins with the last frame of the one before):
  chunk_frames=N             longest chunk; unset: the checkpoint's own
  overlap=N  inherit=M       a chunk shares N frames with the one before, is given the first M of
                             them and cross-fades the rest; overlap=0: chunks know nothing of
                             each other
  anchor=true                a chunk is given the clip's first frame as well (overlap=5 or more)
  'prompt_schedule={40: "a foggy street"}'   another prompt from a frame on
  output.resume=false        keep no finished chunks beside the clip. With them, which is the
                             default, the same command in the same output.dir goes on where it was
                             stopped
  --preview                  write the frames into NAME.preview/ as they come

  model.checkpoint=NAME|FOLDER  model.device=auto|cpu|cuda  model.dtype=auto|float32|bfloat16
  model.prompt_cache=FOLDER  prompts encoded before by cosmos-transfer embed; no encoder is loaded
  model.tile=true  model.fp8=true  model.offload=group|stream    to make a large checkpoint fit;
                             cosmos-transfer plan memory says which it takes
  model.guardrail=auto|on|off    auto: on for NVIDIA's checkpoints, as their licence asks

several processes, one clip (torchrun --nproc-per-node 2 -m cosmos_transfer generate ...):
  parallel.guidance=2        the two passes of guidance on two groups of processes
  parallel.control=N         control branches on N groups
  parallel.ring=N  parallel.ulysses=N    tokens on N processes (Cosmos networks): by a ring, which
                             suits links between nodes, or by heads, within a node
                             unset: chosen. Their product is the number of processes; all of them
                             make the same clip as one, and the first writes and speaks

what comes out:
  output.dir=FOLDER          unset: outputs/generate/<date>/<time>
  output.codec=h264|ffv1|rgb|png   all but h264 are lossless
  output.overwrite=true  name=NAME

config groups:
  model=embedded  output=mp4|ffv1|frames  experiment=edge_only|edge_and_vis|four_controls
  +control@controls.NAME=NAME    the settings of one control

Commas, quotes, brackets and letters outside ASCII have a meaning in this grammar: quote such a
value twice, 'prompt="snow, at night"', or put it into a file.
"""

HELP = f"""\
usage: cosmos-transfer generate KEY=VALUE ...

Make a new clip from a clip, its controls and a prompt. The new clip has the size, the number of
frames and the frame times of the input; its record (JSON) is written beside it.

  cosmos-transfer generate video=sim.mp4 prompt="a snowy street at night" controls.edge.weight=1.0
  cosmos-transfer generate spec=requests.jsonl num_inference_steps=12

{KEYS}
other:
  dry_run=true               check everything, print the plan and the settings, load no model
  --help                     print this text
"""


def main(argv: Sequence[str]) -> int:
    """Run the command; the number is the exit code."""
    if "--help" in argv or "-h" in argv:
        print(HELP, end="")
        return 0
    if not argv:
        raise ConfigError(
            explain(
                "generate",
                expected="a request, such as video=sim.mp4 prompt='a snowy street'",
                got="nothing",
                do="Run cosmos-transfer generate --help.",
            )
        )
    from cosmos_transfer.cli.compose import compose, to_yaml
    from cosmos_transfer.cli.requests import build_requests
    from cosmos_transfer.cli.validate import check_all, print_plans
    from cosmos_transfer.config import GenerateSettings
    from cosmos_transfer.model.checkpoint import checkpoint_info

    argv = ["output.preview=true" if each == "--preview" else each for each in argv]
    settings = compose("generate", argv, GenerateSettings)
    requests = build_requests(settings, argv)
    info = checkpoint_info(settings.model.checkpoint)
    batch = check_all(requests, info, with_plans=settings.dry_run)
    if settings.dry_run:
        print_plans(batch)
        print(to_yaml(settings), end="")
        return 1 if batch.num_failed else 0
    folder = output_folder(settings.output.dir, "generate")
    outcome = generate_all(batch.good, settings, folder=folder, is_batch=len(requests) > 1)
    return 1 if batch.num_failed or outcome.num_failed else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """One clip that was made, and where it and its record are."""

    path: Path

    @property
    def record_path(self) -> Path:
        """The record beside the clip."""
        return self.path.with_suffix(".json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a batch came to."""

    made: tuple[Made, ...]
    num_failed: int


def output_folder(asked: str | None, command: str) -> Path:
    """The folder asked for, or a new one named after the command and the time; not created yet."""
    if asked is not None:
        return Path(asked).expanduser().absolute()
    now = datetime.now().astimezone()
    return Path("outputs", command, f"{now:%Y-%m-%d}", f"{now:%H-%M-%S}").absolute()


def generate_all(
    checked: Sequence[tuple[str, CheckedRequest]],
    settings: GenerateSettings,
    *,
    folder: Path,
    is_batch: bool,
) -> Outcome:
    """Make every clip; in a batch, one that fails leaves the others going.

    Names that are taken and folders that cannot be written are refused before the model is loaded.

    Raises:
        TransferError: The only request failed.
    """
    from cosmos_transfer.outputs.writer import check_destination

    overwrite = settings.output.overwrite
    ready: list[tuple[str, CheckedRequest]] = []
    for name, each in checked:
        try:
            check_destination(
                folder / name,
                codec=each.request.output_codec,
                overwrite=overwrite,
                is_still=each.is_still,
            )
        except TransferError as error:
            if not is_batch:
                raise
            print(f"{name}: {one_line(error)}", file=sys.stderr)
            continue
        ready.append((name, each))
    if not ready:
        return Outcome(made=(), num_failed=len(checked))
    with ExitStack() as stack:
        pipeline = _load(ready, settings, stack)
        made: list[Made] = []
        for name, each in ready:
            try:
                path = pipeline.write(
                    each,
                    folder / name,
                    overwrite=overwrite,
                    resume=settings.output.resume,
                    on_frames=_previewer(folder / f"{name}.preview")
                    if settings.output.preview
                    else None,
                )
            except TransferError as error:
                if not is_batch:
                    raise
                print(f"{name}: {one_line(error)}", file=sys.stderr)
                continue
            if pipeline.is_first:
                print(path, flush=True)
            made.append(Made(path=path))
    if made and pipeline.is_first:
        from cosmos_transfer.cli.compose import to_yaml

        (folder / "config.yaml").write_text(to_yaml(settings), encoding="utf-8")
    return Outcome(made=tuple(made), num_failed=len(checked) - len(made))


def _load(
    ready: Sequence[tuple[str, CheckedRequest]], settings: GenerateSettings, stack: ExitStack
) -> TransferPipeline:
    """The pipeline; where a launcher started several processes, with the others."""
    from cosmos_transfer.offload.options import MemoryOptions
    from cosmos_transfer.pipeline import TransferPipeline

    model = settings.model
    pipeline = TransferPipeline.from_pretrained(
        model.checkpoint,
        device=model.device,
        dtype=None if model.dtype == "auto" else model.dtype,
        guardrail=model.guardrail,
        prompt_cache=model.prompt_cache,
        memory=MemoryOptions(tile=model.tile, fp8=model.fp8, offload=model.offload),
    )
    from cosmos_transfer.parallel.job import joined, num_processes

    if num_processes() > 1:
        # One mesh for all clips of the command: it must fit the one that offers least.
        requests = [each.request for _, each in ready]
        shape = pipeline.choose_mesh(requests, num_processes(), settings.parallel.given())
        pipeline.divide(stack.enter_context(joined(shape, pipeline.device)))
    elif settings.parallel.given():
        raise ConfigError(
            explain(
                "parallel",
                expected="several processes",
                got="one",
                do="Start it with torchrun --nproc-per-node 2 -m cosmos_transfer generate ...",
            )
        )
    return pipeline


def _previewer(folder: Path) -> Callable[[FinishedFrames], None]:
    from cosmos_transfer.outputs.preview import write_preview

    def on_frames(finished: FinishedFrames) -> None:
        write_preview(folder, finished.frames, start=finished.start)

    return on_frames
