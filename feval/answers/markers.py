r"""Where in a CoT the answer is: the marks that LLMs put around a conclusion, the same for every
answer kind.

Every kind looks for them in this order:

1. an answer set apart: the member "answer" or "final_answer" of a JSON object that closes the CoT,
   in a code fence or not, or the last closed `\boxed{...}` (nested braces are followed; an
   unfinished one is none);
2. a phrase: "the answer is ...", "answer: ...", "ans = ...", "#### ...", "<answer>...", a line that
   begins with "A:", a heading "Final answer" over its own line. The last phrase that can be read
   wins: a CoT that corrects itself means its last word;
3. the fallback of the kind (the last number, the last date, the head of the reply, ...).

A phrase that ends the CoT but cannot be read is no answer: nothing is guessed from the text above
it. A label at the end with nothing behind it ("Answers:") is ignored; a sentence cut off there
("The answer is") is no answer, nor is a refusal ("I cannot provide an answer to this question"). A
phrase in a remark behind an earlier one, in brackets or after "Note:", does not count: "A: 5 (else
the answer would be 6)" is 5.

A CoT that goes on with an invented next question ("Q: ..." after an answer) is cut there.

The text is untrusted and may be large: one pass each, quantifiers bounded or possessive, at most
`PHRASES` phrases looked at.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

_Answer = TypeVar("_Answer")
Match = re.Match[str]

PHRASES = 8
"""How many of a CoT's last answer phrases are read."""

_REACH = 400  # characters of a segment; an answer is not longer than that

_BOX = re.compile(r"\\(?:boxed|fbox)")
_BRACES = re.compile(r"\\(?:boxed|fbox)[ ]{0,3}\{|\\.|[{}]", re.DOTALL)

_VERBS = r"(?<![a-z])(?:is|are|was|equals|becomes|(?:would|should|will|must|has\ to)\ (?:then\ |therefore\ )?be)(?![a-z])"  # noqa: E501  a pattern is read as one line
_ASIDE = (
    r"(?:["
    r" ,(]\ ?(?:to|for|of|in|here|therefore|thus|then|choice|option)(?![a-z])(?:[^\n.!?:=]|\.(?=\d)){0,80}?)?"  # noqa: E501  a pattern is read as one line
)
_ANSWER = rf"""
    \#\#\#\#
  | (?<![a-z]) (?:answers?|ans) [*_`"')]{{0,4}} {_ASIDE} [ \t,*_]{{0,4}} (?: (?P<answer_is> {_VERBS}) | [:=：] )
  | ^[ \t\#*_]{{0,8}} (?:final[ ])? answer [*_ \t]{{0,4}} $
  | <answer>
"""  # noqa: E501  a pattern is read as one line
_LINE_A = r"| ^[ \t>*_]{0,4} A [*_]{0,2} :"
_OPTION = rf"""
  | (?<![a-z]) (?:correct|best|right) \ (?:option|choice|statement|one)
        {_ASIDE} [ \t,*_]{{0,4}} (?: (?P<option_is> {_VERBS}) | : )
  | (?<![a-z]) (?P<choose> (?:I|we) (?:\ (?:would|will|should))? \ (?:choose|select|pick(?!\ up)|go\ with) (?![a-z]) )
"""  # noqa: E501  a pattern is read as one line
_FLAGS = re.IGNORECASE | re.MULTILINE | re.VERBOSE


ANSWER_PHRASE = re.compile(_ANSWER + _LINE_A, _FLAGS)
"""What precedes an answer: a sentence if a named group matched, else a label such as "Answer:"."""

OPTION_PHRASE = re.compile(_ANSWER + _OPTION, _FLAGS)
"""What precedes a chosen option; "A:" is an option itself."""

