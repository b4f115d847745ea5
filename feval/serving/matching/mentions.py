"""Recorded questions whose text stands verbatim in a message."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from feval.serving.matching.search import normal
from feval.serving.matching.shelves import Shelf
from feval.serving.wire.requests import Conversation

MAX_SEARCHED = 1 << 20
"""Characters of the longest message that is searched for questions."""

_SHOWN = 60
# characters before a question is repeated ("Read it again:"); an exemplar and its solution take
# more
_MAX_GAP = 100


@dataclass(frozen=True, slots=True)
class Place:
    """A question of a dataset, whichever LLM is asked."""

    shelf: Shelf
    row: int

    @property
    def id(self) -> str:
        """Id of the question."""
        return self.shelf.ids[self.row]

    def __str__(self) -> str:
        return f"{self.id[:_SHOWN]!r} of {self.shelf.dataset.id}"


@dataclass(frozen=True, slots=True)
class Mention:
    """Recorded questions whose text stands at one position of a message; several if they have the
    same text.
    """

    start: int
    stop: int
    places: tuple[Place, ...]


def mentions(shelves: Iterable[Shelf], conversation: Conversation) -> list[Mention]:
    """Return where recorded questions stand verbatim in the last user message, in order; none
    inside a longer one.
    """
    text = conversation.last_user_text
    if not text or len(text) > MAX_SEARCHED:
        return []
    hits = [
        (hit.start, hit.stop, shelf, hit.numbers)
        for shelf in shelves
        for hit in shelf.index.outermost(text)
    ]
    result: list[Mention] = []
    outer = (0, 0)
    for start, stop, shelf, numbers in sorted(hits, key=lambda hit: (hit[0], -hit[1])):
        # else it lies in a longer one, of another dataset
        if stop > outer[1] or (start, stop) == outer:
            rows = numbers if len(numbers) == 1 else _with_choices(shelf, numbers, text)
            others = result.pop().places if (start, stop) == outer else ()
            result.append(Mention(start, stop, (*others, *(Place(shelf, row) for row in rows))))
            outer = (start, stop)
    return result


def mentioned_places(shelves: Iterable[Shelf], conversation: Conversation) -> list[Place]:
    """Return the questions that stand verbatim in the last user message and in no longer one
    there.
    """
    return list(
        dict.fromkeys(
            place for mention in mentions(shelves, conversation) for place in mention.places
        )
    )


def exemplars_end(ordered: Sequence[Mention]) -> int:
    """Return where the last question begins, the first time if it is repeated at once; 0 without
    exemplars before it.
    """
    last, start = ordered[-1].places if ordered else (), 0
    if all(mention.places == last for mention in ordered):
        return 0
    for mention in reversed(ordered):
        if mention.places != last or (start and start - mention.stop > _MAX_GAP):
            break
        start = mention.start
    return start


def _with_choices(shelf: Shelf, rows: Sequence[int], text: str) -> Sequence[int]:
    """Of questions with the same text, those whose options are in the message, too; all if there
    are none.
    """
    text = normal(text)
    shown = [
        row
        for row in rows
        if shelf.choices[row]
        and all(normal(choice).strip() in text for choice in shelf.choices[row])
    ]
    return shown or rows
