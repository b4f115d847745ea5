"""A page for each command of `feval`, made from its help into `docs/commands/` when the site is
built, and tables of what `feval import` reads.
"""

from __future__ import annotations

import re
from inspect import getdoc
from pathlib import Path
from typing import Any

import typer
from made import write_pages

from feval.cli.commands import COMMANDS, GROUPS, app
from feval.importers.layouts import Layout
from feval.report.tables.known import KNOWN

TABLES = {"formats": "Formats that are imported", "columns": "Columns that import knows"}
"""What `feval ls` lists, and the title of its page."""


def index_page() -> str:
    """Return the page that lists the commands by their groups."""
    lines = ["# The command line", "", "Every command takes `--json`, `--quiet` and `--help`.", ""]
    for group, commands in GROUPS.items():
        lines += [f"## {group}", ""]
        lines += [
            f"- [feval {name}]({name}.md): {summary}" for name, (summary, _) in commands.items()
        ]
        lines.append("")
    lines += ["## Tables", "", *(f"- [{title}]({name}.md)" for name, title in TABLES.items()), ""]
    toctree = "\n".join([*(f"feval {name} <{name}>" for name in COMMANDS), *TABLES])
    return "\n".join([*lines, "```{toctree}", ":hidden:", "", toctree, "```", ""])


def command_page(name: str) -> str:
    """Return the page of one command: what it does, an example, its arguments and options."""
    program = typer.main.get_command(app)
    context = program.make_context("feval", [name], resilient_parsing=True)
    command: Any = program.get_command(context, name)  # type: ignore[attr-defined]
    own = command.make_context(f"feval {name}", [], parent=context, resilient_parsing=True)
    usage = " ".join([f"feval {name}", *command.collect_usage_pieces(own)])
    lines = [f"# feval {name}", "", f"```text\n{usage}\n```", ""]
    for paragraph in command.help.split("\n\n"):
        text = paragraph.replace("\n", " ")
        if text.startswith("Example"):
            label, _, example = text.partition(": ")
            lines += [f"{label}:", "", f"```text\n{example}\n```", ""]
        else:
            lines += [_linked(text), ""]
    entries = [
        (parameter.param_type_name, parameter.get_help_record(own))
        for parameter in command.get_params(own)
    ]
    arguments = [entry for kind, entry in entries if kind == "argument" and entry]
    options = [
        entry for kind, entry in entries if kind == "option" and entry and "--help" not in entry[0]
    ]
    if arguments:
        lines += ["## Arguments", ""]
        lines += [f"- `{names}`: {_linked(text)}" for names, text in arguments]
        lines.append("")
    lines += ["## Options", "", f"```{{program}} feval {name}\n```", ""]
    for names, text in options:
        lines += [f"```{{option}} {names.replace(' / ', ', ')}", "", _linked(text), "```", ""]
    return "\n".join(lines)


def table_page(name: str) -> str:
    """Return the page of one list of `feval ls`; that of formats has the keys of layouts."""
    guide = "[Importing](../importing.md)"
    lines = [f"# {TABLES[name]}", "", f"`feval ls {name}` prints this. {guide} says how.", ""]
    rows = KNOWN[name]()
    heads = list(rows[0])
    cells = [[_cell(row.get(head)) for head in heads[1:]] for row in rows]
    names = [f"`{row[heads[0]]}`" for row in rows]
    heads = [head.replace("_", " ") for head in heads]
    lines += _table(heads, [[name, *own] for name, own in zip(names, cells, strict=True)])
    if name == "formats":
        keys = re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", getdoc(Layout) or "", re.MULTILINE)
        lines += ["", "## Keys of a layout", ""]
        lines += ["A [layout](../import-rows.md#layouts) is a TOML file with these keys.", ""]
        lines += _table(
            ["key", "meaning"],
            [[f"`{key}`", _linked(" ".join(text.split()))] for key, text in keys if key != "named"],
        )
    return "\n".join([*lines, ""])


def _table(heads: list[str], rows: list[list[str]]) -> list[str]:
    lines = [heads, ["---"] * len(heads), *rows]
    return [f"| {' | '.join(each)} |" for each in lines]


def _cell(value: Any) -> str:
    return _linked(", ".join(value) if isinstance(value, list | tuple) else str(value or ""))


def _linked(text: str) -> str:
    """Markdown for a text of the help: pages that it names are links, and placeholders stay as they
    are.
    """
    parts = text.split("`")
    for place in range(0, len(parts), 2):
        plain = re.sub(
            r"(?<!\w)--[a-z][\w-]*|[<*_]",
            lambda found: f"`{found[0]}`" if len(found[0]) > 1 else f"\\{found[0]}",
            parts[place],
        )
        parts[place] = re.sub(r"docs/([\w-]+)\.md", r"[\1](../\1.md)", plain)
    return "`".join(parts)


NAMED = re.compile(r"(?<!\[)`feval (?:ls (?:" + "|".join(TABLES) + r")|(?:\w+ )?--help)`")


def _read(_app: Any, name: str, source: list[str]) -> None:
    """Make links of the commands that print what a page of these says: a checkout lacks the pages,
    so that a link to them would lead nowhere there.
    """
    folder = "../" * name.count("/") + "commands"

    def linked(found: re.Match[str]) -> str:
        words = found[0].strip("`").removesuffix(" --help").split()
        return f"[{found[0]}]({folder}/{words[-1] if words[1:] else 'index'}.md)"

    if not name.startswith("commands/"):
        source[0] = NAMED.sub(linked, source[0])


def setup(app: Any) -> dict[str, bool]:
    """Write the pages before Sphinx looks for its sources."""
    pages = {"index": index_page()} | {name: command_page(name) for name in COMMANDS}
    pages |= {name: table_page(name) for name in TABLES}
    app.connect("builder-inited", lambda app: write_pages(Path(app.srcdir) / "commands", pages))
    app.connect("source-read", _read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
