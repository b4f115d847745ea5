"""Every entry of METHODS, in its readable form and in its batch form, on the same draws: equal
answers, equal ledgers.
"""

from copy import copy
from dataclasses import FrozenInstanceError, fields, is_dataclass
from fractions import Fraction

import numpy as np
import pytest
from dealt import assert_ledgers_agree, recorded_order
from method_cases import all_cases
from places import read_data
from probed import turned_round, with_probes
from recorded_pools import pool_of
from recorded_trees import write_full_trees
from recorded_turns import write_full_turns
from small import write_scored_toy

from feval.errors import OutOfRangeError, ShortPoolError, UsageError
from feval.evaluation.fitting import questions_of, training
from feval.evaluation.replicates import decisions
from feval.methods import METHODS, AdaptiveConsistency, DeepConfidence, SelfConsistency
from feval.methods.protocol import Predicting, Question, capabilities, in_seconds
from feval.replay import load

REPLICATES = 12

# Clear, tied, all different, all equal, partly and wholly without answers; the fourth pool is
# larger than the others.
POOLS = [
    ["a", "b", "a", "a", None, "b", "c", "a"],
    ["a", "a", "a", "a", "b", "b", "b", "b"],
    ["a", "b", "c", "d", "e", "f", "g", "h"],
    ["z", "z", "z", "z", "z", "z", "z", "z", "y", "y"],
    [None, None, "b", None, "a", None, None, None],
    [None] * 8,
]
GOLDS = ["a", "b", "c", "z", "a", "nobody"]


@pytest.fixture(scope="module")
def replay(tmp_path_factory):
    answers = {
        "strong": POOLS,
        "weak": POOLS[::-1],
        "other": [POOLS[2], *POOLS[:2], *POOLS[3:5], POOLS[0]],
    }
    out = write_scored_toy(tmp_path_factory.mktemp("contract") / "toy", answers, GOLDS)
    dataset, llms = load("toy", recording=out, seed=7)
    return dataset, [with_probes(llm) for llm in llms]


@pytest.fixture(scope="module")
def trees(tmp_path_factory):
    return load(
        "toy",
        recording=write_full_trees(tmp_path_factory.mktemp("contract") / "trees", GOLDS),
        seed=7,
    )


@pytest.fixture(scope="module")
def turns(tmp_path_factory):
    return load(
        "toy",
        recording=write_full_turns(tmp_path_factory.mktemp("contract") / "turns", GOLDS),
        seed=7,
    )


@pytest.fixture
def given_llms(request, name, case):
    """The LLMs that a method is given: recorded as whole CoTs, as trees, or turn by turn."""
    fixture = (
        "turns"
        if name == "sequential-revision"
        else "trees"
        if capabilities(METHODS[name]).searches
        else "replay"
    )
    dataset, llms = request.getfixturevalue(fixture)
    return dataset, llms[: case.llms]


def cases():
    return [pytest.param(name, case, id=f"{name}-{case}") for name, case in all_cases()]


def whole_set(name):
    """Whether a method has the batch form only, since it sees all questions at once; it has a test
    of its own.
    """
    return capabilities(METHODS[name]).whole_set


def made(name, case, dataset, llms):
    """The method of a case; one that says something of each question has learnt it from all."""
    method = METHODS[name](**case.settings)
    if isinstance(method, Predicting) and not method.fitted:
        every = np.arange(len(dataset))
        fitted = method.fit(training(dataset, llms, every, method))
        method = fitted.predicted(questions_of(dataset, llms, every))
    return method


def asked(dataset, row):
    """The text of a question with what belongs to it."""
    entry = dataset[row]
    return Question(entry.question, entry.features, int(dataset.question_keys[row]))


def decide(method, llms, replicates=REPLICATES):
    [whole] = decisions(method, llms, order="seeded", replicates=replicates)
    return whole


per_question = pytest.mark.parametrize(
    ("name", "case"), [case for case in cases() if not whole_set(case.values[0])]
)


@per_question
def test_both_forms_agree(name, case, given_llms):
    dataset, llms = given_llms
    method = made(name, case, dataset, llms)
    batch = decide(method, llms)
    for replicate in range(REPLICATES):
        for row in range(len(dataset)):
            metered = [llm.ask(row, replicate) for llm in llms]
            answer = method(asked(dataset, row), *metered)
            code = int(batch.answer[replicate, row])
            assert answer == (None if code < 0 else dataset.candidates(row)[code])
            assert_ledgers_agree(metered, batch.ledgers, (replicate, row))


@per_question
def test_both_forms_take_as_long(name, case, given_llms):
    """Microseconds of the batch form are those that the meter counts of the readable form; cut CoTs
    are cut in both.
    """
    dataset, llms = given_llms
    method = made(name, case, dataset, llms)
    for llm in llms:
        seconds, share = np.random.default_rng(len(llm.name)).random((2, *llm.pool.codes.shape))
        first = np.where(share < 0.7, seconds * share, np.nan)  # of some it is not known
        own = {"duration_s": seconds, "first_token_s": first}
        llm.pool.channels._cache.update({(name,): values for name, values in own.items()})
    plain = decide(method, llms, 1)
    for at_once in (None, 2):
        clocked = [llm.clocked(at_once) for llm in llms]
        timed = [copy(llm) for llm in clocked]
        for llm in timed:
            llm.pool = in_seconds(method, llm.pool)
        batch = decide(method, timed, 1)
        assert (plain.answer == batch.answer).all()
        for row in range(len(dataset)):
            metered = [llm.ask(row) for llm in clocked]
            method(asked(dataset, row), *metered)
            for meter, ledger in zip(metered, batch.ledgers, strict=True):
                assert ledger.sequential_tokens is not None
                assert meter.sequential_microseconds == int(ledger.sequential_tokens[0, row])


