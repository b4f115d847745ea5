"""Sequential revision: both forms against a plain walk, the exact expectation against all draws,
and what is refused.
"""

from collections import Counter
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from dealt import metered
from hypothesis import given, settings, strategies as st
from probed import orders_of
from searched import assert_walks_agree, tree_pool

from feval.errors import NotRecordedError, OutOfRangeError, ShortPoolError, UsageError
from feval.methods import PathConsistency, SequentialRevision
from feval.methods.protocol import capabilities
from feval.replay.pools import ArrayChannels

NAN = float("nan")
METHODS = [
    SequentialRevision(6, 3),
    SequentialRevision(6, 3, answer="majority"),
    SequentialRevision(6, 3, answer="best"),
    SequentialRevision(4, 2, answer="best", scorer="prm"),
    SequentialRevision(3, 3, answer="majority"),
    SequentialRevision(2, 1),
]
SEEDED = [SequentialRevision(6, 3, answer="weighted"), SequentialRevision(4, 2, answer="all")]


@st.composite
def conversations(draw, branch=2, most=3):
    """Questions with two CoTs or more, each the first of a chain of three turns or four; a turn may
    have siblings.
    """
    answer = st.sampled_from(["a", "a", "b", "c", None])
    score = st.sampled_from([0.0, 0.2, 0.2, 0.7, 1.0, NAN])

    def question():
        steps = []
        numbers = []
        layer = [-1] * draw(st.integers(2, most))
        for level in range(1, 5):
            following = []
            for parent in layer:
                steps.append((parent, draw(answer), True, draw(score), draw(st.integers(0, 9))))
                numbers.append(-1 if parent < 0 else level % 2)
                replies = draw(st.integers(1, branch)) if level < 3 else draw(st.integers(0, 1))
                following += [len(steps) - 1] * replies
            layer = following
        return steps, numbers

    questions = [question() for _ in range(draw(st.integers(1, 2)))]
    return tree_pool([steps for steps, _ in questions], [numbers for _, numbers in questions])


def vote(answers):
    return (
        Counter(each for each in answers if each is not None).most_common(1)[0][0]
        if any(answers)
        else None
    )


