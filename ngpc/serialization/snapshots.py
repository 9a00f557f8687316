"""instant-ngp's snapshots: ``.msgpack``, and ``.ingp``, which is the same compressed.

A snapshot is one MessagePack map: the network configuration, and under ``snapshot`` the parameters
as bytes with much else (occupancy, cameras, optimizer). MessagePack holds plain values only; no
code runs while one is read. What is not understood is kept as it is and written back.

``params`` lie in tiny-cuda-nn's order. Of a NeRF: the matrices of the density network, those of the
colour network, the tables of the position encoding, those of the direction encoding; of the other
modes: the matrices of the network, the tables of the encoding. Widths are padded to multiples of
16; CutlassMLP of older versions padded them to 8, and :class:`Snapshot` recognises which by the
number of parameters.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ngpc.config import (
    EncodingConfig,
    GridConfig,
    MlpConfig,
    encoding_from_json,
    growth_to_reach,
    network_from_json,
)
from ngpc.data.images import replace_file
from ngpc.encodings import make_encoding
from ngpc.errors import (
    BackendUnavailableError,
    CheckpointError,
    ConfigError,
    MediaError,
    explain,
)
from ngpc.shapes import LAYER_MULTIPLE, round_up

MAX_BYTES = 2**33  # of a snapshot once unpacked: a small file may claim to be a huge one
PARAMETER_TYPES = {"__half": torch.float16, "float": torch.float32}
DENSITY_FEATURES = 16  # what the density network of a NeRF hands to the colour network
OLD_MULTIPLE = 8  # to which CutlassMLP padded outputs once
SCENE_MODES = ("nerf", "sdf")
FINEST_RESOLUTION = 2048  # of a scene in the unit cube
MODE_SIZES = {  # coordinates and values of each mode's field
    "nerf": (3, 4),
    "sdf": (3, 1),
    "image": (2, 3),
    "volume": (3, 4),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A run of the parameter vector: one matrix, or the tables of one encoding."""

    name: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A trained field of instant-ngp."""

    mode: str
    content: dict[str, Any]
    """The whole file as read; :func:`write_snapshot` writes it back with the parameters below."""
    params: Float[Tensor, " n"]
    """Float32, in tiny-cuda-nn's order."""

    @property
    def encoding(self) -> EncodingConfig:
        """The position encoding."""
        return _encoding_config(self.content, "encoding", self.mode)

    @property
    def network(self) -> MlpConfig:
        """The network that reads it; of a NeRF, the density network."""
        return network_from_json(_section(self.content, "network"), is_strict=False)

    def parts(self) -> tuple[Part, ...]:
        """What lies where in ``params``.

        Raises:
            CheckpointError: the configuration asks for another number of parameters.
        """
        expected = set()
        for first, second in product((LAYER_MULTIPLE, OLD_MULTIPLE), repeat=2):
            parts = snapshot_parts(self.content, self.mode, output_multiples=(first, second))
            size = sum(torch.Size(part.shape).numel() for part in parts)
            if size == self.params.numel():
                return parts
            expected.add(size)
        raise CheckpointError(
            explain(
                f"snapshot of mode {self.mode}",
                expected=" or ".join(f"{size:,}" for size in sorted(expected))
                + " parameters, by its configuration",
                got=f"{self.params.numel():,}",
                do="The file is damaged, or of a version that is not known here.",
            )
        )

    def tensors(self) -> dict[str, Tensor]:
        """The matrices and tables by name; views of ``params``."""
        parts = self.parts()
        pieces = self.params.split([torch.Size(part.shape).numel() for part in parts])
        return {
            part.name: piece.view(part.shape) for part, piece in zip(parts, pieces, strict=True)
        }

    def vector(self, *names: str) -> Float[Tensor, " n"]:
        """The parts whose names begin with one of ``names``, in that order, as one vector.

        ``snapshot.vector("network", "encoding")`` is what ``NetworkWithInputEncoding`` of the same
        configuration loads.
        """
        tensors = self.tensors()
        return torch.cat(
            [
                tensor.flatten()
                for wanted in names
                for name, tensor in tensors.items()
                if name.split(".")[0] == wanted
            ]
        )


def snapshot_parts(
    content: Mapping[str, Any],
    mode: str,
    *,
    output_multiples: tuple[int, int] = (LAYER_MULTIPLE, LAYER_MULTIPLE),
) -> tuple[Part, ...]:
    """What a snapshot of this configuration holds, in order.

    Args:
        content: The configuration: encoding, network, and of a NeRF dir_encoding and rgb_network.
        mode: ``nerf``, ``sdf``, ``image`` or ``volume``.
        output_multiples: To what the outputs of the network and of the colour network are padded.
    """
    if mode not in MODE_SIZES:
        raise CheckpointError(
            explain(
                "snapshot.mode",
                expected=f"one of {', '.join(MODE_SIZES)}",
                got=repr(mode),
                do="Other modes hold no field.",
            )
        )
    num_dims, num_outputs = MODE_SIZES[mode]
    encoding = _encoding_size(content, "encoding", mode, num_dims)
    if mode != "nerf":
        matrices = _matrices(content, "network", encoding.width, num_outputs, output_multiples[0])
        return (*matrices, *encoding.parts)
    directions = _encoding_size(content, "dir_encoding", mode, 3)
    density = _matrices(content, "network", encoding.width, DENSITY_FEATURES, output_multiples[0])
    colour_inputs = DENSITY_FEATURES + round_up(directions.width, LAYER_MULTIPLE)
    colour = _matrices(content, "rgb_network", colour_inputs, 3, output_multiples[1])
    return (*density, *colour, *encoding.parts, *directions.parts)


