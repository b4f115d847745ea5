r"""Closed label sets: yes or no, valid or invalid. Which words mean which label, and which of them
is a CoT's answer.

`YES_NO` (BIG-Bench-Hard causal and sports questions): "Yes", "no.", "**No**, because ...", "the
sentence is not plausible". "true" and "plausible" mean yes; "false", "implausible" and a negated
"plausible" or "true" mean no. A "no" before a noun ("there is no evidence") is no answer.
`VALIDITY` (formal fallacies): "valid", "Invalid.", "the argument is not valid"; a negated "valid"
is invalid, a negated "invalid" valid.

The first rule that finds a label:

1. in the answer that the CoT sets apart: in a JSON object, or in the last `\boxed{...}`;
2. after the last answer phrase (`feval.answers.markers`) that names a label: its first one ("the
   answer is no, because ..."). After a label ("Answer:") it must stand first, or be the last one of
   a CoT's last line;
3. the first word of the CoT ("No, it is not."), unless an answer phrase that names no label closes
   the CoT;
4. the last label named in the CoT's last line.

Offering both ("valid or invalid", "yes or no") names none. Words are whole words: "invalid" does
not hold "valid".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from feval.answers import markers
from feval.answers.markers import Match, Segment

_DIRECT = re.compile(
    r"(?>(?:\\[a-z]+|[^a-z0-9])*)(?:(?:that|the|this|it|argument|sentence|is|was|deductively)(?![a-z])[^a-z0-9]*+){0,6}"
)


class ClosedSet(NamedTuple):
    """A set of labels with the words that mean them.

    The name of the group of `pattern` that matched is the label; no group means that several were
    offered.
    """

    pattern: re.Pattern[str]

    def extract(self, text: str) -> str | None:
        """Return the words a CoT answers with, as they are written there; `None` where there are
        none.
        """
        match = markers.answer(
            text,
            lambda content: self._first(content.lower()),
            self._of_segment,
            lambda cot: self._direct(cot[:400].lstrip()) or self._last(markers.last_line(cot)),
            _folded,
        )
        return match[0] if match else None

    def canonical(self, raw: str) -> str | None:
        """Return the label of a raw answer; one that does not begin with a label is read as a
        text.
        """
        match = self._direct(_folded(raw[:400])) or self._first(self.extract(raw) or "")
        return match.lastgroup if match else None

    def _of_segment(self, segment: Segment) -> Match | None:
        if segment.verb:
            return self._first(segment.text)
        return self._direct(segment.text) or (self._last(segment.text) if segment.final else None)

    def _direct(self, text: str) -> Match | None:
        match = self._first(text)
        return match if match and _DIRECT.fullmatch(text, 0, match.start()) else None

    def _first(self, text: str) -> Match | None:
        return next((match for match in self.pattern.finditer(text) if match.lastgroup), None)

    def _last(self, text: str) -> Match | None:
        named = [match for match in self.pattern.finditer(text) if match.lastgroup]
        return named[-1] if named else None


def _folded(text: str) -> str:
    return text.replace("’", "'").lower()


def closed_set(words: Mapping[str, str]) -> ClosedSet:
    """Build a closed set from label (a Python identifier) -> regular expression of its words, in
    the order of trying them.
    """
    labels = "|".join(words)
    either = rf"(?:{labels})(?: ?/ ?|,? or )(?:{labels})(?: or not)?"
    groups = "|".join(f"(?P<{label}>{expression})" for label, expression in words.items())
    return ClosedSet(re.compile(rf"(?<![\w'])(?:{either}|{groups})(?![\w'])"))


_CLAUSE = r"(?:because|since|as|but|he|she|it|they|this|that|the|a)\b"
_NOT_PLAUSIBLE = r"(?:not|isn't|wasn't|cannot be|can't be)(?: \w{1,12}){0,2}? "
_NOT_VALID = r"(?:not|isn't|cannot be|can't be)(?: \w{1,12}){0,2}? "

YES_NO = closed_set(
    {
        "no": (
            r"no(?:(?! ?[a-z])|(?="
            rf" {_CLAUSE}))|false|implausible|(?:{_NOT_PLAUSIBLE})(?:plausible|true|yes)"
        ),
        "yes": r"yes|true|plausible",
    }
)

VALIDITY = closed_set(
    {
        "valid": rf"(?:{_NOT_VALID})invalid|(?<!not )valid",
        "invalid": rf"(?:{_NOT_VALID})valid|invalid",
    }
)