def revision_walk(method, walk):
    """The answer, from chains as nested lists; `Counter.most_common` gives the first of several."""
    chains = [[step] for step in walk.take([-1] * (method.n // method.turns))]
    for _ in range(method.turns - 1):
        for chain, step in zip(chains, walk.take([chain[-1] for chain in chains]), strict=True):
            chain.append(step)
    if method.answer in ("best", "all"):
        return walk.choose(
            [step for chain in chains for step in chain],
            "best" if method.answer == "best" else "majority",
        )
    if method.answer == "weighted":
        sums = Counter()
        for chain in chains:
            if (answer := walk.choose(chain, "weighted")) is not None:
                sums[answer] += max(
                    s
                    for step in chain
                    if walk.answer(step) == answer and (s := walk.score(step)) is not None
                )
        return next((a for a, s in sums.items() if s >= max(sums.values()) - 1e-12), None)
    own = [[walk.answer(step) for step in chain] for chain in chains]
    return vote([each[-1] if method.answer == "last" else vote(each) for each in own])


def ledger_of(walk):
    # Each reply is a request; turn s was sent 10 + 3 s tokens, the question's request has 9.
    turns = [step for step in walk.taken if walk.parents[step] >= 0]
    beyond = sum(10 + 3 * step - 9 for step in turns)
    return walk.ledger() | {"rounds": 1 + len(turns), "auxiliary_prompt_tokens": beyond}


@pytest.mark.parametrize("method", [*METHODS, *SEEDED], ids=str)
@settings(max_examples=15)
@given(data=st.data())
def test_both_forms_are_the_plain_walk(method, data):
    pool = data.draw(conversations())
    assert_walks_agree(method, pool, data.draw(orders_of(pool)), revision_walk, ledger_of=ledger_of)


@pytest.mark.parametrize("method", METHODS, ids=str)
@settings(max_examples=15)
@given(pool=conversations(branch=1, most=4))
def test_the_expectation_is_the_mean_over_all_orders_of_chains(method, pool):
    for row in range(len(pool.sizes)):
        one = pool.rows(np.array([row]))
        first = int((one.steps().parents == -1).sum())
        rest = range(first, pool.codes.shape[1])
        orders = np.array([[[*own, *rest]] for own in permutations(range(first))], np.uint16)
        decided = method.decide([one], [orders])
        [ledger] = decided.ledgers
        for code in range(3):
            gold = np.array([code])
            expected = method.exact(one, gold)
            assert expected.right == pytest.approx((decided.answer == code).mean(), abs=1e-12)
        for name in ("rounds", "cots", "output_tokens", "auxiliary_prompt_tokens"):
            assert getattr(expected, name) == pytest.approx(
                getattr(ledger, name).mean(), abs=1e-9
            ), name
        assert method.exact_sequential_tokens(one) == pytest.approx(
            ledger.sequential_tokens.mean(), abs=1e-9
        )


def test_chains_that_were_not_recorded_are_errors():
    tree = [
        (-1, "a", True, NAN, 1),
        (-1, "b", True, NAN, 1),
        (0, "a", True, NAN, 1),
        (0, "b", True, NAN, 1),
    ]
    pool, order = tree_pool([tree], [[-1, -1, 0, 0]]), np.arange(4, dtype=np.uint16)[None, None]
    other = tree_pool([tree], [[-1, -1, 0, 1]])
    for method, given_, error, sentence in (
        (
            SequentialRevision(3, 1),
            pool,
            ShortPoolError,
            "deep has 2 recorded CoTs that reply to no other on .*; 3 were",
        ),
        (
            SequentialRevision(4, 2),
            pool,
            NotRecordedError,
            "replies to CoT 1 of deep on .*, and no turn was recorded there",
        ),
        (
            SequentialRevision(3, 3),
            pool,
            NotRecordedError,
            "replies to turn 2 of deep on .*, and no turn was recorded",
        ),
    ):
        for call in (
            lambda m=method, p=given_: m("?", metered(p)),
            lambda m=method, p=given_: m.decide([p], [order]),
        ):
            with pytest.raises(error, match=sentence):
                call()
    with pytest.raises(
        NotRecordedError,
        match="without its messages, and the turns recorded there reply to several",
    ):
        SequentialRevision(2, 2).decide([other], [order])
    with pytest.raises(
        UsageError, match=r"CoTs of deep have several replies, .* with order='seeded'"
    ):
        SequentialRevision(2, 2).exact(pool, np.array([0]))
    for method in SEEDED:
        assert not capabilities(method).exact
        with pytest.raises(
            UsageError, match=f"expectation is known of answer='{method.answer}'; .* order='seeded'"
        ):
            method.exact(pool, np.array([0]))
    with pytest.raises(OutOfRangeError, match="n is a multiple of turns; n=6 and turns=4"):
        SequentialRevision(6, 4)
    steps = tree_pool([tree[:2]])
    with pytest.raises(
        NotRecordedError, match="replies to a CoT of deep, and no turns were recorded"
    ):
        SequentialRevision(2, 2).decide([steps], [order])
    with pytest.raises(
        NotRecordedError, match="replies to a CoT of deep, and no turns were recorded"
    ):
        SequentialRevision(2, 2).exact(steps, np.array([0]))
    with pytest.raises(
        NotRecordedError, match="conversations of several turns, which cannot be expanded"
    ):
        PathConsistency(2, 2).decide([pool], [order])
    flat = replace(pool, channels=ArrayChannels(llm="deep"))
    with pytest.raises(NotRecordedError, match="deep was recorded as whole CoTs"):
        SequentialRevision(2, 2).decide([flat], [order])
