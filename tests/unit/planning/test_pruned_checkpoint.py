from __future__ import annotations

import json

import pytest
import torch

from cosmos_transfer.cli.prune import main as prune_command
from cosmos_transfer.errors import CheckpointError, ConfigError
from cosmos_transfer.model.checkpoint import load_checkpoint
from cosmos_transfer.offload.files import is_packed
from cosmos_transfer.offload.options import MemoryOptions
from cosmos_transfer.planning.pruned_checkpoint import prune_checkpoint
from tests.support import tiny
from tests.support.numerics import assert_agrees


def diffusers_folder(folder):
    model = tiny.transfer2_5_model(("edge", "seg"))
    model.transformer.save_pretrained(folder / "transformer", max_shard_size="300KB")
    for name, branch in model.branches.items():
        branch.save_pretrained(folder / f"controlnet_{name}")
    tiny.wan_autoencoder().save_pretrained(folder / "vae")
    return model


@pytest.mark.parametrize("method", ["magnitude", "wanda"])
def test_a_pruned_checkpoint_loads_as_any_other(tiny_checkpoint, tmp_path, method):
    report = prune_checkpoint(tiny_checkpoint, tmp_path / "p", sparsity=0.5, method=method)
    assert report.parts.keys() == {
        "transformer",
        *(f"control {name}" for name in ("edge", "depth", "seg", "vis")),
    }
    assert 0.3 < report.parts["transformer"].sparsity <= 0.5
    assert report.ratio < 0.85
    assert all(error > 0.0 for error in report.output_error.values())
    dense, pruned = load_checkpoint(tiny_checkpoint), load_checkpoint(tmp_path / "p")
    assert pruned.info.id == f"{dense.info.id}-{method}50"
    before, after = (each.model.state_dict() for each in (dense, pruned))
    assert before.keys() == after.keys()
    for name, value in after.items():
        kept = value != 0
        assert torch.equal(value[kept], before[name][kept]), name
    assert "dB" in report.text()


def test_diffusers_layout_in_several_files_is_pruned_and_streams(tmp_path):
    diffusers_folder(tmp_path / "c")
    assert len(list((tmp_path / "c" / "transformer").glob("*.safetensors"))) > 1
    prune_checkpoint(tmp_path / "c", tmp_path / "p", sparsity=0.5)
    files = list((tmp_path / "p").glob("*transformer/*.safetensors"))
    assert files
    assert any(is_packed(path) for path in files)
    whole = load_checkpoint(tmp_path / "p", with_text_encoder=False)
    streamed = load_checkpoint(
        tmp_path / "p", with_text_encoder=False, memory=MemoryOptions(offload="stream")
    )
    assert not any(p.numel() for p in streamed.model.transformer.transformer_blocks.parameters())
    text, noise = tiny.randn(1, 7, 48, seed=1), tiny.randn(1, 16, 2, 4, 4, seed=2)
    control = {"edge": tiny.randn(1, 16, 2, 4, 4, seed=3)}
    weights = {"edge": torch.ones(1, 8)}
    got, want = (
        each.model.conditioned_on(text, control, weights)(noise, 0.5) for each in (streamed, whole)
    )
    # Rounding: matrix products depend on where in memory the weights happen to lie.
    assert_agrees(got, want, rms=1e-6)


def test_an_output_that_is_there_is_kept(tiny_checkpoint, tmp_path):
    (tmp_path / "p").mkdir()
    with pytest.raises(CheckpointError, match="a folder that does not exist"):
        prune_checkpoint(tiny_checkpoint, tmp_path / "p")
    prune_checkpoint(tiny_checkpoint, tmp_path / "p", overwrite=True)
    assert json.loads((tmp_path / "p" / "model_index.json").read_text())["pruned"]


def test_a_failure_leaves_nothing(tiny_checkpoint, tmp_path, monkeypatch):
    def full(*args, **kwargs):
        raise OSError("disk full")

    monkeypatch.setattr("cosmos_transfer.planning.pruned_checkpoint.write_packed", full)
    with pytest.raises(OSError, match="disk full"):
        prune_checkpoint(tiny_checkpoint, tmp_path / "p")
    assert not list(tmp_path.iterdir())


def test_what_means_nothing_is_refused_before_loading(tmp_path):
    with pytest.raises(ConfigError, match="a sparsity from 0 to 1"):
        prune_checkpoint("no such checkpoint", tmp_path / "p", sparsity=2.0)


def test_the_command_prints_its_price(tiny_checkpoint, tmp_path, capsys):
    assert prune_command([str(tiny_checkpoint), str(tmp_path / "p"), "--sparsity", "0.3"]) == 0
    said = capsys.readouterr()
    assert said.out.strip() == str(tmp_path / "p")
    assert "sigma 0.7" in said.err
