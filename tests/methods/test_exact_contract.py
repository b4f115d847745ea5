"""Every method in METHODS with an exact form: its expectation and its error split, against the
enumeration of all orders.
"""

from contextlib import suppress
from dataclasses import fields, replace

import numpy as np
import pytest
from method_cases import all_cases, cases_of
from probed import with_probes
from recorded_pools import ORDERS, not_asked, over_all_orders
from small import write_scored_toy

from feval import evaluate, load
from feval.errors import NotRecordedError
from feval.estimators import per_question
from feval.methods import METHODS, SelfConsistency
from feval.methods.fields import Count, frozen_method
from feval.methods.oracle import Oracle
from feval.methods.protocol import (
    Capabilities,
    Decisions,
    ErrorShares,
    Expectation,
    Ledger,
    capabilities,
    drawn,
)
from feval.methods.vote import plurality, plurality_codes

# Clear, tied, all different, all equal, partly and wholly without answers, and golds that nobody
# gave.
POOLS = [
    ["a", "b", "a", "a", None, "b"],
    ["a", "a", "a", "b", "b", "b"],
    ["a", "a", "b", "b", "c", "c"],
    ["a", "b", "c", "d", "e", "f"],
    ["z"] * 6,
    [None, None, "b", None, "a", None],
    [None] * 6,
    ["a", "b", "b", "a", "c", "a"],
]
GOLDS = ["a", "b", "b", "c", "z", "a", "nobody", "nobody"]
COINS = 40  # sets of coins that a method which tosses some is averaged over

CASES = [
    (name, case.at_most(6))
    for name, case in all_cases()
    # chains of steps, and what chooses between LLMs, have tests of their own
    if hasattr(METHODS[name], "exact") and not capabilities(METHODS[name]).searches
]
EXACT_CASES = pytest.mark.parametrize(
    ("name", "case"), [pytest.param(*each, id="-".join(map(str, each))) for each in CASES]
)


@pytest.fixture(scope="module")
def replay(tmp_path_factory):
    dataset, [llm] = load(
        "toy",
        recording=write_scored_toy(tmp_path_factory.mktemp("exact") / "toy", {"m": POOLS}, GOLDS),
    )
    return dataset, with_probes(llm)


@pytest.fixture(scope="module")
def recorded(replay):
    return replay[1].pool, replay[0].gold


def check_exact(method, pool, gold):
    """The expectation is the mean over all orders, and so is the split; of coins, within four
    standard errors.
    """
    expected = method.exact(pool, gold)
    shares = (
        method.exact_errors(pool, gold, expected.right, not_asked)
        if capabilities(method).exact_errors
        else ErrorShares()
    )
    own = [
        expected.right,
        expected.rounds,
        expected.cots,
        expected.output_tokens,
        shares.no_answer,
        shares.stopped_early,
    ]
    keys = np.random.default_rng(1).integers(1 << 63, size=(COINS, len(gold)), dtype=np.uint64)
    runs = np.array(
        [over_all_orders(method, replace(pool, question_keys=each), gold) for each in keys[:2]]
    )
    error = np.zeros_like(runs[0])
    if not np.array_equal(*runs):  # it tosses coins
        more = [
            over_all_orders(method, replace(pool, question_keys=each), gold) for each in keys[2:]
        ]
        runs = np.concatenate([runs, more])
        error = 4 * runs.std(axis=0, ddof=1) / np.sqrt(COINS)
    for part, mean, within in zip(own, runs.mean(axis=0), error, strict=True):
        if part is not None:
            assert (np.abs(part - mean) <= within + 1e-10).all(), (part, mean)


@pytest.mark.parametrize(
    ("name", "case"),
    [
        pytest.param(*each, id="-".join(map(str, each)))
        for each in CASES
        if each[1].settings.get("criterion") != "random" and each[0] != "early-stopping"
    ],
)
def test_the_exact_latency_is_the_mean_over_all_orders(name, case, recorded):
    """Where it is known: the windows of early stopping have no closed form, and coins are tossed
    once.
    """
    method, (pool, gold) = METHODS[name](**case.settings), recorded
    latency = method.exact(pool, gold).sequential_tokens
    assert capabilities(method).exact_latency
    if latency is None:
        latency = method.exact_sequential_tokens(pool)
    [draws] = method.draws(1)
    orders = np.broadcast_to(ORDERS[:, None, :draws], (len(ORDERS), len(gold), draws))
    [ledger] = method.decide([pool], [orders]).ledgers
    assert latency == pytest.approx(ledger.sequential_tokens.mean(axis=0), abs=1e-9)


