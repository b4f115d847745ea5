"""Turns: replies to whole CoTs, looked up by what they reply to and by the messages that were sent
behind it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from feval.errors import NotRecordedError, UsageError

if TYPE_CHECKING:
    from feval.recording.steps import Steps
    from feval.replay.responses import RecordedLLM

Messages = str | Sequence[Mapping[str, Any]]
"""What is sent behind a conversation: the text of one user message, or a list of messages."""

MessageList = list[dict[str, Any]]


def message_lists(
    messages: Messages | Sequence[Messages] | None, parents: int
) -> list[MessageList | None]:
    """Return what is sent to each of some CoTs; `None` stands for the only messages that were
    recorded there.

    Args:
        messages: the same for all, or a list with those for each.
        parents: how many CoTs.

    Raises:
        UsageError: there are not as many as CoTs, or a message is no object with a role and a
            content.
    """
    if messages is None or isinstance(messages, str) or not _are_several(messages):
        return [_message_list(messages)] * parents
    if len(messages) != parents:
        raise UsageError(
            f"{parents} CoTs are replied to, with messages for {len(messages)}; give as many, or"
            " the same for all."
        )
    return [_message_list(each) for each in messages]


def _are_several(messages: Any) -> bool:
    return isinstance(messages, Sequence) and not all(
        isinstance(each, Mapping) for each in messages
    )


def _message_list(messages: Any) -> MessageList | None:
    if messages is None:
        return None
    if isinstance(messages, str):
        return [{"role": "user", "content": messages}]
    known = isinstance(messages, Sequence) and len(messages) > 0
    if not known or not all(
        isinstance(each, Mapping) and {"role", "content"} <= each.keys() for each in messages
    ):
        raise UsageError(
            "A CoT is replied to with a text, or with a list of messages {'role': ..., 'content':"
            f" ...}}; {messages!r:.80} was given."
        )
    return [dict(each) for each in messages]


def turn_number(llm: RecordedLLM, row: int, parent: int, messages: MessageList | None) -> int:
    """Return which messages, as `Steps.turns` numbers them, a reply to a CoT (by its place) was
    asked for with.

    Raises:
        NotRecordedError: no turn replies to the CoT with these messages; the message says what was
            recorded there.
    """
    steps = llm.pool.steps()
    numbers: list[int] = list(
        dict.fromkeys(_turns(steps, row)[steps.children(row, parent)].tolist())
    )
    if messages is None and len(numbers) == 1:
        return numbers[0]
    where = f"{called(steps, row, parent)} of {llm.name} on question {llm.question_ids[row]!r}"
    sent = _sent(llm, row) if numbers else {}
    for number in numbers if messages is not None else ():
        if json.loads(sent[number]) == messages:
            return number
    raise NotRecordedError(missing_messages(where, messages, [sent[number] for number in numbers]))


def _sent(llm: RecordedLLM, row: int) -> dict[int, str]:
    """Return the messages of a question's turns, by number."""
    turns = _turns(llm.pool.steps(), row)
    return {
        number: text
        for number, text in zip(turns.tolist(), llm.messages(row) or (), strict=False)
        if text is not None
    }


def _turns(steps: Steps, row: int) -> npt.NDArray[Any]:
    """[S] which messages each step of a question replies to, as a number."""
    turns: npt.NDArray[Any] = (
        np.full_like(steps.parents[row], -1) if steps.turns is None else steps.turns[row]
    )
    return turns


def called(steps: Steps, row: int, place: int) -> str:
    """Return what messages call a whole CoT, by its place: "CoT 3", or "turn 7" where it is a reply
    itself.
    """
    return f"{'CoT' if steps.turns is None or steps.turns[row, place] < 0 else 'turn'} {place}"


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


def few_turns(llm: str, where: str, to: str, asked: int, recorded: int) -> str:
    """Return the sentence about too few turns that reply to a CoT with the same messages."""
    return (
        f"A method asks {llm} for {asked} {'reply' if asked == 1 else 'replies'} to {to} on"
        f" {where}, and {recorded} {'was' if recorded == 1 else 'were'} recorded with these"
        " messages. Ask for fewer, or record more."
    )


def few_first_cots(llm: str, where: str, asked: int, recorded: int) -> str:
    """Return the sentence about too few CoTs that reply to no other."""
    return (
        f"{llm} has {recorded} recorded CoT{'s' * (recorded != 1)} that reply to no other on"
        f" {where}; {asked} were asked for. Ask for {recorded} or fewer, or record more."
    )
