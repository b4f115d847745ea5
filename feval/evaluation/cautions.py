"""Warnings that a result carries where its numbers could mislead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from feval.cards.tokens import is_usage

if TYPE_CHECKING:
    from feval.evaluation.questions import ClusterSizes
    from feval.replay import LLM, Dataset

FEW_QUESTIONS, FULL_QUESTIONS = 10, 30
"""Results on fewer questions carry a warning, a milder one from the first on."""

LARGEST_CLUSTER = 0.2
"""Share of the questions above which a cluster carries a warning."""

_ROUNDING = 1e-9


def few_questions(questions: int, clusters: ClusterSizes | None = None) -> list[str]:
    """Return a warning where clusters are counted instead of questions, and one below
    `FULL_QUESTIONS` of either.
    """
    if clusters is not None:
        sentence = (
            f"Intervals and tests count {_counted(clusters.number, 'cluster')}, not {questions:,}"
            " questions: those with the same text, or that `clusters` puts together, are one."
        )
        largest = (
            f"One cluster holds {clusters.largest:,} of the {questions:,} questions, more than a"
            " fifth: its chance of being right is known from one case only. Intervals of"
            " accuracies and differences are wide for that, those of resampled costs, ratios and"
            " ranks may be too narrow."
        )
        few = _few(clusters.number, "cluster")
        return [sentence, *[largest] * (clusters.largest > questions * LARGEST_CLUSTER), *few]
    return _few(questions, "question")


def _few(number: int, noun: str) -> list[str]:
    if number >= FULL_QUESTIONS:
        return []
    counted = f"Only {_counted(number, noun)}"
    if number >= FEW_QUESTIONS:
        sentence = (
            f"{counted}: below {FULL_QUESTIONS}, tests find large differences only, and a kind of"
            " question that is rarer than one in ten may be missing; intervals allow for that with"
            " two imaginary questions, resampled costs and ranks do not."
        )
        return [sentence]
    sentence = (
        f"{counted}: below {FEW_QUESTIONS}, intervals of accuracies span most of what is possible,"
        " tests can show next to nothing, and resampled costs, ratios and ranks look more certain"
        " than they are."
    )
    return [sentence]


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


def not_exact(reason: str | None) -> list[str]:
    """Return a warning that seeded draws took the place of an exact expectation, given why; nothing
    without a reason.
    """
    return [] if reason is None else [f"{reason} So these are means over seeded draws."]


def mixed_counters(counters: Iterable[str]) -> list[str]:
    """Return a warning where token counters differ, whose counts do not compare, else nothing.

    Tables and pictures mark what it concerns with an asterisk.
    """
    different = list(dict.fromkeys("usage" if is_usage(name) else name for name in counters))
    if len(different) < 2:
        return []
    return [
        (
            "* The tokens of these LLMs are counted by different counters"
            f" ({'; '.join(different)}): such costs do not compare."
        )
    ]


def probes_for_nothing(llms: Sequence[str]) -> list[str]:
    """Return a warning where the tokens of some LLMs' probes are not known, else nothing."""
    if not llms:
        return []
    sentence = (
        f"The tokens of some probes of {' and '.join(llms)} were not recorded: they count 0, so"
        " that tokens and USD lack a part of what probing costs."
    )
    return [sentence]


def other_models(llms: Iterable[LLM]) -> list[str]:
    """Return a warning for each LLM as which several models answered, or another one than was
    asked.
    """
    return [llm.served.sentence for llm in llms if llm.served is not None and llm.served.is_other]


def unscored_cots(counts: Mapping[str, tuple[int, int]]) -> list[str]:
    """Return a warning where CoTs lack the score or confidence that a method takes: {LLM: (how
    many, of how many)}.
    """
    lacking = [
        f"{unscored:,} of {cots:,} CoTs of {llm}" for llm, (unscored, cots) in counts.items()
    ]
    if not lacking:
        return []
    one = sum(unscored for unscored, _ in counts.values()) == 1
    sentence = (
        f"{' and '.join(lacking)} {'has' if one else 'have'} no score or confidence, so that the"
        f" method cannot choose, trust or weigh {'it' if one else 'them'}."
    )
    return [sentence]


def mixed_parties(dataset: Dataset) -> list[str]:
    """Return a warning where a tolerance has answers that equal the gold vote with others that do
    not, else nothing.
    """
    if not dataset.mixed_parties:
        return []
    sentence = (
        f"On {dataset.mixed_parties:,} of {len(dataset):,} questions, answers that equal the gold"
        " within the recording's tolerance vote together with others that do not, and all are"
        " right or wrong as one: an LLM's accuracy there depends on which other answers were"
        " recorded. `feval extract --equality` takes another tolerance."
    )
    return [sentence]


def uncompared(answers: int, total: int) -> list[str]:
    """Return a warning where answers are LaTeX that nobody recorded, `answers` of `total`, else
    nothing.
    """
    if not answers:
        return []
    sentence = (
        f"Answers in a spelling of LaTeX that nobody recorded: {answers:,} of {total:,}. They were"
        " not compared with the gold, and count as wrong even where algebra would find them equal."
        " Answer as one of the CoTs does."
    )
    return [sentence]


def billed_once(billing: str, named: Iterable[tuple[str, Any]]) -> list[str]:
    """Return a warning about the result that gains most from paying prompts once for several calls,
    else nothing.
    """
    dearer = [
        (ratio, name, costs)
        for name, costs in named
        if (ratio := round_ratio(billing, costs)) is not None
    ]
    if not dearer:
        return []
    _, name, costs = max(dearer, key=lambda row: row[0])
    cost, per_round, unit = _paid(costs)
    sentence = (
        f"{name} makes {costs.calls_per_question:.2f} calls per question, and billing once charges"
        " an LLM's prompt for the first of them only. If every call paid its prompt (per_round), a"
        f" question would cost {_amount(per_round)} {unit} instead of {_amount(cost)}."
    )
    return [sentence]


def round_ratio(billing: str, costs: Any) -> float | None:
    """Return the cost if every call paid its prompt over the cost as billed; `None` where they do
    not differ.
    """
    cost, per_round, _ = _paid(costs)
    if billing != "once" or (costs.calls_per_question or 0.0) <= 1 + _ROUNDING or not cost:
        return None
    return per_round / cost if per_round > cost * (1 + _ROUNDING) else None


def _paid(costs: Any) -> tuple[float, float, str]:
    """Return the cost as billed, the cost per round, and the unit; zeros where nothing is known."""
    if costs.usd_per_question is not None:
        return costs.usd_per_question, costs.usd_per_question_per_round or 0.0, "USD"
    return costs.tokens_per_question or 0.0, costs.tokens_per_question_per_round or 0.0, "tokens"


def _amount(value: float) -> str:
    text = f"{value:.3g}" if value < 1000 else f"{value:,.0f}"
    return f"{float(text):.12f}".rstrip("0").rstrip(".") if "e" in text else text
