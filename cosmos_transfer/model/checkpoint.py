"""What a checkpoint says of itself, read from its JSON files alone.

A name is one of
    ``embedded``             the checkpoint inside this package
    ``embedded-fast``        the same, distilled to a few steps without guidance
    a folder                 our layout (written by :func:`save_embedded`), or diffusers'
    ``owner/name`` on a hub  diffusers' layout

Our layout
    ``model_index.json`` and one folder a part: ``transformer/``, ``controlnet/<control>/``,
    ``autoencoder/``, ``text_encoder/``, each a ``config.json`` and one fp16 safetensors file. An
    index may name a checkpoint of this package as ``lender`` of its autoencoder and text encoder.

diffusers' layout
    ``transformer/``, ``vae/``, ``scheduler/``, ``text_encoder/``, ``tokenizer/``, and one folder
    a control, ``controlnet_<control>/`` or ``controlnet/<control>/``. NVIDIA keeps the control
    nets of Cosmos-Transfer2.5 on branches of the hub instead; they are found there. Their
    ``blur`` is our ``vis``.

NVIDIA's own files
    Cosmos-Transfer2.5: ``general/<control>/*.pt`` or ``<control>/*.pt``, each the base and one
    branch. Cosmos-Transfer1: ``base_model.pt`` and ``<control>_control.pt``. Beside them, in
    diffusers' layout: ``vae/``, ``text_encoder/`` and ``tokenizer/``.

Describing needs no torch, and importing this module loads none; :func:`load_checkpoint`,
:func:`save_embedded` and their types live in ``checkpoint_parts`` and are fetched when used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cosmos_transfer.errors import CheckpointError, explain
from cosmos_transfer.shapes import Size, Strides

if TYPE_CHECKING:
    from cosmos_transfer.model.checkpoint_parts import (
        Checkpoint,
        CheckpointSettings,
        load_checkpoint,
        save_embedded,
    )

__all__ = [
    "Checkpoint",
    "CheckpointInfo",
    "CheckpointSettings",
    "checkpoint_info",
    "load_checkpoint",
    "save_embedded",
]

EMBEDDED = "embedded"
EMBEDDED_FAST = "embedded-fast"
PACKAGED = (EMBEDDED, EMBEDDED_FAST)
INDEX = "model_index.json"
# The order in which controls are listed everywhere.
CONTROLS = ("edge", "depth", "seg", "vis")
ALIASES = {"blur": "vis"}

# Where NVIDIA publishes the parts of a checkpoint on branches: base, then one branch a control.
PUBLISHED_BRANCHES = {
    "nvidia/Cosmos-Transfer2.5-2B": (
        "diffusers/general",
        {name: f"diffusers/controlnet/general/{name}" for name in ("edge", "depth", "seg")}
        | {"vis": "diffusers/controlnet/general/blur"},
    )
}

# What diffusers' Cosmos2_5_TransferPipeline is called with; its guidance of 3 is 4 in our terms.
PUBLISHED_SIZE = Size(704, 1280)
PUBLISHED_FRAMES = 93
PUBLISHED_STEPS = 36
PUBLISHED_GUIDANCE_SCALE = 4.0
PUBLISHED_KARRAS = (200.0, 0.01)

# NVIDIA's own sampler for 2.5 begins at 999 of its 1000 training steps, before the shift of 5.
TRANSFER2_5_FIRST_SIGMA = 5.0 * 0.999 / (1.0 + 4.0 * 0.999)
# The files NVIDIA loads by default, where a folder holds more than one generation of them.
PUBLISHED_FILES = (
    "61f5694b-0ad5-4ecd-8ad7-c8545627d125_ema_bf16.pt",
    "626e6618-bfcd-4d9a-a077-1409e2ce353f_ema_bf16.pt",
    "ba2f44f2-c726-4fe7-949f-597069d9b91c_ema_bf16.pt",
    "5136ef49-6d8d-42e8-8abf-7dac722a304a_ema_bf16.pt",
)
TRANSFER1_FILES = {"4kupscaler_control": "upscale"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointInfo:
    """The facts that planning and validating need, before any weight is read.

    ``location`` is a folder or a hub id. ``karras`` holds the largest and smallest ratio of noise
    to signal where the noise schedule is Karras'; otherwise it is the flow's, moved by ``shift``
    and beginning at ``first_sigma``. ``sigma_data`` is set for a checkpoint trained as an EDM
    denoiser. ``is_published`` marks NVIDIA's weights, whose licence asks for a guardrail.
    """

    id: str
    layout: str  # "embedded", "diffusers", "native-2.5" or "native-1"
    location: str
    native_size: Size
    native_frames: int
    strides: Strides
    patch: tuple[int, int, int]
    latent_channels: int
    timestep_scale: float
    clean_sigma: float | None = None
    num_inference_steps: int
    guidance_scale: float
    shift: float
    karras: tuple[float, float] | None = None
    sampler: str
    controls: tuple[str, ...]
    sha256: Mapping[str, str] = field(default_factory=dict)
    first_sigma: float = 1.0
    sigma_data: float | None = None
    is_published: bool = False

    @property
    def spatial_multiple(self) -> int:
        """What height and width of a clip are padded to a multiple of."""
        return self.strides.space * max(self.patch[1:])


def checkpoint_info(name_or_path: str | Path, *, local_files_only: bool = False) -> CheckpointInfo:
    """Describe a checkpoint; see the module docstring for what a name may be.

    Args:
        name_or_path: Name, folder or hub id.
        local_files_only: Ask no hub; use what was downloaded before.

    Raises:
        CheckpointError: Nothing there, or files that do not describe a checkpoint.
    """
    source = find_checkpoint(name_or_path, local_files_only=local_files_only)
    index = source.read_json(INDEX, required=False)
    if index is not None and "_class_name" not in index:
        return _from_our_index(index, source)
    if index is None and (files := native_files(source.folder)) is not None:
        return _from_native(files, source)
    return _from_diffusers(index or {}, source)


@dataclass(frozen=True, slots=True)
class CheckpointSource:
    """Where the files of a checkpoint are: a folder, or a hub id."""

    folder: Path | None
    hub_id: str | None
    local_files_only: bool
    streams_blocks: bool = False  # blocks are read while they run, not before

    @property
    def location(self) -> str:
        """The folder or the hub id."""
        return str(self.folder or self.hub_id)

    def read_json(self, name: str, *, required: bool = True) -> dict[str, Any] | None:
        """The object in a JSON file, or None where it is absent and not required."""
        path = self._path_of(name, required=required)
        if path is None:
            if not required:
                return None
            raise CheckpointError(
                explain(
                    f"checkpoint {self.location}",
                    expected=f"a file {name}",
                    got="none",
                    do="Check that the folder holds a whole checkpoint.",
                )
            )
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise CheckpointError(
                explain(
                    f"checkpoint {self.location}",
                    expected=f"JSON in {name}",
                    got=f"{error}",
                    do="Fetch the checkpoint again.",
                )
            ) from error
        if not isinstance(content, dict):
            raise CheckpointError(
                explain(
                    f"checkpoint {self.location}",
                    expected=f"an object in {name}",
                    got=type(content).__name__,
                    do="Fetch the checkpoint again.",
                )
            )
        return content

    def _path_of(self, name: str, *, required: bool) -> Path | None:
        if self.folder is not None:
            path = self.folder / name
            return path if path.is_file() else None
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

        base_revision, _ = PUBLISHED_BRANCHES.get(str(self.hub_id), (None, {}))
        try:
            return Path(
                hf_hub_download(
                    str(self.hub_id),
                    name,
                    revision=base_revision,
                    local_files_only=self.local_files_only,
                )
            )
        except EntryNotFoundError as error:
            # Also raised for a file that is not in the cache when the hub cannot be asked.
            if not required or not isinstance(error, LocalEntryNotFoundError):
                return None
            raise self._unreachable(error) from error
        except (OSError, ValueError) as error:
            raise self._unreachable(error) from error

    def _unreachable(self, error: Exception) -> CheckpointError:
        return CheckpointError(
            explain(
                f"checkpoint {self.hub_id}",
                expected="its files, downloaded before or on the hub",
                got=str(error).splitlines()[0],
                do="Log in with `hf auth login` and accept its licence, or give a local folder.",
            )
        )

    def control_folders(self) -> dict[str, str]:
        """Control -> its folder inside a local checkpoint, in the order of the controls."""
        if self.folder is None:
            return {}
        found: dict[str, str] = {}
        inner = self.folder / "controlnet"
        candidates = [(path.name, path) for path in sorted(inner.glob("*/"))]
        candidates += [
            (path.name.removeprefix("controlnet_"), path)
            for path in sorted(self.folder.glob("controlnet_*/"))
        ]
        for name, path in candidates:
            if (path / "config.json").is_file():
                found[ALIASES.get(name, name)] = path.relative_to(self.folder).as_posix()
        if (inner / "config.json").is_file():
            raise CheckpointError(
                explain(
                    f"checkpoint {self.location}",
                    expected="one folder a control, controlnet_<name>",
                    got="controlnet/ without a name",
                    do="Rename it to controlnet_edge, _depth, _seg or _vis, whichever it is.",
                )
            )
        return {name: found[name] for name in in_order(found)}


def find_checkpoint(
    name_or_path: str | Path, *, local_files_only: bool = False
) -> CheckpointSource:
    """Decide what a name means; looks at nothing but whether a folder exists."""
    if str(name_or_path) in PACKAGED:
        folder = Path(str(files("cosmos_transfer").joinpath("checkpoints", str(name_or_path))))
        if not (folder / INDEX).is_file():
            raise CheckpointError(
                explain(
                    f"checkpoint {name_or_path}",
                    expected=f"{INDEX} in the installed package",
                    got="none",
                    do="Install the package with its checkpoint, or train one.",
                )
            )
        return CheckpointSource(folder, None, local_files_only)
    folder = Path(name_or_path).expanduser()
    if str(name_or_path) and folder.is_dir():
        return CheckpointSource(folder, None, local_files_only)
    if re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", str(name_or_path)):
        return CheckpointSource(None, str(name_or_path), local_files_only)
    raise CheckpointError(
        explain(
            "checkpoint",
            expected="'embedded', 'embedded-fast', a folder, or a hub id like owner/name",
            got=f"{str(name_or_path)!r}",
            do="Check the spelling of the path.",
        )
    )


def in_order(controls: Mapping[str, Any] | tuple[str, ...]) -> tuple[str, ...]:
    """Controls in their usual order, others after them by name."""
    known = [name for name in CONTROLS if name in controls]
    return (*known, *sorted(name for name in controls if name not in CONTROLS))


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeFiles:
    """NVIDIA's own files in a folder. The base of Transfer2.5 stands in every control's file."""

    family: str  # "2.5" or "1"
    base: Path
    controls: Mapping[str, Path]


def native_files(folder: Path | None) -> NativeFiles | None:
    """Find NVIDIA's own files; None where a folder has none of them.

    Raises:
        CheckpointError: Several files where one is expected.
    """
    if folder is None:
        return None
    if (folder / "base_model.pt").is_file():
        found = {
            TRANSFER1_FILES.get(path.stem, path.stem.removesuffix("_control")): path
            for path in sorted(folder.glob("*_control.pt"))
        }
        controls = {name: found[name] for name in in_order(found)}
        return NativeFiles(family="1", base=folder / "base_model.pt", controls=controls)
    found = {}
    for inner in (folder / "general", folder):
        for name in (*CONTROLS, *ALIASES):
            files = sorted((inner / name).glob("*.pt"))
            published = [path for path in files if path.name in PUBLISHED_FILES]
            files = published if len(files) > 1 and published else files
            if len(files) > 1:
                raise CheckpointError(
                    explain(
                        f"checkpoint {folder}",
                        expected=f"one .pt file in {name}/",
                        got=", ".join(path.name for path in files),
                        do="Move the others elsewhere.",
                    )
                )
            if files:
                found.setdefault(ALIASES.get(name, name), files[0])
    if not found:
        return None
    controls = {name: found[name] for name in in_order(found)}
    return NativeFiles(family="2.5", base=next(iter(controls.values())), controls=controls)


def _from_native(files: NativeFiles, source: CheckpointSource) -> CheckpointInfo:
    is_first = files.family == "1"
    return CheckpointInfo(
        id=Path(source.location).resolve().name,
        layout=f"native-{files.family}",
        location=source.location,
        native_size=PUBLISHED_SIZE,
        native_frames=121 if is_first else PUBLISHED_FRAMES,
        strides=Strides(time=8 if is_first else 4, space=8),
        patch=(1, 2, 2),
        latent_channels=16,
        timestep_scale=1.0,
        # Transfer1 runs 35 steps and a last call of the network, which is a step here.
        num_inference_steps=36 if is_first else 35,
        # Their guidance of 7 and 3.
        guidance_scale=8.0 if is_first else PUBLISHED_GUIDANCE_SCALE,
        shift=1.0 if is_first else 5.0,
        karras=(80.0, 0.002) if is_first else None,
        sampler="res2ab" if is_first else "unipc",
        controls=tuple(files.controls),
        first_sigma=1.0 if is_first else TRANSFER2_5_FIRST_SIGMA,
        sigma_data=0.5 if is_first else None,
        is_published=True,
    )


def _from_our_index(index: Mapping[str, Any], source: CheckpointSource) -> CheckpointInfo:
    try:
        defaults = index["defaults"]
        height, width = index["native_size"]
        time, rows, columns = index["patch"]
        return CheckpointInfo(
            id=str(index["id"]),
            layout="embedded",
            location=source.location,
            native_size=Size(int(height), int(width)),
            native_frames=int(index["native_frames"]),
            strides=Strides(
                time=int(index["strides"]["time"]), space=int(index["strides"]["space"])
            ),
            patch=(int(time), int(rows), int(columns)),
            latent_channels=int(index["latent_channels"]),
            timestep_scale=float(index["timestep_scale"]),
            clean_sigma=None if index["clean_sigma"] is None else float(index["clean_sigma"]),
            num_inference_steps=int(defaults["num_inference_steps"]),
            guidance_scale=float(defaults["guidance_scale"]),
            shift=float(defaults["shift"]),
            sampler=str(defaults["sampler"]),
            controls=tuple(str(name) for name in index["controls"]),
            sha256={str(name): str(digest) for name, digest in index["sha256"].items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(
            explain(
                f"checkpoint {source.location}",
                expected=f"a complete {INDEX}",
                got=f"{type(error).__name__}: {error}",
                do="Write it with save_embedded.",
            )
        ) from error


def _from_diffusers(index: Mapping[str, Any], source: CheckpointSource) -> CheckpointInfo:
    transformer = source.read_json("transformer/config.json")
    vae = source.read_json("vae/config.json")
    scheduler = source.read_json("scheduler/scheduler_config.json", required=False) or {}
    assert transformer is not None
    assert vae is not None
    if source.folder is not None:
        controls = tuple(source.control_folders())
    elif source.hub_id in PUBLISHED_BRANCHES:
        controls = in_order(PUBLISHED_BRANCHES[source.hub_id][1])
    else:
        names = (key.removeprefix("controlnet_") for key in index if key.startswith("controlnet_"))
        controls = in_order(tuple(ALIASES.get(name, name) for name in names))
    karras = PUBLISHED_KARRAS if not scheduler or scheduler.get("use_karras_sigmas") else None
    if karras is not None:
        karras = (
            float(scheduler.get("sigma_max") or karras[0]),
            float(scheduler.get("sigma_min") or karras[1]),
        )
    try:
        downsampling = vae["temperal_downsample"]
        time, rows, columns = transformer["patch_size"]
        return CheckpointInfo(
            id=source.hub_id or Path(source.location).resolve().name,
            layout="diffusers",
            location=source.location,
            native_size=PUBLISHED_SIZE,
            native_frames=PUBLISHED_FRAMES,
            strides=Strides(
                time=2 ** sum(downsampling),
                space=2 ** len(downsampling) * int(vae.get("patch_size") or 1),
            ),
            patch=(int(time), int(rows), int(columns)),
            latent_channels=int(transformer["out_channels"]),
            timestep_scale=1.0,
            num_inference_steps=PUBLISHED_STEPS,
            guidance_scale=PUBLISHED_GUIDANCE_SCALE,
            shift=float(scheduler.get("flow_shift") or scheduler.get("shift") or 1.0),
            karras=karras,
            sampler="euler" if "Euler" in scheduler.get("_class_name", "") else "unipc",
            controls=controls,
            is_published=True,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            explain(
                f"checkpoint {source.location}",
                expected="a Cosmos-Transfer2.5 checkpoint in diffusers' layout",
                got=f"configs without {error}",
                do="Fetch it with its config.json files.",
            )
        ) from error


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("cosmos_transfer.model.checkpoint_parts"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
