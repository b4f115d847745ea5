"""Figures of what recorded answers say about voting: numbers and panels, which
`feval.report.pictures` draws.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from feval.errors import UnknownNameError
from feval.executors.progress import reports
from feval.forecast.figures.answers import answer_mass, approximation_error, consistency_error
from feval.forecast.figures.panels import Figure, FigureOptions, Panel, Series
from feval.forecast.figures.two_calls import certified_gains, mixtures, two_call_plane

if TYPE_CHECKING:
    from feval.replay import LLM, Dataset

__all__ = ["FIGURES", "Figure", "FigureKind", "FigureOptions", "Panel", "Series", "make_figure"]


class FigureKind(NamedTuple):
    """A figure by name: what it shows, whether it needs gold answers, and the function that makes
    it.
    """

    about: str
    needs_golds: bool
    make: Callable[[Dataset, Sequence[LLM], FigureOptions], Figure]


FIGURES: Mapping[str, FigureKind] = {
    "answer-mass": FigureKind(
        "share of the most frequent answers and entropy, by difficulty and temperature (CEV,"
        " Figures 3 and 4)",
        True,
        answer_mass,
    ),
    "approximation-error": FigureKind(
        "error of vote accuracies estimated from a few calls, by temperature (CEV, Figure 5)",
        True,
        approximation_error,
    ),
    "self-consistency-error": FigureKind(
        "how often a call disagrees with the LLM's own favourite, and how to split a budget (arXiv"
        " 2509.19489)",
        False,
        consistency_error,
    ),
    "two-call-plane": FigureKind(
        "accuracy of one call against the correlation of two: what votes can gain (arXiv"
        " 2605.03379, Figure 2)",
        True,
        two_call_plane,
    ),
    "certified-gains": FigureKind(
        "gains of votes over one call: recorded, possible, and certified together (arXiv"
        " 2605.03379, Theorem 4.1)",
        True,
        certified_gains,
    ),
    "mixtures": FigureKind(
        "votes over calls of several LLMs, and which LLM overtakes another by voting (arXiv"
        " 2605.03379, appendix E)",
        True,
        mixtures,
    ),
}
"""The figures by name. CEV is "Compute-efficient evaluation of LLM voting accuracy"."""


@reports("drawing")
def make_figure(
    name: str, dataset: Dataset, llms: Sequence[LLM], options: FigureOptions | None = None
) -> Figure:
    """Make a figure of some LLMs on a dataset.

    Args:
        name: a key of `FIGURES`.
        dataset: the questions, from `load`.
        llms: from the same `load`; one or more.
        options: `None` for the defaults of `FigureOptions`.

    Raises:
        UnknownNameError: no such figure.
        UsageError: too few LLMs for it, or dataset and LLMs from different loads.
        UnlabelledError, ShortPoolError: questions have no gold answer, or too few CoTs.
        OutOfRangeError: a number out of range.
    """
    if name not in FIGURES:
        raise UnknownNameError.of("figure", name, FIGURES)
    dataset.require(llms)
    return FIGURES[name].make(dataset, llms, options or FigureOptions())
