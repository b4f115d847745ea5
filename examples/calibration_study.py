"""How far estimates from a few calls per question are off: python examples/calibration_study.py
RECORDING [RECORDING ...].

For each LLM on each dataset of the recordings: the error of every estimator from G calls against
the whole pool, averaged over draws and over odd numbers of votes; and whether the two-call regions
contain the pool's V_1 and V_2 (three and five votes, a majority of right calls).
docs/forecasting.md shows what came out on published recordings.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from feval.cli.options import parse_counts
from feval.errors import FevalError
from feval.estimators.moments import Moments
from feval.estimators.plurality import vote_counts
from feval.estimators.vote_intervals import certified_three_vote_gain
from feval.forecast import METHODS, Forecast, estimate
from feval.recording import open_recording
from feval.replay import LLM, Dataset, load
from feval.report.tables.tables import Table, TableColumn, plain

ESTIMATORS = tuple(name for name in METHODS if name != "two-call")
TWO_CALL_DRAWS = 40
RESAMPLES = 20  # of intervals that this study does not look at


@dataclass(frozen=True)
class Errors:
    """Errors of one estimator from G calls, in points, over replicates of the draw.

    Attributes:
        everywhere: mean |error| over replicates and odd M up to the pool.
        largest: mean error at the largest odd M, its sign kept.
        spread: standard deviation of that over replicates.
    """

    everywhere: float
    largest: float
    spread: float


@dataclass(frozen=True)
class Regions:
    """Two-call intervals for one number of votes, over replicates of the two calls.

    Attributes:
        votes: 3 or 5.
        truth: of the whole pool.
        within_bounds: share of replicates in which the sharp bounds at the sample moments contain
            it.
        within_region: share in which the projected 95 % region does.
        bounds_width: mean.
        region_width: mean.
        undefined: replicates whose moments no law has; they count as not containing.
        errors: of the bounds' midpoint and of the two completions, from the same two calls: mean
            and mean |error|, points.
    """

    votes: int
    truth: float
    within_bounds: float
    within_region: float
    bounds_width: float
    region_width: float
    undefined: int
    errors: dict[str, tuple[float, float]]


def odd_votes(pool: int) -> list[int]:
    """Odd numbers of votes up to the pool: all to 9, then every other."""
    return [m for m in range(1, pool + 1, 2) if m <= 9 or m % 4 == 3 or m + 2 > pool]


def errors(
    dataset: Dataset, llm: LLM, calls: Sequence[int], replicates: int, methods: Sequence[str]
) -> dict[int, dict[str, Errors]]:
    """Errors by G and estimator."""
    votes = odd_votes(llm.pool.smallest)
    told = {}
    for g in calls:
        asked = [name for name in methods if name != "unbiased" or g >= 3]
        forecasts = [
            estimate(dataset, llm, g=g, m=votes, methods=asked, replicate=r, resamples=RESAMPLES)
            for r in range(replicates)
        ]
        told[g] = {name: summary(forecasts, place) for place, name in enumerate(asked)}
    return told


def summary(forecasts: Sequence[Forecast], place: int) -> Errors:
    """Errors of the estimator at one place of each forecast."""
    rows = np.array([_defined(told, place) for told in forecasts])
    return Errors(float(np.abs(rows).mean()), float(rows[:, -1].mean()), float(rows[:, -1].std()))


def _defined(told: Forecast, place: int) -> list[float]:
    return [100 * error for error in told.errors(told.estimates[place]) if error is not None]


def regions(dataset: Dataset, llm: LLM, replicates: int) -> list[Regions]:
    """Two-call bounds and regions against the pool's V_1 and V_2, and one number in their place."""
    votes = [m for m in (3, 5) if m <= llm.pool.smallest]
    methods = ["two-call", "max-entropy", "ldgp"]
    forecasts = [
        estimate(dataset, llm, g=2, m=votes, methods=methods, replicate=r, resamples=RESAMPLES)
        for r in range(replicates)
    ]
    told = []
    for place, m in enumerate(votes):
        truth = forecasts[0].pool.majority[place]
        points = [forecast.estimates[0].points[place] for forecast in forecasts]
        bounds, undefined = _widths([(p.bound_low, p.bound_high) for p in points], truth)
        outer, _ = _widths([(p.low, p.high) for p in points], truth)
        middles = [
            (p.bound_low + p.bound_high) / 2 - truth for p in points if p.bound_low is not None
        ]
        off = {"midpoint": middles}
        off |= {
            name: [f.errors(f.estimates[i])[place] for f in forecasts]
            for i, name in enumerate(methods)
            if i
        }
        errors = {
            name: (100 * float(np.mean(e)), 100 * float(np.abs(e).mean()))
            for name, e in off.items()
            if e
        }
        told.append(Regions(m, truth, bounds[0], outer[0], bounds[1], outer[1], undefined, errors))
    return told


