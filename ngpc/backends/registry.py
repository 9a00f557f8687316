"""What backends exist, what they need, and why one cannot run here.

Registering imports nothing. Asking for a backend by name never gives another one; ``auto`` takes
the first of :data:`BACKENDS` that can run and says which, once: at INFO, or as a warning where a
faster one for the device is missing, with what it needs.

Every backend package exports the functions of :data:`OPS` with the signatures of ``reference``.
"""

from __future__ import annotations

import importlib
import logging
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from types import ModuleType

from ngpc.backends.compiled import library_path
from ngpc.errors import BackendUnavailableError, ConfigError, explain

logger = logging.getLogger(__name__)

AUTO = "auto"
OPS = ("encode_grid", "encode_frequency", "apply_mlp")


@dataclass(frozen=True, slots=True)
class Backend:
    """One implementation of the ops."""

    name: str
    package: str
    """Imported on first use."""
    summary: str
    requires: tuple[str, ...] = ()
    """Top-level modules that must be installed; looked up, not imported."""
    device_types: tuple[str, ...] = ("cpu", "cuda")
    is_compiled: bool = False
    """Whether it runs kernels that the package build compiles where there is a compiler."""

    def why_unavailable(self, device_type: str) -> str | None:
        """Why this backend cannot run on such a device here; None where it can."""
        if device_type not in self.device_types:
            return f"runs on {' and '.join(self.device_types)}, not {device_type}"
        missing = [name for name in self.requires if find_spec(name) is None]
        if missing:
            return f"needs {' and '.join(missing)}, not installed"
        if self.is_compiled and library_path() is None:
            return (
                "needs kernels that an installation with a C++ compiler builds, and so does "
                "`python -m ngpc.backends.compiled`"
            )
        return None


BACKENDS: tuple[Backend, ...] = (  # fastest first; the definition is last and always there
    Backend(
        "triton",
        "ngpc.backends.triton",
        "fused kernels for GPUs; single, half and bfloat16, summed in single precision",
        requires=("torch", "triton"),
        device_types=("cuda",),
    ),
    Backend(
        "tcnn",
        "ngpc.backends.tcnn",
        "an installed tinycudann; computes in half precision",
        requires=("torch", "tinycudann"),
        device_types=("cuda",),
    ),
    Backend(
        "cpu",
        "ngpc.backends.cpu",
        "compiled kernels for processors; single precision, sums in a fixed order",
        requires=("torch",),
        device_types=("cpu",),
        is_compiled=True,
    ),
    Backend(
        "reference",
        "ngpc.backends.reference",
        "the definition, in plain PyTorch; any precision, differentiable twice",
        requires=("torch",),
    ),
)


def find_backend(name: str) -> Backend:
    """The backend called ``name``.

    Raises:
        ConfigError: there is none of that name.
    """
    for backend in BACKENDS:
        if backend.name == name:
            return backend
    known = ", ".join([AUTO, *(backend.name for backend in BACKENDS)])
    raise ConfigError(
        explain("backend", expected=f"one of {known}", got=repr(name), do="See `ngpc backends`.")
    )


def choose_backend(name: str, device_type: str) -> Backend:
    """The named backend, or for ``auto`` the first that can run on such a device.

    Raises:
        BackendUnavailableError: it cannot run here; the message says why.
    """
    if name == AUTO:
        skipped: list[str] = []
        for backend in BACKENDS:
            reason = backend.why_unavailable(device_type)
            if reason is None:
                _announce(backend.name, device_type, "; ".join(skipped))
                return backend
            if device_type in backend.device_types:
                skipped.append(f"'{backend.name}' {reason}")
        candidates = BACKENDS
    else:
        candidates = (find_backend(name),)
        if candidates[0].why_unavailable(device_type) is None:
            return candidates[0]
    reasons = "; ".join(
        f"backend '{backend.name}' cannot run on {device_type}: "
        f"{backend.why_unavailable(device_type)}"
        for backend in candidates
    )
    raise BackendUnavailableError(f"{reasons}. See `ngpc backends` for those that can.")


def load_backend(name: str, device_type: str) -> ModuleType:
    """Choose a backend and import its package."""
    return importlib.import_module(choose_backend(name, device_type).package)


@cache
def _announce(name: str, device_type: str, skipped: str) -> None:
    if skipped:
        logger.warning("backend 'auto' on %s is %s: %s", device_type, name, skipped)
    else:
        logger.info("backend 'auto' on %s is %s", device_type, name)
