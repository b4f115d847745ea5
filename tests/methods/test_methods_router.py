"""The router: published figures, naive Python, all prices against brute force, and refusals."""

import json
from dataclasses import replace

import numpy as np
import pytest
import routed
from places import read_data
from recorded_pools import Recorded, pool_of

from feval import errors
from feval.cards.billing import Price
from feval.errors import NotRecordedError, UsageError
from feval.estimators.routing import apgr, routing_line
from feval.methods import Router
from feval.methods.learners import GroupMean, deal_folds, out_of_fold
from feval.methods.protocol import Question, Training

PRICES = Price(0, 1.0), Price(0, 3.0)  # USD per million output tokens


def training(right, tokens, texts=None, features=None, prices=PRICES, **changed):
    """Questions with right [L, Q] or [L, Q, S] CoTs of so many tokens each."""
    right = np.array(right)
    right = right.reshape(*right.shape[:2], -1)
    count = right.shape[1]
    pools = [
        replace(
            pool_of(np.where(own > 0, 1, 0)),
            llm=name,
            output_tokens=np.full(own.shape, size, np.int64),
        )
        for own, size, name in zip(right, tokens, ("small", "large", "largest"), strict=False)
    ]
    given = {
        "gold": np.ones(count, np.int64),
        "texts": texts or [""] * count,
        "features": features or [{}] * count,
        "prices": prices,
    }
    return Training(pools, **given | changed)


def some(train, rows):
    pools = [pool.rows(rows) for pool in train.pools]
    texts, features = ([own[row] for row in rows] for own in (train.texts, train.features))
    return replace(train, pools=pools, gold=train.gold[rows], texts=texts, features=features)


@pytest.fixture(scope="module")
def gsm8k(shared):
    texts, right = routed.gsm8k(shared)
    features = [{"length": str(len(text))} for text in texts]
    whole = training(right, (3, 100), texts, features, (Price(0, 100.0), Price(0, 100.0)))
    return [some(whole, np.arange(start, len(texts), 2)) for start in (0, 1)]


def apgr_of(method, questions):
    routes = method.predicted(questions).routes(questions.keys)
    right = np.array([pool.codes[:, 0] == 1 for pool in questions.pools]) / 1.0
    return float(apgr(routing_line(routes, right, np.stack(questions.costs)[:, :, 0]))[0])


def test_routers_of_gsm8k_are_those_of_the_reference(gsm8k, shared):
    train, test = gsm8k
    golden = json.loads((shared / "golden" / "routing.json").read_text("utf-8"))
    golden = golden["routers_even_odd"]["gsm8k"]
    logistic = Router().fit(train)
    found = apgr_of(logistic, test)
    assert found == pytest.approx(golden["tfidf_logistic_difference"]["apgr"], abs=0.001)
    in_sample = golden["tfidf_logistic_difference"]["apgr_in_sample"]
    assert apgr_of(logistic, train) == pytest.approx(in_sample, abs=0.005)
    length = apgr_of(Router("score", "length").fit(train), test)
    assert length == pytest.approx(golden["length"]["apgr"], abs=1e-9)
    assert found < length
    knn = apgr_of(Router("knn").fit(train), test)
    assert knn == pytest.approx(golden["tfidf_knn40_gain"]["apgr"], abs=1e-6)


RIGHT = [[1, 0, 0, 1, 0, 0], [1, 1, 1, 0, 1, 1], [0, 1, 0, 1, 1, 1]]
GROUPS = [{"group": name} for name in "aabbcc"]


def naive(quality, costs, price):
    """For each question the LLM of the largest q - price x c, the cheaper among equals."""
    return [
        max(range(len(q)), key=lambda i: (round(q[i] - price * c[i], 12), -c[i]))
        for q, c in zip(quality, costs, strict=True)
    ]


@pytest.mark.parametrize("price", [0, 0.4e6, 0.5e6, 1e6, -1e6])
@pytest.mark.parametrize("llms", [2, 3])
def test_a_question_goes_to_the_llm_of_the_best_value(price, llms):
    prices = (*PRICES, Price(0, 4.0))[:llms]
    train = training(RIGHT[:llms], [1] * llms, features=GROUPS, prices=prices)
    method = Router("mean", "group", price=price).fit(train).predicted(train)
    means = np.repeat(np.array(RIGHT[:llms]).reshape(llms, 3, 2).mean(axis=2), 2, axis=1).T
    costs = [[each.output_usd_per_mtok * 1e-6 for each in prices]] * 6
    said = method.predictions.values
    np.testing.assert_allclose(said["quality"], means)
    np.testing.assert_allclose(said["cost"], costs)
    expected = naive(means, costs, price)
    orders = [np.zeros((2, 6, 1), np.uint16)] * llms
    decided = method.decide(train.pools, orders)
    assert decided.answered_by.tolist() == [expected] * 2
    assert decided.answer.tolist() == [[RIGHT[at][row] for row, at in enumerate(expected)]] * 2
    for row, place in enumerate(expected):
        asked = [Recorded([str(own[row])]) for own in RIGHT[:llms]]
        key = int(train.keys[row])
        assert method(Question("?", key=key), *asked) == str(RIGHT[place][row])
        assert [llm.cots for llm in asked] == [int(i == place) for i in range(llms)]


