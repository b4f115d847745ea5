"""Settings of every method in `METHODS` for the contract tests; a method without cases here is
tested with small defaults.
"""

from contextlib import suppress
from dataclasses import fields

from places import read_data

from feval.errors import UsageError
from feval.methods import METHODS


class Case:
    """Fields of a method, and how many LLMs it is given."""

    def __init__(self, llms=1, **settings):
        self.llms, self.settings = llms, settings

    def at_most(self, draws):
        """The same with no field above a number of CoTs."""
        own = {name: min(v, draws) if type(v) is int else v for name, v in self.settings.items()}
        return Case(self.llms, **own)

    def __str__(self):
        return ",".join(f"{name}={value}" for name, value in self.settings.items()) or "defaults"


def cases_as_stored(stored):
    return [
        Case(**{name: tuple(v) if isinstance(v, list) else v for name, v in each.items()})
        for each in stored
    ]


CASES = {name: cases_as_stored(stored) for name, stored in read_data("method_cases.json").items()}
"""Name in METHODS -> cases; the toy recording has three LLMs with eight or more CoTs on each of six
questions.
"""


def cases_of(kind, name=""):
    """The cases of a method: its own, else its defaults with no number above the eight CoTs of the
    toy.
    """
    if name in CASES:
        return CASES[name]
    settings = {f.name: min(f.default, 8) for f in fields(kind) if type(f.default) is int}
    for llms in (1, 2, 3):
        with suppress(UsageError):
            kind(**settings).draws(llms)
            return [Case(llms, **settings)]
    raise AssertionError(
        f"{kind.__name__} takes neither one, two nor three LLMs; give it cases here."
    )


def all_cases():
    """Every method with each of its cases."""
    return [(name, case) for name, kind in METHODS.items() for case in cases_of(kind, name)]