@EXACT_CASES
def test_the_exact_form_is_the_mean_over_all_orders(name, case, recorded):
    check_exact(METHODS[name](**case.settings), *recorded)


@EXACT_CASES
def test_blocks_of_questions_make_no_difference(name, case, recorded, monkeypatch):
    """A question that comes twice, in two blocks, is solved once."""
    method, (pool, gold) = METHODS[name](**case.settings), recorded
    twice = np.tile(np.arange(len(gold)), 2)
    pool, gold = pool.rows(twice), gold[twice]
    whole = method.exact(pool, gold)
    split = method.exact_errors(pool, gold, whole.right, not_asked)
    monkeypatch.setattr(per_question, "QUESTIONS_AT_ONCE", 3)
    blocks = method.exact(pool, gold)
    for field in fields(Expectation):
        assert getattr(blocks, field.name) == pytest.approx(
            getattr(whole, field.name), abs=1e-12
        ), field.name
    of_blocks = method.exact_errors(pool, gold, blocks.right, not_asked)
    for part in ("no_answer", "stopped_early", "routed_wrong"):
        assert getattr(of_blocks, part) == pytest.approx(getattr(split, part), abs=1e-12), part


@EXACT_CASES
def test_a_gold_that_nobody_gave_is_never_right_and_no_question_is_fine(name, case, recorded):
    method, (pool, gold) = METHODS[name](**case.settings), recorded
    for unseen in (-1, int(pool.candidates.max()), 99):
        assert not method.exact(pool, np.full(len(gold), unseen)).right.any()
    nobody = pool.rows(np.zeros(0, np.intp))
    with suppress(NotRecordedError):  # of no question there are no step scores
        expected = method.exact(nobody, gold[:0])
        shares = method.exact_errors(nobody, gold[:0], expected.right, not_asked)
        assert (
            expected.right.shape == expected.output_tokens.shape == shares.no_answer.shape == (0,)
        )


@frozen_method
class TwoThenAll:
    """Two CoTs; the vote of n where they differ or have no answer. Its exact form goes through all
    orders.
    """

    capabilities = Capabilities(exact=True, exact_errors=True)

    n: Count = 20

    def draws(self, llms):
        return (self.n,) * llms

    def __call__(self, question, llm):
        first = llm.sample(2).answers
        return (
            first[0]
            if first[0] == first[1] is not None
            else plurality([*first, *llm.sample(self.n - 2).answers])
        )

    def decide(self, pools, orders):
        [pool], [order] = pools, orders
        codes, tokens = (
            drawn(pool.codes, order[..., : self.n]),
            drawn(pool.output_tokens, order[..., : self.n]),
        )
        agree = (codes[..., 0] == codes[..., 1]) & (codes[..., 0] >= 0)
        cots = np.where(agree, 2, self.n)
        spent = (tokens * (np.arange(self.n) < cots[..., None])).sum(axis=-1)
        return Decisions(
            np.where(agree, codes[..., 0], plurality_codes(codes)),
            (Ledger(1 + ~agree, cots, spent),),
        )

    def exact(self, pool, gold):
        return Expectation(*over_all_orders(self, pool, gold)[:4])

    def exact_errors(self, pool, gold, right, draw):
        *_, none, early = over_all_orders(self, pool, gold)
        return ErrorShares(none, early, np.zeros(len(gold)))


class Unlike(TwoThenAll):
    """Inherits an expectation that is another method's."""

    def decide(self, pools, orders):
        return SelfConsistency(self.n).decide(pools, orders)


def test_a_new_method_needs_no_more_than_its_class(recorded, replay):
    [case] = cases_of(TwoThenAll)
    assert (case.settings, case.llms) == ({"n": 8}, 1)
    method = TwoThenAll(**case.at_most(6).settings)
    check_exact(method, *recorded)
    evaluation = evaluate(method, *replay)
    assert evaluation.kind == "exact"
    assert evaluation.errors()["stopped_early"] > 0
    assert evaluate(method, *replay, order="seeded").accuracy == pytest.approx(
        evaluation.accuracy, abs=0.1
    )


def test_a_subclass_inherits_no_exact_form(replay):
    assert capabilities(TwoThenAll).exact
    assert not capabilities(Unlike).exact
    assert evaluate(Unlike(6), *replay).kind == "seeded"
    assert capabilities(Oracle).exact


def test_without_a_split_errors_are_not_known(replay, monkeypatch):
    monkeypatch.setattr(TwoThenAll, "capabilities", Capabilities(exact=True))
    assert set(evaluate(TwoThenAll(6), *replay).errors().values()) == {None}
