"""Saving and loading: safetensors, tiny-cuda-nn's vectors, instant-ngp's snapshots."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import msgpack
import pytest
import torch

import ngpc
from ngpc.errors import CheckpointError, MediaError
from ngpc.serialization.snapshots import snapshot_parts

GRID = {"otype": "HashGrid", "n_levels": 3, "log2_hashmap_size": 6, "base_resolution": 4,
        "per_level_scale": 1.5}  # fmt: skip
NETWORK = {"otype": "FullyFusedMLP", "n_neurons": 16, "n_hidden_layers": 1}
NERF = {
    "encoding": {"otype": "HashGrid", "n_levels": 16, "n_features_per_level": 2,
                 "log2_hashmap_size": 19, "base_resolution": 16},
    "network": {"otype": "CutlassMLP", "activation": "ReLU", "output_activation": "None",
                "n_neurons": 64, "n_hidden_layers": 1},
    "dir_encoding": {"otype": "Composite", "nested": [
        {"n_dims_to_encode": 3, "otype": "SphericalHarmonics", "degree": 4},
        {"otype": "Identity", "n_bins": 4, "degree": 4},
    ]},
    "rgb_network": {"otype": "CutlassMLP", "activation": "ReLU", "output_activation": "None",
                    "n_neurons": 64, "n_hidden_layers": 2},
    "loss": {"otype": "Huber"},
    "snapshot": {"nerf": {"aabb_scale": 4}},
}  # fmt: skip


def modules() -> list[ngpc.fields.flat.FlatModule]:  # type: ignore[name-defined]
    return [
        ngpc.Encoding(3, GRID, 5, torch.float16),
        ngpc.Network(3, 2, NETWORK),
        ngpc.NetworkWithInputEncoding(3, 2, GRID, NETWORK).double(),
    ]


@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_module_comes_back_as_it_was(index: int, tmp_path: Path) -> None:
    module, path = modules()[index], tmp_path / "module.safetensors"
    ngpc.save_module(module, path)
    loaded = ngpc.load_module(path)
    assert type(loaded) is type(module)
    assert loaded.dtype is module.dtype
    assert torch.equal(loaded.params, module.params)
    x = torch.rand(7, 3)
    assert torch.equal(loaded(x), module(x))


def test_a_file_that_is_no_module_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "module.safetensors"
    with pytest.raises(MediaError, match="expected a saved module, got no file"):
        ngpc.load_module(path)
    path.write_bytes(b"nonsense")
    with pytest.raises(CheckpointError, match="expected safetensors"):
        ngpc.load_module(path)
    from safetensors.torch import save_file

    save_file({"params": torch.zeros(3)}, path)
    with pytest.raises(CheckpointError, match="'ngpc module 1', got None"):
        ngpc.load_module(path)
    ngpc.save_module(modules()[1], path)
    damaged = path.read_bytes().replace(b"FullyFusedMLP", b"FullyFuzedMLP")
    path.write_bytes(damaged)
    with pytest.raises(CheckpointError, match="FullyFuzedMLP"):
        ngpc.load_module(path)


def count(parts) -> int:
    return sum(torch.Size(part.shape).numel() for part in parts)


def test_the_published_count_of_a_nerf() -> None:
    # instant-ngp issue 845: 13,084,640 parameters at aabb_scale 4 with CutlassMLP, which then
    # padded the three colours to 8 outputs, not to 16.
    assert count(snapshot_parts(NERF, "nerf", output_multiples=(16, 8))) == 13_084_640
    assert count(snapshot_parts(NERF, "nerf")) == 13_084_640 + 8 * 64
    snapshot = ngpc.Snapshot(mode="nerf", content=NERF, params=torch.zeros(13_084_640))
    shapes = {part.name: part.shape for part in snapshot.parts()}
    assert shapes["rgb_network.weights.2"] == (8, 64)
    assert shapes["network.weights.0"] == (64, 32)
    assert list(shapes)[-1] == "encoding.table"


def snapshot_of(module: ngpc.NetworkWithInputEncoding, **changes: object) -> dict:
    params = module.params.detach().to(torch.float16)
    inner = {
        "mode": "sdf", "n_params": params.numel(), "params_type": "__half",
        "params_binary": params.numpy().tobytes(), "training_step": 100, "optimizer": {"m": b"12"},
    }  # fmt: skip
    return {"encoding": GRID, "network": NETWORK, "snapshot": inner | changes}


def pack(content: dict) -> bytes:
    return msgpack.packb(content, use_bin_type=True)


@pytest.mark.parametrize("squeeze", [bytes, zlib.compress, gzip.compress])
def test_a_snapshot_becomes_a_module(squeeze, tmp_path: Path) -> None:
    module = ngpc.NetworkWithInputEncoding(3, 1, GRID, NETWORK)
    path = tmp_path / "scene.ingp"
    path.write_bytes(squeeze(pack(snapshot_of(module))))
    snapshot = ngpc.read_snapshot(path)
    other = ngpc.NetworkWithInputEncoding(3, 1, snapshot.encoding, snapshot.network, 99)
    other.load_params(snapshot.vector("network", "encoding"))
    assert torch.equal(other.params, module.params.half().float())
    assert snapshot.tensors()["encoding.table"].shape[1] == 2
    encoding = ngpc.Encoding(3, snapshot.encoding)
    encoding.load_params(snapshot.vector("encoding"))


@pytest.mark.parametrize("name", ["scene.ingp", "scene.msgpack"])
def test_a_snapshot_goes_back_with_all_it_had(name: str, tmp_path: Path) -> None:
    module = ngpc.NetworkWithInputEncoding(3, 1, GRID, NETWORK)
    content = snapshot_of(module)
    params = torch.arange(module.params.numel()) % 100 / 8
    ngpc.write_snapshot(ngpc.Snapshot(mode="sdf", content=content, params=params), tmp_path / name)
    again = ngpc.read_snapshot(tmp_path / name)
    assert torch.equal(again.params, params)
    assert again.content["snapshot"]["training_step"] == 100
    assert "optimizer" not in again.content["snapshot"]
    assert again.content["encoding"] == GRID
    is_compressed = (tmp_path / name).read_bytes()[:2] == b"\x1f\x8b"
    assert is_compressed == name.endswith(".ingp")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xc1", "a MessagePack snapshot"),
        (pack([1, 2]), "params_binary"),
        (pack({"snapshot": {"params_type": "double"}}), "KeyError: 'double'"),
        (zlib.compress(pack({"snapshot": {}}))[:-6], "a MessagePack snapshot"),
    ],
)
def test_a_damaged_snapshot_is_refused(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "scene.ingp"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        ngpc.read_snapshot(path)


def test_counts_that_disagree_are_named(tmp_path: Path) -> None:
    module = ngpc.NetworkWithInputEncoding(3, 1, GRID, NETWORK)
    path = tmp_path / "scene.msgpack"
    path.write_bytes(pack(snapshot_of(module, n_params=17)))
    with pytest.raises(CheckpointError, match="of 17 parameters"):
        ngpc.read_snapshot(path)
    path.write_bytes(pack(snapshot_of(module) | {"network": {**NETWORK, "n_neurons": 32}}))
    with pytest.raises(CheckpointError, match="parameters, by its configuration, got "):
        ngpc.read_snapshot(path).parts()
    path.write_bytes(pack(snapshot_of(module, mode="rtc")))
    with pytest.raises(CheckpointError, match="one of nerf, sdf, image, volume, got 'rtc'"):
        ngpc.read_snapshot(path).parts()
    with pytest.raises(MediaError, match="a readable snapshot"):
        ngpc.read_snapshot(tmp_path / "absent.ingp")
