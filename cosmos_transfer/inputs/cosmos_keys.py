"""NVIDIA's words for our settings: Cosmos-Transfer1 and 2.5 spec files are read as they are.

Every key is honoured, or refused by name with what to do instead; a refused key with the value
that changes nothing is passed over. Nothing is ignored silently.

Source: cosmos-transfer1 ``inference/transfer.py``, cosmos-transfer2.5 ``config.py``.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Mapping
from typing import Any

from cosmos_transfer.errors import ConfigError, explain

log = logging.getLogger(__name__)

_REQUEST_NAMES = {
    "input_video_path": "video",
    "video_path": "video",
    "visual_input": "video",
    "num_steps": "num_inference_steps",
    "fps": "rate",
    "video_save_name": "name",
    "prompt_path": "prompt_path",
}
_CONTROL_KEYS = {
    "control_path": "path",
    "input_control": "path",
    "control_weight": "weight",
    "mask_path": "mask",
    "preset_edge_threshold": "preset",
    "preset_blur_strength": "preset",
}
_TOP_LEVEL_PRESETS = {"blur_strength": "vis", "canny_threshold": "edge"}
_OTHER_WORDS = ("guidance", "sigma_max", "control_overrides", *_TOP_LEVEL_PRESETS)

# What other tools call our settings: for suggestions only.
_ELSEWHERE = {
    "cfg": "guidance_scale",
    "cfg_scale": "guidance_scale",
    "frames": "max_frames",
    "num_frames": "max_frames",
    "conditioning_scale": "weight",
    "strength_map": "weight",
    "scale": "weight",
    "flip": "flip_vertical",
}

# Key: (values that change nothing, what to do instead).
_NO_SEGMENTER = "Give the mask itself under mask (white applies the control)."
_REFUSED: dict[str, tuple[tuple[Any, ...], str]] = {
    "num_input_frames": ((None, 1), "Set overlap; 0 makes independent chunks."),
    "num_conditional_frames": ((None, 1), "Set overlap; 0 makes independent chunks."),
    "num_video_frames_per_chunk": ((None,), "Set chunk_frames."),
    "context_frame_index": ((None,), "Style pictures are not read; describe the look in prompt."),
    "image_context_path": ((None, ""), "Style pictures are not read; describe the look in prompt."),
    "guided_generation_mask": ((None, ""), "Set keep: that region of the input stays."),
    "guided_generation_step_threshold": ((None, 25), "Set keep: a region of the input stays."),
    "guided_generation_foreground_labels": ((None, [], ""), "Set keep to a number per class."),
    "keep_input_resolution": ((None, True), "The output always has the input's size."),
    "show_control_condition": ((None, False), "Run cosmos-transfer show on the record."),
    "show_input": ((None, False), "Run cosmos-transfer show on the record."),
    "regional_prompts": ((None, [], {}), "One prompt describes the whole clip."),
    "keypoint": ((None,), "Available controls: edge, depth, seg, vis."),
    "hdmap": ((None,), "Available controls: edge, depth, seg, vis."),
    "lidar": ((None,), "Available controls: edge, depth, seg, vis."),
    "upscale": ((None,), "Available controls: edge, depth, seg, vis."),
    "is_av_sample": ((None, False), "Choose the checkpoint with model.checkpoint."),
    "use_distilled": ((None, False), "Choose the checkpoint with model.checkpoint."),
    "checkpoint_dir": ((None, "", "checkpoints"), "Choose the checkpoint with model.checkpoint."),
    "tokenizer_dir": ((None, ""), "Choose the checkpoint with model.checkpoint."),
    "model": ((None,), "Choose the checkpoint with model.checkpoint."),
    "video_save_folder": ((None, "", "outputs/"), "Set the output folder on the command line."),
    "controlnet_specs": ((None, ""), "Put the hints into this file."),
    "batch_input_path": ((None, ""), "Pass the JSON Lines file itself as the spec."),
    "batch_size": ((None, 1), "Clips are made one at a time."),
    "num_gpus": ((None, 1), "Start with torchrun for several GPUs."),
    "upsample_prompt": ((None, False), "Write the long prompt yourself."),
    "save_input_noise": ((None, False), "The record holds the seeds that the noise comes from."),
    "benchmark": ((None, False), "The record holds the timings."),
    "offload_diffusion_transformer": ((None, False), "Leave it out; nothing is offloaded."),
    "offload_text_encoder_model": ((None, False), "Leave it out; nothing is offloaded."),
    "offload_guardrail_models": ((None, False), "Leave it out; nothing is offloaded."),
}
_REFUSED_IN_CONTROLS: dict[str, tuple[tuple[Any, ...], str]] = {
    "mask_prompt": ((None, ""), _NO_SEGMENTER),
    "control_weight_prompt": ((None, ""), _NO_SEGMENTER),
    "ckpt_path": ((None, ""), "Choose the checkpoint with model.checkpoint."),
    "sigma_max": ((None, ""), "It belongs to the whole request; leave it out here."),
}
_ESTIMATOR_PROMPTS = ("input_control_prompt", "control_prompt")
_POLARITIES = {"white_applies": False, "black_applies": True}


def translate_request(
    mapping: Mapping[str, Any],
    known: tuple[str, ...],
    control_names: tuple[str, ...],
    aliases: Mapping[str, str],
) -> dict[str, Any]:
    """The same request in this package's words; controls gathered under ``controls``."""
    values: dict[str, Any] = {}
    hints: dict[str, Any] = {}
    presets: dict[str, Any] = {}
    for key, value in mapping.items():
        if key in known and key != "controls":
            _put(values, key, value, key)
        elif key in _REQUEST_NAMES:
            if value is not None:
                _put(values, _REQUEST_NAMES[key], value, key)
        elif key == "guidance":
            if value is not None:
                _put(values, "guidance_scale", _from_their_guidance(value), key)
        elif key == "sigma_max":
            if (strength := _from_sigma_max(value)) is not None:
                _put(values, "strength", strength, key)
        elif key in ("controls", "control_overrides"):
            if isinstance(value, Mapping):
                for name, hint in value.items():
                    _put(hints, aliases.get(name, name), hint, f"{key}.{name}")
            elif value is not None:
                _put(values, "controls", value, key)
        elif key in control_names or key in aliases:
            _put(hints, aliases.get(key, key), value, key)
        elif key in _TOP_LEVEL_PRESETS:
            presets[_TOP_LEVEL_PRESETS[key]] = value
        elif key in _REFUSED:
            _refuse(key, value, *_REFUSED[key], where=key)
        else:
            words = (*known, *_REQUEST_NAMES, *control_names, *aliases, *_OTHER_WORDS, *_REFUSED)
            raise _unknown("request", key, words)
    if presets and hints:
        for name, preset in presets.items():
            if isinstance(hints.get(name), Mapping):
                hints[name] = {"preset": preset} | dict(hints[name])
    if hints:
        if "controls" in values:
            raise _twice("controls")
        values["controls"] = hints
    return values


