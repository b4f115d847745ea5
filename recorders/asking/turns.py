"""Chains of turns as the engine's assignment: the user says something after each reply, and the LLM
replies again.

Every turn sends the whole conversation again, each reply without its thoughts. A chain is a tree of
one child each (`recorders.asking.trees`): its first CoT answers the question's request, and a later
turn replies to the one before.
"""

# ruff: noqa: D102  the methods of `Levels` are described there

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from feval.answers.thoughts import Thoughts, split_columns
from feval.cards.billing import Price, usd
from feval.cards.finish_reasons import UNANSWERED
from feval.cards.tokens import count_words
from feval.errors import OutOfRangeError, UsageError
from recorders.asking.budget import CostEstimate
from recorders.asking.samples import SamplePlan
from recorders.asking.trees import MOST_STEPS, Levels, Place, Record
from recorders.journal.appendlog import clean
from recorders.journal.journal import Journal
from recorders.request import Completion, Message, Prefill, Request

_PLACES = re.compile(r"\{(question|answer)\}")


@dataclass(frozen=True, slots=True)
class Protocol:
    """What the user says after each reply of a chain.

    Attributes:
        name: of the protocol; the LLM is called after it.
        messages: the message before each turn from the second on, or one before all of them. In
            them "{question}" stands for what was asked first, and "{answer}" for the answer in the
            last reply.
        no_answer: stands for an answer where the last reply has none.
        template: one exchange as the LLM reads it, with "{prompt}" and "{reply}", for endpoints
            that continue a text; `None`: the endpoint takes messages.
    """

    name: str
    messages: tuple[str, ...]
    no_answer: str = "no answer"
    template: str | None = None

    def message(self, turn: int, question: str, answer: Callable[[], str | None]) -> str:
        """Return what is said before a turn, 1 being the second."""
        values = {"question": lambda: question, "answer": lambda: answer() or self.no_answer}
        return _PLACES.sub(lambda place: values[place[1]](), self.text(turn))

    def text(self, turn: int) -> str:
        """Return the message before a turn, 1 being the second, as it was written."""
        return self.messages[turn - 1 if len(self.messages) > 1 else 0]


@dataclass(frozen=True, slots=True)
class Turns(Levels):
    """The chains that are recorded for each question: `first` of them, each of `depth` turns.

    Attributes:
        protocol: what is said before each turn.
        read: returns the answer in a reply, by the id of its question.

    Raises:
        OutOfRangeError: a number below 1, or more turns than a recording has.
        UsageError: not one message before each turn, or a template without "{prompt}" and "{reply}"
            after it.
    """

    protocol: Protocol
    read: Callable[[str, str], str | None] = field(repr=False, compare=False)

    NAME, IN_DECODING, unit = "protocol", "protocol", "turns"

    def __post_init__(self) -> None:
        said, template = len(self.protocol.messages), self.protocol.template
        if self.depth < 2 or self.first < 1:
            raise OutOfRangeError(
                f"A protocol has 1 chain or more of 2 turns or more; {self.first} of {self.depth}"
                " turns were asked for."
            )
        if self.first * self.depth > MOST_STEPS:
            raise OutOfRangeError(
                f"{self.first:,} chains of {self.depth:,} turns are more than the {MOST_STEPS:,}"
                " turns that a question may have; record fewer or shorter ones."
            )
        if said > 1 and said != self.depth - 1:
            raise UsageError(
                f"The protocol {self.protocol.name} has messages for turns 2 to {said + 1}, and"
                f" {self.depth} turns were asked for. Ask for as many as it has, or write one"
                " message for all turns."
            )
        if template is not None and not re.fullmatch(r"(?s).*\{prompt\}.*\{reply\}.*", template):
            raise UsageError(
                'The setting turn_template holds "{prompt}" and then "{reply}", as one'
                f" exchange is written; {template!r:.80} was given."
            )

    @property
    def variant(self) -> str:
        return self.protocol.name

    def content(self) -> dict[str, Any]:
        protocol = self.protocol
        values = {
            "name": protocol.name,
            "turns": self.depth,
            "first": self.first,
            "messages": list(protocol.messages),
        }
        if any("{answer}" in text for text in protocol.messages):
            values["no_answer"] = protocol.no_answer
        return values if protocol.template is None else values | {"template": protocol.template}

    def behind(
        self, before: Place, record: Record, thoughts: Thoughts | None
    ) -> tuple[Place, bool]:
        reply = reply_of(record, thoughts)
        said = [Message(each["role"], each["content"]) for each in record.get("messages", ())]
        conversation = (*before.conversation, *said, Message("assistant", reply))
        place = Place(record["sample"], before.level + 1, conversation=conversation)
        is_broken = "refused" in record or record["finish_reason"] in UNANSWERED
        return place, is_broken or place.level == self.depth or not reply.strip()

    def continued(self, question: Request, before: Place, thoughts: Thoughts | None) -> Request:  # noqa: ARG002  they are gone
        if not before.level:
            return question
        asked = next((m.content for m in reversed(question.messages) if m.role == "user"), "")
        reply = before.conversation[-1].content
        said = self.protocol.message(
            before.level, asked, lambda: self.read(question.question_id, reply)
        )
        template = self.protocol.template
        prefill = None if template is None else Prefill("", template=template)
        return replace(
            question, conversation=(*before.conversation, Message("user", said)), prefill=prefill
        )

    def require_continuable(self, replies: Sequence[Completion], *, is_last: bool) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Played:
    """Turns that a method asked for live: each says itself which one it replies to."""

    def arranged(self, records: Sequence[Record]) -> tuple[Sequence[Record], list[int | None]]:
        """Return the recorded turns of a question, turn by turn of a conversation, and the place of
        the one before each.
        """
        replies: dict[int | None, list[Record]] = {}
        for record in records:
            replies.setdefault(record.get("parent"), []).append(record)
        turns: list[tuple[Record, int | None]] = [
            (record, None) for record in replies.get(None, ())
        ]
        for place, (before, _) in enumerate(turns):  # grows meanwhile
            turns += [(record, place) for record in replies.get(before["sample"], ())]
        return [record for record, _ in turns], [place for _, place in turns]


