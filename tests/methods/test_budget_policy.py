"""Budget policies: the induction against the best of all policies, what wins, and spending."""

import json
import logging
from collections import Counter, defaultdict
from dataclasses import replace
from itertools import permutations, product

import numpy as np
import pytest
from dealt import assert_both_forms_agree, dealt, in_recorded_order, letters_of, metered, pools_of
from hypothesis import given, settings, strategies as st
from places import SHARED

from feval.cards.billing import Price
from feval.errors import NotRecordedError, OutOfRangeError, ShortPoolError, UsageError
from feval.evaluation.evaluation import evaluate
from feval.methods import BudgetPolicy
from feval.methods.budget_induction import VIEWS, Paths, induct, keys_of
from feval.methods.protocol import Question, Training, capabilities
from feval.replay import load
from recorders.demo import bundled_recording

ROUTING = SHARED / "golden" / "routing.json"


def every_order(pools, golds, costs):
    """Paths with a row for each order in which the pools [L][Q] can be drawn."""
    rows = [
        (*orders, question)
        for question, own in enumerate(zip(*pools, strict=True))
        for orders in product(*map(permutations, own))
    ]
    *codes, question = zip(*rows, strict=True)
    codes = [np.array(own, np.int16).T for own in codes]
    each = [np.full(own.shape, float(cost)) for own, cost in zip(codes, costs, strict=True)]
    return Paths(codes, each, np.array(golds)[list(question)], np.array(question))


def best_value(paths, price, rows, asked):
    """The best of all policies that see which LLM gave which party, in order."""

    def drawn(row, numbers):
        each = zip(paths.codes, numbers, strict=True)
        return [code for own, n in each for code in own[:n, row].tolist()]

    right = 0
    for row in rows:
        votes = Counter(code for code in drawn(row, asked) if code >= 0)
        leaders = [code for code in votes if votes[code] == max(votes.values())]
        right += (paths.gold[row] in leaders) / max(len(leaders), 1) / len(rows)
    values = [right] if any(asked) else []
    for llm in range(max((i for i, n in enumerate(asked) if n), default=0), len(asked)):
        if asked[llm] < len(paths.codes[llm]):
            more = tuple(n + (i == llm) for i, n in enumerate(asked))
            branches = defaultdict(list)
            for row in rows:
                seen, known = drawn(row, more), {-1: -1}
                parties = [known.setdefault(code, len(known)) for code in seen]
                branches[tuple(parties)].append(row)
            later = sum(len(own) * best_value(paths, price, own, more) for own in branches.values())
            values.append((later - price * paths.costs[llm][asked[llm], rows].sum()) / len(rows))
    return max(values)


def test_value_of_the_induction_is_that_of_the_best_of_all_policies():
    if not ROUTING.exists():
        pytest.skip("the reference values are not on this machine")
    for case in json.loads(ROUTING.read_text())["optimal_tiny"]["cases"]:
        pools, costs = (case["small"], case["large"]), (case["cost_small"], case["cost_large"])
        paths = every_order(pools, [case["gold"]] * len(case["small"]), costs)
        value, rules = induct(paths, case["lambda"], VIEWS[:1], 1)
        assert value == pytest.approx(case["optimal_value"], abs=1e-12)
        for plan, expected in case["fixed_plans"].items():
            asked = plan.count("S"), plan.count("L")
            worth = paths.seen(asked).right.mean() - case["lambda"] * np.dot(asked, costs)
            assert worth == pytest.approx(expected, abs=1e-12)
        rows = np.arange(len(paths.gold))
        played = paths.play(rules, rows)
        worth = played.right - case["lambda"] * played.cost
        assert worth.mean() == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_no_policy_on_a_small_recording_is_worth_more(seed):
    draw = np.random.default_rng(seed)
    sizes = [(3, 2), (2, 2), (2, 1, 2), (3,)][seed % 4]
    pools = [draw.integers(-1, 3, (4, size)).tolist() for size in sizes]
    paths = every_order(pools, draw.integers(-1, 3, 4), draw.uniform(0.5, 4, len(sizes)))
    price = draw.uniform(0, 0.1)
    value, rules = induct(paths, price, VIEWS[:1], 1)
    rows = np.arange(len(paths.gold))
    assert value == pytest.approx(best_value(paths, price, rows, (0,) * len(sizes)), abs=1e-12)
    # those that it came to are enough
    played = paths.play(rules, rows)
    assert (paths.play(played.used, rows).asked == played.asked).all()


def test_a_state_of_too_few_questions_is_taken_as_a_coarser_one():
    # after two CoTs: aa on questions 0 to 2, ab on 3, -- on 4; every draw of a question is the same
    codes = np.array([[0, 0, 0, 0, -1], [0, 0, 0, 1, -1]], np.int16)
    question = np.repeat(np.arange(5), 7)
    paths = Paths([codes[:, question]], [np.ones((2, 35))], np.zeros(35, np.int64), question)
    groups = paths.groups((2,), VIEWS[:3], 2)
    # aa has three questions; ab and -- differ in parties and in counts, and are no unanimity both
    assert groups.of_row[::7].tolist() == [groups.of_row[0]] * 3 + [groups.of_row[-1]] * 2
    assert {key[0] for key in groups.keys} == {"parties", "unanimity"}
    assert len(paths.groups((2,), VIEWS[:3], 1).keys) == 3


