"""The vote: most frequent first, first seen wins ties, no answer does not vote; codes and strings
agree.
"""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from places import read_data

from feval.methods.vote import (
    plurality,
    plurality_codes,
    weighted_plurality,
    weighted_plurality_codes,
)


@pytest.mark.parametrize(("answers", "winner"), read_data("methods.json")["winners of votes"])
def test_the_most_frequent_answer_wins_or_the_first_seen(answers, winner):
    assert plurality(answers) == winner


@given(
    st.integers(1, 9).flatmap(
        lambda n: st.lists(
            st.lists(st.integers(-2, 5), min_size=n, max_size=n), min_size=1, max_size=8
        )
    ),
    st.sampled_from([np.int8, np.int16, np.int32, np.int64]),
)
@settings(max_examples=150, deadline=None)
def test_codes_and_strings_elect_the_same(rows, kind):
    codes = np.array(rows, kind)
    winners = plurality_codes(codes)
    assert winners.dtype == kind
    for row, winner in zip(rows, winners.tolist(), strict=True):
        strings = [None if code < 0 else str(code) for code in row]
        assert (None if winner < 0 else str(winner)) == plurality(strings)
        if votes := Counter(s for s in strings if s is not None):
            assert votes[str(winner)] == votes.most_common(1)[0][1]


def test_any_leading_shape_is_kept():
    codes = np.array([[[0, 1, 1], [2, 0, 0]], [[-1, -1, -1], [1, -1, 0]]], np.int8)
    assert plurality_codes(codes).tolist() == [[1, 0], [-1, 1]]
    assert plurality_codes(codes[0, 0]) == 1
    assert plurality_codes(np.zeros((3, 0, 5), np.int8)).shape == (3, 0)
    assert plurality_codes(np.zeros((4, 0), np.int8)).tolist() == [-1] * 4


def test_many_draws_and_many_candidates():
    codes = np.concatenate([np.full(300, 7), np.full(300, 999), np.arange(500)]).astype(np.int16)
    assert plurality_codes(codes[None]).tolist() == [7]
    assert plurality_codes(codes[None, ::-1]).tolist() == [7]  # 301 votes against 300
    assert plurality_codes(codes[None, 299::-1]).tolist() == [7]
    assert plurality_codes(np.array([[126, 125, 125, 126]], np.int8)).tolist() == [126]


@pytest.mark.parametrize(("more", "winner"), [(1e-13, "a"), (1e-10, "b"), (-1e-10, "a")])
def test_only_rounding_makes_a_tie_of_weights(more, winner):
    weights = [3.0, 3.0 * (1 + more)]
    assert weighted_plurality(["a", "b"], weights) == winner
    result = weighted_plurality_codes(np.array([[0, 1]]), np.array([weights]))
    assert result.tolist() == ["ab".index(winner)]
