"""Settings of every method in `METHODS` for the contract tests; a method without cases here is
tested with small defaults.
"""

from contextlib import suppress
from dataclasses import fields

from feval.errors import UsageError
from feval.methods import METHODS


class Case:
    """Fields of a method, and how many LLMs it is given."""

    def __init__(self, llms=1, **settings):
        self.llms, self.settings = llms, settings

    def at_most(self, draws):
        """The same with no field above a number of CoTs."""
        own = {name: min(v, draws) if type(v) is int else v for name, v in self.settings.items()}
        return Case(self.llms, **own)

    def __str__(self):
        return ",".join(f"{name}={value}" for name, value in self.settings.items()) or "defaults"


BEST_OF_N = [
    Case(n=1),
    Case(n=5),
    *(Case(n=8, aggregate=aggregate) for aggregate in ("last", "min", "prod", "mean", "score")),
    Case(n=4, scorer="judge:toy", aggregate="score"),
]

DSC = {"ranking": "prompt-length", "window": 2, "neighbours": 2, "budget": 8}

CASES = {
    "path-consistency": [
        Case(n=4, window=2, threshold=0.6),
        Case(n=3, window=1, threshold=0.5),
        Case(n=8, window=3, threshold=1.0, rounds=2),
    ],
    "single-call": [Case()],
    "self-consistency": [
        *(Case(n=n) for n in (1, 2, 5, 8)),
        *(Case(n=n, no_answer="vote") for n in (1, 3, 8)),
    ],
    "difficulty-adaptive": [
        Case(**DSC, judged=2, preallocate=True),
        Case(**DSC, judged=2, preallocate=False),
        Case(**DSC, judged=6, preallocate=True),
        Case(**DSC, judged=2, allocate_over="all", requests="billed"),
    ],
    "best-of-n": BEST_OF_N,
    "weighted-best-of-n": [
        *BEST_OF_N,
        *(Case(n=5, transform=how) for how in ("exp", "sigmoid", "rank")),
    ],
    "confidence-weighted": [
        *(
            Case(n=n, temperature=t)
            for n, t in ((1, 0.5), (8, 0.05), (8, 1.0), (8, float("inf")), (5, 1e-300))
        ),
        *(
            Case(n=8, confidence="judge:toy", temperature=0.3, self_check=billing)
            for billing in ("whole", "cached", "free")
        ),
    ],
    "deep-confidence": [
        *(
            Case(n=8, keep=keep, measure=measure, group=4, tail=6)
            for keep in ("low", "high", 50, "37.5", 100)
            for measure in ("mean", "tail", "lowest-group", "bottom-10%")
        ),
        Case(n=8, vote="plain"),
        *(
            Case(n=8, mode="online", keep=keep, warm_up=4, group=3, vote=vote, consensus=consensus)
            for keep in ("low", "high", 50)
            for vote in ("weighted", "plain")
            for consensus in (None, 0.6, "2/3", 1)
        ),
        Case(n=8, mode="online", warm_up=8, group=13),
        Case(n=8, mode="online", warm_up=1, group=13, keep="low"),
    ],
    "model-switch": [
        Case(llms=1),
        Case(llms=2),
        Case(llms=3),
        Case(samples=1, llms=2),
        Case(samples=(2, 8, 3), llms=3),
        Case(samples=8, normaliser="samples", weights=(1.0, 0.5, 3.0), llms=3),
        Case(samples=2, gate="answered", llms=3),
    ],
    "mixture-of-thoughts": [
        Case(samples=8, llms=2),
        Case(llms=3),
        Case(threshold="1/2", samples=(2, 8), strict=True, llms=3),
        Case(threshold=0.5, samples=8, no_answer="vote", llms=2),
        Case(threshold=1, samples=2, strong_samples=8, llms=2),
        Case(rule="verify", strong_samples=1, llms=3),
        Case(rule="verify", samples=(8, 3), no_answer="vote", llms=3),
    ],
    "cascade": [
        Case(thresholds=(0.5, "0.5"), llms=3),
        Case(thresholds=(0.75, 0.25), samples=(8, 3, 2), strict=False, llms=3),
        Case(thresholds=(0.6,), aggregate="min", order=(2, 0), scorer="judge:toy", llms=3),
        Case(thresholds=("1/2", "2/3"), samples=(8, 3, 1), score="vote-share", llms=3),
        Case(thresholds=("1/2",), samples=8, score="vote-share", strict=False, llms=2),
        Case(thresholds=(), llms=1),
    ],
    "automix": [
        Case(llms=2),
        Case(threshold="3/4", strict=True, scorer="judge:toy", llms=2),
        Case(threshold=0.4, aggregate="mean", verification="free", llms=2),
        Case(threshold="1/2", verification="as-answer", llms=2),
    ],
    "adaptive-consistency": [
        *(
            Case(criterion=criterion, budget=8, no_answer=rule)
            for criterion in ("beta", "dirichlet", "entropy", "majority", "random", "crp")
            for rule in ("drop", "vote")
        ),
        Case(threshold="0.8", budget=8),
        Case(criterion="beta", threshold=0.5, budget=5),
        Case(criterion="dirichlet", threshold=0.7, top=2, budget=8),
        Case(criterion="entropy", threshold=1, budget=8),
        Case(criterion="majority", threshold="2/3", budget=7),
        Case(criterion="random", threshold=0.4, budget=8, seed=3),
        Case(criterion="crp", threshold=0.6, concentration="0.5", budget=8),
        Case(budget=1),
    ],
    "token-budget": [
        Case(n=n, tokens=tokens) for n, tokens in ((1, 8), (8, 4), (8, 9), (5, 13), (8, 100))
    ],
    "answer-convergence": [
        Case(streak=streak, width=width) for streak, width in ((1, 1), (2, 8), (3, 5))
    ],
    "probe-confidence": [
        Case(threshold=bar, width=width) for bar, width in ((0.5, 1), ("2/3", 8), (0, 5))
    ],
    "parallel-probe": [
        Case(width=8, interval=4),
        Case(width=8, interval=4, stable=1, patience=1, warmup=0),
        Case(width=5, interval=8, stable=2, patience=1, warmup=1, steps=2),
    ],
    "beam-search": [
        Case(n=8, width=4),
        Case(n=8, width=2, rounds=2, aggregate="mean", answer="best"),
        Case(n=4, width=4, scorer="prm", aggregate="prod", answer="majority"),
        Case(n=8, width=2, transform="rank"),
    ],
    "sequential-revision": [
        Case(n=8, turns=2),
        Case(n=6, turns=3, answer="majority"),
        Case(n=6, turns=3, answer="best", scorer="prm"),
        *(Case(n=6, turns=3, answer="weighted", transform=how) for how in ("exp", "rank")),
        Case(n=4, turns=1),
    ],
    "dvts": [
        Case(n=8, width=4),
        Case(n=8, width=2, aggregate="min", answer="best"),
        Case(n=8, width=2, transform="sigmoid"),
        Case(n=3, width=1, rounds=2, answer="majority"),
    ],
    "particle-filtering": [
        Case(n=4),
        Case(n=3, rounds=2, aggregate="min", answer="sampled", seed=5),
    ],
    "early-stopping": [
        Case(window=window, budget=budget, answer=answer)
        for window, budget in ((1, 8), (2, 8), (3, 8), (5, 8), (8, 8))
        for answer in ("all", "window")
    ],
}
"""Name in METHODS -> cases; the toy recording has three LLMs with eight or more CoTs on each of six
questions.
"""


def cases_of(kind, name=""):
    """The cases of a method: its own, else its defaults with no number above the eight CoTs of the
    toy.
    """
    if name in CASES:
        return CASES[name]
    settings = {f.name: min(f.default, 8) for f in fields(kind) if type(f.default) is int}
    for llms in (1, 2, 3):
        with suppress(UsageError):
            kind(**settings).draws(llms)
            return [Case(llms, **settings)]
    raise AssertionError(
        f"{kind.__name__} takes neither one, two nor three LLMs; give it cases here."
    )


def all_cases():
    """Every method with each of its cases."""
    return [(name, case) for name, kind in METHODS.items() for case in cases_of(kind, name)]
