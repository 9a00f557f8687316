"""Settings as typed values: what a command may be told, and the one place for each default.

The classes know nothing of Hydra. They are not frozen only because OmegaConf cannot compose a
frozen schema; nothing changes them after they are built. Fields that may hold a number, a path or
a table are ``Any`` here and are checked where the request is built.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from cosmos_transfer.errors import ConfigError, explain


@dataclass(slots=True, kw_only=True)
class ControlSettings:
    """One control of one request. A control takes part as soon as one of its fields is set."""

    path: str | None = None  # the control clip; none: extracted from the video
    weight: Any = None  # number in [0, 1], path of a weight map, or {class: number}; unset: 1
    mask: str | None = None  # where the weight holds; white applies it
    invert: bool | None = None  # black applies it
    binary: bool | None = None  # the mask has no grey: half and above is white
    allow_empty: bool | None = None  # an all-black mask is not a mistake
    steps: Any = None  # [first, last]: shares of the denoising steps between which it acts
    step_ramp: Any = None  # [first, last]: factors of the weight over the denoising steps
    ramp: Any = None  # [first, last]: factors of the weight over the clip
    preset: str | None = None  # edge, vis: very_low, low, medium, high, very_high
    unit: str | None = (
        None  # depth: m, mm, kitti256, tum5000, carla24, mujoco01, lerobot12, relative
    )
    kind: str | None = None  # depth: planar or ray
    invalid: Any = None  # depth: values that mean no reading
    near: float | None = None  # depth: metres
    far: float | None = None  # depth: metres
    direction: str | None = None  # depth, unit relative: near_bright or near_dark
    intrinsics: Any = None  # depth, kind ray: [fx, fy, cx, cy] in pixels
    channel_order: str | None = None  # depth, unit carla24: rgb or bgr
    extent: float | None = None  # depth, unit mujoco01: model.stat.extent, near and far count in it
    flip_vertical: bool | None = None  # the rows run from the bottom up
    labels: str | None = None  # seg: file with the table of class names

    def given(self) -> dict[str, Any]:
        """The fields that were set, by name."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(slots=True, kw_only=True)
class ControlsSettings:
    """The four controls, each off until one of its fields is set."""

    edge: ControlSettings = field(default_factory=ControlSettings)
    depth: ControlSettings = field(default_factory=ControlSettings)
    seg: ControlSettings = field(default_factory=ControlSettings)
    vis: ControlSettings = field(default_factory=ControlSettings)

    def given(self) -> dict[str, dict[str, Any]]:
        """The controls that take part, each with the fields that were set."""
        values = {each.name: getattr(self, each.name).given() for each in fields(self)}
        return {name: value for name, value in values.items() if value}


@dataclass(slots=True, kw_only=True)
class LookSettings:
    """Words that are put behind a prompt; a preset of configs/look sets one part or several."""

    table: str | None = None
    wall: str | None = None
    weather: str | None = None
    time: str | None = None

    def describe(self, prompt: str) -> str:
        """The prompt with the words of the look behind it."""
        words = [getattr(self, each.name) for each in fields(self)]
        return ", ".join(part for part in (prompt.strip(), *words) if part)


@dataclass(slots=True, kw_only=True)
class ModelSettings:
    """Which checkpoint runs, and where."""

    checkpoint: str = "embedded"  # a name, or a folder in diffusers' layout
    device: str = "auto"  # auto: cuda where there is one, else cpu
    tile: bool = False  # encode and decode in tiles
    fp8: bool = False  # keep weights in eight bits
    offload: str = "none"  # group: blocks wait on the host; stream: they are read from disk
    prompt_cache: str | None = None  # folder of encoded prompts; no text encoder is loaded
    guardrail: str = "auto"  # auto: on for NVIDIA's checkpoints; on, off
    dtype: str = "auto"  # auto: float32 on a CPU, bfloat16 on CUDA; or float32, bfloat16, float16

    def __post_init__(self) -> None:
        """Refuse a precision that no checkpoint runs in."""
        known = ("auto", "float32", "bfloat16", "float16")
        if self.dtype not in known:
            raise ConfigError(
                explain(
                    "model.dtype",
                    expected=f"one of {', '.join(known)}",
                    got=repr(self.dtype),
                    do="Set model.dtype=float32 on a CPU.",
                )
            )


