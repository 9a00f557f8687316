"""How tests compare numbers: relative RMS in float64, and where the worst element is."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor


def relative_rms(actual: Tensor | ArrayLike, expected: Tensor | ArrayLike) -> float:
    """Root mean square of the difference over that of ``expected``; 0 where both are 0."""
    got, want = _float64(actual), _float64(expected)
    error, size = np.sqrt(np.mean((got - want) ** 2)), np.sqrt(np.mean(want**2))
    return 0.0 if error == 0.0 else float(error / size) if size > 0.0 else float("inf")


def assert_agrees(actual: Tensor | ArrayLike, expected: Tensor | ArrayLike, *, rms: float) -> None:
    """Require equal shapes, finite numbers and a relative RMS of at most ``rms``.

    On failure, says by how much, and which element is worst.
    """
    got, want = _float64(actual), _float64(expected)
    assert got.shape == want.shape, f"expected shape {want.shape}, got {got.shape}"
    assert want.size > 0, "nothing to compare"
    for name, values in (("expected", want), ("actual", got)):
        bad = np.argwhere(~np.isfinite(values))
        assert bad.size == 0, f"{name}: {len(bad)} values are not finite, first at {_index(bad[0])}"
    error = relative_rms(got, want)
    if not error <= rms:
        worst = np.unravel_index(np.argmax(np.abs(got - want)), want.shape)
        raise AssertionError(
            f"relative RMS {error:.3g} exceeds {rms:.3g}; worst at {_index(worst)}: "
            f"expected {want[worst]:.9g}, got {got[worst]:.9g}"
        )


def _float64(values: Tensor | ArrayLike) -> np.ndarray:
    if isinstance(values, Tensor):
        return values.detach().cpu().to(torch.float64).numpy()
    return np.asarray(values, dtype=np.float64)


def _index(position: object) -> tuple[int, ...]:
    return tuple(int(index) for index in position)  # type: ignore[attr-defined]
