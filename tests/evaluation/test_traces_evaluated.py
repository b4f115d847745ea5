"""Recorded probes from the folder to the evaluation: pools, joined recordings, a user's own
process, numbers and warnings.
"""

import numpy as np
import pytest
from small import letters, numbers, pool, write_rows

from feval import evaluate, load
from feval.errors import MethodError, NotRecordedError
from feval.evaluation.method_names import make_method
from feval.evaluation.replicates import method_answers
from feval.evaluation.user_methods.host import _method_answer
from feval.methods import METHODS
from feval.methods.protocol import LEDGER_FIELDS
from feval.recording import LLMInfo
from feval.recording.content import ProbeRows

# Final answers, their tokens, and answers of probes every 10 tokens; "w" and "v" are answers of
# probes only.
POOLS = letters("aab", "x-y", "bbc")
TOKENS = [[35, 22, 41], [18, 30, 25], [5, 44, 12]]
PROBES = [letters("waa", "bb", "wwab"), letters("y", "-xx", "vy"), letters("", "cbbb", "b")]
GOLDS = ["a", "y", "b"]

METHODS_FILE = """
from feval import plurality

def settles(question, llm):
    traces = llm.start(3)
    last = {}
    while running := [trace for trace in traces if trace.running]:
        llm.advance(running, tokens=10)
        for trace in running:
            answer = trace.probe()
            if answer is not None and last.get(trace) == answer:
                trace.stop()
            last[trace] = answer
    return plurality(list(last.values()))

def first_probe(question, llm):
    traces = llm.start(3)
    llm.advance(traces, tokens=10)
    seen = [(trace.probe(), trace.confidence, trace.tokens, trace.running, repr(trace)) for trace in traces]
    return str([seen, llm.dollar_cost, repr(llm)])
"""  # noqa: E501


def write_probed(
    out,
    llm="gpt-4o-mini",
    *,
    probed=True,
    tokens=True,
    answers=POOLS,
    lengths=TOKENS,
    probes=PROBES,
):
    """A recording of three questions whose traces were probed, or of the traces alone."""
    rows = (pool(i, own, tokens=lengths[i]) for i, own in enumerate(answers))
    own_probes = (
        {llm: [probe_rows(i, own, tokens=tokens) for i, own in enumerate(probes)]}
        if probed
        else None
    )
    return write_rows(
        out, GOLDS, (LLMInfo(llm, temperature=0.7, max_tokens=64), rows), probes=own_probes
    )


def probe_rows(index, shown, *, tokens):
    flat = [
        (s, 10 * (j + 1), answer) for s, own in enumerate(shown) for j, answer in enumerate(own)
    ]
    samples, offsets, answers = ([part[i] for part in flat] for i in range(3))
    known = [s + 1 for s in samples] if tokens else None
    sure = [0.5 + s / 10 for s in samples]
    return ProbeRows(
        f"toy/{index}", samples, offsets, answers, answers, output_tokens=known, confidences=sure
    )


@pytest.fixture(scope="module")
def replay(tmp_path_factory):
    return load("toy", recording=write_probed(tmp_path_factory.mktemp("probed") / "toy"), seed=4)


@pytest.fixture(scope="module")
def settles(tmp_path_factory):
    file = tmp_path_factory.mktemp("method") / "methods.py"
    file.write_text(METHODS_FILE)
    return make_method(f"{file}:settles")


@pytest.mark.parametrize("order", ["recorded", "seeded"])
def test_recorded_traces_give_the_same_numbers_in_every_form(order, replay, settles):
    """The method of the file is answer convergence with a streak of two, over three traces."""
    batch = METHODS["answer-convergence"](2, 3)
    results = [
        evaluate(method, *replay, order=order, replicates=3)
        for method in (batch, batch.__call__, settles)
    ]
    first, *others = map(numbers, results)
    assert all(other == first for other in others)
    assert results[0].sequential_tokens_per_question == results[1].sequential_tokens_per_question


