"""The table of commands, and what happens around each: exit codes, error sentences, signals.

Exit codes: 0 done; 1 the work failed; 2 wrong usage; 128 + n ended by signal n (130: Ctrl-C). No
traceback reaches a user; FEVAL_DEBUG=1 shows the one of an unexpected error.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import inspect
import os
import shlex
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from importlib import import_module
from typing import Annotated, Any, NoReturn, ParamSpec, get_args, get_origin

import typer
from typer import Argument, Option
from typer.core import TyperGroup
from typer.models import ParameterInfo

from feval import __version__
from feval.cli.interrupts import INTERRUPTED, end_at_once
from feval.cli.output import Output, say
from feval.errors import FevalError, FevalWarning, command_line
from feval.executors import set_progress
from feval.publish.secrets import shown
from feval.values import Record

_P = ParamSpec("_P")
_QUIET = ContextVar("_QUIET", default=False)  # --quiet, the program's own option
_TYPED = ContextVar[tuple[str, ...]]("_TYPED", default=())  # all words behind `feval`
Decorator = Callable[[Callable[..., None]], Callable[..., None]]


GROUPS = {
    "Start here": {
        "demo": ("See it work, offline, in seconds.", "record:demo"),
        "record": ("Ask an LLM once per CoT and keep everything.", "record:record"),
        "curve": ("Accuracy against cost of one method.", "evaluate:curve"),
        "ls": ("Datasets and their questions, LLMs, prices, methods.", "known:ls"),
    },
    "Recordings": {
        "import": ("Make a recording from an existing file.", "recordings:import_"),
        "info": ("Show what a recording holds.", "recordings:info"),
        "show": ("List the questions, show one with its CoTs, or make a page.", "recordings:show"),
        "verify": ("Check a recording, or the numbers of a receipt.", "recordings:verify"),
        "select": ("Make a smaller recording.", "recordings:select"),
        "merge": ("Join recordings into a new one.", "recordings:merge"),
        "extract": ("Extract the answers again.", "recordings:extract"),
        "export": ("Write the CoTs as a table, or for another tool.", "recordings:export"),
        "score": ("Score the CoTs with a reward model, judge or table.", "record:score"),
        "push": ("Publish a recording on the Hugging Face Hub.", "hub:push"),
        "pull": ("Fetch a recording from the Hub.", "hub:pull"),
    },
    "Methods": {
        "run": ("Run one method on a dataset.", "evaluate:run"),
        "surface": ("Accuracy over width and depth of traces.", "evaluate:surface"),
        "compare": ("Compare methods over a range of budgets.", "compare:compare"),
        "reprice": ("What a result costs at other prices.", "evaluate:reprice"),
        "couple": ("Compare LLMs that were sampled with the same noise.", "forecast:couple"),
        "estimate": ("Forecast vote accuracy from a few calls.", "forecast:estimate"),
        "plan": ("Decide what to buy with a budget.", "forecast:plan"),
    },
    "Servers": {
        "serve": ("Serve a recording as OpenAI would.", "servers:serve"),
        "grade": ("Grade a client's answers by the server's ledger.", "evaluate:grade"),
        "proxy": ("Record what a client asks of a live endpoint.", "servers:proxy"),
        "tiny-server": ("Serve the small LLMs that come with feval.", "servers:tiny_server"),
    },
}
"""Heading -> name -> line in `feval --help`, in its order, and `module:function` below `feval.cli`,
imported on demand.
"""

COMMANDS = {name: about for commands in GROUPS.values() for name, about in commands.items()}


class _Commands(Record):
    """The commands for Typer, each built from its module when it is looked up."""

    def __init__(self) -> None:
        super().__init__(dict.fromkeys(COMMANDS))

    def get(self, name: str, default: Any = None) -> Any:
        if name not in COMMANDS:
            return default
        if self[name] is None:
            module, _, function = COMMANDS[name][1].partition(":")
            try:
                command = getattr(import_module(f"feval.cli.{module}"), function)
            except FevalError as error:  # an extra is not installed
                _fail(str(error), error.exit_code)
            single = typer.Typer(**_LOOKS, add_completion=False)
            single.command(name)(_guarded(_with_output(command)))
            self[name] = made = typer.main.get_command(single)
            for parameter in made.params:
                parameter.secondary_opts = []  # nothing has a --no-NAME
        return self[name]


class _Group(TyperGroup):
    """The program: lists its commands by group, and imports none of them to do so."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = _Commands()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        # --quiet may also stand behind the command, where every other option does.
        _TYPED.set(tuple(args))
        quiet = [each for each in args if each in {"-q", "--quiet"}]
        return super().parse_args(ctx, quiet + [each for each in args if each not in quiet])

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002  the signature is Typer's
        width = max(map(len, COMMANDS))
        formatter.write("\n")
        for group, commands in GROUPS.items():
            formatter.write(f"{group}:\n")
            for name, (summary, _) in commands.items():
                formatter.write(f"  {name:{width}}  {summary}\n")


