"""The request: all that one generation needs to know, frozen and checked.

A request is built from Python, from a mapping (:func:`request_from_mapping`), or from a spec file
(:func:`load_requests`). Paths are not opened here; :mod:`cosmos_transfer.inputs.validate` does
that. ``None`` means the checkpoint's own default.
"""

from __future__ import annotations

import difflib
import hashlib
import logging
import math
import numbers
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, no_type_check

import numpy as np
import yaml

from cosmos_transfer.errors import ConfigError, explain
from cosmos_transfer.inputs import cosmos_keys
from cosmos_transfer.inputs.depth import CHANNEL_ORDERS, DEPTH_UNITS
from cosmos_transfer.inputs.simulators import open_scene
from cosmos_transfer.inputs.spec_files import read_spec_file
from cosmos_transfer.inputs.video import nearest_rate

log = logging.getLogger(__name__)

CONTROL_NAMES = ("edge", "depth", "seg", "vis")
CONTROL_ALIASES = {"blur": "vis", "segmentation": "seg"}
PRESETS = ("very_low", "low", "medium", "high", "very_high")
DEPTH_KINDS = ("planar", "ray")
DIRECTIONS = ("near_bright", "near_dark")
LENGTH_POLICIES = ("refuse", "trim", "hold", "loop")
WEIGHT_RULES = ("cap", "always", "none")
OUTPUT_CODECS = ("h264", "ffv1", "rgb", "png")
MAX_PROMPT_CHARS = 2_000
_CONTROL_PATHS = {"path", "clip", "control_path", "input_control"}
_DEPTH_SETTINGS = (
    "unit",
    "kind",
    "invalid",
    "near",
    "far",
    "direction",
    "intrinsics",
    "channel_order",
    "extent",
    "flip_vertical",
)
_DEFAULT_INVALID = (0.0, math.inf, math.nan)
# Shares are written in decimals: a third of 12 steps is 0.3333 to the one who writes it.
_ROUNDING = 1e-3
_SHORT_SIDES = range(16, 8193)

Weight = float | Path | np.ndarray | Mapping[str, float]


