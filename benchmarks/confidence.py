"""Methods that read scores and log-probabilities: 1,000 replicates of each, against a plain loop
over the same draws.

The loop is ours, in the manner of the authors' code: per question a list of (answer, number) pairs,
`numpy.percentile` where there is a bar, a dictionary of sums. It is given each trace's confidence,
made once; making those is measured on its own.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.measure import Goal, Workspace, cpu_ms
from feval.methods import BestOfN, ConfidenceWeighted, DeepConfidence, WeightedBestOfN
from feval.recording import ScorerInfo
from feval.recording.arrays import Scores
from feval.replay.draws import orders
from feval.replay.pools import ArrayChannels, Pool, RaggedArray, TokenLogprobs

SAMPLES, STEPS, TOKENS, GROUP = 40, 6, 200, 64
REPLICATES = 1000
LOOP_QUESTIONS = 100  # the loop is slow; its time per question is what counts
WINDOW_TRACES = 20
_CHUNK_DRAWS = 1 << 22


def goals(workspace: Workspace) -> list[Goal]:
    """Seconds for 1,000 replicates of each method, and how much longer the loop takes for one of
    them.
    """
    pool = synthetic_pool(workspace.questions)
    bar = {"mode": "online", "group": GROUP, "tail": GROUP}
    methods: dict[str, tuple[Any, Callable[[list[Any]], object]]] = {
        "best-of-n": (BestOfN(20), lambda votes: max(votes, key=lambda vote: vote[1])[0]),
        "weighted best-of-n": (WeightedBestOfN(20), weighted),
        "CISC": (ConfidenceWeighted(20, "scorer", 0.5, "free"), softmax_vote),
        "DeepConf, offline": (DeepConfidence(40, group=GROUP), best_tenths),
        "DeepConf, online": (DeepConfidence(40, **bar), best_tenths),
        "DeepConf, online with consensus": (DeepConfidence(40, **bar, consensus=0.95), best_tenths),
    }
    result = [trace_goal(pool)]
    for name, (method, loop) in methods.items():
        run_all(method, pool, 1)  # what is made once for a pool is made before anything is timed
        votes = [vote_lists(pool, row) for row in range(min(LOOP_QUESTIONS, workspace.questions))]
        draws = method.draws(1)[0]
        ms = cpu_ms(
            {
                "ours": lambda method=method: run_all(method, pool, REPLICATES // 10),
                "loop": lambda votes=votes, loop=loop, draws=draws: [
                    loop(answered(v, draws)) for v in votes
                ],
            }
        )
        each, plain = ms["ours"] / (REPLICATES // 10), ms["loop"] * workspace.questions / len(votes)
        result += [
            Goal(f"{name}: 1,000 replicates", each * REPLICATES / 1e3, 10, "s"),
            Goal(
                "the same per run, over the loop",
                plain / each,
                8,
                "x",
                True,
                f"{each:.2f} ms against {plain:.0f} ms",
            ),
        ]
    return result


def synthetic_pool(questions: int) -> Pool:
    """2 to 10 candidates per question, 3 % without an answer; step scores, scores and token
    confidences of every CoT.
    """
    draw = np.random.default_rng(4)
    shape = (questions, SAMPLES)
    candidates = draw.integers(2, 11, questions)
    codes = (draw.random(shape) ** 2 * candidates[:, None]).astype(np.int16)
    codes[draw.random(shape) < 0.03] = -1
    lengths = draw.integers(TOKENS // 2, TOKENS * 3 // 2, shape)
    offsets = np.concatenate([[0], np.cumsum(lengths.ravel())])
    values = (8 + 8 * draw.random(offsets[-1])).astype(np.float32)
    logprobs = TokenLogprobs(
        -lengths.astype(float),
        RaggedArray(values, offsets, shape),
        RaggedArray(-values, offsets, shape),
    )
    counts = np.zeros(shape, np.int32)
    steps = np.arange(codes.size + 1, dtype=np.int64) * STEPS
    scores = Scores(
        ScorerInfo("scorer", "benchmark"), draw.random(shape), counts == 0,
        draw.random(codes.size * STEPS), steps, counts, counts
    )  # fmt: skip
    keys = draw.integers(0, 1 << 63, questions).astype(np.uint64)
    sizes = np.full(questions, SAMPLES)
    channels = ArrayChannels({"scorer": scores}, logprobs)
    return Pool("llm", codes, lengths, counts[:, 0], sizes, counts, candidates, keys, channels)


def run_all(method: Any, pool: Pool, replicates: int) -> int:
    """Draw and decide in blocks of replicates; return the number of answers."""
    answers = 0
    for block in drawn_orders(pool, method.draws(1)[0], replicates):
        answers += int((method.decide([pool], [block]).answer >= 0).sum())
    return answers


def drawn_orders(pool: Pool, draws: int, replicates: int) -> Iterator[npt.NDArray[np.uint16]]:
    """[R', Q, draws], in chunks as `evaluate` makes them."""
    assert pool.question_keys is not None
    size = max(1, _CHUNK_DRAWS // (len(pool.sizes) * draws))
    for start in range(0, replicates, size):
        yield orders(
            7, pool.question_keys, pool.sizes, range(start, min(start + size, replicates)), draws
        )


# -- the plain loop
# ----------------------------------------------------------------------


def vote_lists(pool: Pool, row: int) -> list[tuple[int, float]]:
    """(answer, score) of each CoT of a question."""
    return list(
        zip(pool.codes[row].tolist(), pool.aggregated("scorer", "last")[row].tolist(), strict=True)
    )


def answered(votes: list[tuple[int, float]], draws: int) -> list[tuple[int, float]]:
    """Drop a draw's CoTs without an answer."""
    return [vote for vote in random.sample(votes, draws) if vote[0] >= 0]


def weighted(votes: list[tuple[int, float]]) -> int:
    """Return the answer with the largest sum of weights."""
    sums: dict[int, float] = {}
    for answer, weight in votes:
        sums[answer] = sums.get(answer, 0.0) + weight
    return max(sums, key=lambda answer: sums[answer])


def softmax_vote(votes: list[tuple[int, float]]) -> int:
    """CISC."""
    return weighted([(answer, math.exp(confidence / 0.5)) for answer, confidence in votes])


def best_tenths(votes: list[tuple[int, float]]) -> int:
    """DeepConf, given each trace's confidence."""
    bar = np.percentile([confidence for _, confidence in votes], 10)
    return weighted([(answer, confidence) for answer, confidence in votes if confidence >= bar])


def lowest_groups(traces: list[list[float]]) -> list[float]:
    """The lowest group of each trace, every group summed anew."""
    return [min(sum(t[i : i + GROUP]) / GROUP for i in range(len(t) - GROUP + 1)) for t in traces]


def trace_goal(pool: Pool) -> Goal:
    """Lowest groups of all traces, over the loop that sums every group anew."""
    confidences = pool.logprobs().confidences
    traces = [confidences.of(0, sample).tolist() for sample in range(WINDOW_TRACES)]
    method = DeepConfidence(group=GROUP)

    def ours() -> object:
        fresh = Pool(
            pool.llm, pool.codes, pool.output_tokens, pool.prompt_tokens, pool.sizes, pool.finish,
            pool.candidates,
            pool.question_keys, ArrayChannels(logprobs=pool.logprobs()),
        )  # fmt: skip
        return method.confidences(fresh)

    ms = cpu_ms({"ours": ours, "loop": lambda: lowest_groups(traces)})
    loop = ms["loop"] * pool.codes.size / WINDOW_TRACES
    note = f"{ms['ours']:.0f} ms against {loop / 1e3:.0f} s"
    return Goal(
        "DeepConf: lowest group of every trace, over a loop", loop / ms["ours"], 20, "x", True, note
    )
