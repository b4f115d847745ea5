"""From a CoT's text to the key it votes with: extraction (text -> raw answer) and canonical form
(raw answer -> key).

Each answer kind is a module with `extract` and `canonical`; `docs/answers.md` lists them. The key
is the answer's *normal form*, and is its own key; no answer is `None`, which never votes. Answers
with equal keys vote together; a recording may also treat different normal forms as equal
(`feval.answers.equality`). Neither depends on the gold.

Text from models is untrusted: every function is linear in its length and evaluates nothing.
"""

from typing import TYPE_CHECKING

from feval.lazy import lazy_names

NORMAL_FORM = "normal-form"
"""The name of the equality under which answers are equal only where their normal forms are."""

if TYPE_CHECKING:
    from feval.answers import equality as equality, equivalence as equivalence, thoughts as thoughts
    from feval.answers.kinds import (
        EXTRACTOR_VERSION as EXTRACTOR_VERSION,
        KINDS as KINDS,
        AnswerKeys as AnswerKeys,
        AnswerKind as AnswerKind,
        answer_kind as answer_kind,
        canonical as canonical,
        canonical_gold as canonical_gold,
        extract as extract,
        keys as keys,
        normal_forms as normal_forms,
    )
    from feval.answers.number import decimal_key as decimal_key

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "kinds": "EXTRACTOR_VERSION KINDS AnswerKeys AnswerKind answer_kind canonical"
        " canonical_gold extract keys normal_forms",
        "number": "decimal_key",
        "equality": "",
        "equivalence": "",
        "thoughts": "",
    },
)
