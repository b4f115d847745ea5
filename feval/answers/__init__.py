r"""From a CoT's text to the key it votes with: extraction (text -> raw answer) and canonical form (raw answer -> key).

Each answer kind is a module with two functions:

    extract(text[, choices]) -> raw answer as written in the CoT, or None
    canonical(raw[, choices]) -> the voting key, or None

The key is the answer's *normal form*; no answer is `None`, which never votes. `canonical` is idempotent: a key is its own key.
Answers with equal normal forms vote together. A recording may also treat different normal forms as equal
(`feval.answers.equality`); answers that vote together are a party (`feval.answers.parties`). Neither depends on the gold.

Text from models is untrusted: every function is linear in its length and evaluates nothing.

| kind | key of |
| --- | --- |
| number | "$1,234.50" is "1234.5", "1/2" is "0.5", "1/3" is "1/3" |
| choice | "(b) the cat" is "B" |
| yes-no | "Not plausible." is "no" |
| valid-invalid | "deductively invalid" is "invalid" |
| date | "May 1, 2021" is "05/01/2021" |
| letters | "y-A-j-o" is "yajo" |
| text | " The  Cat. " is "the cat" |
| latex | "\dfrac12" is "0.5", "(3, \infty)" is "(3,\infty)" |
| verbatim | the string as it is |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from feval.lazy import lazy_names

if TYPE_CHECKING:
    from feval.answers import equality as equality
    from feval.answers.kinds import EXTRACTOR_VERSION as EXTRACTOR_VERSION
    from feval.answers.kinds import KINDS as KINDS
    from feval.answers.kinds import AnswerKeys as AnswerKeys
    from feval.answers.kinds import AnswerKind as AnswerKind
    from feval.answers.kinds import answer_kind as answer_kind
    from feval.answers.kinds import canonical as canonical
    from feval.answers.kinds import canonical_gold as canonical_gold
    from feval.answers.kinds import extract as extract
    from feval.answers.kinds import keys as keys
    from feval.answers.kinds import normal_forms as normal_forms
    from feval.answers.number import decimal_key as decimal_key

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "kinds": (
            "EXTRACTOR_VERSION",
            "KINDS",
            "AnswerKeys",
            "AnswerKind",
            "answer_kind",
            "canonical",
            "canonical_gold",
            "extract",
            "keys",
            "normal_forms",
        ),
        "number": ("decimal_key",),
        "equality": (),
    },
)
