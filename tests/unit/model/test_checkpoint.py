from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
from huggingface_hub.errors import LocalEntryNotFoundError
from safetensors.torch import load_file, save_file

from cosmos_transfer.autoencoder.causal_video import CausalVideoAutoencoder, CausalVideoConfig
from cosmos_transfer.autoencoder.wan import WanAutoencoder
from cosmos_transfer.errors import CheckpointError
from cosmos_transfer.model import checkpoint as module
from cosmos_transfer.model import checkpoint_parts
from cosmos_transfer.model.branches import new_branch
from cosmos_transfer.model.checkpoint import (
    CheckpointSettings,
    checkpoint_info,
    load_checkpoint,
    save_embedded,
)
from cosmos_transfer.model.diffusers_compat import CosmosControlNetModel, CosmosTransformer3DModel
from cosmos_transfer.shapes import Size, Strides
from tests.support import tiny
from tests.support.numerics import assert_agrees
from tests.support.tiny_words import tiny_text_encoder

SETTINGS = CheckpointSettings(
    id="tiny-1",
    native_size=Size(64, 96),
    native_frames=9,
    timestep_scale=500.0,
    clean_sigma=0.05,
    num_inference_steps=7,
    guidance_scale=1.5,
    shift=2.0,
    sampler="euler",
)
TRANSFORMER_FILE = "transformer/diffusion_pytorch_model.safetensors"
SEG_FILE = "controlnet/seg/diffusion_pytorch_model.safetensors"


def parts(controls=("seg", "edge")):
    model = tiny.embedded_model(controls)
    torch.manual_seed(3)
    return (
        model.transformer,
        dict(model.branches),
        CausalVideoAutoencoder(CausalVideoConfig(width=8, pixel_width=2)),
        tiny_text_encoder(width=tiny.TEXT_WIDTH),
    )


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    return save_embedded(tmp_path_factory.mktemp("checkpoints") / "tiny", *parts(), SETTINGS)


@pytest.fixture
def copy(written, tmp_path):
    return shutil.copytree(written, tmp_path / "copy")


