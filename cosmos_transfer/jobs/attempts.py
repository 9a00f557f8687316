"""Seed after seed until a clip meets its thresholds, or is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from cosmos_transfer.jobs.accept import Threshold, missed
from cosmos_transfer.jobs.run import RefusedError

Attempt = Callable[[int], tuple[Mapping[str, float], Mapping[str, str]]]
"""Makes a clip from a seed; returns what was measured and why the rest was not."""


def attempt_seed(seed: int, attempt: int) -> int:
    """The seed of an attempt: the first is the request's own, the others share nothing with it."""
    if attempt == 0:
        return seed
    return int(np.random.SeedSequence((seed, attempt)).generate_state(1)[0])


def until_accepted(
    attempt: Attempt, seed: int, thresholds: Sequence[Threshold], attempts: int
) -> dict[str, Any]:
    """Make until all thresholds hold; returns the metrics, with the seed and its attempt.

    Raises:
        RefusedError: No attempt held them.
    """
    for index in range(attempts):
        chosen = attempt_seed(seed, index)
        values, why = attempt(chosen)
        found: dict[str, Any] = {**values, "seed": chosen, "attempt": index + 1}
        short = missed(thresholds, values, why)
        if not short:
            return found
    raise RefusedError(f"{attempts} seeds tried; the last missed {'; '.join(short)}", found)
