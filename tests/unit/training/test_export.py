from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from cosmos_transfer.errors import CheckpointError
from cosmos_transfer.model.checkpoint import checkpoint_info, load_checkpoint
from cosmos_transfer.pipeline import TransferPipeline
from cosmos_transfer.shapes import Size
from cosmos_transfer.training.autoencoder import fit_encoder, train_decoder
from cosmos_transfer.training.batches import ClipPool
from cosmos_transfer.training.export import FAST_SETTINGS, SETTINGS, export_run
from cosmos_transfer.training.loop import Trainer, TrainingConfig
from cosmos_transfer.training.networks import load_networks
from tests.support.embedded import tiny_networks
from tests.support.shards import write_shards


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> ClipPool:
    pool = ClipPool(write_shards(tmp_path_factory.mktemp("shards")))
    pool.refresh()
    return pool


@pytest.fixture
def trained(pool: ClipPool, tmp_path: Path) -> Trainer:
    networks = tiny_networks()
    fit_encoder(networks.autoencoder, pool)
    trainer = Trainer(
        networks, pool, TrainingConfig(data_dir=pool.folder, run_dir=tmp_path / "run", batch_size=2)
    )
    trainer.optimizer.set_rate(1.0)
    for _ in range(3):
        trainer.step()
    trainer.save()
    return trainer


def test_a_run_becomes_a_checkpoint_that_makes_clips(trained: Trainer, tmp_path: Path) -> None:
    folder = export_run(tmp_path / "run", tmp_path / "checkpoint", networks=tiny_networks())
    info = checkpoint_info(folder)
    assert (info.id, info.native_size, info.native_frames) == ("embedded", Size(96, 160), 17)
    assert info.controls == ("edge", "depth", "seg", "vis")
    checkpoint = load_checkpoint(folder)
    parts = {
        "autoencoder": checkpoint.autoencoder,
        "text_encoder": checkpoint.text_encoder,
        "model": checkpoint.model,
    }
    for part, module in parts.items():
        for name, value in module.state_dict().items():
            averaged = trained.average.weights[f"{part}.{name}"]
            assert torch.equal(value, averaged.half().float()), name
    pipeline = TransferPipeline.from_pretrained(folder, device="cpu", show_progress=False)
    frames = np.random.default_rng(0).integers(0, 256, (5, 32, 48, 3), dtype=np.uint8)
    made = pipeline(video=frames, prompt="a snowy street", controls={"vis": 1.0})
    assert made.frames.shape == frames.shape
    assert made.record.request["num_inference_steps"] == SETTINGS.num_inference_steps


def test_a_decoder_trained_apart_goes_into_the_checkpoint(
    trained: Trainer, pool: ClipPool, tmp_path: Path
) -> None:
    networks = tiny_networks()
    networks.load_state_dict(trained.networks.state_dict())
    path = train_decoder(networks, pool, run_dir=tmp_path / "decoder", duration_s=0.2)
    folder = export_run(
        tmp_path / "run", tmp_path / "one", decoder_path=path, networks=tiny_networks()
    )
    # In the run's own folder it is found without being named.
    path.rename(tmp_path / "run" / path.name)
    other = export_run(tmp_path / "run", tmp_path / "two", networks=tiny_networks())
    for each in (folder, other):
        loaded = load_checkpoint(each).autoencoder
        for name, value in networks.autoencoder.state_dict().items():
            assert torch.equal(loaded.state_dict()[name], value.half().float()), name


def test_a_decoder_of_another_encoder_stays_out(
    trained: Trainer, pool: ClipPool, tmp_path: Path
) -> None:
    path = train_decoder(tiny_networks(seed=1), pool, run_dir=tmp_path / "decoder", duration_s=0.0)
    with pytest.raises(CheckpointError, match="another encoder"):
        export_run(tmp_path / "run", tmp_path / "out", decoder_path=path, networks=tiny_networks())
    assert not (tmp_path / "out").exists()


def test_without_a_run_there_is_nothing_to_export(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="Train first"):
        export_run(tmp_path / "nowhere", tmp_path / "out", networks=tiny_networks())
    assert not (tmp_path / "out").exists()


def test_a_checkpoint_that_is_there_is_replaced_only_when_asked(
    trained: Trainer, tmp_path: Path
) -> None:
    folder = export_run(tmp_path / "run", tmp_path / "out", networks=tiny_networks())
    with pytest.raises(CheckpointError, match="overwrite"):
        export_run(tmp_path / "run", folder, networks=tiny_networks())
    trained.step()
    trained.save()
    before = checkpoint_info(folder).sha256
    export_run(tmp_path / "run", folder, networks=tiny_networks(), overwrite=True)
    assert checkpoint_info(folder).sha256 != before


def test_a_distilled_run_borrows_what_it_left_alone(trained: Trainer, tmp_path: Path) -> None:
    own = export_run(
        tmp_path / "run", tmp_path / "own", settings=FAST_SETTINGS, networks=tiny_networks()
    )
    info = checkpoint_info(own)
    assert (info.id, info.guidance_scale) == ("embedded-fast", 1.0)
    assert 2 <= info.num_inference_steps <= 4
    assert (own / "autoencoder").is_dir()  # they are not the packaged ones

    student = load_networks("embedded")
    Trainer(
        student, trained.pool, TrainingConfig(data_dir=tmp_path, run_dir=tmp_path / "student")
    ).save()
    folder = export_run(
        tmp_path / "student",
        tmp_path / "fast",
        settings=FAST_SETTINGS,
        networks=load_networks("embedded"),
    )
    assert not (folder / "autoencoder").exists()
    assert not (folder / "text_encoder").exists()
    lent, borrowed = load_checkpoint("embedded"), load_checkpoint(folder)
    for name, value in lent.autoencoder.state_dict().items():
        assert torch.equal(value, borrowed.autoencoder.state_dict()[name]), name

    index = json.loads((folder / "model_index.json").read_text())
    changed = index | {"sha256": index["sha256"] | {"autoencoder/model.safetensors": "0" * 64}}
    (folder / "model_index.json").write_text(json.dumps(changed))
    with pytest.raises(CheckpointError, match=r"autoencoder/model\.safetensors with sha256 000"):
        load_checkpoint(folder)
    (folder / "model_index.json").write_text(json.dumps(index | {"lender": "../../etc"}))
    with pytest.raises(CheckpointError, match="a lender among embedded, embedded-fast"):
        load_checkpoint(folder)
