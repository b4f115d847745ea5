"""DSC against its definition, one question at a time."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from dealt import in_recorded_order
from golden_difficulty import difficulty, ranked
from golden_methods import Real
from hypothesis import given, settings, strategies as st
from places import read_data
from recorded_pools import pool_of
from scipy.stats import beta

from feval.errors import NotRecordedError
from feval.methods import DifficultyAdaptive
from feval.methods.protocol import BatchMethod, capabilities


def stops(draws):
    first, second, *_ = [*sorted(Counter(d for d in draws if d >= 0).values(), reverse=True), 0, 0]
    return bool(beta.sf(0.5, first + 1, second + 1) >= 0.95)


def plurality(draws):
    votes = Counter(d for d in draws if d >= 0)
    return max(votes, key=votes.__getitem__) if votes else -1


def by_definition(method, chains, easy_to_hard):
    """(answer, rounds, CoTs) of each question."""
    p = method.window

    def sure(q):
        return len(set(chains[q][:p])) == 1 and chains[q][0] >= 0

    easy = set()
    run = 0
    for rank in reversed(range(len(chains))):
        run = run + 1 if sure(easy_to_hard[rank]) else 0
        if run == method.judged:
            easy = set(easy_to_hard[: rank + (method.judged if method.judged_are == "easy" else 0)])
            break
    result = {q: (chains[q][0], 1, 1) for q in easy}
    needs = []
    for q in easy_to_hard:
        if q in easy and method.allocate_over == "hard":
            continue
        first = p
        if method.preallocate and len(needs) >= method.neighbours and not sure(q):
            mean = sum(needs[-method.neighbours :]) / method.neighbours
            first = min(max(p * round(mean / p), p), method.budget)
        needs.append(
            next((n for n in range(1, method.budget + 1) if stops(chains[q][:n])), method.budget)
        )
        if q in easy:
            continue
        size, rounds = first, 1
        while size < method.budget and not stops(chains[q][:size]):
            size, rounds = min(size + p, method.budget), rounds + 1
        if method.requests == "billed":
            rounds = max(1, size // first)
        result[q] = plurality(chains[q][:size]), rounds, size
    return [result[q] for q in range(len(chains))]


METHODS = st.builds(
    DifficultyAdaptive,
    window=st.integers(1, 3),
    judged=st.integers(1, 4),
    neighbours=st.integers(1, 3),
    budget=st.just(10),
    judged_are=st.sampled_from(["easy", "hard"]),
    preallocate=st.booleans(),
    allocate_over=st.sampled_from(["hard", "all"]),
    requests=st.sampled_from(["made", "billed"]),
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.lists(st.sampled_from([0, 0, 0, 0, 0, 1, 2, -1]), min_size=10, max_size=10),
        min_size=1,
        max_size=14,
    ),
    METHODS,
    st.randoms(use_true_random=False),
)
def test_it_does_what_its_definition_says(chains, method, random):
    ranks = [float(random.randrange(5)) for _ in chains]
    pool = ranked(pool_of(np.array(chains, np.int8)), ranks)
    shuffled = np.array(
        [[random.sample(range(10), 10) for _ in chains] for _ in range(3)], np.uint16
    )
    decided = method.decide([pool], [shuffled])
    easy_to_hard = sorted(range(len(chains)), key=ranks.__getitem__)
    for replicate, order in enumerate(shuffled.tolist()):
        drawn = [
            [own[place] for place in places] for own, places in zip(chains, order, strict=True)
        ]
        for q, (answer, rounds, size) in enumerate(by_definition(method, drawn, easy_to_hard)):
            [ledger] = decided.ledgers
            where = replicate, q
            assert (decided.answer[where], ledger.rounds[where], ledger.cots[where]) == (
                answer,
                rounds,
                size,
            ), where
            assert ledger.output_tokens[where] == pool.output_tokens[q, order[q][:size]].sum()


@pytest.mark.parametrize(
    ("fields", "first", "rounds"),
    [
        ({}, [4, 4, 4, 4, 8], [1, 1, 2, 3, 2]),
        ({"requests": "billed"}, [4, 4, 4, 4, 8], [1, 1, 2, 3, 1]),
        # The first hard question starts with the mean of what the two easy ones before it need: (12
        # + 4) / 2.
        ({"allocate_over": "all"}, [4, 4, 8, 4, 8], [1, 1, 1, 3, 2]),
        ({"allocate_over": "all", "requests": "billed"}, [4, 4, 8, 4, 8], [1, 1, 1, 3, 1]),
    ],
)
def test_first_draws_look_at_hard_questions_or_all(fields, first, rounds):
    undecided = [0, 1] * 6  # needs all 12
    # needs 12, 4, 7, 12, 12
    codes = np.array([undecided, [0] * 12, [0, 1] + [0] * 10, undecided, undecided], np.int8)
    pool = ranked(pool_of(codes), [0.0, 1.0, 2.0, 3.0, 4.0])
    orders = np.arange(12, dtype=np.uint16)[None, None].repeat(5, axis=1)
    method = DifficultyAdaptive(judged=1, neighbours=2, budget=12, **fields)
    allocation = method.allocation([pool], [orders])
    assert allocation.easy.tolist() == [[True, True, False, False, False]]
    assert allocation.first.tolist() == [first]
    [ledger] = method.decide([pool], [orders]).ledgers
    assert ledger.cots.tolist() == [[1, 1, 8, 12, 12]]
    assert ledger.rounds.tolist() == [rounds]


@pytest.mark.parametrize(
    ("recording", "ranking", "judged", "neighbours", "easy", "cots", "rounds"),
    read_data("figures.json")["what the authors' code draws"],
)
def test_allocated_over_all_it_draws_and_bills_what_the_authors_code_does(
    shared, recording, ranking, judged, neighbours, easy, cots, rounds
):
    """Figures of cmp_cal.py (WangXinglin/DSC, 4d6b9a1): split_easy_hard_greedy, allocate_window and
    DSC_window in recorded order.

    `made` counts the requests that DSC_window's loop stands for, `billed` those that its script
    charges the prompt for.
    """
    real = Real(shared)
    [pool], _ = real.pools(recording)
    pool = ranked(pool, difficulty(real, recording, ranking))
    for requests, count in rounds.items():
        method = DifficultyAdaptive(
            judged=judged, neighbours=neighbours, allocate_over="all", requests=requests
        )
        [ledger] = in_recorded_order(method, [pool]).ledgers
        assert (
            int((ledger.cots == 1).sum()),
            int(ledger.cots.sum()),
            int(ledger.rounds.sum()),
        ) == (easy, cots, count)


def test_ranking_calls_are_billed_where_they_were_recorded():
    pool = ranked(pool_of(np.zeros((3, 4), np.int8)), [3.0, 1.0, 2.0])
    scores = pool.scores()
    tokens = np.full(scores.values.shape, -1, np.int32)
    tokens[:, 0] = 70, 80, 90
    from feval.replay.pools import ArrayChannels

    paid = replace(scores, prompt_tokens=tokens, output_tokens=tokens // 10)
    pool = replace(pool, channels=ArrayChannels({"rank": paid}))
    orders = np.arange(4, dtype=np.uint16)[None, None].repeat(3, axis=1).repeat(2, axis=0)
    [ledger] = DifficultyAdaptive(budget=4).decide([pool], [orders]).ledgers
    assert ledger.auxiliary_calls.tolist() == [[1] * 3] * 2
    assert ledger.auxiliary_prompt_tokens.tolist() == [[70, 80, 90]] * 2
    assert ledger.auxiliary_output_tokens.tolist() == [[7, 8, 9]] * 2


def test_no_answers_are_no_ground_to_stop_however_low_the_threshold():
    pool = ranked(pool_of(np.array([[-1] * 8, [0, 1] * 4], np.int8)), [1.0, 2.0])
    orders = np.arange(8, dtype=np.uint16)[None, None].repeat(2, axis=1)
    [ledger] = DifficultyAdaptive(budget=8, threshold="0.5").decide([pool], [orders]).ledgers
    assert ledger.cots.tolist() == [[8, 4]]


def test_it_says_that_it_sees_the_whole_set():
    assert capabilities(DifficultyAdaptive()).whole_set
    assert isinstance(DifficultyAdaptive(), BatchMethod)
    assert not callable(DifficultyAdaptive())


def test_what_ranks_must_be_recorded():
    plain = pool_of(np.zeros((2, 4), np.int8))
    orders = [np.arange(4, dtype=np.uint16)[None, None].repeat(2, axis=1)]
    with pytest.raises(NotRecordedError, match="feval score"):
        DifficultyAdaptive(budget=4).decide([plain], orders)
    with pytest.raises(NotRecordedError, match="question in row 1"):
        DifficultyAdaptive(budget=4).decide([ranked(plain, [1.0, float("nan")])], orders)
    with pytest.raises(NotRecordedError, match="prompt tokens"):
        unknown = replace(plain, prompt_tokens=np.array([3, -1]))
        DifficultyAdaptive(budget=4, ranking="prompt-length").decide([unknown], orders)
    assert DifficultyAdaptive(budget=4, ranking="prompt-length").decide(
        [plain], orders
    ).answer.tolist() == [[0, 0]]
