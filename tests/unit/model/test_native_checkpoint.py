"""Folders of NVIDIA's own files, tiny but of the published shape, through ``load_checkpoint``."""

from __future__ import annotations

import pytest
import torch
from diffusers import AutoencoderKLCosmos

from cosmos_transfer.autoencoder.cosmos import CosmosAutoencoder
from cosmos_transfer.errors import CheckpointError
from cosmos_transfer.model import checkpoint_parts
from cosmos_transfer.model.branches import SHARED_PARTS
from cosmos_transfer.model.checkpoint import checkpoint_info, load_checkpoint
from cosmos_transfer.model.native import to_native
from cosmos_transfer.model.native_keys import TRANSFER1, TRANSFER2_5
from cosmos_transfer.shapes import Strides
from tests.support import tiny

UUID = "61f5694b-0ad5-4ecd-8ad7-c8545627d125_ema_bf16.pt"


@pytest.fixture(autouse=True)
def tiny_architectures(monkeypatch):
    """The published classes at the sizes of ``tests.support.tiny``."""
    makers = {
        "Cosmos-Transfer2.5-2B": (
            tiny.transfer2_5_transformer,
            lambda: tiny.transfer2_5_branch(seed=1),
        ),
        "Cosmos-Transfer1-7B": (tiny.transfer1_transformer, lambda: tiny.transfer1_branch(seed=1)),
    }
    monkeypatch.setattr(
        checkpoint_parts, "build_base", lambda architecture: makers[architecture.name][0]()
    )
    monkeypatch.setattr(
        checkpoint_parts, "build_branch", lambda architecture: makers[architecture.name][1]()
    )
    # Tiny networks fill their positions with random numbers, which meta has none of.
    monkeypatch.setattr(tiny, "_with_positions", lambda network, seed: network)


def cosmos_vae():
    torch.manual_seed(0)
    return AutoencoderKLCosmos(
        encoder_block_out_channels=(8, 8, 8, 8),
        decode_block_out_channels=(8, 8, 8, 8),
        attention_resolutions=(4,),
        resolution=32,
        num_layers=1,
        latents_mean=[0.01 * i for i in range(48)],
        latents_std=[1.0 + 0.01 * i for i in range(48)],
    ).eval()


def folder_2_5(folder, controls=("edge", "blur")):
    base, branches = tiny.transfer2_5_transformer(seed=7), {}
    for index, name in enumerate(controls):
        branches[name] = tiny.transfer2_5_branch(seed=20 + index)
        state = to_native(
            TRANSFER2_5, base=base.state_dict(), branches=[branches[name].state_dict()]
        )
        state["net.accum_iteration"] = torch.zeros(1)
        path = folder / "general" / name / ("model.pt" if name != "edge" else UUID)
        path.parent.mkdir(parents=True)
        torch.save(state, path)
    tiny.wan_autoencoder().save_pretrained(folder / "vae")
    return base, branches


def folder_1(folder, controls=("edge", "keypoint")):
    base, branches = tiny.transfer1_transformer(seed=7), {}
    folder.mkdir()
    torch.save({"model": to_native(TRANSFER1, base=base.state_dict())}, folder / "base_model.pt")
    for index, name in enumerate(controls):
        branches[name] = tiny.transfer1_branch(seed=20 + index)
        state = to_native(TRANSFER1, branches=[branches[name].state_dict()])
        state["logvar.0.freqs"] = torch.zeros(3)
        torch.save(state, folder / f"{name}_control.pt")
    cosmos_vae().save_pretrained(folder / "vae")
    return base, branches


def same(module, state, *, but=()):
    return all(
        torch.equal(value, state[name])
        for name, value in module.state_dict().items()
        if not name.startswith(but)
    )


def test_2_5_from_its_own_files(tmp_path):
    base, branches = folder_2_5(tmp_path / "c")
    info = checkpoint_info(tmp_path / "c")
    assert (info.layout, info.controls, info.is_published) == ("native-2.5", ("edge", "vis"), True)
    assert (info.native_frames, info.sampler, info.shift, info.karras) == (93, "unipc", 5.0, None)
    assert info.guidance_scale == 4.0
    assert info.first_sigma == pytest.approx(0.9998, abs=1e-4)
    loaded = load_checkpoint(tmp_path / "c", with_text_encoder=False)
    assert same(loaded.model.transformer, base.state_dict())
    for ours, theirs in (("edge", "edge"), ("vis", "blur")):
        branch = loaded.model.branches[ours]
        copies = tuple(f"{part}." for part in SHARED_PARTS.values())
        assert same(branch, branches[theirs].state_dict(), but=copies)
        # What NVIDIA's file has once is shared, not copied.
        for base_part, part in SHARED_PARTS.items():
            if getattr(branch, part, None) is not None:
                assert getattr(branch, part) is getattr(loaded.model.transformer, base_part)