@dataclass(slots=True, kw_only=True)
class ParallelSettings:
    """How several processes share one clip; unset axes are chosen."""

    guidance: int | None = None  # the two passes of guidance
    control: int | None = None  # branches of the controls
    ring: int | None = None  # tokens, keys and values going round
    ulysses: int | None = None  # tokens, exchanged for heads

    def given(self) -> dict[str, int]:
        """The axes that were set."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(slots=True, kw_only=True)
class OutputSettings:
    """Where results go, and how they are stored."""

    dir: str | None = None  # unset: outputs/<command>/<date>/<time> under the launch directory
    codec: str = "h264"  # h264, or lossless: ffv1, rgb, png
    overwrite: bool = False
    resume: bool = True  # keep finished chunks of a long clip beside it until it is done
    preview: bool = False  # write the frames as pictures as they come


@dataclass(slots=True, kw_only=True)
class RaySettings:
    """batch: actors of a Ray cluster, each with the checkpoint, instead of processes."""

    actors: int = 0  # none: processes of this machine
    address: str | None = None  # of a cluster; unset: one is started on this machine
    cpus: float = 1.0  # of each actor
    gpus: float = 0.0  # of each actor; 0.5: two share one

    def __post_init__(self) -> None:
        """Refuse less than nothing."""
        if min(self.actors, self.cpus, self.gpus) < 0:
            raise ConfigError(
                explain(
                    "ray",
                    expected="actors, cpus and gpus of 0 or more",
                    got=f"{self.actors}, {self.cpus} and {self.gpus}",
                    do="Leave them out for the defaults.",
                )
            )


@dataclass(slots=True, kw_only=True)
class GenerateSettings:
    """Everything `cosmos-transfer generate` and `validate` may be told.

    ``None`` means the checkpoint's own default.
    """

    video: str | None = None
    scene: str | None = None  # a simulator's recording: clip, controls and times in one
    prompt: str | None = None
    prompt_file: str | None = None
    prompts_file: str | None = None  # one prompt a line, a clip for each
    negative_prompt: str | None = None
    negative_prompt_file: str | None = None
    look: LookSettings = field(default_factory=LookSettings)  # presets: look=night
    spec: str | None = None  # YAML, JSON or JSONL file with one or several requests
    controls: ControlsSettings = field(default_factory=ControlsSettings)
    keep: Any = None  # mask, or {class: number}: the region of the input that stays
    num_inference_steps: int | None = None
    guidance_scale: float | None = None  # 1 = off
    strength: float = 1.0  # below 1: start from the clip, this far towards noise
    step_cache: float = 0.0  # skip the network below this change; 0.15 is a good one
    seed: int = 0
    episode: int = 0
    variant: int = 0
    variants: int = 1  # this many clips of one request: variant, variant + 1, ...
    shard: int = 0  # batch: which of the shards; a shard is every shards-th clip
    shards: int = 1  # batch: parts that the list of clips is cut into
    resolution: Any = "native"  # native, input, or the short side in pixels
    length_policy: str = "refuse"  # refuse, trim, hold, loop
    weight_rule: str = "cap"  # cap, always, none
    flip_vertical: bool = False  # the rows of the video run from the bottom up
    max_frames: int | None = None
    chunk_frames: int | None = None  # longest chunk of a long clip; unset: the checkpoint's
    overlap: int | None = None  # frames that a chunk shares with the one before
    inherit: int | None = None  # how many of them it is given; the rest is cross-faded
    anchor: bool = False  # give every chunk the clip's first frame as well
    prompt_schedule: Any = None  # {frame: prompt}: further prompts, from those frames on
    rate: Any = None  # frames per second, also as a fraction: 30000/1001
    name: str | None = None
    model: ModelSettings = field(default_factory=ModelSettings)
    output: OutputSettings = field(default_factory=OutputSettings)
    ray: RaySettings = field(default_factory=RaySettings)
    parallel: ParallelSettings = field(default_factory=ParallelSettings)  # under torchrun
    dry_run: bool = False  # validate, print the plan and the settings, stop

    def __post_init__(self) -> None:
        """Refuse settings that contradict each other."""
        beside = [
            name
            for name in ("video", "scene", "prompt", "prompt_file", "prompts_file")
            if self.spec and getattr(self, name)
        ]
        if beside:
            raise ConfigError(
                explain(
                    "spec",
                    expected="the request in the spec file, or on the command line",
                    got=f"spec={self.spec} together with {', '.join(beside)}",
                    do="Drop one of the two.",
                )
            )
        for names in (
            ("prompt", "prompt_file", "prompts_file"),
            ("negative_prompt", "negative_prompt_file"),
        ):
            given = [name for name in names if getattr(self, name)]
            if len(given) > 1:
                raise ConfigError(
                    explain(
                        names[0],
                        expected=f"one of {', '.join(names)}",
                        got=" and ".join(given),
                        do=f"Drop {given[-1]}.",
                    )
                )
        if not 0 <= self.shard < self.shards:
            raise ConfigError(
                explain(
                    "shard",
                    expected=f"0 to shards - 1, which is {self.shards - 1}",
                    got=str(self.shard),
                    do="Write -m 'shard=range(8)' shards=8 for eight parts.",
                )
            )
        if self.variants < 1:
            raise ConfigError(
                explain(
                    "variants",
                    expected="at least 1",
                    got=str(self.variants),
                    do="Set variants=N for N clips of the same request.",
                )
            )
