"""Loading the parts of a checkpoint, and writing our own layout.

Only safetensors are read, and NVIDIA's own files through ``model.native``. Loading is strict:
every key in a file must be a parameter and every parameter must be in the file, and what is left
over is listed whole.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass, replace
from importlib import import_module
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Protocol, runtime_checkable

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn

from cosmos_transfer.autoencoder.base import Autoencoder
from cosmos_transfer.errors import CheckpointError, explain
from cosmos_transfer.model.architectures import (
    TRANSFER1_7B,
    TRANSFER2_5_2B,
    build_base,
    build_branch,
)
from cosmos_transfer.model.branches import SHARED_PARTS, share_parts
from cosmos_transfer.model.checkpoint import (
    INDEX,
    PACKAGED,
    PUBLISHED_BRANCHES,
    CheckpointInfo,
    CheckpointSource,
    NativeFiles,
    checkpoint_info,
    find_checkpoint,
    in_order,
    native_files,
)
from cosmos_transfer.model.controlled import ControlledModel
from cosmos_transfer.model.native import (
    base_weights,
    branch_weights,
    check_leftovers,
    read_native,
)
from cosmos_transfer.model.native_keys import TRANSFER1, TRANSFER2_5
from cosmos_transfer.offload.bitmap import PackedTensor, unpack
from cosmos_transfer.offload.files import is_packed, read_packed
from cosmos_transfer.offload.options import MemoryOptions, PackedFolder, fit
from cosmos_transfer.shapes import Size, Strides

# The classes that our layout may name, and where they are imported from. A network that is not
# diffusers' has a dataclass ``settings`` and a ``from_config`` that takes its fields.
NETWORKS = {
    "CosmosTransformer3DModel": "cosmos_transfer.model.diffusers_compat",
    "CosmosControlNetModel": "cosmos_transfer.model.diffusers_compat",
    "Transfer1Transformer": "cosmos_transfer.model.transfer1",
    "Transfer1Branch": "cosmos_transfer.model.transfer1",
    "LatentUNet": "cosmos_transfer.model.latent_unet",
    "LatentUNetBranch": "cosmos_transfer.model.latent_unet",
}

# diffusers' own file name, so that its from_pretrained reads these parts too.
NETWORK_FILE = "diffusion_pytorch_model.safetensors"
PART_FILE = "model.safetensors"
PREDICTORS = "predictors"
"""Folder of the networks that judge outputs (``metrics.predictors``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Everything that turns controls and a prompt into a clip, loaded.

    ``text_encoder`` keeps ``inputs.prompt.TextEncoder``; None only where it was not asked for.
    """

    info: CheckpointInfo
    autoencoder: Autoencoder
    model: ControlledModel
    text_encoder: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSettings:
    """What a checkpoint in our layout says beyond its parts' own configs."""

    id: str
    native_size: Size
    native_frames: int
    timestep_scale: float = 1000.0
    clean_sigma: float | None = None
    num_inference_steps: int = 12
    guidance_scale: float = 2.0
    shift: float = 1.0
    sampler: str = "heun"


@runtime_checkable
class Part(Protocol):
    """A module with a JSON-ready config, as our autoencoder and text encoder are."""

    @property
    def config(self) -> dict[str, Any]:
        """Settings that ``from_config`` builds the module from."""
        ...

    def state_dict(self) -> dict[str, Tensor]:
        """Weights by name."""
        ...


def load_checkpoint(
    name_or_path: str | Path,
    *,
    device: str | torch.device = "cpu",
    dtype: torch.dtype | None = None,
    controls: Sequence[str] | None = None,
    with_text_encoder: bool = True,
    local_files_only: bool = False,
    memory: MemoryOptions | None = None,
) -> Checkpoint:
    """Load a checkpoint's parts in evaluation mode, their weights frozen.

    Args:
        name_or_path: ``embedded``, a folder, or a hub id; see ``model.checkpoint``.
        device: Where the parts go.
        dtype: What the base and the branches compute in; float32 by default on a CPU, bfloat16
            elsewhere.
        controls: The branches to load; all by default.
        with_text_encoder: False for prompts encoded before; Cosmos' encoder has 7 B parameters.
        local_files_only: Ask no hub.
        memory: How to make it fit; see :mod:`cosmos_transfer.offload.options`.

    Raises:
        CheckpointError: A part is missing, damaged, or of another architecture.
    """
    info = checkpoint_info(name_or_path, local_files_only=local_files_only)
    source = find_checkpoint(name_or_path, local_files_only=local_files_only)
    wanted = info.controls if controls is None else in_order(tuple(controls))
    absent = [name for name in wanted if name not in info.controls]
    if absent:
        raise CheckpointError(
            explain(
                f"checkpoint {info.id}",
                expected="controls among " + (", ".join(info.controls) or "none"),
                got=", ".join(absent),
                do="Leave them out, or use a checkpoint that has them.",
            )
        )
    if dtype is None:
        dtype = torch.float32 if torch.device(device).type == "cpu" else torch.bfloat16
    memory = memory or MemoryOptions()
    if memory.offload == "stream" and (source.folder is None or info.layout != "diffusers"):
        raise CheckpointError(
            explain(
                f"checkpoint {info.id}",
                expected="a local folder in diffusers' layout to stream from",
                got=info.layout,
                do="Download or convert it, or set model.offload=group.",
            )
        )
    if memory.offload == "stream":
        source = replace(source, streams_blocks=True)
    load = {"embedded": _load_embedded, "diffusers": _load_diffusers}.get(info.layout, _load_native)
    transformer, branches, autoencoder, text_encoder = load(
        info, source, wanted, dtype, with_text_encoder
    )
    model = ControlledModel(
        transformer,
        branches,
        timestep_scale=info.timestep_scale,
        clean_sigma=info.clean_sigma,
        sigma_data=info.sigma_data,
    ).to(dtype)
    for part in (model, autoencoder, text_encoder):
        if isinstance(part, nn.Module):
            part.eval().requires_grad_(False)
    folders = None
    if source.folder is not None and memory.offload == "stream":
        places = source.control_folders()
        folders = {"transformer": source.folder / "transformer"}
        folders |= {name: source.folder / places[name] for name in wanted}
    fit(
        model.transformer,
        {name: model.branches[name] for name in wanted},
        autoencoder,
        memory,
        device=torch.device(device),
        dtype=dtype,
        folders=folders,
    )
    on_host = model if memory.offload == "group" else None  # moves block by block, by itself
    for part in (model, autoencoder, text_encoder):
        if isinstance(part, nn.Module) and part is not on_host:
            part.to(device)
    return Checkpoint(info=info, autoencoder=autoencoder, model=model, text_encoder=text_encoder)


def save_embedded(
    folder: str | Path,
    transformer: nn.Module,
    branches: Mapping[str, nn.Module],
    autoencoder: Part,
    text_encoder: Part,
    settings: CheckpointSettings,
    *,
    lender: str | None = None,
    overwrite: bool = False,
) -> Path:
    """Write a checkpoint in our layout, in fp16; what branches share with the base, once.

    Written beside ``folder`` and renamed when complete. What other commands put into an overwritten
    folder is kept: a ``README.md`` (the model card) and ``predictors/`` (``metrics.predictors``),
    which keeps its own hashes.

    With a ``lender``, a checkpoint of this package, autoencoder and text encoder are not written:
    they are the lender's, by the hashes it has now.

    Raises:
        CheckpointError: The folder exists and ``overwrite`` is off, weights are not finite in
            fp16, or no such lender.
    """
    folder = Path(folder)
    lent = {} if lender is None else _lent_hashes(lender)
    if folder.exists() and not overwrite:
        raise CheckpointError(
            explain(
                "save_embedded",
                expected="a folder that does not exist",
                got=f"{folder}",
                do="Choose another name, or pass overwrite=True.",
            )
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        draft.chmod(0o755)
        shared = {name: _shared_with_base(transformer, branches[name]) for name in branches}
        _write_network(draft / "transformer", transformer, skip=())
        for name, branch in branches.items():
            _write_network(draft / "controlnet" / name, branch, skip=shared[name])
        for name, part in (("autoencoder", autoencoder), ("text_encoder", text_encoder)):
            if lender is not None:
                continue
            _write_json(draft / name / "config.json", part.config)
            _write_weights(draft / name / PART_FILE, part.state_dict())
        network_config: Any = transformer.config
        strides: Strides = autoencoder.strides  # type: ignore[attr-defined]  # an Autoencoder
        index = {
            "id": settings.id,
            "parts": {
                "transformer": type(transformer).__name__,
                "controlnet": sorted({type(branch).__name__ for branch in branches.values()}),
                "autoencoder": type(autoencoder).__name__,
                "text_encoder": type(text_encoder).__name__,
            },
            "native_size": [settings.native_size.height, settings.native_size.width],
            "native_frames": settings.native_frames,
            "strides": {"time": strides.time, "space": strides.space},
            "patch": list(network_config.patch_size),
            "latent_channels": int(network_config.out_channels),
            "timestep_scale": settings.timestep_scale,
            "clean_sigma": settings.clean_sigma,
            "defaults": {
                "num_inference_steps": settings.num_inference_steps,
                "guidance_scale": settings.guidance_scale,
                "shift": settings.shift,
                "sampler": settings.sampler,
            },
            "controls": list(in_order(dict(branches))),
            "shared_with_base": {name: list(parts) for name, parts in shared.items()},
            "lender": lender,
            "sha256": lent
            | {
                path.relative_to(draft).as_posix(): _sha256(path)
                for path in sorted(draft.rglob("*"))
                if path.is_file()
            },
        }
        _write_json(draft / INDEX, index)
        if (folder / "README.md").is_file():
            shutil.copy2(folder / "README.md", draft / "README.md")
        if (folder / PREDICTORS).is_dir():
            shutil.copytree(folder / PREDICTORS, draft / PREDICTORS)
        if folder.exists():
            shutil.rmtree(folder)
        os.replace(draft, folder)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return folder


def load_strictly(
    module: nn.Module,
    weights: Mapping[str, Tensor],
    *,
    where: str,
    absent_parts: Collection[str] = (),
    assign: bool = False,
) -> None:
    """Put ``weights`` into ``module``, or say all that does not fit.

    Args:
        module: Receives the weights, in its own dtype.
        weights: By name, as in ``module.state_dict()``.
        where: Names the part in the message.
        absent_parts: Submodules whose weights come from elsewhere and must not be in ``weights``.
        assign: Take the tensors themselves instead of copying them; for a module on meta.

    Raises:
        CheckpointError: Lists every key without a parameter, every parameter without a key, and
            every shape that differs.
    """
    expected = {
        key: value
        for key, value in module.state_dict().items()
        if not key.startswith(tuple(f"{part}." for part in absent_parts))
    }
    problems = _leftovers(
        missing=sorted(expected.keys() - weights.keys()),
        unexpected=sorted(weights.keys() - expected.keys()),
        reshaped=[
            f"{key} {tuple(weights[key].shape)} for {tuple(expected[key].shape)}"
            for key in sorted(expected.keys() & weights.keys())
            if weights[key].shape != expected[key].shape
        ],
    )
    if problems:
        raise _misfit(where, problems)
    module.load_state_dict(weights, strict=False, assign=assign)


def _leftovers(
    *, missing: Sequence[str], unexpected: Sequence[str], reshaped: Sequence[str]
) -> list[str]:
    return [
        f"{len(keys)} {what}: " + ", ".join(keys)
        for what, keys in (
            ("parameters without a key in the file", missing),
            ("keys in the file without a parameter", unexpected),
            ("shapes that differ", reshaped),
        )
        if keys
    ]


def _misfit(where: str, problems: Sequence[str]) -> CheckpointError:
    return CheckpointError(
        explain(
            where,
            expected="weights that fit its config",
            got="; ".join(problems),
            do="Use the config.json and the weights of one checkpoint.",
        )
    )


# ---------------------------------------------------------------------------------- our layout

Parts = tuple[nn.Module, dict[str, nn.Module], Autoencoder, Any]


def _load_embedded(
    info: CheckpointInfo,
    source: CheckpointSource,
    controls: Sequence[str],
    dtype: torch.dtype,
    with_text_encoder: bool,
) -> Parts:
    from cosmos_transfer.autoencoder.causal_video import CausalVideoAutoencoder
    from cosmos_transfer.inputs.free_text import FreeTextEncoder

    index = source.read_json(INDEX)
    folder = source.folder
    assert index is not None
    assert folder is not None
    shared: Mapping[str, Sequence[str]] = index.get("shared_with_base", {})

    transformer = _build_network(info, folder, "transformer")
    load_strictly(
        transformer,
        _read_weights(folder, f"transformer/{NETWORK_FILE}", info),
        where=f"checkpoint {info.id}, transformer",
    )
    branches = {}
    for name in controls:
        branch = _build_network(info, folder, f"controlnet/{name}")
        absent = _checked_parts(info, name, shared.get(name, ()))
        load_strictly(
            branch,
            _read_weights(folder, f"controlnet/{name}/{NETWORK_FILE}", info),
            where=f"checkpoint {info.id}, control branch '{name}'",
            absent_parts=[SHARED_PARTS[part] for part in absent],
        )
        for part in absent:
            setattr(branch, SHARED_PARTS[part], getattr(transformer, part))
        branches[name] = branch

    lender = index.get("lender")
    if lender is not None:
        folder = _lender_folder(lender, where=f"checkpoint {info.id}")
    autoencoder = CausalVideoAutoencoder.from_config(_config(folder, "autoencoder"))
    load_strictly(
        autoencoder,
        _read_weights(folder, f"autoencoder/{PART_FILE}", info),
        where=f"checkpoint {info.id}, autoencoder",
    )
    text_encoder = None
    if with_text_encoder:
        text_encoder = FreeTextEncoder.from_config(_config(folder, "text_encoder"))
        load_strictly(
            text_encoder,
            _read_weights(folder, f"text_encoder/{PART_FILE}", info),
            where=f"checkpoint {info.id}, text encoder",
        )
    return transformer, branches, autoencoder, text_encoder


LENT_PARTS = ("autoencoder/", "text_encoder/")


def _lender_folder(lender: Any, *, where: str) -> Path:
    """Where the lender's parts lie: in this package, so that no index leads anywhere else."""
    if lender not in PACKAGED:
        raise CheckpointError(
            explain(
                where,
                expected="a lender among " + ", ".join(PACKAGED),
                got=f"{lender!r}",
                do=f"Correct lender in {INDEX}.",
            )
        )
    folder = find_checkpoint(lender).folder
    assert folder is not None
    return folder


def _lent_hashes(lender: str) -> dict[str, str]:
    _lender_folder(lender, where="save_embedded")
    hashes = checkpoint_info(lender).sha256
    return {name: digest for name, digest in hashes.items() if name.startswith(LENT_PARTS)}


def _build_network(info: CheckpointInfo, folder: Path, part: str) -> nn.Module:
    config = _config(folder, part)
    name = config.get("_class_name")
    if name not in NETWORKS:
        raise CheckpointError(
            explain(
                f"checkpoint {info.id}, {part}",
                expected="a _class_name among " + ", ".join(NETWORKS),
                got=f"{name}",
                do="Use a version of this package that knows it.",
            )
        )
    network_class = getattr(import_module(NETWORKS[name]), name)
    network: nn.Module = network_class.from_config(
        {key: value for key, value in config.items() if not key.startswith("_")}
    )
    return network


def _network_config(network: nn.Module) -> dict[str, Any]:
    settings = getattr(network, "settings", None)
    if is_dataclass(settings) and not isinstance(settings, type):
        return {"_class_name": type(network).__name__, **asdict(settings)}
    diffusers_network: Any = network
    config: dict[str, Any] = json.loads(diffusers_network.to_json_string())
    config.pop("_name_or_path", None)  # where it was once loaded from, on someone's machine
    return config


def _checked_parts(info: CheckpointInfo, name: str, parts: Sequence[str]) -> Sequence[str]:
    unknown = [part for part in parts if part not in SHARED_PARTS]
    if unknown:
        raise CheckpointError(
            explain(
                f"checkpoint {info.id}, control branch '{name}'",
                expected="parts shared with the base among " + ", ".join(SHARED_PARTS),
                got=", ".join(unknown),
                do=f"Correct shared_with_base in {INDEX}.",
            )
        )
    return parts


def _config(folder: Path, part: str) -> dict[str, Any]:
    config = CheckpointSource(folder, None, True).read_json(f"{part}/config.json")
    assert config is not None
    return config


def _read_weights(folder: Path, name: str, info: CheckpointInfo) -> dict[str, Tensor]:
    path = folder / name
    where = f"checkpoint {info.id}"
    if not path.is_file():
        raise CheckpointError(
            explain(where, expected=f"a file {name}", got="none", do="Fetch the checkpoint again.")
        )
    digest, recorded = _sha256(path), info.sha256.get(name)
    if digest != recorded:
        raise CheckpointError(
            explain(
                where,
                expected=f"{name} with sha256 {recorded}",
                got=digest,
                do=f"Fetch it again; weights and {INDEX} must be of one checkpoint.",
            )
        )
    try:
        # fp16 on disk, float32 from here on: every fp16 number is a float32 number.
        return {
            key: value.float() if value.is_floating_point() else value
            for key, value in read_packed(path).items()
        }
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            explain(where, expected=f"safetensors in {name}", got=f"{error}", do="Fetch it again.")
        ) from error


def _shared_with_base(transformer: nn.Module, branch: nn.Module) -> tuple[str, ...]:
    shared = []
    for base_name, branch_name in SHARED_PARTS.items():
        base_part, part = (
            getattr(transformer, base_name, None),
            getattr(branch, branch_name, None),
        )
        if base_part is None or part is None:
            continue
        base_weights, weights = base_part.state_dict(), part.state_dict()
        if base_weights.keys() == weights.keys() and all(
            torch.equal(base_weights[key], weights[key]) for key in weights
        ):
            shared.append(base_name)
    return tuple(shared)


def _write_network(
    folder: Path,
    network: nn.Module,
    *,
    skip: Sequence[str],
) -> None:
    _write_json(folder / "config.json", _network_config(network))
    absent = tuple(f"{SHARED_PARTS[part]}." for part in skip)
    weights = {k: v for k, v in network.state_dict().items() if not k.startswith(absent)}
    _write_weights(folder / NETWORK_FILE, weights)


def _write_weights(path: Path, weights: Mapping[str, Tensor]) -> None:
    halves = {}
    for key, value in weights.items():
        half = value.detach().cpu()
        if half.is_floating_point():
            half = half.to(torch.float16)
            if not bool(torch.isfinite(half).all()):
                raise CheckpointError(
                    explain(
                        f"save_embedded, {path.parent.name}",
                        expected="weights that are finite in fp16",
                        got=f"infinity or NaN in {key}",
                        do="Do not ship this training run.",
                    )
                )
        halves[key] = half.contiguous().clone()
    save_file(halves, path, metadata={"format": "pt"})
    path.chmod(0o644)  # safetensors writes for its owner only; a wheel would carry that on


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# ----------------------------------------------------------------------------- NVIDIA's own files


def _load_native(
    info: CheckpointInfo,
    source: CheckpointSource,
    controls: Sequence[str],
    dtype: torch.dtype,
    with_text_encoder: bool,
) -> Parts:
    from cosmos_transfer.model.prompt_embeddings import load_cosmos_text_encoder, load_t5_encoder

    files = native_files(source.folder)
    assert files is not None
    assert source.folder is not None
    read = _native_transfer1 if files.family == "1" else _native_transfer2_5
    transformer, branches = read(info, files, controls, dtype)
    share_parts(transformer, branches)
    vae = _native_autoencoder(info, source.folder, dtype)
    text_encoder: Any = None
    if with_text_encoder:
        load_text = load_t5_encoder if files.family == "1" else load_cosmos_text_encoder
        text_encoder = load_text(source.location, dtype=dtype, revision=None, local_files_only=True)
    return transformer, branches, vae, text_encoder


def _native_transfer2_5(
    info: CheckpointInfo, files: NativeFiles, controls: Sequence[str], dtype: torch.dtype
) -> tuple[nn.Module, dict[str, nn.Module]]:
    """Base and branches; each file is whole, and only the first one's base is kept."""
    shared = tuple(SHARED_PARTS.values())
    transformer = None
    branches = {}
    for name in controls or tuple(files.controls)[:1]:
        where = f"checkpoint {info.id}, {files.controls[name].name}"
        state = read_native(files.controls[name])
        with torch.device("meta"):
            shape_of_base = build_base(TRANSFER2_5_2B)
            branch = build_branch(TRANSFER2_5_2B)
        check_leftovers(state, TRANSFER2_5, base=shape_of_base, branches=[branch], where=where)
        if transformer is None:
            transformer = _filled(
                shape_of_base, base_weights(state, shape_of_base, TRANSFER2_5, where=where), dtype
            )
        if not controls:
            continue
        own = branch_weights(state, branch, TRANSFER2_5, where=where, absent_parts=shared)
        # What NVIDIA's branches read of the base is the base's: one file holds it once.
        copies = {
            f"{part}.{key}": value
            for base_part, part in SHARED_PARTS.items()
            if isinstance(getattr(branch, part, None), nn.Module)
            for key, value in getattr(transformer, base_part).state_dict().items()
        }
        branches[name] = _filled(branch, {**own, **copies}, dtype)
    assert transformer is not None
    return transformer, branches


def _native_transfer1(
    info: CheckpointInfo, files: NativeFiles, controls: Sequence[str], dtype: torch.dtype
) -> tuple[nn.Module, dict[str, nn.Module]]:
    state, where = read_native(files.base), f"checkpoint {info.id}, {files.base.name}"
    with torch.device("meta"):
        base = build_base(TRANSFER1_7B)
    check_leftovers(state, TRANSFER1, base=base, branches=[], where=where)
    transformer = _filled(base, base_weights(state, base, TRANSFER1, where=where), dtype)
    branches = {}
    for name in controls:
        state = read_native(files.controls[name])
        where = f"checkpoint {info.id}, {files.controls[name].name}"
        with torch.device("meta"):
            branch = build_branch(TRANSFER1_7B)
        check_leftovers(state, TRANSFER1, base=None, branches=[branch], where=where)
        branches[name] = _filled(
            branch, branch_weights(state, branch, TRANSFER1, where=where), dtype
        )
    return transformer, branches


def _filled(network: nn.Module, weights: Mapping[str, Tensor], dtype: torch.dtype) -> nn.Module:
    """A network on meta given its weights, without a second copy of them in memory."""
    cast = {key: value.to(dtype) for key, value in weights.items()}
    load_strictly(network, cast, where="checkpoint", assign=True)
    return network


def _native_autoencoder(info: CheckpointInfo, folder: Path, dtype: torch.dtype) -> Any:
    config = CheckpointSource(folder, None, True).read_json("vae/config.json", required=False)
    wanted = "AutoencoderKLCosmos" if info.layout == "native-1" else "AutoencoderKLWan"
    if config is None or config.get("_class_name") != wanted:
        raise CheckpointError(
            explain(
                f"checkpoint {info.id}, vae",
                expected=f"{wanted} in diffusers' layout, in vae/",
                got="none" if config is None else f"{config.get('_class_name')}",
                do="Put the autoencoder beside NVIDIA's files; docs/checkpoints.md says which.",
            )
        )
    source = CheckpointSource(folder, None, True)
    if wanted == "AutoencoderKLWan":
        from cosmos_transfer.autoencoder.wan import WanAutoencoder
        from cosmos_transfer.model.diffusers_compat import AutoencoderKLWan

        return WanAutoencoder(_from_pretrained(AutoencoderKLWan, source, dtype, subfolder="vae"))
    from diffusers import AutoencoderKLCosmos

    from cosmos_transfer.autoencoder.cosmos import CosmosAutoencoder

    return CosmosAutoencoder(_from_pretrained(AutoencoderKLCosmos, source, dtype, subfolder="vae"))


# ---------------------------------------------------------------------------- diffusers' layout


def _load_diffusers(
    info: CheckpointInfo,
    source: CheckpointSource,
    controls: Sequence[str],
    dtype: torch.dtype,
    with_text_encoder: bool,
) -> Parts:
    from cosmos_transfer.autoencoder.wan import WanAutoencoder
    from cosmos_transfer.model.diffusers_compat import (
        AutoencoderKLWan,
        CosmosControlNetModel,
        CosmosTransformer3DModel,
    )

    base_revision, control_revisions = PUBLISHED_BRANCHES.get(str(source.hub_id), (None, {}))
    folders = source.control_folders()
    transformer = _from_pretrained(
        CosmosTransformer3DModel, source, dtype, subfolder="transformer", revision=base_revision
    )
    branches = {}
    for name in controls:
        if name in control_revisions:
            place: dict[str, Any] = {"revision": control_revisions[name]}
        else:
            place = {"subfolder": folders.get(name, f"controlnet_{name}")}
        branches[name] = _from_pretrained(CosmosControlNetModel, source, dtype, **place)
    # A branch carries 123 M parameters of the base again; keep one copy where they are the same.
    share_parts(transformer, branches)
    vae = _from_pretrained(AutoencoderKLWan, source, dtype, subfolder="vae", revision=base_revision)
    text_encoder = None
    if with_text_encoder:
        from cosmos_transfer.model.prompt_embeddings import load_cosmos_text_encoder

        text_encoder = load_cosmos_text_encoder(
            source.location,
            dtype=dtype,
            revision=base_revision,
            local_files_only=source.local_files_only or source.folder is not None,
        )
    return transformer, branches, WanAutoencoder(vae), text_encoder


_BLOCKS_OF = {
    "CosmosTransformer3DModel": "transformer_blocks",
    "CosmosControlNetModel": "control_blocks",
}


def _without_blocks(
    network_class: type[nn.Module],
    folder: Path,
    part: str,
    blocks: str,
    dtype: torch.dtype,
    where: str,
) -> nn.Module:
    """A part whose blocks will be streamed: everything else is loaded, they have room at most.

    Room that nothing has written to takes no memory.
    """
    config = {key: value for key, value in _config(folder, part).items() if key[:1] != "_"}
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device("meta"):
            network: nn.Module = network_class.from_config(config)  # type: ignore[attr-defined]
    finally:
        torch.set_default_dtype(before)
    files = PackedFolder(folder / part)
    weights = {}
    for name in files.names():
        if not name.startswith(f"{blocks}."):
            stored = files.read(name)
            dense = unpack(stored) if isinstance(stored, PackedTensor) else stored
            weights[name] = dense.to(dtype).clone()  # out of the file, onto aligned memory
    load_strictly(network, weights, where=where, absent_parts=[blocks], assign=True)
    for block in getattr(network, blocks):
        block.to_empty(device="cpu")
    return network


def _packed_files(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.glob("*.safetensors")) if is_packed(path)]


