"""Methods on traces: 100 seeded replicates over 30 questions x 128 traces x 20 to 40 probes,
against a plain loop over the same.

The loop is ours, in the manner of the authors' code: an object per branch, which is advanced, and a
`Counter` of all of them that are left, in every step. It makes the same answers and the same
ledger. Traces change their answers often at first and less and less later; a question has about as
many different answers as one of the store of Qwen3-4B. Parallel-Probe is measured on the two
published stores, too: that of Qwen3-0.6B has far more answers, and ties.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.measure import ROOT, Goal, Workspace, cpu_ms
from feval import import_recording, load
from feval.evaluation.surfaces import surface
from feval.methods import AnswerConvergence, ParallelProbe, TokenBudget
from feval.recording.arrays import Probes
from feval.replay.draws import orders
from feval.replay.pools import ArrayChannels, Pool

QUESTIONS, SAMPLES, INTERVAL, PROBES = 30, 128, 500, 38
ANSWERS, WIDTH, REPLICATES = 100, 64, 100
LOOP_REPLICATES = 4  # the loop is slow; its time per replicate is what counts


def goals(workspace: Workspace) -> Iterator[Goal]:
    """How much longer the loop takes, what a probe takes in memory, and how long the surface
    takes.
    """
    pool = synthetic_pool()
    probes = pool.probes()
    parts = (probes.starts, probes.offsets, probes.codes, probes.output_tokens)
    held = sum(part.nbytes for part in parts if part is not None)
    yield Goal(
        "memory of a probe",
        held / len(probes.codes),
        10,
        "bytes",
        note=f"{len(probes.codes):,} probes",
    )
    loops: dict[str, tuple[Any, Loop, float]] = {
        "Parallel-Probe": (ParallelProbe(WIDTH, INTERVAL), parallel_probe, 50),
        "answer convergence, 64 traces": (AnswerConvergence(14, WIDTH), converged, 50),
        "token budget, 64 traces": (TokenBudget(WIDTH, 8000), cut, 20),
    }
    for name, (method, loop, least) in loops.items():
        yield over_loop(name, pool, method, loop, least)
    sys.path.insert(0, str(ROOT / "tests" / "support"))
    from real_files import probed_store

    for store in ("Qwen3-4B", "Qwen3-0.6B"):
        pool, _, _ = probed_store(ROOT.parent / "shared", f"{store}.aime24")
        yield over_loop(f"Parallel-Probe, {store}", pool, *loops["Parallel-Probe"])
        yield whole_surface(store, workspace)


def whole_surface(store: str, workspace: Workspace) -> Goal:
    """How long the surface of a published store takes, opening included."""
    folder, source = (
        workspace.folder / store,
        ROOT.parent / f"shared/real/probed/{store}.aime24.json.gz",
    )
    if not folder.exists():
        import_recording(
            "probed-traces", source, folder, dataset="aime24", llm=store, answer_kind="verbatim"
        )

    def points() -> int:
        dataset, [llm] = load("aime24", recording=folder, prices="none")
        return len(surface(dataset, llm).points)

    ms = cpu_ms({"surface": points})["surface"]
    return Goal(
        f"surface of all widths and depths, {store}", ms, 1000, "ms", note=f"{points():,} points"
    )


def over_loop(name: str, pool: Pool, method: Any, loop: Loop, least: float) -> Goal:
    """How much longer the loop takes than the method, which makes the same of the same draws."""
    order = orders(1, np.arange(QUESTIONS, dtype=np.uint64), pool.sizes, range(REPLICATES), WIDTH)
    stored = [[branches(pool, q, s) for s in range(SAMPLES)] for q in range(QUESTIONS)]
    decided = method.decide([pool], [order])
    for r, q in np.ndindex(LOOP_REPLICATES, QUESTIONS):
        answer, *ledger = loop([stored[q][s] for s in order[r, q].tolist()])
        ours = [int(getattr(decided.ledgers[0], field)[r, q]) for field in FIELDS]
        if (int(decided.answer[r, q]), ours) != (-1 if answer is None else answer, ledger):
            raise AssertionError(f"{name}: the loop and the batch form differ")
    ms = cpu_ms(
        {
            "ours": lambda: method.decide([pool], [order]),
            "loop": lambda: [
                loop([stored[q][s] for s in order[r, q].tolist()])
                for r in range(LOOP_REPLICATES)
                for q in range(QUESTIONS)
            ],
        }
    )
    plain = ms["loop"] * REPLICATES / LOOP_REPLICATES
    note = f"{ms['ours']:.0f} ms against {plain:,.0f} ms"
    return Goal(
        f"{name}, {REPLICATES} replicates, over a plain loop",
        plain / ms["ours"],
        least,
        "x",
        True,
        note,
    )


def synthetic_pool() -> Pool:
    """Traces of easy and hard questions, some with fewer probes than fit."""
    draw = np.random.default_rng(7)
    lengths = np.clip(
        draw.lognormal(np.log(PROBES * INTERVAL), 0.4, (QUESTIONS, SAMPLES)), 600, 38_912
    ).astype(np.uint32)
    counts = np.maximum(
        lengths // INTERVAL - draw.choice(4, lengths.shape, p=[0.6, 0.2, 0.1, 0.1]), 0
    ).astype(np.int64)
    strength = draw.uniform(1.0, 4.0, QUESTIONS)
    shares = np.exp(-strength[:, None] * np.log1p(np.arange(ANSWERS)))
    shares /= shares.sum(axis=1, keepdims=True)
    shown, final = [], np.empty(lengths.shape, np.int16)
    for q, s in np.ndindex(*lengths.shape):
        count = int(counts[q, s])
        own = draw.choice(ANSWERS, count + 1, p=shares[q])
        keeps = draw.random(count + 1) < np.linspace(0.4, 0.95, count + 1)
        keeps[0] = False
        answers = own[np.maximum.accumulate(np.where(keeps, 0, np.arange(count + 1)))]
        shown.append(answers[:count])
        final[q, s] = answers[count]
    starts = np.append(0, np.cumsum(counts))
    codes = np.concatenate(shown).astype(np.int16)
    offsets = (np.arange(len(codes)) - np.repeat(starts[:-1], counts.ravel()) + 1) * INTERVAL
    tokens = np.full(len(codes), 12, np.int16)
    probes = Probes(INTERVAL, starts, offsets.astype(np.uint32), codes, tokens, None, lengths.shape)
    sizes = np.full(QUESTIONS, SAMPLES)
    finish, candidates = np.zeros(lengths.shape, np.uint8), np.full(QUESTIONS, ANSWERS)
    return Pool(
        "synthetic",
        final,
        lengths,
        sizes,
        sizes,
        finish,
        candidates,
        None,
        ArrayChannels(probes=probes),
    )


Stored = tuple[list[int], list[int], int, int]
"""A branch as the stores have it: answers of its probes, tokens of these, its own tokens, final
answer.
"""

Outcome = tuple[int | None, int, int, int, int, int]
"""An answer, and the numbers of `FIELDS`."""

Loop = Callable[[list[Stored]], Outcome]

FIELDS = (
    "output_tokens",
    "sequential_tokens",
    "longest_trace_tokens",
    "probe_calls",
    "probe_tokens",
)


def branches(pool: Pool, question: int, sample: int) -> Stored:
    """One trace as plain Python values."""
    probes, own = pool.probes(), pool.probes().of(question, sample)
    spent = (
        [0] * len(probes.codes[own])
        if probes.output_tokens is None
        else probes.output_tokens[own].tolist()
    )
    return (
        probes.codes[own].tolist(),
        spent,
        int(pool.output_tokens[question, sample]),
        int(pool.codes[question, sample]),
    )


class Branch:
    """A trace that is advanced an interval at a time."""

    def __init__(self, stored: Stored) -> None:
        self.probes, self.spent, self.length, self.final = stored
        self.place = self.tokens = self.misses = self.calls = self.probe_tokens = 0
        self.answer: int | None = None
        self.finished = self.pruned = False

    def advance(self, *, ask: bool = True) -> int:
        """Show the next probe, or the end; returns how many tokens it grew."""
        before = self.tokens
        if self.place < len(self.probes):
            self.answer = self.probes[self.place]
            if ask:
                self.calls += 1
                self.probe_tokens += self.spent[self.place]
            self.place += 1
            self.tokens += INTERVAL
        else:
            self.answer, self.finished = self.final, True
            self.tokens = max(self.tokens, self.length)
        return self.tokens - before


def vote(chosen: list[Branch]) -> int | None:
    """The most frequent answer, the one seen first of several."""
    return Counter(branch.answer for branch in chosen).most_common(1)[0][0]


def outcome(answer: int | None, chosen: list[Branch], sequential: int) -> Outcome:
    """The answer with the ledger of all branches."""
    tokens = [branch.tokens for branch in chosen]
    probes = sum(branch.calls for branch in chosen), sum(branch.probe_tokens for branch in chosen)
    return answer, sum(tokens), sequential, max(tokens), *probes


def parallel_probe(stored: list[Stored]) -> Outcome:
    """Parallel-Probe on one question."""
    method = ParallelProbe(WIDTH, INTERVAL)
    chosen = [Branch(each) for each in stored]
    sequential = max(branch.advance(ask=False) for branch in chosen)
    winner, stable = None, 0
    for step in range(method.steps):
        running = [branch for branch in chosen if not branch.pruned and not branch.finished]
        sequential += max([branch.advance() for branch in running], default=0)
        left = [branch for branch in chosen if not branch.pruned]
        leader = vote(left)
        if step >= method.warmup and len(left) > 1:
            for branch in left:
                if not branch.finished:
                    branch.misses = branch.misses + 1 if branch.answer != leader else 0
                    branch.pruned = branch.misses >= method.patience
            left = [branch for branch in chosen if not branch.pruned]
            leader = vote(left)
        stable = stable + 1 if leader == winner else 0
        winner = leader
        if stable >= method.stable or all(branch.finished for branch in left):
            break
    return outcome(winner, chosen, sequential)


def converged(stored: list[Stored]) -> Outcome:
    """Answer convergence on one question."""
    chosen = [Branch(each) for each in stored]
    shown: dict[Branch, list[int | None]] = {branch: [] for branch in chosen}
    running, sequential = chosen, 0
    while running:
        sequential += max(branch.advance() for branch in running)
        for branch in running:
            shown[branch].append(branch.answer)
        running = [
            branch
            for branch in running
            if not branch.finished
            and (len(shown[branch]) < 14 or len(set(shown[branch][-14:])) > 1)
        ]
    return outcome(vote(chosen), chosen, sequential)


def cut(stored: list[Stored]) -> Outcome:
    """A token budget of 8,000 on one question."""
    answers, tokens, probes = [], [], []
    for shown, spent, length, final in stored:
        passed = 0 if length <= 8000 else min(8000 // INTERVAL, len(shown))
        answers.append(final if length <= 8000 else shown[passed - 1] if passed else None)
        tokens.append(min(length, 8000))
        probes += [spent[passed - 1]] * (passed > 0)
    answer = Counter(answer for answer in answers if answer is not None).most_common(1)[0][0]
    return answer, sum(tokens), max(tokens), max(tokens), len(probes), sum(probes)
