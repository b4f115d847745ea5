"""Intervals of accuracies and tests of differences: the formulas, and that they hold the truth as
often as the page says. The bootstrap: the resamples are the documented ones, the percentiles
NumPy's.
"""

import numpy as np
import pytest
from scipy import stats

from feval.errors import OutOfRangeError
from feval.estimators import intervals
from feval.estimators.intervals import (
    IMAGINARY_DIFFERENCE,
    accuracy_interval,
    bootstrap_interval,
    bootstrap_means,
    difference_test,
)
from feval.estimators.per_question import PerQuestion


@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999, 0.9999, 1 - 1e-9])
@pytest.mark.parametrize("questions", [1, 2, 5, 6, 200])
def test_intervals_are_students_with_two_imaginary_questions(questions, confidence):
    values = np.random.default_rng(questions).beta(4, 1, questions)
    joined = np.concatenate([values, [0.0, 1.0]])
    low, high = stats.t.interval(confidence, questions + 1, joined.mean(), stats.sem(joined))
    ends = accuracy_interval(values[:, None], confidence)
    mean = values.mean()
    assert ends.low[0] == pytest.approx(max(min(low, mean), 0), abs=1e-9)
    assert ends.high[0] == pytest.approx(min(max(high, mean), 1), abs=1e-9)
    differences = values - 0.8
    joined = np.concatenate([differences, [-IMAGINARY_DIFFERENCE, IMAGINARY_DIFFERENCE]])
    expected, test = (
        stats.ttest_1samp(joined, 0.0),
        difference_test(differences[:, None], confidence),
    )
    assert test.p_value[0] == pytest.approx(expected.pvalue, rel=1e-11)
    low, high = expected.confidence_interval(confidence)
    assert test.low[0] == pytest.approx(max(min(low, differences.mean()), -1), abs=1e-9)
    assert test.high[0] == pytest.approx(min(max(high, differences.mean()), 1), abs=1e-9)


def test_one_or_two_questions_say_nothing_and_equal_values_leave_room():
    for values in ([0.0], [1.0], [0.4], [1.0, 1.0], [0.0, 1.0], [0.5, 0.4]):
        ends = accuracy_interval(np.array(values)[:, None])
        assert (ends.low[0], ends.high[0]) == (0.0, 1.0)
    five = accuracy_interval(np.array([[1.0, 0.0, 0.5]]).repeat(5, axis=0))
    # 6/7 - 2.447 / 7; 1/2 - 2.447 sqrt(1/84)
    assert five.low == pytest.approx([0.5076, 0.0, 0.2330], abs=1e-4)
    assert five.high[0] == 1.0
    equal = difference_test(np.zeros((50, 1)))
    assert equal.p_value[0] == 1.0
    assert (
        -equal.low[0]
        == equal.high[0]
        == pytest.approx(2.0076 * IMAGINARY_DIFFERENCE * np.sqrt(2 / (51 * 52)), abs=1e-4)
    )


def test_nothing_is_significant_under_six_questions():
    assert (
        difference_test(np.ones((5, 1))).p_value[0]
        > 0.05
        > difference_test(np.ones((6, 1))).p_value[0]
    )
    rng = np.random.default_rng(0)
    assert difference_test(rng.uniform(0, 1, (5, 2000))).p_value.min() > 0.05


def test_interval_and_p_value_say_the_same():
    differences = np.random.default_rng(1).choice([-1.0, -0.5, 0.0, 0.5, 1.0, 1.0], (15, 500))
    for confidence in (0.9, 0.99):
        test = difference_test(differences, confidence)
        assert (((test.low > 0) | (test.high < 0)) == (test.p_value <= 1 - confidence)).all()


def test_equal_questions_may_be_stored_once_and_rows_without_a_question_count_nothing():
    values = PerQuestion(np.random.default_rng(5).random((6, 3)), np.arange(200) % 5)
    once, written = accuracy_interval(values), accuracy_interval(values.per_question())
    assert once.low == pytest.approx(written.low, abs=1e-14)
    assert once.high == pytest.approx(written.high, abs=1e-14)


def test_values_out_of_range_are_refused_one_by_one_before_clusters_are_summed():
    for questions in ([[1.5], [-1.5]], [[0.0], [1.1]]):
        with pytest.raises(OutOfRangeError, match=r"lie in \[-1, 1\]"):
            difference_test(np.array(questions), clusters=np.zeros(2, int))


def test_clusters_count_as_the_evidence():
    rng = np.random.default_rng(2)
    values, clusters = (
        rng.random((60, 2)),
        np.repeat(np.arange(12), np.r_[np.ones(6, int), np.full(6, 9)]),
    )
    mean = values.mean(axis=0)
    sizes = np.bincount(clusters)
    sums = np.stack([values[clusters == c].sum(axis=0) for c in range(12)])
    typical = (sizes**2).sum() / 60
    sizes, sums = (
        np.r_[sizes, typical, typical],
        np.vstack([sums, np.zeros(2), np.full(2, typical)]),
    )
    joined = mean + (sums - sizes[:, None] * mean) * 12 / 60
    low, high = stats.t.interval(0.95, 13, joined.mean(axis=0), stats.sem(joined))
    ends = accuracy_interval(values, clusters=clusters)
    assert ends.low == pytest.approx(low, abs=1e-12)
    assert ends.high == pytest.approx(high, abs=1e-12)
    # Questions asked ten times over are as good as once.
    once, often = (
        difference_test(values - 0.4),
        difference_test(values.repeat(10, axis=0) - 0.4, 0.95, np.arange(60).repeat(10)),
    )
    assert often.p_value == pytest.approx(once.p_value)
    alone = difference_test(values, clusters=np.arange(60))
    assert alone.low == pytest.approx(difference_test(values).low)


