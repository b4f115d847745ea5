r"""Where in a CoT the answer stands: the marks LLMs put around a conclusion, the same for every answer kind.

Three marks are known, and every kind reads them in this order:

1. `\boxed{...}`: the last closed one (nested braces are followed; an unfinished one is none);
2. a phrase: "the answer is ...", "answer: ...", "ans = ...", "#### ...", "<answer>...", a line that begins with "A:", a
   heading "Final answer" over its own line. The last phrase that can be read wins: a CoT that corrects itself means its
   last word;
3. whatever the kind falls back to (the last number, the last date, the head of the reply, ...).

A phrase that closes the CoT but cannot be read is no answer: nothing else is guessed from the text above it.

A CoT that runs on into a next question of its own invention ("Q: ..." after an answer was given) is cut there.

The text is untrusted and may be large: one pass each, quantifiers bounded or possessive, at most `PHRASES` phrases looked at.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = [
    "ANSWER_PHRASE",
    "OPTION_PHRASE",
    "PHRASES",
    "Segment",
    "boxed",
    "first_sentence",
    "last_line",
    "own_part",
    "segments",
]

PHRASES = 8
"""How many of a CoT's last answer phrases are looked at."""

_REACH = 400  # characters of a segment; an answer is not longer than that

_BRACES = re.compile(r"\\(?:boxed|fbox)[ ]{0,3}\{|\\.|[{}]", re.DOTALL)

_VERBS = r"(?:is|are|was|equals|becomes|(?:would|should|will|must|has\ to)\ (?:then\ |therefore\ )?be)(?![a-z])"
_ASIDE = r"(?:[ ,(]\ ?(?:to|for|of|in|here|therefore|thus|then|choice|option)(?![a-z])(?:[^\n.!?:=]|\.(?=\d)){0,80}?)?"
_ANSWER = rf"""
    \#\#\#\#
  | (?<![a-z]) (?:answers?|ans) [*_`"')]{{0,4}} {_ASIDE} [ \t,*_]{{0,4}} (?: (?P<answer_is> {_VERBS}) | [:=：] )
  | ^[ \t\#*_]{{0,8}} (?:final[ ])? answer [*_ \t]{{0,4}} $
  | <answer>
"""
_LINE_A = r"| ^[ \t>*_]{0,4} A [*_]{0,2} :"
_OPTION = rf"""
  | (?<![a-z]) (?:correct|best|right) \ (?:option|choice|statement|one)
        {_ASIDE} [ \t,*_]{{0,4}} (?: (?P<option_is> {_VERBS}) | : )
  | (?<![a-z]) (?P<choose> (?:I|we) (?:\ (?:would|will|should))? \ (?:choose|select|pick(?!\ up)|go\ with) (?![a-z]) )
"""
_FLAGS = re.IGNORECASE | re.MULTILINE | re.VERBOSE

ANSWER_PHRASE = re.compile(_ANSWER + _LINE_A, _FLAGS)
"""What stands in front of an answer: a sentence where a named group matched, else a label such as "Answer:"."""

OPTION_PHRASE = re.compile(_ANSWER + _OPTION, _FLAGS)
"""What stands in front of a chosen option; "A:" is an option itself."""

_RUN_ON = re.compile(
    r"^[ \t#*●]{0,8}(?:Q|Question|Problem)[ \t]?(?:#?\d{1,4})?[ \t]?[:.]", re.IGNORECASE | re.MULTILINE
)
_SENTENCE_END = re.compile(r"[.!?](?=\s|$|[*\"'”’)])|[;\n]")


@dataclass(frozen=True, slots=True)
class Segment:
    """What follows an answer phrase, up to the end of its line.

    Attributes:
        text: the line, or the next one that holds anything.
        verb: whether the phrase was a sentence ("the answer is") and not a label ("Answer:").
        final: whether nothing follows in the CoT.
    """

    text: str
    verb: bool
    final: bool


def boxed(text: str) -> str | None:
    r"""Return the content of the last closed `\boxed{...}` that is not empty; `None` where there is none."""
    starts: list[int] = []
    span: tuple[int, int] | None = None
    for found in _BRACES.finditer(text):
        brace = found[0]
        if brace == "}":
            start = starts.pop() if starts else -1
            if 0 <= start < found.start():
                span = (start, found.start())
        elif brace == "{":
            starts.append(-1)
        elif len(brace) > 2:
            starts.append(found.end())
    return text[span[0] : span[1]] if span else None


def own_part(text: str) -> str:
    """Return the CoT up to where it begins to ask and answer questions of its own."""
    first = ANSWER_PHRASE.search(text)
    if first is None:
        return text
    run_on = _RUN_ON.search(text, first.end())
    return text[: run_on.start()] if run_on else text


def segments(text: str, phrase: re.Pattern[str] = ANSWER_PHRASE) -> list[Segment]:
    """Return what follows the last answer phrases of a text, the last one first.

    Args:
        text: the CoT.
        phrase: the phrases to look for.
    """
    found: Iterable[re.Match[str]] = deque(phrase.finditer(text), maxlen=PHRASES)
    return [_segment(text, match) for match in reversed(list(found))]


def _segment(text: str, match: re.Match[str]) -> Segment:
    start = match.end()
    verb = match.lastgroup is not None
    for line in text[start : start + _REACH].splitlines(keepends=True):
        start += len(line)
        if any(map(str.isalnum, line)):
            return Segment(_answer_of(line), verb, final=not text[start:].strip(" \t\r\n*_`$\\])}."))
    return Segment("", verb, final=not text[start:].strip())


def _answer_of(line: str) -> str:
    """A line without what belongs to the phrase in front or to the tag behind."""
    return line.partition("</")[0].strip().lstrip(":=： ")


def first_sentence(segment: str) -> str:
    """Return the segment up to where its first sentence ends (an abbreviation such as "Rs." may end it too early)."""
    end = _SENTENCE_END.search(segment)
    return segment[: end.start()] if end else segment


def last_line(text: str) -> str:
    """Return the last line that holds a letter or digit, at most its last 400 characters; empty where there is none."""
    end = len(text)
    while end > 0:
        start = text.rfind("\n", 0, end) + 1
        line = text[start:end]
        if any(map(str.isalnum, line)):
            return line[-_REACH:].strip()
        end = start - 1
    return ""
