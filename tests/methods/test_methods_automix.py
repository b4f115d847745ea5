"""AutoMix's rules, what they learn, and the cost of verification."""

import json
import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from dealt import answers_of, in_recorded_order, letters_of, pools_of, scores_of
from hypothesis import assume, given, strategies as st
from scipy.stats import gaussian_kde

from feval.errors import NotRecordedError, OutOfRangeError, UsageError
from feval.methods import AutoMix
from feval.methods.automix import Seen, outcome as outcome_of, states_of, tables_of
from feval.methods.protocol import STATED, Training
from feval.replay.pools import ArrayChannels


def verified(answers, values, tokens=4):
    """A small LLM with a verification of each of its CoTs, one per question, and a large one that
    says z.
    """
    table = np.array(values, np.float64)[:, None]
    channels = [ArrayChannels({"self": scores_of(table, tokens=tokens)}), ArrayChannels()]
    return pools_of(list(answers), ["z"] * len(answers), channels=channels)


def test_an_answer_is_kept_at_the_threshold_in_the_paper_and_not_in_its_code():
    pools = verified(["a", "b", "c", [None]], [0.75, 0.5, math.nan, 1.0])
    assert answers_of(AutoMix(0.75), pools) == ["a", "z", "z", "z"]
    assert answers_of(AutoMix(0.75, strict=True), pools) == ["z"] * 4
    assert answers_of(AutoMix(0), pools) == ["a", "b", "z", "z"]


def test_a_mean_of_verifications_reaches_the_fraction_that_it_is():
    steps = {(0, 0): np.array([1.0, 0.0, 0.0]), (1, 0): np.array([1.0, 1.0, 0.0])}
    scores = scores_of(np.full((2, 1), math.nan), steps)
    pools = pools_of(
        ["a", "b"], ["z", "z"], channels=[ArrayChannels({"self": scores}), ArrayChannels()]
    )
    for threshold, expected in (
        ("1/3", ["a", "b"]),
        ("0.34", ["z", "b"]),
        ("2/3", ["z", "b"]),
        (0.67, ["z", "z"]),
    ):
        assert answers_of(AutoMix(threshold, aggregate="mean"), pools) == expected


def test_verification_is_billed_to_the_small_llm_wherever_there_was_an_answer_to_verify():
    pools = verified(["a", "b", [None]], [1.0, 0.0, 0.5])
    small, large = in_recorded_order(AutoMix(), pools).ledgers
    assert small.rounds.tolist() == [[1, 1, 1]]
    assert large.rounds.tolist() == [[0, 1, 1]]
    for taken, expected in (
        (small.auxiliary_calls, [[1, 1, 0]]),
        (small.auxiliary_prompt_tokens, [[4, 4, 0]]),
        (small.auxiliary_output_tokens, [[4, 4, 0]]),
    ):
        assert taken.tolist() == expected
    assert large.auxiliary_calls is None


def test_verification_may_cost_what_the_answer_did_as_in_the_paper():
    pools = verified(["a", "b", [None]], [1.0, 0.0, 0.5], tokens=-1)
    small, _ = in_recorded_order(AutoMix(verification="as-answer"), pools).ledgers
    prompts, outputs = small.auxiliary_prompt_tokens, small.auxiliary_output_tokens
    assert prompts.tolist() == [[10, 10, 0]]
    assert outputs.tolist() == [[*pools[0].output_tokens[:2, 0].tolist(), 0]]
    unknown = replace(pools[0], prompt_tokens=np.array([10, -1, 10]))
    with pytest.raises(NotRecordedError, match="prompt tokens of the small LLM"):
        in_recorded_order(AutoMix(verification="as-answer"), [unknown, pools[1]])


def test_verifications_of_unknown_cost_are_not_passed_over_in_silence():
    pools = verified(["a", "b"], [1.0, 0.0], tokens=-1)
    with pytest.raises(NotRecordedError):
        in_recorded_order(AutoMix(), pools)
    free = in_recorded_order(AutoMix(verification="free"), pools)
    assert letters_of(free.answer[0]) == ["a", "z"]
    assert free.ledgers[0].auxiliary_calls is None
    with pytest.raises(NotRecordedError, match="no scores"):
        in_recorded_order(AutoMix(), pools_of(["a"], ["b"]))


def test_it_takes_two_llms_and_with_beliefs_up_to_four():
    for rule, llms in (("threshold", 1), ("threshold", 3), ("pomdp", 1), ("pomdp", 5)):
        with pytest.raises(UsageError, match=f"AutoMix asks .*; {llms} w"):
            AutoMix(rule=rule).draws(llms)
    for plan in ([[0.5, 2]], [[0.5, 0]], [[0.5, 1, 0.5, 1]], [[0.5, 1.5]], [[0.5, None]]):
        with pytest.raises(UsageError, match="later and later LLMs"):
            AutoMix(rule="pomdp", plan=plan).draws(2)


