"""Which recorded question of which recorded LLM a request asks.

First the LLM's name, then the question: by its id if the client gives one; else by the whole
conversation, if exactly that was recorded; else by the text of a recorded question that stands
verbatim in the last user message. If variants of a model are left, the sampling parameters tell
them apart. A request that matches nothing is a miss, one that matches several things an error:
feval never guesses.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from typing import NamedTuple

from feval.cards.reading import some
from feval.errors import require_known
from feval.replay import LLM
from feval.serving import settings
from feval.serving.library import Library, ServedDataset, conversation_digest, system_text
from feval.serving.prompts import PromptUse, excerpts, normal, template_digest, template_of
from feval.serving.settings import Bounds, IgnoredSetting
from feval.serving.wire.calls import AmbiguousError, MissError, RequestError, UnknownError
from feval.serving.wire.openai import FEW_SHOT, CompletionRequest, Conversation
from feval.values import frozen

_SHOWN = 60
_NAMED = 5

_Candidates = Mapping[ServedDataset, list[LLM]]


@frozen
class PoolRequest:
    """A request for the next n CoTs of a pool (of an LLM and a question, by its row), or for one
    recorded `sample`.

    Attributes:
        use: how the question is put.
        template: the words around it; `None` if no message has its text.
    """

    llm: LLM
    row: int
    n: int
    sample: int | None
    use: PromptUse
    template: str | None = None

    @property
    def key(self) -> tuple[LLM, int]:
        """The pool."""
        return self.llm, self.row

    @property
    def question(self) -> str:
        """Id of the question."""
        return self.llm.question_ids[self.row]

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the question's prompt; -1 if they were not recorded."""
        return int(self.llm.pool.prompt_tokens[self.row])

    def samples(self, draw: Sequence[int], place: int) -> tuple[int, ...]:
        """Return the recorded positions of the CoTs, from a place in a whole draw."""
        if self.sample is not None:
            return (self.sample,)
        size, end = len(draw), place + self.n
        return tuple(
            draw[place:end]
            if end <= size
            else [draw[number % size] for number in range(place, end)]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Match(PoolRequest):
    """A recorded question of a recorded LLM, and how a conversation asks it; `use.match` says what
    it was found by: "request", "question", "few-shot" or "id".

    Attributes:
        ignored: fields of the request without effect, because other values were recorded.
        bounds: what ends CoTs elsewhere than it was recorded; `None` if nothing does.
        first: where the question begins in the last user message, if exemplars stand before it;
            else 0.
    """

    ignored: tuple[str, ...]
    warnings: tuple[IgnoredSetting, ...]
    conversation: Conversation
    served: ServedDataset
    bounds: Bounds | None
    first: int

    @property
    def is_recorded(self) -> bool:
        """Whether the conversation is a recorded prompt."""
        return self.use.match == "request"


class Matcher:
    """Finds the recorded questions that requests ask; for `strict` and `few_shot` see
    `Application.open`.
    """

    def __init__(self, library: Library, *, strict: bool = False, few_shot: str = "none") -> None:
        require_known("value of few_shot", few_shot, FEW_SHOT)
        self._library, self._strict, self._few_shot = library, strict, few_shot

    def match(self, request: CompletionRequest) -> tuple[Match, ...]:
        """Find what each conversation of a request asks.

        Raises:
            UnknownError: no such LLM.
            MissError: nothing that was recorded; the message says what differs.
            AmbiguousError: several things.
            RequestError: the id of one question came with the text of another.
        """
        candidates = self._candidates(request)
        return tuple(
            self._matched(request, candidates, conversation)
            for conversation in request.conversations
        )

    def _candidates(self, request: CompletionRequest) -> _Candidates:
        """The datasets and LLMs that the names in a request leave."""
        library, model, dataset = self._library, request.model, request.dataset
        if dataset is not None and dataset not in library.datasets:
            raise MissError(
                f"There is no dataset {dataset[:_SHOWN]!r} here. The recordings hold"
                f" {library.contents()}.",
                parameter="feval.dataset",
            )
        fitting: dict[ServedDataset, list[LLM]] = {}
        for each in library.served:
            named = ([llm for llm in each.llms if fits(llm, model)] for fits in _FITS)
            if llms := next(filter(None, named), None):
                fitting[each] = llms
        if not fitting:
            near = get_close_matches(model[:200], library.model_names(), n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise UnknownError(
                f"No LLM {model[:_SHOWN]!r} was recorded.{hint} The recordings hold"
                f" {library.contents()}.",
                parameter="model",
            )
        candidates = {
            served: llms for served, llms in fitting.items() if dataset in (None, served.dataset.id)
        }
        if not candidates:
            others = ", ".join(served.dataset.id for served in fitting)
            raise UnknownError(
                f"{model[:_SHOWN]!r} was not recorded on {dataset}, but on {others}.",
                parameter="model",
            )
        return candidates

    def _matched(
        self, request: CompletionRequest, candidates: _Candidates, conversation: Conversation
    ) -> Match:
        mentioned: list[Mention] = []
        if request.question is not None:
            places = self._by_id(request, candidates, conversation)
            how, owners = "id", {place: candidates[place.served] for place in places}
        else:
            owners, how = self._by_request(candidates, conversation), "request"
            if not owners and not self._strict:
                mentioned = mentions(candidates, conversation)
                searched, how = mentioned, "question"
                if (request.few_shot or self._few_shot) == "last" and exemplars_end(mentioned):
                    searched, how = mentioned[-1:], "few-shot"
                owners = {
                    place: candidates[place.served]
                    for mention in searched
                    for place in mention.places
                }
        if not owners:
            counts = ", ".join(f"{len(each.ids):,} of {each.dataset.id}" for each in candidates)
            with self._library.lock:  # the message compares with prompts, which are read for it
                said = _reasons(candidates, conversation, strict=self._strict)
                reasons = " ".join(filter(None, said))
            raise MissError(
                f"The request asks {request.model[:_SHOWN]!r} none of the recorded questions"
                f" ({counts}). {reasons}",
                parameter="messages",
            )
        if len(owners) > 1:
            advice = f"Ask one question at a time, or {_HOW_TO_NAME}."
            if len({place.served for place in owners}) > 1:
                advice = f"Serve one dataset (--dataset), or {_HOW_TO_NAME_DATASET}."
            if how == "question" and exemplars_end(mentioned):
                advice += (
                    f" If all but the last are exemplars of a few-shot prompt, {_HOW_TO_TAKE_LAST}."
                )
            raise AmbiguousError(
                f"The request may mean {len(owners)} recorded questions:"
                f" {some(map(str, owners))}. {advice}",
                parameter="messages",
            )
        [(place, llms)] = owners.items()
        llm = _variant(request, place, llms, has_one_prompt=how == "request")
        served, row, info = place.served, place.row, llm.info
        ignored = settings.ignored(request, info, conversation)
        # a pool has CoTs of many seeds
        if self._strict and (other := [name for name in ignored if name != "seed"]):
            asked = settings.both_sides(request.settings, other, info)
            raise MissError(
                f"The question {place} was recorded with {llm.name}, but with other settings: the"
                f" request has {asked}. Send what was recorded, or start the server without"
                " --strict.",
                parameter=other[0],
            )
        first = 0
        if how in {"few-shot", "id"}:
            mentioned = mentioned or mentions(candidates, conversation)
            first = exemplars_end(mentioned) if mentioned and place in mentioned[-1].places else 0
        systems = system_text(conversation), served.system_text(llm, row)
        template = template_of(conversation, served.texts[row], served.choices[row], first=first)
        digest = None if template is None else template_digest(template)
        return Match(
            llm,
            row,
            request.n,
            request.sample,
            PromptUse(llm.dataset, digest, how),
            template,
            ignored=ignored,
            warnings=tuple(settings.warnings(request, llm.name, info, ignored, *systems)),
            conversation=conversation,
            served=served,
            bounds=settings.bounds(request.settings, info),
            first=first,
        )

    def _by_id(
        self, request: CompletionRequest, candidates: _Candidates, conversation: Conversation
    ) -> list[Place]:
        name = str(request.question)
        places = [Place(served, served.rows[name]) for served in candidates if name in served.rows]
        if not places:
            counts = ", ".join(
                f"{s.dataset.id} ({len(s.ids):,} questions, such as {s.ids[0]!r})"
                for s in candidates
            )
            raise MissError(
                f"There is no question with the id {name[:_SHOWN]!r} for"
                f" {request.model[:_SHOWN]!r}, which was recorded on {counts}.",
                parameter="feval.question",
            )
        by_text = list(self._by_request(candidates, conversation)) or mentioned_places(
            candidates, conversation
        )
        both = [place for place in places if place in by_text]
        if by_text and not both:
            raise RequestError(
                f"The request names the question {places[0]}, but its messages hold the text of"
                f" {by_text[0]}. Correct the id, or leave it out.",
                parameter="feval.question",
                code="contradiction",
            )
        return both if len(both) == 1 else places

    @staticmethod
    def _by_request(candidates: _Candidates, conversation: Conversation) -> dict[Place, list[LLM]]:
        """The questions whose recorded prompt is the conversation, each with the LLMs that were
        sent it.
        """
        if not conversation.text_only:
            return {}
        digest = conversation_digest(conversation)
        owners: defaultdict[Place, list[LLM]] = defaultdict(list)
        for served, llms in candidates.items():
            for llm in llms:
                for row in served.prompts(llm).get(digest, ()):
                    owners[Place(served, row)].append(llm)
        return dict(owners)


def _variant(
    request: CompletionRequest, place: Place, llms: Sequence[LLM], *, has_one_prompt: bool
) -> LLM:
    """The LLM that is meant: of several variants, the one with the decoding of the request, or
    whose CoTs can be cut to it.

    Decodings are compared in all fields first, then in those that the request has. Of several
    variants that can be cut, and that were sent one prompt, any would do; it is the one that needs
    to be cut least.
    """
    if len(llms) == 1:
        return llms[0]
    asked = request.settings
    telling = settings.telling(asked, [llm.info for llm in llms])
    stated = [name for name in telling if name in asked]
    for names, cuts in ((telling, False), (telling, True), (stated, False), (stated, True)):
        agree = [llm for llm in llms if not settings.differences(asked, llm.info, names, cuts=cuts)]
        if cuts and has_one_prompt and agree:
            least = min(settings.excess(asked, llm.info) for llm in agree)
            agree = [llm for llm in agree if settings.excess(asked, llm.info) == least]
        if len(agree) == 1 and asked.keys() - {"seed"}:
            return agree[0]
        if agree:
            break
    why = ""
    if not agree:
        sides = []
        for llm in llms[:_NAMED]:
            fields = settings.differences(asked, llm.info, stated, cuts=True)
            sides.append(f"{llm.name}: {settings.both_sides(asked, fields, llm.info)}")
        why = f" None fits the request, which has other settings: {'; '.join(sides)}."
    shown = some(f"{llm.name} ({settings.decoding(llm.info)})" for llm in llms)
    raise AmbiguousError(
        f"{request.model[:_SHOWN]!r} was recorded in {len(llms)} variants on"
        f" {place.served.dataset.id}: {shown}.{why} Give the full name of one as the model.",
        parameter="model",
    )


_FITS: Sequence[Callable[[LLM, str], bool]] = (
    lambda llm, model: llm.name == model,
    lambda llm, model: llm.name.split("@", 1)[0] == model,
    lambda llm, model: bool(llm.info.decoding.get("model") == model),  # as it was sent
)
_HOW_TO_NAME_DATASET = (
    'name it: extra_body={"feval": {"dataset": ID}}, or the header X-Feval-Dataset'
)
_HOW_TO_TAKE_LAST = (
    "start the server with --few-shot last (in Python: few_shot='last'), or send"
    ' extra_body={"feval": {"few_shot": "last"}} or the header X-Feval-Few-Shot: last'
)
_HOW_TO_NAME = (
    'name the question: extra_body={"feval": {"question": ID}}, or the header X-Feval-Question'
)


def _reasons(candidates: _Candidates, conversation: Conversation, *, strict: bool) -> Iterator[str]:
    text = conversation.last_user_text
    if not text.strip():
        yield "It has no user message with text."
        return
    if not any(served.prompts(llm) for served, llms in candidates.items() for llm in llms):
        yield "The recordings do not hold the prompts that were sent, so none can be compared."
    elif strict:
        places = mentioned_places(candidates, conversation)
        if places:
            yield (
                f"Its last user message holds the text of the question {places[0]}, but the"
                " messages are not those recorded"
                f" ({_difference(places[0], candidates, conversation)}), and a strict server"
                " answers recorded requests only."
            )
        else:
            yield (
                "A strict server answers recorded requests only, and these messages were not"
                " recorded."
            )
    if len(text) > MAX_SEARCHED:
        yield (
            f"Its last user message has {len(text):,} characters; only up to {MAX_SEARCHED:,} are"
            " searched for questions."
        )
    elif not strict:
        yield (
            "Its messages are not a recorded prompt, and its last user message holds the text of no"
            " recorded question."
        )
        yield difference(candidates, conversation)
        before = Conversation(conversation.messages[: conversation.last_user_place])
        if places := mentioned_places(candidates, before):
            yield (
                f"A message before it asks {places[0]}; what an LLM replies to a follow-up was not"
                " recorded: ask a live LLM."
            )
    words_sent = set(text[:MAX_SEARCHED].lower().split())
    place, largest = None, 1 / 3  # the share of a question's words that are in the message
    for served in candidates:
        for row, words in enumerate(served.words):
            share = len(words & words_sent) / max(len(words), 1)
            if share > largest:
                place, largest = Place(served, row), share
    if place is not None:
        begins = place.served.texts[place.row].strip()[:_SHOWN]
        yield (
            f"The nearest is {place}, which begins {begins!r} ({largest:.0%} of its words are in"
            " the message)."
        )
    yield f"If the prompt words the question differently, {_HOW_TO_NAME}."


def difference(candidates: _Candidates, conversation: Conversation) -> str:
    """Which message differs from the nearest recorded conversation: the one that begins with most
    of the same messages; empty where none begins with the first.
    """
    for number in range(len(conversation.messages) - 1, 0, -1):
        beginning = conversation.first(number)
        for served, llms in candidates.items():
            for llm in llms:
                row = served.beginning(llm, beginning)
                recorded = None if row is None else served.conversation(llm, row)
                if row is not None and recorded is not None:
                    both = conversation, recorded
                    shown = excerpts(*(each.messages[number][1] for each in both))
                    own, other = map(partial(_said, number), both, shown)
                    return (
                        f"The recorded conversation {Place(served, row)} begins with the same"
                        f" {number} messages; then messages[{number}] is {own}, and recorded was"
                        f" {other}."
                    )
    return ""


def _said(number: int, conversation: Conversation, text: str) -> str:
    tools = conversation.tools[number] if conversation.tools else ""
    return f"{conversation.messages[number][0]}: {text!r}" + f" {tools[:_SHOWN]}" * bool(tools)


def _difference(place: Place, candidates: _Candidates, conversation: Conversation) -> str:
    """Which message of a request differs from the recorded one."""
    for llm in candidates[place.served]:
        recorded = place.served.conversation(llm, place.row)
        if recorded is None:
            continue
        if len(recorded.messages) != len(conversation.messages):
            return (
                f"{len(conversation.messages)} messages were sent, {len(recorded.messages)}"
                " recorded"
            )
        for number, (sent, (role, text)) in enumerate(
            zip(conversation.messages, recorded.messages, strict=True)
        ):
            if sent != (role, text):
                return f"messages[{number}] differs; recorded: {role}, {text[:_SHOWN]!r}"
        return "they hold more than text"
    return "no prompt was recorded for it"


MAX_SEARCHED = 1 << 20
"""Characters of the longest message that is searched for questions."""

# characters before a question is repeated ("Read it again:"); an exemplar and its solution take
# more
_MAX_GAP = 100


class Place(NamedTuple):
    """A question of a dataset, whichever LLM is asked."""

    served: ServedDataset
    row: int

    def __str__(self) -> str:
        return f"{self.served.ids[self.row][:_SHOWN]!r} of {self.served.dataset.id}"


class Mention(NamedTuple):
    """Recorded questions whose text stands at one position of a message; several if they have the
    same text.
    """

    start: int
    stop: int
    places: tuple[Place, ...]


def mentions(datasets: Iterable[ServedDataset], conversation: Conversation) -> list[Mention]:
    """Return where recorded questions stand verbatim in the last user message, in order; none
    inside a longer one.
    """
    text = conversation.last_user_text
    if not text or len(text) > MAX_SEARCHED:
        return []
    hits = [
        (hit.start, hit.stop, served, hit.numbers)
        for served in datasets
        for hit in served.index.outermost(text)
    ]
    result: list[Mention] = []
    outer = (0, 0)
    for start, stop, served, numbers in sorted(hits, key=lambda hit: (hit[0], -hit[1])):
        # else it lies in a longer one, of another dataset
        if stop > outer[1] or (start, stop) == outer:
            rows = numbers if len(numbers) == 1 else _with_choices(served, numbers, text)
            others = result.pop().places if (start, stop) == outer else ()
            result.append(Mention(start, stop, (*others, *(Place(served, row) for row in rows))))
            outer = (start, stop)
    return result


def mentioned_places(datasets: Iterable[ServedDataset], conversation: Conversation) -> list[Place]:
    """Return the questions that stand verbatim in the last user message and in no longer one
    there.
    """
    return list(
        dict.fromkeys(
            place for mention in mentions(datasets, conversation) for place in mention.places
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


def _with_choices(served: ServedDataset, rows: Sequence[int], text: str) -> Sequence[int]:
    """Of questions with the same text, those whose options are in the message, too; all if there
    are none.
    """
    text = normal(text)
    shown = [
        row
        for row in rows
        if served.choices[row]
        and all(normal(choice).strip() in text for choice in served.choices[row])
    ]
    return shown or rows
