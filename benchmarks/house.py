"""How wide the house is: modules per folder, the longest module, imports in functions, options per
command, lines of code.

"Before" is version 0.1.0 as it stood when the floor plan changed, measured by this very file
(options by Typer's own count).
"""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import typer.main

from benchmarks.measure import ROOT, Goal, Workspace
from feval.cli.commands import COMMANDS, app


@dataclass(frozen=True)
class House:
    """Measures of a source tree.

    Attributes:
        modules: of `feval` and `recorders`.
        flat: files directly in `feval/`.
        widest: modules of the folder that has most.
        longest: lines of the longest module.
        inner_imports: import statements inside functions.
        library_lines: lines of `feval` and `recorders`.
        test_lines: lines of Python under `tests`.
    """

    modules: int
    flat: int
    widest: int
    longest: int
    inner_imports: int
    library_lines: int
    test_lines: int


BEFORE = House(
    modules=293,
    flat=32,
    widest=45,
    longest=1046,
    inner_imports=561,
    library_lines=69_083,
    test_lines=44_722,
)
BEFORE_OPTIONS = (23, 292, 46)
"""Commands, options of all of them, options of the one with most."""


def measured(root: Path) -> House:
    """Measure a checkout."""
    files = [path for package in ("feval", "recorders") for path in (root / package).rglob("*.py")]
    lines = {path: path.read_text("utf-8").count("\n") for path in files}
    return House(
        modules=len(files),
        flat=len(list((root / "feval").glob("*.py"))),
        widest=max(Counter(path.parent for path in files).values()),
        longest=max(lines.values()),
        inner_imports=sum(map(_inner_imports, files)),
        library_lines=sum(lines.values()),
        test_lines=sum(
            path.read_text("utf-8").count("\n") for path in (root / "tests").rglob("*.py")
        ),
    )


def _inner_imports(path: Path) -> int:
    tree = ast.parse(path.read_text("utf-8"))
    functions = [
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    inner = {node for function in functions for node in ast.walk(function)}
    return sum(isinstance(node, ast.Import | ast.ImportFrom) for node in inner)


def options() -> dict[str, int]:
    """Return how many options each command has, `--help` not counted."""
    group = typer.main.get_command(app)
    counts = {}
    for name in COMMANDS:
        command = group.get_command(None, name)  # type: ignore[attr-defined]
        counts[name] = sum(parameter.param_type_name == "option" for parameter in command.params)
    return counts


def goals(_: Workspace) -> list[Goal]:
    """Compare the house with its plan, and with what it was."""
    now, per_command = measured(ROOT), options()
    most = max(per_command, key=lambda name: per_command[name])
    commands, all_options, most_options = BEFORE_OPTIONS
    for folder, count in sorted(Counter(path.parent for path in _sources()).items()):
        print(f"  {folder.relative_to(ROOT).as_posix():<32} {count:>3} modules")
    return [
        Goal("modules", now.modules, None, "", note=f"before: {BEFORE.modules}"),
        Goal("files directly in feval/", now.flat, 8, "", note=f"before: {BEFORE.flat}"),
        Goal("modules in the widest folder", now.widest, 15, "", note=f"before: {BEFORE.widest}"),
        Goal(
            "lines of the longest module", now.longest, 500, "", note=f"before: {BEFORE.longest:,}"
        ),
        Goal(
            "imports inside functions",
            now.inner_imports,
            None,
            "",
            note=f"before: {BEFORE.inner_imports}",
        ),
        Goal("commands", len(per_command), None, "", note=f"before: {commands}"),
        Goal(
            "options of all commands",
            sum(per_command.values()),
            None,
            "",
            note=f"before: {all_options}",
        ),
        Goal(
            f"options of the command with most ({most})",
            per_command[most],
            None,
            "",
            note=f"before: {most_options}",
        ),
        Goal(
            "lines of feval and recorders",
            now.library_lines,
            None,
            "",
            note=f"before: {BEFORE.library_lines:,}",
        ),
        Goal("lines of tests", now.test_lines, None, "", note=f"before: {BEFORE.test_lines:,}"),
    ]


def _sources() -> list[Path]:
    return [path for package in ("feval", "recorders") for path in (ROOT / package).rglob("*.py")]
