"""Pools with probes, written out or drawn by hypothesis."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from dealt import assert_both_forms_agree
from hypothesis import strategies as st

from feval.recording.arrays import Probes
from feval.replay.pools import ArrayChannels, Pool

Trace = tuple[Sequence[str | None], int, str | None]
"""Answers of its probes, tokens, final answer: a letter each."""


def code(answer):
    return -1 if answer is None else ord(answer) - ord("a")


def probed_pool(questions, interval=10, offsets=None, *, tokens=True, confidences=True):
    """A pool of traces that were probed at an interval, or at some offsets; what a probe took and
    how sure it was are made up.
    """
    codes = np.array([[code(final) for _, _, final in traces] for traces in questions], np.int16)
    lengths = np.array([[length for _, length, _ in traces] for traces in questions], np.uint16)
    counts = [len(answers) for traces in questions for answers, _, _ in traces]
    if offsets is None:
        assert interval is not None
        places = [interval * (j + 1) for count in counts for j in range(count)]
    else:
        places = [place for own in offsets for each in own for place in each]
    answers = [code(answer) for traces in questions for shown, _, _ in traces for answer in shown]
    number = np.arange(len(answers))
    probes = Probes(
        interval,
        np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        np.array(places, np.uint32),
        np.array(answers, np.int8),
        (number * 5 % 4 - 1).astype(np.int16) if tokens else None,
        (
            np.where(number % 7 == 3, np.nan, number * 3 % 11 / 10).astype(np.float32)
            if confidences
            else None
        ),
        codes.shape,
    )
    channels = ArrayChannels(probes=probes, llm="deep")
    return deep_pool(codes, lengths, np.full(len(codes), codes.shape[1]), channels)


def deep_pool(codes, lengths, size, channels):
    """A pool of the LLM "deep" with up to 26 answers; its requests have 9 tokens."""
    keys, finish = np.arange(len(codes), dtype=np.uint64), np.zeros_like(codes, np.uint8)
    return Pool("deep", codes, lengths, size * 0 + 9, size, finish, size * 0 + 26, keys, channels)


def assert_forms_agree(method, pool, order):
    """`assert_both_forms_agree` for one LLM."""
    return assert_both_forms_agree(method, [pool], [order])


def with_probes(llm, interval=4):
    """Let the pool of a loaded LLM have probes with made-up answers: of each question any of its
    recorded ones, or none.
    """
    pool, draw = llm.pool, np.random.default_rng(len(llm.name))
    counts = np.maximum(
        pool.output_tokens // interval - draw.integers(-1, 2, pool.codes.shape), 0
    ) * (pool.codes > -2)
    highest = np.repeat(pool.codes.max(axis=1), counts.sum(axis=1))
    probes = Probes(
        interval,
        np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        np.concatenate([np.arange(1, count + 1) * interval for count in counts.ravel()]).astype(
            np.uint32
        ),
        draw.integers(-1, highest + 1).astype(np.int16),
        draw.integers(-1, 9, len(highest)).astype(np.int16),
        (draw.integers(0, 7, len(highest)) / 6).astype(np.float32),
        pool.codes.shape,
    )
    assert pool.channels.derived(("probes",), lambda: probes) is probes
    return llm


def turned_round(pool, last):
    """The pool with codes 0, 1, ..., last [Q] of each question in the opposite order, also those of
    probes.
    """
    tables = [np.append(np.arange(code, -1, -1), -1).astype(np.int32) for code in last.tolist()]
    codes = np.where(pool.codes < 0, pool.codes, last[:, None] - pool.codes)
    return replace(pool, codes=codes, channels=pool.channels.rows(np.arange(len(last)), tables))


@st.composite
def probed(draw, samples=4):
    """Ragged traces: some shorter than the interval, some with fewer probes than fit, or with one
    beyond the end.
    """
    answer = st.sampled_from(["a", "a", "b", "c", None])

    def trace():
        length = draw(st.integers(1, 60))
        count = max(0, length // 10 + draw(st.sampled_from([0, 0, 0, 1, -1, -3])))
        return [draw(answer) for _ in range(count)], length, draw(answer)

    return probed_pool([[trace() for _ in range(samples)] for _ in range(draw(st.integers(1, 2)))])


@st.composite
def orders_of(draw, pool, replicates=2):
    """Orders of whole pools."""
    questions, samples = pool.codes.shape
    order = st.permutations(range(samples))
    return np.array([[draw(order) for _ in range(questions)] for _ in range(replicates)], np.uint16)


def without_future(pool, row, sample, tokens):
    """The pool with everything wrong that comes after so many tokens of a trace, which has not
    ended by then.
    """
    probes = pool.probes()
    places = probes.of(row, sample)
    later = np.zeros(len(probes.codes), np.bool_)
    later[places] = probes.offsets[places] > tokens
    codes, confidences = np.where(later, 25, probes.codes), np.where(later, 99, probes.confidences)
    spoilt = replace(probes, codes=codes, confidences=confidences)
    final = pool.codes.copy()
    final[row, sample] = 24
    return replace(pool, codes=final, channels=ArrayChannels(probes=spoilt, llm="deep"))
