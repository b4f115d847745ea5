"""Which recorded question of which recorded LLM a request asks.

First the LLM's name, then the question: by its id where the client gives one; else by the whole conversation, where just that was
recorded; else by the text of a recorded question that stands verbatim in the last user message. Where variants of a model are
left, the sampling parameters tell them apart. What fits nothing is a miss, what fits several things is an error: never a guess.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING

from feval.errors import NotRecordedError, UnknownNameError
from feval.recording.reader import Recording
from feval.replay import LLM, Dataset, load, open_recordings
from feval.serving.errors import AmbiguousError, MissError, RequestError
from feval.serving.matching import settings
from feval.serving.matching.search import normal
from feval.serving.matching.settings import Unheeded
from feval.serving.matching.shelves import Shelf, conversation_digest, system_text
from feval.serving.matching.templates import Template, Use, template_of
from feval.serving.requests import FEW_SHOT, Asked, Conversation

if TYPE_CHECKING:
    from feval.cards.prices import PriceList

__all__ = ["Library", "Match"]

_MOST_SEARCHED = 1 << 20
_SHOWN = 60
_NAMED = 5
_WIDEST_REPEAT = (
    100  # characters before a question is repeated ("Read it again:"); an exemplar and its solution take more
)
_HOW_TO_NAME_DATASET = 'name it: extra_body={"feval": {"dataset": ID}}, or the header X-Feval-Dataset'
_HOW_TO_TAKE_LAST = (
    'start the server with --few-shot last (few_shot="last" in Python), or send extra_body={"feval": {"few_shot": "last"}} '
    "or the header X-Feval-Few-Shot: last"
)
_HOW_TO_NAME = 'name the question: extra_body={"feval": {"question": ID}}, or the header X-Feval-Question'


@dataclass(frozen=True, slots=True)
class Match:
    """A recorded question of a recorded LLM.

    Attributes:
        llm: which.
        row: of the question.
        how: "request", "question", "few-shot" or "id": what told.
        ignored: fields of the request that cannot have an effect: they are not what was recorded.
        unheeded: of these, and of the system prompt, what the run should be warned about.
        conversation: what was matched.
        shelf: the question's.
        template: the words around the question; `None` where its text stands in no message.
        first: where the question begins in the last user message, if exemplars stand before it; else 0.
    """

    llm: LLM
    row: int
    how: str
    ignored: tuple[str, ...]
    unheeded: tuple[Unheeded, ...]
    conversation: Conversation
    shelf: Shelf
    template: Template | None
    first: int = 0

    @property
    def question(self) -> str:
        """Id of the question."""
        return self.llm.question_ids[self.row]

    def use(self, mismatch: str | None = None) -> Use:
        """How the question is put, for the run's account; see `Use`."""
        return Use(self.llm.dataset, None if self.template is None else self.template.digest, self.how, mismatch)