# Values come from users: __post_init__ must see them whatever their type, and answer in words.
@no_type_check
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ControlRequest:
    """One control: where its clip comes from, how strongly it acts, and where.

    The clip comes from a ``path``, from an array (``clip``), or, with neither, from the video.
    ``flip_vertical`` turns a clip upright whose rows run from the bottom up.
    ``ramp`` are factors of the weight from the first frame to the last; ``steps`` are the shares of
    the denoising steps between which the control acts, ``(0, 1)`` being all of them; ``step_ramp``
    are factors of the weight from the first of those steps to the last.
    """

    name: str
    path: Path | None = None
    clip: np.ndarray | None = None
    weight: Weight = 1.0
    mask: Path | np.ndarray | None = None
    invert: bool = False
    binary: bool = False
    allow_empty: bool = False
    steps: tuple[float, float] | None = None
    step_ramp: tuple[float, float] | None = None
    ramp: tuple[float, float] | None = None
    preset: str = "medium"
    unit: str | None = None
    kind: str = "planar"
    invalid: tuple[float, ...] = _DEFAULT_INVALID
    near: float | None = None
    far: float | None = None
    direction: str = "near_bright"
    intrinsics: tuple[float, float, float, float] | None = None
    channel_order: str = "rgb"
    extent: float | None = None
    flip_vertical: bool = False
    labels: Path | str | Mapping[Any, Any] | None = None

    def __post_init__(self) -> None:
        """Check every field, and settle its type."""
        name = CONTROL_ALIASES.get(self.name, self.name)
        if name not in CONTROL_NAMES:
            raise _unknown("controls", self.name, (*CONTROL_NAMES, *CONTROL_ALIASES), "a control")
        _set(self, "name", name)
        where = f"control '{name}'"
        if self.path is not None and self.clip is not None:
            raise ConfigError(
                explain(
                    where,
                    expected="a path or an array",
                    got="both",
                    do="Leave one of path and clip out.",
                )
            )
        _set(self, "path", _path(self.path, f"{where}, path"))
        if self.clip is not None:
            _check_array(self.clip, f"{where}, clip", {2, 3, 4})
        _set(self, "weight", _weight(self.weight, f"{where}, weight"))
        if isinstance(self.mask, np.ndarray):
            _check_array(self.mask, f"{where}, mask", {2, 3})
        else:
            _set(self, "mask", _path(self.mask, f"{where}, mask"))
        for key in ("invert", "binary", "allow_empty", "flip_vertical"):
            _check_bool(getattr(self, key), f"{where}, {key}")
        for key in ("ramp", "step_ramp"):
            if (value := getattr(self, key)) is not None:
                two = _numbers(value, f"{where}, {key}", count=2, low=0.0, high=1.0)
                _set(self, key, two)
        if self.steps is not None:
            steps = _numbers(self.steps, f"{where}, steps", count=2, low=0.0, high=1.0)
            if steps[0] >= steps[1]:
                raise _wrong(
                    f"{where}, steps",
                    "the share of the steps where it begins, then a larger one where it ends",
                    list(steps),
                    "Write [0.0, 0.5] for the first half.",
                )
            _set(self, "steps", steps)
        _one_of(self.preset, PRESETS, f"{where}, preset")
        if self.unit is not None:
            _one_of(self.unit, DEPTH_UNITS, f"{where}, unit")
        _one_of(self.kind, DEPTH_KINDS, f"{where}, kind")
        _one_of(self.direction, DIRECTIONS, f"{where}, direction")
        _one_of(self.channel_order, CHANNEL_ORDERS, f"{where}, channel_order")
        if self.extent is not None:
            _set(self, "extent", _number(self.extent, f"{where}, extent", low=1e-6))
        _set(self, "invalid", _invalid(self.invalid, f"{where}, invalid"))
        for key in ("near", "far"):
            value = getattr(self, key)
            if value is not None:
                _set(self, key, _number(value, f"{where}, {key}", low=0.0))
        if self.near is not None and self.far is not None and self.near >= self.far:
            raise ConfigError(
                explain(
                    f"{where}, near",
                    expected=f"less than far ({self.far:g})",
                    got=f"{self.near:g}",
                    do="Give both in metres, near first.",
                )
            )
        if self.intrinsics is not None:
            four = _numbers(self.intrinsics, f"{where}, intrinsics", count=4, low=0.0)
            _set(self, "intrinsics", four)
        if self.labels is not None and not isinstance(self.labels, Mapping):
            named = isinstance(self.labels, str) and self.labels.lower().startswith("carla")
            _set(self, "labels", self.labels if named else _path(self.labels, f"{where}, labels"))

    @property
    def is_given(self) -> bool:
        """Whether the control clip is supplied, so that nothing is extracted from the video."""
        return self.path is not None or self.clip is not None

    @property
    def segmentation_source(self) -> Path | np.ndarray | None:
        """Where its ids come from; None where there are none, as in a coloured picture."""
        is_picture = self.clip is not None and self.clip.ndim == 4 and self.clip.shape[-1] == 3
        return self.path if self.clip is None else None if is_picture else self.clip

    @property
    def depth_settings(self) -> dict[str, Any]:
        """How its clip is read as depth: the arguments of :func:`inputs.depth.read_depth`."""
        return {key: getattr(self, key) for key in _DEPTH_SETTINGS}

    @property
    def is_off(self) -> bool:
        """Whether the weight is the number 0, which is the same as leaving the control out."""
        return isinstance(self.weight, float) and self.weight == 0.0


