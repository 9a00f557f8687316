"""The model of scaling against its own arithmetic and the published table."""

from __future__ import annotations

import pytest

from cosmos_transfer.errors import ConfigError
from cosmos_transfer.planning import scaling


def test_one_gpu_is_the_fitted_entry() -> None:
    given = scaling.constants()
    assert scaling.seconds(1, given) == pytest.approx(141.0)
    assert 0 < scaling.efficiency(given) < 1


@pytest.mark.parametrize("gpus", [4, 8, 16, 32])
def test_within_15_per_cent_of_the_published_table(gpus: int) -> None:
    given = scaling.constants()
    assert scaling.seconds(gpus, given) == pytest.approx(given["published"][str(gpus)], rel=0.15)


def test_heads_that_do_not_divide_are_refused_with_the_equation() -> None:
    with pytest.raises(ConfigError, match="6 = 2 x 3"):
        scaling.mesh(6, 32)
