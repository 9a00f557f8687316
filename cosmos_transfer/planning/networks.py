"""A checkpoint's networks on ``meta``: their sizes and operations, without their weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from cosmos_transfer.errors import CheckpointError, explain
from cosmos_transfer.model.architectures import (
    TRANSFER1_7B,
    TRANSFER2_5_2B,
    Architecture,
    build_base,
    build_branch,
)
from cosmos_transfer.model.branches import SHARED_PARTS
from cosmos_transfer.model.checkpoint import (
    CheckpointInfo,
    checkpoint_info,
    find_checkpoint,
    load_checkpoint,
)
from cosmos_transfer.model.controlled import ControlledModel
from cosmos_transfer.planning.memory import Networks

# Names a plan may be asked for without any file.
PRESETS = {
    "2b": TRANSFER2_5_2B,
    "nvidia/Cosmos-Transfer2.5-2B": TRANSFER2_5_2B,
    "7b": TRANSFER1_7B,
    "nvidia/Cosmos-Transfer1-7B": TRANSFER1_7B,
}


def networks_of(name: str | Path, controls: tuple[str, ...], dtype: torch.dtype) -> Networks:
    """The networks of a checkpoint, on ``meta``.

    Args:
        name: ``2b``, ``7b``, ``embedded``, or a folder in our layout or diffusers'.
        controls: The branches; only their number matters for a preset.
        dtype: What the networks compute in.
    """
    if str(name) in PRESETS:
        return _of_preset(PRESETS[str(name)], controls, dtype)
    info = checkpoint_info(name, local_files_only=True)
    if info.layout.startswith("native"):
        architecture = TRANSFER1_7B if info.layout == "native-1" else TRANSFER2_5_2B
        return _of_preset(architecture, controls, dtype)
    if info.layout == "embedded":
        return _of_embedded(name, controls, dtype)
    return _of_diffusers(name, info, controls, dtype)


def _of_preset(
    architecture: Architecture, controls: tuple[str, ...], dtype: torch.dtype
) -> Networks:
    from cosmos_transfer.autoencoder.cosmos import CosmosAutoencoder
    from cosmos_transfer.autoencoder.wan import WanAutoencoder

    is_first = architecture is TRANSFER1_7B
    with torch.device("meta"):
        base = build_base(architecture)
        branches = {name: build_branch(architecture) for name in controls}
    if not is_first:
        _share(base, branches)
    from diffusers import AutoencoderKLCosmos

    from cosmos_transfer.model.diffusers_compat import AutoencoderKLWan

    with torch.device("meta"):
        vae: Any = AutoencoderKLCosmos() if is_first else AutoencoderKLWan()
    wrap = CosmosAutoencoder if is_first else WanAutoencoder
    return Networks(
        family="1" if is_first else "2.5",
        model=_on_meta(
            ControlledModel(base, branches, sigma_data=0.5 if is_first else None), dtype
        ),
        autoencoder=_on_meta(wrap(vae), dtype),
        text_width=int(architecture.base["text_embed_dim"]),
    )


def _of_embedded(name: str | Path, controls: tuple[str, ...], dtype: torch.dtype) -> Networks:
    checkpoint = load_checkpoint(name, local_files_only=True, controls=controls)
    tokens = checkpoint.text_encoder.encode([""])
    autoencoder: Any = checkpoint.autoencoder
    return Networks(
        family="embedded",
        model=_on_meta(checkpoint.model, dtype),
        autoencoder=_on_meta(autoencoder, torch.float32),
        text_width=tokens.shape[-1],
        text_tokens=tokens.shape[1],
    )


def _of_diffusers(
    name: str | Path, info: CheckpointInfo, controls: tuple[str, ...], dtype: torch.dtype
) -> Networks:
    from cosmos_transfer.autoencoder.wan import WanAutoencoder
    from cosmos_transfer.model.diffusers_compat import (
        AutoencoderKLWan,
        CosmosControlNetModel,
        CosmosTransformer3DModel,
    )

    source = find_checkpoint(name, local_files_only=True)
    folders = source.control_folders()
    absent = [each for each in controls if each not in folders]
    if absent:
        raise CheckpointError(
            explain(
                f"checkpoint {info.id}",
                expected="controls among " + (", ".join(folders) or "none"),
                got=", ".join(absent),
                do="Leave them out.",
            )
        )

    def build(network_class: Any, part: str) -> Any:
        config = source.read_json(f"{part}/config.json") or {}
        plain = {key: value for key, value in config.items() if not key.startswith("_")}
        with torch.device("meta"):
            return network_class.from_config(plain)

    base = build(CosmosTransformer3DModel, "transformer")
    branches = {each: build(CosmosControlNetModel, folders[each]) for each in controls}
    _share(base, branches)
    return Networks(
        family="2.5",
        model=_on_meta(ControlledModel(base, branches), dtype),
        autoencoder=_on_meta(WanAutoencoder(build(AutoencoderKLWan, "vae")), dtype),
        text_width=int(base.config.text_embed_dim),
    )


def _share(base: Any, branches: dict[str, nn.Module]) -> None:
    """As after loading: what branches have in common with the base is there once."""
    for branch in branches.values():
        for base_part, part in SHARED_PARTS.items():
            if isinstance(getattr(branch, part, None), nn.Module):
                setattr(branch, part, getattr(base, base_part))


def _on_meta(module: Any, dtype: torch.dtype) -> Any:
    return module.to(device="meta", dtype=dtype).eval().requires_grad_(False)
