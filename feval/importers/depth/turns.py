"""Turns of generic CoTs: the replies to a CoT, one after the other, as the nodes of a tree; and
what was sent for each.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from feval.errors import SourceError
from feval.importers.source import SourcePool


def turn_place(position: int, where: str) -> str:
    """Return what messages call a turn of a CoT."""
    return f"turn {position} of {where}"


def chained(where: str, cot: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a CoT and its turns, each with its place, as nodes: each replies to the one before."""
    own = {name: value for name, value in cot.items() if name != "turns"}
    parent: dict[str, str] = {}
    for position, each in enumerate([own, *cot.get("turns", ())]):
        here = turn_place(position - 1, where) if position else where
        yield here, {**each, **parent, "node": here, "ends": True}
        parent = {"parent": here}


def turn_prompt_tokens(
    question: str,
    pool: SourcePool,
    request: int | None,
    count: Callable[[str], int] | None,
    *,
    recount: bool,
) -> Sequence[int | None] | None:
    """Return the tokens of all that was sent for each turn: as the source has them, else counted
    along the conversation.

    Args:
        question: its id, for messages.
        pool: with turns, or without.
        request: tokens of the question's request, `None` where not known.
        count: counts the tokens of a text; `None` where those of the source stand.
        recount: whether to count also where the source has a number.

    Raises:
        SourceError: a turn has no tokens, and nothing counts them.
    """
    given, parents = pool.turn_prompt_tokens, pool.parents or ()
    if pool.messages is None or request is None:
        return given
    sent: list[int | None] = []
    conversations: list[int] = []  # up to each CoT, itself included
    for place, (parent, messages) in enumerate(zip(parents, pool.messages, strict=True)):
        tokens = None if given is None else given[place]
        if parent is None or messages is None:
            tokens = None
        elif count is not None and (recount or tokens is None):
            tokens = conversations[parent] + count(
                "\n".join(each["content"] for each in json.loads(messages))
            )
        elif tokens is None:
            raise SourceError(
                f"{_turn(place, parents)} of question {question!r} has no 'prompt_tokens', and the"
                " request has; give both or neither, or have all tokens counted (--counter)."
            )
        sent.append(tokens)
        own = 0 if count is None else count(pool.texts[place] or "")
        conversations.append((request if tokens is None else tokens) + own)
    return sent


def _turn(place: int, parents: Sequence[int | None]) -> str:
    """Return what messages call a turn by its place: its number in the conversation, and the sample
    that this began with.
    """
    depth = 0
    while (parent := parents[place]) is not None:
        place, depth = parent, depth + 1
    return f"Turn {depth - 1} of sample {place}"
