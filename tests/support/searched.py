"""Pools of trees drawn by hypothesis, and searches over them as plain loops over nested lists."""

from collections import Counter

import numpy as np
from dealt import letters_of, scores_of
from hypothesis import strategies as st
from probed import assert_forms_agree, code, deep_pool
from scipy.stats import beta

from feval.recording import Steps
from feval.replay.draws import more_uniforms, uniforms
from feval.replay.pools import ArrayChannels

Step = tuple[int, str | None, bool, float, int]
"""Parent (-1 for none), answer, whether it ends a solution, score (NaN for none), tokens."""


def tree_pool(trees, messages=None):
    """A pool of trees, all of whose steps were scored by "prm".

    Where there are messages, a number for each step, those with a parent are turns: step s was sent
    10 + 3 s tokens.
    """
    width = max(map(len, trees))
    shape = len(trees), width

    def table(values, absent, dtype):
        return np.array([[*own, *[absent] * (width - len(own))] for own in values], dtype).reshape(
            shape
        )

    parents, answers, ends, scores, tokens = (
        [[step[i] for step in tree] for tree in trees] for i in range(5)
    )
    codes = table([[*map(code, own)] for own in answers], -2, np.int16)
    size, values = np.array([*map(len, trees)]), table(scores, np.nan, np.float64)
    steps = Steps(table(parents, -2, np.int16), table(ends, 0, np.uint8))
    if messages is not None:
        turns = np.where(steps.parents < 0, steps.parents, table(messages, -2, np.int16))
        prompts = np.where(turns < 0, -1, 10 + 3 * np.arange(width))
        steps = Steps(steps.parents, steps.ends, turns.astype(np.int16), prompts.astype(np.int32))
    steps.check(codes, size)
    scored = scores_of(values, tokens=-1, name="prm")
    channels = ArrayChannels({"prm": scored}, steps=steps, llm="deep")
    return deep_pool(codes, table(tokens, 0, np.uint16), size, channels)


@st.composite
def full_trees(draw, branch=2, depth=3, first=4):
    """One or two trees whose every step has `branch` children, unless it ends a solution; at the
    greatest depth all do.
    """
    answer = st.sampled_from(["a", "a", "b", "c", None])
    score = st.sampled_from([0.0, 0.1, 0.2, 0.2, 0.3, 0.7, 1.0, float("nan")])

    def tree():
        steps = []
        layer = [-1] * first
        for level in range(1, depth + 1):
            following = []
            for parent in layer:
                ends = level == depth or draw(st.sampled_from([False, False, True]))
                steps.append(
                    (
                        parent,
                        draw(answer) if ends else None,
                        ends,
                        draw(score),
                        draw(st.integers(0, 9)),
                    )
                )
                following += [] if ends else [len(steps) - 1] * branch
            layer = following
        return steps

    return tree_pool([tree() for _ in range(draw(st.integers(1, 2)))])


class Walk:
    """A tree that is walked: nested lists of children in the order of a draw, and what was taken
    from it.
    """

    def __init__(self, pool, row, order, aggregate):
        self.pool, self.row, self.order, self.aggregate = pool, row, order, aggregate
        steps = pool.steps()
        self.parents, self.ends = steps.parents[row].tolist(), steps.ends[row].tolist()
        self.left = {
            p: [s for s in order if s < len(self.parents) and self.parents[s] == p]
            for p in {*self.parents}
        }
        self.taken = []
        self.rounds = []

    def take(self, wanted):
        steps = [self.left[parent].pop(0) for parent in wanted]
        self.taken += steps
        self.rounds.append(steps)
        return [*steps]

    def path(self, step):
        return [] if step < 0 else [*self.path(self.parents[step]), step]

    def score(self, step):
        scores = self.pool.scores().values[self.row]
        values = [
            float(scores[s]) for s in (self.path(step) if self.aggregate != "last" else [step])
        ]
        if any(v != v for v in values):
            return None
        product, total = 1.0, 0.0
        for value in values:  # `sum` of later versions of Python rounds otherwise
            product, total = product * value, total + value
        return {
            "last": values[-1],
            "min": min(values),
            "prod": product,
            "mean": total / len(values),
        }[self.aggregate]

    def rank(self, step):
        score = self.score(step)
        return -1.0 if score is None else score

    def answer(self, step):
        found = int(self.pool.codes[self.row, step])
        return None if found < 0 else "abc"[found]

    def choose(self, finished, choice):
        answered = [step for step in finished if self.answer(step) is not None]
        if choice == "majority":
            return (
                max(votes, key=votes.get)
                if (votes := Counter(map(self.answer, answered)))
                else None
            )
        scored = [
            (self.answer(step), score)
            for step in answered
            if (score := self.score(step)) is not None
        ]
        if choice == "best":
            return next((a for a, s in scored if s == max(s for _, s in scored)), None)
        sums = {}
        for own, score in scored:
            sums[own] = sums.get(own, 0.0) + score
        return next((a for a, s in sums.items() if s >= max(sums.values()) - 1e-12), None)

    def ledger(self):
        tokens = self.pool.output_tokens[self.row].tolist()
        return {
            "rounds": len(self.rounds),
            "cots": len(self.taken),
            "output_tokens": sum(tokens[s] for s in self.taken),
            "sequential_tokens": sum(max(tokens[s] for s in own) for own in self.rounds),
            "longest_trace_tokens": max(sum(tokens[p] for p in self.path(s)) for s in self.taken),
        }


