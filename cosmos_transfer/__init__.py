"""Controllable world generation: a clip, its controls and a prompt in, the same world out.

Importing this package loads neither torch nor anything else heavy; each public name is
imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cosmos_transfer.errors import (
    CheckpointError,
    ConfigError,
    EstimatorUnavailableError,
    MediaError,
    NumericsError,
    ShapeError,
    TransferError,
)

if TYPE_CHECKING:
    from cosmos_transfer.inputs.request import ControlRequest, GenerationRequest
    from cosmos_transfer.jobs.augment import augment_dataset, augment_episode
    from cosmos_transfer.jobs.on_the_fly import AugmentedEpisodes
    from cosmos_transfer.pipeline import GeneratedClip, TransferPipeline

__version__ = "0.1.0"

__all__ = [
    "AugmentedEpisodes",
    "CheckpointError",
    "ConfigError",
    "ControlRequest",
    "EstimatorUnavailableError",
    "GeneratedClip",
    "GenerationRequest",
    "MediaError",
    "NumericsError",
    "ShapeError",
    "TransferError",
    "TransferPipeline",
    "__version__",
    "augment_dataset",
    "augment_episode",
]

_HOMES = {
    "AugmentedEpisodes": "cosmos_transfer.jobs.on_the_fly",
    "ControlRequest": "cosmos_transfer.inputs.request",
    "GeneratedClip": "cosmos_transfer.pipeline",
    "GenerationRequest": "cosmos_transfer.inputs.request",
    "TransferPipeline": "cosmos_transfer.pipeline",
    "augment_dataset": "cosmos_transfer.jobs.augment",
    "augment_episode": "cosmos_transfer.jobs.augment",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
