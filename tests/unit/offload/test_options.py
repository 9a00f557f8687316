from __future__ import annotations

import pytest
import torch

from cosmos_transfer.autoencoder.wan import WanAutoencoder
from cosmos_transfer.errors import CheckpointError, ConfigError
from cosmos_transfer.model.branches import share_parts
from cosmos_transfer.model.checkpoint import load_checkpoint
from cosmos_transfer.model.controlled import ControlledModel
from cosmos_transfer.offload.options import MemoryOptions, fit
from tests.support import tiny
from tests.support.numerics import relative_rms

GRID, NUM_TOKENS = (2, 4, 4), 8


def shared_model():
    """A model whose branch shares with the base all that published ones share."""
    model = tiny.transfer2_5_model(("edge",))
    branch = model.branches["edge"]
    base = model.transformer
    branch.time_embed.load_state_dict(base.time_embed.state_dict())
    branch.crossattn_proj.load_state_dict(base.crossattn_proj.state_dict())
    branch.img_context_proj.load_state_dict(base.img_context_proj.state_dict())
    branch.patch_embed_base.load_state_dict(base.patch_embed.state_dict())
    assert len(share_parts(base, {"edge": branch})) == 4
    return ControlledModel(base, {"edge": branch}).requires_grad_(False)


def run(model):
    text, noise = tiny.randn(1, 7, 48, seed=1), tiny.randn(1, 16, *GRID, seed=2)
    control = {"edge": tiny.randn(1, 16, *GRID, seed=3)}
    bound = model.conditioned_on(text, control, {"edge": torch.ones(1, NUM_TOKENS)})
    return bound(noise, 0.5)


def apply(model, **options):
    return fit(
        model.transformer,
        dict(model.branches),
        WanAutoencoder(tiny.wan_autoencoder()),
        MemoryOptions(**options),
        device=torch.device("cpu"),
        dtype=torch.float32,
    )


def test_nothing_asked_for_is_nothing_done():
    assert MemoryOptions().is_plain
    assert apply(shared_model()) == []


def test_eight_bits_round_the_blocks_alone():
    want = run(shared_model())
    model = shared_model()
    apply(model, fp8=True)
    kinds = {
        name: parameter.dtype
        for name, parameter in model.named_parameters()
        if parameter.dtype == torch.float8_e4m3fn
    }
    assert kinds
    assert all("blocks." in name for name in kinds)
    assert 0.0 < relative_rms(run(model), want) < 0.1


def test_blocks_on_the_host_compute_the_same():
    want = run(shared_model())
    model = shared_model()
    apply(model, offload="group")
    assert torch.equal(run(model), want)


def test_tiles_are_switched_on_in_the_autoencoder():
    autoencoder = WanAutoencoder(tiny.wan_autoencoder())
    model = shared_model()
    fit(
        model.transformer,
        dict(model.branches),
        autoencoder,
        MemoryOptions(tile=True),
        device=torch.device("cpu"),
        dtype=torch.float32,
    )
    assert autoencoder.network.use_tiling


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"offload": "disk"}, "one of none, group, stream"),
        ({"offload": "stream", "fp8": True}, "without model.offload=stream"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        MemoryOptions(**options)


@pytest.mark.parametrize("options", [{"tile": True}, {"fp8": True}, {"offload": "group"}])
def test_the_embedded_model_needs_none(tiny_checkpoint, options):
    # The tiny checkpoint's networks are diffusers', but its autoencoder is ours.
    loaded = load_checkpoint(tiny_checkpoint)
    with pytest.raises(ConfigError, match="fits everywhere"):
        fit(
            torch.nn.Linear(1, 1),
            {},
            loaded.autoencoder,
            MemoryOptions(**options),
            device=torch.device("cpu"),
            dtype=torch.float32,
        )


def test_streaming_needs_files(tiny_checkpoint):
    with pytest.raises(CheckpointError, match="diffusers' layout to stream from"):
        load_checkpoint(tiny_checkpoint, memory=MemoryOptions(offload="stream"))