@settings(deadline=None)
@given(given=dealt(llms=2, samples=4), data=st.data())
def test_both_forms_agree_on_any_policy(given, data):
    pools, orders = given
    some = st.tuples(*[st.integers(0, 3)] * 3, st.integers(0, 1))
    codes = [pool.codes.T for pool in pools]
    paths = Paths(codes, [], codes[0][0], codes[0][0])
    policy = [("plan", 0, (0, 0), (), data.draw(st.integers(0, 1)))]
    for view, small, large, llm in data.draw(st.lists(some, max_size=12)):
        policy.append((*paths.keys((small, large), 0)[view], max(llm, int(large > 0))))
    method = BudgetPolicy(policies=((1.0, tuple(policy)),))
    assert_both_forms_agree(method, pools, orders)


def questions(count, seed=0):
    """Training on which the small LLM is right on two questions of three and guesses on the others,
    and a large one at 20 times the cost is always right.
    """
    draw = np.random.default_rng(seed)
    small = [
        ["a"] * 6 if row % 3 else [chr(98 + c) for c in draw.permutation(20)[:6]]
        for row in range(count)
    ]
    tokens = [np.full((count, 6), 1), np.full((count, 6), 20)]
    pools = pools_of(small, [["a"] * 6] * count, tokens=tokens)
    pools = [replace(pool, prompt_tokens=np.zeros(count, np.int64)) for pool in pools]
    features = [{"kind": "easy" if row % 3 else "hard"} for row in range(count)]
    own = {"texts": [""] * count, "features": features, "prices": [Price(0, 1e6)] * 2}
    return Training(pools, np.zeros(count, np.int64), **own)


def test_what_agreement_is_worth_is_learnt():
    train = questions(30)
    method = BudgetPolicy(price=0.005, samples=2).fit(train)
    assert method.fitted
    decided = in_recorded_order(method, train.pools)
    small, large = decided.ledgers
    hard = np.arange(30) % 3 == 0
    assert small.cots[0].tolist() == [2] * 30
    # three different answers are no majority, and a fourth CoT is worth its cost
    assert (large.cots[0] == 2 * hard).all()
    assert letters_of(decided.answer[0]) == ["a"] * 30
    [(cost, _)] = method.policies
    assert cost == pytest.approx((small.output_tokens + large.output_tokens).mean())
    for price, samples, plan in ((0.005, 1, (0, 1)), (1, 2, (1, 0))):
        method = BudgetPolicy(price=price, samples=samples).fit(train)
        ledgers = in_recorded_order(method, train.pools).ledgers
        assert np.array([own.cots[0] for own in ledgers]).T.tolist() == [list(plan)] * 30


def test_prompts_are_paid_as_the_evaluation_bills_them():
    train = questions(30)
    pools = [replace(pool, prompt_tokens=np.full(30, 1)) for pool in train.pools]
    paid = []
    for billing, prompts in (("once", "asked"), ("per_round", "rounds"), ("per_sample", "cots")):
        given = replace(train, pools=pools, prices=[Price(1e6, 1e6)] * 2, billing=billing)
        method = BudgetPolicy(price=0.005, samples=2, states="counts").fit(given)
        ledgers = in_recorded_order(method, pools).ledgers
        counts = {"asked": [own.rounds > 0 for own in ledgers]}
        counts |= {name: [getattr(own, name) for own in ledgers] for name in ("rounds", "cots")}
        costs = sum(counts[prompts]) + sum(own.output_tokens for own in ledgers)
        [(cost, _)] = method.policies
        assert cost == pytest.approx(costs.mean())
        paid.append(cost)
    assert paid[0] < paid[1] == paid[2]


def test_predicted_difficulty_is_part_of_the_state():
    train = questions(30)
    method = BudgetPolicy(price=0.005, samples=2, difficulty="mean", feature="kind", bins=2).fit(
        train
    )
    method = method.predicted(train)
    small, large = in_recorded_order(method, train.pools).ledgers
    hard = np.arange(30) % 3 == 0
    assert (large.cots[0] == hard).all()
    assert (small.cots[0] == ~hard).all()
    for row in range(2):
        llms = [metered(pool, row, range(2)) for pool in train.pools]
        assert method(Question("", key=int(train.keys[row])), *llms) == "a"
        assert [llm.cots for llm in llms] == [row, 1 - row]


def spent_by_hand(method, train, orders, budget):
    """[Q] CoTs of each LLM in one run, told one question and one CoT at a time."""
    tables = [(cost, {own[:4]: own[4] for own in rules}) for cost, rules in method.policies]
    left, result = budget, []
    for row in range(len(train.gold)):
        share = left / (len(train.gold) - row)
        table = [own for cost, own in tables if cost <= share or own is tables[0][1]][-1]
        asked, votes = (0, 0), defaultdict(lambda: [0, 0])
        while True:
            keys = keys_of(asked, votes.values())
            llm = next((table[key] for key in keys if key in table), -1)
            if llm < 0 or method.limits[llm] > left:
                break
            place = orders[llm][row, asked[llm]]
            left -= train.costs[llm][row, place]
            asked = tuple(n + (i == llm) for i, n in enumerate(asked))
            votes[int(train.pools[llm].codes[row, place])][llm] += 1
        result.append(asked)
    return result, left