# Of one question with one CoT each: whether the small LLM is right, whether the large one is, and
# the level of the verification; `None` for none.
QUARTERS = st.one_of(st.none(), st.integers(0, 4).map(lambda quarter: quarter / 4))
SEEN = st.lists(st.tuples(st.booleans(), st.booleans(), QUARTERS), min_size=2, max_size=9)


def learnt_from(seen, large=20):
    """Training questions; a CoT of the small LLM costs 1, and so does verifying it."""
    values = np.array([[math.nan if v is None else v] for *_, v in seen])
    channels = [ArrayChannels({"self": scores_of(values, tokens=7)}), ArrayChannels()]
    answers = (["ba"[small] for small, *_ in seen], ["ca"[right] for _, right, _ in seen])
    ones = np.ones((len(seen), 1), int)
    small, other = pools_of(*answers, tokens=[ones, ones], channels=channels)
    free = np.zeros(len(seen), int)
    pools = replace(small, prompt_tokens=free), replace(other, prompt_tokens=free + large - 1)
    return Training(pools, gold=free)


def sent_up(seen, levels):
    """Accuracy and mean cost where some levels ask the large LLM, at 20."""
    right = [large if v in levels else small for small, large, v in seen]
    return sum(right) / len(seen), 2 + 20 * sum(v in levels for *_, v in seen) / len(seen)


def outcome(method, train):
    decided = in_recorded_order(method, train.pools)
    _, large = decided.ledgers
    return (decided.answer == 0).mean(), 2 + 20 * large.rounds.mean()


def benefit_per_cost(outcome, seen):
    return (outcome[0] - sum(small for small, *_ in seen) / len(seen)) / (outcome[1] - 1)


def best_lift(tried, seen):
    return max(benefit_per_cost(each, seen) for each in tried)


def test_counts_of_levels_as_in_the_reference(shared):
    golden = json.loads((shared / "golden/routing.json").read_text("utf-8"))["automix_levels"]
    seen = [
        (state >= 2, state % 2 == 1, level / 4)
        for state, row in enumerate(golden["counts"])
        for level, count in enumerate(row)
        for _ in range(count)
    ]
    train = learnt_from(seen)
    base = (golden["large"] - golden["small"]) / 19
    free = AutoMix(None, verification="as-answer")
    for rule, budget, levels, reached in (
        ("pomdp", None, {1}, (0.665, 4.7)),
        ("threshold", None, {0, 1, 2}, (0.72, 11.4)),
        ("pomdp", 8.4, {1, 2}, (0.705, 7.7)),
        ("threshold", 8.4, {0, 1}, (0.68, 8.4)),
    ):
        fitted = replace(free, rule=rule, budget=budget).fit(train)
        assert outcome(fitted, train) == pytest.approx(reached)
        assert sent_up(seen, {level / 4 for level in levels}) == pytest.approx(reached)
        if budget is None:
            lift = 100 * (benefit_per_cost(outcome(fitted, train), seen) / base - 1)
            assert lift == pytest.approx(golden[f"best_lift_{rule}"][0])


@given(seen=SEEN)
def test_the_largest_benefit_per_cost_is_that_of_all_sets_of_levels(seen):
    assume(len({(small, large) for small, large, _ in seen}) > 1)
    train, known = learnt_from(seen), sorted({v for *_, v in seen if v is not None})
    levels = [*known, None]
    sets = [{v for v, up in zip(levels, chosen, strict=True) if up}
            for chosen in product([False, True], repeat=len(levels))]  # fmt: skip
    fitted = AutoMix(rule="pomdp", verification="as-answer").fit(train)
    # an answer without a verification costs a verification, too
    tried = [sent_up(seen, each) for each in sets]
    assert benefit_per_cost(outcome(fitted, train), seen) == pytest.approx(best_lift(tried, seen))
    threshold = AutoMix(None, verification="as-answer").fit(train)
    tried = [sent_up(seen, {None, *known[:n]}) for n in range(len(known) + (known[-1:] != [1.0]))]
    assert benefit_per_cost(outcome(threshold, train), seen) == pytest.approx(
        best_lift(tried, seen)
    )


