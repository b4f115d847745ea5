"""Every public estimator says what it takes, what it gives, where it is from and what it
assumes.
"""

import importlib
import inspect
import pkgutil
import re

import pytest
from places import ROOT

import feval.estimators

SOURCE = re.compile(
    r"arXiv|arxiv|doi:|https://|[Ee]qs?\. ?\(?\d|Theorem|Prop\.|[Ff]eval's\s+own|Figure"
    r" \d|\(\d{4}\b|\d{4}, (chapter|section)s? \d"
    r"|Compute-efficient evaluation of\s+LLM\s+voting\s+accuracy|\bCEV\b"
)


def modules():
    walked = pkgutil.walk_packages(feval.estimators.__path__, "feval.estimators.")
    return [module for module in walked if not module.ispkg]


def building_blocks():
    """Functions that other modules of feval import and no page of the docs names: one sentence is
    enough for those.
    """
    code = "".join(path.read_text("utf-8") for path in (ROOT / "feval").rglob("*.py"))
    imports = re.findall(
        r"^ *from feval\.estimators[\w.]* import (\([^)]*\)|.*)", code, re.MULTILINE
    )
    imported = set(re.findall(r"(?<! as )\b\w+", " ".join(imports)))
    docs = ROOT / "docs"  # without the pages that the site is built from
    pages = " ".join(
        path.read_text("utf-8") for path in [*docs.glob("*.md"), *docs.glob("api/*.md")]
    )
    return imported - set(re.findall(r"\w+", pages))


def public_functions():
    """(name, function, its module's docstring)."""
    functions, internal = [], building_blocks()
    for module in modules():
        loaded = importlib.import_module(module.name)
        functions += [
            (f"{module.name.rpartition('.')[2]}.{name}", member, loaded.__doc__ or "")
            for name, member in vars(loaded).items()
            if inspect.isfunction(member)
            and member.__module__ == module.name
            and name[0] != "_"
            and name not in internal
        ]
    return functions


FUNCTIONS = public_functions()


@pytest.mark.parametrize(
    ("name", "function", "module"), FUNCTIONS, ids=[name for name, *_ in FUNCTIONS]
)
def test_a_public_estimator_documents_itself(name, function, module):
    docstring = inspect.getdoc(function) or ""
    signature = inspect.signature(function)
    for parameter in signature.parameters:
        assert re.search(rf"^ +(\w+, )*{parameter}(, \w+)*: ", docstring, re.MULTILINE), (
            f"{name}: {parameter} is not documented"
        )
    if signature.return_annotation not in (None, "None") and not docstring.startswith(
        ("Return", "Broadcast")
    ):
        assert "Returns:" in docstring, name
    # What holds for a whole module is said once, in the module's docstring.
    assert SOURCE.search(docstring + module), f"{name} does not say where it is from"
    assert re.search("[Aa]ssum", docstring + module), f"{name} does not say what it assumes"


def test_the_tables_of_modules_name_every_one():
    for module in modules():
        folder, _, name = module.name.rpartition(".")
        listed = re.findall(r"`(\w+)`", importlib.import_module(folder).__doc__ or "")
        assert name in listed, module.name
