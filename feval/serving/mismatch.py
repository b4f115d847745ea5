"""Requests that hold a recorded question but that no recorded CoT can answer: judges' prompts,
follow-ups, other formats.

A judge reads a question with a CoT and replies with a score; a follow-up shows a model its own
reply. Both quote CoTs of the question, or go on after it. A recorded CoT would be mistaken for the
verdict, and nobody would notice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import orjson

from feval.serving.cots import TextCache
from feval.serving.library import BoundedCache
from feval.serving.matcher import MAX_SEARCHED, Match, difference
from feval.serving.prompts import common_passages, normal, occurrences, outside, question_spans
from feval.serving.settings import (
    OFFERS,
    SCHEMAS,
    IgnoredSetting,
    brief,
    names_of,
    other_format,
    recorded,
)
from feval.serving.wire.calls import MissError
from feval.serving.wire.openai import CompletionRequest, Conversation

MIN_QUOTE = 40
"""Characters of a recorded CoT that count as a quote of it."""

_MIN_REPLY = 16  # of a whole CoT behind the question; a shorter one may stand there by chance
_MAX_ROLE = 40  # characters between a question and the reply to it, such as "assistant:"
_SHOWN = 60
_CACHE_BYTES = 4 << 20
_VERDICT_BYTES = 250
# words that stood around so many other questions are exemplars that a CoT imitates, not a quote
_OTHER_QUESTIONS = 3
_OPPOSITES = ({"yes", "no"}, {"true", "false"})
_ADVICE = (
    "Ask a live LLM, or start the server with --allow-mismatch (in Python: allow_mismatch=True) to"
    " get recorded CoTs anyway."
)

_Messages = Sequence[tuple[str, str]]


class Mismatches:
    """Finds requests that no recorded CoT can answer, by the texts of the CoTs of an LLM on a
    question (by its row).
    """

    def __init__(self, texts: TextCache, *, allowed: bool = False) -> None:
        self._texts, self._allowed = texts, allowed
        self._clean: BoundedCache[tuple[str, int, str], bool] = BoundedCache(_CACHE_BYTES)
        # Dataset and template -> rows of some questions whose CoTs it does not quote.
        self._around: BoundedCache[tuple[str, str], set[int]] = BoundedCache(_CACHE_BYTES)

    def check(self, request: CompletionRequest, match: Match) -> str | None:
        """Return `None`, or the field of a request that no recorded CoT answers; `MissError` unless
        that is allowed.
        """
        error = self._format_error(request, match) or _tail_error(match) or self._quote_error(match)
        if error is not None and not self._allowed:
            raise error
        return None if error is None else error.parameter

    def warnings(self, match: Match) -> Iterator[IgnoredSetting]:
        """Yield a warning if a checked request has an answer of a recorded CoT beside the question,
        as verifiers' prompts do.
        """
        answer = None if match.is_recorded or self._is_usual(match) else _quoted_answer(match)
        if answer is not None:
            yield IgnoredSetting(
                "answer",
                f"puts {answer[:_SHOWN]!r}, the answer of a recorded CoT, beside the question"
                f" {match.question[:_SHOWN]!r} of {match.llm.dataset}, as verifiers do; but a"
                " recorded CoT solves the question, and is no verdict on an answer.",
            )

    def _format_error(self, request: CompletionRequest, match: Match) -> MissError | None:
        field = other_format(request.settings, match.llm.info)
        offers = any(request.settings.get(name) for name in OFFERS)
        if field is None and not (offers and request.settings.get("tool_choice") != "none"):
            calls = sum(cot.tool_calls is not None for cot in self._texts.of(*match.key))
            if calls:
                return _error(
                    f"The request lets no tool be called, and {calls:,} of the CoTs of"
                    f" {match.llm.name} on {match.question[:_SHOWN]!r} of {match.llm.dataset} call"
                    " some. Offer the tools that were recorded.",
                    OFFERS[0],
                )
        if field is None or (
            field in SCHEMAS and all(_is_object(cot.text) for cot in self._texts.of(*match.key))
        ):
            return None
        value = request.settings[field]
        if field in OFFERS:
            info = match.llm.info
            return _error(
                f"The request offers the tools {names_of(value)}, and {match.llm.name} was recorded"
                f" on {match.llm.dataset} with {names_of(recorded(info, field))}, or with other"
                " descriptions of them. With other tools it would have replied something else.",
                field,
            )
        kind = value.get("type") if isinstance(value, dict) else value
        shown = f"{field} {brief(kind)}" if isinstance(kind, str) else field
        what = "demands a reply in JSON" if field in SCHEMAS else "forces a tool call"
        return _error(
            f"The request {what} ({shown}), but the CoTs of {match.llm.name} on {match.llm.dataset}"
            f" were recorded without that demand. Leave {field} out to get one of them.",
            field,
        )

    def _quote_error(self, match: Match) -> MissError | None:
        if match.is_recorded:  # the recorded prompt itself
            return None
        size = sum(len(text) for _, text in match.conversation.messages)
        if size > MAX_SEARCHED:
            return _error(
                f"The messages have {size:,} characters; only up to {MAX_SEARCHED:,} are searched"
                " for quotes of recorded CoTs.",
                "messages",
            )
        if match.use.digest is None:
            quote = self._quote(match)
        else:
            key = match.llm.dataset, match.row, match.use.digest
            quote = None if self._clean.get(key) else self._quote(match)
            if quote is None:
                self._clean.put(key, True, _VERDICT_BYTES)
        if quote is None:
            return None
        place = f"{match.question[:_SHOWN]!r} of {match.llm.dataset}"
        return _error(
            f"The request asks the question {place} and quotes a recorded CoT of it,"
            f" {quote[:_SHOWN]!r}, as judges' prompts and follow-ups do. What an LLM replies to"
            " that was not recorded, and another CoT would be mistaken for it.",
            "messages",
        )

    def _quote(self, match: Match) -> str | None:
        """What a request quotes of the recorded CoTs of its question; `None` if nothing."""
        messages = [(role, normal(text)) for role, text in match.conversation.messages]
        cots = {
            text: None
            for llm in match.served.llms
            for cot in self._texts.of(llm, match.row)
            if cot.text is not None and (text := _one_line(normal(cot.text)))
        }
        replies = [text for text in _replies(match, messages) if text in cots]
        replies += _directly_after(match, messages, cots)
        own = _prompts(match, "assistant") if replies else []
        if quote := next((text for text in replies if text not in own), None):
            return quote
        prompts: list[str] | None = None
        for passage in common_passages(_one_line(_words(match, messages)), cots, MIN_QUOTE):
            if prompts is None:
                question = match.served.texts[match.row]
                prompts = [_one_line(normal(question)), *_prompts(match)]
            if not any(passage in text for text in prompts):
                return None if self._is_usual(match) else passage
        if _quoted_answer(match) is None and match.use.digest is not None:
            # the words around this question quote none of its CoTs
            key = match.llm.dataset, match.use.digest
            rows = self._around.get(key)
            if rows is None:
                self._around.put(key, {match.row}, _VERDICT_BYTES)
            elif len(rows) <= _OTHER_QUESTIONS:
                rows.add(match.row)
        return None

    def _is_usual(self, match: Match) -> bool:
        """Whether the same words stood around several other questions without quoting their
        CoTs.
        """
        rows = (
            None
            if match.use.digest is None
            else self._around.get((match.llm.dataset, match.use.digest))
        )
        return rows is not None and len(rows - {match.row}) >= _OTHER_QUESTIONS


def _tail_error(match: Match) -> MissError | None:
    """Why a request is refused that goes on after its question where the recorded prompt does
    not.
    """
    tail = [] if match.is_recorded else _tail(match, match.conversation)
    recorded = match.served.conversation(match.llm, match.row)
    is_same = not tail or (recorded is not None and tail == _tail(match, recorded))
    if match.conversation.tools and not match.is_recorded:
        tail = tail or match.conversation.messages[-1:]  # by the whole conversation, or not at all
    elif is_same:
        return None
    shown = "; ".join(f"{role}: {text[:_SHOWN]!r}" for role, text in tail[:2]) + "; ..." * (
        len(tail) > 2
    )
    nearest = difference({match.served: match.served.llms}, match.conversation)
    return _error(
        f"After the question {match.question[:_SHOWN]!r} of {match.llm.dataset} the request goes on"
        f" ({shown}), as follow-ups and prefilled replies do, and the prompt of {match.llm.name}"
        f" did not. What an LLM replies to that was not recorded.{nearest and ' '}{nearest}",
        "messages",
    )


def _tail(match: Match, conversation: Conversation) -> _Messages:
    """The messages after the one that asks the question for the first time; users may repeat it at
    once.
    """
    messages = [(role, normal(text)) for role, text in conversation.messages]
    question = match.served.texts[match.row]
    asks = [role == "user" and bool(question_spans(text, question)) for role, text in messages]
    place = asks.index(True) if True in asks else conversation.last_user_place
    while place + 1 < len(asks) and asks[place + 1]:
        place += 1
    return messages[place + 1 :]


def _is_object(text: str | None) -> bool:
    """Whether a CoT is a JSON object, as a prompt may have demanded without a schema."""
    try:
        return text is not None and isinstance(orjson.loads(text), dict)
    except orjson.JSONDecodeError:
        return False


def _one_line(text: str) -> str:
    """A text with single spaces: prompts wrap and indent what they quote."""
    return " ".join(text.split())


def _error(sentences: str, parameter: str) -> MissError:
    return MissError(f"{sentences} {_ADVICE}", parameter=parameter)


def _replies(match: Match, messages: _Messages) -> Iterator[str]:
    """The texts of assistant messages that reply to the question; the others are exemplars."""
    question = match.served.texts[match.row]
    is_question = True
    for role, text in messages:
        if role == "user":
            is_question = bool(question_spans(text, question))
        elif role == "assistant" and is_question:
            yield _one_line(text)


def _directly_after(match: Match, messages: _Messages, cots: Iterable[str]) -> Iterator[str]:
    """The short CoTs that stand right after the question, where a conversation written as text has
    the reply.
    """
    short = [text for text in cots if _MIN_REPLY <= len(text) < MIN_QUOTE]
    for _, text in messages:
        for _, stop in question_spans(
            text, match.served.texts[match.row], match.served.choices[match.row]
        ):
            after = _one_line(text[stop : stop + 2 * (_MAX_ROLE + MIN_QUOTE)])  # room for wrapping
            yield from (cot for cot in short if after.find(cot, 0, _MAX_ROLE + len(cot)) >= 0)


def _words(match: Match, messages: _Messages) -> str:
    """The texts of all messages without recorded questions, the options after the one that is
    asked, and exemplars.
    """
    pieces = []
    for place, (_, text) in enumerate(messages):
        searched = text[match.first :] if place == match.conversation.last_user_place else text
        pieces += outside(searched, _spans(match, searched))
    return "\0".join(pieces)


def _spans(match: Match, text: str) -> list[tuple[int, int]]:
    """Where recorded questions stand in a text, with the options after the one that is asked."""
    question, choices = match.served.texts[match.row], match.served.choices[match.row]
    others = [(hit.start, hit.stop) for hit in match.served.index.outermost(text)]
    return sorted([*question_spans(text, question, choices), *others])


def _quoted_answer(match: Match) -> str | None:
    """The answer of a recorded CoT that stands beside the question, and not in its recorded prompt;
    `None` without one.
    """
    recorded = match.served.conversation(match.llm, match.row)
    usual = [] if recorded is None else _beside(match, recorded)
    own = _beside(match, match.conversation, match.first)
    labels = {label.lower() for label, _ in match.served.dataset[match.row].choices}
    codes = {llm: set(llm.pool.codes[match.row].tolist()) for llm in match.served.llms}
    texts = [
        text
        for llm, own_codes in codes.items()
        for text in llm.answer_texts(match.row, list(own_codes))
        if text
    ]
    for answer in dict.fromkeys(normal(text).strip().lower() for text in texts):
        # "Answer with A or B" and "Is it true or false?" name the answers that there are, and quote
        # none.
        options = next((options for options in (labels, *_OPPOSITES) if answer in options), set())
        others = any(_stands(option, own) for option in options if option != answer)
        if _stands(answer, own) and not others and not _stands(answer, usual):
            return answer
    return None


def _stands(answer: str, pieces: Iterable[str]) -> bool:
    return any(True for piece in pieces for _ in occurrences(piece, answer))


def _beside(match: Match, conversation: Conversation, first: int = 0) -> list[str]:
    """The texts before, between and after the recorded questions in the last user message, in lower
    case.

    Of what is before, the last paragraph: those before it may be exemplars with answers of their
    own.
    """
    text = normal(conversation.last_user_text)[first:]
    spans = _spans(match, text)
    before, *after = outside(text, spans)
    return [piece.lower() for piece in (before.rpartition("\n\n")[2] if spans else before, *after)]


def _prompts(match: Match, role: str | None = None) -> list[str]:
    """The texts of the prompts that the question was recorded with, or of those of one role."""
    recorded = [match.served.conversation(llm, match.row) for llm in match.served.llms]
    messages = [message for each in recorded if each is not None for message in each.messages]
    return [_one_line(normal(text)) for own, text in messages if role in (None, own)]
