"""ModelSwitch: the gate, the weights, the vote, and where the reference package's example goes
wrong.
"""

from collections import Counter
from fractions import Fraction
from itertools import groupby
from math import log

import numpy as np
import pytest
from dealt import answers_of, in_recorded_order, letters_of, pools_of
from golden_cascades import sampled_orders
from golden_methods import Real
from hypothesis import given, strategies as st
from scipy.stats import entropy
from small import letters

from feval.errors import UsageError
from feval.methods import ModelSwitch
from feval.methods.model_switch import consistency_weight
from feval.methods.vote import weighted_plurality, weighted_plurality_codes


@given(st.lists(st.integers(1, 9), min_size=2, max_size=9))
def test_the_weight_is_the_papers_with_scipys_entropy(counts):
    n = sum(counts)
    for normaliser, base in (("distinct", len(counts)), ("samples", n)):
        expected = 1 / n + (1 - 1 / n) * (1 - entropy(counts, base=base))
        assert consistency_weight(counts, normaliser) == pytest.approx(expected, abs=1e-12)


def test_the_weight_of_one_answer_and_of_none():
    for normaliser in ("distinct", "samples"):
        assert consistency_weight([1], normaliser) == consistency_weight([7], normaliser) == 1
        assert consistency_weight([], normaliser) == 0


def test_the_first_llm_that_agrees_with_itself_decides_and_later_ones_cost_nothing():
    pools = pools_of(["aab", "bbb", "abc"], ["ccc", "aaa", "bbb"], ["aaa", "aaa", "aaa"])
    decided = in_recorded_order(ModelSwitch(3), pools)
    assert letters_of(decided.answer[0]) == ["c", "b", "b"]
    assert [ledger.rounds[0].tolist() for ledger in decided.ledgers] == [
        [1, 1, 1],
        [1, 0, 1],
        [0, 0, 0],
    ]
    assert decided.ledgers[1].output_tokens[0].tolist() == [1 + 2 + 3, 0, 7 + 1 + 2]


def test_a_missing_answer_prevents_the_stop_unless_only_answers_count():
    pools = pools_of(letters("a-a", "---"), ["bbb", "ccc"])
    assert answers_of(ModelSwitch(3), pools) == ["b", "c"]
    assert answers_of(ModelSwitch(3, gate="answered"), pools) == ["a", "c"]


def test_ties_go_to_the_llm_asked_first():
    pools = pools_of(["ab", "ba"], ["ba", "ab"])
    assert answers_of(ModelSwitch(2), pools) == ["a", "b"]


def test_external_weights_decide_between_llms():
    pools = pools_of(["aab"], ["bbc"])
    assert answers_of(ModelSwitch(3, weights=(1.0, 1.0)), pools) == ["b"]
    assert answers_of(ModelSwitch(3, weights=(9.0, 1.0)), pools) == ["a"]


@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b", "c", None]), st.integers(0, 4)), min_size=1, max_size=8
    )
)
def test_the_weighted_vote_is_the_exact_one(votes):
    exact = [(answer, Fraction(tenths, 10)) for answer, tenths in votes]
    sums = {a: sum(w for b, w in exact if b == a) for a, _ in exact if a is not None}
    expected = max(sums, key=sums.__getitem__) if sums else None  # the first of several
    answers, weights = [a for a, _ in votes], [t / 10 for _, t in votes]
    assert weighted_plurality(answers, weights) == expected
    codes = np.array([[-1 if a is None else ord(a) - ord("a") for a in answers]])
    assert letters_of(weighted_plurality_codes(codes, np.array([weights]))) == [expected]


def test_numbers_per_llm_must_be_as_many_as_the_llms():
    for method in (ModelSwitch((5, 5)), ModelSwitch(weights=(1.0, 1.0))):
        assert method.draws(2) == (5, 5)
        with pytest.raises(UsageError):
            method.draws(3)
    with pytest.raises(UsageError):
        ModelSwitch().draws(0)
    assert hash(ModelSwitch([3, 4])) == hash(ModelSwitch((3, 4)))  # as JSON gives it


def faulty_weight(answers):
    """Its entropy is fed with counts where probabilities belong: a unanimous list of five weighs
    1.8.
    """
    n = len(answers)
    entropy_of_counts = -sum(count * log(count) / n for count in Counter(answers).values())
    return 1 / n + (1 - 1 / n) * (1 - entropy_of_counts / log(n))


def faulty_answer(answers_of_llms):
    """Its vote adds up runs of equal answers, not all equal answers; the last LLM has no gate."""
    votes = []
    for place, answers in enumerate(answers_of_llms):
        if len(set(answers)) == 1 and place + 1 < len(answers_of_llms):
            return answers[0]
        votes += [(answer, faulty_weight(answers)) for answer in answers]
    runs = [
        (answer, sum(weight for _, weight in run))
        for answer, run in groupby(votes, key=lambda vote: vote[0])
    ]
    most = max(weight for _, weight in runs)
    return [answer for answer, weight in runs if weight == most][-1]


def test_the_reference_example_loses_nine_questions_of_date_on_the_same_draws(shared):
    pools, gold = Real(shared).pools("llama2_date_cot1", "date_cot1_40", "gpt4_date_cot1")
    orders = sampled_orders(pools, 5, seed=1)
    drawn = [
        [
            pool.codes[question, order[0, question]].tolist()
            for pool, order in zip(pools, orders, strict=True)
        ]
        for question in range(len(gold))
    ]
    wrong = sum(faulty_answer(answers) == right for answers, right in zip(drawn, gold, strict=True))
    ours = int((ModelSwitch((5, 5, 3)).decide(pools, orders).answer[0] == gold).sum())
    assert f"{wrong / 369:.3f}" == "0.846"  # as it prints
    assert (wrong, ours) == (312, 321)