def reply_of(record: Record, thoughts: Thoughts | None) -> str:
    """Return a recorded reply as a conversation holds it: without its thoughts."""
    apart = record.get("reasoning")
    columns = split_columns(
        [record["text"]], apart and [apart], [record["finish_reason"]], thoughts
    )
    return clean(columns.texts[0] or "")


def estimate_turns(
    turns: Turns, plan: SamplePlan, journal: Journal | None, price: Price | None
) -> CostEstimate:
    """Return the most turns that the chains of a plan still lack, and what they would cost: each
    sends the conversation again.

    Replies are as long as the journal's, else they take all tokens they may.
    """
    requests = dict(zip(plan.keys, plan.requests, strict=True))
    limit, basis, at_most = (
        plan.requests[0].decoding.max_tokens,
        "nothing: there is no limit on output tokens",
        True,
    )
    length: float | None = limit
    if journal is not None and journal.totals.cots:
        length = journal.totals.output_tokens / journal.totals.cots
        basis, at_most = "the mean length of the replies in the journal", False
    elif limit is not None:
        basis = f"an upper bound: the limit of {limit:,} output tokens for every turn"
    texts = [turns.protocol.text(turn) for turn in range(1, turns.depth)]
    cots, calls, fresh, again = 0, 0, 0.0, 0.0
    for key, request in requests.items():
        lacking = range(plan.samples) if journal is None else journal.missing(key, plan.samples)
        levels = [turn // turns.first for turn in lacking]
        words = sum(count_words(message.content) for message in request.messages)
        said = [count_words(text) + text.count("{question}") * words for text in texts]
        begins = 0 in levels
        cots, calls = cots + len(levels), calls + begins + len(levels) - levels.count(0)
        fresh += begins * words + sum(said[level - 1] for level in levels if level)
        again += sum(
            words + sum(said[: level - 1]) + level * (length or 0) for level in levels if level
        )
    if length is None:
        return CostEstimate(cots, calls, round(fresh + again), None, None, basis, at_most=at_most)
    prompt, output = round(fresh + again), round(cots * length)
    costs = [
        None if price is None else usd(price, tokens, output) for tokens in (prompt, round(fresh))
    ]
    return CostEstimate(
        cots,
        calls,
        prompt,
        output,
        costs[0],
        basis,
        at_most,
        uncached_prompt_tokens=round(fresh),
        usd_cached=costs[1],
    )
