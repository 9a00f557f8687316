"""The diffusers classes this package builds on, ready to run without torchvision.

Both Cosmos networks resize their padding mask with ``torchvision.transforms``, which diffusers
imports only where torchvision is installed; without it the first forward pass ends in a
NameError. Importing this module puts a stand-in for that one call in its place, and only there
and only then. Take the classes from here.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from types import ModuleType, SimpleNamespace

from diffusers import AutoencoderKLWan, CosmosControlNetModel, CosmosTransformer3DModel
from diffusers.models.controlnets import controlnet_cosmos
from diffusers.models.transformers import transformer_cosmos
from jaxtyping import Shaped
from torch import Tensor, nn

__all__ = ["AutoencoderKLWan", "CosmosControlNetModel", "CosmosTransformer3DModel"]


class InterpolationMode(Enum):
    """The one interpolation the networks ask for."""

    NEAREST = "nearest"


def resize(
    image: Shaped[Tensor, "b c h w"],
    size: Sequence[int],
    interpolation: InterpolationMode = InterpolationMode.NEAREST,
) -> Shaped[Tensor, "b c h2 w2"]:
    """What ``torchvision.transforms.functional.resize`` does for a nearest resize of a tensor."""
    return nn.functional.interpolate(image, size=tuple(size), mode=interpolation.value)


def lend_transforms(module: ModuleType) -> None:
    """Give ``module`` the stand-in for ``transforms`` unless it has the real one."""
    if not hasattr(module, "transforms"):
        module.transforms = SimpleNamespace(  # type: ignore[attr-defined]
            functional=SimpleNamespace(resize=resize), InterpolationMode=InterpolationMode
        )


lend_transforms(transformer_cosmos)
lend_transforms(controlnet_cosmos)
