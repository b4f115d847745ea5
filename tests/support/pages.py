"""Run the code of a page of the documentation, in order, in one folder.

A fenced block is run by its language: `sh` by a shell whose `feval` is this checkout's, `python` in
an interpreter of its own. What a `text` block shows must have been printed by the block before it,
line by line; `json`, `toml` and `yaml` must be readable; a block without a language is a drawing.
Comments in front of a block, which readers do not see, say more:

    <!-- not run: REASON -->              its commands, options and names must exist all the same
    <!-- run by tests/FOLDER/FILE.py -->  another test runs it, with what it needs
    <!-- before: COMMANDS -->             commands that make what the block takes for granted
"""

import ast
import atexit
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from itertools import groupby
from pathlib import Path
from subprocess import PIPE

import typer
import yaml
from hub_double import HubDouble
from hub_settings import TOKEN
from places import ROOT, SUPPORT

from feval.cli.commands import COMMANDS, app

BLOCK = re.compile(
    r"^((?:<!-- .*? -->\n+)*)```([\w{}-]*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
COMMENT = re.compile(r"<!-- (not run|before|run by)(?::)? (.*?) -->", re.DOTALL)
PROGRAM = f"""#!/bin/sh
exec "{sys.executable}" {{arguments}} "$@"
"""
WARM = SUPPORT / "warm.py"

# What a line about installing stands for where feval is installed already.
SET_UP = {
    "sh examples/demo.sh": "feval demo",
    ". .venv/bin/activate": "true",
    "pip install .": "true",
    "sh tests/run.sh": "true",
    ".ci/run": "true",
}


@dataclass(frozen=True)
class Block:
    """A fenced block of a page: its language, its text and what the comments before it say."""

    language: str
    text: str
    notes: Mapping[str, str]

    @property
    def is_run_here(self):
        """Whether the runner runs it."""
        return self.language in {"sh", "python"} and not self.notes.keys() & {"not run", "run by"}


def blocks(text):
    """Return the fenced blocks of a page; directives of the documentation site are none."""
    return [
        Block(language, code, dict(COMMENT.findall(notes)))
        for notes, language, code in BLOCK.findall(text)
        if not language.startswith("{")
    ]


def page(name):
    """Return the text of a page in `docs/`, such as "methods"."""
    return (ROOT / "docs" / f"{name}.md").read_text("utf-8")


@cache
def warm_server():
    """Return the socket of this process's server of programs that have feval imported already."""
    folder = tempfile.TemporaryDirectory(prefix="feval-warm-")  # a socket's path is short
    address = f"{folder.name}/socket"
    server = subprocess.Popen(
        [sys.executable, WARM, "serve", address],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=PIPE,
        stdout=PIPE,
        start_new_session=True,
    )
    assert server.stdout.read(5) == b"ready"

    @atexit.register
    def end():
        with server:
            server.stdin.close()
        folder.cleanup()

    return address


@contextmanager
def environment_in(folder):
    """Give an environment with this checkout's `feval` and `python`, an empty Hub, and none of a
    user's own settings.
    """
    programs = folder / "bin"
    programs.mkdir()
    warm = f"-I -S '{WARM}' '{warm_server()}'"
    arguments_of = {"feval": f"{warm} feval", "warm-python": warm, "python": "-W error"}
    for name, arguments in arguments_of.items():
        (programs / name).write_text(PROGRAM.format(arguments=arguments))
        (programs / name).chmod(0o755)
    users = ("FEVAL_", "OPENAI_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(users)}
    with HubDouble() as hub:
        yield kept | {
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "COLUMNS": "200",
            "XDG_STATE_HOME": str(folder / "state"),
            "HF_ENDPOINT": hub.url,
            "HF_TOKEN": TOKEN,
            "HF_HOME": str(folder / "hf"),
            "HF_HUB_DISABLE_XET": "1",
        }


def run(block, folder, environment):
    """Run a block and return what it printed."""
    if block.language == "sh":
        lines = f"{block.notes.get('before', '')}\n{block.text}".splitlines()
        script = "\n".join(SET_UP.get(line.split("  #")[0].strip(), line) for line in lines)
        command = ["sh", "-eu", "-c", script]
    else:
        command = ["warm-python", "-c", block.text]
        if "before" in block.notes:
            run(Block("sh", block.notes["before"], {}), folder, environment)
    pipes = {"stdout": PIPE, "stderr": PIPE, "text": True, "start_new_session": True}
    with subprocess.Popen(command, cwd=folder, env=environment, **pipes) as process:
        try:
            said, complained = process.communicate(timeout=300)
        finally:
            with suppress(ProcessLookupError):
                # a server that a block began and did not end
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, f"{block.text}\nsays:\n{said}{complained}"
    return said + complained


def run_page(text, folder, environment):
    """Run the blocks of a page in order; what a `text` block shows must have been printed by the
    block before it.
    """
    said = ""
    for block in blocks(text):
        if block.is_run_here:
            said = run(block, folder, environment)
        elif block.language == "text" and "not run" not in block.notes:
            printed = {line.rstrip() for line in said.splitlines()}
            missing = [line for line in block.text.splitlines() if line.rstrip() not in printed]
            assert missing == [], (
                f"the page shows lines that were not printed; printed was:\n{said}"
            )


READ = {
    "json": lambda text: (
        json.loads(text) if text.startswith("[") else [*map(json.loads, text.splitlines())]
    ),
    "toml": tomllib.loads,
    "yaml": yaml.safe_load,
    "python": ast.parse,
    "text": str,
    "markdown": str,
    "": lambda text: _without_commands(text),
    "sh": lambda text: subprocess.run(["sh", "-n", "-c", text], check=True),
}
"""Language -> what reads a block of it, or raises."""


def _without_commands(text):
    assert not re.search(r"^(\$ )?feval ", text, re.MULTILINE), (
        f"commands in a block without a language:\n{text}"
    )


def check(block):
    """Check a block without running it: its syntax, and that the commands, options and names of
    feval in it exist.
    """
    read = READ[block.language](block.text)
    if block.language == "python":
        missing = [name for name in imported(read) if not exists(name)]
        assert missing == [], f"{block.text}\nimports what is not there: {missing}"
    if block.language == "sh":
        for command in commands(block.text):
            unknown = {word for word in command[1:] if word.startswith("--")} - options(command[0])
            assert not unknown, f"`feval {command[0]}` has no option {', '.join(sorted(unknown))}"
    if file := block.notes.get("run by"):
        assert (ROOT / file).is_file(), f"{file}, which is said to run a block, is not there"


def imported(tree):
    """Yield the dotted names of feval's that a program imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            start = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            names = [start + alias.name for alias in node.names]
            yield from (name for name in names if name.partition(".")[0] in {"feval", "recorders"})


def exists(name):
    """Return whether a dotted name is a module, or an attribute of one."""
    module, _, attribute = name.rpartition(".")
    with suppress(ModuleNotFoundError):
        return not module or hasattr(import_module(module), attribute) or bool(import_module(name))
    return False


def commands(script):
    """Yield the words of each `feval` command of a shell script, options without their values,
    texts in `<<'END'` left out.
    """
    script = re.sub(r"<<'(\w+)'.*?^\1$", "", script, flags=re.MULTILINE | re.DOTALL).replace(
        "\\\n", " "
    )
    for line in script.splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|;&<>()")
        lexer.whitespace_split = True
        for end, command in groupby(lexer, lambda word: set(word) <= set("|;&<>()")):
            words = [] if end else [*command]
            if "feval" in words[:-1]:
                words = words[words.index("feval") + 1 :]
                yield [word.partition("=")[0] for word in words]


@cache
def options(command):
    """Return all options of a command of `feval`, and those of the program."""
    if command.startswith("-"):
        return {"--version", "--help"}
    assert command in COMMANDS, f"there is no `feval {command}`"
    program = typer.main.get_command(app)
    context = program.make_context("feval", [command], resilient_parsing=True)
    parameters = program.get_command(context, command).get_params(context)
    return {option for each in parameters for option in [*each.opts, *each.secondary_opts]} | {
        "--help"
    }


if __name__ == "__main__":  # python -m pages NAME: run a page here, for the pictures that it draws
    with environment_in(Path()) as variables:
        run_page(page(sys.argv[1]), Path(), variables)
