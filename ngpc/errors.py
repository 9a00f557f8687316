"""The exceptions a caller may want to catch, one per kind of mistake.

Every message reads *where: expected ..., got .... Do this.*; :func:`explain` builds it.
"""

from __future__ import annotations


class NgpcError(Exception):
    """Base of every error this package raises on purpose."""


class ConfigError(NgpcError, ValueError):
    """A setting that cannot be honoured."""


class ShapeError(NgpcError, ValueError):
    """Tensors whose sizes do not fit together."""


class MediaError(NgpcError, OSError):
    """A file that cannot be read or written."""


class CheckpointError(NgpcError):
    """A saved field that is missing, incomplete or of another kind."""


class BackendUnavailableError(NgpcError, ImportError):
    """A backend that was asked for by name and cannot run here."""


def explain(where: str, *, expected: str, got: str, do: str) -> str:
    """One line: where it happened, what was expected, what came, what to do about it."""
    return f"{where}: expected {expected}, got {got}. {do}"
