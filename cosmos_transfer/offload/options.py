"""What can be done so that a model fits: tiles, eight-bit storage, weights on the host or on disk.

None of them changes what is computed, but for eight-bit storage, which rounds weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cosmos_transfer.errors import ConfigError, explain
from cosmos_transfer.offload.bitmap import PackedTensor
from cosmos_transfer.offload.files import PackedFile
from cosmos_transfer.offload.streaming import StreamedBlocks

OFFLOADS = ("none", "group", "stream")
# Parts of a network that are no block's; patterns of names, as diffusers takes them.
OUTSIDE_BLOCKS = (
    "^patch_embed",
    "^time_embed",
    "^learnable_pos_embed",
    "^crossattn_proj",
    "^img_context_proj",
    "^proj_out",
    "norm",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryOptions:
    """How to fit.

    ``tile`` encodes and decodes in overlapping tiles. ``fp8`` keeps weights in eight bits and
    casts each layer when it runs. ``offload``: ``group`` keeps blocks on the host until they run,
    ``stream`` reads them from the checkpoint's files, compressed or not, at every step.
    """

    tile: bool = False
    fp8: bool = False
    offload: str = "none"

    def __post_init__(self) -> None:
        """Refuse what does not go together."""
        if self.offload not in OFFLOADS:
            raise ConfigError(
                explain(
                    "model.offload",
                    expected="one of " + ", ".join(OFFLOADS),
                    got=repr(self.offload),
                    do="group keeps blocks on the host, stream on disk.",
                )
            )
        if self.fp8 and self.offload == "stream":
            raise ConfigError(
                explain(
                    "model.fp8",
                    expected="it without model.offload=stream",
                    got="both",
                    do="Prune the checkpoint instead; that makes the stream smaller.",
                )
            )

    @property
    def is_plain(self) -> bool:
        """Whether nothing is asked for."""
        return self == MemoryOptions()


class PackedFolder:
    """The weights of a part that stand in one or several files."""

    def __init__(self, folder: Path) -> None:
        self.path = folder
        paths = sorted(folder.glob("*.safetensors"))
        if not paths:
            raise ConfigError(
                explain(
                    "model.offload=stream",
                    expected=f"safetensors in {folder}",
                    got="none",
                    do="Stream from a local folder in our layout or diffusers'.",
                )
            )
        self._file_of: dict[str, PackedFile] = {}
        for path in paths:
            file = PackedFile(path)
            self._file_of |= dict.fromkeys(file.names(), file)

    def names(self) -> tuple[str, ...]:
        """The weights of all files."""
        return tuple(self._file_of)

    def read(self, name: str) -> Tensor | PackedTensor:
        """One weight as it is stored."""
        return self._file_of[name].read(name)


def fit(
    transformer: nn.Module,
    branches: Mapping[str, nn.Module],
    autoencoder: Any,
    options: MemoryOptions,
    *,
    device: torch.device,
    dtype: torch.dtype,
    folders: Mapping[str, Path] | None = None,
) -> list[StreamedBlocks]:
    """Apply the options to loaded networks.

    Args:
        transformer: The base, in diffusers' classes.
        branches: The control branches.
        autoencoder: Ours around diffusers'.
        options: What to do.
        device: Where blocks compute.
        dtype: What they compute in.
        folders: For ``stream``: ``transformer`` and every control -> the folder of its files.

    Raises:
        ConfigError: The networks are not diffusers' (the embedded model needs none of this).
    """
    if options.is_plain:
        return []
    if options.tile:
        network = getattr(autoencoder, "network", None)
        if network is None:
            raise _too_small("model.tile")
        network.enable_tiling()
    networks = {"transformer": transformer, **branches}
    if (options.fp8 or options.offload != "none") and not hasattr(
        transformer, "enable_layerwise_casting"
    ):
        raise _too_small("model.fp8 and model.offload")
    streams = []
    for name, each in networks.items():
        one: Any = each
        if options.fp8:
            store_in_eight_bits(one, dtype)
        if options.offload == "group":
            one.enable_group_offload(
                onload_device=device,
                offload_device=torch.device("cpu"),
                offload_type="block_level",
                num_blocks_per_group=1,
                use_stream=device.type == "cuda",
            )
        if options.offload == "stream":
            assert folders is not None
            part = "transformer_blocks" if name == "transformer" else "control_blocks"
            blocks = getattr(one, part)
            streams.append(
                StreamedBlocks(
                    blocks,
                    PackedFolder(folders[name]),
                    [f"{part}.{index}." for index in range(len(blocks))],
                    device=device,
                    dtype=dtype,
                )
            )
    return streams


def store_in_eight_bits(network: Any, dtype: torch.dtype) -> None:
    """Keep the weights of a network's blocks in eight bits; each layer is cast while it runs.

    Norms stay as they are, and so does what a branch may share with its base: a shared part
    would be cast twice, and it is small beside the blocks.
    """
    network.enable_layerwise_casting(
        storage_dtype=torch.float8_e4m3fn,
        compute_dtype=dtype,
        skip_modules_pattern=(*network._skip_layerwise_casting_patterns, *OUTSIDE_BLOCKS),
    )
    # What stays as it was would keep the whole file it was read from in memory.
    for parameter in network.parameters():
        if parameter.dtype != torch.float8_e4m3fn:
            parameter.data = parameter.data.clone()


def _too_small(what: str) -> ConfigError:
    return ConfigError(
        explain(
            what,
            expected="a published checkpoint, or one in diffusers' classes",
            got="the embedded model",
            do="Leave it out; the embedded model fits everywhere.",
        )
    )
