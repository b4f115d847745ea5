"""Warnings that a result carries where its numbers could mislead."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from feval.cards.tokens import is_usage

if TYPE_CHECKING:
    from feval.evaluation.questions import ClusterSizes, Rows
    from feval.replay import LLM, Dataset

FEW_QUESTIONS, FULL_QUESTIONS = 10, 30
"""Results on fewer questions carry a warning, a milder one from the first on."""

LARGEST_CLUSTER = 0.2
"""Share of the questions above which a cluster carries a warning."""

_ROUNDING = 1e-9


def few_questions(questions: int, clusters: ClusterSizes | None = None) -> Iterator[str]:
    """Yield a warning where clusters are counted instead of questions, and one below
    `FULL_QUESTIONS` of either.
    """
    number, noun = questions, "question"
    if clusters is not None:
        number, noun = clusters.number, "cluster"
    counted = f"{number:,} {noun}{'s' * (number != 1)}"
    if clusters is not None:
        yield (
            f"Intervals and tests count {counted}, not {questions:,} questions: those with the same"
            " text, or that `clusters` puts together, are one."
        )
        if clusters.largest > questions * LARGEST_CLUSTER:
            yield (
                f"One cluster holds {clusters.largest:,} of the {questions:,} questions, more than"
                " a fifth: its chance of being right is known from one case only. Intervals of"
                " accuracies and differences are wide for that, those of resampled costs, ratios"
                " and ranks may be too narrow."
            )
    if number < FEW_QUESTIONS:
        yield (
            f"Only {counted}: below {FEW_QUESTIONS}, intervals of accuracies span most of what is"
            " possible, tests can show next to nothing, and resampled costs, ratios and ranks look"
            " more certain than they are."
        )
    elif number < FULL_QUESTIONS:
        yield (
            f"Only {counted}: below {FULL_QUESTIONS}, tests find large differences only, and a kind"
            " of question that is rarer than one in ten may be missing; intervals allow for that"
            " with two imaginary questions, resampled costs and ranks do not."
        )


def not_exact(reason: str | None) -> Iterator[str]:
    """Yield a warning that seeded draws took the place of an exact expectation, given why; nothing
    without a reason.
    """
    if reason is not None:
        yield f"{reason} So these are means over seeded draws."


def mixed_counters(counters: Iterable[str]) -> list[str]:
    """Return a warning where token counters differ, whose counts do not compare, else nothing.

    Tables and pictures mark what it concerns with an asterisk.
    """
    different = list(dict.fromkeys("usage" if is_usage(name) else name for name in counters))
    sentence = (
        f"* The tokens of these LLMs are counted by different counters ({'; '.join(different)}):"
        " such costs do not compare."
    )
    return [sentence] if len(different) > 1 else []


def probes_for_nothing(llms: Sequence[str]) -> Iterator[str]:
    """Yield a warning where the tokens of some LLMs' probes are not known."""
    if llms:
        yield (
            f"The tokens of some probes of {' and '.join(llms)} were not recorded: they count 0, so"
            " that tokens and USD lack a part of what probing costs."
        )


def other_models(llms: Iterable[LLM]) -> list[str]:
    """Return the cautions of the LLMs' recordings, and a warning for each LLM as which several
    models answered, or another one than was asked.
    """
    used = [*llms]
    others = [each.served.sentence for each in used if each.served and each.served.is_other]
    return [*dict.fromkeys(caution for llm in used for caution in llm.cautions), *others]


def unscored_cots(counts: Mapping[str, tuple[int, int]]) -> Iterator[str]:
    """Yield a warning where CoTs lack the score or confidence that a method takes: {LLM: (how
    many, of how many)}.
    """
    if counts:
        lacking = [
            f"{unscored:,} of {cots:,} CoTs of {llm}" for llm, (unscored, cots) in counts.items()
        ]
        has, it = ("has", "it") if sum(n for n, _ in counts.values()) == 1 else ("have", "them")
        yield (
            f"{' and '.join(lacking)} {has} no score or confidence, so that the method cannot"
            f" choose, trust or weigh {it}."
        )


def unpaid_scores(scorers: Sequence[str]) -> Iterator[str]:
    """Yield a warning where a method reads scores by these scorers, and nobody pays for them."""
    if scorers:
        yield (
            f"Scores by {' and '.join(scorers)} cost nothing here: what they cost was not recorded,"
            " or their model has no price. --scorer-cost USD bills each (in Python:"
            " scorer_cost=USD)."
        )


def judged_by(dataset: Dataset, rows: Rows) -> Iterator[str]:
    """Yield the cautions of the recordings, and what says which CoTs of some questions are right,
    where it is not their golds alone.
    """
    yield from dataset.cautions
    if (judges := dataset.judges(rows)) is not None:
        yield f"Of {len(rows):,} questions: {judges}."


def uncompared(answers: int, total: int) -> Iterator[str]:
    """Yield a warning where answers are LaTeX that nobody recorded, `answers` of `total`."""
    if answers:
        yield (
            f"Answers in a spelling of LaTeX that nobody recorded: {answers:,} of {total:,}. They"
            " were not compared with the gold, and count as wrong even where algebra would find"
            " them equal. Answer as one of the CoTs does."
        )


def billed_once(billing: str, named: Iterable[tuple[str, Any]]) -> Iterator[str]:
    """Yield a warning about the result that gains most from paying prompts once for several calls,
    if any does.
    """
    dearer = [(ratio, *row) for row in named if (ratio := round_ratio(billing, row[1])) is not None]
    if dearer:
        _, name, costs = max(dearer, key=lambda row: row[0])
        cost, per_round, unit, paid = _paid(costs)
        yield (
            f"{name} makes {costs.calls_per_question:.2f} calls per question, and billing once"
            " charges an LLM's prompt for the first of them only. If every call paid its prompt"
            f" (per_round), {paid} would cost {amount(per_round)} {unit} instead of"
            f" {amount(cost)}."
        )


def round_ratio(billing: str, costs: Any) -> float | None:
    """Return the cost if every call paid its prompt over the cost as billed; `None` where they do
    not differ in their second digit.
    """
    cost, per_round, *_ = _paid(costs)
    if billing != "once" or (costs.calls_per_question or 0.0) <= 1 + _ROUNDING or not cost:
        return None
    return per_round / cost if float(f"{per_round:.1e}") > float(f"{cost:.1e}") else None


def _paid(costs: Any) -> tuple[float, float, str, str]:
    """Return the cost as billed, the cost per round, the unit, and of how many questions; zeros
    where nothing is known.
    """
    if costs.usd_per_question is None:
        tokens, per_round = costs.tokens_per_question, costs.tokens_per_question_per_round
        return tokens or 0.0, per_round or 0.0, "tokens", "a question"
    usd, per_round = costs.usd_per_question, costs.usd_per_question_per_round or 0.0
    return 1000 * usd, 1000 * per_round, "USD", "1,000 questions"


def swept_text(field: str, value: Any, unit: str | None) -> str:
    """Return a field that varies and its value, such as "n=5", a budget in USD for 1,000 questions;
    empty where none does. `unit` is that of the costs that the method has learnt from, if it has.
    """
    if field == "budget" and unit == "USD":
        return f"budget={amount(1000 * value)} USD per 1,000"
    return f"{field}={value}" if field else ""


def amount(value: float) -> str:
    """Write an amount of money or tokens with three digits or more, without an exponent."""
    text = f"{value:.3g}" if value < 1000 else f"{value:,.0f}"
    return f"{float(text):.12f}".rstrip("0").rstrip(".") if "e" in text else text