@dataclass(frozen=True, slots=True)
class _Place:
    """A question, whichever LLM is asked it."""

    shelf: Shelf
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
        few_shot: "last": of several recorded questions in a message, the last one is asked and the others are exemplars; "none":
            they are ambiguous. A request can say otherwise.
        seed: as in `feval.load`.
        prices: as in `feval.load`.
        billing: as in `feval.load`.

    Attributes:
        recordings: open.
        llms: every LLM on every dataset.
        datasets: id -> dataset.
        strict: as given.
        few_shot: as given.

    Raises:
        UnknownNameError: no such value of `few_shot`.
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
        few_shot: str = "none",
        seed: int = 0,
        prices: str | Path | PriceList | None = None,
        billing: str = "once",
    ) -> None:
        if few_shot not in FEW_SHOT:
            raise UnknownNameError.of("value of few_shot", few_shot, FEW_SHOT)
        self.recordings = open_recordings(recording)
        self.strict, self.few_shot, self._lock = strict, few_shot, RLock()
        pairs = _chosen(self.recordings, _listed(datasets), _listed(llms))
        self._shelves = [
            Shelf(*load(dataset, names, self.recordings, seed=seed, prices=prices, billing=billing), self._lock)
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

    def _searched(self, asked: Asked) -> dict[Shelf, list[LLM]]:
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

    def _matched(self, asked: Asked, shelves: Mapping[Shelf, list[LLM]], asking: Conversation) -> Match:
        mentions: list[_Mention] = []
        if asked.question is not None:
            places = self._by_id(asked, shelves, asking)
            how, owners = "id", {place: shelves[place.shelf] for place in places}
        else:
            owners, how = self._by_request(shelves, asking), "request"
            if not owners and not self.strict:
                mentions = _mentions(shelves, asking)
                is_last = (asked.few_shot or self.few_shot) == "last" and _exemplars_end(mentions) > 0
                chosen, how = (mentions[-1:], "few-shot") if is_last else (mentions, "question")
                owners = {place: shelves[place.shelf] for mention in chosen for place in mention.places}
        if not owners:
            with self._lock:  # what it compares with is read once more
                raise self._miss(asked, shelves, asking)
        if len(owners) > 1:
            raise _several(list(owners), exemplars=how == "question" and _exemplars_end(mentions) > 0)
        [(place, llms)] = owners.items()
        llm = _variant(asked, place, llms)
        ignored = settings.ignored(asked, llm.info, asking)
        if self.strict and (other := [name for name in ignored if name != "seed"]):  # a pool has CoTs of many seeds
            raise _strict_miss(asked, llm, place, other)
        first = 0
        if how in {"few-shot", "id"}:
            mentions = mentions or _mentions(shelves, asking)
            first = _exemplars_end(mentions) if mentions and place in mentions[-1].places else 0
        return _match(asked, llm, place, how, ignored, asking, first)

    def _by_id(self, asked: Asked, shelves: Mapping[Shelf, list[LLM]], asking: Conversation) -> list[_Place]:
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

    def _by_request(self, shelves: Mapping[Shelf, list[LLM]], asking: Conversation) -> dict[_Place, list[LLM]]:
        """The questions whose recorded prompt is the conversation, each with the LLMs that were asked so."""
        if not asking.text_only:
            return {}
        digest = conversation_digest(asking)
        found: defaultdict[_Place, list[LLM]] = defaultdict(list)
        for shelf, llms in shelves.items():
            for llm in llms:
                for row in shelf.prompts(llm).get(digest, ()):
                    found[_Place(shelf, row)].append(llm)
        return dict(found)

    def _unknown_model(self, model: str) -> MissError:

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

    def _miss(self, asked: Asked, shelves: Mapping[Shelf, list[LLM]], asking: Conversation) -> MissError:
        held = ", ".join(f"{len(shelf.ids):,} of {shelf.dataset.id}" for shelf in shelves)
        what = f"The request asks {asked.model[:_SHOWN]!r} none of the recorded questions ({held})."
        return MissError(f"{what} {' '.join(self._why(shelves, asking))}", parameter="messages")

    def _why(self, shelves: Mapping[Shelf, list[LLM]], asking: Conversation) -> Iterable[str]:
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


def _match(
    asked: Asked, llm: LLM, place: _Place, how: str, ignored: tuple[str, ...], asking: Conversation, first: int
) -> Match:
    shelf, row = place.shelf, place.row
    system, recorded = system_text(asking), shelf.system_text(llm, row)
    return Match(
        llm,
        row,
        how,
        ignored,
        unheeded=tuple(settings.unheeded(asked, llm.name, llm.info, ignored, system, recorded)),
        conversation=asking,
        shelf=shelf,
        template=template_of(asking, shelf.texts[row], shelf.choices[row], first=first),
        first=first,
    )


@dataclass(frozen=True, slots=True)
class _Mention:
    """Recorded questions whose text stands at one place of a message; several where they have one text."""

    start: int
    stop: int
    places: tuple[_Place, ...]


def _mentions(shelves: Mapping[Shelf, list[LLM]], asking: Conversation) -> list[_Mention]:
    """Where recorded questions stand verbatim in the last user message, in order; in a longer one, none counts."""
    text = asking.last_user_text
    if not text or len(text) > _MOST_SEARCHED:
        return []
    hits = [(hit.start, hit.stop, shelf, hit.numbers) for shelf in shelves for hit in shelf.index.outermost(text)]
    mentions: list[_Mention] = []
    outer = (0, 0)
    for start, stop, shelf, numbers in sorted(hits, key=lambda hit: (hit[0], -hit[1])):
        if stop > outer[1] or (start, stop) == outer:  # else it lies in a longer one, of another dataset
            own = numbers if len(numbers) == 1 else _with_choices(shelf, numbers, text)
            others = mentions.pop().places if (start, stop) == outer else ()
            mentions.append(_Mention(start, stop, (*others, *(_Place(shelf, number) for number in own))))
            outer = (start, stop)
    return mentions


def _by_text(shelves: Mapping[Shelf, list[LLM]], asking: Conversation) -> list[_Place]:
    """The questions that stand verbatim in the last user message and in no longer one there."""
    return list(dict.fromkeys(place for mention in _mentions(shelves, asking) for place in mention.places))


def _exemplars_end(mentions: Sequence[_Mention]) -> int:
    """Where the last question begins, the first time where it is repeated at once; 0 where there is no other."""
    last, start = mentions[-1].places if mentions else (), 0
    if all(mention.places == last for mention in mentions):
        return 0
    for mention in reversed(mentions):
        if mention.places != last or (start and start - mention.stop > _WIDEST_REPEAT):
            break
        start = mention.start
    return start


def _with_choices(shelf: Shelf, numbers: Sequence[int], text: str) -> Sequence[int]:
    """Of questions with one text, those whose options stand in the message, too."""
    text = normal(text)
    shown = [
        number
        for number in numbers
        if shelf.choices[number] and all(normal(choice).strip() in text for choice in shelf.choices[number])
    ]
    return shown or numbers


def _several(places: Sequence[_Place], *, exemplars: bool) -> AmbiguousError:
    named = ", ".join(map(str, places[:_NAMED]))
    more = f" and {len(places) - _NAMED} more" if len(places) > _NAMED else ""
    if len({place.shelf for place in places}) > 1:
        advice = f"Serve one dataset (--dataset), or {_HOW_TO_NAME_DATASET}."
    else:
        advice = f"Ask one question at a time, or {_HOW_TO_NAME}."
    if exemplars:
        advice += f" If all but the last are exemplars of a few-shot prompt, {_HOW_TO_TAKE_LAST}."
    return AmbiguousError(
        f"The request may mean {len(places)} recorded questions: {named}{more}. {advice}", parameter="messages"
    )


def _variant(asked: Asked, place: _Place, llms: Sequence[LLM]) -> LLM:
    """The one LLM that is meant; where variants are left, the one whose decoding is what the request says."""
    if len(llms) == 1:
        return llms[0]
    said = [name for name in (*settings.LIMITS, "temperature", "top_p", "stop") if name in asked.settings]
    agree = [llm for llm in llms if not any(settings.differs(asked.settings, name, llm.info) for name in said)]
    if said and len(agree) == 1:
        return agree[0]
    names = ", ".join(f"{llm.name} ({settings.decoding(llm.info)})" for llm in llms[:_NAMED])
    more = f" and {len(llms) - _NAMED} more" if len(llms) > _NAMED else ""
    raise AmbiguousError(
        f"{asked.model[:_SHOWN]!r} was recorded in {len(llms)} variants on {place.shelf.dataset.id}: {names}{more}. "
        "Give the full name of one as the model.",
        parameter="model",
    )


def _strict_miss(asked: Asked, llm: LLM, place: _Place, ignored: Sequence[str]) -> MissError:
    parts = [
        f"{name} {settings.brief(asked.settings.get(name))} (recorded: {settings.brief(settings.recorded(llm.info, name))})"
        for name in ignored
    ]
    return MissError(
        f"The question {place} was recorded with {llm.name}, but not so: the request says {', '.join(parts)}. "
        "Send what was recorded, or start the server without --strict.",
        parameter=ignored[0],
    )


def _difference(place: _Place, shelves: Mapping[Shelf, list[LLM]], asking: Conversation) -> str:
    """In which message a request leaves the recorded one."""
    for llm in shelves[place.shelf]:
        recorded = place.shelf.conversation(llm, place.row)
        if recorded is None:
            continue
        if len(recorded.messages) != len(asking.messages):
            return f"{len(asking.messages)} messages were sent, {len(recorded.messages)} recorded"
        for number, (mine, theirs) in enumerate(zip(asking.messages, recorded.messages, strict=True)):
            if mine != theirs:
                return f"messages[{number}] differs; recorded: {theirs[0]}, {theirs[1][:_SHOWN]!r}"
        return "they hold more than text"
    return "no prompt was recorded for it"


def _nearest(shelves: Mapping[Shelf, list[LLM]], text: str) -> tuple[_Place, float] | None:
    """The question with the largest share of words in a message; `None` where none has a third of them."""
    said = set(text[:_MOST_SEARCHED].lower().split())
    best, share = None, 1 / 3
    for shelf in shelves:
        for row, words in enumerate(shelf.words):
            own = len(words & said) / max(len(words), 1)
            if own > share:
                best, share = _Place(shelf, row), own
    return None if best is None else (best, share)


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
