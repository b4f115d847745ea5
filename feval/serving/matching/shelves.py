"""A dataset on the shelf: its questions and recorded prompts, as matching compares them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from threading import RLock
from typing import Any

import orjson

from feval.replay import LLM, Dataset
from feval.serving.errors import RequestError
from feval.serving.kept import Kept
from feval.serving.matching.search import TextIndex
from feval.serving.requests import Conversation, conversation

__all__ = ["Shelf", "conversation_digest", "system_text"]

_MOST_COMPARED = 20_000
_CONVERSATION_BYTES = 32 << 20
_OVERHEAD = 200  # bytes that a conversation takes besides its texts
_SYSTEM_ROLES = ("system", "developer")


class Shelf:
    """One dataset of a library with its LLMs; what matching needs is read when it is first needed.

    Args:
        dataset: from `load`.
        llms: from the same `load`.
        lock: of the library, for reading.

    Attributes:
        dataset: as given.
        llms: as given.
    """

    def __init__(self, dataset: Dataset, llms: list[LLM], lock: RLock) -> None:
        self.dataset, self.llms, self._lock = dataset, llms, lock
        self._prompts: dict[str, _Prompts] = {}
        self._conversations: Kept[tuple[str, int], Conversation] = Kept(_CONVERSATION_BYTES)
        self._read: dict[str, Any] = {}

    @cached_property
    def ids(self) -> list[str]:
        """Ids of the questions, by row."""
        return list(self.dataset.question_ids)

    @cached_property
    def rows(self) -> dict[str, int]:
        """Id of a question -> its row."""
        return {name: row for row, name in enumerate(self.ids)}

    @property
    def _entries(self) -> tuple[list[str], list[tuple[str, ...]], TextIndex]:
        if "entries" not in self._read:
            with self._lock:
                if "entries" not in self._read:
                    entries = [entry for _, entry in self.dataset]
                    texts = [entry.question for entry in entries]
                    choices = [tuple(text for _, text in entry.choices) for entry in entries]
                    self._read["entries"] = texts, choices, TextIndex(texts)
        found: tuple[list[str], list[tuple[str, ...]], TextIndex] = self._read["entries"]
        return found

    @property
    def texts(self) -> list[str]:
        """Texts of the questions, by row."""
        return self._entries[0]

    @property
    def choices(self) -> list[tuple[str, ...]]:
        """Texts of the options of each question, by row."""
        return self._entries[1]

    @property
    def index(self) -> TextIndex:
        """Finds the questions' texts in messages."""
        return self._entries[2]

    @property
    def words(self) -> list[frozenset[str]]:
        """The words of each question, to say which is near; of the first ones only where there are very many."""
        if "words" not in self._read:
            self._read["words"] = [frozenset(text.lower().split()) for text in self.texts[:_MOST_COMPARED]]
        found: list[frozenset[str]] = self._read["words"]
        return found

    def prompts(self, llm: LLM) -> Mapping[bytes, tuple[int, ...]]:
        """Digests of the conversations that were recorded -> rows of the questions."""
        return self._prompts_of(llm).rows

    def system_text(self, llm: LLM, row: int) -> str | None:
        """The recorded system prompt of a question (by its row), empty without one; `None` where no prompt was recorded."""
        return self._prompts_of(llm).systems[row]

    def conversation(self, llm: LLM, row: int) -> Conversation | None:
        """The recorded prompt of a question (by its row); `None` where it is not known."""
        kept = self._conversations.get((llm.name, row))
        if kept is not None:
            return kept
        wanted = None
        with self._lock:
            for place, prompt in enumerate(llm.prompts()):  # reading one reads them all
                recorded = None if prompt is None else _recorded(prompt)
                if recorded is not None:
                    self._conversations.put((llm.name, place), recorded, len(prompt or "") + _OVERHEAD)
                if place == row:
                    wanted = recorded
        return wanted

    def _prompts_of(self, llm: LLM) -> _Prompts:
        if llm.name not in self._prompts:
            with self._lock:
                if llm.name not in self._prompts:
                    self._prompts[llm.name] = _Prompts.of(llm.prompts())
        return self._prompts[llm.name]


@dataclass(frozen=True, slots=True)
class _Prompts:
    """What is kept of the prompts of one LLM.

    Attributes:
        rows: digest of a conversation -> rows of the questions.
        systems: system prompt by row; see `Shelf.system_text`. Equal ones are one string.
    """

    rows: Mapping[bytes, tuple[int, ...]]
    systems: Sequence[str | None]

    @classmethod
    def of(cls, prompts: Iterable[str | None]) -> _Prompts:
        rows: dict[bytes, tuple[int, ...]] = {}
        systems: list[str | None] = []
        distinct: dict[str, str] = {}
        for row, prompt in enumerate(prompts):
            recorded = None if prompt is None else _recorded(prompt)
            system = None if recorded is None or not recorded.messages else system_text(recorded)
            systems.append(None if system is None else distinct.setdefault(system, system))
            if recorded is not None and recorded.text_only:
                digest = conversation_digest(recorded)
                rows[digest] = (*rows.get(digest, ()), row)
        return cls(rows, systems)


def _recorded(prompt: str) -> Conversation | None:
    """A prompt of a recording as it is compared; `None` where it is no list of messages."""
    try:
        messages = orjson.loads(prompt)
        return conversation(messages) if isinstance(messages, list) else None
    except (orjson.JSONDecodeError, RequestError):
        return None


def conversation_digest(asking: Conversation) -> bytes:
    """Return a digest of roles and texts."""
    return blake2b(orjson.dumps(asking.messages), digest_size=16).digest()


def system_text(asking: Conversation) -> str:
    """Return the texts of the system messages, joined; empty where there are none."""
    return "\n".join(text for role, text in asking.messages if role in _SYSTEM_ROLES)
