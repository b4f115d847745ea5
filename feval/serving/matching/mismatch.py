"""Requests that hold a recorded question but that no recorded CoT can answer: judges' prompts, follow-ups, other formats.

A judge is shown a question with a CoT and is to reply with a score; a follow-up shows a model its own reply. Both quote CoTs of
the question. A recorded CoT would be taken for the verdict, and nobody would notice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import orjson

from feval.replay import LLM
from feval.serving.errors import MissError
from feval.serving.kept import Kept
from feval.serving.matching.matcher import Match
from feval.serving.matching.search import common_passages, normal
from feval.serving.matching.settings import SCHEMAS, brief, other_format
from feval.serving.matching.templates import outside, question_spans
from feval.serving.requests import Asked

__all__ = ["SHORTEST_QUOTE", "Mismatches"]

SHORTEST_QUOTE = 40
"""Characters of a recorded CoT that make a quote of it."""

_SHORTEST_REPLY = 16  # of a whole CoT behind the question; a shorter one may stand there by chance
_WIDEST_ROLE = 40  # characters between a question and the reply to it, such as "assistant:"
_SHOWN = 60
_MOST_SEARCHED = 1 << 20
_KEPT_BYTES = 4 << 20
_VERDICT_BYTES = 250
_OTHER_QUESTIONS = 3  # words that were put around so many others are exemplars that a CoT imitates, not a quote of it
_ADVICE = (
    "Ask a live LLM, or start the server with --allow-mismatch (allow_mismatch=True in Python) to be given recorded CoTs all the "
    "same."
)

_Messages = Sequence[tuple[str, str]]


class Mismatches:
    """Finds requests that no recorded CoT can answer.

    Args:
        texts: from an LLM and the row of a question to the texts of its CoTs.
        allowed: whether such requests are answered all the same.
    """

    def __init__(self, texts: Callable[[LLM, int], Sequence[str | None]], *, allowed: bool = False) -> None:
        self._texts, self._allowed = texts, allowed
        self._clean: Kept[tuple[str, int, str], bool] = Kept(_KEPT_BYTES)
        # Dataset and template -> rows of some questions whose CoTs it does not quote.
        self._around: Kept[tuple[str, str], set[int]] = Kept(_KEPT_BYTES)

    def check(self, asked: Asked, match: Match) -> str | None:
        """Make sure that a recorded CoT can answer a request.

        Args:
            asked: the request.
            match: what it asks.

        Returns:
            `None`; where mismatches are allowed, the field of the request that a recorded CoT does not answer.

        Raises:
            MissError: it cannot; the message has the reason.
        """
        error = self._format_error(asked, match) or self._quote_error(match)
        if error is not None and not self._allowed:
            raise error
        return None if error is None else error.parameter

    def _format_error(self, asked: Asked, match: Match) -> MissError | None:
        field = other_format(asked.settings, match.llm.info)
        if field is None or (field in SCHEMAS and all(map(_is_object, self._texts(match.llm, match.row)))):
            return None
        value = asked.settings[field]
        kind = value.get("type") if isinstance(value, dict) else value
        shown = f"{field} {brief(kind)}" if isinstance(kind, str) else field
        what = "demands a reply in JSON" if field in SCHEMAS else "forces a tool call"
        return _error(
            f"The request {what} ({shown}), but the CoTs of {match.llm.name} on {match.llm.dataset} were recorded without that "
            f"demand. Leave {field} out to be given one of them.",
            field,
        )

    def _quote_error(self, match: Match) -> MissError | None:
        if match.how == "request":  # the recorded prompt itself
            return None
        size = sum(len(text) for _, text in match.conversation.messages)
        if size > _MOST_SEARCHED:
            return _error(
                f"The messages have {size:,} characters; only up to {_MOST_SEARCHED:,} are searched for quotes of recorded CoTs.",
                "messages",
            )
        if match.template is None:
            quote = self._quote(match)
        else:
            key = match.llm.dataset, match.row, match.template.digest
            quote = None if self._clean.get(key) else self._quote(match)
            if quote is None:
                self._clean.put(key, True, _VERDICT_BYTES)
        if quote is None:
            return None
        place = f"{match.question[:_SHOWN]!r} of {match.llm.dataset}"
        return _error(
            f"The request asks the question {place} and quotes a recorded CoT of it, {quote[:_SHOWN]!r}, as judges' prompts and "
            "follow-ups do. What an LLM replies to that was not recorded, and another CoT would be taken for it.",
            "messages",
        )

    def _quote(self, match: Match) -> str | None:
        """What a request quotes of the recorded CoTs of its question; `None` where it quotes none."""
        messages = [(role, normal(text)) for role, text in match.conversation.messages]
        cots = {
            text: None
            for llm in match.shelf.llms
            for raw in self._texts(llm, match.row)
            if raw is not None and (text := _one_line(normal(raw)))
        }
        replies = [text for text in _replies(match, messages) if text in cots]
        replies += _directly_behind(match, messages, cots)
        if quoted := next((text for text in replies if text not in _recorded_replies(match)), None):
            return quoted
        given: list[str] | None = None
        for passage in common_passages(_one_line(_words(match, messages)), cots, SHORTEST_QUOTE):
            given = _given(match) if given is None else given
            if not any(passage in text for text in given):
                return None if self._is_usual(match) else passage
        self._note(match)
        return None

    def _note(self, match: Match) -> None:
        """Remember that the words around a question quote none of its CoTs."""
        if match.template is not None:
            key = match.llm.dataset, match.template.digest
            rows = self._around.get(key)
            if rows is None:
                self._around.put(key, {match.row}, _VERDICT_BYTES)
            elif len(rows) <= _OTHER_QUESTIONS:
                rows.add(match.row)

    def _is_usual(self, match: Match) -> bool:
        """Whether the same words were put around several other questions, of whose CoTs they quote nothing."""
        rows = None if match.template is None else self._around.get((match.llm.dataset, match.template.digest))
        return rows is not None and len(rows - {match.row}) >= _OTHER_QUESTIONS


def _is_object(text: str | None) -> bool:
    """Whether a CoT is a JSON object, as a prompt may have asked for without a schema."""
    try:
        return text is not None and isinstance(orjson.loads(text), dict)
    except orjson.JSONDecodeError:
        return False


def _one_line(text: str) -> str:
    """A text with single spaces, as prompts wrap and indent what they quote."""
    return " ".join(text.split())


def _error(sentences: str, parameter: str) -> MissError:
    return MissError(f"{sentences} {_ADVICE}", status=400, parameter=parameter)


def _replies(match: Match, messages: _Messages) -> Iterator[str]:
    """The texts of assistant messages that reply to the question; those that reply to another one are exemplars."""
    question = match.shelf.texts[match.row]
    asked = True
    for role, text in messages:
        if role == "user":
            asked = bool(question_spans(text, question))
        elif role == "assistant" and asked:
            yield _one_line(text)


def _directly_behind(match: Match, messages: _Messages, cots: Iterable[str]) -> Iterator[str]:
    """The short CoTs that stand right behind the question, where a conversation that is written out has the reply."""
    short = [text for text in cots if _SHORTEST_REPLY <= len(text) < SHORTEST_QUOTE]
    for _, text in messages:
        for _, stop in question_spans(text, match.shelf.texts[match.row], match.shelf.choices[match.row]):
            behind = _one_line(text[stop : stop + 2 * (_WIDEST_ROLE + SHORTEST_QUOTE)])  # room for wrapping
            yield from (cot for cot in short if behind.find(cot, 0, _WIDEST_ROLE + len(cot)) >= 0)


def _words(match: Match, messages: _Messages) -> str:
    """The texts of all messages without recorded questions, the options listed behind the one that is asked, and exemplars."""
    question, choices = match.shelf.texts[match.row], match.shelf.choices[match.row]
    pieces = []
    for place, (_, text) in enumerate(messages):
        own = text[match.first :] if place == match.conversation.last_user_place else text
        others = [(found.start, found.stop) for found in match.shelf.index.outermost(own)]
        pieces += outside(own, sorted([*question_spans(own, question, choices), *others]))
    return "\0".join(pieces)


def _given(match: Match) -> list[str]:
    """What a request can hold without quoting a CoT: the question, and the prompts it was recorded with."""
    recorded = [match.shelf.conversation(llm, match.row) for llm in match.shelf.llms]
    prompts = [normal(text) for each in recorded if each is not None for _, text in each.messages]
    return [_one_line(text) for text in (normal(match.shelf.texts[match.row]), *prompts)]


def _recorded_replies(match: Match) -> set[str]:
    """The texts of assistant messages in the prompts that the question was recorded with."""
    recorded = [match.shelf.conversation(llm, match.row) for llm in match.shelf.llms]
    return {_one_line(normal(text)) for each in recorded if each for role, text in each.messages if role == "assistant"}