# Every phrase begins near one of a few rare literals, which are found a hundred times as fast as
# the phrase. Four letters equal these for a pattern that ignores case, but not in lower case.
_ODD_LETTERS = {"\u0130": "i", "\u0131": "i", "\u017f": "s", "\u212a": "k"}
_ANS = re.compile(r"ans(?<![a-z]ans)(?:wer|(?![a-z]))")
_HASHES = re.compile("####")
_COLON = re.compile(r":(?<=[a*_]:)")
_BEST = re.compile(r"t (?:option|choice|statement|one)")
_HEADING = 14  # characters of a line in front of its "answer"
_LINE_LABEL = 7  # characters of a line in front of the colon of its "A:"
_PRAISES = (3, 4, 6)  # from the beginning of "best", "right" and "correct" to their last letter
_VERBS_OF_CHOICE = ("choose", "select", "pick", "go with")
_SUBJECTS = (2, 3, 7, 8, 9, 10)  # from "I" or "we", with or without "would", to the verb

_REFUSING = ("annot ", "an't ", "an’t ", "able to ", "mpossible to ")
_REFUSAL = re.compile(
    r"""(?<![a-z]) (?: cannot | can['’]t | (?:un|not\ )able\ to | impossible\ to ) \ (?:[a-z]{1,12}\ ){0,3} answer (?![a-z])
        (?: \ (?:the|this|to|for|as|because|since|with|without|in) \ [^\n.!?:]{0,100}+ )? [\s.!*_"')]* \Z""",  # noqa: E501  a pattern is read as one line
    _FLAGS,
)

_RUN_ON = re.compile(
    r"\n[ \t#*●]{0,8}(?:Q|Question|Problem)[ \t]?(?:#?\d{1,4})?[ \t]?[:.]", re.IGNORECASE
)
_NOT_BUT = re.compile(
    r"[^\w\n]{0,8}not\s(?:[^\n.;]|\.(?=\d)){1,60}?[\s,;.]\s?(?:but|rather|instead|it\sis|it's)\s(?:rather\s|it\sis\s|it's\s)?",
    re.IGNORECASE,
)
_REMARK = re.compile(r"^[\s(*_\[]{0,8}note\b", re.IGNORECASE | re.MULTILINE)
_BLANK = " \t\r\n*_`"
_LONGEST_LABEL = 60
_LABEL_ENDS = ("answer", "answers", ":", "：", "####", "<answer>")
_EMPTY_LABEL = re.compile(
    r"(?: ^[ \t\#*_>]{0,8} (?:final\ )? answers? [*_]{0,4}"
    r" | (?<![a-z]) (?:final\ )? (?:answers?|ans) [*_`\"')]{0,4} [ \t]? [:=：]"
    r" | ^[ \t>*_]{0,4} A [*_]{0,2} : | \#\#\#\# | <answer> ) \Z",
    _FLAGS,
)
_OBJECT = re.compile(r"^[ \t]{0,8}\{", re.MULTILINE)
# of lists and objects, which every Python reads: some stop at 1,000, others at 10,000
_MOST_DEPTH = 500
# how many lines that begin with a brace are tried as the beginning of the closing JSON object
_OBJECTS = 8
_ANSWERS = ("answer", "finalanswer")
_SENTENCE_END = re.compile(r"[.!?;\n](?:(?<=[;\n])|(?=\s|$|[*\"'”’)]))")


class Segment(NamedTuple):
    """What follows an answer phrase: the rest of its line, or the next line that holds anything.

    `verb` tells a sentence ("the answer is") from a label ("Answer:"); `final` is whether nothing
    follows in the CoT.
    """

    text: str
    verb: bool
    final: bool


def set_apart(text: str) -> str | None:
    r"""Return the answer that a CoT sets apart: of its closing JSON object, else of its last closed
    `\boxed{...}`.
    """
    if "}" not in text:
        return None
    answer = _of_object(text) if text[-40:].rstrip(_BLANK).endswith("}") else None
    return _boxed(text) if answer is None else _boxed(answer) or answer


def _of_object(text: str) -> str | None:
    """The member "answer" of the JSON object that closes a text."""
    closed = text.rstrip(_BLANK)
    for start in deque(_OBJECT.finditer(closed), maxlen=_OBJECTS):
        try:
            value = json.loads(closed[start.start() :], parse_int=str, parse_float=str)
        except (ValueError, RecursionError):  # not JSON, or nested on purpose
            continue
        level = [value]
        for _ in range(_MOST_DEPTH):
            level = [
                part
                for whole in level
                if isinstance(whole, dict | list)
                for part in (whole.values() if isinstance(whole, dict) else whole)
            ]
        if not level:
            return _member(value)
    return None


