r"""Last-letters style answers: a string of letters, such as "yajo" for "concatenate the last
letters of each word".

A string of letters is written as one word ("yajo", 'yajo') or in pieces of at most four ("y-a-j-o",
"yaj o", 'y', 'a', 'j', 'o'). Which of a CoT's is its answer (the first rule that finds one):

1. the one that the CoT sets apart, in a JSON object or in the last `\boxed{...}`;
2. the one that makes up the first sentence after the last answer phrase (`feval.answers.markers`),
   begins it before "because", a comma or a bracket, or is the last one in quotes there;
3. the last one in quotes in the text, unless an answer phrase without one closes it;
4. the CoT itself where it is one.

The key is its letters, in NFKC and casefold: "y-A-j-o." is "yajo". Digits are dropped like
punctuation. No letters, no answer. (The rule of the ESC paper's code, which the `esc` importer
applies for the kind `verbatim`, squeezes a CoT without the phrase into one long answer, drops
accented letters, and lets an empty answer vote.)
"""

from __future__ import annotations

import re

from feval.answers import markers
from feval.answers.markers import Segment
from feval.answers.text import fold

_PIECE = re.compile(r"[^\W\d_]+")
_QUOTED = re.compile(r"(?<![^\W_])[\"'“‘`]([^\"'“”‘’`\n]{1,200}+)[\"'”’`](?![^\W_])")
_AND_SO_ON = re.compile(r"\s?[,(]|\s(?:because|since|as|which|when)\s")
_LONGEST = 200


def extract(text: str) -> str | None:
    """Return the letters a CoT answers with, as they are written there; `None` where there are
    none.
    """
    return markers.answer(
        text,
        lambda content: _string(re.sub(r"\\[a-z]+\s?|[{}]", "", content)),
        _of_segment,
        lambda cot: _string(cot.strip()) or _last_quoted(cot),
    )


def canonical(raw: str) -> str | None:
    """Return the letters of a raw answer, folded; one that is more than a string of letters is read
    as a text.
    """
    answer = _string(raw.strip()) or extract(raw)
    key = fold("".join(filter(str.isalpha, fold(answer or ""))))
    return key if 0 < len(key) <= _LONGEST else None  # folding may make letters more


def _string(text: str) -> str | None:
    """Return the text if it is a string of letters, else `None`."""
    if len(text) > _LONGEST:
        return None
    text = text.rpartition("=")[2]
    pieces = _PIECE.findall(text)
    return (
        text.strip()
        if len(pieces) == 1 or (pieces and all(len(piece) <= 4 for piece in pieces))
        else None
    )


def _of_segment(segment: Segment) -> str | None:
    sentence = markers.first_sentence(segment.text) or segment.text
    if answer := _string(sentence):
        return answer
    if segment.verb:
        return _string(_AND_SO_ON.split(sentence, maxsplit=1)[0]) or _last_quoted(sentence)
    return _last_quoted(segment.text) if segment.final else None


def _last_quoted(text: str) -> str | None:
    quoted = [match[1] for match in _QUOTED.finditer(text)]
    return next((part for part in reversed(quoted) if _string(part)), None)