@given(data=st.data())
def test_backward_induction_is_the_best_of_all_policies(data):
    """Three LLMs, two levels: every policy, state by state."""
    numbers = st.lists(st.integers(0, 4), min_size=8, max_size=8)
    seen = []
    for llm in range(3):
        width = 1 if llm == 2 else 2
        mass = np.array([data.draw(numbers) for _ in range(3)])[:, : 2 * width] + 0.1
        mass = (mass / mass.sum(axis=1, keepdims=True)).reshape(3, 2, width)
        seen.append(Seen(np.arange(width) / 1.0, mass, np.full(3, 1.0 + llm)))
    weights, of_state = states_of(seen, "levels")
    price = data.draw(st.sampled_from([0.0, 0.01, 0.05, 0.2]))

    def worth(policy):
        total = 0.0
        for z, p in zip(product((0, 1), repeat=3), weights, strict=True):
            for levels in product((0, 1), (0, 1)):
                weight = p
                for llm, level in enumerate(levels):
                    weight *= of_state[llm].mass[4 * z[0] + 2 * z[1] + z[2], :, level].sum()
                path, llm, cost = (), 0, 1.0
                while llm < 2:
                    path = (*path, llm, levels[llm])
                    after = policy[path]
                    if after == llm:
                        break
                    llm, cost = after, cost + 1 + after
                total += weight * (z[llm] - price * cost)
        return total

    paths = [(0, v) for v in (0, 1)] + [(0, v, 1, w) for v, w in product((0, 1), repeat=2)]
    choices = [range(path[-2], 3) for path in paths]
    best = max(worth(dict(zip(paths, chosen, strict=True))) for chosen in product(*choices))
    tables = tables_of(weights, of_state)
    found = outcome_of(tables, price=price)
    assert found.worth(price) == pytest.approx(best, abs=1e-12)
    assert outcome_of(tables, found.plan).worth(price) == pytest.approx(best, abs=1e-12)


@given(seen=SEEN)
def test_densities_are_those_of_scipy(seen):
    seen = [each for each in seen if each[2] is not None]
    assume(len({each[:2] for each in seen}) > 1)
    levels = np.unique([v for *_, v in seen])
    mass = np.zeros((len(seen), 2, len(levels)))
    for row, (small, _, v) in enumerate(seen):
        mass[row, int(small), np.searchsorted(levels, v)] = 1
    large = np.array([[[1.0 - right], [right]] for _, right, _ in seen])
    ones = np.ones(len(seen))
    both = [Seen(levels, mass, ones), Seen(np.array([np.nan]), large, ones)]
    weights, (first, _) = states_of(both, "kde")
    for at, z in enumerate(product((False, True), repeat=2)):
        values = [v for *state, v in seen if tuple(state) == z]
        assert weights[at] == pytest.approx(len(values) / len(seen))
        if len(set(values)) > 1:
            density = gaussian_kde(values)(levels)
            assert first.mass[at, int(z[0])] == pytest.approx(density / density.sum())


def test_a_plan_goes_by_the_nearest_level_and_further_where_there_is_none():
    pools = verified(["a", "b", "c", "d", [None]], [0.1, 0.4, 0.45, math.nan, 0.9])
    plan = [[0.2, 1], [0.6], [0.9, 1]]
    assert answers_of(AutoMix(rule="pomdp", plan=plan), pools) == ["z", "z", "c", "z", "z"]
    assert answers_of(AutoMix(rule="pomdp", plan=[[0.5], [None]]), pools)[3:] == ["d", None]


def test_where_verification_is_free_the_level_that_gains_most_is_asked_about():
    train = learnt_from([(False, True, 0.1), (True, True, 0.1), (False, True, 0.2)] * 3)
    fitted = AutoMix(rule="pomdp", verification="free").fit(train)
    assert fitted.plan == ((0.1,), (0.2, 1))


def test_what_cannot_be_learnt_is_said():
    train = learnt_from([(True, False, 0.5), (False, True, 0.25)])
    pomdp = AutoMix(rule="pomdp")
    with pytest.raises(UsageError, match="what it has learnt"):
        in_recorded_order(pomdp, train.pools)
    with pytest.raises(NotRecordedError, match="state what they cost, and verifications do not"):
        pomdp.fit(replace(train, prices=[STATED] * 2))
    with pytest.raises(NotRecordedError, match="no scores"):
        pomdp.fit(replace(train, pools=[train.pools[1]] * 2))
    with pytest.raises(UsageError, match="no question"):
        none = [pool.rows(np.arange(0)) for pool in train.pools]
        pomdp.fit(replace(train, pools=none, gold=train.gold[:0]))
    with pytest.raises(UsageError, match="the same LLMs are right"):
        pomdp.fit(learnt_from([(True, False, 0.5)] * 3))
    with pytest.raises(OutOfRangeError, match=r"1.5 tokens per question; .* takes 15"):
        replace(pomdp, budget=1.5).fit(train)
    unknown = [replace(pool, prompt_tokens=np.full(2, -1)) for pool in train.pools]
    with pytest.raises(NotRecordedError, match="prompt tokens"):
        pomdp.fit(replace(train, pools=unknown))
