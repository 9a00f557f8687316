from __future__ import annotations

import pytest
import torch

from cosmos_transfer.errors import ConfigError
from cosmos_transfer.model.controlled import ControlledModel
from cosmos_transfer.model.speed import speed_up
from tests.support import tiny


def test_every_block_is_compiled_and_nothing_else(monkeypatch):
    model = tiny.transfer2_5_model(("edge",))
    compiled = []
    monkeypatch.setattr(
        torch.nn.Module, "compile", lambda self, **options: compiled.append((self, options))
    )
    blocks = [*model.transformer.transformer_blocks, *model.branches["edge"].control_blocks]
    assert speed_up(model, compile="reduce-overhead") == len(blocks)
    assert [block for block, _ in compiled] == blocks
    assert {options["mode"] for _, options in compiled} == {"reduce-overhead"}
    assert speed_up(model) == 0


def test_a_mode_or_a_kernel_that_is_not_there_is_refused():
    model = tiny.transfer2_5_model(("edge",))
    with pytest.raises(ConfigError, match=r"model\.compile: expected one of"):
        speed_up(model, compile="fast")
    with pytest.raises(ConfigError, match=r"model\.attention: .*'no-such'"):
        speed_up(model, attention="no-such")


def test_a_network_without_blocks_is_not_compiled(tiny_checkpoint):
    model = ControlledModel(tiny.embedded_transformer(), {})
    model.transformer.transformer_blocks = torch.nn.ModuleList()
    with pytest.raises(ConfigError, match="a network of transformer blocks"):
        speed_up(model, compile="default")
