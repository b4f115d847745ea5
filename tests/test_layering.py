"""The house: rows and imports as `docs/architecture.md` draws them, and what is forbidden stays
out.

Imports are read from the syntax trees, wherever they stand: at the top, inside functions and under
`TYPE_CHECKING`. A type is an arrow too, and a lazy import of a lower row would be a cycle that
waits for its moment.
"""

from __future__ import annotations

import ast
import re
import sys
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter

import pytest
from places import ROOT

# The rows of `docs/architecture.md`, top to bottom.
ROWS = (
    "errors", "values", "arguments", "lazy", "executors", "answers", "cards", "recording",
    "importers", "exporters", "hub", "estimators",
    "replay", "methods", "evaluation", "comparison", "forecast", "receipts", "report", "publish",
    "appendlog", "compat", "serving", "cli",
    "__main__",
)  # fmt: skip
RECORDER_ROWS = (
    "errors", "shared_noise", "request", "journal", "tiny", "backends", "asking", "scoring", "work",
    "servers", "live", "demo",
)  # fmt: skip

SEAMS = {
    "feval.answers._math_worker": {"importlib", "math_verify", "resource"},
    "feval.cards.prices": {"genai_prices"},
    "feval.cards.reading": {"tomllib"},
    "feval.cards.tokens": {"tiktoken"},
    "feval.cli": {"feval.cli.commands.run"},
    "feval.cli.evaluate": {
        "feval.cli.compare.show_comparison",
        "feval.comparison.listed.listed_plan",
    },
    "feval.cli.known": {"feval.hub.datasets"},
    "feval.cli.output": {"rich"},
    "feval.cli.recordings": {
        "feval.exporters.export_recording",
        *(f"feval.importers.{name}" for name in ("IMPORTERS", "import_recording", "understood")),
    },
    "feval.cli.record": {"feval.importers.scores.import_scores"},
    "feval.estimators.intervals": {"scipy", "statistics"},
    "feval.evaluation.user_methods.worker": {"feval.cards.prices.PriceList"},
    "feval.evaluation.user_methods": {"feval.evaluation.user_methods.host.MethodHost"},
    "feval.executors": {f"feval.executors.workers.{name}" for name in ("Processes", "connected")},
    "feval.executors.workers": {"distributed"},
    "feval.executors.progress": {"rich", "tqdm"},
    "feval.hub.datasets": {"feval.hub.snapshots.question_files"},
    "feval.hub.places": {"feval.hub.recordings.open_remote", "feval.hub.recordings.pull"},
    "feval.hub.snapshots": {"datasets"},
    "feval.recording.layout.format": {"orjson"},
    "feval.recording.content": {"orjson"},
    "feval.replay.draws": {"tempfile"},
    "feval.report.pictures.drawing": {"matplotlib"},
    "feval.appendlog": {"fcntl"},
    "feval.serving.replaying": {f"feval.serving.server.{n}" for n in ("Server", "replay_routes")},
    "feval.serving.server": {"resource"},
    "recorders.backends.openai_compatible": {"openai"},
    "recorders.backends.local": {"torch", "transformers"},
}
"""Module -> what it imports inside functions: optional packages, and heavy ones that most commands
do without.
"""

NETWORK = {
    "aiohttp", "dask", "distributed", "ftplib", "http", "httpcore", "httpcore2", "httptools",
    "httpx", "httpx2",
    "huggingface_hub", "openai", "requests", "smtplib", "socket", "socketserver", "ssl",
    "starlette", "urllib.error",
    "urllib.request", "urllib3", "uvicorn", "uvloop",
    "websockets", "xmlrpc",
}  # fmt: skip
NETWORK_ROWS = ("executors", "hub", "serving")  # and every recorder

CODE_IN_DATA = {
    "cloudpickle",
    "dill",
    "joblib",
    "jsonpickle",
    "marshal",
    "pickle",
    "runpy",
    "shelve",
}
CODE_CALLS = {"__import__", "compile", "eval", "exec"}
SCRIPT_RUNNER = "feval.compat.__main__"
"""Runs the script that a user names on its command line, as `python SCRIPT.py` does."""
# reproduces the reference's seeded runs, which draw from `random`
RANDOM_MODULE = "feval.compat.feval_ttc"