_LOOKS: Record = {
    "rich_markup_mode": None,  # rich would cost every call, `--help` too, a tenth of a second
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"], "max_content_width": 100},
}

app = typer.Typer(
    name="feval",
    cls=_Group,
    help=(
        "Record chains of thought once; replay test-time-compute methods on them. `feval COMMAND"
        " --help` explains a command; all take --json and --quiet."
    ),
    no_args_is_help=True,
    add_completion=False,
    **_LOOKS,
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"feval {__version__}")
        raise typer.Exit


@app.callback()
def _feval(
    version: Annotated[  # noqa: ARG001  its callback prints it
        bool,
        Option("--version", callback=_version, is_eager=True, help="Print the version and exit."),
    ] = False,
    quiet: Annotated[
        bool, Option("--quiet", "-q", help="Print nothing but errors (and what --json asks for).")
    ] = False,
) -> None:
    _QUIET.set(quiet)


def run() -> None:
    """Run the command that was asked for."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # a terminal that lacks a letter is no reason to fail
            stream.reconfigure(errors="backslashreplace")
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        # under nohup, SIGHUP is to be ignored
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _interrupt)
    try:
        app(prog_name="feval")
    except KeyboardInterrupt as error:
        sys.exit(_interrupted_code(error))
    except OSError as error:  # help or the version onto a full disk: no command has run
        say(f"error: {_disk_sentence(error)}")
        sys.exit(1)


def _interrupt(number: int, _: object) -> NoReturn:
    """End on SIGTERM (a scheduler) or SIGHUP (a closed terminal) as on Ctrl-C, so that half a
    recording is removed.
    """
    raise KeyboardInterrupt(number)


def _interrupted_code(error: KeyboardInterrupt) -> int:
    return 128 + int(error.args[0] if error.args else signal.SIGINT)


def expanded(
    name: str, parameters: Sequence[inspect.Parameter], build: Callable[[Record], Any]
) -> Decorator:
    """Make a decorator that puts parameters in place of the one of this name, which is built from
    their values.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)

        @functools.wraps(command)
        def run(**arguments: Any) -> None:
            values = {parameter.name: arguments.pop(parameter.name) for parameter in parameters}
            command(**arguments, **{name: build(values)})

        every = [
            _annotated(new)
            for old in signature.parameters.values()
            for new in (parameters if old.name == name else [old])
        ]
        run.__signature__ = signature.replace(parameters=every)  # type: ignore[attr-defined]  # Typer reads it
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in every}
        return run

    return decorate


def _annotated(parameter: inspect.Parameter) -> inspect.Parameter:
    """Move an option from where a default stands into the annotation, where Typer wants it. By
    default one that may be `None` is so, and a flag is off; any other has to be given.
    """
    kind, default = parameter.annotation, parameter.default
    if isinstance(default, ParameterInfo):
        kind, default = Annotated[kind, default], parameter.empty
    if default is parameter.empty and get_origin(kind) is Annotated:
        value = get_args(kind)[0]
        default = None if type(None) in get_args(value) else False if value is bool else default
    return parameter.replace(annotation=kind, default=default, kind=parameter.KEYWORD_ONLY)


def keyword(
    name: str, annotation: Any, default: Any = inspect.Parameter.empty
) -> inspect.Parameter:
    """Make a keyword parameter."""
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


