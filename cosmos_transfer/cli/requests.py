"""From settings to requests: the command line's own values, a spec file, or a list of prompts.

Relative paths are taken from the folder the command was started in; those inside a spec file from
the folder of that file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cosmos_transfer.cli.compose import given_keys
from cosmos_transfer.config import GenerateSettings
from cosmos_transfer.errors import ConfigError, MediaError, explain
from cosmos_transfer.inputs.request import (
    GenerationRequest,
    load_requests,
    request_from_mapping,
)
from cosmos_transfer.outputs.writer import slug

# What the command line may change in every request of a spec file.
OVER_SPEC = (
    "seed",
    "episode",
    "variant",
    "num_inference_steps",
    "guidance_scale",
    "strength",
    "step_cache",
    "negative_prompt",
    "resolution",
    "length_policy",
    "weight_rule",
    "flip_vertical",
    "max_frames",
    "chunk_frames",
    "overlap",
    "inherit",
    "anchor",
    "rate",
)
BESIDE_SPEC = (
    "spec",
    "look",
    "variants",
    "shard",
    "shards",
    "model",
    "output",
    "parallel",
    "dry_run",
    "ray",
)


def build_requests(
    settings: GenerateSettings, overrides: Sequence[str]
) -> tuple[GenerationRequest, ...]:
    """Every clip to make, in order: each request of a spec file, each prompt, each variant.

    Args:
        settings: The composed settings.
        overrides: The command line they came from; tells which values were typed.
    """
    if settings.spec is not None:
        requests = _over_spec(
            load_requests(Path(settings.spec).absolute()), settings, given_keys(overrides)
        )
        describe = settings.look.describe
        requests = [replace(each, prompt=describe(each.prompt)) for each in requests]
    else:
        requests = [_from_settings(settings, prompt) for prompt in _prompts(settings)]
    every = [
        replace(request, variant=request.variant + offset)
        for request in requests
        for offset in range(settings.variants)
    ]
    return tuple(every[settings.shard :: settings.shards])


def output_names(requests: Sequence[GenerationRequest]) -> tuple[str, ...]:
    """A file name for each request, without an ending: its name or its prompt; no two alike."""
    names: list[str] = []
    for request in requests:
        name = slug(request.prompt) if request.name is None else request.name
        if "/" in name or "\0" in name or len(name.encode()) > 80 or name.startswith("."):
            name = slug(name)
        if request.variant:
            name = f"{name}-v{request.variant}"
        taken = sum(each == name or each.startswith(f"{name}-r") for each in names)
        names.append(f"{name}-r{taken + 1}" if taken else name)
    return tuple(names)


def _from_settings(settings: GenerateSettings, prompt: str | None) -> GenerationRequest:
    values: dict[str, Any] = {
        "video": settings.video,
        "scene": settings.scene,
        "prompt": prompt,
        "negative_prompt": _text(
            settings.negative_prompt, settings.negative_prompt_file, "negative_prompt_file"
        ),
        "controls": settings.controls.given(),
        "keep": settings.keep,
        "num_inference_steps": settings.num_inference_steps,
        "guidance_scale": settings.guidance_scale,
        "strength": settings.strength,
        "step_cache": settings.step_cache,
        "seed": settings.seed,
        "episode": settings.episode,
        "variant": settings.variant,
        "resolution": settings.resolution,
        "length_policy": settings.length_policy,
        "weight_rule": settings.weight_rule,
        "flip_vertical": settings.flip_vertical,
        "max_frames": settings.max_frames,
        "chunk_frames": settings.chunk_frames,
        "overlap": settings.overlap,
        "inherit": settings.inherit,
        "anchor": settings.anchor,
        "prompt_schedule": settings.prompt_schedule,
        "rate": settings.rate,
        "name": settings.name,
        "output_codec": settings.output.codec,
    }
    given = {key: value for key, value in values.items() if value is not None}
    return request_from_mapping(given, base_dir=Path.cwd())


def _over_spec(
    requests: Iterable[GenerationRequest], settings: GenerateSettings, typed: frozenset[str]
) -> list[GenerationRequest]:
    """Requests of a spec file, with the values typed beside it."""
    tops = {key.partition(".")[0] for key in typed}
    stray = sorted(tops - {*OVER_SPEC, *BESIDE_SPEC})
    if stray:
        raise ConfigError(
            explain(
                "command line",
                expected=f"beside spec= only {', '.join((*OVER_SPEC, *BESIDE_SPEC[1:]))}",
                got=", ".join(stray),
                do="Write it into the spec file.",
            )
        )
    changes: dict[str, Any] = {key: getattr(settings, key) for key in OVER_SPEC if key in typed}
    if typed & {"output.codec", "output"}:
        changes["output_codec"] = settings.output.codec
    return [replace(request, **changes) for request in requests]


def _prompts(settings: GenerateSettings) -> list[str | None]:
    """One prompt, or each line of ``prompts_file``."""
    if settings.prompts_file is None:
        prompt = _text(settings.prompt, settings.prompt_file, "prompt_file")
        return [settings.look.describe(prompt or "") or None]
    lines = read_text(settings.prompts_file, "prompts_file").splitlines()
    prompts: list[str | None] = [settings.look.describe(line) for line in lines if line.strip()]
    if not prompts:
        raise ConfigError(
            explain(
                "prompts_file",
                expected="one prompt a line",
                got=f"{settings.prompts_file} without a line of text",
                do="Write a prompt on each line.",
            )
        )
    return prompts


def _text(text: str | None, path: str | None, where: str) -> str | None:
    if path is None:
        return text
    found = read_text(path, where).strip()
    if not found:
        raise ConfigError(
            explain(
                where, expected="a prompt", got=f"{path}, which is empty", do="Write one in it."
            )
        )
    return found


def read_text(path: str, where: str) -> str:
    """What a text file named by ``where`` holds.

    Raises:
        MediaError: It cannot be read, or is not UTF-8.
    """
    try:
        return Path(path).expanduser().read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise MediaError(
            explain(where, expected="UTF-8 text", got=path, do="Save the file as UTF-8.")
        ) from error
    except OSError as error:
        raise MediaError(
            explain(
                where,
                expected="a readable text file",
                got=f"{path} ({(error.strerror or str(error)).lower()})",
                do="Check the path.",
            )
        ) from error
