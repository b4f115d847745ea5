"""Which recorded question of which recorded LLM a request asks.

First the LLM's name, then the question: by its id if the client gives one; else by the whole
conversation, if exactly that was recorded; else by the text of a recorded question that stands
verbatim in the last user message. If variants of a model are left, the sampling parameters tell
them apart. A request that matches nothing is a miss, one that matches several things an error:
feval never guesses.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from feval.errors import UnknownNameError
from feval.replay import LLM
from feval.serving.matching import misses, settings
from feval.serving.matching.library import Library
from feval.serving.matching.mentions import (
    Mention,
    Place,
    exemplars_end,
    mentioned_places,
    mentions,
)
from feval.serving.matching.settings import Bounds, IgnoredSetting
from feval.serving.matching.shelves import Shelf, conversation_digest, system_text
from feval.serving.matching.templates import PromptUse, Template, template_of
from feval.serving.wire.errors import AmbiguousError, MissError, RequestError, UnknownError
from feval.serving.wire.requests import FEW_SHOT, CompletionRequest, Conversation

_SHOWN = 60
_NAMED = 5

_Candidates = Mapping[Shelf, list[LLM]]


@dataclass(frozen=True, slots=True)
class Match:
    """A recorded question (by its row) of a recorded LLM, and how a conversation asks it.

    Attributes:
        how: what it was found by: "request", "question", "few-shot" or "id".
        ignored: fields of the request without effect, because other values were recorded.
        template: the words around the question; `None` if no message has its text.
        bounds: what ends CoTs elsewhere than it was recorded; `None` if nothing does.
        first: where the question begins in the last user message, if exemplars stand before it;
            else 0.
    """

    llm: LLM
    row: int
    how: str
    ignored: tuple[str, ...]
    warnings: tuple[IgnoredSetting, ...]
    conversation: Conversation
    shelf: Shelf
    template: Template | None
    bounds: Bounds | None = None
    first: int = 0

    @property
    def question(self) -> str:
        """Id of the question."""
        return self.llm.question_ids[self.row]

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the question's prompt; -1 if they were not recorded."""
        return int(self.llm.pool.prompt_tokens[self.row])

    def use(self, mismatch: str | None = None) -> PromptUse:
        """Return how the question is put, for the run's ledger; see `PromptUse`."""
        return PromptUse(
            self.llm.dataset,
            None if self.template is None else self.template.digest,
            self.how,
            mismatch,
        )


class Matcher:
    """Finds the recorded questions that requests ask; for `strict` and `few_shot` see
    `Application.open`.
    """

    def __init__(self, library: Library, *, strict: bool = False, few_shot: str = "none") -> None:
        if few_shot not in FEW_SHOT:
            raise UnknownNameError.of("value of few_shot", few_shot, FEW_SHOT)
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
        for fits in (_is_name, _is_base_name, _is_sent_name):
            fitting = {
                shelf: [llm for llm in shelf.llms if fits(llm, model)] for shelf in library.shelves
            }
            fitting = {shelf: llms for shelf, llms in fitting.items() if llms}
            if fitting:
                break
        else:
            near = get_close_matches(model[:200], library.model_names(), n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise UnknownError(
                f"No LLM {model[:_SHOWN]!r} was recorded.{hint} The recordings hold"
                f" {library.contents()}.",
                parameter="model",
            )
        candidates = {
            shelf: llms for shelf, llms in fitting.items() if dataset in (None, shelf.dataset.id)
        }
        if not candidates:
            others = ", ".join(shelf.dataset.id for shelf in fitting)
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
            how, owners = "id", {place: candidates[place.shelf] for place in places}
        else:
            owners, how = self._by_request(candidates, conversation), "request"
            if not owners and not self._strict:
                mentioned = mentions(candidates, conversation)
                is_last = (request.few_shot or self._few_shot) == "last" and exemplars_end(
                    mentioned
                ) > 0
                searched, how = (mentioned[-1:], "few-shot") if is_last else (mentioned, "question")
                owners = {
                    place: candidates[place.shelf]
                    for mention in searched
                    for place in mention.places
                }
        if not owners:
            with self._library.lock:  # the message compares with prompts, which are read for it
                raise misses.miss(request.model, candidates, conversation, strict=self._strict)
        if len(owners) > 1:
            has_exemplars = how == "question" and exemplars_end(mentioned) > 0
            raise misses.several_questions(list(owners), has_exemplars=has_exemplars)
        [(place, llms)] = owners.items()
        llm = _variant(request, place, llms, has_one_prompt=how == "request")
        ignored = settings.ignored(request, llm.info, conversation)
        # a pool has CoTs of many seeds
        if self._strict and (other := [name for name in ignored if name != "seed"]):
            raise misses.strict_miss(request, llm, place, other)
        first = 0
        if how in {"few-shot", "id"}:
            mentioned = mentioned or mentions(candidates, conversation)
            first = exemplars_end(mentioned) if mentioned and place in mentioned[-1].places else 0
        return _match(request, llm, place, how, ignored, conversation, first)

    def _by_id(
        self, request: CompletionRequest, candidates: _Candidates, conversation: Conversation
    ) -> list[Place]:
        name = str(request.question)
        places = [Place(shelf, shelf.rows[name]) for shelf in candidates if name in shelf.rows]
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
        for shelf, llms in candidates.items():
            for llm in llms:
                for row in shelf.prompts(llm).get(digest, ()):
                    owners[Place(shelf, row)].append(llm)
        return dict(owners)


def _match(
    request: CompletionRequest,
    llm: LLM,
    place: Place,
    how: str,
    ignored: tuple[str, ...],
    conversation: Conversation,
    first: int,
) -> Match:
    shelf, row = place.shelf, place.row
    system, recorded = system_text(conversation), shelf.system_text(llm, row)
    return Match(
        llm,
        row,
        how,
        ignored,
        warnings=tuple(settings.warnings(request, llm.name, llm.info, ignored, system, recorded)),
        conversation=conversation,
        shelf=shelf,
        template=template_of(conversation, shelf.texts[row], shelf.choices[row], first=first),
        bounds=settings.bounds(request.settings, llm.info),
        first=first,
    )


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
    shown = ", ".join(f"{llm.name} ({settings.decoding(llm.info)})" for llm in llms[:_NAMED])
    more = f" and {len(llms) - _NAMED} more" if len(llms) > _NAMED else ""
    sentences = [
        (
            f"{request.model[:_SHOWN]!r} was recorded in {len(llms)} variants on"
            f" {place.shelf.dataset.id}: {shown}{more}."
        )
    ]
    if not agree:
        differ = [
            (llm, settings.differences(asked, llm.info, stated, cuts=True)) for llm in llms[:_NAMED]
        ]
        sides = "; ".join(
            f"{llm.name}: {settings.both_sides(asked, fields, llm.info)}" for llm, fields in differ
        )
        sentences.append(f"None fits the request, which has other settings: {sides}.")
    raise AmbiguousError(
        f"{' '.join(sentences)} Give the full name of one as the model.", parameter="model"
    )


def _is_name(llm: LLM, model: str) -> bool:
    return llm.name == model


def _is_base_name(llm: LLM, model: str) -> bool:
    return llm.name.split("@", 1)[0] == model


def _is_sent_name(llm: LLM, model: str) -> bool:
    return bool(llm.info.decoding.get("model") == model)