def option(text: str, metavar: str | None = None, name: str | None = None, **more: Any) -> Any:
    """Make an option with its help; `metavar` stands for its value, and its name is that of the
    parameter, unless it is given. One of truth values is a flag.
    """
    return Option(*filter(None, [name]), help=text, metavar=metavar, **more)


def argument(text: str, metavar: str) -> Any:
    """Make a positional argument with its help."""
    return Argument(metavar=metavar, help=text, show_default=False)


def _with_output(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command --json; what it prints with comes as `show`."""
    as_json = option("Print one JSON object and nothing else.", name="--json")
    parameters = [keyword("as_json", bool, as_json)]
    return expanded("show", parameters, lambda values: Output(**values, quiet=_QUIET.get()))(
        command
    )


def _guarded(command: Callable[_P, None]) -> Callable[_P, None]:
    """Turn whatever a command raises into one sentence on standard error and an exit code."""

    @command_line()
    @functools.wraps(command)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> None:
        try:
            quiet = _QUIET.get()
            with (
                _interruptible(),
                _progress(shown=not (quiet or kwargs.get("as_json"))),
                _warnings_as_notes(quiet=quiet),
            ):
                command(*args, **kwargs)
            print(end="", flush=True)  # so that a reader that has gone is noticed here
        except FevalError as error:
            sentence = str(error)
            if error.add:
                sentence += f" Run: {completed_command(error)}"
            _fail(sentence, error.exit_code)
        except BrokenPipeError:
            # The reader (`| head`) has seen enough. What Python still buffers goes nowhere, or it
            # would complain at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(1) from None
        except KeyboardInterrupt as error:
            _fail(INTERRUPTED, _interrupted_code(error))
        except OSError as error:
            _fail(_disk_sentence(error), 1)
        except MemoryError:
            _fail("There is not enough memory for this. Select fewer questions, LLMs or CoTs.", 1)
        except (typer.Exit, typer.Abort, typer.BadParameter):
            raise
        except Exception as error:  # noqa: BLE001 - a bug of ours: its traceback is for us, not for the user
            if os.environ.get("FEVAL_DEBUG"):
                print(shown("".join(traceback.format_exception(error))), file=sys.stderr)
            _fail(
                f"feval {__version__} met something it did not expect ({type(error).__name__}:"
                f" {error}). This is a bug in feval: please report it with what you ran and what"
                " FEVAL_DEBUG=1 prints in front of the same command.",
                1,
            )

    return run


def completed_command(error: FevalError) -> str:
    """Return the command that was typed, with the options that an error says are missing."""
    typed = [each for each in _TYPED.get() if each != "--dry-run"]
    options = [word for name, value in error.add for word in (f"--{name}", value)]
    return shlex.join(["feval", *typed, *options])


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C raise a `KeyboardInterrupt` while a command works, so that what is half done is
    removed.
    """
    # not the main program, or one in the background
    if signal.getsignal(signal.SIGINT) is not end_at_once:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, end_at_once)


@contextlib.contextmanager
def _progress(*, shown: bool) -> Iterator[None]:
    """Show how far work is on terminals, or nowhere."""
    before = set_progress(None if shown else False)
    try:
        yield
    finally:
        set_progress(before)


@contextlib.contextmanager
def _warnings_as_notes(*, quiet: bool) -> Iterator[None]:
    """Print warnings of feval as notes; other warnings stay as they are."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if quiet else "always", FevalWarning)
        usual, said = warnings.showwarning, set[str]()

        def show(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
            if str(message) in said:
                return
            if issubclass(category, FevalWarning):
                said.add(str(message))
                say(f"note: {message}")
            else:
                usual(message, category, *rest, **more)

        warnings.showwarning = show
        yield


def _disk_sentence(error: OSError) -> str:
    where = f"{error.filename}" if error.filename else "The output"
    if error.errno in {errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)}:
        return (
            f"{where} could not be written because the disk is full. Make room there, or write to"
            " another disk."
        )
    return (
        f"{where} could not be read or written: {error.strerror or error}. Check the path and its"
        " permissions."
    )


def _fail(sentence: str, code: int) -> NoReturn:
    say(f"error: {sentence}")
    raise typer.Exit(code)