def read_snapshot(path: Path) -> Snapshot:
    """Read an instant-ngp snapshot.

    Raises:
        MediaError: the file cannot be read.
        CheckpointError: it is no snapshot, or a damaged one.
    """
    path = Path(path)
    msgpack = _msgpack()
    try:
        packed = path.read_bytes()
    except OSError as error:
        raise MediaError(
            explain(
                str(path),
                expected="a readable snapshot",
                got=error.strerror or "none",
                do="Check the path.",
            )
        ) from error
    try:
        content = msgpack.unpackb(_inflate(packed), strict_map_key=True, raw=False)
    except Exception as error:
        raise CheckpointError(
            explain(
                str(path),
                expected="a MessagePack snapshot of instant-ngp",
                got=f"{type(error).__name__}: {error}"[:200],
                do="Give a .ingp or .msgpack file.",
            )
        ) from error
    try:
        snapshot = content["snapshot"]
        dtype = PARAMETER_TYPES[snapshot["params_type"]]
        params = torch.frombuffer(bytearray(snapshot["params_binary"]), dtype=dtype)
        if params.numel() != snapshot["n_params"]:
            raise ValueError(f"{params.numel():,} of {snapshot['n_params']:,} parameters")
        mode = str(snapshot.get("mode", "nerf")).lower()
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            explain(
                str(path),
                expected="snapshot.params_binary, params_type and n_params that agree",
                got=f"{type(error).__name__}: {error}",
                do="Save the snapshot again.",
            )
        ) from error
    return Snapshot(mode=mode, content=content, params=params.to(torch.float32))


def write_snapshot(snapshot: Snapshot, path: Path) -> None:
    """Write a snapshot: ``.ingp`` compressed, any other name plain. Complete or not at all.

    Everything in ``content`` is kept; the parameters are those of ``snapshot.params``, in the
    precision the content names. An optimizer's state is left out: it belongs to other parameters.
    """
    snapshot.parts()  # refuses a vector that the configuration does not fit
    inner = {k: v for k, v in snapshot.content.get("snapshot", {}).items() if k != "optimizer"}
    dtype = PARAMETER_TYPES[inner.setdefault("params_type", "__half")]
    params = snapshot.params.detach().cpu().to(dtype).contiguous()
    inner |= {
        "mode": snapshot.mode,
        "n_params": params.numel(),
        "params_binary": params.numpy().tobytes(),
    }
    packed = _msgpack().packb(snapshot.content | {"snapshot": inner}, use_bin_type=True)
    replace_file(Path(path), gzip.compress(packed) if Path(path).suffix == ".ingp" else packed)


@dataclass(frozen=True, slots=True, kw_only=True)
class _EncodingSize:
    width: int
    parts: tuple[Part, ...]


def _encoding_size(content: Mapping[str, Any], key: str, mode: str, num_dims: int) -> _EncodingSize:
    config = _encoding_config(content, key, mode)
    with torch.device("meta"):  # sizes only: a table may be large
        module = make_encoding(config, num_dims=num_dims)
    parts = tuple(
        Part(name=f"{key}.{name}", shape=tuple(parameter.shape))
        for name, parameter in module.named_parameters()
    )
    return _EncodingSize(width=module.num_outputs, parts=parts)


def _encoding_config(content: Mapping[str, Any], key: str, mode: str) -> EncodingConfig:
    """An encoding of a snapshot, its growth filled in as instant-ngp does where it is not written.

    Source:
        instant-ngp: the finest level of a scene in a cube of ``aabb_scale`` has 2048 times as many
        vertices.
    """
    config = encoding_from_json(_section(content, key), is_strict=False)
    if isinstance(config, GridConfig) and config.per_level_scale is None and mode in SCENE_MODES:
        scene = content.get("snapshot", {}).get("nerf", {}) if mode == "nerf" else {}
        config.per_level_scale = growth_to_reach(
            FINEST_RESOLUTION * int(scene.get("aabb_scale", 1)),
            base_resolution=config.base_resolution,
            num_levels=config.num_levels,
        )
    return config


def _matrices(
    content: Mapping[str, Any], key: str, num_inputs: int, num_outputs: int, output_multiple: int
) -> tuple[Part, ...]:
    config = network_from_json(_section(content, key), is_strict=False)
    widths = [round_up(num_inputs, LAYER_MULTIPLE)]
    widths += [config.width] * config.num_hidden_layers
    widths.append(round_up(num_outputs, output_multiple))
    return tuple(
        Part(name=f"{key}.weights.{index}", shape=(rows, columns))
        for index, (columns, rows) in enumerate(pairwise(widths))
    )


def _section(content: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    section = content.get(key)
    if not isinstance(section, Mapping):
        raise ConfigError(
            explain(
                f"snapshot.{key}",
                expected="an object",
                got="nothing" if section is None else type(section).__name__,
                do="Give a snapshot with its network configuration.",
            )
        )
    return section


def _inflate(packed: bytes) -> bytes:
    """Undo zlib or gzip, whichever header is there; plain bytes pass."""
    is_gzip = packed[:2] == b"\x1f\x8b"
    is_zlib = packed[:1] == b"\x78" and int.from_bytes(packed[:2], "big") % 31 == 0
    if not (is_gzip or is_zlib):
        return packed
    stream = zlib.decompressobj(wbits=47)  # finds out which of the two headers it is
    unpacked = stream.decompress(packed, MAX_BYTES)
    if not stream.eof:
        raise ValueError(f"the compressed data end early, or exceed {MAX_BYTES:,} bytes")
    return unpacked


def _msgpack() -> Any:
    try:
        import msgpack
    except ImportError as error:
        raise BackendUnavailableError(
            explain(
                "instant-ngp snapshots",
                expected="the package msgpack",
                got="none installed",
                do="Run: pip install 'cosmos-transfer[snapshots]'.",
            )
        ) from error
    return msgpack
