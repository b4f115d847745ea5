"""Turns in evaluations: the same numbers in every form and in a process of its own, exact ones,
costs by every billing.
"""

import numpy as np
import pytest
from recorded_turns import write_full_turns
from small import numbers

from feval import SelfConsistency, evaluate, load, method_curve
from feval.errors import NotRecordedError, UsageError
from feval.evaluation.method_names import make_method
from feval.methods import BeamSearch, SequentialRevision

GOLDS = ["a", "b", "c", "a", "b", "a"]
FILE = """
from feval import plurality

def revise(question, llm):
    turn = llm.sample(2)
    for text in ("Revise.", [{"role": "user", "content": "Why?"}]):
        turn = llm.reply(turn, text)
    assert turn.request.raw_text.count("assistant") == 2 and turn.cots[0].raw_text
    return plurality(turn.answers)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_full_turns(tmp_path_factory.mktemp("turns") / "toy", GOLDS)


@pytest.fixture(scope="module")
def replay(folder):
    return load("toy", recording=folder, seed=4)


@pytest.fixture(scope="module")
def chains(tmp_path_factory):
    return load(
        "toy",
        recording=write_full_turns(tmp_path_factory.mktemp("chains") / "toy", GOLDS, branch=1),
        seed=4,
    )


def test_every_form_gives_the_same_numbers(replay, tmp_path):
    (tmp_path / "revise.py").write_text(FILE)
    batch, own = SequentialRevision(6, 3), make_method(f"{tmp_path / 'revise.py'}:revise")
    methods = (batch, batch.__call__, own)
    first, second, third = (
        numbers(evaluate(each, *replay, order="seeded", replicates=3)) for each in methods
    )
    assert first == second == third


@pytest.mark.parametrize("billing", ["once", "per_round", "per_sample"])
def test_what_was_sent_is_charged(billing, folder):
    dataset, [llm] = load("toy", recording=folder, billing=billing)
    result = evaluate(SequentialRevision(4, 2), dataset, llm, order="recorded")
    pool, steps = llm.pool, llm.pool.steps()
    for row in range(len(GOLDS)):
        taken = [int(np.flatnonzero(steps.parents[row] == parent)[0]) for parent in (0, 1)]
        sent, written = (
            steps.turn_prompts[row, taken].sum(),
            pool.output_tokens[row, [0, 1, *taken]].sum(),
        )
        # "once" charges the request of 7 tokens once; where every request pays its prompt, all that
        # was sent is charged.
        requests = {"once": 7 - 2 * 7, "per_round": 7, "per_sample": 2 * 7}[billing]
        assert result.tokens[row] == requests + sent + written
    assert result.calls.tolist() == [3.0] * 6


def test_seconds_are_those_of_the_longest_turn_of_each_round(chains):
    dataset, [llm] = chains
    method, durations = SequentialRevision(4, 2), llm.pool.channels.numbers("duration_s")
    forms = [
        evaluate(each, dataset, llm, order="recorded", cost="seconds")
        for each in (method, method.__call__)
    ]
    expected = durations[:, [0, 1]].max(axis=1) + durations[:, [8, 9]].max(axis=1)
    for result in forms:
        seconds = result.seconds
        assert seconds == pytest.approx(expected)
    exact, seeded = (
        evaluate(method, dataset, llm, cost="seconds", order=order) for order in ("exact", "seeded")
    )
    assert exact.seconds == pytest.approx(seeded.seconds, rel=0.1)


def test_curves_take_revisions(chains):
    curve = method_curve(*chains, "sequential-revision", "n", [3, 6], settings={"turns": 3})
    kinds = [(point.n, point.kind, point.calls_per_question) for point in curve.points]
    assert kinds == [(3, "exact", 3.0), (6, "exact", 5.0)]


def test_turns_are_no_samples_and_no_steps(replay):
    with pytest.raises(
        UsageError, match="as conversations of several turns, which are no whole CoTs"
    ):
        evaluate(SelfConsistency(2), *replay)
    with pytest.raises(
        NotRecordedError,
        match=(
            r"beam-search cannot be evaluated: .* conversations of several turns, which cannot be"
        ),
    ):
        evaluate(BeamSearch(16, 4), *replay)