@no_type_check
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GenerationRequest:
    """One clip to make. See the module; ranges are checked when it is built.

    ``keep`` is the region of the input that stays, as a mask (white is kept), a map or a class
    rule; it is put back after decoding, at the input's own size. ``flip_vertical`` turns a video
    upright whose rows run from the bottom up; the output is upright.

    ``chunk_frames``, ``overlap``, ``inherit`` and ``anchor`` say how a long clip is cut; see
    :mod:`cosmos_transfer.long_video.plan`. ``prompt_schedule`` holds further prompts, each with the
    frame from which it takes the place of the one before.
    """

    prompt: str
    video: Path | np.ndarray | None = None
    negative_prompt: str = ""
    controls: tuple[ControlRequest, ...] = ()
    keep: Path | np.ndarray | Mapping[str, float] | None = None
    num_inference_steps: int | None = None
    guidance_scale: float | None = None
    strength: float = 1.0
    step_cache: float = 0.0
    seed: int = 0
    episode: int = 0
    variant: int = 0
    resolution: int | Literal["native", "input"] = "native"
    length_policy: str = "refuse"
    weight_rule: str = "cap"
    max_frames: int | None = None
    chunk_frames: int | None = None
    overlap: int | None = None
    inherit: int | None = None
    anchor: bool = False
    prompt_schedule: tuple[tuple[int, str], ...] = ()
    flip_vertical: bool = False
    rate: Fraction | None = None
    times: tuple[Fraction, ...] | None = None
    name: str | None = None
    output_codec: str = "h264"

    def __post_init__(self) -> None:
        """Check every field, and settle its type."""
        for key in ("prompt", "negative_prompt"):
            _check_prompt(getattr(self, key), key)
        if isinstance(self.video, np.ndarray):
            _check_array(self.video, "video", {3, 4})
        else:
            _set(self, "video", _path(self.video, "video"))
        _set(self, "controls", tuple(self.controls))
        seen = [control.name for control in self.controls]
        if twice := [name for name in dict.fromkeys(seen) if seen.count(name) > 1]:
            raise ConfigError(
                explain(
                    "controls",
                    expected="each control once",
                    got=f"{twice[0]} {seen.count(twice[0])} times",
                    do="Merge them into one, with one weight map.",
                )
            )
        if self.video is None and not any(control.is_given for control in self.controls):
            raise ConfigError(
                explain(
                    "video",
                    expected="a video, or a control with a path",
                    got="neither",
                    do="Set video, or controls.depth.path.",
                )
            )
        if self.keep is not None:
            _set(self, "keep", _keep(self.keep))
            if self.video is None:
                raise _wrong(
                    "keep", "a video to keep a region of", "none", "Set video.", quote=False
                )
        if self.num_inference_steps is not None:
            steps = _integer(self.num_inference_steps, "num_inference_steps", low=1, high=1000)
            _set(self, "num_inference_steps", steps)
        if self.guidance_scale is not None:
            scale = _number(self.guidance_scale, "guidance_scale", low=1.0, do="1 turns it off.")
            _set(self, "guidance_scale", scale)
        strength = _number(
            self.strength, "strength", low=0.01, high=1.0, do="1 starts from noise alone."
        )
        _set(self, "strength", strength)
        if strength < 1.0 and self.video is None:
            raise _wrong(
                "strength",
                "a video to start from",
                "none",
                "Set video, or strength=1.",
                quote=False,
            )
        cache = _number(self.step_cache, "step_cache", low=0.0, high=0.99, do="0 turns it off.")
        _set(self, "step_cache", cache)
        for key in ("seed", "episode", "variant"):
            _set(self, key, _integer(getattr(self, key), key, low=0, high=2**63 - 1))
        _check_bool(self.flip_vertical, "flip_vertical")
        _check_bool(self.anchor, "anchor")
        for key, low in (("chunk_frames", 1), ("overlap", 0), ("inherit", 0)):
            if (value := getattr(self, key)) is not None:
                _set(self, key, _integer(value, key, low=low))
        _set(self, "prompt_schedule", _schedule(self.prompt_schedule))
        if self.max_frames is not None:
            _set(self, "max_frames", _integer(self.max_frames, "max_frames", low=1))
        _set(self, "resolution", _resolution(self.resolution))
        _one_of(self.length_policy, LENGTH_POLICIES, "length_policy")
        _one_of(self.weight_rule, WEIGHT_RULES, "weight_rule")
        _one_of(self.output_codec, OUTPUT_CODECS, "output_codec")
        if self.rate is not None:
            _set(self, "rate", read_rate(self.rate))
        if self.times is not None:
            _set(self, "times", _times(self.times))
        if self.name is not None and (not isinstance(self.name, str) or not self.name.strip()):
            raise _wrong("name", "text", self.name, "Give the output a name, or leave it out.")


