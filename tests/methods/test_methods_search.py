"""Search over recorded trees: both forms against plain walks, ledgers, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest
from dealt import metered
from hypothesis import given, settings, strategies as st
from probed import assert_forms_agree, orders_of
from searched import (
    assert_walks_agree,
    beam_walk,
    dvts_walk,
    full_trees,
    particle_walk,
    path_walk,
    tree_pool,
)

from feval.errors import NotRecordedError, OutOfRangeError, UnknownNameError, UsageError
from feval.methods import DVTS, BeamSearch, ParticleFiltering, PathConsistency, SelfConsistency
from feval.methods.protocol import capabilities
from feval.replay.pools import ArrayChannels

NAN = float("nan")
WALKS = {
    BeamSearch: beam_walk,
    DVTS: dvts_walk,
    ParticleFiltering: particle_walk,
    PathConsistency: path_walk,
}
SEARCHES = [
    BeamSearch(4, 2),
    BeamSearch(2, 2, aggregate="min", answer="majority"),
    BeamSearch(4, 2, rounds=2, aggregate="prod", answer="best"),
    BeamSearch(1, 1, aggregate="mean"),
    DVTS(4, 2, aggregate="mean", answer="best"),
    DVTS(4, 2, aggregate="prod"),
    DVTS(2, 1, rounds=2, answer="majority"),
]
PARTICLES = [
    ParticleFiltering(2),
    ParticleFiltering(2, aggregate="mean", answer="sampled", seed=3),
    ParticleFiltering(4, rounds=2, aggregate="min"),
]


def check(method, pool, order):
    aggregate = getattr(method, "aggregate", "last")
    assert_walks_agree(method, pool, order, WALKS[type(method)], aggregate)


@pytest.mark.parametrize(
    ("method", "trees"),
    [
        *((method, {}) for method in SEARCHES),
        *((method, {"branch": 2}) for method in PARTICLES[:2]),
        (PARTICLES[2], {"branch": 4, "depth": 2}),
        (PathConsistency(3, 1, 0.6), {"branch": 3}),
        (PathConsistency(4, 2, "0.8"), {"branch": 3}),
        (PathConsistency(4, 1, 0.5, rounds=2), {"branch": 4}),
        (PathConsistency(4, 3), {"branch": 3}),
    ],
    ids=str,
)
@settings(max_examples=15)
@given(data=st.data())
def test_both_forms_are_the_plain_walk(method, trees, data):
    pool = data.draw(full_trees(**trees))
    check(method, pool, data.draw(orders_of(pool)))


TREE = [
    (-1, None, False, 0.5, 3),
    (-1, None, False, 0.75, 5),
    (0, "a", True, 0.9, 2),
    (0, "b", True, 0.1, 4),
    (1, "b", True, 0.8, 1),
    (1, None, False, 0.2, 7),
]
IN_ORDER = np.arange(6, dtype=np.uint16)[None, None]


def test_nodes_know_their_paths():
    llm = metered(tree_pool([TREE]), order=[5, 4, 3, 2, 1, 0])
    one, zero = llm.expand(k=2)
    [[five], [three]] = llm.expand([one, zero])
    [four] = llm.expand(one)
    assert [node.place for node in (one, zero, five, three, four)] == [1, 0, 5, 3, 4]
    assert (four.depth, four.tokens, four.path_tokens, four.ends, four.answer) == (
        2,
        1,
        6,
        True,
        "b",
    )
    assert [five.score("prm", how) for how in ("last", "min", "prod", "mean")] == [
        0.2,
        0.2,
        0.75 * 0.2,
        0.95 / 2,
    ]
    assert (llm.rounds, llm.cots, llm.output_tokens, llm.sequential_tokens) == (3, 5, 20, 5 + 7 + 1)
    assert llm.longest_trace_tokens == 12
    assert [node.place for node in four.path] == [1, 4]
    assert repr(four) == "Node(4 of 'deep', depth 2, 6 tokens, ends)"
    assert llm.expand([]) == []
    assert llm.rounds == 3


def test_what_was_not_recorded_is_an_error_with_parent_and_numbers():
    pool = tree_pool([TREE])
    llm = metered(pool)
    sentence = "A search asks deep for 3 first steps on question '0', and 2 were recorded"
    with pytest.raises(NotRecordedError, match=sentence):
        llm.expand(None, 3)
    assert (llm.rounds, llm.cots) == (0, 0)
    # whoever caught it would know what was not gone on from
    with pytest.raises(NotRecordedError, match=sentence):
        llm.expand(None, 1)
    llm = metered(pool)
    zero, one = llm.expand(None, 2)
    with pytest.raises(
        NotRecordedError, match="for 4 steps after step 1 of the tree on question '0', and 2 were"
    ):
        llm.expand([zero, one, one], 2)
    assert llm.cots == 2
    for method, first in ((BeamSearch(3, 1), 3), (DVTS(4, 2), 4), (ParticleFiltering(3), 3)):
        for call in (
            lambda m=method: m("?", metered(pool)),
            lambda m=method: m.decide([pool], [IN_ORDER]),
        ):
            with pytest.raises(
                NotRecordedError,
                match=f"for {first} first steps on .*, and 2 were recorded. Search with",
            ):
                call()
    with pytest.raises(
        NotRecordedError, match=r"for 2 steps after step 5 of the tree on .*, and 0 were recorded"
    ):
        BeamSearch(2, 2).decide([pool], [IN_ORDER])


def test_misuse_is_refused():
    pool = tree_pool([TREE])
    llm = metered(pool)
    zero, _ = llm.expand(None, 2)
    [end] = llm.expand(zero)
    with pytest.raises(UsageError, match="ends a solution and cannot be expanded"):
        llm.expand(end)
    with pytest.raises(UsageError, match="was not handed out by deep on this question"):
        metered(pool).expand(zero)
    with pytest.raises(UsageError, match="trees of steps, which are replayed whole"):
        llm.truncate(1, 2)
    with pytest.raises(OutOfRangeError, match="for 1 step or more at a time; 0 were"):
        llm.expand(zero, 0)
    with pytest.raises(UnknownNameError, match="aggregate"):
        zero.score("prm", "median")
    with pytest.raises(OutOfRangeError, match="n is a multiple of width; n=6 and width=4"):
        BeamSearch(6)
    with pytest.raises(
        UsageError, match=r"orders of all 6 steps of 1 questions; \(1, 1, 2\) was given"
    ):
        DVTS(2, 1).decide([pool], [IN_ORDER[:, :, :2]])
    for huge in (BeamSearch(4 * 10**12), DVTS(4 * 10**12), ParticleFiltering(10**12)):
        with pytest.raises(NotRecordedError, match="000000"):
            huge.decide([pool], [IN_ORDER])
    flat = SelfConsistency(2)
    assert not capabilities(flat).searches


def test_scores_that_are_no_probabilities_are_refused_by_particles_alone():
    pool = tree_pool([[(-1, "a", True, 3.0, 1), (-1, "b", True, 4.0, 1)]])
    order = np.arange(2, dtype=np.uint16)[None, None]
    for call in (
        lambda: ParticleFiltering(2).decide([pool], [order]),
        lambda: ParticleFiltering(2)("?", metered(pool)),
    ):
        with pytest.raises(
            UsageError, match=r"scores from 0 to 1; those of (prm|the scorer) range from 3.0 to 4.0"
        ):
            call()
    assert assert_forms_agree(BeamSearch(2, 2), pool, order).answer.tolist() == [[1]]


def test_steps_without_scores_come_last_and_no_answer_is_never_chosen():
    pool = tree_pool([[(-1, None, True, 1.0, 1), (-1, "a", True, NAN, 1), (-1, "b", True, 0.0, 1)]])
    order = np.arange(3, dtype=np.uint16)[None, None]
    methods = (
        BeamSearch(3, 3, answer="best"),
        BeamSearch(3, 3),
        BeamSearch(3, 3, answer="majority"),
    )
    assert [assert_forms_agree(m, pool, order).answer.tolist() for m in methods] == [
        [[1]],
        [[1]],
        [[0]],
    ]
    assert assert_forms_agree(ParticleFiltering(3), pool, order).answer.tolist() == [
        [0]
    ]  # of two least weights the first


def test_a_sampled_answer_is_independent_of_the_resampling():
    tree = [(-1, "a", True, 0.5, 1), (-1, "b", True, 0.5, 1), (-1, None, False, 0.0, 1)]
    answers = ParticleFiltering(3, answer="sampled").decide(
        [tree_pool([tree] * 1000)], [np.tile(np.arange(3, dtype=np.uint16), (1, 1000, 1))]
    )
    # It was 2/3: the number that had chosen the first particle chose again.
    assert abs((answers.answer == 0).mean() - 0.5) < 0.05


def test_paths_of_any_depth_have_scores():
    depth = 2000
    steps = [(place - 1, None, False, 0.5, 1) for place in range(depth)]
    llm = metered(tree_pool([[*steps, (depth - 1, "a", True, 0.25, 1)]]))
    node = None
    for _ in range(depth + 1):
        [node] = llm.expand(node)
    assert node is not None
    assert (len(node.path), node.score(aggregate="min")) == (depth + 1, 0.25)


def test_means_of_scores_are_those_of_the_batch_form():
    """0.1 + 0.2 + 0.3 is rounded upwards where one is added after the other, so the path of 0.2
    alone does not come first.
    """
    chains = [[0.1, 0.2, 0.3], [0.2, 0.2, 0.2]]
    tree = [
        (-1 if d == 0 else 2 * d - 2 + c, "ab"[c] if d == 2 else None, d == 2, chains[c][d], 1)
        for d in range(3)
        for c in range(2)
    ]
    for order in ([0, 1, 2, 3, 4, 5], [1, 0, 3, 2, 5, 4]):
        check(
            BeamSearch(2, 1, aggregate="mean", answer="best"),
            tree_pool([tree]),
            np.array([[order]], np.uint16),
        )


def test_trees_and_scores_are_needed():
    pool = tree_pool([TREE])
    assert pool.steps().children(0, 1) == range(4, 6)
    flat = replace(pool, channels=ArrayChannels(llm="deep"))
    with pytest.raises(
        NotRecordedError,
        match="deep was recorded as whole CoTs, which cannot be expanded step by step",
    ):
        BeamSearch(2, 2).decide([flat], [IN_ORDER])
    unscored = replace(pool, channels=ArrayChannels(steps=pool.steps(), llm="deep"))
    with pytest.raises(NotRecordedError, match="deep has no scores"):
        BeamSearch(2, 2).decide([unscored], [IN_ORDER])
