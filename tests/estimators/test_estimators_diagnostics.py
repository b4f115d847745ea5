"""Mass by rank, entropy, strata of difficulty and their differences, by hand and against SciPy."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from feval.estimators.diagnostics import answer_entropy, mass_by_rank, strata_summary

#                gold             rivals                                    no answer
FOUR = np.array([1, 6, 9, 10]), np.array([[6, 2], [0, 3], [1, 0], [0, 0]]), np.array([1, 1, 0, 0])


def test_mass_is_ranked_whether_right_or_wrong():
    expected = [[0.6, 0.2, 0.1], [0.6, 0.3, 0.0], [0.9, 0.1, 0.0], [1.0, 0.0, 0.0]]
    assert mass_by_rank(*FOUR).tolist() == expected


@given(st.lists(st.integers(0, 9), min_size=3, max_size=6).filter(sum))
def test_entropy_equals_scipys(counts):
    from scipy.stats import entropy

    result = answer_entropy(np.array(counts[:1]), np.array([counts[1:-1]]), np.array(counts[-1:]))
    assert result[0] == pytest.approx(entropy(counts), abs=1e-14)


def test_entropy_of_certainty_is_zero():
    assert answer_entropy(*FOUR)[3] == 0.0
    assert answer_entropy(np.array([0]), np.zeros((1, 0), int), np.array([4])).tolist() == [0.0]


def test_a_summary_has_the_means_of_each_stratum_with_its_upper_end():
    summary = strata_summary(*FOUR, (0.1, 0.5, 0.6, 1.0))
    assert summary.mass[3] == pytest.approx([0.95, 0.05, 0.0])
    assert summary.cumulative_mass[0] == pytest.approx([0.6, 0.8, 0.9])
    assert summary.cumulative_mass[2] == pytest.approx([0.6, 0.9, 0.9])
    assert summary.entropy == pytest.approx(
        [*answer_entropy(*FOUR)[:1], np.nan, *answer_entropy(*FOUR)[1:2], 0.5 * 0.32508297],
        nan_ok=True,
    )
    assert np.isnan(summary.mass[1]).all()


def test_no_questions_give_empty_strata():
    none = strata_summary(np.zeros(0, int), np.zeros((0, 2), int), np.zeros(0, int))
    assert np.isnan(none.entropy).all()
