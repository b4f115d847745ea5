"""Mass by rank, entropy, strata of difficulty and their differences, by hand and against SciPy."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from feval.estimators.diagnostics import strata_summary

#                gold             rivals                                    no answer
FOUR = np.array([1, 6, 9, 10]), np.array([[6, 2], [0, 3], [1, 0], [0, 0]]), np.array([1, 1, 0, 0])


def test_entropy_of_certainty_is_zero():
    certain = strata_summary(np.array([0]), np.zeros((1, 0), int), np.array([4]), (1.0,))
    assert certain.entropy.tolist() == [0.0]


@given(st.lists(st.integers(0, 9), min_size=3, max_size=6).filter(sum))
def test_entropy_equals_scipys(counts):
    from scipy.stats import entropy

    gold, *rivals, none = counts
    result = strata_summary(np.array([gold]), np.array([rivals]), np.array([none]), (1.0,))
    assert result.entropy[0] == pytest.approx(entropy(counts), abs=1e-14)


def test_a_summary_has_the_means_of_each_stratum_with_its_upper_end():
    summary = strata_summary(*FOUR, (0.1, 0.5, 0.6, 1.0))
    expected = [[0.6, 0.2, 0.1], [np.nan] * 3, [0.6, 0.3, 0.0], [0.95, 0.05, 0.0]]
    assert summary.mass == pytest.approx(np.array(expected), nan_ok=True)  # right or wrong
    assert summary.cumulative_mass[0] == pytest.approx([0.6, 0.8, 0.9])
    assert summary.entropy[3] == pytest.approx(0.32508297 / 2)
    assert np.isnan(summary.entropy[1])


def test_no_questions_give_empty_strata():
    none = strata_summary(np.zeros(0, int), np.zeros((0, 2), int), np.zeros(0, int))
    assert np.isnan(none.entropy).all()
