"""Figures: every number by hand, by enumeration or by SciPy; and the pictures."""

from itertools import combinations, product

import numpy as np
import pytest
from scipy import stats
from small import letters, write_toy

from feval import load
from feval.errors import (
    OutOfRangeError,
    ShortPoolError,
    UnknownNameError,
    UnlabelledError,
    UsageError,
)
from feval.forecast import plan
from feval.forecast.figures import FIGURES, FigureOptions, make_figure

COOL = letters("aaab", "bb-a", "aaaa", "cbcd")
HOT = letters("abca", "baaa", "abaa", "aacd")
GOLD = ["a"] * 4


def loaded(folder, pools, gold):
    dataset, llms = load("toy", list(pools), write_toy(folder / "toy", pools, gold), prices="none")
    return dataset, llms


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    return loaded(tmp_path_factory.mktemp("figures"), {"cool": COOL, "hot": HOT}, GOLD)


def made(name, both, **options):
    return make_figure(name, *both, FigureOptions(**options))


def series(figure, panel):
    return {each.label: list(each.y) for each in figure.panels[panel].series}


def right(answers):
    return [list(pool).count("a") for pool in answers]


def test_the_mass_of_the_answers_by_hand(two):
    figure = made("answer-mass", two)
    # most frequent answers of the first LLM: 3 1, 2 1, 4, 2 1 1 of 4
    assert series(figure, 0)["cool"] == pytest.approx([11 / 16, 14 / 16, 15 / 16])
    entropies = [
        stats.entropy(shares)
        for shares in ([0.75, 0.25], [0.5, 0.25, 0.25], [1], [0.5, 0.25, 0.25])
    ]
    # accuracies 3/4, 1/4, 1, 0: two questions, none, one and one
    hard = (entropies[1] + entropies[3]) / 2
    expected = [hard, np.nan, entropies[0], entropies[2]]
    assert series(figure, 1)["cool"] == pytest.approx(expected, nan_ok=True)
    assert len(figure.panels) == 2  # both were recorded at one temperature


def plurality(shares, votes):
    """Probability that "a" wins so many votes, by enumeration; ties are broken at random, no answer
    has no vote.
    """
    total = 0.0
    for drawn in product(shares, repeat=votes):
        counts = {name: drawn.count(name) for name in drawn if name is not None}
        leaders = [name for name in counts if counts[name] == max(counts.values())]
        total += (
            float(np.prod([shares[name] for name in drawn]))
            * ("a" in leaders)
            / max(len(leaders), 1)
        )
    return total


def shares(answers):
    return {name: list(answers).count(name) / len(answers) for name in set(answers)}


def test_the_error_of_an_estimate_by_enumeration(two):
    figure = made("approximation-error", two, calls=2, votes=3)
    llm = two[1][0]
    truth = [np.mean([plurality(shares(pool), votes) for pool in COOL]) for votes in (1, 3)]
    errors = []
    for order in llm.orders(range(100), 2):
        drawn = [
            [pool[place] for place in places]
            for pool, places in zip(COOL, order.tolist(), strict=True)
        ]
        errors.append(
            [
                np.mean([plurality(shares(pool), votes) for pool in drawn]) - t
                for votes, t in zip((1, 3), truth, strict=True)
            ]
        )
    assert series(figure, 0)["cool"] == pytest.approx(np.abs(errors).mean(axis=0))
    assert series(figure, 1)["cool"] == pytest.approx(np.mean(errors, axis=0))
    with pytest.raises(ShortPoolError):
        made("approximation-error", two, calls=4)