def _member(value: Any) -> str | None:
    """The first "answer" of nested objects, if it is a string, number or truth value, or a list or
    object of one.
    """
    members = deque([value])
    while members:
        inner = members.popleft()
        if not isinstance(inner, dict):
            continue
        for key, answer in inner.items():
            if "".join(filter(str.isalpha, key.lower())) in _ANSWERS:
                return _scalar(answer)
        members += inner.values()
    return None


def _scalar(value: Any) -> str | None:
    while isinstance(value, list | dict) and value and (isinstance(value, dict) or len(value) == 1):
        value = next(iter(value.values() if isinstance(value, dict) else value))
    if isinstance(value, bool):
        return str(value).lower()
    # "\boxed" and "\frac" written with one backslash are a backspace and a form feed to JSON.
    return (
        value.replace("\b", "\\b").replace("\f", "\\f").strip() or None
        if isinstance(value, str)
        else None
    )


def _boxed(text: str) -> str | None:
    r"""The content of the last closed `\boxed{...}` that is not empty."""
    first = _BOX.search(text)  # braces before it decide nothing
    if first is None:
        return None
    starts: list[int] = []
    span: tuple[int, int] | None = None
    for match in _BRACES.finditer(
        text, len(text[: first.start()].rstrip("\\"))
    ):  # of backslashes, pairs are line breaks
        brace = match[0]
        if brace == "}":
            start = starts.pop() if starts else -1
            if 0 <= start < match.start():
                span = (start, match.start())
        elif brace == "{":
            starts.append(-1)
        elif len(brace) > 2:
            starts.append(match.end())
    return text[span[0] : span[1]] if span else None


def own_part(text: str) -> str:
    """Return the CoT up to where it begins to invent questions, without an empty label at the
    end.
    """
    if not ("\n" in text and _RUN_ON.search(text)) and not _ends_in_label(text.rstrip(_BLANK)):
        return text  # as most do, so that no phrase need be found
    matches = _matches(text, ANSWER_PHRASE)
    if not matches:
        return text
    run_on = _RUN_ON.search(text, matches[0].end())
    text = text[: run_on.start() + 1] if run_on else text
    closed = text.rstrip(_BLANK)
    if not _ends_in_label(closed):
        return text
    empty = _EMPTY_LABEL.search(closed, max(0, len(closed) - _LONGEST_LABEL))
    return closed[: empty.start()] if empty else text


def _ends_in_label(closed: str) -> bool:
    return closed[-8:].lower().endswith(_LABEL_ENDS)


def segments(text: str, phrase: re.Pattern[str] = ANSWER_PHRASE) -> list[Segment]:
    """Return what follows the last answer phrases of a text, last one first."""
    if (place := text.rfind("answer", -_REACH)) >= 0:
        start = max(0, place - _LONGEST_LABEL)
        says = any(map(text[start:place].__contains__, _REFUSING))
        if says and _REFUSAL.search(text, start):
            return [Segment("", verb=True, final=True)]
    matches = _matches(text, phrase)
    if not matches:
        return []
    counting = [matches[0]]
    for before, match in pairwise(matches):
        if not _in_remark(text[before.end() : match.start()]):
            counting.append(match)
    return [_segment(text, match) for match in reversed(counting[-PHRASES:])]


def answer(
    text: str,
    of_content: Callable[[str], _Answer | None],
    of_segment: Callable[[Segment], _Answer | None],
    otherwise: Callable[[str], _Answer | None],
    readable: Callable[[str], str] = str,
) -> _Answer | None:
    """Return the answer of a CoT: of what it sets apart, else of what follows its last phrase that
    has one, else, unless a phrase without one closes it, of all of its own part.

    `readable` prepares that part for the last two.
    """
    content = set_apart(text)
    found = of_content(content) if content is not None else None
    if found is not None:
        return found
    cot = readable(own_part(text))
    for segment in segments(cot):
        found = of_segment(segment)
        if found is not None or segment.final:
            return found
    return otherwise(cot)


