"""The exceptions a caller may want to catch, one per kind of mistake.

Every message reads *where: expected ..., got .... Do this.*; :func:`explain` builds it.
"""

from __future__ import annotations


class TransferError(Exception):
    """Base of every error this package raises on purpose."""


class ConfigError(TransferError, ValueError):
    """A setting or a request that cannot be honoured."""


class ShapeError(TransferError, ValueError):
    """Arrays or clips whose sizes do not fit together."""


class MediaError(TransferError, OSError):
    """A file that cannot be read, decoded or written."""


class CheckpointError(TransferError):
    """A checkpoint that is missing, incomplete or of another architecture."""


class EstimatorUnavailableError(TransferError, ImportError):
    """A control that must be estimated from RGB, without the estimator installed."""


class NumericsError(TransferError, ArithmeticError):
    """NaN or infinity where the pipeline needs finite numbers."""


class GuardrailError(TransferError):
    """A prompt or frames that the guardrail refuses, or a guardrail that cannot look."""


def explain(where: str, *, expected: str, got: str, do: str) -> str:
    """One line: where it happened, what was expected, what came, what to do about it."""
    return f"{where}: expected {expected}, got {got}. {do}"