def rewrite_weights(folder, name, change):
    """Change a part's weights and record the new hash, as a careless edit would."""
    weights = load_file(folder / name)
    change(weights)
    save_file(weights, folder / name)
    index = json.loads((folder / "model_index.json").read_text())
    index["sha256"][name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    (folder / "model_index.json").write_text(json.dumps(index))


# ------------------------------------------------------------------------------ what it says


def test_info_is_what_was_saved(written):
    info = checkpoint_info(written)
    assert (info.id, info.layout, info.location) == ("tiny-1", "embedded", str(written))
    assert (info.native_size, info.native_frames) == (Size(64, 96), 9)
    assert (info.strides, info.patch) == (Strides(time=4, space=4), (1, 2, 2))
    assert (info.latent_channels, info.spatial_multiple) == (16, 8)
    assert (info.timestep_scale, info.clean_sigma) == (500.0, 0.05)
    assert (info.num_inference_steps, info.guidance_scale) == (7, 1.5)
    assert (info.shift, info.karras, info.sampler) == (2.0, None, "euler")
    assert info.controls == ("edge", "seg")


def test_every_file_is_hashed(written):
    recorded = checkpoint_info(written).sha256
    files = {p.relative_to(written).as_posix() for p in written.rglob("*") if p.is_file()}
    assert recorded.keys() == files - {"model_index.json"}
    for name, digest in recorded.items():
        assert digest == hashlib.sha256((written / name).read_bytes()).hexdigest()


def test_describing_a_checkpoint_loads_no_torch(written):
    program = (
        "import sys; from cosmos_transfer.model.checkpoint import checkpoint_info; "
        f"print(checkpoint_info({str(written)!r}).id); "
        "print(sorted({'torch', 'diffusers', 'numpy'} & sys.modules.keys()))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stdout.split("\n")[:2] == ["tiny-1", "[]"]


def test_weights_are_fp16_and_nothing_names_this_machine(written):
    for path in written.rglob("*.safetensors"):
        kinds = {value.dtype for value in load_file(path).values()}
        assert kinds <= {torch.float16, torch.int64, torch.int8, torch.uint8}, path
    for path in written.rglob("*.json"):
        assert str(written.parent) not in path.read_text()


# -------------------------------------------------------------------------------- round trip


def test_a_checkpoint_comes_back_to_fp16_rounding(written):
    transformer, branches, autoencoder, text_encoder = parts()
    loaded = load_checkpoint(written)
    pairs = [
        (loaded.model.transformer, transformer),
        (loaded.model.branches["edge"], branches["edge"]),
        (loaded.model.branches["seg"], branches["seg"]),
        (loaded.autoencoder, autoencoder),
        (loaded.text_encoder, text_encoder),
    ]
    for got, saved in pairs:
        state = got.state_dict()
        for key, value in saved.state_dict().items():
            assert torch.equal(state[key], value.half().to(value.dtype)), key
        assert not got.training
        assert not any(parameter.requires_grad for parameter in got.parameters())
    assert list(loaded.model.branches) == ["edge", "seg"]
    assert loaded.model.timestep_scale == 500.0
    assert loaded.model.clean_sigma == 0.05


def test_what_branches_share_with_the_base_is_stored_once(tmp_path):
    transformer, _, autoencoder, text_encoder = parts()
    trained = new_branch(transformer)
    with torch.no_grad():
        trained.control_blocks[0].after_proj.weight.normal_()
        trained.time_embed.t_embedder.linear_1.weight.add_(0.5)
    branches = {"edge": new_branch(transformer), "vis": trained}
    folder = save_embedded(
        tmp_path / "x", transformer, branches, autoencoder, text_encoder, SETTINGS
    )
    for name, shared in (
        ("edge", {"patch_embed_base", "time_embed"}),
        ("vis", {"patch_embed_base"}),
    ):
        keys = load_file(folder / f"controlnet/{name}/diffusion_pytorch_model.safetensors").keys()
        stored = {key.split(".")[0] for key in keys}
        assert {"patch_embed_base", "time_embed"} - stored == shared

    loaded = load_checkpoint(folder).model
    assert loaded.branches["edge"].time_embed is loaded.transformer.time_embed
    assert loaded.branches["vis"].time_embed is not loaded.transformer.time_embed
    for name, branch in branches.items():
        state = loaded.branches[name].state_dict()
        assert all(torch.equal(state[k], v.half().float()) for k, v in branch.state_dict().items())


def test_only_the_controls_asked_for_are_loaded(written):
    loaded = load_checkpoint(written, controls=["seg"], with_text_encoder=False)
    assert list(loaded.model.branches) == ["seg"]
    assert loaded.text_encoder is None
    with pytest.raises(CheckpointError, match="controls among edge, seg, got depth"):
        load_checkpoint(written, controls=["depth"])


def test_the_networks_may_compute_in_half_precision(written):
    loaded = load_checkpoint(written, dtype=torch.bfloat16)
    assert loaded.model.dtype == torch.bfloat16
    assert loaded.model.branches["edge"].dtype == torch.bfloat16
    assert next(loaded.autoencoder.parameters()).dtype == torch.float32


def test_overwriting_must_be_asked_for_and_keeps_the_card(copy):
    (copy / "README.md").write_text("card")
    with pytest.raises(CheckpointError, match="overwrite=True"):
        save_embedded(copy, *parts(), SETTINGS)
    save_embedded(copy, *parts(("vis",)), SETTINGS, overwrite=True)
    assert checkpoint_info(copy).controls == ("vis",)
    assert not (copy / "controlnet/edge").exists()
    assert (copy / "README.md").read_text() == "card"
    assert [path.name for path in copy.parent.iterdir()] == ["copy"]


def test_overwriting_keeps_the_predictors_and_their_own_hashes(copy):
    (copy / "predictors/depth").mkdir(parents=True)
    (copy / "predictors/depth/config.json").write_text("{}")
    (copy / "predictors/depth/model.safetensors").write_bytes(b"weights")
    save_embedded(copy, *parts(("vis",)), SETTINGS, overwrite=True)
    assert (copy / "predictors/depth/config.json").read_text() == "{}"
    assert (copy / "predictors/depth/model.safetensors").read_bytes() == b"weights"
    assert not any(name.startswith("predictors") for name in checkpoint_info(copy).sha256)
    load_checkpoint(copy)


def test_weights_that_fp16_cannot_hold_are_not_written(tmp_path):
    transformer, *rest = parts()
    with torch.no_grad():
        transformer.proj_out.weight[0, 0] = 1e6
    with pytest.raises(CheckpointError, match=r"infinity or NaN in proj_out\.weight"):
        save_embedded(tmp_path / "x", transformer, *rest, SETTINGS)
    assert list(tmp_path.iterdir()) == []


def test_where_a_network_was_loaded_from_is_not_written(written, tmp_path):
    transformer = CosmosTransformer3DModel.from_pretrained(written / "transformer")
    assert str(written) in transformer.to_json_string()
    save_embedded(tmp_path / "x", transformer, {}, *parts()[2:], SETTINGS)
    assert str(written) not in (tmp_path / "x/transformer/config.json").read_text()


@dataclass(frozen=True)
class PlainSettings:
    width: int = 3


class PlainNetwork(torch.nn.Module):
    """A base that is not diffusers', with the entries that ours reads."""

    def __init__(self, settings):
        super().__init__()
        self.settings = settings
        self.weight = torch.nn.Parameter(torch.arange(float(settings.width)))
        self.config = SimpleNamespace(in_channels=17, out_channels=16, patch_size=(1, 1, 1))

    @classmethod
    def from_config(cls, config):
        return cls(PlainSettings(**config))

    @property
    def dtype(self):
        return self.weight.dtype


def test_another_network_of_the_table_comes_back(tmp_path, monkeypatch):
    monkeypatch.setitem(checkpoint_parts.NETWORKS, "PlainNetwork", __name__)
    monkeypatch.setitem(sys.modules, __name__, SimpleNamespace(PlainNetwork=PlainNetwork))
    save_embedded(tmp_path / "x", PlainNetwork(PlainSettings(5)), {}, *parts()[2:], SETTINGS)
    loaded = load_checkpoint(tmp_path / "x")
    assert isinstance(loaded.model.transformer, PlainNetwork)
    assert loaded.model.transformer.weight.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert (loaded.info.patch, loaded.info.spatial_multiple) == ((1, 1, 1), 4)


# ------------------------------------------------------------------------- what is refused


def test_a_network_outside_the_table_is_never_imported(copy):
    path = copy / "transformer/config.json"
    path.write_text(path.read_text().replace("CosmosTransformer3DModel", "os.system"))
    with pytest.raises(CheckpointError, match=r"a _class_name among Cosmos.*, got os\.system"):
        load_checkpoint(copy)


def test_every_leftover_key_is_listed(copy):
    def change(weights):
        del weights["norm_out.linear_1.weight"]
        del weights["time_embed.norm.weight"]
        weights["surprise.weight"] = torch.zeros(2)
        weights["another"] = torch.zeros(2)
        weights["proj_out.weight"] = torch.zeros(3, 5)

    rewrite_weights(copy, TRANSFORMER_FILE, change)
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(copy)
    message = str(caught.value)
    assert "transformer" in message
    assert "2 parameters without a key in the file: norm_out.linear_1.weight, time_embed" in message
    assert "2 keys in the file without a parameter: another, surprise.weight" in message
    assert "1 shapes that differ: proj_out.weight (3, 5) for (64, 64)" in message


@pytest.mark.parametrize(
    "part", ["controlnet/seg/diffusion_pytorch_", "autoencoder/", "text_encoder/"]
)
def test_every_part_is_loaded_strictly(copy, part):
    rewrite_weights(
        copy, f"{part}model.safetensors", lambda weights: weights.update(x=torch.zeros(1))
    )
    with pytest.raises(CheckpointError, match="1 keys in the file without a parameter: x"):
        load_checkpoint(copy)


def test_weights_changed_after_saving_are_refused(copy):
    shutil.copy(copy / "controlnet/edge/diffusion_pytorch_model.safetensors", copy / SEG_FILE)
    with pytest.raises(CheckpointError, match=f"expected {SEG_FILE} with sha256 [0-9a-f]+, got"):
        load_checkpoint(copy)


def test_a_file_that_is_not_safetensors_is_refused(copy):
    (copy / SEG_FILE).write_bytes(b"not tensors")
    index = json.loads((copy / "model_index.json").read_text())
    index["sha256"][SEG_FILE] = hashlib.sha256(b"not tensors").hexdigest()
    (copy / "model_index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match="safetensors"):
        load_checkpoint(copy)


def test_a_missing_part_is_named(copy):
    shutil.rmtree(copy / "autoencoder")
    with pytest.raises(CheckpointError, match=r"a file autoencoder/config\.json, got none"):
        load_checkpoint(copy)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", r"JSON in model_index\.json"),
        ("[1]", r"an object in model_index\.json, got list"),
        ('{"id": "x"}', r"a complete model_index\.json, got KeyError: 'defaults'"),
    ],
    ids=["broken", "list", "incomplete"],
)
def test_a_damaged_index_is_one_line(copy, text, message):
    (copy / "model_index.json").write_text(text)
    with pytest.raises(CheckpointError, match=message) as caught:
        checkpoint_info(copy)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["no/such/folder", "nowhere", "../x", ""])
