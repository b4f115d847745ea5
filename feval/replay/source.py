"""The recorded CoTs, traces, steps and turns of one question as a meter's source, and the sentences
about what was not recorded.
"""

# ruff: noqa: D102  the methods of `Source` are described there

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from feval.cards import FINISH_REASONS
from feval.errors import FevalError, NotRecordedError, ShortPoolError, UsageError
from feval.replay.responses import REQUEST, MessageList, Need, ProbeReply, Source, TraceState

if TYPE_CHECKING:
    from feval.cards import Price
    from feval.recording import Steps
    from feval.replay.llm import LLM
    from feval.replay.pools import Pool


class RecordedSource(Source):
    """A question's recorded CoTs in an order; see `Source` for its methods.

    One draw orders all steps of a tree: the children of a step come in the order in which they lie
    there, and so do the turns that reply to a CoT with the same messages.

    Args:
        llm: the recorded LLM.
        row: of the question.
        order: recorded places.
    """

    def __init__(self, llm: LLM, row: int, order: Sequence[int]) -> None:
        self.llm, self.row, self.order = llm, row, order
        self.name, self.billing, self.pool = llm.name, llm.billing, llm.pool
        self.answers, self.request = partial(llm.answers, row), partial(llm.request, row)
        self.known_prompt_tokens = partial(llm.known_prompt_tokens, row)
        self.known_price = llm.known_price
        self._given = 0
        # by parent and messages: in draw order, and how many were handed out
        self._children: dict[tuple[int, int | None], list[int]] = {}
        self._used = Counter[tuple[int, int | None]]()

    def require(self, need: Need) -> None:
        if need == "traces":
            self.llm.require_whole_cots()
            self.pool.probes()
        elif need == "confidences":
            self.pool.probes().recorded_confidences(self.name)
        elif need == "steps":
            self.pool.steps()
        elif need == "cuts" and self.pool.channels.has_steps:
            raise UsageError(
                f"{self.name} was recorded as trees of steps, which are replayed whole and cannot"
                " be cut."
            )

    @property
    def remaining(self) -> int:
        return len(self.order) - self._given

    @property
    def price(self) -> Price | None:
        return self.llm.price

    def uniform(self, cots: int, seed: int) -> float:
        return self.llm.uniform(self.row, self.order[:cots], seed)

    def wait(self, places: Sequence[int], before: Sequence[int], after: Sequence[int]) -> int:
        clock = self.pool.clock
        return 0 if clock is None else clock.wait(self.row, places, before, after)

    def amounts(self, name: str, places: Sequence[int], tokens: Sequence[int]) -> list[int]:
        if name not in self.pool.amounts:
            return []
        if name == "picodollars" and self.tokens(places) != list(tokens):
            raise UsageError(
                f"A CoT of {self.name} was cut on {self._where}, and nothing says what a part of it"
                " cost; recorded USD are of whole CoTs. Name a price list (prices)."
            )
        return self._of(self.pool.amounts[name], places)

    def stated_usd(self, places: Sequence[int]) -> float | None:
        llm = self.llm
        return float(llm.stated_usd[self.row, list(places)].sum()) if llm.states_usd else None

    def tokens(self, places: Sequence[int]) -> list[int]:
        return self._of(self.pool.output_tokens, places)

    def _of(self, values: Any, places: Sequence[int]) -> list[Any]:
        """Return the values [Q, S] of some CoTs or steps."""
        own: list[Any] = values[self.row, list(places)].tolist()
        return own

    def text(self, place: int) -> str | None:
        return self.llm.texts(self.row)[place]

    def reasoning(self, place: int) -> str | None:
        thoughts = self.llm.reasoning(self.row)
        return None if thoughts is None else thoughts[place]

    def finish_reason(self, place: int) -> str:
        return FINISH_REASONS[int(self.pool.finish[self.row, place])]

    def ends(self, place: int) -> bool:
        return bool(self.pool.steps().ends[self.row, place])

    def scores(self, places: Sequence[int], scorer: str | None) -> list[float]:
        return self._of(self.pool.aggregated(scorer), places)

    def recorded(self, what: str) -> tuple[Pool, int]:  # noqa: ARG002  it tries all
        return self.pool, self.row

    def extra_prompt_tokens(self, place: int) -> int:
        return int(self.pool.extra_prompt_tokens(self.row)[place])

    def sample(self, k: int) -> Sequence[int]:
        if self.pool.channels.has_turns:
            return self._next([(REQUEST, None)], k)[0]
        self.llm.require(self.row, self._given + k)
        self._given += k
        return self.order[self._given - k : self._given]

    start = sample

    def advance(self, states: Sequence[TraceState], tokens: Sequence[int | None]) -> None:
        reached = [self._after(*each) for each in zip(states, tokens, strict=True)]
        for state, (total, finished) in zip(states, reached, strict=True):
            state.grow(total, finished=finished)

    def _after(self, state: TraceState, tokens: int | None) -> tuple[int, bool]:
        """Return how many tokens a trace would have after so many more, and whether it would be
        finished.

        A trace is not known between its last probe and its end, so whoever goes on from its last
        probe gets its end.
        """
        probes, length = self.pool.probes(), self.tokens([state.place])[0]
        offsets, interval = probes.offsets[probes.of(self.row, state.place)], probes.interval
        following = offsets[offsets > state.tokens].tolist()
        target = (following[0] if following else None) if tokens is None else state.tokens + tokens
        end = max(length, state.tokens), True
        if state.limit is not None and length > state.limit:
            end = state.limit, False
        if target is None or (state.limit is not None and target >= state.limit):
            return end
        if tokens is not None and interval is not None and tokens % interval:
            raise NotRecordedError(
                f"{state} cannot be advanced by {tokens}: it was probed every {interval} tokens."
                " Advance by a multiple of that."
            )
        if target in following:
            return target, False
        if (not following or target > following[-1]) and (interval is not None or target >= length):
            return end
        raise NotRecordedError(
            f"{state} cannot be advanced by {tokens}: no probe was recorded there. Advance it to"
            " its next probe, tokens=None, or to its end."
        )

    def probe(self, state: TraceState) -> ProbeReply:
        probes = self.pool.probes()
        places = probes.of(self.row, state.place)
        passed = int((probes.offsets[places] <= state.tokens).sum())
        place = places.start + passed - 1 if passed else -1
        if place == state.reply.place:
            return state.reply
        [answer] = self.llm.answer_texts(self.row, [int(probes.codes[place])])
        sure = None if probes.confidences is None else float(probes.confidences[place])
        tokens = 0 if probes.output_tokens is None else max(int(probes.output_tokens[place]), 0)
        return ProbeReply(place, answer, None if sure != sure else sure, tokens)

    def expand(self, places: Sequence[int], k: int) -> list[list[int]]:
        self.pool.channels.require_trees()
        return self._next([(place, None) for place in places], k)

    def reply(
        self, places: Sequence[int], messages: Sequence[MessageList | None], k: int
    ) -> list[list[int]]:
        self.pool.channels.require_turns()
        each = zip(places, messages, strict=True)
        return self._next([(place, self._said(place, own)) for place, own in each], k)

    @property
    def _where(self) -> str:
        return f"question {self.llm.question_ids[self.row]!r}"

    def _next(self, asked: Sequence[tuple[int, int | None]], k: int) -> list[list[int]]:
        """Return the next k children of each of several steps: of all, or of those that reply to
        some messages. None are handed out where any lacks some.
        """
        steps, row = self.pool.steps(), self.row
        for parent, times in Counter(asked).items():
            place, said = parent
            if parent not in self._children:
                rank = {child: number for number, child in enumerate(self.order)}
                recorded = [
                    child
                    for child in steps.children(row, place)
                    if said is None or steps.turns is None or steps.turns[row, child] == said
                ]
                self._children[parent] = sorted(recorded, key=rank.__getitem__)
            needed, size = self._used[parent] + k * times, len(self._children[parent])
            if needed > size:
                raise shortage(self.name, self._where, steps, row, place, needed, size)
        self._given += k * len(asked)
        found = []
        for parent in asked:
            self._used[parent] += k
            found.append(self._children[parent][self._used[parent] - k : self._used[parent]])
        return found

    def _said(self, place: int, messages: MessageList | None) -> int:
        """Return which messages, as `Steps.turns` numbers them, a reply to a CoT was asked for
        with; an error that says what was recorded where there is none.
        """
        steps, row = self.pool.steps(), self.row
        turns = () if steps.turns is None else steps.turns[row].tolist()
        numbers: dict[int, int] = {turns[child]: child for child in steps.children(row, place)}
        if messages is None and len(numbers) == 1:
            return next(iter(numbers))
        texts = self.llm.messages(row) or ()
        recorded = [text for child in numbers.values() if (text := texts[child]) is not None]
        for number, text in zip(numbers, recorded, strict=True):
            if json.loads(text) == messages:
                return number
        where = f"{called(steps, row, place)} of {self.name} on {self._where}"
        raise NotRecordedError(missing_messages(where, messages, recorded))


