"""The ledger of an evaluation: what a method consumed on each question, and every measure of it,
declared once, with its words in tables.

A measure is computed from a `QuestionLedger`, and is linear in its counts: so that sums over draws,
means over draws and means over questions are all taken by the same function. Nothing here needs
NumPy, so that a command can name the costs before it computes one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from itertools import pairwise
from operator import add
from typing import TYPE_CHECKING, Any, NamedTuple

from feval.cards.billing import PICODOLLARS, billing_rule, require_plain, usd
from feval.errors import UsageError
from feval.values import Record

if TYPE_CHECKING:
    import numpy.typing as npt

    from feval.cards.billing import BillingRule, Price
    from feval.methods.protocol import Floats
    from feval.replay import LLM, Pool, Timing

    Columns = Sequence[npt.NDArray[Any]] | npt.NDArray[Any]
    """[Q] per LLM, or one array for all LLMs together."""

Sums = Callable[[Any], Any]
"""Gives [Q] of a ledger, summed over its draws; `None` where it is not known."""

_NO_CLOSED_FORM = "no closed form of them is known; order seeded counts them"
_NO_PROMPTS = "no prompt tokens recorded"
_KINDS = ("input", "output", "cached", "written")
_PROMPTS = {"once": "asked", "per_round": "rounds", "per_sample": "cots"}


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


def _tokens(ledger: Any, billing: str | None = None) -> Any:
    bills = ledger.billed(billing)
    return None if bills is None else reduce(add, (bill.tokens for bill in bills))


def _usd(ledger: Any, billing: str | None = None) -> Any:
    if ledger.payers[0].states_usd:
        parts = [None if billing else _recorded_usd(ledger)]
    else:
        bills = ledger.billed(billing) or [None]
        parts = [bill and bill.usd for bill in bills]
    if "scoring_picodollars" in ledger.counts:
        scoring = ledger.total("scoring_picodollars")
        parts.append(None if scoring is None else scoring / PICODOLLARS)
    return None if any(part is None for part in parts) else reduce(add, parts)


def _recorded_usd(ledger: Any) -> Any:
    """The USD that CoTs state; `None` where there were requests that are no CoTs, too."""
    paid = ledger.total("picodollars") if "picodollars" in ledger.counts else None
    unstated = ledger.total("auxiliary_calls", "probe_calls")
    return None if paid is None or unstated.any() else paid / PICODOLLARS


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
            "usd", _usd, "USD", shown="always", cost="usd", small=True, tokens=True,
            label="USD per 1,000 questions",
            unknown="no price for an LLM, no prompt tokens recorded, calls that state no USD, or"
            " prompts of which nobody knows what a cache, or a step of a price, holds;"
            " --prices recorded takes what CoTs state",
        ),
        _per_question(
            "tokens", _tokens, "tokens", shown="always", cost="tokens", tokens=True,
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
            partial(_usd, billing="per_round"), "USD, per_round",
            "USD per 1,000 questions, billed per_round", "usd_per_question_per_round", "curves",
            small=True, tokens=True,
        )),
        ("tokens_per_round", Measure(
            partial(_tokens, billing="per_round"), "tokens, per_round",
            "mean tokens per question, billed per_round", "tokens_per_question_per_round",
            "curves", tokens=True,
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


class Bill(NamedTuple):
    """What one LLM bills, [Q] tokens of each kind; `read` and `kept` are those of a cache, `None`
    where it has none.

    Attributes:
        request: input tokens of one request, which decide on the step of a price.
        beyond: input tokens of other calls, each of which has at most so many more.
    """

    payer: Payer
    input: Any
    output: Any
    request: Any
    beyond: Any = 0
    read: Any = None
    kept: Any = None

    @property
    def tokens(self) -> Any:
        """[Q] all of them."""
        cached = sum(part for part in (self.read, self.kept) if part is not None)
        return self.input + cached + self.output

    @property
    def usd(self) -> Any:
        """[Q] USD; `None` where there is no price, or nobody knows which of its steps holds."""
        price, most = self.payer.price, self.request + self.beyond
        if price is None or any(
            ((most > start) & (self.beyond > 0)).any() for start, _ in price.steps
        ):
            return None
        return usd(
            price, self.input, self.output, context=self.request,
            cached_tokens=self.read, written_tokens=self.kept,
        )  # fmt: skip


class Payer(NamedTuple):
    """An LLM as bills see it."""

    name: str
    price: Price | None
    billing: str
    states_usd: bool
    is_counted: bool


@dataclass(eq=False)
class QuestionLedger:
    """What a method consumed on Q questions: counts, of which all measures are made.

    Attributes:
        payers: the LLMs.
        prompt_tokens: [Q] tokens of one prompt, per LLM; negative where not known.
        counts: a field of `feval.methods.protocol.Ledger` -> its sums over the draws, or a
            function that gives them when they are first looked at; `None` where they are not known.
            What is not there is 0. `asked` are the draws in which an LLM was asked at all,
            `longest_trace_tokens` are of all LLMs together.
        draws: number of draws that the counts are sums over; 1 for expectations.
        timing: where seconds come from; `None` where nobody asked for them.
    """

    payers: Sequence[Payer]
    prompt_tokens: Columns
    counts: Record
    draws: int = 1
    timing: Timing | None = None
    _means: dict[str, float | None] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def at_mean_question(
        cls, llm: LLM, pool: Pool, cots: Sequence[int], output_tokens: Floats, **counts: Floats
    ) -> QuestionLedger:
        """The ledger of votes that ask an LLM once for so many CoTs [N], in place of Q questions:
        means over questions are enough, since eq. (1) is linear.
        """
        require_plain(llm.billing, llm.price)
        known = int(pool.prompt_tokens.min()) >= 0
        prompt_tokens = float(pool.prompt_tokens.mean()) if known else -1.0
        none = 0.0 * output_tokens
        counts |= {"asked": none + 1, "rounds": none + 1, "cots": none + cots}
        counts["output_tokens"] = output_tokens
        columns: Any = {name: [count] for name, count in counts.items()}
        return cls([payer(llm)], [none + prompt_tokens], columns)

    @property
    def is_counted(self) -> bool:
        """Whether tokens of every LLM were recorded."""
        return all(payer.is_counted for payer in self.payers)

    def count(self, name: str) -> Columns | None:
        """A count, [Q] per LLM; `None` where it is not known."""
        if name.endswith("_tokens") and not self.is_counted:
            return None  # they are stored as 0
        found = self.counts.get(name, ())
        if callable(found):
            self.counts[name] = found()
        known: Columns | None = self.counts.get(name, ())
        return known

    def total(self, *names: str) -> npt.NDArray[Any] | None:
        """[Q] the sum of some counts over the LLMs; `None` where one is not known."""
        parts = [self.count(name) for name in names]
        if any(part is None for part in parts):
            return None
        none = 0.0 * self.prompt_tokens[0]
        return reduce(add, [own for part in parts if part is not None for own in part] or [none])

    def billed(self, billing: str | None = None) -> list[Bill] | None:
        """What each LLM bills; `None` where the tokens of some prompt are not known, or where a
        cache would have kept them.
        """
        if not self.is_counted or any(int(tokens.min()) < 0 for tokens in self.prompt_tokens):
            return None
        bills = [
            self._bill(place, billing_rule(billing or payer.billing))
            for place, payer in enumerate(self.payers)
        ]
        known = [bill for bill in bills if bill is not None]
        return known if len(known) == len(bills) else None

    def _bill(self, place: int, rule: BillingRule) -> Bill | None:
        def own(name: str) -> Any:
            columns = self.count(name)
            return columns[place] if columns is not None and len(columns) else 0

        tokens, beyond = self.prompt_tokens[place], own("auxiliary_prompt_tokens")
        times, output = own(_PROMPTS[rule.prompts]), sum(map(own, GENERATED))
        read = kept = None
        if rule.cache == "recorded":
            if self.counts.get("cached_tokens") is None:
                return None
            read = own("cached_tokens")
        elif rule.cache == "prefix":
            first = "asked" if rule.prompts == "per_round" else "first_cots"
            others = ("auxiliary_calls", "auxiliary_prompt_tokens", "probe_calls")
            if self.counts.get(first) is None or any(_is_any(own(name)) for name in others):
                return None
            shared = rule.shared(tokens)
            read, kept = (times - own(first)) * shared, own("asked") * shared
        cached = 0 if read is None else read if kept is None else read + kept
        sent = times * tokens + beyond - cached
        return Bill(self.payers[place], sent, output, tokens, beyond, read, kept)

    def at(self, prices: Mapping[str, Price]) -> QuestionLedger:
        """The same counts, at other prices of some LLMs."""
        payers = [one._replace(price=prices.get(one.name, one.price)) for one in self.payers]
        return replace(self, payers=payers)

    def bill_rows(self, *, place: int | None = None, longest: int | None = None) -> list[Record]:
        """What is billed, as JSON values that any prices can be put to: means per question, for
        each LLM and each step of its price; none where they are not known, or CoTs state USD.

        `input` and `output` tokens, and `cached` and `written` ones where there is a cache, of the
        requests with more than `beyond` input tokens and at most `longest`; or `usd`, of scores.

        Args:
            place: of one of the Q, in place of their mean.
            longest: input tokens of the longest request, where Q are no questions.
        """

        def own(column: Any) -> float:
            return float(column.mean() if place is None else column[place]) / self.draws

        rows: list[Record] = []
        for bill in [] if self.payers[0].states_usd else self.billed() or ():
            steps = [start for start, _ in bill.payer.price.steps] if bill.payer.price else []
            for beyond, end in pairwise((0, *steps, 1 << 63)):
                within = (bill.request <= end) & ((bill.request > beyond) | (beyond == 0))
                most = longest or int((within * (bill.request + bill.beyond)).max())
                others = _is_any(within * bill.beyond)  # of any length
                least = 0 if others else beyond
                row = {"llm": bill.payer.name, "beyond": least, "longest": most}
                kinds = zip(_KINDS, (bill.input, bill.output, bill.read, bill.kept), strict=True)
                row |= {kind: own(within * tokens) for kind, tokens in kinds if tokens is not None}
                rows += [row] * bool(within.any())
        scoring = self.total("scoring_picodollars")
        if rows and scoring is not None and scoring.any():
            rows.append({"usd": own(scoring) / PICODOLLARS})
        return rows

    def column(self, name: str) -> Floats | None:
        """[Q] a measure, as a mean over the draws; `None` where it is not known."""
        sums = MEASURES[name].sums(self)
        return None if sums is None else sums / self.draws

    def mean(self, name: str) -> float | None:
        """The mean of a measure over the questions; `None` where it is not known."""
        if name not in self._means:
            column = self.column(name)
            self._means[name] = None if column is None else float(column.mean())
        return self._means[name]

    def measures(self, *shown: str, cost: str | None = None) -> dict[str, str]:
        """Key -> name of the measures that are shown so, and of those that were asked for; see
        `Measure.shown`.
        """
        asked = {COSTS.get(cost or ""), "seconds" if self.timing is not None else None}
        return {
            each.key: name
            for name, each in MEASURES.items()
            if name in asked or (each.shown in shown and (each.shown != "used" or self.mean(name)))
        }

    def averages(self, *shown: str, cost: str | None = None) -> dict[str, float | None]:
        """Key -> mean of the same measures."""
        return {key: self.mean(name) for key, name in self.measures(*shown, cost=cost).items()}

    def each(self, *names: str) -> Iterator[dict[str, float | None]]:
        """Yield key -> value of some measures for each of the Q."""
        columns = [self.column(name) for name in names]
        unknown = [None] * len(self.prompt_tokens[0])
        lists = [unknown if column is None else column.tolist() for column in columns]
        keys = [MEASURES[name].key for name in names]
        for values in zip(*lists, strict=True):
            yield dict(zip(keys, values, strict=True))


def _is_any(counts: Any) -> bool:
    return bool(getattr(counts, "any", lambda: counts)())


def payer(llm: LLM) -> Payer:
    """An LLM as bills see it."""
    return Payer(llm.name, llm.price, llm.billing, llm.states_usd, llm.is_counted)


class Averages:
    """Base of what has a ledger: its measures are attributes, [Q] as `usd`, means as
    `usd_per_question`; `None` for what is not known.
    """

    ledger: QuestionLedger

    def __getattr__(self, name: str) -> Any:
        """A measure; whatever else there is is found without this."""
        if name in MEASURES:
            return self.ledger.column(name)
        if name in MEANS:
            return self.ledger.mean(MEANS[name])
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def mean_cost(self, cost: str) -> float | None:
        """The mean of one of `COSTS`; `None` where it is not known."""
        return self.ledger.mean(COSTS[cost])

    def known_costs(self, cost: str) -> Floats:
        """[Q] one of `COSTS`; a `UsageError` that names the costs that are known where this is
        not.
        """
        costs = self.ledger.column(COSTS[cost])
        if costs is not None:
            return costs
        others = [each for each in COSTS if self.mean_cost(each) is not None]
        measure = MEASURES[COSTS[cost]]
        counted = self.ledger.is_counted or not measure.tokens
        unknown = measure.unknown if counted else "no tokens recorded"
        raise UsageError(
            f"Its {cost} per question are not known ({unknown})."
            f" Choose another cost: --cost {others[0]} (in Python: cost={others[0]!r}), or one of"
            f" {', '.join(others[1:])}."
        )