def test_a_name_that_means_nothing_is_refused(name):
    with pytest.raises(
        CheckpointError, match="expected 'embedded', 'embedded-fast', a folder, or a hub id"
    ):
        checkpoint_info(name)


def test_a_folder_without_a_checkpoint_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match=r"a file transformer/config\.json, got none"):
        checkpoint_info(tmp_path)


def test_the_embedded_name_is_a_folder_of_the_package(written, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "files", lambda package: tmp_path)
    with pytest.raises(CheckpointError, match="installed package"):
        checkpoint_info("embedded")
    shutil.copytree(written, tmp_path / "checkpoints" / "embedded")
    assert checkpoint_info("embedded").id == "tiny-1"


# ---------------------------------------------------------------------- diffusers' layout


@pytest.fixture(scope="module")
def diffusers_folder(tmp_path_factory):
    """What a download of the published checkpoint looks like, tiny."""
    folder = tmp_path_factory.mktemp("cosmos") / "transfer"
    model = tiny.transfer2_5_model(("edge", "vis"))
    model.branches["edge"].time_embed.load_state_dict(model.transformer.time_embed.state_dict())
    model.transformer.save_pretrained(folder / "transformer")
    tiny.wan_autoencoder().save_pretrained(folder / "vae")
    model.branches["edge"].save_pretrained(folder / "controlnet_edge")
    model.branches["vis"].save_pretrained(folder / "controlnet_blur")
    (folder / "model_index.json").write_text('{"_class_name": "Cosmos2_5_TransferPipeline"}')
    return folder


