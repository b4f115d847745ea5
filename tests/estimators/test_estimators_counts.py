"""Votes, mean tokens, and values per question that are stored once per distinct question."""

from collections import Counter

import numpy as np
from hypothesis import given, settings, strategies as st

from feval.estimators import per_question
from feval.estimators.per_question import PerQuestion, distinct
from feval.estimators.plurality import (
    answered_counts,
    distinct_vote_counts,
    mean_output_tokens,
    subset_plurality_accuracy,
    vote_counts,
)


@given(
    st.integers(0, 7).flatmap(
        lambda s: st.lists(st.lists(st.integers(-2, 9), min_size=s, max_size=s), max_size=6)
    ),
    st.data(),
)
@settings(max_examples=80, deadline=None)
def test_votes_are_counted_per_candidate(rows, data):
    gold = [data.draw(st.integers(-1, 11)) for _ in rows]
    codes = np.array(rows, np.int8).reshape(len(rows), len(rows[0]) if rows else 0)
    counts = vote_counts(codes, np.array(gold, np.int16))
    for q, row in enumerate(rows):
        tally = Counter(row)
        assert counts.gold[q] == (tally[gold[q]] if gold[q] >= 0 else 0)
        assert Counter(counts.rivals[q].tolist()) - Counter([0] * 99) == Counter(
            votes for code, votes in tally.items() if code >= 0 and code != gold[q]
        )
        assert counts.no_answer[q] == tally[-1]
        assert counts.size[q] == len(row) - tally[-2]


def test_large_pools_and_many_candidates_are_counted():
    codes = np.tile(np.arange(400, dtype=np.int16), 2)[None]
    counts = vote_counts(codes, np.array([399]))
    assert (counts.gold.tolist(), counts.rivals.shape, int(counts.rivals.sum())) == (
        [2],
        (1, 400),
        798,
    )
    assert vote_counts(np.zeros((1, 300), np.int8), np.array([0])).gold.tolist() == [300]


def test_distinct_counts_do_not_depend_on_the_blocks(monkeypatch):
    rng = np.random.default_rng(3)
    codes = np.minimum(rng.integers(-2, 7, (200, 8)), rng.integers(0, 7, (200, 1))).astype(np.int8)
    codes[40:60] = -1  # a block without any rival
    codes[:, 0] = 0
    gold = rng.integers(-1, 4, 200)
    whole = vote_counts(codes, gold)
    one_block, every = distinct_vote_counts(codes, gold)
    assert every == slice(None)
    draws = [1, 2]
    expected = subset_plurality_accuracy(*whole.parts, draws)
    answered = answered_counts(codes)
    for questions in (1, 20, 199):
        monkeypatch.setattr(per_question, "QUESTIONS_AT_ONCE", questions)
        vectors, rows = distinct_vote_counts(codes, gold)
        assert vectors.gold.dtype == one_block.gold.dtype
        assert len(
            np.unique(np.column_stack([vectors.gold, vectors.no_answer, vectors.rivals]), axis=0)
        ) == len(vectors.gold)
        for name in ("gold", "no_answer"):
            assert (getattr(vectors, name)[rows] == getattr(whole, name)).all()
        assert (vectors.rivals[rows] == whole.ordered().rivals).all()
        values = subset_plurality_accuracy(*vectors.parts, draws).of_questions(rows)
        assert (values.values == expected.values).all()
        assert (values.rows == expected.rows).all()
        assert (answered_counts(codes) == answered).all()
    assert (answered == whole.gold + whole.rivals.sum(axis=1)).all()


def test_no_answer_can_be_one_more_rival():
    counts = vote_counts(
        np.array([[0, 0, 1, -1, -2]], np.int8), np.array([0])
    ).with_no_answer_as_rival()
    assert [part.tolist() for part in counts.parts] == [[2], [[0, 1, 1]], [0]]


def test_mean_tokens_are_over_the_recorded_samples():
    tokens = np.array([[10, 20, 60], [65_535, 65_535, 0]], np.uint16)
    assert mean_output_tokens(tokens, np.array([3, 2])).tolist() == [30.0, 65_535.0]


def test_values_are_written_out_and_averaged():
    values = PerQuestion(np.array([[0.0, 1.0], [0.5, 0.25]]), np.array([1, 0, 1, 1]))
    assert values.per_question().tolist() == [[0.5, 0.25], [0.0, 1.0], [0.5, 0.25], [0.5, 0.25]]
    assert values.mean().tolist() == [0.375, 0.4375]
    assert len(values) == 4


def test_columns_stand_beside_each_other():
    left = PerQuestion(np.array([[1.0], [2.0]]), np.array([0, 0, 1, 1]))
    right = PerQuestion(np.array([[5.0, 6.0], [7.0, 8.0]]), np.array([0, 1, 1, 1]))
    both = left.beside(right)
    assert both.per_question().tolist() == [[1, 5, 6], [1, 7, 8], [2, 7, 8], [2, 7, 8]]
    assert len(both.values) == 3


@given(st.integers(1, 40), st.integers(1, 30), st.sampled_from([2, 60, 1000]))
@settings(max_examples=60, deadline=None)
def test_distinct_rows_are_found_whatever_the_number_of_columns(rows, columns, radix):
    rng = np.random.Generator(np.random.Philox(key=rows * columns))
    table = rng.integers(0, radix, (max(1, rows // 3), columns))[
        rng.integers(0, max(1, rows // 3), rows)
    ]
    first, place = distinct(list(table.T.astype(np.uint16)))
    assert (table[first][place] == table).all()
    assert len(first) == len(np.unique(table, axis=0))


def test_no_rows_have_no_distinct_rows():
    first, place = distinct([np.zeros(0, np.uint8)])
    assert (len(first), len(place)) == (0, 0)