def test_intervals_and_tests_hold_where_few_clusters_have_most_questions():
    rng = np.random.default_rng(4)
    held, found = [], []
    for _ in range(60):
        sizes = np.where(rng.random(100) < 0.1, 20, 1)
        clusters = np.arange(100).repeat(sizes)
        ends = accuracy_interval((rng.random((100, 100)) < 0.8)[clusters], clusters=clusters)
        held += ((ends.low <= 0.8) & (ends.high >= 0.8)).tolist()
        equal = np.where(rng.random((100, 100)) < 1 / 11, -1, 0.1)[clusters]
        found += (difference_test(equal, clusters=clusters).p_value <= 0.05).tolist()
    assert np.mean(held) > 0.93
    assert np.mean(found) < 0.065


def two_point(questions, rare, low, high):
    """[Q, Q + 1] every number of questions with the rare value, each one's probability, and the
    mean.
    """
    counts = np.arange(questions + 1)
    values = np.where(np.arange(questions)[:, None] < counts, low, high)
    return values, stats.binom.pmf(counts, questions, rare), rare * low + (1 - rare) * high


@pytest.mark.parametrize("questions", [5, 10, 15, 20, 30, 50, 150])
@pytest.mark.parametrize(
    ("rare", "low", "high"),
    [
        (0.03, 0.0, 0.99),
        (0.04, 0.9, 0.01),
        (0.10, 0.05, 0.97),
        (None, 0.0, 0.63),
        (None, 0.0, 1.0),
        (0.4, 0.0, 1.0),
    ],
)
def test_rare_failures_are_inside_the_interval(rare, low, high, questions):
    values, chance, truth = two_point(questions, rare or min(2.69 / questions, 1.0), low, high)
    ends = accuracy_interval(values)
    assert chance @ ((ends.low <= truth) & (truth <= ends.high)) >= 0.92


@pytest.mark.parametrize("questions", [3, 6, 7, 10, 19, 30, 50, 100, 160, 300])
def test_equal_methods_differ_significantly_as_rarely_as_it_says(questions):
    for rare in (0.005, 0.01, 0.0133, 0.018, 0.03, 0.06, 0.1, 0.2, 0.3, 0.4, 0.5):
        for worse in (-1.0, -0.5, -0.25):
            values, chance, _ = two_point(questions, rare, worse, -worse * rare / (1 - rare))
            assert chance @ (difference_test(values).p_value <= 0.05) <= 0.065


@pytest.mark.parametrize("common", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("questions", [5, 10, 20, 30, 50, 100])
def test_the_interval_of_a_difference_holds_the_truth(questions, common):
    for rare in (0.015, 0.03, 0.06, 0.15, 0.4):
        values, chance, truth = two_point(questions, rare, -1.0, common)
        test = difference_test(values)
        assert chance @ ((test.low <= truth) & (truth <= test.high)) >= 0.935


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
    monkeypatch.setattr(intervals, "_CHUNK_DRAWS", 100)
    assert (bootstrap_means(values, resamples=500, seed=2) == means).all()


def test_equal_questions_may_be_resampled_once():
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
    monkeypatch.setattr(intervals, "MOST_QUESTIONS", 3000)
    monkeypatch.setattr(intervals, "CLUSTERS", 700)
    clustered = bootstrap_interval(values)
    assert clustered.high - clustered.low == pytest.approx(single.high - single.low, rel=0.1)
    assert (clustered.low + clustered.high) / 2 == pytest.approx(values.mean(), abs=2e-3)
    assert bootstrap_means(values, resamples=4000).mean(axis=0) == pytest.approx(
        values.mean(), abs=5e-4
    )
    monkeypatch.setattr(intervals, "_CHUNK_DRAWS", 5000)
    assert (bootstrap_interval(values).low == clustered.low).all()


@pytest.mark.parametrize("most", [200, 400])
def test_sums_made_column_by_column_give_the_same_means(most, monkeypatch):
    values = np.random.Generator(np.random.Philox(key=5)).random((301, 3))
    monkeypatch.setattr(intervals, "MOST_QUESTIONS", most)
    monkeypatch.setattr(intervals, "CLUSTERS", 70)
    order = np.arange(301)[::-1]
    dealt = intervals.Clusters(301, seed=7)
    sums = np.stack([dealt.sums(column[order]) for column in values.T], axis=1)
    assert len(sums) == (70 if most == 200 else 301)
    expected = bootstrap_means(values[order], resamples=50, seed=7)
    assert (bootstrap_means(sums, resamples=50, seed=7, dealt=dealt) == expected).all()


def test_clusters_keep_rare_events():
    questions = intervals.MOST_QUESTIONS + 5
    values = np.zeros((questions, 1))
    values[:3, 0] = 1.0
    interval = bootstrap_interval(values, resamples=300)
    assert interval.low[0] == 0.0
    # the 97.5 % point of a Poisson variable of mean 3 is 7
    assert 5 <= interval.high[0] * questions <= 9
