"""What a method consumes on a question: every measure declared once, with its words in tables.

A measure is computed from a `feval.evaluation.ledger.QuestionLedger`, and is linear in its counts:
so that sums over draws, means over draws and means over questions are all taken by the same
function. Nothing here needs NumPy, so that a command can name the costs before it computes one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from operator import add
from typing import Any, NamedTuple

from feval.cards.billing import usd

Sums = Callable[[Any], Any]
"""Gives [Q] of a ledger, summed over its draws; `None` where it is not known."""

_NO_CLOSED_FORM = "no closed form of them is known; order seeded counts them"
_NO_PROMPTS = "no prompt tokens recorded"


class Measure(NamedTuple):
    """One thing that is measured per question.

    Attributes:
        sums: gives it.
        unit: as it stands behind a number.
        label: along an axis.
        key: of its mean in JSON, CSV, Parquet and DataFrames.
        shown: where it stands though nobody asks for it: "always"; "curves", in JSON; "files", in
            JSON but that of curves, where some take long, and in files of tables; "used", in JSON
            where some question has any; "asked", nowhere.
        cost: its name where budgets are counted in it; empty where they are not.
        unknown: why it is not known where it is not.
        small: whether a question may take a fraction of the unit, so that numbers have as many
            decimals as the smallest needs; one otherwise.
        tokens: whether it rests on counts of tokens, which differ between counters.
    """

    sums: Sums
    unit: str
    label: str
    key: str
    shown: str = "asked"
    cost: str = ""
    unknown: str = _NO_PROMPTS
    small: bool = False
    tokens: bool = False


GENERATED = ("output_tokens", "auxiliary_output_tokens", "probe_tokens")
"""Counts of output tokens that are billed."""


def _summed(*names: str) -> Sums:
    return lambda ledger: ledger.total(*names)


def _tokens(billing: str | None) -> Sums:
    def sums(ledger: Any) -> Any:
        bills = ledger.billed(billing)
        return None if bills is None else reduce(add, (part for bill in bills for part in bill))

    return sums


def _usd(billing: str | None) -> Sums:
    def sums(ledger: Any) -> Any:
        prices = [payer.price for payer in ledger.payers if payer.price is not None]
        bills = ledger.billed(billing) if len(prices) == len(ledger.payers) else None
        return (
            None
            if bills is None
            else reduce(add, (usd(price, *bill) for price, bill in zip(prices, bills, strict=True)))
        )

    return sums


def _seconds(ledger: Any) -> Any:
    """Waits for first tokens, and sequential tokens after them; or what the recorded rounds
    took.
    """
    timing = ledger.timing
    if timing is None or timing.profile is None:
        waits = None if timing is None else ledger.total("sequential_microseconds")
        return None if waits is None else waits / 1e6
    rounds, tokens = ledger.count("rounds"), ledger.count("sequential_tokens")
    if rounds is None or tokens is None:
        return None
    speeds = [timing.profile.speed(payer.name) for payer in ledger.payers]
    return reduce(
        add,
        (
            speed.seconds_to_first_token * own + grown / speed.tokens_per_second
            for speed, own, grown in zip(speeds, rounds, tokens, strict=True)
        ),
    )


def _per_question(name: str, sums: Sums, unit: str, **more: Any) -> Any:
    label = more.pop("label", f"mean {unit} per question")
    return name, Measure(sums, unit, label, f"{name}_per_question", **more)


MEASURES: Mapping[str, Measure] = dict(
    [
        _per_question(
            "usd", _usd(None), "USD", shown="always", cost="usd", small=True, tokens=True,
            label="USD per 1,000 questions",
            unknown="no price for an LLM, or no prompt tokens recorded",
        ),
        _per_question(
            "tokens", _tokens(None), "tokens", shown="always", cost="tokens", tokens=True,
            label="mean tokens per question, prompt + output",
        ),
        _per_question(
            "generated_tokens", _summed(*GENERATED), "output tokens", cost="output-tokens",
            tokens=True,
        ),
        _per_question("output_tokens", _summed("output_tokens"), "output tokens of CoTs",
                      shown="files", tokens=True),
        _per_question(
            "sequential_tokens", _summed("sequential_tokens"), "sequential tokens", shown="files",
            cost="sequential-tokens", tokens=True, unknown=_NO_CLOSED_FORM,
        ),
        _per_question("longest_trace_tokens", _summed("longest_trace_tokens"),
                      "tokens of the longest CoT", tokens=True),
        _per_question("seconds", _seconds, "seconds", cost="seconds", small=True,
                      unknown=_NO_CLOSED_FORM),
        _per_question(
            "calls", _summed("rounds", "auxiliary_calls", "probe_calls"), "calls", shown="always",
            cost="calls",
        ),
        _per_question("samples", _summed("cots"), "CoTs", shown="always", cost="samples"),
        _per_question("probe_calls", _summed("probe_calls"), "probes", shown="used"),
        _per_question("probe_tokens", _summed("probe_tokens"), "tokens of probes", shown="used",
                      tokens=True),
        ("usd_per_round", Measure(
            _usd("per_round"), "USD, per_round", "USD per 1,000 questions, billed per_round",
            "usd_per_question_per_round", "curves", small=True, tokens=True,
        )),
        ("tokens_per_round", Measure(
            _tokens("per_round"), "tokens, per_round", "mean tokens per question, billed per_round",
            "tokens_per_question_per_round", "curves", tokens=True,
        )),
    ]
)  # fmt: skip
"""Attribute of an evaluation -> the measure."""

COSTS: Mapping[str, str] = {each.cost: name for name, each in MEASURES.items() if each.cost}
"""What budgets are counted in -> the measure: dollars, tokens billed, tokens generated, those
generated one after the other (what one waits for), the seconds of these, requests, CoTs.
"""

MEANS: Mapping[str, str] = {each.key: name for name, each in MEASURES.items()}
"""Key of a mean -> the measure."""
