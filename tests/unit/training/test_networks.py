from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from cosmos_transfer.errors import CheckpointError
from cosmos_transfer.model.checkpoint import save_embedded
from cosmos_transfer.training.data import CONTROL_NAMES
from cosmos_transfer.training.export import SETTINGS
from cosmos_transfer.training.networks import (
    load_networks,
    new_networks,
    new_text_encoder,
    packaged_text_encoder,
)
from cosmos_transfer.training.scenes import FAMILIES, describe_look, draw_look
from tests.support.embedded import tiny_networks
from tests.support.tiny_checkpoint import write_tiny_checkpoint


def test_every_prompt_of_the_scenes_is_known_whole() -> None:
    encoder = packaged_text_encoder()
    left_out = {}
    for seed in range(500):
        rng = np.random.default_rng(seed)
        prompt = describe_look(draw_look(rng, FAMILIES[seed % 2]), rng)
        if words := encoder.unknown_words(prompt):
            left_out[prompt] = words
    assert left_out == {}


def test_the_shipped_parts_fit_together() -> None:
    networks = new_networks()
    assert tuple(networks.model.branches) == CONTROL_NAMES
    assert networks.autoencoder.latent_channels == networks.model.latent_channels
    assert networks.text_encoder.settings.width == networks.model.transformer.settings.text_width
    assert sum(parameter.numel() for parameter in networks.parameters()) == 5_986_604


def test_a_new_text_encoder_knows_the_words_of_the_packaged_one_and_not_what_they_say() -> None:
    packaged, new = packaged_text_encoder(), new_text_encoder(None)
    prompt = "a snowy street at night"
    assert new.tokenize([prompt]).tolist() == packaged.tokenize([prompt]).tolist()
    assert torch.equal(new.table, packaged.table)
    assert not torch.equal(new.queries, packaged.queries)


def test_a_checkpoint_comes_back_ready_to_be_trained(tmp_path: Path) -> None:
    networks = tiny_networks(seed=1)
    save_embedded(
        tmp_path / "checkpoint",
        networks.model.transformer,
        dict(networks.model.branches.items()),
        networks.autoencoder,
        networks.text_encoder,
        SETTINGS,
    )
    loaded = load_networks(tmp_path / "checkpoint")
    assert loaded.training
    expected = networks.state_dict()
    assert loaded.state_dict().keys() == expected.keys()
    for name, value in loaded.state_dict().items():
        kept = expected[name]
        assert value.dtype == kept.dtype, name
        assert torch.equal(value, kept.half().float() if kept.is_floating_point() else kept), name


def test_a_checkpoint_of_other_networks_cannot_be_trained_further(tmp_path: Path) -> None:
    folder = write_tiny_checkpoint(tmp_path / "cosmos")
    with pytest.raises(CheckpointError, match="LatentUNet"):
        load_networks(folder)
