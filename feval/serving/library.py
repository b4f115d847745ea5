"""The recordings that are served, and the questions and prompts that matching compares with."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from threading import Lock, RLock
from typing import Any, Generic, TypeVar

import orjson

from feval.cards.reading import some
from feval.errors import NotRecordedError
from feval.recording import Recording
from feval.replay import LLM, Dataset, load, open_recordings
from feval.serving.prompts import TextIndex
from feval.serving.wire.calls import RequestError
from feval.serving.wire.openai import Conversation, conversation
from feval.values import frozen

_NAMED = 5
_MAX_COMPARED = 20_000
_CONVERSATION_BYTES = 32 << 20
_OVERHEAD = 200  # bytes that a conversation takes besides its texts
_SYSTEM_ROLES = ("system", "developer")


class Library:
    """Recordings opened for serving, by dataset; `lock` is held while questions or prompts are
    read.
    """

    def __init__(
        self,
        recording: str | Path | Recording | Sequence[str | Path | Recording] | None = None,
        *,
        datasets: str | Sequence[str] | None = None,
        llms: str | Sequence[str] | None = None,
        **options: Any,
    ) -> None:
        self.recordings = open_recordings(recording)
        self.lock = RLock()
        recorded: defaultdict[str, dict[str, None]] = defaultdict(dict)
        for each in self.recordings:
            for dataset, llm in each.manifest.pairs:
                recorded[dataset][llm] = None
        names = list(dict.fromkeys(llm for own in recorded.values() for llm in own))
        chosen = []
        for noun, given, known in (("dataset", datasets, list(recorded)), ("LLM", llms, names)):
            wanted = [given] if isinstance(given, str) else known if given is None else given
            for name in wanted:
                if name not in known:
                    raise NotRecordedError(
                        f"The {noun} {name!r} was to be served, but the recordings do not hold it."
                        f" They hold {some(known)}."
                    )
            chosen.append(wanted)
        self.served = [
            ServedDataset(*load(dataset, served, self.recordings, **options), self.lock)
            for dataset, own in recorded.items()
            if dataset in chosen[0] and (served := [name for name in own if name in chosen[1]])
        ]
        if not self.served:
            what = f"{some(chosen[1])} on {some(chosen[0])}" if names else "any LLM"
            raise NotRecordedError(
                f"Nothing is left to serve: the recordings hold no CoTs of {what}."
            )
        self.datasets: dict[str, Dataset] = {each.dataset.id: each.dataset for each in self.served}
        self.llms: list[LLM] = [llm for each in self.served for llm in each.llms]
        for opened in self.llms:
            opened.require_whole_cots()

    def model_names(self) -> list[str]:
        """Return the names of the recorded LLMs, which a request can give as its model."""
        return list(dict.fromkeys(llm.name for llm in self.llms))

    def find(self, dataset: str, llm: str, question: str) -> tuple[LLM, int] | None:
        """Return an LLM by its full name and the row of a question by its id; `None` without such a
        pair.
        """
        for served in self.served:
            for each in served.llms:
                if (served.dataset.id, each.name) == (dataset, llm) and question in served.rows:
                    return each, served.rows[question]
        return None

    def opened(self, dataset: str, names: Sequence[str]) -> tuple[Dataset, list[LLM]]:
        """Return a dataset by its id, and LLMs on it by their names."""
        by_name = {llm.name: llm for llm in self.llms if llm.dataset == dataset}
        return self.datasets[dataset], [by_name[name] for name in names]

    def contents(self) -> str:
        """Return in words which LLMs were recorded on which datasets."""
        shown = [
            f"{some([llm.name for llm in each.llms])} on {each.dataset.id}"
            f" ({len(each.ids):,} questions)"
            for each in self.served[:_NAMED]
        ]
        if (more := len(self.served) - _NAMED) > 0:
            shown.append(f"and {more} more datasets")
        return "; ".join(shown)


class ServedDataset:
    """A dataset with its LLMs; questions and prompts are read, under the lock, when they are first
    needed.
    """

    def __init__(self, dataset: Dataset, llms: list[LLM], lock: RLock) -> None:
        self.dataset, self.llms, self.lock = dataset, llms, lock
        self._read: dict[str | None, Any] = {}
        self._conversations: BoundedCache[tuple[str, int], Conversation] = BoundedCache(
            _CONVERSATION_BYTES
        )

    @cached_property
    def ids(self) -> list[str]:
        """Ids of the questions, by row."""
        return list(self.dataset.question_ids)

    @cached_property
    def rows(self) -> dict[str, int]:
        """Id of a question -> its row."""
        return {name: row for row, name in enumerate(self.ids)}

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
        return self._prompts(llm).rows

    def beginning(self, llm: LLM, conversation: Conversation) -> int | None:
        """Return the row of a longer recorded conversation that begins so; `None` without one."""
        return self._prompts(llm).beginnings.get(conversation_digest(conversation))

    def system_text(self, llm: LLM, row: int) -> str | None:
        """Return the recorded system prompt of a question (by its row): empty without one, `None`
        if no prompt was recorded.
        """
        return self._prompts(llm).systems[row]

    def conversation(self, llm: LLM, row: int) -> Conversation | None:
        """Return the recorded prompt of a question (by its row); `None` if it is not known."""
        found = self._conversations.get((llm.name, row))
        if found is None:
            with self.lock:
                for place, prompt in enumerate(llm.prompts()):  # reading one reads them all
                    if (recorded := _recorded(prompt)) is not None:
                        size = len(prompt or "") + _OVERHEAD
                        self._conversations.put((llm.name, place), recorded, size)
                        found = recorded if place == row else found
        return found

    def conversations(self, llm: LLM) -> Iterator[tuple[int, Conversation]]:
        """Yield the row of each question whose prompt is known, with the prompt."""
        for row, prompt in enumerate(llm.prompts()):
            if (recorded := _recorded(prompt)) is not None:
                yield row, recorded

    @property
    def _questions(self) -> _Questions:
        questions: _Questions = self._once(None, lambda: _read_questions(self.dataset))
        return questions

    def _prompts(self, llm: LLM) -> _Prompts:
        prompts: _Prompts = self._once(llm.name, lambda: _read_prompts(llm.prompts()))
        return prompts

    def _once(self, key: str | None, read: Callable[[], Any]) -> Any:
        # no cached_property, whose lock in Python 3.11 could be waited for under this one
        if key not in self._read:
            with self.lock:
                if key not in self._read:
                    self._read[key] = read()
        return self._read[key]


@frozen
class _Questions:
    texts: list[str]
    choices: list[tuple[str, ...]]
    index: TextIndex


@frozen
class _Prompts:
    """The rows of each digest of a conversation, a row that begins with each digest of a shorter
    one, and each row's system prompt; equal ones are the same object.
    """

    rows: Mapping[bytes, tuple[int, ...]]
    beginnings: Mapping[bytes, int]
    systems: Sequence[str | None]


def _read_questions(dataset: Dataset) -> _Questions:
    entries = [entry for _, entry in dataset]
    texts = [entry.question for entry in entries]
    choices = [tuple(text for _, text in entry.choices) for entry in entries]
    return _Questions(texts, choices, TextIndex(texts))


def _read_prompts(prompts: Iterable[str | None]) -> _Prompts:
    rows: dict[bytes, tuple[int, ...]] = {}
    beginnings: dict[bytes, int] = {}
    systems: list[str | None] = []
    distinct: dict[str, str] = {}
    for row, prompt in enumerate(prompts):
        recorded = _recorded(prompt)
        system = system_text(recorded) if recorded is not None and recorded.messages else None
        systems.append(None if system is None else distinct.setdefault(system, system))
        if recorded is not None and not recorded.not_text:
            digest = conversation_digest(recorded)
            rows[digest] = (*rows.get(digest, ()), row)
            for length in range(1, len(recorded.messages)):
                beginnings.setdefault(conversation_digest(recorded.first(length)), row)
    return _Prompts(rows, beginnings, systems)


def _recorded(prompt: str | None) -> Conversation | None:
    """A recorded prompt as it is compared; `None` if it is not a list of messages."""
    try:
        messages = None if prompt is None else orjson.loads(prompt)
        return conversation(messages) if isinstance(messages, list) else None
    except (orjson.JSONDecodeError, RequestError):
        return None


def conversation_digest(conversation: Conversation) -> bytes:
    """Return a digest of roles, texts, and what is said of tools."""
    own = conversation.messages if not conversation.tools else conversation
    return blake2b(orjson.dumps(own, default=list), digest_size=16).digest()


def system_text(conversation: Conversation) -> str:
    """Return the texts of the system messages, joined; empty without any."""
    return "\n".join(text for role, text in conversation.messages if role in _SYSTEM_ROLES)


_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


class BoundedCache(Generic[_Key, _Value]):
    """A cache that drops the least recently used values once their sizes exceed `max_bytes`. Safe
    to use from many threads.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._entries: OrderedDict[_Key, tuple[_Value, int]] = OrderedDict()
        self._lock = Lock()

    def get(self, key: _Key) -> _Value | None:
        """Return a value; `None` if it is not in the cache."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: _Key, value: _Value, size: int) -> None:
        """Store a value, which is not `None`, and about how many bytes it and its key take; too
        large a one is not stored.
        """
        with self._lock:
            _, old_size = self._entries.pop(key, (None, 0))
            self._bytes -= old_size
            if size > self._max_bytes:
                return
            self._entries[key] = (value, size)
            self._bytes += size
            while self._bytes > self._max_bytes:
                _, (_, dropped) = self._entries.popitem(last=False)
                self._bytes -= dropped