def test_totals_of_the_recorded_order_can_be_read_off(replay):
    result = evaluate(METHODS["answer-convergence"](2, 3), *replay, order="recorded").to_dict()
    # w a a | b b | w w; y, then x at its end | none x x | v y y at its end; b at its end | c b b |
    # b, then c at its end
    assert (result["correct"], result["traces"], result["samples"]) == (2, 9, 9)
    assert result["output_tokens"] == (30 + 20 + 20) + (18 + 30 + 25) + (5 + 30 + 12)
    assert result["longest_trace_tokens"] == 30 + 30 + 30
    assert result["sequential_tokens"] == (10 + 10 + 10) + (10 + 10 + 10) + (10 + 10 + 10)
    assert result["probe_calls_per_question"] == pytest.approx((7 + 6 + 4) / 3)
    assert result["probe_tokens_per_question"] == pytest.approx((3 + 4 + 6 + 1 + 6 + 6 + 6 + 3) / 3)
    assert result["calls_per_question"] == pytest.approx(1 + 17 / 3)
    assert result["output_tokens_per_question"] == result["output_tokens"] / 3
    assert not any("probes" in warning for warning in result["warnings"])


def test_where_traces_were_left_is_told_by_every_form(replay, settles):
    expected = [[30, 20, 20], [18, 30, 25], [5, 30, 12]]  # as above
    for method in (settles, METHODS["answer-convergence"](2, 3)):
        told = method_answers(method, *replay, np.arange(3), None, closely=True)
        assert [[list(map(list, own)) for own in each.grown] for each in told] == [
            [[[place, tokens] for place, tokens in enumerate(own)]] for own in expected
        ]
    ledgers = [[0] * len(LEDGER_FIELDS)]
    assert _method_answer(["a", ledgers, [[[2, 7]]]], [3], "It").grown == [[[2, 7]]]
    for wrong in ([[[3, 7]]], [[[0, -1]]], [[[0]]], [[]] * 2, [0], 0):
        with pytest.raises(MethodError, match="Leave feval's pipe alone"):
            _method_answer(["a", ledgers, wrong], [3], "It")


def test_probes_of_unknown_length_are_warned_of(tmp_path):
    recorded = load("toy", recording=write_probed(tmp_path / "toy", tokens=False))
    for method, warned in (
        (METHODS["token-budget"](2, 10), True),
        (METHODS["self-consistency"](2), False),
    ):
        for order in ("exact", "recorded"):
            warnings = evaluate(method, *recorded, order=order).to_dict()["warnings"]
            told = "some probes of gpt-4o-mini were not recorded: they count 0" in " ".join(
                warnings
            )
            assert told is warned


def test_probes_vote_with_the_answers_of_other_recordings(tmp_path, replay):
    """Opened together, answers are numbered anew, those of probes alone, too."""
    answers = letters("zwb", "yvx", "cz-")
    other = write_probed(tmp_path / "other", "wide", probed=False, answers=answers)
    dataset, [_, deep] = load(
        "toy", ["wide", "gpt-4o-mini"], [other, write_probed(tmp_path / "toy")], seed=4
    )
    assert not np.array_equal(deep.pool.probes().codes, replay[1][0].pool.probes().codes)
    method = METHODS["answer-convergence"](2, 3)
    joined, alone = (
        evaluate(method, *each, order="seeded", replicates=5) for each in ((dataset, deep), replay)
    )
    assert numbers(joined) == numbers(alone)
    readable = evaluate(method.__call__, dataset, deep, order="seeded", replicates=5)
    assert numbers(readable) == numbers(alone)


def test_nothing_of_the_future_reaches_a_process_of_its_own(tmp_path, settles):
    """Other probes, ends and lengths after ten tokens make no difference to a method that stops
    there.
    """
    probes = [
        [[shown if j == 0 else "c" for j, shown in enumerate(each)] for each in own]
        for own in PROBES
    ]
    lengths = [[length if length <= 10 else 2 * length for length in own] for own in TOKENS]
    answers = [
        [answer if length <= 10 else "q" for answer, length in zip(*own, strict=True)]
        for own in zip(POOLS, TOKENS, strict=True)
    ]
    spoilt = write_probed(tmp_path / "spoilt", answers=answers, lengths=lengths, probes=probes)
    method = make_method(f"{settles.path}:first_probe")
    said = [
        list(method.host.answers(*load("toy", recording=path), np.arange(3), 0, None))
        for path in (write_probed(tmp_path / "toy"), spoilt)
    ]
    assert said[0] == said[1]
    assert len({outcome.answer for outcome in said[0]}) == 3


def test_what_was_not_probed_is_refused_in_every_process(tmp_path, settles):
    plain = load("toy", recording=write_probed(tmp_path / "plain", probed=False))
    advice = (
        r"gpt-4o-mini on toy has no probes: its CoTs can be drawn whole.*feval import probed-traces"
    )
    with pytest.raises(NotRecordedError, match=advice):
        evaluate(METHODS["parallel-probe"](3, 10), *plain)
    with pytest.raises(MethodError, match=advice):
        evaluate(settles, *plain)
