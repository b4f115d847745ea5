"""Methods in their batch form against plain loops in the manner of their authors' code, and exact
expectations over all orders.

Every function in `PARTS` measures one family of methods. The loops are written for this project.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.curve import synthetic_codes
from benchmarks.measure import Goal, Workspace, cpu_ms

Codes = npt.NDArray[np.int8]

SAMPLES = 40
WINDOW = 5
EVERY = 16  # the loop over all prefixes runs on every 16th question and is scaled up
STRENGTHS = {"strong": 4.0, "weak": 1.2}  # as in `curve`


def goals(workspace: Workspace) -> Iterator[Goal]:
    """All families."""
    for part in PARTS:
        yield from part(workspace)


def pool_of(codes: Codes) -> Any:
    """A pool of some codes, whose CoTs have different lengths."""
    from feval.replay.pools import Pool

    questions, samples = codes.shape
    tokens = np.random.default_rng(1).integers(50, 400, codes.shape)
    nothing = np.zeros(questions, np.int64)
    candidates = codes.max(axis=1) + 1
    return Pool(
        "synthetic",
        codes,
        tokens,
        nothing,
        nothing + samples,
        np.zeros(codes.shape, np.uint8),
        candidates,
    )


def recorded_order(pool: Any) -> list[npt.NDArray[np.uint16]]:
    """One replicate: the order of the recording."""
    questions, samples = pool.codes.shape
    return [np.broadcast_to(np.arange(samples, dtype=np.uint16), (1, questions, samples))]


# -- adaptive consistency and ESC
# -------------------------------------------------------------------------------------


def settled(answers: list[int]) -> bool:
    """Adaptive-Consistency's Beta criterion by numerical integration, as its authors test it after
    every answer.
    """
    from scipy.integrate import quad
    from scipy.special import beta

    counts = [count for _, count in Counter(answers).most_common(2)] + [0]
    a, b = counts[0], counts[1]
    share = quad(lambda x: x**a * (1 - x) ** b, 0.5, 1.0)[0] / beta(a + 1, b + 1)
    return bool(share >= 0.95)


def adaptive_loop(rows: list[list[int]]) -> list[int]:
    """Where each question stops."""
    return [next((n for n in range(1, len(row)) if settled(row[:n])), len(row)) for row in rows]


def all_prefixes_loop(rows: list[list[int]]) -> list[list[bool]]:
    """The criterion at every prefix."""
    return [[settled(row[:n]) for n in range(1, len(row) + 1)] for row in rows]


def all_prefixes(codes: Codes) -> npt.NDArray[np.bool_]:
    """[samples, questions] the same from the table of whole numbers, no question dropped."""
    from fractions import Fraction

    from feval.estimators.stopping_criteria import Criterion

    rule = Criterion("beta", Fraction(19, 20), codes.shape[1])
    width = int(codes.max()) + 1
    places = np.ascontiguousarray(codes.T) + np.arange(len(codes), dtype=np.int32) * np.int32(width)
    votes = np.zeros(width * len(codes), np.intp)
    first = second = np.zeros(len(codes), np.intp)
    settled_by = rule.of_two_counts()
    stops = np.empty(places.shape, np.bool_)
    for draw, place in enumerate(places):
        count = votes.take(place) + 1
        votes[place] = count
        second = np.where(count > first, second, np.maximum(second, count))
        first = np.maximum(first, count)
        stops[draw] = settled_by(first, second, draw + 1)
    return stops


def esc_loop(rows: list[list[int]]) -> list[int]:
    """Where each question stops: windows until one has a single answer."""
    stops = []
    for row in rows:
        answers: list[int] = []
        for start in range(0, len(row), WINDOW):
            window = row[start : start + WINDOW]
            answers += window
            if len(Counter(window)) == 1 and -1 not in window:
                break
        stops.append(len(answers))
    return stops


def stopping(workspace: Workspace) -> Iterator[Goal]:
    """Adaptive-Consistency and ESC in one order, and over all orders."""
    from feval.methods import AdaptiveConsistency, EarlyStopping

    adaptive, windows = AdaptiveConsistency(), EarlyStopping(answer="window")
    for name, strength in STRENGTHS.items():
        # The quadrature knows no missing answers: all samples have one.
        codes = np.maximum(synthetic_codes(workspace.questions, SAMPLES, strength), 0)
        pool, rows, gold = pool_of(codes), codes.tolist(), np.zeros(len(codes), np.int64)
        order = recorded_order(pool)
        stops = adaptive.decide([pool], order).ledgers[0].cots[0]
        if not (stops == adaptive_loop(rows)).all():
            raise AssertionError("the loop and the table stop at different draws")
        if not (all_prefixes_loop(rows[::EVERY]) == all_prefixes(codes[::EVERY]).T).all():
            raise AssertionError("the loop and the table differ at a prefix")
        ms = cpu_ms(
            {
                "loop": lambda rows=rows: adaptive_loop(rows),
                "stops": lambda pool=pool, order=order, codes=codes: adaptive.stops(
                    pool, order[0], codes[None]
                ),
                "adaptive": lambda pool=pool, order=order: adaptive.decide([pool], order),
                "prefixes loop": lambda rows=rows: all_prefixes_loop(rows[::EVERY]),
                "prefixes": lambda codes=codes: all_prefixes(codes),
                "esc loop": lambda rows=rows: esc_loop(rows),
                "esc": lambda pool=pool, order=order: windows.decide([pool], order),
                "esc exact": lambda pool=pool, gold=gold: windows.exact(pool, gold),
            }
        )
        exact = cpu_ms(
            {"ac": lambda pool=pool, gold=gold: adaptive.exact(pool, gold)}, batch_ms=1.0
        )
        scaled = ms["prefixes loop"] * len(rows) / len(rows[::EVERY])
        yield _ratio(
            f"Adaptive-Consistency, stops in one order, {name}", ms["loop"], ms["stops"], 100
        )
        yield _ratio(
            f"the same, draws, answers and ledgers too, {name}", ms["loop"], ms["adaptive"], None
        )
        yield _ratio(f"the same, every prefix, {name}", scaled, ms["prefixes"], 500)
        yield Goal(f"the same, exact over all orders, {name}", exact["ac"] / 1e3, 5, "s")
        yield _ratio(f"ESC, one order, {name}", ms["esc loop"], ms["esc"], None)
        yield Goal(f"ESC, exact over all orders, {name}", ms["esc exact"], 10, "ms")
    yield from below_the_pool(workspace)


def below_the_pool(workspace: Workspace) -> Iterator[Goal]:
    """What a weak LLM makes hard: exact expectations of budgets that leave samples undrawn, and of
    votes over what was drawn.
    """
    from feval.methods import AdaptiveConsistency, EarlyStopping

    codes = synthetic_codes(workspace.questions, SAMPLES, STRENGTHS["weak"])
    pool, gold = pool_of(codes), np.zeros(len(codes), np.int64)
    methods: dict[str, Any] = {
        "ESC that votes over everything drawn, exact, weak": EarlyStopping(WINDOW, SAMPLES),
        "the same, budget 20, weak": EarlyStopping(WINDOW, SAMPLES // 2),
        "Adaptive-Consistency, budget 20, exact, weak": AdaptiveConsistency(budget=SAMPLES // 2),
    }
    ms = cpu_ms(
        {name: lambda method=method: method.exact(pool, gold) for name, method in methods.items()}
    )
    for name, limit in zip(methods, (0.3, 0.3, 1.0), strict=True):
        yield Goal(name, ms[name] / 1e3, limit, "s")


def _ratio(name: str, loop: float, ours: float, least: float | None) -> Goal:
    return Goal(name, loop / ours, least, "x", True, f"{ours:.2f} ms against {loop:,.0f} ms")


PARTS: tuple[Callable[[Workspace], Iterator[Goal]], ...] = (stopping,)
"""Families of methods; each yields its goals."""
