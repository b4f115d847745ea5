"""What scoring costs: tokens and dollars to come, what was paid, and whether the next request may still be afforded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from feval.cards.prices import Price, usd
from feval.cards.tokens import count_words
from feval.errors import OutOfRangeError, PriceNotFoundError
from recorders.scoring.journal import CoTKey, Scored, ScoreJournal
from recorders.scoring.scorers import LOCAL, Item, Scorer

__all__ = ["Purse", "ScoringEstimate", "estimate"]

_TOKENS_PER_CHARACTER = 0.5  # more than text of any common language takes; replaced by what the server counts


@dataclass(frozen=True, slots=True)
class ScoringEstimate:
    """What is still to come, before anything is asked.

    Attributes:
        scorer: its name.
        cots: CoTs to score.
        calls: requests, or calls of a function or model on this machine.
        local: whether it runs on this machine, and nothing is sent.
        prompt_tokens: of all requests; `None` where nothing is known of them.
        output_tokens: of all replies; `None` likewise.
        usd: of both; `None` without a price, or where the tokens are not known.
        basis: where the lengths come from, in words for people.
        at_most: whether the output is an upper bound and no expectation.
    """

    scorer: str
    cots: int
    calls: int
    local: bool
    prompt_tokens: int | None
    output_tokens: int | None
    usd: float | None
    basis: str
    at_most: bool


def estimate(
    scorer: Scorer, batches: Iterable[Sequence[tuple[CoTKey, Item]]], journal: ScoreJournal | None, price: Price | None
) -> ScoringEstimate:
    """What scoring would cost, without asking anything.

    Args:
        scorer: who is to be asked.
        batches: what it would be asked.
        journal: what is there; its replies tell how long further ones are likely to be.
        price: of the scorer's model; `None` for no dollars.
    """
    asking = scorer.asking
    cots = calls = words = 0
    for batch in batches:
        cots += len(batch)
        calls += 1
        words += 0 if asking is None else sum(count_words(asking.text(item)) for _, item in batch)
    local = scorer.info.kind in LOCAL
    if asking is None:
        calls = cots if local else calls
        return ScoringEstimate(scorer.info.name, cots, calls, local, None, None, None, "nothing", at_most=False)
    told = 0 if journal is None else journal.told
    if journal is not None and told:
        prompt, output = (round(cots * tokens / told) for tokens in (journal.prompt_tokens, journal.output_tokens))
        basis, at_most = "the mean of the replies in the journal", False
    else:
        prompt, output, at_most = words, cots * asking.max_tokens, bool(asking.max_tokens)
        basis = "the words of the prompts" + (
            f", and an upper bound: {asking.max_tokens} output tokens for every reply" if asking.max_tokens else ""
        )
    dollars = None if price is None else usd(price, prompt, output)
    return ScoringEstimate(scorer.info.name, cots, calls, local, prompt, output, dollars, basis, at_most)


class Purse:
    """What was paid, what is expected, and whether a batch may still be afforded.

    Args:
        scorer: who is paid.
        price: of its model; `None` for no dollars.
        limit: what the whole journal may cost, in USD; `None` for no limit.

    Attributes:
        usd: paid so far; `None` without a price.
        limited: whether there is a limit.

    Raises:
        PriceNotFoundError: a limit without a price.
        OutOfRangeError: a limit that is no positive number.
    """

    def __init__(self, scorer: Scorer, price: Price | None, limit: float | None) -> None:
        self._asking = scorer.asking
        if limit is not None and (price is None or self._asking is None):
            raise PriceNotFoundError(
                f"A cost limit was given, but there is no price for the scorer {scorer.info.name!r}; name a price list that has "
                "its model, or leave the limit out."
            )
        if limit is not None and not limit > 0:
            raise OutOfRangeError(f"A cost limit is a number of dollars above 0; {limit} was given.")
        self._price, self._limit = price, limit
        self.limited = limit is not None
        self.usd = None if price is None or self._asking is None else 0.0
        self._reserved = self._density = 0.0

    def reserve(self, items: Sequence[Item]) -> float | None:
        """Set dollars aside for the worst case; how many, or `None` where there are not enough."""
        if self._limit is None or self.usd is None:
            return 0.0
        dollars = sum(self._worst(item) for item in items)
        if self.usd + self._reserved + dollars > self._limit:
            return None
        self._reserved += dollars
        return dollars

    def free(self, dollars: float) -> None:
        """Give back what was set aside."""
        self._reserved -= dollars

    def pay(self, items: Sequence[Item], scored: Sequence[Scored]) -> None:
        """Count replies; where the server does not count tokens, the worst case."""
        for item, one in zip(items, scored, strict=True):
            if self._price is None or self.usd is None or self._asking is None:
                continue
            if one.prompt_tokens is None or one.output_tokens is None:
                self.usd += 0.0 if one.problem == "refused" else self._worst(item)
                continue
            self.usd += usd(self._price, one.prompt_tokens, one.output_tokens)
            self._density = max(self._density, one.prompt_tokens / max(1, len(self._asking.text(item))))

    def pay_journal(self, journal: ScoreJournal) -> None:
        """Count what earlier runs took, as far as the server counted it."""
        if self._price is not None and self.usd is not None:
            self.usd += usd(self._price, journal.prompt_tokens, journal.output_tokens)

    def __str__(self) -> str:
        return f"{self.usd or 0:.4f} of {self._limit or 0:.4f} USD are spent"

    def _worst(self, item: Item) -> float:
        if self._price is None or self._asking is None:
            return 0.0
        prompt = len(self._asking.text(item)) * (self._density or _TOKENS_PER_CHARACTER)
        return usd(self._price, prompt, float(self._asking.max_tokens))
