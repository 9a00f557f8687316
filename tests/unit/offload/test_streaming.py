from __future__ import annotations

import pytest
import torch

from cosmos_transfer.errors import CheckpointError
from cosmos_transfer.offload.files import PackedFile, write_packed
from cosmos_transfer.offload.prune import prune
from cosmos_transfer.offload.streaming import StreamedBlocks
from tests.support import tiny

GRID = (2, 4, 4)


def inputs(seed):
    return {
        "hidden_states": tiny.randn(1, 16, *GRID, seed=seed),
        "timestep": torch.tensor([0.5]),
        "encoder_hidden_states": (
            tiny.randn(1, 7, tiny.TEXT_CHANNELS_2_5, seed=2),
            torch.zeros(1, 5, 24),
        ),
        "condition_mask": torch.zeros(1, 1, *GRID),
        "padding_mask": torch.zeros(1, 1, 4, 4),
        "return_dict": False,
    }


@pytest.fixture
def network(tmp_path):
    network = tiny.transfer2_5_transformer(num_layers=4)
    prune(network, sparsity=0.5)
    write_packed(tmp_path / "w.safetensors", network.state_dict())
    return network


def stream(network, folder, **options):
    prefixes = [f"transformer_blocks.{i}." for i in range(len(network.transformer_blocks))]
    file = PackedFile(folder / "w.safetensors")
    return StreamedBlocks(network.transformer_blocks, file, prefixes, **options)


@torch.no_grad()
def test_streamed_blocks_compute_what_resident_ones_do(network, tmp_path):
    want = [network(**inputs(seed))[0] for seed in range(3)]
    streamed = stream(network, tmp_path)
    for seed, expected in enumerate(want):
        assert torch.equal(network(**inputs(seed))[0], expected)
    streamed.remove()
    assert torch.equal(network(**inputs(0))[0], want[0])
    assert all(parameter.numel() for parameter in network.parameters())


@torch.no_grad()
def test_two_blocks_are_in_memory_and_memory_is_used_again(network, tmp_path):
    block_size = sum(p.numel() for p in network.transformer_blocks[0].parameters())
    streamed = stream(network, tmp_path)
    assert not any(p.numel() for p in network.transformer_blocks.parameters())
    for seed in range(3):
        network(**inputs(seed))
    streamed._coming.popitem()[1].result()
    held = sum(t.numel() for free in streamed._free.values() for t in free)
    assert held <= 2 * block_size
    streamed.remove()


@torch.no_grad()
def test_blocks_may_compute_in_another_dtype(network, tmp_path):
    network.to(torch.bfloat16)
    streamed = stream(network, tmp_path, dtype=torch.bfloat16)
    values = inputs(0)
    values = {
        key: value.bfloat16() if torch.is_tensor(value) and key != "timestep" else value
        for key, value in values.items()
    }
    values["encoder_hidden_states"] = tuple(t.bfloat16() for t in values["encoder_hidden_states"])
    got = network(**values)[0]
    streamed.remove()
    assert torch.equal(got, network(**values)[0])


def test_a_file_without_the_blocks_is_refused(network, tmp_path):
    with pytest.raises(CheckpointError, match=r"none called elsewhere\.0"):
        StreamedBlocks(
            [network.transformer_blocks[0]],
            PackedFile(tmp_path / "w.safetensors"),
            ["elsewhere.0."],
        )
