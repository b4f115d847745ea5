"""Pools written out by hand, and LLMs that deal from them: both forms of a method on the same
draws, without a recording.
"""

from dataclasses import fields

import numpy as np
from hypothesis import strategies as st

from feval.recording import ScorerInfo
from feval.recording.arrays import Scores
from feval.replay.llm import LLM
from feval.replay.meter import MeteredLLM
from feval.replay.pools import ArrayChannels, Pool, RaggedArray
from feval.replay.source import RecordedSource


def pools_of(*answers, tokens=None, channels=None):
    """Pools with shared codes, from the answers of LLMs on questions; the letters' places in the
    alphabet are the codes.
    """
    made = []
    for i, questions in enumerate(answers):
        codes = np.array(
            [[-1 if a is None else ord(a) - ord("a") for a in own] for own in questions], np.int16
        )
        output = (
            np.arange(codes.size).reshape(codes.shape) % 7 + 1
            if tokens is None
            else np.array(tokens[i])
        )
        sizes = np.full(len(codes), codes.shape[1])
        made.append(
            Pool(
                f"llm{i}", codes, output, np.full(len(codes), 10 * (i + 1)), sizes,
                np.zeros_like(codes, np.uint8),
                np.full(len(codes), 26), np.arange(len(codes), dtype=np.uint64),
                ArrayChannels() if channels is None else channels[i],
            )
        )  # fmt: skip
    return made


def ragged(lists, shape):
    """Numbers of some CoTs, none of the others."""
    lengths = np.zeros(shape, np.int64)
    for place, numbers in lists.items():
        lengths[place] = len(numbers)
    values = np.concatenate([lists[place] for place in sorted(lists)]) if lists else np.empty(0)
    return RaggedArray(values, np.concatenate([[0], np.cumsum(lengths.ravel())]), shape)


def scores_of(values, steps=None, tokens=0, name="synthetic"):
    """Scores by a scorer."""
    shape = values.shape
    made = ragged(steps or {}, shape)
    counts = np.full(shape, tokens, np.int32)
    scored = ~np.isnan(values) | (made.lengths() > 0)
    return Scores(ScorerInfo(name, "test"), values, scored, made, counts, counts)


def recorded_order(pool, draws):
    return np.broadcast_to(np.arange(draws, dtype=np.uint16), (1, len(pool.sizes), draws))


def in_recorded_order(method, pools):
    """What the batch form decides in recorded order."""
    orders = [
        recorded_order(pool, n) for pool, n in zip(pools, method.draws(len(pools)), strict=True)
    ]
    return method.decide(pools, orders)


def letters_of(codes):
    """The answers of codes."""
    return [None if code < 0 else chr(ord("a") + code) for code in codes.tolist()]


class PoolLLM:
    """A recorded LLM that is nothing but a pool, in an order that is given."""

    billing, uniform = "once", LLM.uniform

    def __init__(self, pool, order):
        self.pool, self.name, self._order = pool, pool.llm, tuple(order)
        self.question_keys, self.question_ids = (
            pool.question_keys,
            [str(row) for row in range(len(pool.sizes))],
        )

    def order(self, row, replicate):
        return self._order

    def require(self, row, n):
        assert n <= len(self._order)

    def require_whole_cots(self):
        pass

    def messages(self, row):
        return None

    request = known_price = known_prompt_tokens = messages

    def answers(self, row, samples):
        return letters_of(self.pool.codes[row, list(samples)])

    def answer_texts(self, row, codes):
        return letters_of(np.array(codes, np.int64))


def metered(pool, row=0, order=None):
    """An LLM in front of one question."""
    order = range(pool.codes.shape[1]) if order is None else order
    llm = PoolLLM(pool, order)
    return MeteredLLM(RecordedSource(llm, row, order))


def assert_both_forms_agree(method, pools, orders):
    """Run both forms on every question and replicate, the one on an LLM a pool; equal answers,
    equal ledgers.
    """
    batch = method.decide(pools, orders)
    for r, q in np.ndindex(*batch.answer.shape):
        llms = [
            metered(pool, q, order[r, q].tolist())
            for pool, order in zip(pools, orders, strict=True)
        ]
        assert [method("?", *llms)] == letters_of(batch.answer[r, q : q + 1])
        assert_ledgers_agree(llms, batch.ledgers, (r, q))
    return batch


def assert_ledgers_agree(llms, ledgers, place):
    """What meters have counted is what the ledgers [R, Q] say at a place."""
    for asked, ledger in zip(llms, ledgers, strict=True):
        for field in fields(ledger):
            taken = getattr(ledger, field.name)
            if taken is None and field.name == "first_cots":
                continue  # a batch form has it from the method
            expected = 0 if taken is None else int(taken[place])
            assert getattr(asked, field.name) == expected, field.name


@st.composite
def dealt(draw, llms, samples, letters="abc"):
    """Pools of some LLMs on a few questions, with ties and missing answers, and orders for a few
    replicates.
    """
    questions, replicates = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    answer = st.one_of(st.none(), st.sampled_from(letters), st.sampled_from(letters[:1]))
    table = st.lists(
        st.lists(answer, min_size=samples, max_size=samples), min_size=questions, max_size=questions
    )
    pools = pools_of(*(draw(table) for _ in range(llms)))
    order = st.permutations(range(samples))
    orders = [
        np.array([[draw(order) for _ in range(questions)] for _ in range(replicates)], np.uint16)
        for _ in range(llms)
    ]
    return pools, orders


def answers_of(method, pools):
    """The answers of a method in recorded order."""
    return letters_of(in_recorded_order(method, pools).answer[0])
