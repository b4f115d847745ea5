"""Cascades with a scorer: when a stage is trusted, what is paid, and how thresholds are chosen."""

import math
from dataclasses import replace
from fractions import Fraction
from itertools import permutations, product

import numpy as np
import pytest
from dealt import answers_of, dealt, in_recorded_order, letters_of, pools_of, scores_of
from hypothesis import assume, given, settings, strategies as st

from feval import evaluate, load
from feval.cards.billing import Price
from feval.errors import NotRecordedError, OutOfRangeError, ShortPoolError, UsageError
from feval.estimators.routing import mixture_line
from feval.evaluation.fitting import training
from feval.evaluation.questions import train_test_rows
from feval.methods import Cascade, MixtureOfThoughts
from feval.methods.cascade import bars, lesson, scores_out_of_fold, written
from feval.methods.learners import Logistic, fit_learner
from feval.methods.protocol import Training
from feval.replay.pools import ArrayChannels
from recorders.demo import bundled_recording

GOLD = np.array([0, 0, 0, 0])


def scored(*llms):
    """Pools from answers and scores of each LLM; `None` for no score."""
    values = [
        np.array([[math.nan if s is None else s for s in own] for own in scores])
        for _, scores in llms
    ]
    channels = [ArrayChannels({"judge": scores_of(own, tokens=3)}) for own in values]
    return pools_of(*(answers for answers, _ in llms), channels=channels)


def test_the_first_answer_whose_score_passes_is_returned():
    pools = scored(
        (["a", "a", "a", [None]], [[0.9], [0.3], [None], [1.0]]),
        (["b", "b", "b", "b"], [[0.0], [0.8], [0.1], [0.9]]),
        (["c", "c", "c", "c"], [[None]] * 4),
    )
    decided = in_recorded_order(Cascade((0.5, 0.5)), pools)
    assert letters_of(decided.answer[0]) == ["a", "b", "c", "b"]
    assert [ledger.rounds[0].tolist() for ledger in decided.ledgers] == [
        [1, 1, 1, 1],
        [0, 1, 1, 1],
        [0, 0, 1, 0],
    ]
    other_way = in_recorded_order(Cascade((0.15,), order=(1, 0)), pools)
    assert letters_of(other_way.answer[0]) == ["a", "a", "a", "b"]
    assert other_way.ledgers[2].cots.tolist() == [[0, 0, 0, 0]]


def test_a_score_on_the_threshold_is_accepted_unless_strict():
    # 1 - 0.9 is 0.09999999999999998 in floats, which is less than 0.1.
    pools = scored(("a", [[0.9]]), ("b", [[None]]))
    for delta, strict, expected in (
        (0.1, True, "b"),
        ("1/10", False, "a"),
        ("0.1000001", True, "a"),
        (0, False, "b"),
    ):
        assert answers_of(Cascade((delta,), strict=strict), pools) == [expected]


def test_the_score_is_that_of_the_cot_that_first_gave_the_answer():
    pools = scored((["baa"], [[0.9, 0.2, 0.9]]), (["ccc"], [[None] * 3]))
    assert answers_of(Cascade((0.5,), samples=3), pools) == ["c"]
    assert answers_of(Cascade((0.9,), samples=3), pools) == ["a"]


def test_missing_scores_are_said():
    pools = pools_of(["a"], ["b"])
    with pytest.raises(NotRecordedError, match="no scores"):
        in_recorded_order(Cascade((0.5,)), pools)
    assert answers_of(Cascade((), order=(1,)), pools) == ["b"]


@given(
    case=dealt(llms=2, samples=4),
    threshold=st.fractions(0, 1, max_denominator=8),
    strict=st.booleans(),
)
def test_with_the_vote_share_and_two_llms_it_is_cot_1d_vote(case, threshold, strict):
    pools, orders = case
    assume(strict or threshold > 0)  # at 0 all is accepted
    cascade = Cascade((str(1 - threshold),), samples=(4, 3), score="vote-share", strict=strict)
    mixture = MixtureOfThoughts(str(threshold), samples=4, strict=strict)
    one, other = (method.decide(pools, orders) for method in (cascade, mixture))
    assert (one.answer == other.answer).all()
    assert (one.ledgers[1].output_tokens == other.ledgers[1].output_tokens).all()


QUARTERS = st.one_of(st.none(), st.integers(0, 4).map(lambda n: n / 4))