def test_the_self_consistency_error_by_enumeration(two):
    figure = made("self-consistency-error", two)
    expected = []
    for n in (1, 2, 3, 4):
        worst = []
        for pool in COOL:
            law = shares(pool)
            worst.append(
                sum(
                    float(np.prod([law[name] for name in drawn]))
                    * (1 - max(map(drawn.count, drawn)) / n)
                    for drawn in product(law, repeat=n)
                )
            )
        expected.append(np.mean(worst))
    assert series(figure, 0)["cool"] == pytest.approx(expected)
    bounds = {
        (m, n): 1 / (8 * m) + 1 / (np.pi * n) + 1 / (2 * m * n)
        for m in range(1, 17)
        for n in range(1, 17 // m + 1)
        if m * n <= 16
    }
    _, best, recorded = figure.panels[1].series
    [m, n] = min(bounds, key=lambda split: bounds[split])
    assert best.label == f"best: {m} questions x {n} calls"
    assert best.y == pytest.approx([np.sqrt(bounds[m, n])])
    assert recorded.y == pytest.approx([np.sqrt(bounds[4, 4])])


def test_the_two_call_plane_by_its_definitions(two):
    figure = made("two-call-plane", two)
    alone = made("mixtures", two, votes=3).panels[1].series[1:]
    for own, mixed, answers in zip(figure.panels[0].series, alone, (COOL, HOT), strict=False):
        pairs = [
            [pool[i] == pool[j] == "a" for i, j in combinations(range(4), 2)] for pool in answers
        ]
        mu, nu = np.mean(right(answers)) / 4, np.mean(pairs)
        rho = (nu - mu**2) / (mu * (1 - mu))  # may be negative by chance
        for place in (own, mixed):
            assert (*place.x, *place.y) == pytest.approx((mu, rho))
    boundary = figure.panels[0].series[-1]
    assert (boundary.x[50], boundary.y[50]) == pytest.approx((0.75, 1 - 1 / 1.5))


def test_gains_are_those_of_scipy_and_of_the_plan(tmp_path):
    pools = [["a"] * c + ["b"] * (10 - c) for c in (5, 7, 9, 10) * 15]
    votable = loaded(tmp_path, {"m": pools}, ["a"] * 60)
    figure = made("certified-gains", votable, votes=5)
    dataset, [llm] = votable
    c = (llm.pool.codes == dataset.gold[:, None]).sum(axis=1)
    purchases = {
        option.votes: option
        for option in plan(dataset, llm, budget_tokens=1e9, most_votes=5).options
    }
    gains, certified = figure.panels[0].series
    assert list(gains.x) == list(certified.x) == [3, 5]
    for place, m in enumerate((3, 5)):
        gain = stats.hypergeom.sf(m // 2, 10, c, m) - c / 10
        assert gains.y[place] == pytest.approx(gain.mean())
        assert gains.low[place] == pytest.approx(purchases[m].majority_gain_bound)
        assert certified.y[place] <= gains.low[place] <= gains.high[place]
        assert certified.y[place] == pytest.approx(purchases[m].majority_gain_low_together)


def test_mixtures_and_overtaking_by_enumeration(two):
    figure = made("mixtures", two, votes=3)
    counts = np.array([right(COOL), right(HOT)]).T

    def votes(weight):
        """Three votes of a mixture, over all ways to pick LLMs and distinct CoTs."""
        total = 0.0
        for question in range(4):
            for picks in product((0, 1), repeat=3):
                chance = np.prod([(1 - weight, weight)[1 - pick] for pick in picks])
                first, second = picks.count(0), picks.count(1)
                hits = np.convolve(
                    stats.hypergeom.pmf(range(first + 1), 4, counts[question, 0], first),
                    stats.hypergeom.pmf(range(second + 1), 4, counts[question, 1], second),
                )
                total += chance * hits[2:].sum() / 4
        return total

    panel = figure.panels[0]
    assert panel.x_label in {"share of cool, else hot", "share of hot, else cool"}
    first = panel.x_label.startswith("share of cool")
    by_weight = series(figure, 0)["3 votes"]
    assert by_weight == pytest.approx([votes(w if first else 1 - w) for w in panel.series[1].x])
    one, many = counts.mean(axis=0) / 4, [votes(1.0), votes(0.0)]
    assert series(figure, 2) == {
        "cool": pytest.approx([one[0], many[0]]),
        "hot": pytest.approx([one[1], many[1]]),
    }


def test_what_cannot_be_drawn_is_said(two, tmp_path):
    dataset, [cool, _] = two
    with pytest.raises(UnknownNameError, match="no figure 'pie'"):
        made("pie", two)
    with pytest.raises(
        UsageError,
        match=r"A mixture takes two LLMs or more; cool alone was given\. Name others, llm='NAME'\.",
    ):
        make_figure("mixtures", dataset, [cool])
    with pytest.raises(ShortPoolError):
        made("mixtures", two, votes=5)
    for options in ({"votes": 4}, {"votes": 1}, {"calls": 0}, {"confidence": 1.0}):
        with pytest.raises(OutOfRangeError):
            FigureOptions(**options)
    unlabelled = loaded(tmp_path, {"m": COOL}, ["a", "a", "a", None])
    for name in FIGURES.keys() - {"self-consistency-error", "mixtures"}:
        with pytest.raises(UnlabelledError):
            made(name, unlabelled, calls=2)
    assert made("self-consistency-error", unlabelled).left_out.to_dict() == {
        "unlabelled": [],
        "short_pools": [],
    }
    assert made("answer-mass", unlabelled, unlabelled="drop").left_out.unlabelled == ("toy/3",)


@pytest.mark.slow
@pytest.mark.parametrize("name", FIGURES)
def test_pictures_are_the_same_every_time(two, name):
    from feval.report.pictures import figure

    one, other = (figure(made(name, two, calls=2, votes=3)) for _ in range(2))
    assert one.png() == other.png()
    assert one.png().startswith(b"\x89PNG")
    assert one.svg() == other.svg()
