"""A recording to forecast from, and what its votes are worth by enumeration."""

from collections import Counter
from fractions import Fraction

from small import letters, write_toy

from feval.replay import load

NAME = "gpt-3.5-turbo"
POOLS = letters("aba-ca", "babbca", "aaaaaa", "cb-bda")
GOLDS = ["a", "a", "a", "a"]


def toy(folder, pools=POOLS, golds=None, llm=NAME):
    golds = ["a"] * len(pools) if golds is None else golds
    dataset, [loaded] = load("toy", [llm], write_toy(folder / "toy", {llm: pools}, golds))
    return dataset, loaded


def credit(answers, gold="a"):
    """What a plurality with ties by lot is worth."""
    votes = Counter(answer for answer in answers if answer is not None)
    top = max(votes.values(), default=0)
    leaders = [answer for answer, count in votes.items() if count == top]
    return Fraction(1, len(leaders)) if gold in leaders else Fraction(0)


def majority(answers, gold="a"):
    right = sum(answer == gold for answer in answers)
    return Fraction(1, 2) if 2 * right == len(answers) else Fraction(int(2 * right > len(answers)))


def mean(values):
    return sum(values, Fraction()) / len(values)


def drawn(dataset, llm, g, replicate):
    return [llm(question, n=g, replicate=replicate).answers for question, _ in dataset]


def accuracies(forecast, method):
    [own] = [one for one in forecast.estimates if one.method == method]
    return [point.accuracy for point in own.points]


def warned(result, *pieces):
    """Whether one of the warnings holds all of these."""
    return any(all(piece in sentence for piece in pieces) for sentence in result.warnings)
