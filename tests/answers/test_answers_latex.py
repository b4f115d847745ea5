import pytest
from places import read_data

from feval.answers import canonical
from feval.answers.latex import LONGEST, comparable

CASES = read_data("answers.json")


@pytest.mark.parametrize(("spellings", "key"), CASES["latex spellings"])
def test_spellings_of_one_answer_have_one_key(spellings, key):
    assert {spelling: canonical("latex", spelling) for spelling in spellings} == dict.fromkeys(
        spellings, key
    )


@pytest.mark.parametrize(("one", "other"), CASES["latex differs"])
def test_different_answers_keep_different_keys(one, other):
    assert canonical("latex", one) != canonical("latex", other)


@pytest.mark.parametrize("raw", ["", " ", "$$", "\\boxed{}", "...", "{}", "x" * (LONGEST + 1)])
def test_nothing_or_too_much_is_no_answer(raw):
    assert canonical("latex", raw) is None


@pytest.mark.parametrize(("key", "gold", "worth_asking"), CASES["latex algebra"])
def test_algebra_is_asked_only_where_it_could_know_better(key, gold, worth_asking):
    assert comparable(key, gold) == worth_asking