def _schedule(value: Any) -> tuple[tuple[int, str], ...]:
    """Pairs of a frame and a prompt, or a mapping of them, in order."""
    where = "prompt_schedule"
    pairs = list(value.items()) if isinstance(value, Mapping) else value
    is_pairs = isinstance(pairs, list | tuple) and all(
        isinstance(each, list | tuple) and len(each) == 2 for each in pairs
    )
    if not is_pairs:
        raise _wrong(
            where, "pairs of a frame and a prompt", value, 'Write [[40, "a snowy street"]].'
        )
    schedule = []
    for frame, prompt in pairs:
        number = int(frame) if isinstance(frame, str) and frame.isdecimal() else frame
        _check_prompt(prompt, where)
        schedule.append((_integer(number, f"{where}, frame", low=1), prompt))
    if any(before >= after for (before, _), (after, _) in pairwise(schedule)):
        raise _wrong(
            where, "frames that increase", [frame for frame, _ in schedule], "Put them in order."
        )
    return tuple(schedule)


def acting_steps(steps: tuple[float, float] | None, num_inference_steps: int) -> tuple[int, ...]:
    """The denoising steps in which a control with these shares acts.

    Step ``i`` of ``n`` covers the shares from ``i / n`` to ``(i + 1) / n``; a control acts in the
    steps that lie within its own.
    """
    low, high = steps or (0.0, 1.0)
    n = num_inference_steps
    return tuple(
        step
        for step in range(n)
        if step / n >= low - _ROUNDING and (step + 1) / n <= high + _ROUNDING
    )


# ---------------------------------------------------------------------------- from mappings


def request_from_mapping(
    mapping: Mapping[str, Any], *, base_dir: str | Path = ".", where: str = "request"
) -> GenerationRequest:
    """A request from plain values, as a spec file or the Python call gives them.

    Besides this package's own words it reads those of Cosmos-Transfer1 and 2.5 (``control_weight``,
    ``input_video_path``, ``guidance``, hints at the top level, ...). Every key is honoured or
    refused by name. Relative paths start at ``base_dir``; one that is not there is also looked for
    in the current folder, because NVIDIA's specs are written for theirs.

    Raises:
        ConfigError: An unknown key (the nearest known one is named), or a value out of range.
    """
    if not isinstance(mapping, Mapping):
        raise _wrong(where, "a mapping of settings", mapping, "Write key: value pairs.")
    base = Path(base_dir)
    known = tuple(each.name for each in fields(GenerationRequest))
    known = (*known, "scene")
    values = cosmos_keys.translate_request(mapping, known, CONTROL_NAMES, CONTROL_ALIASES)
    if (scene := values.pop("scene", None)) is not None:
        tool = None
        if isinstance(scene, Mapping):
            if "path" not in scene or not set(scene) <= {"path", "tool"}:
                raise _wrong("scene", "a path, or path and tool", dict(scene), "Write scene: DIR.")
            scene, tool = scene["path"], scene.get("tool")
        values = _with_scene(values, _resolved(scene, base, "scene"), tool)
    if "prompt_path" in values:
        if "prompt" in values:
            raise _wrong(
                "prompt", "prompt or prompt_path", "both", "Leave one of them out.", quote=False
            )
        values["prompt"] = _prompt_file(_resolved(values.pop("prompt_path"), base, "prompt_path"))
    if values.get("prompt") is None:
        raise _wrong("prompt", "a description of the wanted look", None, "Set prompt.")
    if not isinstance(values.get("video"), np.ndarray | None):
        values["video"] = _resolved(values["video"], base, "video")
    if isinstance(values.get("keep"), str):
        kept = _weight_in_text(values["keep"])
        values["keep"] = kept if isinstance(kept, Mapping) else _resolved(kept, base, "keep")
    controls = values.pop("controls", None) or {}
    if isinstance(controls, Mapping):
        built = [_control_from(str(name), value, base) for name, value in controls.items()]
    elif isinstance(controls, list | tuple):
        built = [_listed_control(value, base) for value in controls]
    else:
        raise _wrong("controls", "a mapping such as {edge: 0.5}", controls, "Name each control.")
    for key in ("negative_prompt", "seed", "episode", "variant", "resolution"):
        if values.get(key, "") is None:
            del values[key]
    return GenerationRequest(**values, controls=tuple(built))