def test_info_of_a_diffusers_folder(diffusers_folder):
    info = checkpoint_info(diffusers_folder)
    assert (info.id, info.layout) == ("transfer", "diffusers")
    assert (info.strides, info.patch) == (Strides(time=4, space=8), (1, 2, 2))
    assert (info.native_size, info.native_frames) == (Size(704, 1280), 93)
    assert info.controls == ("edge", "vis")
    assert (info.timestep_scale, info.guidance_scale, info.num_inference_steps) == (1.0, 4.0, 36)
    assert (info.karras, info.sampler) == ((200.0, 0.01), "unipc")


def test_a_scheduler_config_decides_the_noise_schedule(diffusers_folder, tmp_path):
    folder = shutil.copytree(diffusers_folder, tmp_path / "x")
    (folder / "scheduler").mkdir()
    (folder / "scheduler/scheduler_config.json").write_text(
        '{"_class_name": "FlowMatchEulerDiscreteScheduler", "shift": 5.0}'
    )
    info = checkpoint_info(folder)
    assert (info.karras, info.shift, info.sampler) == (None, 5.0, "euler")


def test_a_diffusers_folder_gives_the_same_velocity(diffusers_folder):
    loaded = load_checkpoint(diffusers_folder, with_text_encoder=False)
    reference = tiny.transfer2_5_model(("edge", "vis"))
    reference.branches["edge"].time_embed.load_state_dict(
        reference.transformer.time_embed.state_dict()
    )
    assert isinstance(loaded.autoencoder, WanAutoencoder)
    arguments = (
        tiny.randn(1, 16, 3, 8, 8, seed=1),
        torch.tensor([0.7]),
        tiny.randn(1, 7, tiny.TEXT_CHANNELS_2_5, seed=2),
        {name: tiny.randn(1, 16, 3, 8, 8, seed=3) for name in ("edge", "vis")},
        {name: torch.full((1, 48), 0.5) for name in ("edge", "vis")},
    )
    with torch.no_grad():
        assert_agrees(loaded.model(*arguments), reference(*arguments), rms=1e-6)
    # The copies that are identical are kept once, the others are left alone.
    assert loaded.model.branches["edge"].time_embed is loaded.model.transformer.time_embed
    assert loaded.model.branches["vis"].time_embed is not loaded.model.transformer.time_embed