@lru_cache(maxsize=2)  # `own_part` and `segments` ask for the same
def _matches(text: str, phrase: re.Pattern[str]) -> tuple[Match, ...]:
    """All matches of a phrase."""
    lower = text
    if not text.isascii():
        for letter, plain in _ODD_LETTERS.items():
            lower = lower.replace(letter, plain)
    # `str.lower` is slow where there are other letters, whose case does not matter
    lower = (
        lower.lower()
        if lower.isascii()
        else lower.encode("utf-8", "surrogatepass").lower().decode("utf-8", "surrogatepass")
    )
    matches: list[Match] = []
    end = 0
    for start in sorted(_starts(lower, phrase)):
        if start >= end and (match := phrase.match(text, start)):
            matches.append(match)
            end = match.end()
    return tuple(matches)


def _starts(lower: str, phrase: re.Pattern[str]) -> set[int]:
    """Where a phrase could begin in a text in lower case."""
    starts = {match.start() for match in _HASHES.finditer(lower)} if "#" in lower else set()
    for match in _ANS.finditer(lower):
        place = match.start()
        starts |= {
            _line_start(lower, place, _HEADING),
            place - (lower[place - 1 : place] == "<"),
            place,
        }
    if phrase is ANSWER_PHRASE:
        if ":" in lower:
            starts |= {
                _line_start(lower, match.start(), _LINE_LABEL) for match in _COLON.finditer(lower)
            }
        return starts
    for match in _BEST.finditer(lower):
        starts.update(match.start() - back for back in _PRAISES)
    for verb in _VERBS_OF_CHOICE:
        if verb in lower:
            starts |= {
                match.start() - back for match in re.finditer(verb, lower) for back in _SUBJECTS
            }
    return starts


def _line_start(text: str, place: int, most: int) -> int:
    """Where the line of a place begins, if that is at most so many characters in front of it; else
    the place.
    """
    start = text.rfind("\n", max(0, place - most - 1), place) + 1
    return start if start or place <= most else place


def _in_remark(between: str) -> bool:
    """Return whether the text between two phrases is an answer and the beginning of a remark on
    it.
    """
    answer, _, line = between.rpartition("\n")
    if _REMARK.match(line):
        return first_sentence(line) == line
    before, opened, inside = line.rpartition("(")
    return (
        bool(opened)
        and ")" not in inside
        and any(map(str.isalnum, answer if not before.strip() else before))
    )


def _segment(text: str, match: Match) -> Segment:
    start = match.end()
    verb = match.lastgroup is not None
    for line in text[start : start + _REACH].splitlines(keepends=True):
        start += len(line)
        if any(map(str.isalnum, line)):
            # without rests of the phrase and a closing tag
            bare = line.partition("</")[0].strip().lstrip(":=： ")
            return Segment(bare, verb, final=not text[start:].strip(" \t\r\n*_`$\\])}."))
    return Segment("", verb, final=not text[start:].strip())


def last_match(pattern: re.Pattern[str], text: str, start: int = 0) -> Match | None:
    """Return the last match of a pattern behind a place."""
    last = None
    for match in pattern.finditer(text, start):
        last = match
    return last


def affirmed(text: str) -> str:
    """Return a text without a leading denial: "not 5 but 6" becomes "6"."""
    denied = _NOT_BUT.match(text)
    return text[denied.end() :] if denied else text


def first_sentence(segment: str) -> str:
    """Return the segment up to where its first sentence ends (an abbreviation such as "Rs." may end
    it too early).
    """
    end = _SENTENCE_END.search(segment)
    return segment[: end.start()] if end else segment


def last_line(text: str) -> str:
    """Return the last line that holds a letter or digit, at most its last 400 characters; empty
    where there is none.
    """
    end = len(text)
    while end > 0:
        start = text.rfind("\n", 0, end) + 1
        line = text[start:end]
        if any(map(str.isalnum, line)):
            return line[-_REACH:].strip()
        end = start - 1
    return ""
