from collections import defaultdict

import pytest
from hypothesis import given, settings, strategies as st

from feval.answers import KINDS, canonical, equality, keys
from feval.answers.equivalence import (
    SECONDS,
    SECONDS_PER_QUESTION,
    Classifier,
    ComparisonBudget,
    PairVerdict,
    Verdict,
    classes_from_verdicts,
    classify,
)
from feval.errors import UsageError

FORMS = st.lists(st.text("abcdef", min_size=1, max_size=2), max_size=9)
GOLDS = st.one_of(st.none(), st.text("abcdef", min_size=1, max_size=2))
needs_math_verify = pytest.mark.skipif(
    equality.version() is None, reason="math-verify is not installed (the extra `math`)"
)


def partition(answers):
    """Which places have equal answers."""
    places = defaultdict(set)
    for place, answer in enumerate(answers):
        places[answer].add(place)
    return {frozenset(own) for own in places.values()}


def unruly(left, right):
    """An equality that is neither symmetric nor transitive, and undecided at times."""
    return [True, False, None, False][(3 * ord(left[0]) + ord(right[-1]) + len(left)) % 4]


@given(forms=FORMS, golds=st.lists(GOLDS, min_size=2, max_size=4))
def test_the_gold_never_changes_which_forms_are_one_party(forms, golds):
    how = PairVerdict(unruly, costly=True)
    divisions = [classify(set(forms), gold, how)[0] for gold in golds]
    parted = [str(partition([parties.key(form) for form in forms])) for parties in divisions]
    assert len(set(parted)) == 1
    for parties, gold in zip(divisions, golds, strict=True):
        assert (parties.gold is None) == (gold is None)
        if gold in forms:
            assert parties.gold == parties.key(str(gold))


@given(forms=FORMS, gold=GOLDS)
def test_stored_verdicts_make_the_parties_again(forms, gold):
    parties, division = classify(set(forms), gold, PairVerdict(unruly, costly=True))
    again = classes_from_verdicts(division.verdicts, gold)
    assert [again.key(form) for form in forms] == [parties.key(form) for form in forms]
    assert again.gold == parties.gold


@given(forms=FORMS, gold=GOLDS)
def test_known_verdicts_are_not_asked_for_again(forms, gold):
    def decided(left, right):
        return unruly(left, right) is True

    parties, division = classify(set(forms), gold, PairVerdict(decided, costly=True))
    asked = PairVerdict(
        lambda left, right: pytest.fail(f"asked about {left} and {right}"), costly=True
    )
    again, second = classify(set(forms), gold, asked, known=division.verdicts)
    assert (again, second.verdicts) == (parties, division.verdicts)


def test_a_form_joins_the_first_representative_that_it_is_equal_to():
    groups = {"a": 1, "b": 2, "c": 1, "d": 2}
    parties, division = classify(
        set(groups), "e", PairVerdict(lambda x, y: groups.get(x) == groups.get(y), costly=True)
    )
    assert (dict(parties.joined), parties.gold) == ({"c": "a", "d": "b"}, "e")
    pairs = [(v.left, v.right, v.gold, v.equal) for v in division.verdicts]
    assert pairs == [
        ("a", "b", False, False),
        ("a", "c", False, True),
        ("a", "d", False, False),
        ("b", "d", False, True),
        ("a", "e", True, False),
        ("b", "e", True, False),
    ]


def test_the_gold_joins_one_party_and_merges_none():
    """A gold that is equal to both of two parties leaves them apart."""
    parties, _ = classify({"a", "b"}, "g", PairVerdict(lambda x, y: "g" in (x, y), costly=True))
    assert (dict(parties.joined), parties.gold) == ({}, "a")


def test_pairs_beyond_the_budget_count_as_different_and_are_counted():
    forms = {f"f{i}" for i in range(5)}  # ten pairs
    _, division = classify(
        forms, None, PairVerdict(lambda *_: False, costly=True), ComparisonBudget(question=4)
    )
    assert (len(division.verdicts), division.not_asked) == (4, 6)
    _, division = classify(
        forms, None, PairVerdict(lambda *_: False, costly=True), ComparisonBudget(pairs=3)
    )
    assert (len(division.verdicts), division.not_asked) == (3, 7)


