"""Devices, as the command line names them."""

from __future__ import annotations

import torch

from ngpc.backends.registry import choose_backend
from ngpc.errors import ConfigError, explain


def check_placement(device: str, backend: str) -> None:
    """Refuse a device that is not there, or a backend that cannot run on it, before any work.

    Raises:
        ConfigError: torch knows no such device here.
        BackendUnavailableError: the backend cannot run on it.
    """
    try:
        torch.empty(0, device=device)
        device_type = torch.device(device).type
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(
            explain(
                "device",
                expected="one that torch can use here",
                got=repr(device),
                do=f"Use cpu. ({' '.join(str(error).split())[:120]})",
            )
        ) from error
    choose_backend(backend, device_type)