def load_requests(path: str | Path) -> list[GenerationRequest]:
    """All requests of a spec file: YAML, JSON (comments allowed), or JSON Lines.

    The format is recognised by the content, so that indented JSON in a file called ``.jsonl`` is
    read too; which format was read is logged.
    """
    path = Path(path)
    spec_format, entries = read_spec_file(path)
    log.info("%s: read as %s, %d requests", path, spec_format, len(entries))
    requests: list[GenerationRequest] = []
    for index, entry in enumerate(entries):
        where = str(path) if len(entries) == 1 else f"{path}, request {index + 1}"
        try:
            requests.append(request_from_mapping(entry, base_dir=path.parent, where=where))
        except ConfigError as error:
            raise ConfigError(f"{where} ({spec_format}): {error}") from error
    names = [request.name for request in requests if request.name is not None]
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise ConfigError(
            explain(
                str(path),
                expected="a different name for each request",
                got=f"{twice[0]!r} {names.count(twice[0])} times",
                do="Rename one; outputs are called after them.",
            )
        )
    return requests


def request_to_mapping(request: GenerationRequest) -> dict[str, Any]:
    """The request as plain values for a record: paths as text, arrays as shape, type and hash."""
    values = {
        each.name: _plain(getattr(request, each.name))
        for each in fields(request)
        if each.name != "controls"
    }
    values["controls"] = {
        control.name: {
            each.name: _plain(getattr(control, each.name))
            for each in fields(control)
            if each.name != "name"
        }
        for control in request.controls
    }
    return values


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        digest = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
        return {"array": list(value.shape), "dtype": str(value.dtype), "sha256": digest}
    if isinstance(value, Path | Fraction):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _control_from(name: str, value: Any, base: Path) -> ControlRequest:
    """A control from a number (its weight), a path, an array (its clip), or a mapping."""
    canonical = CONTROL_ALIASES.get(name, name)
    where = f"control '{canonical}'"
    if canonical not in CONTROL_NAMES:
        raise _unknown("controls", name, (*CONTROL_NAMES, *CONTROL_ALIASES), "a control")
    if isinstance(value, ControlRequest):
        return value
    if value is None or isinstance(value, bool):
        raise _wrong(
            where,
            "a weight, a path or a mapping",
            value,
            f"Write {canonical}: 1.0, or leave the line out.",
        )
    if isinstance(value, numbers.Real):
        return ControlRequest(name=canonical, weight=float(value))
    if isinstance(value, str | Path):
        return ControlRequest(name=canonical, path=_resolved(value, base, f"{where}, path"))
    if isinstance(value, np.ndarray):
        return ControlRequest(name=canonical, clip=value)
    if not isinstance(value, Mapping):
        raise _wrong(where, "a weight, a path or a mapping", value, f"Write {canonical}: 1.0.")
    known = tuple(each.name for each in fields(ControlRequest) if each.name != "name")
    values = cosmos_keys.translate_control(value, known, where)
    for key in ("path", "mask", "weight", "labels"):
        inner = values.get(key)
        if key == "weight" and isinstance(inner, str):
            inner = _weight_in_text(inner)
        if key == "labels" and isinstance(inner, str) and inner.lower().startswith("carla"):
            continue
        if isinstance(inner, str | Path):
            inner = _resolved(inner, base, f"{where}, {key}")
        if inner is not None:
            values[key] = inner
    if isinstance(values.get("path"), np.ndarray) and values.get("clip") is None:
        values["clip"] = values.pop("path")
    given = {key: inner for key, inner in values.items() if inner is not None}
    for key in ("ramp", "steps", "step_ramp", "invalid", "intrinsics"):
        if isinstance(given.get(key), list):
            given[key] = tuple(given[key])
    if "invalid" in given:
        given["invalid"] = _invalid(given["invalid"], f"{where}, invalid")
    return ControlRequest(name=canonical, **given)