@st.composite
def scored_and_dealt(draw, llms=3, samples=3):
    pools, orders = draw(dealt(llms, samples))
    judged = []
    for pool in pools:
        size = pool.codes.size
        values = np.array(
            draw(st.lists(QUARTERS, min_size=size, max_size=size)), np.float64
        ).reshape(pool.codes.shape)
        judged.append(replace(pool, channels=ArrayChannels({"judge": scores_of(values, tokens=5)})))
    return judged, orders


def asked_as_fit_does(pools, samples):
    questions, times = len(pools[0].sizes), pools[0].codes.shape[1] // samples
    order = np.arange(times * samples, dtype=np.uint16).reshape(times, 1, samples)
    return [np.broadcast_to(order, (times, questions, samples)) for _ in pools]


def judged(cascade, pools, orders, gold):
    """Right answers and minus the tokens of a cascade on training questions."""
    decided = cascade.decide(pools, orders)
    tokens = sum(
        int(ledger.output_tokens.sum() + ((ledger.rounds > 0) * pool.prompt_tokens).sum())
        for ledger, pool in zip(decided.ledgers, pools, strict=True)
    )
    return int(((decided.answer == gold) & (gold >= 0)).sum()), -tokens


@pytest.mark.slow
@pytest.mark.parametrize("score", ["recorded", "vote-share"])
@pytest.mark.parametrize("strict", [True, False])
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_fit_finds_what_trying_everything_finds(score, strict, data):
    samples = 1 if score == "recorded" else 3
    pools, _ = data.draw(scored_and_dealt(llms=3, samples=3))
    gold = np.array(
        data.draw(
            st.lists(st.integers(-1, 2), min_size=len(pools[0].sizes), max_size=len(pools[0].sizes))
        )
    )
    orders = asked_as_fit_does(pools, samples)
    chains = data.draw(st.sampled_from(["given", "permutations", "any"]))
    base = Cascade(
        samples=samples, score=score, strict=strict, chains=chains, non_decreasing=False, grid=12
    )
    # accept from nothing to everything
    deltas = ["-1/3", "0", "1/4", "1/3", "1/2", "2/3", "3/4", "1", "1.1"]
    orders_of_llms = [(0, 1, 2)]
    if chains != "given":
        orders_of_llms = [
            p
            for n in ((3,) if chains == "permutations" else (1, 2, 3))
            for p in permutations(range(3), n)
        ]
    tried = [
        judged(replace(base, order=chain, thresholds=chosen), pools, orders, gold)
        for chain in orders_of_llms
        for chosen in product(deltas, repeat=len(chain) - 1)
    ]
    costs = sorted({-cost for _, cost in tried})
    most = data.draw(st.sampled_from(costs))
    within = [result for result in tried if -result[1] <= most]
    budget = (most + 0.5) / (orders[0].shape[0] * len(gold))
    price = data.draw(st.sampled_from([0.0, 1 / 64, 1 / 16, 1.0]))  # exact in binary

    def worth(result):
        return result[0] + price * result[1], result[1]

    fitted = replace(base, budget=budget, price=price).fit(Training(pools, gold))
    assert worth(judged(fitted, pools, orders, gold)) == max(map(worth, within))


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_the_share_accepted_does_not_decrease_from_stage_to_stage(data):
    pools, _ = data.draw(scored_and_dealt(llms=3, samples=3))
    gold = np.zeros(len(pools[0].sizes), np.int64)
    base = Cascade(grid=3)
    orders = asked_as_fit_does(pools, 1)
    lists = [
        [
            written(1 - bar)
            for bar in bars(pool.scores().values.T[: orders[0].shape[0]].ravel(), 3, strict=True)[0]
        ]
        for pool in answered(pools)
    ]
    tried = [
        judged(Cascade((lists[0][i], lists[1][j])), pools, orders, gold)
        for i in range(5)
        for j in range(i, 5)
    ]
    assert judged(base.fit(Training(pools, gold)), pools, orders, gold) == max(tried)


def answered(pools):
    """The pools without the scores of CoTs that have no answer: no threshold is made of them."""
    values = [np.where(pool.codes < 0, np.nan, pool.scores().values) for pool in pools]
    return [
        replace(pool, channels=ArrayChannels({"judge": scores_of(own)}))
        for pool, own in zip(pools, values, strict=True)
    ]