# Streams that NumPy promises never to change, and the types a caller may hand us.
STABLE_RANDOM = {"BitGenerator", "Generator", "Philox", "SeedSequence"}


@dataclass(frozen=True)
class Module:
    """One source file under its dotted name."""

    name: str
    tree: ast.Module
    is_package: bool = False

    @property
    def row(self):
        """The row the module belongs to; "" for the package itself."""
        return self.name.partition(".")[2].partition(".")[0]


@cache
def modules():
    result = []
    for path in sorted([*ROOT.glob("feval/**/*.py"), *ROOT.glob("recorders/**/*.py")]):
        parts = path.relative_to(ROOT).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        result.append(Module(name, ast.parse(path.read_text("utf-8"), str(path)), is_package))
    return result


def planted(name, source):
    return Module(name, ast.parse(source))


@cache
def imports(module):
    """Return line and dotted name of everything imported; `from a import b` is `a.b`, and relative
    names are made absolute.
    """
    return [found for node in ast.walk(module.tree) for found in imported(module, node)]


def imported(module, node):
    if isinstance(node, ast.Import):
        yield from ((node.lineno, alias.name) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            package = module.name.split(".") if module.is_package else module.name.split(".")[:-1]
            parents = package[: len(package) - node.level + 1]
            base = ".".join([*parents, base] if base else parents)
        yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def imports_in_functions(module):
    """Return the top-level packages that functions of a module import; of ours, the module."""
    functions = (
        node
        for node in ast.walk(module.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    names = {
        name
        for function in functions
        for node in ast.walk(function)
        for _, name in imported(module, node)
    }
    ours = {"feval", "recorders"}
    return {name if name.partition(".")[0] in ours else name.partition(".")[0] for name in names}


def is_or_lies_in(name, packages):
    return any(name == package or name.startswith(package + ".") for package in packages)


def upward(module):
    """Return the imports of feval and recorders that point down, sideways, or nowhere."""
    wrong = []
    for line, name in imports(module):
        package, _, inner = name.partition(".")
        row = inner.partition(".")[0]
        if package not in {"feval", "recorders"} or inner == "__version__":
            continue
        own = module.name.partition(".")[0]
        if not module.row and package == own:
            allowed = True  # the face of a package lists what is in it
        elif package == "recorders":
            allowed = (
                module.row == "cli" if own == "feval" else in_order(RECORDER_ROWS, module.row, row)
            )
        elif own == "recorders":
            allowed = row != "cli"
        else:
            allowed = in_order(ROWS, module.row, row)
        if not allowed:
            wrong.append(f"{module.name}:{line} imports {name}")
    return wrong


def in_order(rows, importer, row):
    """Whether a row may import another: itself, or one above it."""
    return importer in rows and row in rows and rows.index(row) <= rows.index(importer)


def forbidden(module):
    """The uses of the network, of code in data and of global randomness outside the places that may
    have them.
    """
    wrong = []
    doors = module.name.startswith("recorders") or module.row in NETWORK_ROWS
    for line, name in imports(module):
        if is_or_lies_in(name, NETWORK) and not doors:
            wrong.append(
                f"{module.name}:{line} imports {name}: the network has two doors, hub and recorders"
            )
        if is_or_lies_in(name, CODE_IN_DATA) and module.name != SCRIPT_RUNNER:
            wrong.append(f"{module.name}:{line} imports {name}: data must never become code")
        if is_or_lies_in(name, {"random"}) and module.name != RANDOM_MODULE:
            wrong.append(f"{module.name}:{line} imports {name}: randomness is an argument")
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call):
            wrong.extend(f"{module.name}:{node.lineno} {words}" for words in forbidden_call(node))
    return wrong


def forbidden_call(call):
    function = ast.unparse(call.func)
    if function in CODE_CALLS or function in {
        "yaml.unsafe_load",
        "yaml.full_load",
        "yaml.Loader",
        "yaml.UnsafeLoader",
    }:
        yield f"calls {function}: data must never become code"
    if any(
        keyword.arg == "allow_pickle" and ast.unparse(keyword.value) != "False"
        for keyword in call.keywords
    ):
        yield f"calls {function} with allow_pickle: data must never become code"
    if (
        function.startswith(("np.random.", "numpy.random."))
        and function.split(".")[2] not in STABLE_RANDOM
    ):
        yield f"calls {function}: randomness is an argument, and its stream must never change"


def test_every_module_stands_in_a_row():
    rows = {"feval": ROWS, "recorders": RECORDER_ROWS}
    strays = [
        module.name
        for module in modules()
        if module.row and module.row not in rows[module.name.partition(".")[0]]
    ]
    assert not strays, "these modules stand in no row of the architecture"


def test_the_architecture_page_lists_the_rows():
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    table = page.partition("## Rows")[2].partition("\n## ")[0]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    assert re.findall(r"`(\w+)/?`", "".join(cells)) == [*ROWS, *RECORDER_ROWS]


def test_a_module_imports_only_from_rows_above_its_own():
    assert [line for module in modules() for line in upward(module)] == []


def test_two_modules_are_called_by_name_from_above():
    # What is shown in Python calls `report` when it is looked at, and a recording `exporters` for
    # tables; see `feval.lazy`.
    rows = {module.name: module.row for module in modules() if module.name.startswith("feval.")}
    called = {
        (module.name, node.value)
        for module in modules()
        if module.name in rows
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if node.value in rows and not in_order(ROWS, module.row, rows[node.value])
    }
    assert called == {("feval.lazy", "feval.report.views"), ("feval.lazy", "feval.exporters.arrow")}


def test_no_imports_run_in_a_circle():
    names = {module.name for module in modules()}
    graph = {}
    for module in modules():
        targets = graph.setdefault(module.name, set())
        # What a facade names for type checkers is loaded on first use.
        facade = module.is_package and "lazy_names" in ast.dump(module.tree)
        for _, name in () if facade else imports(module):
            while name and name not in names:
                name = name.rpartition(".")[0]
            if name not in {"", "feval", module.name}:
                targets.add(name)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_functions_import_only_at_the_seams():
    assert {
        module.name: names for module in modules() if (names := imports_in_functions(module))
    } == SEAMS


def test_network_pickle_eval_and_global_randomness_stay_out():
    assert [line for module in modules() for line in forbidden(module)] == []


def test_no_pattern_has_a_possessive_group():
    # Python before 3.11.5 (Debian 12 has 3.11.2) loses its place in one, so answers would differ
    # between machines.
    possessive_group = re.compile(r"\)(?:[*+?]|\{\d*,?\d*\})\+")
    found = [
        f"{module.name}:{node.lineno}"
        for module in modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and possessive_group.search(node.value)
    ]
    assert found == [], "write (?>(?:...)+) instead of (?:...)++"


def test_estimators_take_arrays_only():
    allowed = {"numpy", "scipy", "feval.errors", "feval.estimators"} | set(sys.stdlib_module_names)
    strangers = [
        f"{module.name}:{line} imports {name}"
        for module in modules()
        if module.row == "estimators"
        for line, name in imports(module)
        if not is_or_lies_in(name, allowed)
    ]
    assert strangers == []


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("feval.cards.prices", "from feval.cli import main"),
        ("feval.cards.prices", "def f():\n    from feval.recording import merge"),
        ("feval.cards.prices", "from ..evaluation.curves import Curve"),
        ("feval.cards.prices", "from feval import load"),
        ("feval.cards.prices", "import feval.replay"),
        ("recorders.journal", "from recorders.asking import engine"),
        ("feval.recording.reader", "from ..importers import jsonl"),
        (
            "feval.recording.reader",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from feval.replay import LLM",
        ),
        ("feval.replay", "import recorders"),
        ("feval.nowhere", "from feval.errors import FevalError"),
        ("recorders.backends.openai", "from feval.cli import main"),
    ],
)
def test_an_arrow_that_points_down_is_seen(name, source):
    assert len(upward(planted(name, source))) == 1


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("feval.evaluation.curves", "from feval.replay import LLM\nfrom feval import errors"),
        ("feval.recording.reader", "from .content import Votes\nfrom ..errors import FevalError"),
        ("feval.recording.writer", "from feval import __version__"),
        ("feval.cli.record", "from recorders import anything\nfrom feval.report import x"),
        ("recorders.backends.openai", "from recorders import journal"),
        ("feval", "from feval.replay import load"),
        ("feval.hub", "import huggingface_hub"),
        ("feval.serving.http", "import uvicorn"),
        ("recorders.backends.openai", "import openai"),
        ("feval.compat.feval_ttc", "import random"),
        ("feval.cards.prices", "from urllib.parse import quote\nnp.random.Philox(key=1)"),
        ("feval.cards.prices", "np.load(path, allow_pickle=False)"),
    ],
)
def test_an_arrow_that_points_up_passes_and_what_has_its_place_there(name, source):
    module = planted(name, source)
    assert upward(module) == forbidden(module) == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from urllib.request import urlopen",
        "from urllib import request",
        "import http.client",
        "def f():\n    import huggingface_hub",
        "import random",
        "eval('1')",
        "np.load(path, allow_pickle=True)",
        "np.random.default_rng(0)",
        "numpy.random.shuffle(x)",
    ],
)
def test_what_is_forbidden_is_seen(source):
    assert len(forbidden(planted("feval.cards.prices", source))) == 1