def test_leftover_keys_of_a_diffusers_folder_are_listed(diffusers_folder, tmp_path):
    folder = shutil.copytree(diffusers_folder, tmp_path / "x")
    path = folder / TRANSFORMER_FILE
    weights = load_file(path)
    weights["surprise.weight"] = weights.pop("norm_out.linear_1.weight")
    save_file(weights, path, metadata={"format": "pt"})
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(folder, with_text_encoder=False)
    assert "1 parameters without a key in the file: norm_out.linear_1.weight" in str(caught.value)
    assert "1 keys in the file without a parameter: surprise.weight" in str(caught.value)


def test_a_control_net_without_a_name_is_refused(diffusers_folder, tmp_path):
    folder = shutil.copytree(diffusers_folder, tmp_path / "x")
    (folder / "controlnet_edge").rename(folder / "controlnet")
    with pytest.raises(CheckpointError, match="Rename it to controlnet_edge"):
        checkpoint_info(folder)


def test_a_missing_text_encoder_says_what_to_do(diffusers_folder):
    with pytest.raises(CheckpointError, match="encode the prompts elsewhere") as caught:
        load_checkpoint(diffusers_folder)
    assert "\n" not in str(caught.value)


def test_pickled_weights_are_not_read(diffusers_folder, tmp_path):
    folder = shutil.copytree(diffusers_folder, tmp_path / "x")
    weights = load_file(folder / TRANSFORMER_FILE)
    (folder / TRANSFORMER_FILE).unlink()
    torch.save(weights, folder / "transformer/diffusion_pytorch_model.bin")
    with pytest.raises(CheckpointError, match="safetensors"):
        load_checkpoint(folder, with_text_encoder=False)


# ------------------------------------------------------------------------------ hub ids


def test_a_hub_checkpoint_not_downloaded_is_one_line_and_asks_no_hub():
    for call in (checkpoint_info, load_checkpoint):
        with pytest.raises(CheckpointError, match="hf auth login") as caught:
            call("nobody-owns-this/no-such-model", local_files_only=True)
        assert "\n" not in str(caught.value)


def test_published_branches_reach_from_pretrained(diffusers_folder, monkeypatch):
    # The hub is not reached: configs come from a folder, and the networks' loading is recorded.
    hub_id = "nvidia/Cosmos-Transfer2.5-2B"
    asked = []

    def download(repo_id, name, *, revision, local_files_only):
        assert (repo_id, revision, local_files_only) == (hub_id, "diffusers/general", True)
        if not (diffusers_folder / name).exists():
            raise LocalEntryNotFoundError(name)
        return str(diffusers_folder / name)

    def recorder(network_class, original):
        def from_pretrained(location, **options):
            asked.append((network_class.__name__, location, options))
            subfolder = options.get("subfolder", "controlnet_edge")
            return original(
                diffusers_folder / subfolder, use_safetensors=True, output_loading_info=True
            )

        return from_pretrained

    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
    for network_class in (CosmosTransformer3DModel, CosmosControlNetModel):
        monkeypatch.setattr(
            network_class, "from_pretrained", recorder(network_class, network_class.from_pretrained)
        )
    monkeypatch.setattr(
        "cosmos_transfer.model.diffusers_compat.AutoencoderKLWan.from_pretrained",
        lambda location, **options: (tiny.wan_autoencoder(), NO_LEFTOVERS),
    )
    loaded = load_checkpoint(
        hub_id, controls=["vis", "edge"], with_text_encoder=False, local_files_only=True
    )
    assert list(loaded.model.branches) == ["edge", "vis"]
    assert loaded.info.controls == ("edge", "depth", "seg", "vis")
    places = [(name, o.get("subfolder"), o.get("revision")) for name, _, o in asked]
    assert places == [
        ("CosmosTransformer3DModel", "transformer", "diffusers/general"),
        ("CosmosControlNetModel", None, "diffusers/controlnet/general/edge"),
        ("CosmosControlNetModel", None, "diffusers/controlnet/general/blur"),
    ]
    for _, location, options in asked:
        assert location == hub_id
        assert options["local_files_only"] is True
        assert options["use_safetensors"] is True


NO_LEFTOVERS = {"missing_keys": [], "unexpected_keys": [], "mismatched_keys": []}


def test_messages_name_the_place_first():
    with pytest.raises(CheckpointError) as caught:
        checkpoint_info("nowhere")
    assert re.match(r"checkpoint: expected .*, got .*\. ", str(caught.value))
