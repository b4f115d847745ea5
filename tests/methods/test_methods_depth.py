"""Methods that look at traces while they grow: both forms, plain loops, all subsets, and the
figures of the authors' code.
"""

import json
import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from dealt import in_recorded_order, letters_of, metered
from hypothesis import given, settings, strategies as st
from places import read_data
from probed import assert_forms_agree, orders_of, probed, probed_pool
from real_files import probed_store

from feval.errors import NotRecordedError
from feval.methods import AdaptiveConsistency, EarlyStopping, SelfConsistency
from feval.methods.answer_convergence import AnswerConvergence
from feval.methods.parallel_probe import ParallelProbe
from feval.methods.probe_confidence import ProbeConfidence
from feval.methods.token_budget import TokenBudget
from feval.replay.draws import orders
from feval.replay.pools import ArrayChannels

INTERVAL = 10
METHODS_ON_FOUR = [
    TokenBudget(1, 10),
    TokenBudget(3, 25),
    TokenBudget(4, 30),
    TokenBudget(4, 100),
    TokenBudget(4, 70_000),
    AnswerConvergence(2, 1),
    AnswerConvergence(2, 4),
    AnswerConvergence(1, 3),
    AnswerConvergence(3, 4),
    ProbeConfidence(0.3, 3),
    ProbeConfidence("0.9", 4),
    ParallelProbe(4, INTERVAL),
    ParallelProbe(4, INTERVAL, stable=2, patience=1, warmup=0),
    ParallelProbe(3, INTERVAL, stable=1, patience=2, warmup=1, steps=3),
    ParallelProbe(4, 2 * INTERVAL, stable=2, patience=1, warmup=0),
    ParallelProbe(4, INTERVAL, patience=2, warmup=1, steps=1),
]


def plurality(answers):
    counts = Counter(answer for answer in answers if answer is not None)
    return max(counts, key=lambda answer: counts[answer]) if counts else None


class Walk:
    """One trace, walked by hand: its answers and where they are, its tokens, and its place."""

    def __init__(self, pool, row, sample, stride=1):
        probes = pool.probes()
        own = probes.of(row, sample)
        shown = list(zip(probes.offsets[own].tolist(), letters_of(probes.codes[own]), strict=True))
        self.stops = shown[stride - 1 :: stride]
        self.length, [self.final] = (
            int(pool.output_tokens[row, sample]),
            letters_of(pool.codes[row, [sample]]),
        )
        self.place, self.tokens, self.answer = 0, 0, None
        self.over = False

    def step(self):
        if self.place < len(self.stops):
            self.tokens, self.answer = self.stops[self.place]
            self.place += 1
        else:
            self.tokens, self.answer, self.over = max(self.length, self.tokens), self.final, True