def _from_packed(
    network_class: type[nn.Module],
    folder: Path,
    part: str,
    packed: Sequence[Path],
    dtype: torch.dtype,
    *,
    where: str,
) -> nn.Module:
    """A part that ``cosmos-transfer prune`` wrote: compressed files beside its config."""
    config = {key: value for key, value in _config(folder, part).items() if key[:1] != "_"}
    with torch.device("meta"):
        network: nn.Module = network_class.from_config(config)  # type: ignore[attr-defined]
    weights: dict[str, Tensor] = {}
    for path in packed:
        weights |= {key: value.to(dtype) for key, value in read_packed(path).items()}
    load_strictly(network, weights, where=where, assign=True)
    return network


def _from_pretrained(
    network_class: type[nn.Module], source: CheckpointSource, dtype: torch.dtype, **place: Any
) -> Any:
    part = place.get("subfolder") or place.get("revision")
    where = f"checkpoint {source.location}, {part}"
    if source.folder is not None:
        files = _packed_files(source.folder / str(part))
        blocks = _BLOCKS_OF.get(network_class.__name__, "") if source.streams_blocks else ""
        if blocks:
            return _without_blocks(network_class, source.folder, str(part), blocks, dtype, where)
        if files:
            return _from_packed(network_class, source.folder, str(part), files, dtype, where=where)
    try:
        network, loading = network_class.from_pretrained(  # type: ignore[attr-defined]
            source.location,
            torch_dtype=dtype,
            use_safetensors=True,
            output_loading_info=True,
            local_files_only=source.local_files_only or source.folder is not None,
            **place,
        )
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise CheckpointError(
            explain(
                where,
                expected=f"a {network_class.__name__} in safetensors",
                got=" ".join(str(error).split())[:400],
                do="Fetch the part again, or log in to the hub and accept its licence.",
            )
        ) from error
    problems = _leftovers(
        missing=sorted(loading["missing_keys"]),
        unexpected=sorted(loading["unexpected_keys"]),
        reshaped=[str(key) for key in loading["mismatched_keys"]],
    )
    if problems:
        raise _misfit(where, problems)
    return network
