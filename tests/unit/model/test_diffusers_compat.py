from __future__ import annotations

from types import ModuleType, SimpleNamespace

import pytest
import torch

from cosmos_transfer.model.diffusers_compat import InterpolationMode, lend_transforms, resize
from tests.support import tiny


def test_resize_is_nearest():
    image = torch.arange(16.0).reshape(1, 1, 4, 4)
    assert resize(image, [2, 2])[0, 0].tolist() == [[0.0, 2.0], [8.0, 10.0]]
    assert torch.equal(resize(image, (4, 4)), image)


def test_a_module_without_transforms_gets_the_stand_in():
    module = ModuleType("network")
    lend_transforms(module)
    image = torch.ones(1, 1, 8, 12)
    resized = module.transforms.functional.resize(
        image, [4, 6], interpolation=module.transforms.InterpolationMode.NEAREST
    )
    assert torch.equal(resized, resize(image, (4, 6), InterpolationMode.NEAREST))


def test_the_real_transforms_are_left_alone():
    module, real = ModuleType("network"), SimpleNamespace()
    module.transforms = real
    lend_transforms(module)
    assert module.transforms is real


@pytest.mark.parametrize("build", [tiny.transfer2_5_model, tiny.embedded_model])
def test_the_networks_run_without_torchvision(build):
    model = build()
    latents = tiny.randn(1, 16, 3, 8, 8, seed=0)
    width = model.transformer.config.text_embed_dim
    if model.transformer.config.use_crossattn_projection:
        width = tiny.TEXT_CHANNELS_2_5
    controls = dict.fromkeys(model.branches, latents)
    weights = {name: torch.ones(1, 48) for name in model.branches}
    with torch.no_grad():
        velocity = model(
            latents, torch.tensor([0.5]), tiny.randn(1, 7, width, seed=1), controls, weights
        )
    assert velocity.shape == latents.shape
    assert bool(torch.isfinite(velocity).all())