def beam_walk(method, walk):
    finished, kept, first = [], [-1], True
    for _ in range(method.rounds):
        steps = walk.take(
            [parent for parent in kept for _ in range(method.n if first else method.width)]
        )
        first = False
        finished += [step for step in steps if walk.ends[step]]
        rest = [
            (-walk.rank(step), place, step)
            for place, step in enumerate(steps)
            if not walk.ends[step]
        ]
        kept = [step for *_, step in sorted(rest)][: method.n // method.width]
        if not kept:
            break
    return walk.choose(finished, method.answer)


def dvts_walk(method, walk):
    finished, current = [], [-1] * (method.n // method.width)
    for _ in range(method.rounds):
        steps = walk.take([parent for parent in current for _ in range(method.width)])
        groups = [steps[i : i + method.width] for i in range(0, len(steps), method.width)]
        best = [
            min(group, key=lambda step: (-walk.rank(step), group.index(step))) for group in groups
        ]
        finished += [step for step in best if walk.ends[step]]
        current = [step for step in best if not walk.ends[step]]
        if not current:
            break
    return walk.choose(finished, method.answer)


def path_walk(method, walk):
    prefix, branches = -1, []
    while len(branches) < method.n:
        window = walk.take([prefix] * min(method.window, method.n - len(branches)))
        while going := [
            i
            for i, s in enumerate(window)
            if not walk.ends[s] and len(walk.path(s)) < method.rounds
        ]:
            for i, step in zip(going, walk.take([window[i] for i in going]), strict=True):
                window[i] = step
        branches += window
        votes = Counter(answer for step in branches if (answer := walk.answer(step)) is not None)
        first, second = ([count for _, count in votes.most_common(2)] + [0, 0])[:2]
        if votes and float(beta(first + 1, second + 1).sf(0.5)) >= float(method.threshold):
            for step in branches:
                path = [-1, *walk.path(step)]
                behind = path[path.index(prefix) + 1 :] if prefix in path else []
                if walk.answer(step) == votes.most_common(1)[0][0] and len(behind) > 1:
                    prefix = behind[0]
                    break
    return walk.choose(branches, "majority")


def particle_walk(method, walk):
    def weight(step):
        score = min(max(walk.score(step) or 0.0, 1e-7), 1 - 1e-7)
        return score / (1 - score)

    def pick(weights, number):
        total, place = 0.0, 0
        goal = number * float(np.cumsum(weights)[-1])
        for place, each in enumerate(weights):
            total += each
            if total > goal:
                return place
        return place

    def numbers(count):
        assert walk.pool.question_keys is not None
        taken = np.array(walk.order[: len(walk.taken)], np.uint16)[None, None]
        last = uniforms(walk.pool.question_keys[[walk.row]], taken, method.seed)[0, 0, -1]
        return more_uniforms(np.array(last), count).tolist()

    particles = walk.take([-1] * method.n)
    for _ in range(method.rounds - 1):
        if all(walk.ends[step] for step in particles):
            break
        weights = [weight(step) for step in particles]
        particles = [particles[pick(weights, number)] for number in numbers(method.n)]
        running = [step for step in particles if not walk.ends[step]]
        steps = walk.take(running) if running else []
        particles = [step if walk.ends[step] else steps.pop(0) for step in particles]
    final = [step for step in particles if walk.ends[step] and walk.answer(step) is not None]
    if not final:
        return None
    if method.answer == "heaviest":
        return walk.answer(max(final, key=lambda step: (weight(step), -final.index(step))))
    return walk.answer(final[pick([weight(step) for step in final], numbers(method.n + 1)[-1])])


def assert_walks_agree(method, pool, order, walk_of, aggregate="last", ledger_of=Walk.ledger):
    """Both forms of a method give the answer and the ledger of a plain walk."""
    decided = assert_forms_agree(method, pool, order)
    for r, q in np.ndindex(*decided.answer.shape):
        walk = Walk(pool, q, order[r, q].tolist(), aggregate)
        assert letters_of(decided.answer[r, q : q + 1]) == [walk_of(method, walk)]
        for name, value in ledger_of(walk).items():
            assert getattr(decided.ledgers[0], name)[r, q] == value, name
