"""The two-call estimators: sharp intervals for all budgets up to 101 votes at thousands of (mu,
nu), their proofs, completions.

Regions and completions of a whole table, and expectations over the calls of many laws, are measured
over a Python loop of the same function, one entry at a time.

Moments are random and seeded, with rho from a law that favours both ends. A linear program by SciPy
on a grid of 2,000 points is measured beside the closed solution, one program for one end at one
(mu, nu).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.measure import Goal, Workspace, cpu_ms

PAIRS = 5_000
BUDGETS = range(51)
GRID = 2_000
TABLES = 200
LAWS = 2_000


def goals(_workspace: Workspace) -> Iterator[Goal]:
    """Measure the two-call estimators."""
    from feval.estimators.completions import ldgp_completion, maxent_completion
    from feval.estimators.moments import Moments, PairTable
    from feval.estimators.multinomial import plugin_expectation
    from feval.estimators.self_consistency import multiclass_plugin_expectation
    from feval.estimators.vote_intervals import vote_interval
    from feval.estimators.wald_regions import likelihood_projection, wald_projection

    rng = np.random.default_rng(0)
    mu, rho = rng.random(PAIRS), rng.beta(0.5, 0.5, PAIRS)
    table = Moments.from_values(mu, mu * (mu + (1.0 - mu) * rho))
    first = table.take(slice(100))
    proven = vote_interval(50, table)
    cells = rng.multinomial(8192, rng.dirichlet([6.0, 2.0, 3.0], TABLES))
    pairs, few = (
        PairTable.from_counts(*cells.T),
        PairTable.from_counts(*rng.multinomial(40, [0.6, 0.2, 0.2], TABLES).T),
    )
    single, single_few = (
        [PairTable(table.both_right[i], table.disagree[i], table.both_wrong[i]) for i in range(20)]
        for table in (pairs, few)
    )
    alone = [first.take(i) for i in range(20)]
    laws, nobody = rng.dirichlet(np.ones(5), LAWS), np.zeros(LAWS)
    one = cpu_ms({"all": lambda: [vote_interval(n, table) for n in BUDGETS]}, batch_ms=1.0)["all"]
    yield Goal(
        f"[L_n, U_n], n = 0..50, {PAIRS:,} (mu, nu), with laws and duals", one / 1e3, 5.0, "s"
    )
    times = cpu_ms(
        {
            "interval": lambda: vote_interval(50, table),
            "check": lambda: (proven.lower.check(), proven.upper.check()),
            "maxent": lambda: maxent_completion(first, [1, 2, 50]),
            "ldgp": lambda: ldgp_completion(table, [1, 2, 50]),
            "wald": lambda: wald_projection(pairs, 2),
            "wald loop": lambda: [wald_projection(pair, 2) for pair in single],
            "likelihood": lambda: likelihood_projection(few, 2),
            "likelihood loop": lambda: [likelihood_projection(pair, 2) for pair in single_few],
            "maxent loop": lambda: [maxent_completion(pair, [1, 2, 50]) for pair in alone],
            "ldgp loop": lambda: [ldgp_completion(pair, [1, 2, 50]) for pair in alone],
            "plug-in": lambda: plugin_expectation(
                laws[:, 0], laws[:, 1:], nobody, 5, [1, 5, 21, 101]
            ),
            "plug-in loop": lambda: [
                plugin_expectation(p[None, 0], p[None, 1:], nobody[:1], 5, [1, 5, 21, 101])
                for p in laws[:20]
            ],
            "shares": lambda: multiclass_plugin_expectation(laws, 10),
            "shares loop": lambda: [multiclass_plugin_expectation(p, 10) for p in laws[:20]],
            "program": lambda: linear_program(0.7, 0.595),
        }
    )
    each = times["interval"] / (2 * PAIRS)
    note = f"{times['program']:.3g} ms against {1e3 * each:.3g} us"
    yield Goal(
        "one end, n = 50: a linear program over the closed solution",
        times["program"] / each,
        1_000,
        "x",
        True,
        note,
    )
    yield Goal(f"check of {2 * PAIRS:,} certificates, n = 50", times["check"], None, "ms")
    for name, label, entries, goal in (
        ("wald", "Wald regions", TABLES, 3),
        ("likelihood", "likelihood regions", TABLES, 3),
        ("maxent", "maximum-entropy completions", len(first.mu), 3),
        ("ldgp", "latent-difficulty completions", PAIRS, 20),
        ("plug-in", "expected plug-ins of 5 calls", LAWS, 10),
        ("shares", "expected largest shares of 10 calls", LAWS, 10),
    ):
        together, loop = times[name] / entries, times[f"{name} loop"] / 20
        note = f"each: {loop:.3g} ms against {together:.3g} ms"
        yield Goal(
            f"{label}, a loop over one table of {entries:,}", loop / together, goal, "x", True, note
        )


def linear_program(mu: float, nu: float) -> float:
    """U_50 by SciPy's HiGHS, over laws on a grid."""
    from scipy.optimize import linprog

    from feval.estimators.vote_polynomials import majority_accuracy

    q = np.linspace(0.0, 1.0, GRID)
    done = linprog(
        -majority_accuracy(50, q), A_eq=np.stack([np.ones_like(q), q, q * q]), b_eq=[1.0, mu, nu]
    )
    return float(-done.fun)
