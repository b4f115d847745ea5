"""Every public estimator says what it takes, what it gives, where it is from and what it assumes."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable
from typing import Any

import pytest

import feval.estimators

SOURCE = re.compile(
    r"arXiv|doi:|https://|[Ee]qs?\. ?\(?\d|Theorem|Prop\.|[Ff]eval's own|Figure \d|\(\d{4}\b|\d{4}, (chapter|section)s? \d"
    r"|Compute-efficient evaluation of\s+LLM\s+voting\s+accuracy"
)


def modules() -> list[pkgutil.ModuleInfo]:
    walked = pkgutil.walk_packages(feval.estimators.__path__, "feval.estimators.")
    return [module for module in walked if not module.ispkg]


def public_functions() -> list[tuple[str, Callable[..., Any]]]:
    found = []
    for module in modules():
        loaded = importlib.import_module(module.name)
        members = ((name, getattr(loaded, name)) for name in loaded.__all__)
        found += [
            (f"{module.name.rpartition('.')[2]}.{name}", member)
            for name, member in members
            if inspect.isfunction(member)
        ]
    return found


FUNCTIONS = public_functions()


@pytest.mark.parametrize(("name", "function"), FUNCTIONS, ids=[name for name, _ in FUNCTIONS])
def test_a_public_estimator_documents_itself(name: str, function: Callable[..., Any]) -> None:
    told = inspect.getdoc(function) or ""
    signature = inspect.signature(function)
    for parameter in signature.parameters:
        assert re.search(rf"^ +(\w+, )*{parameter}(, \w+)*: ", told, re.MULTILINE), (
            f"{name} does not document {parameter}"
        )
    if signature.return_annotation not in (None, "None"):
        assert "Returns:" in told, name
    assert SOURCE.search(told), f"{name} does not say where it is from"
    assert re.search("[Aa]ssum", told), f"{name} does not say what it assumes"


def test_the_table_of_modules_names_every_one() -> None:
    listed = set(re.findall(r"`(\w+)`", feval.estimators.__doc__ or ""))
    assert {module.name.rpartition(".")[2] for module in modules()} <= listed