def called(steps: Steps, row: int, place: int) -> str:
    """Return what messages call a whole CoT, by its place: "CoT 3", or "turn 7" where it is a reply
    itself.
    """
    return f"{'CoT' if steps.turns is None or steps.turns[row, place] < 0 else 'turn'} {place}"


def shortage(
    llm: str, where: str, steps: Steps, row: int, place: int, asked: int, recorded: int
) -> FevalError:
    """Return the error about too few steps, first CoTs or turns behind a place."""
    were = f"{recorded} {'was' if recorded == 1 else 'were'}"
    if steps.turns is None:
        after = "first steps" if place == REQUEST else f"steps after step {place} of the tree"
        return NotRecordedError(
            f"A search asks {llm} for {asked} {after} on {where}, and {were} recorded. Search with"
            " fewer beams, children or particles, or record a larger tree."
        )
    if place == REQUEST:
        return ShortPoolError(
            f"{llm} has {recorded} recorded CoT{'s' * (recorded != 1)} that reply to no other on"
            f" {where}; {asked} were asked for. Ask for {recorded} or fewer, or record more."
        )
    to = called(steps, row, place)
    if not recorded:
        return NotRecordedError(missing_messages(f"{to} of {llm} on {where}", None, ()))
    return NotRecordedError(
        f"A method asks {llm} for {asked} {'reply' if asked == 1 else 'replies'} to {to} on"
        f" {where}, and {were} recorded with these messages. Ask for fewer, or record more."
    )


def missing_messages(
    where: str, messages: MessageList | None, recorded: Sequence[str] | None
) -> str:
    """Return the sentence about messages that no recorded turn replies to, or about several where
    none were named.

    `recorded` are those that turns reply to, `None` where they are several and not at hand.
    """
    asked = "" if messages is None else f" with {json.dumps(messages, ensure_ascii=False):.200}"
    if recorded is not None and not recorded:
        return (
            f"A method replies to {where}{asked}, and no turn was recorded there. Ask for fewer"
            " turns, or record more (`feval record --protocol`)."
        )
    listed = (
        "; ".join(f"{text:.200}" for text in recorded[:5]) if recorded else "different messages"
    )
    if messages is None:
        return (
            f"A method replies to {where} without its messages, and the turns recorded there reply"
            f" to several: {listed}."
        )
    return (
        f"A method replies to {where}{asked}, and the turns recorded there reply to {listed}. Send"
        " that, or record more."
    )
