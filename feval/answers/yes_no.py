"""Yes or no: "Yes", "no.", "**No**, because ...", "the sentence is not plausible" (BIG-Bench-Hard causal and sports questions).

The labels are "yes" and "no"; "true" and "plausible" mean yes, "false", "implausible" and a negated "plausible" or "true" no.
A "no" in front of a noun ("there is no evidence") is no answer. Rules: `feval.answers.closed`.
"""

from __future__ import annotations

from feval.answers.closed import closed_set

__all__ = ["canonical", "extract"]

_NOT = r"(?:not|isn't|wasn't|cannot be|can't be)(?: \w{1,12}){0,2}? "

_CLAUSE = r"(?:because|since|as|but|he|she|it|they|this|that|the|a)\b"

_YES_NO = closed_set(
    {
        "no": rf"no(?:(?! ?[a-z])|(?= {_CLAUSE}))|false|implausible|(?:{_NOT})(?:plausible|true|yes)",
        "yes": r"yes|true|plausible",
    }
)

extract = _YES_NO.extract
canonical = _YES_NO.canonical
