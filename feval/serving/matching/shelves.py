"""The questions and recorded prompts of a dataset, as matching compares them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from threading import RLock

import orjson

from feval.replay import LLM, Dataset
from feval.serving.matching.cache import BoundedCache
from feval.serving.matching.search import TextIndex
from feval.serving.wire import requests
from feval.serving.wire.errors import RequestError
from feval.serving.wire.requests import Conversation

_MAX_COMPARED = 20_000
_CONVERSATION_BYTES = 32 << 20
_OVERHEAD = 200  # bytes that a conversation takes besides its texts
_SYSTEM_ROLES = ("system", "developer")


class Shelf:
    """One dataset of a library with its LLMs; questions and prompts are read, under the lock, when
    they are first needed.
    """

    def __init__(self, dataset: Dataset, llms: list[LLM], lock: RLock) -> None:
        self.dataset, self.llms, self._lock = dataset, llms, lock
        self._prompts: dict[str, _Prompts] = {}
        self._conversations: BoundedCache[tuple[str, int], Conversation] = BoundedCache(
            _CONVERSATION_BYTES
        )
        self._read: _Questions | None = None

    @cached_property
    def ids(self) -> list[str]:
        """Ids of the questions, by row."""
        return list(self.dataset.question_ids)

    @cached_property
    def rows(self) -> dict[str, int]:
        """Id of a question -> its row."""
        return {name: row for row, name in enumerate(self.ids)}

    @property
    def _questions(self) -> _Questions:
        if self._read is None:
            with self._lock:
                if self._read is None:
                    self._read = _Questions.of(self.dataset)
        return self._read

    @property
    def texts(self) -> list[str]:
        """Texts of the questions, by row."""
        return self._questions.texts

    @property
    def choices(self) -> list[tuple[str, ...]]:
        """Texts of the options of each question, by row."""
        return self._questions.choices

    @property
    def index(self) -> TextIndex:
        """The index that finds the questions' texts in messages."""
        return self._questions.index

    @cached_property
    def words(self) -> list[frozenset[str]]:
        """The words of each question, to name the nearest one; only of the first 20,000
        questions.
        """
        return [frozenset(text.lower().split()) for text in self.texts[:_MAX_COMPARED]]

    def prompts(self, llm: LLM) -> Mapping[bytes, tuple[int, ...]]:
        """Return: digest of a recorded conversation -> rows of the questions."""
        return self._prompts_of(llm).rows

    def system_text(self, llm: LLM, row: int) -> str | None:
        """Return the recorded system prompt of a question (by its row): empty without one, `None`
        if no prompt was recorded.
        """
        return self._prompts_of(llm).systems[row]

    def conversation(self, llm: LLM, row: int) -> Conversation | None:
        """Return the recorded prompt of a question (by its row); `None` if it is not known."""
        cached = self._conversations.get((llm.name, row))
        if cached is not None:
            return cached
        conversation = None
        with self._lock:
            for place, prompt in enumerate(llm.prompts()):  # reading one reads them all
                recorded = None if prompt is None else _recorded(prompt)
                if recorded is not None:
                    self._conversations.put(
                        (llm.name, place), recorded, len(prompt or "") + _OVERHEAD
                    )
                if place == row:
                    conversation = recorded
        return conversation

    def _prompts_of(self, llm: LLM) -> _Prompts:
        if llm.name not in self._prompts:
            with self._lock:
                if llm.name not in self._prompts:
                    self._prompts[llm.name] = _Prompts.of(llm.prompts())
        return self._prompts[llm.name]


@dataclass(frozen=True, slots=True)
class _Questions:
    texts: list[str]
    choices: list[tuple[str, ...]]
    index: TextIndex

    @classmethod
    def of(cls, dataset: Dataset) -> _Questions:
        entries = [entry for _, entry in dataset]
        texts = [entry.question for entry in entries]
        return cls(
            texts, [tuple(text for _, text in entry.choices) for entry in entries], TextIndex(texts)
        )


@dataclass(frozen=True, slots=True)
class _Prompts:
    """The rows of each digest of a conversation, and each row's system prompt; equal ones are the
    same object.
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
    """A recorded prompt as it is compared; `None` if it is not a list of messages."""
    try:
        messages = orjson.loads(prompt)
        return requests.conversation(messages) if isinstance(messages, list) else None
    except (orjson.JSONDecodeError, RequestError):
        return None


def conversation_digest(conversation: Conversation) -> bytes:
    """Return a digest of roles and texts."""
    return blake2b(orjson.dumps(conversation.messages), digest_size=16).digest()


def system_text(conversation: Conversation) -> str:
    """Return the texts of the system messages, joined; empty without any."""
    return "\n".join(text for role, text in conversation.messages if role in _SYSTEM_ROLES)
