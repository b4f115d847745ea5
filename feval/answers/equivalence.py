"""Which answers of a question vote together: classes of equal normal forms.

Where a dataset has an equality between normal forms (`feval.answers.equality`), forms are compared
in sorted order, each with one representative of every class so far, and join the first that is
equal. The gold comes last: it joins at most one class and merges none, so the classes are the same
for every gold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache, partial
from time import monotonic
from typing import NamedTuple

TOLERANCE = "tolerance-"
"""How the names of equalities of numbers begin; the largest relative difference follows."""
PAIRS_PER_QUESTION = 2_000
"""Comparisons per question; as many again are reserved for its gold."""
PAIRS = 200_000
"""Comparisons per command, that is, per recording that is written."""
SECONDS_PER_QUESTION = 30.0
"""No comparison of a question begins later than this; as long again is reserved for its gold."""
SECONDS = 1_800.0
"""Seconds of comparing per command."""


class PairVerdict(NamedTuple):
    """How two different normal forms are compared.

    Attributes:
        equal: whether they are equal; `None` where no verdict was reached.
        comparable: whether a comparison is worthwhile; if not, the forms are different, without a
            verdict. `None`: it always is.
        costly: whether comparisons are budgeted and all verdicts stored. Of cheap ones, only equal
            pairs are stored.
    """

    equal: Callable[[str, str], bool | None]
    comparable: Callable[[str, str], bool] | None = None
    costly: bool = False


def tolerated(equality: str) -> Callable[[str, str], bool] | None:
    """Return how a tolerance compares two keys of `feval.answers.number`; `None` for an equality
    that is none.
    """
    if not equality.startswith(TOLERANCE):
        return None
    return partial(_within, Fraction(float(equality.removeprefix(TOLERANCE))))


_fraction = lru_cache(1 << 12)(Fraction)  # a question's answers are compared with each other


def _within(relative: Fraction, left: str, right: str) -> bool:
    """Whether two keys differ by at most a share of the larger one."""
    a, b = _fraction(left), _fraction(right)
    # over one denominator: fractions would look for common divisors
    one, other = a.numerator * b.denominator, b.numerator * a.denominator
    most = max(abs(one), abs(other))
    return abs(one - other) * relative.denominator <= relative.numerator * most


class Verdict(NamedTuple):
    """The outcome of comparing `right`, perhaps the question's gold, with `left`, which represents
    a class.

    `equal` is `None` where the comparison ended without an outcome, which counts as different.
    """

    left: str
    right: str
    gold: bool
    equal: bool | None


class AnswerClasses(NamedTuple):
    """The classes of one question: form -> representative, for forms that are none, and the gold's
    key, if there is a gold.
    """

    joined: Mapping[str, str]
    gold: str | None

    def key(self, form: str) -> str:
        """Return the voting key of a normal form: the representative of its class."""
        return self.joined.get(form, form)


class ComparisonBudget:
    """What is left of the comparisons and their seconds, for the command and for the current
    question.
    """

    def __init__(
        self,
        pairs: int = PAIRS,
        question: int = PAIRS_PER_QUESTION,
        *,
        seconds: float = SECONDS,
        question_seconds: float = SECONDS_PER_QUESTION,
    ) -> None:
        self._left, self._per_question = (pairs, seconds), (question, question_seconds)
        self.next_question()

    def next_question(self) -> None:
        """Start another question."""
        self._here = self._per_question

    def has_left(self) -> bool:
        """Whether another comparison may begin."""
        return min(*self._here, *self._left) > 0

    def spend(self, seconds: float) -> None:
        """Count one comparison that took so long."""
        self._here = self._here[0] - 1, self._here[1] - seconds
        self._left = self._left[0] - 1, self._left[1] - seconds


class Classifier:
    """Sorts the normal forms of a question into classes, one by one.

    A recording adds forms in sorted order; a live LLM adds them as they come. `verdicts` are those
    of the compared pairs, in order; verdicts known before cost nothing. `not_asked` counts pairs
    beyond the budget, which are different.
    """

    def __init__(
        self,
        comparison: PairVerdict | None = None,
        budget: ComparisonBudget | None = None,
        known: Iterable[Verdict] = (),
    ) -> None:
        self._comparison, self._budget = comparison, budget or ComparisonBudget()
        self._known = {(v.left, v.right, v.gold): v.equal for v in known if v.equal is not None}
        self._representatives: dict[str, str] = {}  # of every form that was added
        self.verdicts: list[Verdict] = []
        self.not_asked = 0

    def add(self, form: str) -> str:
        """Add a form to its class; return the key of the class."""
        if form not in self._representatives:
            self._representatives[form] = self._find(form, gold=False) or form
        return self._representatives[form]

    def classes(self, gold: str | None) -> AnswerClasses:
        """Return the classes so far, with the gold (a normal form) joined to one."""
        joined = {form: key for form, key in self._representatives.items() if form != key}
        if gold is None or gold in self._representatives:
            return AnswerClasses(joined, self._representatives.get(gold or "", gold))
        self._budget.next_question()
        return AnswerClasses(joined, self._find(gold, gold=True) or gold)

    def _find(self, form: str, *, gold: bool) -> str | None:
        """Return the first representative that a form is equal to."""
        how = self._comparison
        if how is None:
            return None
        for left, key in self._representatives.items():
            if left != key or (how.comparable and not how.comparable(left, form)):
                continue
            equal = self._known.get((left, form, gold))
            if equal is None:
                if how.costly and not self._budget.has_left():
                    self.not_asked += 1
                    continue
                start = monotonic()
                equal = how.equal(form, left) if gold else how.equal(left, form)
                if how.costly:
                    self._budget.spend(monotonic() - start)
            if how.costly or equal:
                self.verdicts.append(Verdict(left, form, gold, equal))
            if equal:
                return left
        return None


def classify(
    forms: Iterable[str],
    gold: str | None,
    comparison: PairVerdict | None,
    budget: ComparisonBudget | None = None,
    known: Iterable[Verdict] = (),
    later: Iterable[str] = (),
) -> tuple[AnswerClasses, Classifier]:
    """Sort all normal forms of one question into classes, in sorted order, and find its gold's.

    `later` are forms that come behind all others, also in sorted order: they change nothing among
    those.
    """
    classifier = Classifier(comparison, budget, known)
    for form in (*sorted(forms), *sorted(later)):
        classifier.add(form)
    return classifier.classes(gold), classifier


def classes_from_verdicts(verdicts: Sequence[Verdict], gold: str | None) -> AnswerClasses:
    """Return the classes that stored verdicts of a question make; pairs without a verdict are
    different.
    """
    joined = {v.right: v.left for v in verdicts if v.equal and not v.gold}
    right = next((v.left for v in verdicts if v.equal and v.gold), None)
    return AnswerClasses(joined, None if gold is None else joined.get(gold, right or gold))