def test_any_subset_of_branches_may_be_loaded(tmp_path):
    base, _ = folder_2_5(tmp_path / "c")
    one = load_checkpoint(tmp_path / "c", with_text_encoder=False, controls=("vis",))
    assert list(one.model.branches) == ["vis"]
    none = load_checkpoint(tmp_path / "c", with_text_encoder=False, controls=())
    assert not none.model.branches
    assert same(none.model.transformer, base.state_dict())


def test_1_from_its_own_files(tmp_path):
    base, branches = folder_1(tmp_path / "c")
    info = checkpoint_info(tmp_path / "c")
    assert (info.layout, info.controls) == ("native-1", ("edge", "keypoint"))
    assert (info.native_frames, info.sampler, info.sigma_data) == (121, "res2ab", 0.5)
    assert (info.karras, info.num_inference_steps, info.strides.time) == ((80.0, 0.002), 36, 8)
    loaded = load_checkpoint(tmp_path / "c", with_text_encoder=False)
    assert same(loaded.model.transformer, base.state_dict())
    for name, branch in branches.items():
        assert same(loaded.model.branches[name], branch.state_dict())
    assert isinstance(loaded.autoencoder, CosmosAutoencoder)


def test_the_published_file_is_taken_where_there_are_two(tmp_path):
    folder_2_5(tmp_path / "c", ("edge",))
    torch.save({"net.a": torch.zeros(1)}, tmp_path / "c" / "general" / "edge" / "old.pt")
    load_checkpoint(tmp_path / "c", with_text_encoder=False)
    (tmp_path / "c" / "general" / "edge" / UUID).rename(
        tmp_path / "c" / "general" / "edge" / "mine.pt"
    )
    with pytest.raises(CheckpointError, match=r"one \.pt file in edge/, got mine\.pt, old\.pt"):
        checkpoint_info(tmp_path / "c")


def test_a_missing_autoencoder_is_named(tmp_path):
    folder_2_5(tmp_path / "c", ("edge",))
    (tmp_path / "c" / "vae" / "config.json").unlink()
    with pytest.raises(CheckpointError, match="vae: expected AutoencoderKLWan"):
        load_checkpoint(tmp_path / "c", with_text_encoder=False)


def test_a_missing_text_encoder_is_named(tmp_path):
    for make, name in ((folder_2_5, "a"), (folder_1, "b")):
        make(tmp_path / name, ("edge",))
        with pytest.raises(CheckpointError, match="cosmos-transfer embed"):
            load_checkpoint(tmp_path / name)


# ------------------------------------------------------------------- Transfer1's autoencoder


def test_the_cosmos_autoencoder_normalises_by_channel_and_frame():
    network = cosmos_vae()
    autoencoder = CosmosAutoencoder(network)
    assert (autoencoder.strides, autoencoder.latent_channels) == (Strides(time=8, space=8), 16)
    video = tiny.randn(1, 3, 17, 32, 32, seed=1).clamp(-1, 1)
    latents = autoencoder.encode(video)
    assert latents.shape == (1, 16, 3, 4, 4)
    raw = network.encode(video).latent_dist.mode()
    mean = torch.tensor(network.config.latents_mean).reshape(1, 16, 3, 1, 1)
    std = torch.tensor(network.config.latents_std).reshape(1, 16, 3, 1, 1)
    torch.testing.assert_close(latents, 0.5 * (raw - mean) / std)
    want = network.decode(raw).sample.clamp(-1, 1)
    torch.testing.assert_close(autoencoder.decode(latents), want, rtol=1e-4, atol=1e-4)


def test_more_frames_than_its_statistics_are_refused():
    with pytest.raises(Exception, match="at most 3 latent frames"):
        CosmosAutoencoder(cosmos_vae()).encode(torch.zeros(1, 3, 33, 32, 32))


def test_own_files_become_diffusers_layout_as_the_document_says(tmp_path):
    folder_2_5(tmp_path / "c")
    loaded = load_checkpoint(tmp_path / "c", with_text_encoder=False)
    loaded.model.transformer.save_pretrained(tmp_path / "d" / "transformer")
    for name, branch in loaded.model.branches.items():
        branch.save_pretrained(tmp_path / "d" / f"controlnet_{name}")
    tiny.wan_autoencoder().save_pretrained(tmp_path / "d" / "vae")
    again = load_checkpoint(tmp_path / "d", with_text_encoder=False)
    assert again.info.controls == loaded.info.controls
    assert same(again.model, loaded.model.state_dict())