@pytest.fixture
def slowly(monkeypatch):
    """A comparison that never reaches a verdict, and by the clock takes so many seconds."""
    now = [0.0]
    monkeypatch.setattr("feval.answers.equivalence.monotonic", lambda: now[0])

    def comparison(seconds):
        return PairVerdict(lambda *_: now.__setitem__(0, now[0] + seconds), costly=True)

    return comparison


def test_a_question_and_its_gold_have_so_many_seconds_each(slowly):
    forms = {f"f{i}" for i in range(9)}  # 36 pairs, and nine with the gold
    _, division = classify(forms, "gold", slowly(SECONDS_PER_QUESTION / 4))
    assert [(verdict.gold, verdict.equal) for verdict in division.verdicts] == [
        (False, None)
    ] * 4 + [(True, None)] * 4
    assert division.not_asked == 32 + 5


def test_hostile_questions_end_when_the_seconds_of_the_command_do(slowly):
    budget, spent = ComparisonBudget(), 0
    for question in range(200):
        budget.next_question()
        _, division = classify(
            {f"{question} a", f"{question} b"}, "gold", slowly(equality.SECONDS), budget
        )
        spent += len(division.verdicts)
    assert spent * equality.SECONDS == SECONDS
    assert division.not_asked == 3


def test_cheap_comparisons_have_no_budget_and_keep_equal_pairs_only():
    budget = ComparisonBudget(question=0)
    _, division = classify(
        {"a", "b", "c"}, None, PairVerdict(lambda x, y: (x, y) == ("a", "c")), budget
    )
    assert division.verdicts == [Verdict("a", "c", False, True)]
    assert division.not_asked == 0


def test_a_live_question_divides_answers_as_they_come():
    division = Classifier(PairVerdict(lambda x, y: x[0] == y[0]))
    forms = [division.add(form) for form in ("b2", "a1", "b1", "a1", "b2")]
    assert forms == ["b2", "a1", "b2", "a1", "b2"]


@needs_math_verify
def test_equal_wrong_answers_vote_together_as_right_ones_do():
    answers = ["x+1", "1+x", "x+2", "2+x", "\\frac{2x+4}{2}"]
    for gold, right in (("x+1", [0, 1]), ("x+2", [2, 3, 4]), ("2x", [])):
        result = keys("latex", answers, gold)
        assert partition(result.answers) == {frozenset({0, 1}), frozenset({2, 3, 4})}
        assert [place for place, key in enumerate(result.answers) if key == result.gold] == right


@pytest.mark.parametrize("kind", sorted(KINDS))
@settings(deadline=None)
@given(
    answers=st.lists(
        st.sampled_from(
            ["mango", "apple", "A", "(b)", "b", "7", "7.0", "yes", "5/1/2021", "", "1.5"]
        ),
        max_size=6,
    ),
    golds=st.lists(
        st.sampled_from(["mango", "A", "b", "7", "apple.", "", None]), min_size=2, max_size=4
    ),
    choices=st.sampled_from([(), (("A", "apple"), ("B", "pear"))]),
)
def test_every_kind_divides_answers_alike_under_every_gold(kind, answers, golds, choices):
    partitions = [
        keys(kind, answers, gold, choices, equality="normal-form").answers for gold in golds
    ]
    assert all(own == partitions[0] for own in partitions)


def test_numbers_within_a_tolerance_are_one_party():
    result = keys("number", ["100", "100.005", "101", "-100"], "100.009", equality="tolerance-1e-4")
    assert result == (["100", "100", "101", "-100"], "100")


@pytest.mark.parametrize(
    ("kind", "name", "words"),
    [
        ("number", "math-verify", "normal-form or tolerance-X"),
        ("text", "tolerance-0.1", "normal-form only"),
        ("number", "tolerance-2", "between 0 and 1"),
        ("number", "tolerance-x", "between 0 and 1"),
        ("latex", "mathverify", "normal-form or math-verify"),
    ],
)
def test_an_equality_that_a_kind_does_not_have_is_refused(kind, name, words):
    assert canonical(kind, None) is None
    with pytest.raises(UsageError, match=words):
        keys(kind, ["1"], "1", equality=name)