def _with_scene(values: Mapping[str, Any], path: Path, tool: str | None) -> dict[str, Any]:
    """What a simulator's recording holds, under what the request says itself.

    Controls that the request names take their files from the recording; where it names none, all
    that were recorded act.
    """
    recorded = open_scene(path, tool=tool).request_fields()
    found = recorded.pop("controls")
    asked = values.get("controls") or {}
    if isinstance(asked, list | tuple):
        asked = dict(map(_named_control, asked))
    if not isinstance(asked, Mapping):
        raise _wrong("controls", "a mapping such as {edge: 0.5}", asked, "Name each control.")
    controls: dict[str, Any] = {} if asked else dict(found)
    for key, value in asked.items():
        name = CONTROL_ALIASES.get(str(key), str(key))
        settings = {"weight": value} if type(value) in (int, float) else value
        if isinstance(settings, Mapping) and not _CONTROL_PATHS & settings.keys():
            settings = {**found.get(name, {}), **settings}
        controls[name] = settings
    return {**recorded, **{k: v for k, v in values.items() if v is not None}, "controls": controls}


def _named_control(value: Any) -> tuple[str, Any]:
    if isinstance(value, str):
        return value, 1.0
    if isinstance(value, Mapping) and "name" in value:
        return str(value["name"]), {k: v for k, v in value.items() if k != "name"} or 1.0
    raise _wrong("controls", "a mapping such as {edge: 0.5}", value, "Name each control.")


def _listed_control(value: Any, base: Path) -> ControlRequest:
    if isinstance(value, ControlRequest):
        return value
    name, settings = _named_control(value)
    return _control_from(name, settings, base)


def _weight_in_text(text: str) -> Any:
    """A number, a table in YAML's flow style (``{"robot_*": 1.0}``), or the path of a map."""
    try:
        return float(text)
    except ValueError:
        pass
    if text.lstrip().startswith("{"):
        try:
            return yaml.safe_load(text)
        except yaml.YAMLError:
            return text
    return text if text.strip() else None


def _resolved(value: Any, base: Path, where: str) -> Path:
    path = _path(value, where)
    assert path is not None
    path = path.expanduser()
    beside = base / path
    if path.is_absolute() or _is_there(beside) or not _is_there(path):
        return beside
    return path


def _is_there(path: Path) -> bool:
    try:
        return path.exists() or (any(c in path.name for c in "*?[") and path.parent.is_dir())
    except OSError:  # a name longer than the file system's limit is the name of nothing
        return False