@pytest.mark.parametrize("case", [case for name, case in all_cases() if whole_set(name)], ids=str)
def test_a_method_of_the_whole_set_waits_between_one_at_a_time_and_all_at_once(case, replay):
    llm, method = replay[1][0], METHODS["difficulty-adaptive"](**case.settings)
    seconds = np.random.default_rng(5).random(llm.pool.codes.shape)
    llm.pool.channels._cache["duration_s",] = seconds
    waits = {}
    for at_once in (1, 2, 8, None):
        timed = copy(llm)
        timed.pool = in_seconds(method, llm.clocked(at_once).pool)
        [ledger] = decide(method, [timed]).ledgers
        waits[at_once] = ledger.sequential_tokens
    assert (waits[1] == ledger.output_tokens).all()
    assert waits[1].all()
    assert (waits[8] == waits[None]).all()
    assert (waits[2] <= waits[1]).all()
    assert (waits[2] >= waits[None]).all()


@pytest.mark.parametrize(("name", "case"), cases())
def test_a_method_is_a_frozen_value_that_shows_its_settings(name, case):
    method = METHODS[name](**case.settings)
    assert is_dataclass(method)
    assert method == METHODS[name](**case.settings)
    assert hash(method) == hash(METHODS[name](**case.settings))
    for field in fields(method):
        assert f"{field.name}={getattr(method, field.name)!r}" in repr(method)
        with pytest.raises(FrozenInstanceError):
            setattr(method, field.name, None)
    assert type(method).__doc__


DEFAULTS = read_data("method_defaults.json")
"""What papers and authors' code take, where they say so."""


@pytest.mark.parametrize("name", DEFAULTS)
def test_defaults_are_those_of_the_papers(name):
    method = METHODS[name]()
    expected = {field: v for field, v in DEFAULTS[name].items() if field != "source"}
    assert {field: getattr(method, field) for field in expected} == expected


def test_numbers_behind_words_are_those_of_the_papers():
    rules = {
        name: AdaptiveConsistency(name).rule.threshold
        for name in ("beta", "dirichlet", "entropy", "majority")
    }
    assert rules == {
        "beta": Fraction(19, 20), "dirichlet": Fraction(19, 20), "entropy": Fraction(3, 4),
        "majority": Fraction(4, 5)
    }  # fmt: skip
    assert AdaptiveConsistency("random").rule.threshold == Fraction(1, 10)
    assert (DeepConfidence(keep="low")._eta, DeepConfidence(keep="high")._eta) == (10, 90)


@pytest.mark.parametrize(("name", "case"), cases())
def test_chunks_of_replicates_do_not_show(name, case, given_llms, monkeypatch):
    dataset, llms = given_llms
    method = made(name, case, dataset, llms)
    whole = decide(method, llms)
    monkeypatch.setattr("feval.evaluation.replicates._CHUNK_CODES", 11)
    parts = list(decisions(method, llms, order="seeded", replicates=REPLICATES))
    assert len(parts) > 1
    assert (np.concatenate([part.answer for part in parts]) == whole.answer).all()
    for llm, ledger in enumerate(whole.ledgers):
        assert (
            np.concatenate([part.ledgers[llm].output_tokens for part in parts])
            == ledger.output_tokens
        ).all()


@pytest.mark.parametrize(("name", "case"), cases())
def test_nothing_depends_on_how_answers_are_numbered(name, case, given_llms):
    """Per question the codes are turned round; answers turn with them, and what was consumed
    stays.
    """
    dataset, llms = given_llms
    method = made(name, case, dataset, llms)
    pools = [llm.pool for llm in llms]
    last = pools[0].candidates - 1
    turned = [turned_round(pool, last) for pool in pools]
    draws = (
        [pool.codes.shape[1] for pool in pools]
        if capabilities(method).searches
        else method.draws(len(llms))
    )
    orders = [llm.orders(range(REPLICATES), n) for llm, n in zip(llms, draws, strict=True)]
    one, other = method.decide(pools, orders), method.decide(turned, orders)
    assert (np.where(one.answer < 0, one.answer, last - one.answer) == other.answer).all()
    for mine, theirs in zip(one.ledgers, other.ledgers, strict=True):
        for field in fields(mine):
            assert np.array_equal(getattr(mine, field.name), getattr(theirs, field.name)), (
                field.name
            )


def test_shortage_and_nonsense_are_refused():
    pool = pool_of(np.array([[0, 0, 1], [0, 1, -2]], np.int16))
    with pytest.raises(OutOfRangeError, match="n=0"):
        SelfConsistency(0)
    with pytest.raises(ShortPoolError, match="gpt has 2 recorded CoTs on the question in row 1"):
        SelfConsistency(3).decide([pool], [recorded_order(pool, 3)])
    for pools, orders, words in (
        ([], [], "CoTs of one LLM; 0 were given"),
        ([pool] * 2, [recorded_order(pool, 2)], "CoTs of one LLM; 2 were given"),
        ([pool], [recorded_order(pool, 1)], "1 LLM and orders of 2 draws"),
    ):
        with pytest.raises(UsageError, match=words):
            SelfConsistency(2).decide(pools, orders)


def test_no_question_needs_no_decision():
    decided = SelfConsistency(2).decide(
        [pool_of(np.zeros((0, 4), np.int16))], [np.zeros((3, 0, 2), np.uint16)]
    )
    assert decided.answer.shape == decided.ledgers[0].cots.shape == (3, 0)
