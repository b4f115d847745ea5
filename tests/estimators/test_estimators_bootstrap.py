"""The bootstrap: the resamples are the documented ones, the percentiles NumPy's."""

import numpy as np
import pytest

from feval.estimators import intervals as bootstrap
from feval.estimators.intervals import bootstrap_interval, bootstrap_means
from feval.estimators.per_question import PerQuestion


def example(questions, columns, key=0):
    return np.random.Generator(np.random.Philox(key=key)).random((questions, columns))


def documented_draws(seed, questions, resamples):
    """The resamples as the module describes them, in Python integers."""
    bits = np.random.Philox(key=seed)
    draws = []
    for _ in range(resamples):
        halves = []
        for word in bits.random_raw((questions + 1) // 2).tolist():
            halves += [word & 0xFFFFFFFF, word >> 32]
        draws.append([half * questions >> 32 for half in halves[:questions]])
    return draws


@pytest.mark.parametrize("questions", [2, 7, 40])
def test_means_are_those_of_the_documented_resamples(questions):
    values = example(questions, 3)
    naive = [values[draws].mean(axis=0) for draws in documented_draws(5, questions, 200)]
    assert bootstrap_means(values, resamples=200, seed=5) == pytest.approx(
        np.array(naive), abs=1e-11
    )


@pytest.mark.parametrize(("confidence", "resamples"), [(0.95, 10_000), (0.5, 17), (0.9, 1)])
def test_the_interval_is_numpys_linear_percentile(confidence, resamples):
    values = example(30, 4)
    interval = bootstrap_interval(values, confidence=confidence, resamples=resamples, seed=9)
    tail = (1 - confidence) / 2
    low, high = np.quantile(
        bootstrap_means(values, resamples=resamples, seed=9), [tail, 1 - tail], axis=0
    )
    assert interval.low == pytest.approx(low, abs=1e-14)
    assert interval.high == pytest.approx(high, abs=1e-14)


def test_the_numbers_never_change():
    places = np.arange(25.0)
    values = np.column_stack([places / 24, places % 3 == 0])
    assert (bootstrap_means(values[:10], resamples=6)[:, 1] * 10).round().tolist() == [
        4,
        4,
        1,
        3,
        5,
        3,
    ]
    interval = bootstrap_interval(values, seed=1)
    assert interval.low.tolist() == [0.3816666666665697, 0.16]
    assert interval.high.tolist() == [0.6166666666662859, 0.56]


def test_fewer_resamples_are_the_first_of_more_and_chunks_do_not_show(monkeypatch):
    values = example(31, 2)
    means = bootstrap_means(values, resamples=500, seed=2)
    assert (bootstrap_means(values, resamples=120, seed=2) == means[:120]).all()
    monkeypatch.setattr(bootstrap, "_CHUNK_DRAWS", 100)
    assert (bootstrap_means(values, resamples=500, seed=2) == means).all()


def test_equal_questions_may_be_stored_once():
    values = PerQuestion(example(5, 3), np.arange(200) % 5)
    assert (
        bootstrap_means(values, resamples=300)
        == bootstrap_means(values.per_question(), resamples=300)
    ).all()


def test_columns_without_spread_are_points():
    interval = bootstrap_interval(np.tile([0.0, -1.0, 2.5], (9, 1)))
    assert (
        interval.low.tolist()
        == interval.high.tolist()
        == pytest.approx([0.0, -1.0, 2.5], rel=1e-11)
    )
    assert bootstrap_interval(np.zeros((3, 0))).low.shape == (0,)


def test_more_questions_are_resampled_in_clusters(monkeypatch):
    values = PerQuestion(
        example(60, 2), np.random.Generator(np.random.Philox(key=3)).integers(0, 60, 3001)
    )
    single = bootstrap_interval(values)
    monkeypatch.setattr(bootstrap, "MOST_QUESTIONS", 3000)
    monkeypatch.setattr(bootstrap, "CLUSTERS", 700)
    clustered = bootstrap_interval(values)
    assert clustered.high - clustered.low == pytest.approx(single.high - single.low, rel=0.1)
    assert (clustered.low + clustered.high) / 2 == pytest.approx(values.mean(), abs=2e-3)
    assert bootstrap_means(values, resamples=4000).mean(axis=0) == pytest.approx(
        values.mean(), abs=5e-4
    )
    monkeypatch.setattr(bootstrap, "_CHUNK_DRAWS", 5000)
    assert (bootstrap_interval(values).low == clustered.low).all()


@pytest.mark.parametrize("most", [200, 400])
def test_sums_made_column_by_column_give_the_same_means(most, monkeypatch):
    values = np.random.Generator(np.random.Philox(key=5)).random((301, 3))
    monkeypatch.setattr(bootstrap, "MOST_QUESTIONS", most)
    monkeypatch.setattr(bootstrap, "CLUSTERS", 70)
    order = np.arange(301)[::-1]
    dealt = bootstrap.Clusters(301, seed=7)
    sums = np.stack([dealt.sums(column[order]) for column in values.T], axis=1)
    assert len(sums) == (70 if most == 200 else 301)
    expected = bootstrap_means(values[order], resamples=50, seed=7)
    assert (bootstrap_means(sums, resamples=50, seed=7, dealt=dealt) == expected).all()


def test_clusters_keep_rare_events():
    questions = bootstrap.MOST_QUESTIONS + 5
    values = np.zeros((questions, 1))
    values[:3, 0] = 1.0
    interval = bootstrap_interval(values, resamples=300)
    assert interval.low[0] == 0.0
    # the 97.5 % point of a Poisson variable of mean 3 is 7
    assert 5 <= interval.high[0] * questions <= 9
