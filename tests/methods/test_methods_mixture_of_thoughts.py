"""The MoT cascade: shares in exact arithmetic, both rules, missing answers, and what is billed."""

from fractions import Fraction

import pytest
from dealt import answers_of, in_recorded_order, letters_of, pools_of
from hypothesis import given, strategies as st
from small import letters

from feval.errors import UsageError
from feval.methods import MixtureOfThoughts


def answers(decided):
    return letters_of(decided.answer[0])


def asked(decided):
    return [ledger.rounds[0].tolist() for ledger in decided.ledgers]


def test_a_share_equal_to_the_threshold_is_accepted_unless_strict():
    # 11 of 20 is 0.55 on paper, though 0.55 * 20 is 11.000000000000002 in floats.
    pools = pools_of(["a" * 11 + "b" * 9], ["ccc"])
    for threshold in (0.55, "0.55", "11/20"):
        assert answers_of(MixtureOfThoughts(threshold, samples=20), pools) == ["a"]
        assert answers_of(MixtureOfThoughts(threshold, samples=20, strict=True), pools) == ["c"]
    assert answers_of(MixtureOfThoughts("0.5500000000000000000001", samples=20), pools) == ["c"]
    assert answers_of(MixtureOfThoughts(1, samples=11), pools) == ["a"]
    assert answers_of(MixtureOfThoughts(1, samples=11, strict=True), pools) == ["c"]


@given(
    st.integers(1, 12), st.integers(1, 12), st.fractions(0, 1, max_denominator=40), st.booleans()
)
def test_shares_are_compared_exactly(leader, others, threshold, strict):
    total = leader + others
    pools = pools_of(["a" * leader + "bcdefghijklm"[:others]], ["z"])
    share = Fraction(leader, total)
    accepted = share > threshold if strict else share >= threshold
    method = MixtureOfThoughts(str(threshold), samples=total, strong_samples=1, strict=strict)
    assert answers_of(method, pools) == ["a" if accepted else "z"]


def test_missing_answers_stay_in_the_share():
    pools = pools_of([["a", "a", None, None, None]], ["bbb"])
    assert answers_of(MixtureOfThoughts(0.4, samples=5), pools) == ["a"]
    assert answers_of(MixtureOfThoughts(0.5, samples=5), pools) == ["b"]


def test_nobody_answering_is_never_accepted_unless_no_answer_votes():
    pools = pools_of(letters("--a", "---"), ["bbb", [None, None, "b"]])
    assert answers_of(MixtureOfThoughts(0, samples=3), pools) == ["a", "b"]
    assert answers_of(MixtureOfThoughts(0.6, samples=3), pools) == ["b", "b"]
    assert answers_of(MixtureOfThoughts(0.6, samples=3, no_answer="vote"), pools) == [None, None]
    never = MixtureOfThoughts(1, samples=3, strict=True, no_answer="vote")
    assert answers_of(never, pools) == ["b", None]


def test_samples_of_two_prompts_are_pooled_and_ties_go_to_the_first():
    pools = pools_of(["abb", "aac"], ["aac", "ccb"], ["zzz", "zzz"])
    method = MixtureOfThoughts(0.5, samples=3)
    assert answers_of(method, pools) == ["a", "c"]
    tied = pools_of(["ab"], ["ba"], ["zzz"])
    assert answers_of(MixtureOfThoughts(0.5, samples=2), tied) == ["a"]


def test_verify_accepts_equal_pluralities_only():
    pools = pools_of(
        ["aab", "aab", [None] * 3, "abb"], ["aca", "bba", [None] * 3, "cbc"], ["zzz"] * 4
    )
    decided = in_recorded_order(MixtureOfThoughts(rule="verify", samples=3), pools)
    assert answers(decided) == ["a", "z", "z", "z"]
    assert asked(decided) == [[1, 1, 1, 1], [1, 1, 1, 1], [0, 1, 1, 1]]


def test_the_strong_llm_costs_only_where_it_is_asked():
    pools = pools_of(["aaa", "abc"], ["bb", "bb"])
    decided = in_recorded_order(MixtureOfThoughts(0.6, samples=3, strong_samples=2), pools)
    assert answers(decided) == ["a", "b"]
    assert [ledger.cots[0].tolist() for ledger in decided.ledgers] == [[3, 3], [0, 2]]
    assert decided.ledgers[1].output_tokens[0].tolist() == [0, 3 + 4]


def test_the_papers_budgets_are_the_defaults():
    assert MixtureOfThoughts().draws(2) == (20, 3)
    assert MixtureOfThoughts().draws(3) == (7, 7, 3)
    with pytest.raises(UsageError, match="give samples"):
        MixtureOfThoughts().draws(4)
    assert MixtureOfThoughts(samples=5).draws(4) == (5, 5, 5, 3)
    assert MixtureOfThoughts(samples=(10, 4)).draws(3) == (10, 4, 3)
    with pytest.raises(UsageError):
        MixtureOfThoughts(samples=(10, 4)).draws(2)
    for method, llms in ((MixtureOfThoughts(), 1), (MixtureOfThoughts(rule="verify"), 2)):
        with pytest.raises(UsageError, match="weak variant"):
            method.draws(llms)