def test_a_budget_is_spent_question_by_question(caplog):
    train = questions(40)
    fitted = BudgetPolicy(total_budget=1, samples=2).fit(train).predicted(train)
    for budget in (40.0, 80.0, 200.0, 500.0, 5000.0):
        method = replace(fitted, total_budget=budget).having(predictions=fitted.predictions)
        assert capabilities(method).whole_set
        assert not capabilities(BudgetPolicy(price=1)).whole_set
        places = np.tile(np.arange(6, dtype=np.uint16), (2, 3, 40, 1))
        orders = np.random.default_rng(int(budget)).permuted(places, axis=-1)[..., :2]
        decided = method.decide(train.pools, orders)
        cots = np.stack([ledger.cots for ledger in decided.ledgers], axis=-1)
        for replicate in range(3):
            expected, left = spent_by_hand(method, train, orders[:, replicate], budget)
            assert [tuple(own) for own in cots[replicate].tolist()] == expected
            assert left >= 0
        # what was not drawn is not looked at
        values = dict(method.predictions.values)
        for llm, order in enumerate(orders):
            read = np.zeros((40, 6), bool)
            for replicate, row in np.ndindex(3, 40):
                read[row, order[replicate, row, : cots[replicate, row, llm]]] = True
            values[f"request {llm}"] = np.where(read, values[f"request {llm}"], np.nan)
        blind = method.having(predictions=replace(method.predictions, values=values))
        assert (blind.decide(train.pools, orders).answer == decided.answer).all()
    assert not caplog.records
    # in training no CoT cost as much: the last ones overrun the budget
    dear = {name: own * 30 for name, own in method.predictions.values.items()}
    dear = method.having(predictions=replace(method.predictions, values=dear))
    with caplog.at_level(logging.WARNING):
        dear.decide(train.pools, orders)
    assert "3 of 3 runs of the budget policy cost more than their budget of 5000" in caplog.text
    nothing = in_recorded_order(method, [pool.rows(np.arange(0)) for pool in train.pools])
    assert nothing.answer.shape == (1, 0)
    with pytest.raises(UsageError, match="has only the batch form"):
        method("?", None, None)
    poor = replace(method, total_budget=39.0).having(predictions=method.predictions)
    with pytest.raises(OutOfRangeError, match=r"39 for 40 questions is 0.975 for each"):
        poor.decide(train.pools, orders)


def test_nonsense_is_a_sentence():
    train = questions(12)
    for wrong, error, words in (
        ({}, UsageError, "price=None and total_budget=None were given"),
        ({"price": 1, "total_budget": 1}, UsageError, "price=1.0 and total_budget=1.0"),
        ({"price": 1, "least_questions": 13}, UsageError, "from 13 questions or more .* 12 are"),
        ({"price": 1, "samples": 40}, OutOfRangeError, "in 1,681 ways"),
        ({"price": 1, "samples": 7}, ShortPoolError, "needs 7"),
        ({"price": 1, "difficulty": "mean"}, UsageError, "takes means over groups"),
    ):
        with pytest.raises(error, match=words):
            BudgetPolicy(**wrong).fit(train)
    pools = [train.pools[0], replace(train.pools[1], prompt_tokens=np.full(12, -1))]
    unknown = replace(train, pools=pools, prices=())
    with pytest.raises(NotRecordedError, match="cost of 72 CoTs of llm1 is not known"):
        BudgetPolicy(price=1).fit(unknown)
    with pytest.raises(UsageError, match="has learnt nothing yet"):
        in_recorded_order(BudgetPolicy(price=1), train.pools)
    method = BudgetPolicy(price=1).fit(train)
    with pytest.raises(UsageError, match="decides among 2 LLMs; 1 were given"):
        method.draws(1)
    for asked, llm in (((0, 4), 1), ((0, 1), 0), ((0, 0), 2)):
        with pytest.raises(UsageError, match=f"4, 4 CoTs asks LLM {llm}"):
            replace(method, policies=((1.0, (("plan", 0, asked, (), llm),)),))


@pytest.mark.slow
def test_what_wins_out_of_fold_is_worth_no_less_than_full_states_which_overfit():
    worth = []
    with bundled_recording() as recording:
        dataset, llms = load("tiny_sums", ["feval/tiny-42k", "feval/tiny-160k"], recording)
        for fields in ({}, {"states": "parties", "least_questions": 1}):
            method, split = BudgetPolicy(price=1500, **fields), {"train_fraction": 0.5}
            runs = [
                evaluate(method, dataset, llms, **split, split_seed=seed, replicates=20)
                for seed in range(20)
            ]
            worth.append(np.mean([run.accuracy - 1500 * run.usd_per_question for run in runs]))
    assert worth[0] >= worth[1]