# a whole command, or an option with its argument
SAID_IN_PYTHON = re.compile(
    r"feval [a-z](?:[^`(),.;]|\.(?=\w))*|--[a-z][^(),;]*? \(in Python: [^()]*\)"
)
OPTION = re.compile(r"(?<![\w-])--([a-z][a-z-]+)")
ASKED_OTHERWISE = {"drop", "set"}
"""Options that `errors.spoken` knows the arguments of."""
ONLY_TYPED = {"all", "allow_field", "api_key_env", "from", "probe_every", "protocol"}
"""Options of commands whose messages Python never shows."""


def said(node):
    """Yield the texts of a tree, without docstrings; X stands for what is filled in."""
    if isinstance(node, ast.JoinedStr):
        yield "".join(each.value if isinstance(each, ast.Constant) else "X" for each in node.values)
    elif isinstance(node, ast.Constant):
        yield str(node.value)
    elif not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
        for child in ast.iter_child_nodes(node):
            yield from said(child)


def test_an_option_that_a_message_names_is_an_argument_in_python():
    trees = [each.tree for each in modules() if not is_or_lies_in(each.name, ["feval.cli"])]
    known = {node.arg for tree in trees for node in ast.walk(tree) if isinstance(node, ast.arg)}
    named = {
        option.replace("-", "_")
        for tree in trees
        for text in said(tree)
        if " " in text.strip()
        for option in OPTION.findall(SAID_IN_PYTHON.sub("", text))
    }
    assert {"prices", "questions"} < named
    assert named <= known | ASKED_OTHERWISE | ONLY_TYPED


def test_only_imports_and_recordings_count_tokens_with_a_vocabulary():
    """A vocabulary is fetched when its counter is made, so nothing that reads a recording makes
    one.
    """
    making = {
        module.name
        for module in modules()
        for _, name in imports(module)
        if name in {"feval.cards.token_counter", "feval.cards.tokens.token_counter"}
    } - {"feval.cards"}  # which lists the name
    assert making == {
        "feval.importers.conversion", "feval.cli.servers", "recorders.live.recording",
        "recorders.work.record",
        "recorders.work.seal",
    }  # fmt: skip
    loading = {
        module.name
        for module in modules()
        for _, name in imports(module)
        if name.split(".")[0] == "tiktoken"
    }
    assert loading == {"feval.cards.tokens"}
