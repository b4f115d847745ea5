"""One question's counts, and what one vote is worth by each rule for ties."""

from collections import Counter
from fractions import Fraction

import numpy as np

SHARES = {
    "uniform": lambda leaders: Fraction(1, leaders),
    "strict": lambda leaders: Fraction(leaders == 1),
    "lenient": lambda _: Fraction(1),
}


def one_question(gold, rivals, no_answer):
    """Its counts, as estimators take them."""
    return np.array([gold]), np.array([rivals], np.int64).reshape(1, -1), np.array([no_answer])


def questions(pools, rng):
    """The counts of several, the rivals of each in any order and beside zeros."""
    padded = [rng.sample(rivals + [0] * (4 - len(rivals)), 4) for _, rivals, _ in pools]
    gold, _, no_answer = zip(*pools, strict=True)
    return np.array(gold), np.array(padded), np.array(no_answer)


def credit(calls, ties):
    """What calls are worth in which 0 is no answer and 1 the gold answer."""
    counts = Counter(call for call in calls if call)
    top = max(counts.values(), default=0)
    if not top or counts[1] < top:
        return Fraction(0)
    return SHARES[ties](sum(count == top for count in counts.values()))