def test_the_expectation_is_the_mean_over_the_cots_of_the_chosen_llm():
    right = np.random.default_rng(1).integers(0, 2, (2, 6, 4))
    train = training(right, (1, 1), features=GROUPS)
    method = Router("mean", "group", price=1e5).fit(train).predicted(train)
    found = method.among(train.pools, list(right / 1.0), [])
    each = [
        method.decide(train.pools, [np.full((1, 6, 1), place, np.uint16)] * 2) for place in range(4)
    ]
    hits = np.mean([one.answer[0] == 1 for one in each], axis=0)
    np.testing.assert_allclose(sum(own.right for own in found), hits)
    for own, place in zip(found, range(2), strict=True):
        np.testing.assert_array_equal(own.cots, each[0].ledgers[place].cots[0])
        np.testing.assert_array_equal(own.output_tokens, each[0].ledgers[place].output_tokens[0])


def test_the_largest_scores_go_to_the_dearer_llm_wherever_it_stands():
    features = [{"length": str(size)} for size in (3, 9, 5, 5)]
    for dearer in (0, 1):
        tokens = (9, 1) if dearer == 0 else (1, 9)
        train = training(np.array(RIGHT)[:2, :4], tokens, features=features)
        method = Router("score", "length", price=5).fit(train).predicted(train)
        sent = method.chosen(None)
        assert (sent == dearer).tolist() == [False, True, False, False]
        routes = method.routes(None)
        assert routes.first.tolist() == [1 - dearer] * 4
        assert routes.after.tolist() == [dearer] * 4
        assert routes.score.tolist() == [3, 9, 5, 5]


@pytest.mark.parametrize("budget", [1e-6, 1.4e-6, 1.8e-6, 2.5e-6, 1])
def test_a_budget_finds_the_price_that_is_right_most_often_out_of_fold(budget):
    rng = np.random.default_rng(3)
    groups = rng.integers(0, 4, 60)
    right = (rng.random((2, 60)) < [0.2 + 0.2 * groups, np.full(60, 0.8)]) * 1
    features = [{"group": str(own)} for own in groups]
    train = training(right, (1, 1), features=features, texts=[f"q{i}" for i in range(60)])
    method = Router("mean", "group", budget=budget).fit(train)
    folds = deal_folds(train.texts, 5)
    quality = np.stack(
        [
            out_of_fold(lambda: GroupMean("group"), train.texts, features, own / 1.0, folds, "")
            for own in right
        ]
    )
    gain = (quality[1] - quality[0]) / 2e-6

    def reached(bar):
        up = gain > bar
        return np.where(up, right[1], right[0]).mean(), -np.where(up, 3e-6, 1e-6).mean()

    bars = np.concatenate([[-1e9], np.unique(gain)])
    best = max(own for own in map(reached, bars) if -own[1] <= budget * (1 + 1e-9))
    assert reached(method.price) == pytest.approx(best)


@pytest.mark.parametrize(
    ("fields", "changed", "error", "message"),
    read_data("methods.json")["what a router cannot learn"],
)
def test_what_cannot_be_learnt_is_refused_with_the_reason(fields, changed, error, message):
    given = {name: np.array(value) for name, value in changed.items()}
    train = training(RIGHT[:2], (1, 1), features=GROUPS, **given)
    if message is None:  # all of one class
        train = training([[1] * 6, RIGHT[1]], (1, 1), features=GROUPS)
        message = "All answers of small to the 6 training questions are right"
    with pytest.raises(getattr(errors, error), match=message):
        method = Router(**fields).fit(train)
        method.predicted(train)


def test_a_router_needs_costs_and_what_it_has_learnt():
    train = training(RIGHT[:2], (1, 1), features=GROUPS)
    lacking = [replace(pool, prompt_tokens=np.full(6, -1)) for pool in train.pools]
    unpaid = replace(train, pools=lacking, prices=(Price(1, 1), Price(1, 1)))
    with pytest.raises(NotRecordedError, match="What a call of small costs is not known"):
        Router("mean", "group").fit(unpaid)
    with pytest.raises(UsageError, match="decides by what it has learnt"):
        Router().chosen(train.keys)
    fitted = Router("mean", "group").fit(train).predicted(train)
    with pytest.raises(UsageError, match="says nothing of 1 of 1 questions"):
        fitted.chosen(np.array([5], np.uint64))
    with pytest.raises(UsageError, match="which it knows by its key"):
        fitted("a plain text", Recorded(["1"]), Recorded(["1"]))
    for llms in (1, 3):
        with pytest.raises(UsageError, match=f"between two.*; {llms} w"):
            Router("score", "length").draws(llms)
