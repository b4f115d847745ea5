"""Pools written out by hand, and LLMs that deal from them: both forms of a method on the same
draws, without a recording.
"""

from dataclasses import dataclass, fields

import numpy as np
from hypothesis import strategies as st

from feval.recording import ScorerInfo
from feval.recording.arrays import Scores
from feval.replay.pools import ArrayChannels, Pool, RaggedArray


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


def known(values):
    """The numbers, `None` for NaN."""
    return [None if np.isnan(value) else value for value in values.tolist()]


@dataclass(frozen=True)
class Dealt:
    """CoTs that were dealt."""

    pool: Pool
    row: int
    places: list[int]

    @property
    def answers(self):
        return letters_of(self.pool.codes[self.row, self.places])

    def scores(self, scorer=None, aggregate="score"):
        return known(self.pool.aggregated(scorer, aggregate)[self.row, self.places])

    def scoring_tokens(self, scorer=None, *, prefix_cached=False):
        taken = self.pool.scoring_tokens(scorer, prefix_cached=prefix_cached)
        prompts, outputs = (
            column[self.row, self.places].tolist()
            for column in (taken.prompt_tokens, taken.output_tokens)
        )
        calls = taken.calls[self.row, self.places].tolist()
        return [
            (p, o) if asked else None for asked, p, o in zip(calls, prompts, outputs, strict=True)
        ]

    @property
    def sequence_probabilities(self):
        return known(self.pool.sequence_probabilities()[self.row, self.places])

    @property
    def token_confidences(self):
        kept = self.pool.logprobs().confidences
        return [own if len(own := kept.of(self.row, place)) else None for place in self.places]


class Dealer:
    """An LLM in front of one question: deals from a pool in a given order, and keeps the ledger."""

    def __init__(self, pool, row, order):
        self.pool, self.row, self.order = pool, row, order.tolist()
        self.rounds = self.cots = 0
        self.tokens = []
        self.requests = []
        self.probe_calls = self.probe_tokens = self.sequential_microseconds = self.picodollars = 0
        self.auxiliary_calls = self.auxiliary_prompt_tokens = self.auxiliary_output_tokens = 0
        self.cached_tokens = self.scoring_picodollars = 0

    @property
    def first_cots(self):
        return len(self.tokens[self.requests[0]]) if self.requests else 0

    def sample(self, k=1):
        places = self.order[self.cots : self.cots + k]
        assert len(places) == k
        self.requests.append(slice(self.cots, self.cots + k))
        self.rounds, self.cots = self.rounds + 1, self.cots + k
        self.tokens += self.pool.output_tokens[self.row, places].tolist()
        return Dealt(self.pool, self.row, places)

    @property
    def output_tokens(self):
        return sum(self.tokens)

    @property
    def sequential_tokens(self):
        return sum(max(self.tokens[request]) for request in self.requests)

    @property
    def longest_trace_tokens(self):
        return max(self.tokens, default=0)

    def truncate(self, index, tokens):
        self.tokens[index] = min(self.tokens[index], tokens)

    def charge(self, *, calls=1, prompt_tokens=0, output_tokens=0):
        self.auxiliary_calls += calls
        self.auxiliary_prompt_tokens += prompt_tokens
        self.auxiliary_output_tokens += output_tokens


def assert_both_forms_agree(method, pools, orders, llm=None):
    """Run both forms on every question and replicate, the one on an LLM a pool; equal answers,
    equal ledgers.
    """
    batch = method.decide(pools, orders)
    for r, q in np.ndindex(*batch.answer.shape):
        llms = [
            (llm or Dealer)(pool, q, order[r, q]) for pool, order in zip(pools, orders, strict=True)
        ]
        assert [method("?", *llms)] == letters_of(batch.answer[r, q : q + 1])
        for asked, ledger in zip(llms, batch.ledgers, strict=True):
            for field in fields(ledger):
                taken = getattr(ledger, field.name)
                if taken is None and field.name == "first_cots":
                    continue  # a batch form has it from the method
                assert getattr(asked, field.name) == (0 if taken is None else int(taken[r, q])), (
                    field.name
                )
    return batch


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
