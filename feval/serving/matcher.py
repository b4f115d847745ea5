"""Which recorded question of which recorded LLM a request asks.

First the LLM's name, then the question: by its id where the client gives one; else by the whole conversation, where just that was
recorded; else by the text of a recorded question that stands verbatim in the last user message. Where variants of a model are
left, the sampling parameters tell them apart. What fits nothing is a miss, what fits several things is an error: never a guess.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any

import orjson

from feval.errors import NotRecordedError
from feval.recording.content import LLMInfo
from feval.recording.reader import Recording
from feval.replay import LLM, Dataset, load, open_recordings
from feval.serving.errors import AmbiguousError, MissError, RequestError
from feval.serving.requests import Asked, Conversation, conversation
from feval.serving.search import TextIndex, normal

if TYPE_CHECKING:
    from feval.prices import PriceList

__all__ = ["Library", "Match"]

_MOST_SEARCHED = 1 << 20
_SHOWN = 60
_NAMED = 5
_MOST_COMPARED = 20_000
_HOW_TO_NAME_DATASET = 'name it: extra_body={"feval": {"dataset": ID}}, or the header X-Feval-Dataset'
_HOW_TO_NAME = 'name the question: extra_body={"feval": {"question": ID}}, or the header X-Feval-Question'

# What a value must differ from to be more than the default of every server.
_NEUTRAL: Mapping[str, Any] = {
    "top_p": 1, "presence_penalty": 0, "frequency_penalty": 0, "logit_bias": {}, "stop": [], "tools": [], "functions": [],
    "parallel_tool_calls": True, "tool_choice": "none", "response_format": {"type": "text"}, "modalities": ["text"],
    "best_of": 1, "suffix": "",
}  # fmt: skip
_LIMITS = ("max_completion_tokens", "max_tokens")


@dataclass(frozen=True, slots=True)
class Match:
    """A recorded question of a recorded LLM.

    Attributes:
        llm: which.
        row: of the question.
        how: "request", "question" or "id": what told.
        ignored: fields of the request that cannot have an effect: they are not what was recorded.
    """

    llm: LLM
    row: int
    how: str
    ignored: tuple[str, ...]

    @property
    def question(self) -> str:
        """Id of the question."""
        return self.llm.question_ids[self.row]


@dataclass(frozen=True, slots=True)
class _Place:
    """A question, whichever LLM is asked it."""

    shelf: _Shelf
    row: int

    @property
    def id(self) -> str:
        return self.shelf.ids[self.row]

    def __str__(self) -> str:
        return f"{self.id[:_SHOWN]!r} of {self.shelf.dataset.id}"


class Library:
    """Recordings opened for serving.

    Args:
        recording: what `feval.load` takes as its recording.
        datasets: only these; all for `None`.
        llms: only these; all for `None`.
        strict: whether only recorded requests, and questions named by id, are found.
        seed: as in `feval.load`.
        prices: as in `feval.load`.
        billing: as in `feval.load`.

    Attributes:
        recordings: open.
        llms: every LLM on every dataset.
        datasets: id -> dataset.
        strict: as given.

    Raises:
        NotRecordedError: a dataset or LLM that was named is not there.
        FevalError: whatever `feval.load` raises.
    """

    def __init__(
        self,
        recording: str | Path | Recording | Sequence[str | Path | Recording] | None = None,
        *,
        datasets: str | Sequence[str] | None = None,
        llms: str | Sequence[str] | None = None,
        strict: bool = False,
        seed: int = 0,
        prices: str | Path | PriceList | None = None,
        billing: str = "once",
    ) -> None:
        self.recordings = open_recordings(recording)
        self.strict, self._lock = strict, RLock()
        pairs = _chosen(self.recordings, _listed(datasets), _listed(llms))
        self._shelves = [
            _Shelf(*load(dataset, names, self.recordings, seed=seed, prices=prices, billing=billing), self._lock)
            for dataset, names in pairs.items()
        ]
        self.datasets: dict[str, Dataset] = {shelf.dataset.id: shelf.dataset for shelf in self._shelves}
        self.llms: list[LLM] = [llm for shelf in self._shelves for llm in shelf.llms]

    def prepare(self) -> None:
        """Read what matching needs, so that no request waits for it."""
        for shelf in self._shelves:
            _ = shelf.index, shelf.rows
            for llm in shelf.llms:
                shelf.prompts(llm)

    def model_names(self) -> list[str]:
        """Names that a request can give as its model: of every recorded LLM."""
        return list(dict.fromkeys(llm.name for llm in self.llms))

    def find(self, dataset: str, llm: str, question: str) -> tuple[LLM, int] | None:
        """Return an LLM by its full name and the row of a question by its id; `None` where there is no such thing."""
        for shelf in self._shelves:
            if shelf.dataset.id == dataset and question in shelf.rows:
                return next(((own, shelf.rows[question]) for own in shelf.llms if own.name == llm), None)
        return None

    def match(self, asked: Asked) -> tuple[Match, ...]:
        """Find what each conversation of a request asks.

        Raises:
            MissError: nothing that was recorded; the message says what differs.
            AmbiguousError: several things.
            RequestError: the id of one question came with the text of another.
        """
        shelves = self._searched(asked)
        return tuple(self._matched(asked, shelves, asking) for asking in asked.conversations)

    def _searched(self, asked: Asked) -> dict[_Shelf, list[LLM]]:
        """The datasets, each with the LLMs, that the names in a request leave."""
        if asked.dataset is not None and asked.dataset not in self.datasets:
            raise MissError(
                f"There is no dataset {asked.dataset[:_SHOWN]!r} here. The recordings hold {self._holdings()}.",
                parameter="feval.dataset",
            )
        fits = (_is_exactly, _is_variant, _was_sent_as)
        for fit in fits:
            found = {shelf: [llm for llm in shelf.llms if fit(llm, asked.model)] for shelf in self._shelves}
            found = {shelf: llms for shelf, llms in found.items() if llms}
            if found:
                break
        else:
            raise self._unknown_model(asked.model)
        wanted = {s: llms for s, llms in found.items() if asked.dataset in (None, s.dataset.id)}
        if not wanted:
            held = ", ".join(shelf.dataset.id for shelf in found)
            raise MissError(
                f"{asked.model[:_SHOWN]!r} was not recorded on {asked.dataset}; it was on {held}.",
                parameter="model",
                code="model_not_found",
            )
        return wanted

    def _matched(self, asked: Asked, shelves: Mapping[_Shelf, list[LLM]], asking: Conversation) -> Match:
        if asked.question is not None:
            places = self._by_id(asked, shelves, asking)
            how, owners = "id", {place: shelves[place.shelf] for place in places}
        else:
            owners, how = self._by_request(shelves, asking), "request"
            if not owners and not self.strict:
                owners, how = {place: shelves[place.shelf] for place in _by_text(shelves, asking)}, "question"
        if not owners:
            with self._lock:  # what it compares with is read once more
                raise self._miss(asked, shelves, asking)
        if len(owners) > 1:
            raise _several(list(owners))
        [(place, llms)] = owners.items()
        llm = _variant(asked, place, llms)
        ignored = _ignored(asked, llm.info, asking)
        if self.strict and (other := [name for name in ignored if name != "seed"]):  # a pool has CoTs of many seeds
            raise _strict_miss(asked, llm, place, other)
        return Match(llm, place.row, how, ignored)

    def _by_id(self, asked: Asked, shelves: Mapping[_Shelf, list[LLM]], asking: Conversation) -> list[_Place]:
        name = str(asked.question)
        places = [_Place(shelf, shelf.rows[name]) for shelf in shelves if name in shelf.rows]
        if not places:
            counts = ", ".join(f"{s.dataset.id} ({len(s.ids):,} questions, such as {s.ids[0]!r})" for s in shelves)
            raise MissError(
                f"There is no question with the id {name[:_SHOWN]!r} for {asked.model[:_SHOWN]!r}. It was recorded on {counts}.",
                parameter="feval.question",
            )
        read = list(self._by_request(shelves, asking)) or _by_text(shelves, asking)
        if read and not set(read) & set(places):
            raise RequestError(
                f"The request names the question {places[0]}, but its messages hold the text of {read[0]}. "
                "Correct the id, or leave it out.",
                parameter="feval.question",
                code="contradiction",
            )
        if len(places) > 1 and len(set(read) & set(places)) == 1:
            return [place for place in places if place in read]
        return places

    def _by_request(self, shelves: Mapping[_Shelf, list[LLM]], asking: Conversation) -> dict[_Place, list[LLM]]:
        """The questions whose recorded prompt is the conversation, each with the LLMs that were asked so."""
        if not asking.text_only:
            return {}
        digest = _digest(asking)
        found: defaultdict[_Place, list[LLM]] = defaultdict(list)
        for shelf, llms in shelves.items():
            for llm in llms:
                for row in shelf.prompts(llm).get(digest, ()):
                    found[_Place(shelf, row)].append(llm)
        return dict(found)

    def _unknown_model(self, model: str) -> MissError:
        from difflib import get_close_matches

        names = self.model_names()
        near = get_close_matches(model[:200], names, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        return MissError(
            f"No LLM {model[:_SHOWN]!r} was recorded.{hint} The recordings hold {self._holdings()}.",
            parameter="model",
            code="model_not_found",
        )

    def _holdings(self) -> str:
        return "; ".join(
            f"{_some([llm.name for llm in shelf.llms])} on {shelf.dataset.id} ({len(shelf.ids):,} questions)"
            for shelf in self._shelves[:_NAMED]
        ) + ("" if len(self._shelves) <= _NAMED else f"; and {len(self._shelves) - _NAMED} more datasets")

    def _miss(self, asked: Asked, shelves: Mapping[_Shelf, list[LLM]], asking: Conversation) -> MissError:
        held = ", ".join(f"{len(shelf.ids):,} of {shelf.dataset.id}" for shelf in shelves)
        what = f"The request asks {asked.model[:_SHOWN]!r} none of the recorded questions ({held})."
        return MissError(f"{what} {' '.join(self._why(shelves, asking))}", parameter="messages")

    def _why(self, shelves: Mapping[_Shelf, list[LLM]], asking: Conversation) -> Iterable[str]:
        text = asking.last_user_text
        if not text.strip():
            yield "It has no user message with text."
            return
        if not any(shelf.prompts(llm) for shelf, llms in shelves.items() for llm in llms):
            yield "The recordings do not hold the prompts that were sent, so none can be compared."
        elif self.strict:
            places = _by_text(shelves, asking)
            if places:
                yield f"Its last user message holds the text of the question {places[0]}, but the messages are not those recorded"
                yield f"({_difference(places[0], shelves, asking)}), and a strict server answers recorded requests only."
            else:
                yield "A strict server answers recorded requests only, and these messages are none."
        if len(text) > _MOST_SEARCHED:
            yield f"Its last user message has {len(text):,} characters; only up to {_MOST_SEARCHED:,} are searched for questions."
        elif not self.strict:
            yield "Its messages are no recorded prompt, and its last user message holds the text of no recorded question."
        nearest = _nearest(shelves, text)
        if nearest is not None:
            place, share = nearest
            begins = place.shelf.texts[place.row].strip()[:_SHOWN]
            yield f"The nearest is {place}, which begins {begins!r} ({share:.0%} of its words are in the message)."
        yield f"If the prompt words the question in its own way, {_HOW_TO_NAME}."


class _Shelf:
    """One dataset of a library with its LLMs; what matching needs is read when it is first needed."""

    def __init__(self, dataset: Dataset, llms: list[LLM], lock: RLock) -> None:
        self.dataset, self.llms, self._lock = dataset, llms, lock
        self._prompts: dict[str, dict[bytes, tuple[int, ...]]] = {}
        self._read: dict[str, Any] = {}

    @cached_property
    def ids(self) -> list[str]:
        return list(self.dataset.question_ids)

    @cached_property
    def rows(self) -> dict[str, int]:
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
        return self._entries[0]

    @property
    def choices(self) -> list[tuple[str, ...]]:
        return self._entries[1]

    @property
    def index(self) -> TextIndex:
        return self._entries[2]

    @property
    def words(self) -> list[frozenset[str]]:
        """The words of each question, to say which is near; of the first ones only where there are very many."""
        if "words" not in self._read:
            self._read["words"] = [frozenset(text.lower().split()) for text in self.texts[:_MOST_COMPARED]]
        found: list[frozenset[str]] = self._read["words"]
        return found

    def prompts(self, llm: LLM) -> dict[bytes, tuple[int, ...]]:
        """Digests of the conversations that were recorded -> rows of the questions."""
        if llm.name not in self._prompts:
            with self._lock:
                if llm.name not in self._prompts:
                    self._prompts[llm.name] = _digests(llm.prompts())
        return self._prompts[llm.name]


def _digests(prompts: Iterable[str | None]) -> dict[bytes, tuple[int, ...]]:
    found: dict[bytes, tuple[int, ...]] = {}
    for row, prompt in enumerate(prompts):
        recorded = None if prompt is None else _recorded(prompt)
        if recorded is not None and recorded.text_only:
            digest = _digest(recorded)
            found[digest] = (*found.get(digest, ()), row)
    return found


def _recorded(prompt: str) -> Conversation | None:
    """A prompt of a recording as it is compared; `None` where it is no list of messages."""
    try:
        messages = orjson.loads(prompt)
        return conversation(messages) if isinstance(messages, list) else None
    except (orjson.JSONDecodeError, RequestError):
        return None


def _digest(asking: Conversation) -> bytes:
    return blake2b(orjson.dumps(asking.messages), digest_size=16).digest()


def _by_text(shelves: Mapping[_Shelf, list[LLM]], asking: Conversation) -> list[_Place]:
    """The questions that stand verbatim in the last user message and in no longer one there."""
    text = asking.last_user_text
    if not text or len(text) > _MOST_SEARCHED:
        return []
    hits = [(hit.start, hit.stop, shelf, hit.numbers) for shelf in shelves for hit in shelf.index.outermost(text)]
    found: dict[_Place, None] = {}
    outer = (0, 0)
    for start, stop, shelf, numbers in sorted(hits, key=lambda hit: (hit[0], -hit[1])):
        if stop > outer[1] or (start, stop) == outer:  # else it lies in a longer one, of another dataset
            outer = (start, stop)
            own = numbers if len(numbers) == 1 else _with_choices(shelf, numbers, text)
            found |= dict.fromkeys(_Place(shelf, number) for number in own)
    return list(found)


def _with_choices(shelf: _Shelf, numbers: Sequence[int], text: str) -> Sequence[int]:
    """Of questions with one text, those whose options stand in the message, too."""
    text = normal(text)
    shown = [
        number
        for number in numbers
        if shelf.choices[number] and all(normal(choice).strip() in text for choice in shelf.choices[number])
    ]
    return shown or numbers


def _several(places: Sequence[_Place]) -> AmbiguousError:
    named = ", ".join(map(str, places[:_NAMED]))
    more = f" and {len(places) - _NAMED} more" if len(places) > _NAMED else ""
    if len({place.shelf for place in places}) > 1:
        advice = f"Serve one dataset (--dataset), or {_HOW_TO_NAME_DATASET}."
    else:
        advice = f"Ask one question at a time, or {_HOW_TO_NAME}."
    return AmbiguousError(
        f"The request may mean {len(places)} recorded questions: {named}{more}. {advice}", parameter="messages"
    )


def _variant(asked: Asked, place: _Place, llms: Sequence[LLM]) -> LLM:
    """The one LLM that is meant; where variants are left, the one whose decoding is what the request says."""
    if len(llms) == 1:
        return llms[0]
    said = [name for name in (*_LIMITS, "temperature", "top_p", "stop") if name in asked.settings]
    agree = [llm for llm in llms if not any(_differs(asked.settings, name, llm.info) for name in said)]
    if said and len(agree) == 1:
        return agree[0]
    names = ", ".join(f"{llm.name} ({_decoding(llm.info)})" for llm in llms[:_NAMED])
    more = f" and {len(llms) - _NAMED} more" if len(llms) > _NAMED else ""
    raise AmbiguousError(
        f"{asked.model[:_SHOWN]!r} was recorded in {len(llms)} variants on {place.shelf.dataset.id}: {names}{more}. "
        "Give the full name of one as the model.",
        parameter="model",
    )


def _strict_miss(asked: Asked, llm: LLM, place: _Place, ignored: Sequence[str]) -> MissError:
    parts = [
        f"{name} {_brief(asked.settings.get(name))} (recorded: {_brief(_held(llm.info, name))})" for name in ignored
    ]
    return MissError(
        f"The question {place} was recorded with {llm.name}, but not so: the request says {', '.join(parts)}. "
        "Send what was recorded, or start the server without --strict.",
        parameter=ignored[0],
    )


def _difference(place: _Place, shelves: Mapping[_Shelf, list[LLM]], asking: Conversation) -> str:
    """In which message a request leaves the recorded one."""
    for llm in shelves[place.shelf]:
        prompt = llm.prompts()[place.row]
        recorded = None if prompt is None else _recorded(prompt)
        if recorded is None:
            continue
        if len(recorded.messages) != len(asking.messages):
            return f"{len(asking.messages)} messages were sent, {len(recorded.messages)} recorded"
        for number, (mine, theirs) in enumerate(zip(asking.messages, recorded.messages, strict=True)):
            if mine != theirs:
                return f"messages[{number}] differs; recorded: {theirs[0]}, {theirs[1][:_SHOWN]!r}"
        return "they hold more than text"
    return "no prompt was recorded for it"


def _nearest(shelves: Mapping[_Shelf, list[LLM]], text: str) -> tuple[_Place, float] | None:
    """The question with the largest share of words in a message; `None` where none has a third of them."""
    said = set(text[:_MOST_SEARCHED].lower().split())
    best, share = None, 1 / 3
    for shelf in shelves:
        for row, words in enumerate(shelf.words):
            own = len(words & said) / max(len(words), 1)
            if own > share:
                best, share = _Place(shelf, row), own
    return None if best is None else (best, share)


def _ignored(asked: Asked, info: LLMInfo, asking: Conversation) -> tuple[str, ...]:
    """Fields of a request that cannot shape the reply: it was recorded under other ones."""
    fields = [name for name in asked.settings if _differs(asked.settings, name, info)]
    if asking.messages and not asking.text_only and asked.kind == "chat":
        fields.append("messages")
    return tuple(fields)


def _differs(settings: Mapping[str, Any], name: str, info: LLMInfo) -> bool:
    given, held = _canonical(name, settings[name]), _canonical(name, _held(info, name))
    if held is None and name in _NEUTRAL:
        held = _canonical(name, _NEUTRAL[name])
    return bool(given != held)


def _canonical(name: str, value: Any) -> Any:
    if name == "stop" and isinstance(value, str):
        return [value]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) if abs(value) < 2**53 else value
    return list(value) if isinstance(value, tuple) else value


def _held(info: LLMInfo, name: str) -> Any:
    """The recorded value of a field of requests; `None` where none was sent or the recording does not say."""
    if name == "temperature":
        return info.temperature
    if name in _LIMITS:
        return info.max_tokens
    extra = info.decoding.get("extra_body")
    return info.decoding.get(name, extra.get(name) if isinstance(extra, Mapping) else None)


def _decoding(info: LLMInfo) -> str:
    temperature = "temperature not known" if info.temperature is None else f"temperature {info.temperature:g}"
    return temperature if info.max_tokens is None else f"{temperature}, max_tokens {info.max_tokens}"


def _brief(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:g}"
    return repr(value)[:_SHOWN] if isinstance(value, str | int | bool) else type(value).__name__


def _is_exactly(llm: LLM, model: str) -> bool:
    return llm.name == model


def _is_variant(llm: LLM, model: str) -> bool:
    return llm.name.split("@", 1)[0] == model


def _was_sent_as(llm: LLM, model: str) -> bool:
    return bool(llm.info.decoding.get("model") == model)


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_NAMED])
    return shown if len(names) <= _NAMED else f"{shown} and {len(names) - _NAMED} more"


def _listed(names: str | Sequence[str] | None) -> list[str] | None:
    return None if names is None else [str(names)] if isinstance(names, str) else [str(name) for name in names]


def _chosen(
    recordings: Sequence[Recording], datasets: Sequence[str] | None, llms: Sequence[str] | None
) -> dict[str, list[str]]:
    """Dataset -> names of the LLMs to serve on it."""
    held: defaultdict[str, list[str]] = defaultdict(list)
    for recording in recordings:
        for dataset, llm in recording.manifest.pairs:
            if llm not in held[dataset]:
                held[dataset].append(llm)
    everyone = list(dict.fromkeys(llm for names in held.values() for llm in names))
    for noun, wanted, there in (("dataset", datasets, list(held)), ("LLM", llms, everyone)):
        for name in wanted or ():
            if name not in there:
                raise NotRecordedError(
                    f"The {noun} {name!r} was to be served, but the recordings hold none of that name. They hold {_some(there)}."
                )
    chosen = {
        dataset: [name for name in names if llms is None or name in llms]
        for dataset, names in held.items()
        if datasets is None or dataset in datasets
    }
    chosen = {dataset: names for dataset, names in chosen.items() if names}
    if not chosen:
        what = f"{_some(list(llms or everyone))} on {_some(list(datasets or held))}" if everyone else "any LLM"
        raise NotRecordedError(f"Nothing is left to serve: the recordings hold no CoTs of {what}.")
    return chosen