def _prompt_file(path: Path) -> str:
    try:
        prompt = path.read_text(encoding="utf-8-sig").strip()
        if prompt:
            return prompt
        raise _wrong("prompt_path", "a prompt", f"{path}, which is empty", "Write one in it.")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            explain(
                "prompt_path",
                expected="a text file in UTF-8",
                got=f"{path} ({' '.join(str(error).split())})",
                do="Check the path, or write the prompt itself.",
            )
        ) from error


# ---------------------------------------------------------------------------- checks


def _set(target: object, key: str, value: Any) -> None:
    object.__setattr__(target, key, value)


def _wrong(where: str, expected: str, got: object, do: str, *, quote: bool = True) -> ConfigError:
    shown = "nothing" if got is None else (_short(got) if quote else str(got))
    return ConfigError(explain(where, expected=expected, got=shown, do=do))


def _short(value: object) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def _unknown(where: str, key: str, known: Iterable[str], what: str) -> ConfigError:
    names = list(known)
    near = difflib.get_close_matches(str(key), names, n=1, cutoff=0.0)
    return ConfigError(
        explain(
            where,
            expected=f"{what} ({', '.join(names)})",
            got=_short(key),
            do=f"Did you mean {near[0]!r}?",
        )
    )


def _one_of(value: object, allowed: tuple[str, ...], where: str) -> None:
    if value not in allowed:
        near = difflib.get_close_matches(str(value), allowed, n=1, cutoff=0.6)
        do = f"Did you mean {near[0]!r}?" if near else "Choose one of them."
        raise _wrong(where, f"one of {', '.join(allowed)}", value, do)


def _check_bool(value: object, where: str) -> None:
    if not isinstance(value, bool):
        raise _wrong(where, "true or false", value, "Write true or false.")


def _check_prompt(value: object, where: str) -> None:
    if not isinstance(value, str):
        raise _wrong(where, "text", value, "Write it in quotes.")
    if len(value) > MAX_PROMPT_CHARS:
        raise ConfigError(
            explain(
                where,
                expected=f"at most {MAX_PROMPT_CHARS:,} characters",
                got=f"{len(value):,}",
                do="Shorten it; text encoders read a few hundred words.",
            )
        )


def _check_array(value: object, where: str, num_axes: set[int]) -> None:
    if not isinstance(value, np.ndarray):
        raise _wrong(where, "a NumPy array", type(value).__name__, "Convert it with np.asarray.")
    if value.ndim not in num_axes or 0 in value.shape or value.dtype.kind not in "biuf":
        raise ConfigError(
            explain(
                where,
                expected="numbers of shape frames x height x width (x 3)",
                got=f"shape {value.shape} {value.dtype}",
                do="Put the time axis first and give at least one frame.",
            )
        )


def _path(value: object, where: str) -> Path | None:
    if value is None or isinstance(value, Path):
        return value
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise _wrong(where, "a path", value, "Give the file or folder to read.")
    return Path(value)


def _number(
    value: object, where: str, *, low: float, high: float = math.inf, do: str = ""
) -> float:
    if high == math.inf:
        expected = f"a number of at least {low:g}"
    else:
        expected = f"a number from {low:g} to {high:g}"
    if isinstance(value, bool) or not isinstance(value, numbers.Real | np.number):
        raise _wrong(where, expected, value, do or "Write a number.")
    number = float(value)
    if not math.isfinite(number) or not low <= number <= high:
        raise _wrong(where, expected, f"{number:g}", do or "Choose one in range.", quote=False)
    return number


def _integer(value: object, where: str, *, low: int, high: int | None = None) -> int:
    expected = f"a whole number of at least {low}"
    if high is not None and high < 2**62:
        expected = f"a whole number from {low} to {high}"
    whole = isinstance(value, numbers.Integral) or (isinstance(value, float) and value.is_integer())
    if isinstance(value, bool) or not whole:
        raise _wrong(where, expected, value, "Write a whole number.")
    number = int(value)  # type: ignore[call-overload]
    if number < low or (high is not None and number > high):
        raise _wrong(where, expected, number, "Choose one in range.")
    return number