def translate_control(
    mapping: Mapping[str, Any], known: tuple[str, ...], where: str
) -> dict[str, Any]:
    """The same control in this package's words."""
    values: dict[str, Any] = {}
    for key, value in mapping.items():
        if key in known:
            _put(values, key, value, f"{where}, {key}")
        elif key in _CONTROL_KEYS:
            if value is not None and not (isinstance(value, str) and not value.strip()):
                _put(values, _CONTROL_KEYS[key], value, f"{where}, {key}")
        elif key == "mask_polarity":
            if value not in _POLARITIES:
                raise ConfigError(
                    explain(
                        f"{where}, mask_polarity",
                        expected="white_applies or black_applies",
                        got=repr(value),
                        do="White applies the control unless you say otherwise.",
                    )
                )
            _put(values, "invert", _POLARITIES[value], f"{where}, {key}")
        elif key in _REFUSED_IN_CONTROLS:
            _refuse(key, value, *_REFUSED_IN_CONTROLS[key], where=f"{where}, {key}")
        elif key in _ESTIMATOR_PROMPTS:
            # It names what to look for when the control has to be estimated; a given control
            # needs no estimator, in NVIDIA's code as here.
            if not any(mapping.get(name) for name in ("path", "control_path", "input_control")):
                do = "Give the segmentation itself under path."
                _refuse(key, value, (None, ""), do, where=f"{where}, {key}")
        else:
            words = (
                *known,
                *_CONTROL_KEYS,
                "mask_polarity",
                *_REFUSED_IN_CONTROLS,
                *_ESTIMATOR_PROMPTS,
            )
            raise _unknown(where, key, words)
    if "input_control" in mapping and "weight" not in values:
        log.warning("%s: no control_weight; Cosmos-Transfer1's default of 0.5 is taken", where)
        values["weight"] = 0.5
    return values


def _from_their_guidance(value: Any) -> Any:
    """NVIDIA's g in v = c + g (c - u) is one less than the guidance scale of the field."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(
            explain(
                "guidance",
                expected="a number (0 = off)",
                got=repr(value),
                do="Write a number, or guidance_scale (1 = off).",
            )
        )
    return value + 1


def _from_sigma_max(value: Any) -> float | None:
    """Transfer1's largest ratio of noise to signal as a strength; 80 and nothing are its own."""
    if value is None or value == "":
        return None
    try:
        ratio = float(value)
    except (TypeError, ValueError):
        ratio = -1.0
    if isinstance(value, bool) or not 0.0 < ratio < float("inf"):
        raise ConfigError(
            explain(
                "sigma_max",
                expected="a number above 0",
                got=repr(value),
                do="80 starts from noise alone; 35 keeps a little of the clip.",
            )
        )
    return None if ratio >= 80.0 else ratio / (1.0 + ratio)


def _put(values: dict[str, Any], key: str, value: Any, said: str) -> None:
    if key in values:
        raise _twice(key, said)
    values[key] = value


def _twice(key: str, said: str = "") -> ConfigError:
    also = f" (again as {said})" if said and said != key else ""
    return ConfigError(
        explain(key, expected="it once", got=f"it twice{also}", do="Remove one of them.")
    )


def _refuse(key: str, value: Any, harmless: tuple[Any, ...], do: str, *, where: str) -> None:
    if any(value is plain or (value == plain and type(value) is type(plain)) for plain in harmless):
        log.info("%s: %r changes nothing here", where, value)
        return
    shown = repr(value) if len(repr(value)) <= 40 else f"{repr(value)[:37]}..."
    raise ConfigError(
        explain(where, expected=f"a spec without {key}", got=f"{key}: {shown}", do=do)
    )


def _unknown(where: str, key: object, words: tuple[str, ...]) -> ConfigError:
    (near,) = difflib.get_close_matches(str(key), words, n=1, cutoff=0.0)
    elsewhere = _ELSEWHERE.get(str(key))
    if elsewhere in words:
        near = elsewhere
    ours = (_REQUEST_NAMES | _CONTROL_KEYS).get(near, near)
    return ConfigError(
        explain(where, expected="a known key", got=f"{key!r}", do=f"Did you mean {ours!r}?")
    )