def walked(method, pool, row, order):
    """Parallel-Probe as its definition has it, second vote included: the answer, and the tokens of
    each trace.
    """
    traces = [
        Walk(pool, row, sample, method.interval // INTERVAL) for sample in order[: method.width]
    ]
    for trace in traces:
        trace.step()
    dropped = set()
    misses = dict.fromkeys(traces, 0)
    winner, stable = None, 0
    for step in range(method.steps):
        for trace in traces:
            if trace not in dropped and not trace.over:
                trace.step()
        left = [trace for trace in traces if trace not in dropped]
        vote = plurality([trace.answer for trace in left])
        if step >= method.warmup and len(left) > 1:
            for trace in left:
                if not trace.over:
                    misses[trace] = misses[trace] + 1 if trace.answer != vote else 0
                    if misses[trace] >= method.patience:
                        dropped.add(trace)
            left = [trace for trace in left if trace not in dropped]
            if not left:
                break
            vote = plurality([trace.answer for trace in left])
        stable = stable + 1 if vote == winner and vote is not None else 0
        winner = vote
        if stable >= method.stable or all(trace.over for trace in left):
            break
    return winner, [trace.tokens for trace in traces]


def settled(streak, pool, row, sample):
    """A trace until its answer has been the same so often."""
    trace, shown = Walk(pool, row, sample), []
    while not trace.over:
        trace.step()
        shown.append(trace.answer)
        if len(shown) >= streak and len(set(shown[-streak:])) == 1 and trace.answer is not None:
            break
    return trace.answer, trace.tokens


def cut(tokens, pool, row, sample):
    """A trace up to a budget."""
    trace = Walk(pool, row, sample)
    if trace.length <= tokens:
        return trace.final, trace.length
    passed = [answer for offset, answer in trace.stops if offset <= tokens]
    return passed[-1] if passed else None, tokens


def sure(bar, pool, row, sample):
    """A trace until a probe is sure enough."""
    trace, probes = Walk(pool, row, sample), pool.probes()
    assert probes.confidences is not None
    for confidence in probes.confidences[probes.of(row, sample)].tolist():
        trace.step()
        if trace.answer is not None and round(confidence, 6) >= bar:
            return trace.answer, trace.tokens
    trace.step()
    return trace.answer, trace.tokens


def expected(method, pool, row, order):
    """The answer and the tokens of each trace, by a plain loop."""
    if isinstance(method, ParallelProbe):
        return walked(method, pool, row, order)
    loops = {
        TokenBudget: ("tokens", cut, "n"),
        AnswerConvergence: ("streak", settled, "width"),
        ProbeConfidence: ("threshold", sure, "width"),
    }
    field, loop, width = loops[type(method)]
    value = getattr(method, field)
    ends = [
        loop(float(value) if loop is sure else value, pool, row, s)
        for s in order[: getattr(method, width)]
    ]
    return plurality([answer for answer, _ in ends]), [tokens for _, tokens in ends]


@pytest.mark.parametrize("method", METHODS_ON_FOUR, ids=str)
@settings(max_examples=8)
@given(data=st.data())
def test_both_forms_are_the_plain_loop(method, data):
    pool = data.draw(probed())
    check_forms(method, pool, data.draw(orders_of(pool)))


def check_forms(method, pool, order):
    """Both forms give the answers and the tokens of the plain loop."""
    decided = assert_forms_agree(method, pool, order)
    [ledger] = decided.ledgers
    for r, q in np.ndindex(*decided.answer.shape):
        answer, tokens = expected(method, pool, q, order[r, q].tolist())
        assert letters_of(decided.answer[r, q : q + 1]) == [answer]
        assert ledger.output_tokens[r, q] == sum(tokens)
        assert ledger.longest_trace_tokens is not None
        assert ledger.longest_trace_tokens[r, q] == max(tokens)


def test_blocks_of_questions_and_replicates_make_no_difference(monkeypatch):
    pool = probed_pool(
        [[(["a", "b", "b"], 31 + q, "b"), (["c"], 14, "a"), ([], 5, None)] for q in range(5)]
    )
    order = np.array([[[0, 1, 2]] * 5, [[2, 1, 0]] * 5, [[1, 0, 2]] * 5], np.uint16)
    method = ParallelProbe(3, INTERVAL, stable=2, patience=1, warmup=0)
    whole = method.decide([pool], [order])
    for name, size in {"_BLOCK": 40, "_REPLICATES": 2, "_PAUSE": 1, "_SEEN": 1}.items():
        monkeypatch.setattr(f"feval.methods.parallel_probe.{name}", size)
    parts = method.decide([pool], [order])
    assert (parts.answer == whole.answer).all()
    assert (parts.ledgers[0].sequential_tokens == whole.ledgers[0].sequential_tokens).all()


def test_parallel_probe_counts_traces_with_more_probes_than_a_byte_holds():
    pool = probed_pool(
        [[("ab" * 150, 3005, "a"), ("b" * 290, 2900, "b"), ("bca" * 3, 95, "a")]], INTERVAL
    )
    order = np.array([[[0, 1, 2]]])
    assert (
        assert_forms_agree(ParallelProbe(3, INTERVAL), pool, order).ledgers[0].output_tokens.item()
        > 500
    )
    assert_forms_agree(ParallelProbe(3, INTERVAL, stable=400, steps=400), pool, order)


def test_what_the_methods_need_is_said_where_it_is_missing():
    plain = probed_pool([[(["a"], 20, "a")]], tokens=False, confidences=False)
    order = np.zeros((1, 1, 1), np.uint16)
    with pytest.raises(NotRecordedError, match="The probes of deep carry no confidence"):
        ProbeConfidence().decide([plain], [order])
    with pytest.raises(
        NotRecordedError,
        match=r"every 25 tokens; those of deep were probed every 10\. Take 10 or a multiple",
    ):
        ParallelProbe(1, 25).decide([plain], [order])
    uneven = probed_pool([[(["a"], 20, "a")]], None, [[[7]]])
    with pytest.raises(
        NotRecordedError,
        match=r"were probed at no fixed interval\. Take a method that goes from probe",
    ):
        ParallelProbe(1, 10).decide([uneven], [order])
    for method in (TokenBudget(1), AnswerConvergence(), ParallelProbe(1)):
        with pytest.raises(
            NotRecordedError,
            match="deep has no probes: its CoTs can be drawn whole, but not followed",
        ):
            method.decide([replace(plain, channels=ArrayChannels(llm="deep"))], [order])


def test_any_offsets_serve_the_methods_that_go_from_probe_to_probe():
    pool = probed_pool([[(["a", "a", "b"], 60, "d"), (["b"], 9, "b")]], None, [[[7, 8, 40], [3]]])
    order = np.array([[[0, 1]], [[1, 0]]], np.uint16)
    for method in (AnswerConvergence(2, 2), ProbeConfidence(0.5, 2), TokenBudget(2, 39)):
        decided = assert_forms_agree(method, pool, order)
        assert decided.answer.shape == (2, 1)
    llm = metered(pool)
    assert AnswerConvergence(2, 1)("?", llm) == "a"
    assert llm.output_tokens == 8


STORES = ("Qwen3-0.6B.aime24", "Qwen3-4B.aime24")
KINDS = {
    "sc": lambda n: SelfConsistency(n[0]),
    "asc": lambda n: AdaptiveConsistency(budget=n[0], threshold=0.95),
    "esc": lambda n: EarlyStopping(n[1], n[0]),
    "sac": lambda n: AnswerConvergence(*n),  # "greedy": of the first trace
    "parallel_probe": lambda n: ParallelProbe(n[0], stable=n[1], patience=n[2], warmup=n[3]),
}
"""What the name of a reference figure of the authors' code stands for."""


@pytest.fixture(scope="module")
def stores(shared):
    return {name: probed_store(shared, name) for name in STORES}


def test_recorded_order_gives_the_figures_of_the_authors_code(shared, stores):
    entries = json.loads((shared / "golden/probed.json").read_text("utf-8"))
    assert len(entries) == 18
    for entry in entries:
        name = next(store for store in STORES if entry["id"].startswith(store))
        kind, numbers = re.fullmatch(r"\.([a-z_]+)\.(.*)", entry["id"].removeprefix(name)).groups()
        method = KINDS[kind]([int(number) for number in re.findall(r"(?<=[a-zA-Z])\d+", numbers)])
        pool, golds, answers = stores[name]
        decided = in_recorded_order(method, [pool])
        [ledger], [codes] = decided.ledgers, decided.answer.tolist()
        assert (
            sum(code == gold for code, gold in zip(codes, golds, strict=True)) == entry["correct"]
        ), entry["id"]
        assert ledger.output_tokens.sum() == entry["total_tokens"], entry["id"]
        assert ledger.longest_trace_tokens.sum() == entry["max_branch_tokens_sum"], entry["id"]
        assert ledger.cots.sum() == entry["branches"], entry["id"]
        assert [own[code] for own, code in zip(answers, codes, strict=True)] == entry["answers"], (
            entry["id"]
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "numbers", "percent", "thousand_tokens"),
    read_data("figures.json")["means of Parallel-Probe"],
)
def test_the_published_means_over_a_hundred_shuffles(
    kind, numbers, percent, thousand_tokens, stores
):
    """Qwen3-4B on AIME 2024, in the Parallel-Probe paper: within four standard errors of a
    difference of two such means.
    """
    (pool, golds, _), method = stores[STORES[1]], KINDS[kind](numbers)
    order = orders(7, pool.question_keys, pool.sizes, range(100), method.draws(1)[0])
    decided = method.decide([pool], [order])
    shares = 100 * (decided.answer == np.array(golds)).mean(axis=1)
    tokens = decided.ledgers[0].output_tokens.mean(axis=1) / 1000
    for means, published, rounding in ((shares, percent, 0.05), (tokens, thousand_tokens, 0.05)):
        error = means.std(ddof=1) / np.sqrt(len(means))
        assert abs(means.mean() - published) <= 4 * np.sqrt(2) * error + rounding