def test_a_budget_in_dollars_and_one_that_nothing_meets():
    right_when_sure = (["a", "a", "b", "b"], [[0.9], [0.8], [0.2], [0.1]])
    pools = scored(right_when_sure, (["a", "a", "a", "a"], [[None]] * 4))
    fitted = Cascade().fit(Training(pools, GOLD))
    assert answers_of(fitted, pools) == ["a"] * 4
    assert in_recorded_order(fitted, pools).ledgers[1].rounds[0].tolist() == [0, 0, 1, 1]
    prices = Price(0.0, 0.0), Price(1.0, 0.0)  # a prompt of the second LLM is 20 tokens
    paid = Training(pools, GOLD, prices=prices)
    one = Cascade(budget=20e-6 / 4).fit(paid)
    assert in_recorded_order(one, pools).ledgers[1].rounds.sum() == 1
    none = Cascade(budget=19e-6 / 4).fit(paid)
    assert in_recorded_order(none, pools).ledgers[1].rounds.sum() == 0
    with pytest.raises(OutOfRangeError, match=r"1.0 tokens .* cheapest LLM alone takes 1"):
        Cascade(budget=1).fit(Training(pools, GOLD))


def test_the_last_llm_need_not_be_scored_unless_the_order_may_change():
    pools = scored((["a", "b", "a", "b"], [[1.0], [0.0], [1.0], [0.0]]), (["a"] * 4, [[None]] * 4))
    unscored = [pools[0], pools_of(["a"] * 4, ["a"] * 4)[1]]
    assert Cascade().fit(Training(unscored, GOLD)).order == (0, 1)
    with pytest.raises(NotRecordedError):
        Cascade(chains="permutations").fit(Training(unscored, GOLD))
    alone = Cascade(chains="any").fit(Training(pools[::-1], GOLD))
    assert alone.order == (0,)  # it is always right


def test_an_unfitted_cascade_refuses_to_decide():
    pools = scored((["a"] * 4, [[1.0]] * 4), (["b"] * 4, [[1.0]] * 4))
    with pytest.raises(UsageError, match="fit"):
        in_recorded_order(Cascade(), pools)
    with pytest.raises(UsageError, match="fit"):
        Cascade()("?", *pools)  # it is refused before anything is asked
    fitted = Cascade().fit(Training(pools, GOLD))
    assert fitted == Cascade(fitted.thresholds, order=(0, 1))
    assert hash(fitted) == hash(
        Cascade(list(fitted.thresholds or ()), order=[0, 1])
    )  # as JSON gives it


def test_what_cannot_be_fitted_is_said():
    pools = scored((["a"] * 4, [[1.0]] * 4), (["b"] * 4, [[1.0]] * 4))
    with pytest.raises(ShortPoolError):
        Cascade(samples=2).fit(Training(pools, GOLD))
    with pytest.raises(UsageError, match="no question"):
        Cascade().fit(Training([pool.rows(np.arange(0)) for pool in pools], GOLD[:0]))
    with pytest.raises(OutOfRangeError, match="set grid to"):
        Cascade(grid=3000).fit(Training([*pools, pools[0]], GOLD))
    unknown = [replace(pool, prompt_tokens=np.full(4, -1)) for pool in pools]
    with pytest.raises(NotRecordedError, match="prompt tokens"):
        Cascade().fit(Training(unknown, GOLD))


class Remembers:
    """A learner that knows what it has read, and of other texts nothing."""

    def fit(self, texts, features, right):
        self.known = dict(zip(texts, right, strict=True))
        return self

    def predict_proba(self, texts, features):
        return np.array([self.known.get(text, 0.5) for text in texts])


def taught(*answers, texts=None):
    """Training questions by answers of the LLMs; `a` is right, and each reply is its answer."""
    pools, number = pools_of(*answers), len(answers[0])
    replies = [[list(own) for own in questions] for questions in answers]
    texts = [f"question {q // 2}" for q in range(number)] if texts is None else texts
    gold = np.zeros(number, int)
    return Training(pools, gold, texts=texts, replies=lambda llm: replies[llm])


PAIRS = ["ab", "ab", "ba", "ba", "aa", "aa", "bb", "bb", "ab", "ab"]  # of equal questions


