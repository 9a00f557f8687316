from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.support.numerics import assert_agrees, relative_rms

EXPECTED = np.linspace(1.0, 2.0, 12).reshape(3, 4)


def test_equal_numbers_agree_whatever_holds_them():
    assert_agrees(torch.from_numpy(EXPECTED), EXPECTED, rms=0.0)
    assert_agrees(EXPECTED.tolist(), torch.from_numpy(EXPECTED), rms=0.0)


def test_one_percent_is_caught():
    assert relative_rms(EXPECTED * 1.01, EXPECTED) == pytest.approx(0.01)
    with pytest.raises(AssertionError, match=r"relative RMS 0\.01 exceeds 0\.009"):
        assert_agrees(EXPECTED * 1.01, EXPECTED, rms=0.009)


def test_the_worst_element_is_named():
    actual = EXPECTED.copy()
    actual[2, 1] += 0.5
    with pytest.raises(AssertionError, match=r"worst at \(2, 1\)"):
        assert_agrees(actual, EXPECTED, rms=1e-3)


def test_shapes_must_match_even_where_they_broadcast():
    with pytest.raises(AssertionError, match="shape"):
        assert_agrees(EXPECTED[:1], EXPECTED, rms=1.0)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_numbers_that_are_not_finite_never_agree(bad):
    actual = EXPECTED.copy()
    actual[1, 3] = bad
    with pytest.raises(AssertionError, match=r"actual: 1 values are not finite, first at \(1, 3\)"):
        assert_agrees(actual, EXPECTED, rms=1e9)
    with pytest.raises(AssertionError, match="expected"):
        assert_agrees(actual, actual, rms=1e9)


def test_nothing_to_compare_is_a_failure():
    with pytest.raises(AssertionError, match="nothing"):
        assert_agrees(np.zeros((0, 3)), np.zeros((0, 3)), rms=1.0)


def test_zero_expected_agrees_only_with_zero():
    assert_agrees(np.zeros(3), np.zeros(3), rms=0.0)
    with pytest.raises(AssertionError):
        assert_agrees(np.full(3, 1e-30), np.zeros(3), rms=1e9)