def gain(dataset: Dataset, llm: LLM) -> str:
    """What three votes gain over one in the pool, and what two moments of the whole pool prove."""
    counts = vote_counts(llm.pool.codes, dataset.gold)
    right, size = counts.gold.astype(float), counts.size.astype(float)
    mu, nu = float((right / size).mean()), float((right * (right - 1) / (size * (size - 1))).mean())
    moments = Moments.from_values(mu, max(nu, mu * mu))
    told = estimate(dataset, llm, g=2, m=[3], methods=["plug-in"], resamples=RESAMPLES)
    majority, plurality = told.pool.majority[0], told.pool.plurality[0]
    proved = certified_three_vote_gain(moments)
    one, rho, sure = f"{100 * mu:.2f} %", float(moments.rho), 100 * float(proved.gain)
    gains = f"majority {100 * (majority - mu):+.2f}, plurality {100 * (plurality - mu):+.2f}"
    return (
        f"One call {one}, rho {rho:.3f}. Gain of three votes, points: {gains}; certain from mu and"
        f" nu: {sure:+.2f}.\n"
    )


def _widths(
    ends: Sequence[tuple[float | None, float | None]], truth: float
) -> tuple[tuple[float, float], int]:
    """Share that contains the truth and mean width; and how many are undefined."""
    known = [(low, high) for low, high in ends if low is not None and high is not None]
    inside = sum(low <= truth <= high for low, high in known) / len(ends)
    return (
        inside,
        float(np.mean([high - low for low, high in known])) if known else float("nan"),
    ), len(ends) - len(known)


def error_table(title: str, told: dict[int, dict[str, Errors]], methods: Sequence[str]) -> Table:
    """Mean |error| over all M, and the mean error at the largest M, per G."""
    rows = []
    for g, by_method in told.items():
        cells = [_cell(by_method.get(name)) for name in methods]
        rows.append((str(g), *cells))
    names = ("G", *methods)
    notes = (
        (
            "mean |error| over odd M, in points / mean error at the largest M; unbiased: M up to G"
            " only"
        ),
    )
    return Table(title, tuple(TableColumn(name, number=True) for name in names), tuple(rows), notes)


def _cell(own: Errors | None) -> str:
    return "-" if own is None else f"{own.everywhere:.2f} / {own.largest:+.2f}"


def region_table(told: Sequence[Regions]) -> Table:
    """Containment and widths of the two-call intervals."""
    names = (
        "votes",
        "pool %",
        "bounds contain %",
        "region contains %",
        "bounds wide",
        "region wide",
        "undefined",
    )
    single = tuple(told[0].errors)
    rows = [
        (
            str(own.votes),
            f"{100 * own.truth:.2f}",
            f"{100 * own.within_bounds:.0f}",
            f"{100 * own.within_region:.0f}",
            f"{100 * own.bounds_width:.2f}",
            f"{100 * own.region_width:.2f}",
            str(own.undefined),
            *(f"{own.errors[name][0]:+.2f} / {own.errors[name][1]:.2f}" for name in single),
        )
        for own in told
    ]
    columns = tuple(TableColumn(name, number=True) for name in (*names, *single))
    notes = (
        (
            "widths in points; last columns: mean error / mean |error| of one number from the same"
            " two calls, in points"
        ),
    )
    return Table("Two-call intervals", columns, tuple(rows), notes)


def study(recording: str, options: argparse.Namespace) -> None:
    """Print the tables of one recording."""
    opened = open_recording(recording)
    for dataset_id in opened.dataset_ids():
        for name in opened.llm_names(dataset_id):
            dataset, [llm] = load(dataset_id, [name], opened, seed=options.seed, prices="none")
            pool = llm.pool.smallest
            calls = [g for g in options.calls if g <= pool]
            if not calls:
                print(f"{name} on {dataset_id}: pools of {pool} are too small for this study.\n")
                continue
            title = (
                f"{name} on {dataset_id}: {len(dataset)} questions, pools of {pool},"
                f" {options.replicates} draws"
            )
            print(
                plain(
                    error_table(
                        title,
                        errors(dataset, llm, calls, options.replicates, options.methods),
                        options.methods,
                    )
                )
            )
            print(plain(region_table(regions(dataset, llm, options.draws))))
            print(gain(dataset, llm))


def main() -> None:
    """Read the arguments and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("recordings", nargs="+", metavar="RECORDING")
    parser.add_argument("--replicates", type=int, default=10, help="draws of G calls")
    parser.add_argument("--draws", type=int, default=TWO_CALL_DRAWS, help="draws of two calls")
    parser.add_argument(
        "--calls", type=parse_counts, default=list(range(2, 21)), metavar="G", help="such as 2..20"
    )
    parser.add_argument("--methods", type=lambda text: text.split(","), default=list(ESTIMATORS))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    try:
        for recording in options.recordings:
            study(recording, options)
    except FevalError as error:
        parser.exit(error.exit_code, f"error: {error}\n")


if __name__ == "__main__":
    main()
