"""Turns of a live LLM: replies to its CoTs, each with the whole conversation before it, as `feval
record --protocol` has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from feval.errors import UsageError
from feval.replay.turns import Messages, message_lists
from recorders.asking.trees import child_seed
from recorders.live.replies import LiveCoT, LiveResponse
from recorders.request import Message, Request


@dataclass(slots=True, eq=False)
class Spoken:
    """A CoT that was handed out, or the request: what was said up to it, and how many replies to it
    were asked for.

    Attributes:
        conversation: behind the request, the CoT itself included.
        path: the number of each turn up to it among its siblings.
        tokens: output tokens of all of these.
        replies: asked for so far.
        cot: `None` for the request.
        sample: its number in a journal; `None` for the request, or where nothing is recorded.
    """

    conversation: tuple[Message, ...] = ()
    path: tuple[int, ...] = ()
    tokens: int = 0
    replies: int = 0
    cot: LiveCoT | None = None
    sample: int | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """A request for some turns: what it replies to, the numbers of the turns among their siblings,
    and those in a journal.
    """

    spoken: Spoken
    request: Request
    numbers: range
    samples: list[int] = field(default_factory=list)

    @property
    def seeds(self) -> list[int]:
        """What the seeds of the turns add to the base seed."""
        return [child_seed(self.spoken.path, number) for number in self.numbers]


class Conversations:
    """The conversations about one question: for the meter, not for methods.

    Args:
        owner: the LLM's name.
        request: of the question.
    """

    def __init__(self, owner: str, request: Request) -> None:
        self._owner, self._request = owner, request
        self._known: dict[int, Spoken] = {}
        self.start = Spoken()

    def asked(self, spoken: Spoken, said: Sequence[Message], k: int) -> Asked:
        """Return the request for k more replies, after something was said; of the request itself
        without a word.
        """
        conversation = (*spoken.conversation, *said)
        numbers = range(spoken.replies, spoken.replies + k)
        spoken.replies += k
        return Asked(spoken, replace(self._request, conversation=conversation), numbers)

    def replies(
        self,
        cots: LiveCoT | LiveResponse | Sequence[LiveCoT],
        messages: Messages | Sequence[Messages] | None,
        k: int,
    ) -> list[Asked]:
        """Return the requests for k more replies to each of some CoTs."""
        several = (
            [cots]
            if isinstance(cots, LiveCoT)
            else cots.cots
            if isinstance(cots, LiveResponse)
            else list(cots)
        )
        spoken = [self._spoken(cot) for cot in several]
        if messages is None:
            raise UsageError(
                f"A live {self._owner} is replied to with a text or messages; none were given."
            )
        lists = [
            [Message(each["role"], each["content"]) for each in sent or ()]
            for sent in message_lists(messages, len(spoken))
        ]
        if not all(
            isinstance(text, str)
            for said in lists
            for each in said
            for text in (each.role, each.content)
        ):
            raise UsageError(
                f"A live {self._owner} is replied to with messages of text; {messages!r:.80} was"
                " given."
            )
        return [self.asked(each, said, k) for each, said in zip(spoken, lists, strict=True)]

    def add(self, asked: Asked, number: int, cot: LiveCoT) -> int:
        """Note a reply that came; return the output tokens of its path."""
        before, reply = asked.spoken, Message("assistant", cot.raw_text)
        conversation = (*asked.request.conversation, reply)
        sample = asked.samples[number - asked.numbers.start] if asked.samples else None
        spoken = Spoken(
            conversation, (*before.path, number), before.tokens + cot.tokens, cot=cot, sample=sample
        )
        self._known[cot.sample] = spoken
        return spoken.tokens

    def _spoken(self, cot: LiveCoT) -> Spoken:
        spoken = self._known.get(getattr(cot, "sample", -1))
        if spoken is None or spoken.cot is not cot:
            raise UsageError(
                f"{cot!r:.80} was not handed out by {self._owner} on this question, and cannot be"
                " replied to."
            )
        return spoken
