"""Steps as arrays: the trees that pools consist of where an LLM was recorded step by step, or turn
by turn.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


def path_texts(
    texts: Sequence[str | None], parents: Sequence[int | None], stop: str = ""
) -> Iterator[str | None]:
    """Yield the text of the path to each step of a tree; `None` where a step of it has none.

    Where a step does not end with the stop text, that text joins it to the next one, its last
    blanks only where neither has any.
    """
    kept = stop.rstrip(" ")
    paths: list[str | None] = []
    for text, parent in zip(texts, parents, strict=True):
        before = "" if parent is None else paths[parent]
        if before and text is not None:
            before += "" if before.rstrip(" ").endswith(kept) else kept
            before += "" if before.endswith(" ") or text.startswith(" ") else stop[len(kept) :]
        paths.append(None if before is None or text is None else before + text)
        yield paths[-1]


def conversation(
    place: int,
    parents: Sequence[int | None],
    texts: Sequence[str | None],
    messages: Sequence[str | None] | None,
    request: str | None,
) -> str | None:
    """Return all that was sent for a CoT or turn, as a JSON array of messages; `None` where some of
    it is not known.

    Args:
        place: of the CoT or turn.
        parents: place of the CoT that each turn replies to; `None`, or below 0, where there is
            none.
        texts: of the CoTs and turns.
        messages: what each turn replies to, as JSON.
        request: what was sent for the question, as JSON.
    """
    behind: list[Any] = []
    while (parent := parents[place]) is not None and parent >= 0:
        own, text = None if messages is None else messages[place], texts[parent]
        if own is None or text is None:
            return None
        behind[:0] = [{"role": "assistant", "content": text}, *json.loads(own)]
        place = parent
    if not behind or request is None:
        return request
    return json.dumps([*json.loads(request), *behind], ensure_ascii=False)


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """The trees of one LLM on Q questions (S steps the largest): the columns of its pools are
    steps, not whole CoTs.

    Attributes:
        parents: [Q, S] place of the step before each one, -1 for a first step, -2 where there is no
            step. It rises, so that the children of a step follow each other.
        ends: [Q, S] 1 where a step ends a solution, else 0.
        turns: [Q, S] which messages a turn replies to, as a number among those of its question; -1
            for a step that is no turn, -2 where there is no step. `None` where no step is a turn.
        turn_prompts: [Q, S] tokens of all that was sent for a turn, -1 where there is none or they
            are not known; `None` as `turns`.
    """

    parents: npt.NDArray[np.signedinteger[Any]]
    ends: npt.NDArray[np.uint8]
    turns: npt.NDArray[np.signedinteger[Any]] | None = None
    turn_prompts: npt.NDArray[np.int32] | None = None

    def rows(self, rows: Any) -> Steps:
        """The steps of some questions, in the order given."""
        return Steps(*(None if array is None else array[rows] for array in self.arrays()))  # type: ignore[arg-type]  # as many as its fields

    def arrays(self) -> tuple[npt.NDArray[Any] | None, ...]:
        """The arrays, in the order of the attributes."""
        return self.parents, self.ends, self.turns, self.turn_prompts

    def children(self, row: int, step: int) -> range:
        """The places of the steps recorded after a step of a question, or of its first steps
        (-1).
        """
        recorded = self.parents[row][self.parents[row] > -2]
        return range(int(recorded.searchsorted(step)), int(recorded.searchsorted(step, "right")))

    def holds(self, row: int, columns: Mapping[str, Sequence[Any]]) -> bool:
        """Whether a question has the steps that its rows in the Parquet files say, those of turns
        among them.
        """
        parents = unknown_as_minus_one(columns["parent"])
        absent = [-2] * (self.parents.shape[1] - len(parents))
        expected = [parents + absent, [*map(int, columns["ends"]), *(0 for _ in absent)]]
        if self.turns is not None:
            nothing = [None] * len(parents)
            expected.append(message_numbers(columns.get("messages", nothing)) + absent)
            expected.append(
                unknown_as_minus_one(columns.get("prompt_tokens", nothing)) + [-1] * len(absent)
            )
        elif columns.get("messages"):
            return False
        return expected == [array[row].tolist() for array in self.arrays() if array is not None]

    def check(
        self, codes: npt.NDArray[np.signedinteger[Any]], sizes: npt.NDArray[np.integer[Any]]
    ) -> None:
        """Check that the steps are trees of the pools with these codes [Q, S] and sizes [Q]; others
        are a `ValueError`.
        """
        width = codes.shape[1]
        if any(array is not None and array.shape != codes.shape for array in self.arrays()):
            raise ValueError("its steps have another shape than the answers")
        present = np.arange(width) < sizes[:, None]
        parents = np.where(present, self.parents, width)
        if (
            (self.parents[~present] != -2).any()
            or (parents < -1).any()
            or (np.diff(parents, axis=1) < 0).any()
        ):
            raise ValueError("its steps should come in the order of their parents")
        if (present & (parents >= np.arange(width))).any() or (self.ends > present).any():
            raise ValueError("its steps should come behind their parents")
        follows = present & (parents >= 0)
        before = np.take_along_axis(
            self.ends, np.where(follows, parents, 0).astype(np.intp), axis=1
        )
        turns = (
            np.full(codes.shape, -1) if self.turns is None else np.where(present, self.turns, -1)
        )
        if (follows & (before > 0) & (turns < 0)).any() or ((codes >= 0) & (self.ends == 0)).any():
            raise ValueError(
                "a step goes on from the end of a solution, or has an answer and is no end"
            )
        replies = turns >= 0
        if (
            (replies & ~(follows & (before > 0) & (self.ends > 0))).any()
            or (turns < -1).any()
            or (turns >= width).any()
        ):
            raise ValueError("its turns should reply to whole CoTs and be such")
        if self.turns is not None and (
            (self.turns[~present] != -2).any() or (self.turn_prompts is None)
        ):
            raise ValueError("its turns should be steps, with prompt tokens")


def checked_messages(sent: Sequence[str | None]) -> Sequence[str | None]:
    """Return what turns reply to; a `ValueError` as for `read_messages`."""
    for text in {each for each in sent if each is not None}:
        read_messages(text)
    return sent


def read_messages(text: str) -> list[dict[str, str]]:
    """Return the messages in a JSON array; anything else is a `ValueError`."""
    # refuses broken Unicode and deep nesting; a user's method in its process does without it
    import orjson

    try:
        messages = orjson.loads(text)
    except orjson.JSONDecodeError:
        messages = None
    if not (isinstance(messages, list) and all(map(_is_message, messages))):
        raise ValueError(
            f"{text!r:.80} is not a list of messages, each with role and content as text"
        )
    return messages


def _is_message(value: Any) -> bool:
    is_object = isinstance(value, dict) and {"role", "content"} <= value.keys()
    return is_object and all(isinstance(each, str) for each in value.values())


def message_numbers(messages: Sequence[str | None]) -> list[int]:
    """Return which messages each step of a question replies to, numbered by first appearance; -1
    for no turn.
    """
    numbers: dict[str, int] = {}
    return [-1 if sent is None else numbers.setdefault(sent, len(numbers)) for sent in messages]


def unknown_as_minus_one(values: Sequence[int | None]) -> list[int]:
    """Return whole numbers with -1 for `None`."""
    return [-1 if value is None else value for value in values]