def _numbers(
    value: object, where: str, *, count: int, low: float, high: float = math.inf
) -> tuple[float, ...]:
    if not isinstance(value, tuple | list) or len(value) != count:
        raise _wrong(where, f"{count} numbers", value, f"Write them as a list of {count}.")
    return tuple(_number(each, where, low=low, high=high) for each in value)


def _times(value: object) -> tuple[Fraction, ...]:
    """Seconds of every frame: strictly increasing from 0."""
    expected = "seconds of every frame, increasing from 0"
    do = "Subtract the first time; write them as numbers or fractions."
    if not isinstance(value, tuple | list) or not value:
        raise _wrong("times", expected, value, do)
    try:
        times = tuple(Fraction(str(each)) for each in value)
    except (ValueError, ZeroDivisionError):
        raise _wrong("times", expected, value, do) from None
    if times[0] != 0 or any(b <= a for a, b in pairwise(times)):
        raise _wrong("times", expected, [float(each) for each in times], do)
    return times


def _invalid(value: object, where: str) -> tuple[float, ...]:
    """Raw values that mean no reading; YAML writes .inf and .nan, JSON users write "inf"."""
    if not isinstance(value, tuple | list):
        raise _wrong(where, "a list of numbers", value, "Write [0, inf, nan].")
    try:
        return tuple(float(each) for each in value)
    except (TypeError, ValueError):
        raise _wrong(where, "a list of numbers", value, "Write [0, inf, nan].") from None


def _weight(value: object, where: str) -> Weight:
    if isinstance(value, np.ndarray) and value.ndim:
        _check_array(value, where, {2, 3})
        return value
    if isinstance(value, np.ndarray):
        value = value.item()
    if isinstance(value, Mapping):
        if not value:
            raise _wrong(where, "a weight per class", "an empty one", "Name a class.", quote=False)
        return {
            str(name): _number(each, f"{where} of class '{name}'", low=0.0, high=1.0)
            for name, each in value.items()
        }
    if isinstance(value, str | Path):
        path = _path(value, where)
        assert path is not None
        return path
    do = "Weights are strengths from 0 (off) to 1 (full)."
    if isinstance(value, numbers.Real) and float(value) > 1:
        do += " For proportions, divide all weights by the largest."
    return _number(value, where, low=0.0, high=1.0, do=do)


def _keep(value: object) -> Path | np.ndarray | Mapping[str, float]:
    if not isinstance(value, str | Path | Mapping | np.ndarray):
        raise _wrong("keep", "a mask, a map or a weight per class", value, "Name a mask.")
    kept = _weight(value, "keep")
    assert not isinstance(kept, float)
    return kept


def _resolution(value: object) -> int | Literal["native", "input"]:
    expected = "native, input, or the short side in pixels (16 to 8192)"
    if value == "native":
        return "native"
    if value == "input":
        return "input"
    if isinstance(value, str) and value.strip().lower().removesuffix("p").isdigit():
        value = int(value.strip().lower().removesuffix("p"))
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise _wrong("resolution", expected, value, "Leave it out for the checkpoint's own size.")
    if int(value) not in _SHORT_SIDES:
        raise _wrong("resolution", expected, value, "Leave it out for the checkpoint's own size.")
    return int(value)


def read_rate(value: object) -> Fraction:
    """Frames per second from 24, 29.97 (taken as 30000/1001) or "30000/1001"."""
    try:
        if isinstance(value, bool):
            raise TypeError
        rate = Fraction(str(value).replace(" ", ""))
        if "." in str(value):
            rate = nearest_rate(rate)
        if not 0 < rate <= 1000:
            raise ValueError
    except (TypeError, ValueError, ZeroDivisionError):
        raise _wrong(
            "rate",
            "frames per second above 0 and up to 1000, such as 24 or 30000/1001",
            value,
            "Leave it out to keep the input's rate.",
        ) from None
    return rate
