"""The ledger of an evaluation: what a method consumed per question, of which all measures are
made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from feval.errors import UsageError
from feval.evaluation.measures import COSTS, GENERATED, MEANS, MEASURES

if TYPE_CHECKING:
    from feval.cards.billing import Price
    from feval.methods.protocol import Floats
    from feval.replay import LLM
    from feval.replay.clock import Timing
    from feval.replay.pools import Pool

_PROMPTS = {"once": "asked", "per_round": "rounds", "per_sample": "cots"}

Columns = Sequence[npt.NDArray[Any]] | npt.NDArray[Any]
"""[Q] per LLM, or one array for all LLMs together."""


class Payer(NamedTuple):
    """An LLM as bills see it."""

    name: str
    price: Price | None
    billing: str


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
    counts: dict[str, Any]
    draws: int = 1
    timing: Timing | None = None
    _means: dict[str, float | None] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def at_mean_question(
        cls, llm: LLM, pool: Pool, cots: Sequence[int], **counts: Floats
    ) -> QuestionLedger:
        """The ledger of votes that ask an LLM once for so many CoTs [N], in place of Q questions:
        means over questions are enough, since eq. (1) is linear.
        """
        known = int(pool.prompt_tokens.min()) >= 0
        prompt_tokens = float(pool.prompt_tokens.mean()) if known else -1.0
        ones = np.ones(len(cots))
        every = {"asked": ones, "rounds": ones, "cots": np.array(cots, np.float64)} | counts
        columns: Any = {name: [count] for name, count in every.items()}
        return cls([payer(llm)], [prompt_tokens * ones], columns)

    def count(self, name: str) -> Columns | None:
        """A count, [Q] per LLM; `None` where it is not known."""
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
        none = np.broadcast_to(0.0, len(self.prompt_tokens[0]))
        return reduce(np.add, [own for part in parts if part is not None for own in part] or [none])

    def billed(self, billing: str | None = None) -> list[tuple[Any, Any]] | None:
        """Prompt and output tokens that each LLM bills, [Q] each; `None` where the tokens of some
        prompt are not known.
        """
        if any(int(tokens.min()) < 0 for tokens in self.prompt_tokens):
            return None

        def own(name: str, place: int) -> Any:
            columns = self.count(name)
            return columns[place] if columns is not None and len(columns) else 0

        return [
            (
                own(_PROMPTS[billing or payer.billing], place) * tokens
                + own("auxiliary_prompt_tokens", place),
                sum(own(name, place) for name in GENERATED),
            )
            for place, (payer, tokens) in enumerate(
                zip(self.payers, self.prompt_tokens, strict=True)
            )
        ]

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


def payer(llm: LLM) -> Payer:
    """An LLM as bills see it."""
    return Payer(llm.name, llm.price, llm.billing)


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
        others = ", ".join(each for each in COSTS if self.mean_cost(each) is not None)
        raise UsageError(
            f"Its {cost} per question are not known ({MEASURES[COSTS[cost]].unknown}); choose"
            f" another cost: {others}."
        )
