"""Errors of requests that match no recorded question, or several: what differs, and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from feval.replay import LLM
from feval.serving.matching import settings
from feval.serving.matching.mentions import MAX_SEARCHED, Place, mentioned_places
from feval.serving.matching.shelves import Shelf
from feval.serving.wire.errors import AmbiguousError, MissError
from feval.serving.wire.requests import CompletionRequest, Conversation

_SHOWN = 60
_NAMED = 5
_HOW_TO_NAME_DATASET = (
    'name it: extra_body={"feval": {"dataset": ID}}, or the header X-Feval-Dataset'
)
_HOW_TO_TAKE_LAST = (
    'start the server with --few-shot last (few_shot="last" in Python), or send'
    ' extra_body={"feval": {"few_shot": "last"}} or the header X-Feval-Few-Shot: last'
)
_HOW_TO_NAME = (
    'name the question: extra_body={"feval": {"question": ID}}, or the header X-Feval-Question'
)

_Candidates = Mapping[Shelf, list[LLM]]


def miss(
    model: str, candidates: _Candidates, conversation: Conversation, *, strict: bool
) -> MissError:
    """Return the error of a request to an LLM of that name that asks no recorded question of the
    datasets that were searched.
    """
    counts = ", ".join(f"{len(shelf.ids):,} of {shelf.dataset.id}" for shelf in candidates)
    what = f"The request asks {model[:_SHOWN]!r} none of the recorded questions ({counts})."
    return MissError(
        f"{what} {' '.join(_reasons(candidates, conversation, strict=strict))}",
        parameter="messages",
    )


def several_questions(places: Sequence[Place], *, has_exemplars: bool) -> AmbiguousError:
    """Return the error of a request that may ask several recorded questions, of which all but the
    last may be exemplars.
    """
    named = ", ".join(map(str, places[:_NAMED]))
    more = f" and {len(places) - _NAMED} more" if len(places) > _NAMED else ""
    if len({place.shelf for place in places}) > 1:
        advice = f"Serve one dataset (--dataset), or {_HOW_TO_NAME_DATASET}."
    else:
        advice = f"Ask one question at a time, or {_HOW_TO_NAME}."
    if has_exemplars:
        advice += f" If all but the last are exemplars of a few-shot prompt, {_HOW_TO_TAKE_LAST}."
    return AmbiguousError(
        f"The request may mean {len(places)} recorded questions: {named}{more}. {advice}",
        parameter="messages",
    )


def strict_miss(
    request: CompletionRequest, llm: LLM, place: Place, fields: Sequence[str]
) -> MissError:
    """Return the error of a request with other settings than the recorded ones, on a strict
    server.
    """
    asked = settings.both_sides(request.settings, fields, llm.info)
    return MissError(
        f"The question {place} was recorded with {llm.name}, but with other settings: the request"
        f" has {asked}. Send what was recorded, or start the server without --strict.",
        parameter=fields[0],
    )


def _reasons(candidates: _Candidates, conversation: Conversation, *, strict: bool) -> Iterator[str]:
    text = conversation.last_user_text
    if not text.strip():
        yield "It has no user message with text."
        return
    if not any(shelf.prompts(llm) for shelf, llms in candidates.items() for llm in llms):
        yield "The recordings do not hold the prompts that were sent, so none can be compared."
    elif strict:
        places = mentioned_places(candidates, conversation)
        if places:
            yield (
                f"Its last user message holds the text of the question {places[0]}, but the"
                " messages are not those recorded"
            )
            yield (
                f"({_difference(places[0], candidates, conversation)}), and a strict server answers"
                " recorded requests only."
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
        before = Conversation(conversation.messages[: conversation.last_user_place])
        if places := mentioned_places(candidates, before):
            yield (
                f"A message before it asks {places[0]}; what an LLM replies to a follow-up was not"
                " recorded: ask a live LLM."
            )
    nearest = _nearest(candidates, text)
    if nearest is not None:
        place, share = nearest
        begins = place.shelf.texts[place.row].strip()[:_SHOWN]
        yield (
            f"The nearest is {place}, which begins {begins!r} ({share:.0%} of its words are in the"
            " message)."
        )
    yield f"If the prompt words the question differently, {_HOW_TO_NAME}."


def _difference(place: Place, candidates: _Candidates, conversation: Conversation) -> str:
    """Which message of a request differs from the recorded one."""
    for llm in candidates[place.shelf]:
        recorded = place.shelf.conversation(llm, place.row)
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


def _nearest(candidates: _Candidates, text: str) -> tuple[Place, float] | None:
    """The question with the largest share of its words in a message; `None` if none has a third of
    them.
    """
    words_sent = set(text[:MAX_SEARCHED].lower().split())
    best, largest = None, 1 / 3
    for shelf in candidates:
        for row, words in enumerate(shelf.words):
            share = len(words & words_sent) / max(len(words), 1)
            if share > largest:
                best, largest = Place(shelf, row), share
    return None if best is None else (best, largest)
