from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from cosmos_transfer.errors import CheckpointError
from cosmos_transfer.offload.files import PackedFile, read_packed, write_packed


def weights():
    torch.manual_seed(0)
    sparse = torch.randn(64, 48).to(torch.bfloat16)
    sparse[torch.rand(64, 48) < 0.5] = 0
    return {"a.sparse": sparse, "b.dense": torch.randn(7), "c.none": torch.zeros(3, 0)}


def test_weights_come_back_and_only_the_sparse_are_packed(tmp_path):
    before = weights()
    sizes = write_packed(tmp_path / "w.safetensors", before, metadata={"made_by": "test"})
    on_disk = load_file(tmp_path / "w.safetensors")
    assert on_disk.keys() == {"a.sparse.bitmap", "a.sparse.values", "b.dense", "c.none"}
    assert sizes.stored == sum(t.numel() * t.element_size() for t in on_disk.values())
    assert sizes.dense == sum(t.numel() * t.element_size() for t in before.values())
    after = read_packed(tmp_path / "w.safetensors")
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], before[name]) for name in before)


def test_an_ordinary_file_reads_too(tmp_path):
    save_file(weights(), tmp_path / "w.safetensors")
    assert PackedFile(tmp_path / "w.safetensors").names() == ("a.sparse", "b.dense", "c.none")
    assert read_packed(tmp_path / "w.safetensors").keys() == weights().keys()


def test_reads_are_told_before_they_happen(tmp_path):
    write_packed(tmp_path / "w.safetensors", weights())
    told = []
    file = PackedFile(tmp_path / "w.safetensors", on_read=told.append)
    file.read("a.sparse")
    kept = int((weights()["a.sparse"] != 0).sum())
    assert told == [64 * 48 // 8, 2 * kept]


def test_a_weight_that_is_not_there_is_named(tmp_path):
    write_packed(tmp_path / "w.safetensors", weights())
    with pytest.raises(CheckpointError, match=r"a weight d, got no d"):
        PackedFile(tmp_path / "w.safetensors").read("d")


def test_another_codec_is_refused(tmp_path):
    header = {"codec": "bitmap-9", "packed": json.dumps({"a": [3]})}
    save_file({"a.bitmap": torch.zeros(1, dtype=torch.uint8)}, tmp_path / "w.safetensors", header)
    with pytest.raises(CheckpointError, match="codec bitmap-1, got bitmap-9"):
        PackedFile(tmp_path / "w.safetensors")


def test_a_file_of_something_else_is_one_line(tmp_path):
    (tmp_path / "w.safetensors").write_bytes(b"no")
    with pytest.raises(CheckpointError, match=r"compressed checkpoint w\.safetensors"):
        PackedFile(tmp_path / "w.safetensors")


def test_a_failed_write_leaves_nothing(tmp_path, monkeypatch):
    def full(*args, **kwargs):
        raise OSError("disk full")

    monkeypatch.setattr("cosmos_transfer.offload.files.save_file", full)
    with pytest.raises(OSError, match="disk full"):
        write_packed(tmp_path / "w.safetensors", weights())
    assert not list(tmp_path.iterdir())
