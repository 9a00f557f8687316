from __future__ import annotations

import pytest
import torch

from cosmos_transfer.errors import CheckpointError
from cosmos_transfer.model.branches import controlled_blocks, new_branch, share_parts
from cosmos_transfer.model.controlled import ControlledModel
from tests.support import tiny
from tests.support.numerics import relative_rms

LATENTS = tiny.randn(1, 16, 3, 8, 8, seed=1)
CONTROL = tiny.randn(1, 16, 3, 8, 8, seed=2)
ONES = {"edge": torch.ones(1, 48)}


def bases():
    return [
        (tiny.embedded_transformer(), tiny.randn(1, 7, tiny.TEXT_WIDTH, seed=3)),
        (tiny.transfer2_5_transformer(), tiny.randn(1, 7, tiny.TEXT_CHANNELS_2_5, seed=3)),
    ]


@pytest.mark.parametrize(("base", "text"), bases(), ids=["embedded", "transfer2.5"])
@pytest.mark.parametrize("input_gain", [0.0, 1.0])
def test_a_new_branch_says_nothing_yet(base, text, input_gain):
    branch = new_branch(base, input_gain=input_gain)
    with_branch = ControlledModel(base, {"edge": branch}).conditioned_on(
        text, {"edge": CONTROL}, ONES
    )
    without = ControlledModel(base, {}).conditioned_on(text, {}, {})
    assert torch.equal(with_branch(LATENTS, 0.5), without(LATENTS, 0.5))


@pytest.mark.parametrize(("base", "text"), bases(), ids=["embedded", "transfer2.5"])
def test_a_new_branch_is_a_copy_of_the_first_blocks(base, text):
    branch = new_branch(base)
    for block, base_block in zip(branch.control_blocks, base.transformer_blocks, strict=True):
        state = block.state_dict()
        for key, value in base_block.state_dict().items():
            assert torch.equal(state[key], value)
            assert state[key].data_ptr() != value.data_ptr()
    assert torch.equal(branch.time_embed.norm.weight, base.time_embed.norm.weight)
    assert branch.config.in_channels == 18
    assert new_branch(base, control_channels=128).config.in_channels == 130


def first_gradients(input_gain):
    """Largest gradient of each projection after one step from the start of training."""
    base, text = bases()[0]
    branch = new_branch(base, input_gain=input_gain)
    model = ControlledModel(base, {"edge": branch})
    optimizer = torch.optim.SGD(branch.parameters(), lr=0.1)
    gradients = []
    for _ in range(2):
        optimizer.zero_grad()
        velocity = model(LATENTS, torch.tensor([0.5]), text, {"edge": CONTROL}, ONES)
        velocity.square().mean().backward()
        optimizer.step()
        gradients.append(
            (
                float(branch.control_blocks[1].after_proj.weight.grad.abs().max()),
                float(branch.control_blocks[0].before_proj.weight.grad.abs().max()),
            )
        )
    return gradients


@pytest.mark.parametrize("input_gain", [0.0, 1.0])
def test_a_new_branch_can_learn(input_gain):
    (output, entry), (_, entry_next) = first_gradients(input_gain)
    assert output > 0.0
    assert entry == 0.0  # nothing passes the zero output on the first step
    assert entry_next > 0.0


def test_the_control_enters_with_the_input_gain():
    base, text = bases()[0]

    def residual(branch, control):
        with torch.no_grad():
            branch.control_blocks[0].after_proj.weight.copy_(torch.eye(64))
            return branch(
                controls_latents=control,
                latents=LATENTS,
                timestep=torch.tensor([0.5]),
                encoder_hidden_states=text,
                condition_mask=torch.zeros(1, 1, 3, 8, 8),
                padding_mask=torch.zeros(1, 1, 8, 8),
                return_dict=False,
            )[0][0]

    blind, seeing = new_branch(base), new_branch(base, input_gain=1.0)
    assert torch.equal(residual(blind, CONTROL), residual(blind, 2.0 * CONTROL))
    assert relative_rms(residual(seeing, CONTROL), residual(seeing, 2.0 * CONTROL)) > 1e-2


def test_controlled_blocks_are_spaced():
    base = tiny.embedded_transformer(num_layers=5)
    base.register_to_config(controlnet_block_every_n=2)
    assert controlled_blocks(base) == (0, 2, 4)
    assert new_branch(base).config.n_controlnet_blocks == 3
    base.register_to_config(controlnet_block_every_n=None)
    assert controlled_blocks(base) == ()
    with pytest.raises(CheckpointError, match="controlnet_block_every_n"):
        new_branch(base)


def test_only_identical_parts_are_shared():
    base, text = bases()[1]
    branch = new_branch(base)
    with torch.no_grad():
        branch.crossattn_proj[0].bias.add_(1.0)
    model = ControlledModel(base, {"edge": branch})
    arguments = (LATENTS, torch.tensor([0.5]), text, {"edge": CONTROL}, ONES)
    with torch.no_grad():
        before = model(*arguments)
        shared = share_parts(base, {"edge": branch})
        assert torch.equal(model(*arguments), before)
    assert set(shared) == {"edge.patch_embed_base", "edge.time_embed", "edge.img_context_proj"}
    assert branch.time_embed is base.time_embed
    assert branch.crossattn_proj is not base.crossattn_proj