def test_thresholds_are_of_scores_that_saw_no_question_with_the_same_text(monkeypatch):
    monkeypatch.setattr("feval.methods.cascade.Logistic", Remembers)
    train = taught(PAIRS, ["aa"] * 10)
    blind = scored((PAIRS, [[0.5, 0.5]] * 10), (["aa"] * 10, [[None, None]] * 10))
    for budget in (30.0, 15.0):  # of both LLMs, and of the first alone
        fitted = Cascade(score="learnt", budget=budget).fit(train)
        expected = Cascade(budget=budget).fit(Training(blind, train.gold))
        assert fitted.thresholds == expected.thresholds
        # the learner that judges has read them all
        ready = fitted.predicted(train)
        said = ready.predictions.values["0"]
        assert (said == [[answer == "a" for answer in own] for own in PAIRS]).all()
        with pytest.raises(UsageError, match="by its key"):
            ready("?", *train.pools)
    unsure = replace(ready, thresholds=("1/2",)).having(predictions=ready.predictions)
    assert in_recorded_order(unsure, train.pools).ledgers[1].rounds[0].tolist() == [
        int(own[0] == "b") for own in PAIRS
    ]


def test_what_a_cascade_cannot_learn_is_said():
    learnt = Cascade(score="learnt")
    with pytest.raises(UsageError, match=r"All answers of llm0 .* are right"):
        learnt.fit(taught(["aa"] * 10, ["aa"] * 10))
    with pytest.raises(UsageError, match="5 folds need as many"):
        learnt.fit(taught(PAIRS[:4], PAIRS[:4]))
    with pytest.raises(NotRecordedError, match="texts of llm0, and none were recorded"):
        learnt.fit(replace(taught(PAIRS, PAIRS), replies=lambda _: [[None, None]] * 10))


@pytest.fixture(scope="module")
def demo():
    with bundled_recording() as folder:
        yield load("tiny_sums", recording=folder)


@pytest.mark.slow
def test_what_is_learnt_of_the_demo_is_far_too_sure_where_it_was_learnt(demo):
    """Area under the curve where the scorer has read the questions, out of fold, and elsewhere."""
    metrics = pytest.importorskip("sklearn.metrics")
    dataset, llms = demo
    train, test = (training(dataset, llms, rows) for rows in train_test_rows(dataset, 0.5))
    for llm in range(3):
        texts, _, right, whose = lesson(train, llm)
        others, _, truth, _ = lesson(test, llm)
        model = fit_learner(Logistic(), texts, [{}] * len(texts), right, whose)
        seen, blind, new = (
            metrics.roc_auc_score(*each)
            for each in (
                (right, model.predict_proba(texts, [])),
                (right, scores_out_of_fold(train, llm).ravel()),
                (truth, model.predict_proba(others, [])),
            )
        )
        assert seen > 0.9
        assert 0.45 < blind < 0.55
        assert 0.6 < new < 0.7


@pytest.mark.slow
def test_a_learnt_cascade_is_no_worse_than_the_mixture_of_its_llms(demo):
    """On the demo, at a price of 1,500 right answers per USD: 20 splits."""
    dataset, llms = demo[0], demo[1][1:]
    method, gains = Cascade(score="learnt", chains="any", price=1500), []
    for seed in range(20):
        result = evaluate(method, dataset, llms, train_fraction=0.5, split_seed=seed)
        [fit] = result.learnt
        own = training(dataset, llms, fit.rows)
        costs = [np.nanmean(cost) for cost in own.costs]
        right = [(pool.codes == own.gold[:, None]).mean() for pool in own.pools]
        paid = np.array([[result.usd_per_question]])
        line = mixture_line(paid, np.array([costs]), np.array([right])).item()
        gains.append(result.accuracy - line)
    mean, error = np.mean(gains), np.std(gains, ddof=1) / 20**0.5
    assert mean > -2 * error, f"gain over the mixture line {mean:.4f}, standard error {error:.4f}"


def test_fields_must_fit_the_llms():
    for method in (Cascade(()), Cascade((1, 1)), Cascade((0.5,), order=(0, 2))):
        with pytest.raises(UsageError):
            method.draws(2)


def test_thresholds_are_written_as_decimals_where_they_have_one():
    for text in ("0.35", "-0.25", "1/3", "0", "1", "0.10000000000000001"):
        assert written(Fraction(text)) == text
        assert Fraction(written(Fraction(0.1) + 1)) == Fraction(0.1) + 1
