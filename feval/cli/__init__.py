"""The command line: parses, delegates, prints. Nothing heavy is imported before a command runs.

Exit codes: 0 done, 1 the work failed, 2 wrong usage, 3 the numbers of a receipt differ and their meaning has changed since it was
written (`feval verify`), 128 + n ended by signal n (130: Ctrl-C). No traceback reaches a user; FEVAL_DEBUG=1 shows the one of an
unexpected error.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import re
import shlex
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, ParamSpec, Self

import typer

from feval import __version__
from feval.errors import (
    FevalError,
    FevalWarning,
    NotRecordedError,
    OutOfRangeError,
    SourceError,
    UnknownNameError,
    UsageError,
)
from feval.report.text import counted, visible

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

    from feval.receipts.receipts import ReceiptCheck
    from feval.recording import Question, Recording
    from feval.replay.loading import LLM
    from feval.report.tables.tables import Table
    from recorders.demo import Demo

__all__ = ["app", "main", "parse_counts"]

_P = ParamSpec("_P")
_MAX_COUNTS = 10_000
_DEFAULT_COUNTS = 40
_MAX_IDS_BYTES = 64 << 20
_WIDEST_TABLE = 10_000
_MOST_DIFFERENCES = 20
_OUTDATED = 3  # exit code of `feval verify` for a receipt of an older meaning of the numbers

app = typer.Typer(
    name="feval",
    help="Record chains of thought once; replay test-time-compute methods on them for ever, at fixed prices.",
    epilog="Start with `feval demo`. Every command takes --json, --quiet and --help.",
    no_args_is_help=True,
    rich_markup_mode=None,  # rich would cost every call, `--help` too, a tenth of a second
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
QuietFlag = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors (and what --json asks for).")]
DatasetName = Annotated[str | None, typer.Option("--dataset", metavar="ID", help="Needed where there are several.")]
LLMName = Annotated[str | None, typer.Option("--llm", metavar="NAME", help="Needed where there are several.")]
LLMNames = Annotated[
    list[str] | None,
    typer.Option("--llm", metavar="NAME", help="Repeat for several, in the order the method wants them."),
]
RecordingFolders = Annotated[
    list[Path] | None,
    typer.Option("--recording", metavar="DIR", help="Repeat for several. Default: the folders in FEVAL_RECORDING."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="FIELD=VALUE", help="A field of the method (`feval ls METHOD`). Repeat for several."),
]
Billing = Annotated[
    str, typer.Option("--billing", metavar="RULE", help="How prompts are paid: once, per_round or per_sample.")
]
Prices = Annotated[
    str | None,
    typer.Option("--prices", metavar="LIST", help="Id or file of a price list, or none. Default: the recording's."),
]
ReceiptFile = Annotated[
    Path | None,
    typer.Option(
        "--receipt",
        metavar="FILE",
        dir_okay=False,
        help="Keep the receipt in this file. Default: in your state folder (`feval verify --last`).",
    ),
]
Unlabelled = Annotated[
    str,
    typer.Option("--unlabelled", metavar="refuse|drop", help="Questions without a gold answer that can be read."),
]
ShortPools = Annotated[
    str,
    typer.Option("--short-pools", metavar="refuse|drop", help="Questions with fewer CoTs than the largest budget."),
]
NoReceipt = Annotated[bool, typer.Option("--no-receipt", help="Keep no receipt; see docs/receipts.md.")]
Replicates = Annotated[int, typer.Option("--replicates", min=1, help="Draws per question, for --order seeded.")]
TrainFraction = Annotated[
    float | None,
    typer.Option("--train-fraction", metavar="SHARE", help="Of the questions, to learn from; the others are judged."),
]
SplitSeed = Annotated[int, typer.Option("--split-seed", help="Of that split.")]
RecordingFolder = Annotated[
    Path,
    typer.Argument(
        metavar="RECORDING", help="Folder of a recording, or hf://NAMESPACE/NAME@COMMIT.", show_default=False
    ),
]
Equality = Annotated[
    str | None,
    typer.Option("--equality", metavar="NAME", help="Of answers: normal-form, or for LaTeX math-verify (its default)."),
]
Tolerance = Annotated[
    str | None, typer.Option("--tolerance", metavar="X", help="Numbers are equal that differ by X times their size.")
]
NewFolder = Annotated[Path, typer.Option("--out", metavar="DIR", help="The recording to make: a new folder.")]


def main() -> None:
    """Run the command line (the entry point of the `feval` program)."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a terminal that lacks a letter is no reason to fail
    for number in _POLITE_SIGNALS:
        if signal.getsignal(number) is signal.SIG_DFL:  # under nohup, SIGHUP is to be ignored
            signal.signal(number, _interrupt)
    try:
        app(prog_name="feval")
    except KeyboardInterrupt as error:
        sys.exit(_interrupted_code(error))
    except OSError as error:  # what the guarded commands let through: help or the version onto a full disk
        _say(f"error: {_disk_sentence(error)}")
        sys.exit(1)


_POLITE_SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


def _interrupt(number: int, _: object) -> NoReturn:
    """End on SIGTERM (a scheduler) or SIGHUP (a closed terminal) as on Ctrl-C, so that half a recording is removed."""
    raise KeyboardInterrupt(number)


def _interrupted_code(error: KeyboardInterrupt) -> int:
    return 128 + int(error.args[0] if error.args else signal.SIGINT)


# --- what every command shares: errors, output, progress ---------------------------------------------------------------


def _guarded(command: Callable[_P, None]) -> Callable[_P, None]:
    """Turn whatever a command raises into one sentence on standard error and an exit code."""

    @functools.wraps(command)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> None:
        try:
            with _noted_warnings(quiet=bool(kwargs.get("quiet"))):
                command(*args, **kwargs)
            print(end="", flush=True)  # so that a reader that has gone is noticed here
        except FevalError as error:
            _fail(str(error), error.exit_code)
        except BrokenPipeError:
            # The reader (`| head`) has seen enough. What Python still holds for it goes nowhere, or it would complain at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(1) from None
        except KeyboardInterrupt as error:
            _fail("Interrupted. Nothing half-done was left behind.", _interrupted_code(error))
        except OSError as error:
            _fail(_disk_sentence(error), 1)
        except MemoryError:
            _fail("There is not enough memory for this. Select fewer questions, LLMs or CoTs.", 1)
        except (typer.Exit, typer.Abort, typer.BadParameter):
            raise
        except Exception as error:  # noqa: BLE001 - a bug of ours: its traceback is for us, not for the user
            _unexpected(error)

    return run


@contextlib.contextmanager
def _noted_warnings(*, quiet: bool) -> Iterator[None]:
    """Print what feval warns of as notes; other warnings stay what they are."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if quiet else "always", FevalWarning)
        usual = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
            if issubclass(category, FevalWarning):
                _say(f"note: {message}")
            else:
                usual(message, category, *rest, **more)

        warnings.showwarning = show
        yield


def _disk_sentence(error: OSError) -> str:
    where = f"{error.filename}" if error.filename else "The output"
    if error.errno in {errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)}:
        return f"{where} could not be written because the disk is full. Make room there, or write to another disk."
    return f"{where} could not be read or written: {error.strerror or error}. Check the path and its permissions."


def _fail(sentence: str, code: int) -> NoReturn:
    _say(f"error: {sentence}")
    raise typer.Exit(code)


def _say(sentence: str) -> None:
    """Print to standard error, if there is one: `print` would fall back on standard output."""
    if sys.stderr is not None:
        print(visible(sentence), file=sys.stderr)


def _unexpected(error: Exception) -> NoReturn:
    if os.environ.get("FEVAL_DEBUG"):
        import traceback

        traceback.print_exception(error)
    _fail(
        f"feval {__version__} met something it did not expect ({type(error).__name__}: {error}). This is a bug in feval: "
        "please report it with what you ran and what FEVAL_DEBUG=1 prints in front of the same command.",
        1,
    )


class _Out:
    """Where a command's results and notes go, by --json and --quiet."""

    def __init__(self, *, as_json: bool, quiet: bool) -> None:
        self.json, self.quiet = as_json, quiet

    def result(self, value: dict[str, Any], *shown: str | Table) -> None:
        """Print the JSON object, or else the sentences and tables, or with --quiet nothing."""
        if self.json:
            # ASCII: no terminal, locale or control character can spoil it.
            print(json.dumps(value, ensure_ascii=True, allow_nan=False))
        elif not self.quiet:
            for before, piece in zip((None, *shown), shown, strict=False):
                if isinstance(piece, str):
                    print(visible(piece))
                else:
                    _print_table(piece, apart=before is not None and not isinstance(before, str))

    def note(self, sentence: str) -> None:
        """Print a remark to standard error."""
        if not self.quiet:
            _say(f"note: {sentence}")

    def progress(self, label: str) -> _Progress:
        """Return a progress bar that appears after a second, on a terminal only."""
        return _Progress(
            label, shown=not self.json and not self.quiet and sys.stderr is not None and sys.stderr.isatty()
        )


def _print_table(table: Table, *, apart: bool) -> None:
    """Print a table; `apart` leaves a line between it and the table above, which rich does by itself."""
    from feval.report.tables.tables import plain

    if sys.stdout is None or not sys.stdout.isatty():
        print("\n" if apart else "", plain(table), sep="", end="")
        return
    from rich.console import Console

    from feval.report.tables.tables import rich_table, without_spares

    console = Console(markup=False, highlight=False, emoji=False)
    short = without_spares(table)
    forms = (
        rich_table(table),
        rich_table(table, narrow=True),
        rich_table(short, narrow=True),
        rich_table(short, narrow=True, folded=True),
    )
    wide = console.options.update(max_width=_WIDEST_TABLE)
    fitting = next((drawn for drawn in forms if console.measure(drawn, options=wide).minimum <= console.width), None)
    if fitting is None and table.columns[-1].number:  # nothing may give way: better wrapped by the terminal than cut
        print(plain(table), end="")
    else:
        console.print(fitting or forms[0])


class _Progress:
    """A bar on standard error for work that takes longer than a second; gone when the work is done."""

    DELAY_SECONDS = 1.0

    def __init__(self, label: str, *, shown: bool) -> None:
        self._label, self._shown = label, shown
        self._bar: RichProgress | None = None
        self._steps: tuple[int, int | None] = (0, None)
        self._lock = threading.Lock()
        self._timer = threading.Timer(self.DELAY_SECONDS, self._show)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        if self._shown:
            self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        with self._lock:
            self._shown = False
            if self._bar is not None:
                self._bar.stop()

    def __call__(self, done: int, total: int | None) -> None:
        """Report that `done` of `total` steps are done."""
        self._steps = (done, total)
        bar = self._bar
        if bar is not None:
            bar.update(bar.task_ids[0], completed=done, total=total)

    def describe(self, label: str) -> None:
        """Say something else beside the bar."""
        self._label = label
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], description=visible(label))

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

        with self._lock:
            if not self._shown:
                return
            bar = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                TaskProgressColumn(),
                TimeElapsedColumn(),
                console=Console(stderr=True),
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            done, total = self._steps
            bar.add_task(visible(self._label), completed=done, total=total)
            bar.start()
            self._bar = bar


def _version(asked: bool) -> None:
    if asked:
        print(f"feval {__version__}")
        raise typer.Exit


@app.callback()
def _feval(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


# --- recordings: import, info, verify, merge, select, extract ------------------------------------------------------


@app.command("import")
@_guarded
def _import(
    format_name: Annotated[str, typer.Argument(metavar="FORMAT", help="See `feval ls formats`.", show_default=False)],
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="File or folder to import.", show_default=False)],
    dataset: Annotated[str, typer.Option("--dataset", metavar="ID", help="The dataset; any id will do.")],
    out: NewFolder,
    llm: Annotated[
        list[str] | None,
        typer.Option(
            "--llm", metavar="NAME", help="Such as gpt-3.5-turbo@t=0.8; repeat to take several of a source's."
        ),
    ] = None,
    answer_kind: Annotated[
        str | None,
        typer.Option(
            "--answer-kind", metavar="KIND", help="See `feval ls answer-kinds`; by default the dataset card's."
        ),
    ] = None,
    questions: Annotated[
        Path | None,
        typer.Option("--questions", metavar="FILE", help="Question texts and golds, where SOURCE has none."),
    ] = None,
    counter: Annotated[
        str | None,
        typer.Option("--counter", metavar="NAME", help="Who counts tokens: usage, words or tiktoken:ENCODING."),
    ] = None,
    prices: Annotated[
        str, typer.Option("--prices", metavar="ID", help="Price list the recording names, or none.")
    ] = "2025-06-02",
    answers: Annotated[
        str, typer.Option("--answers", metavar="FROM", help="stored (as SOURCE has them) or text (extracted again).")
    ] = "stored",
    keep_duplicates: Annotated[
        bool, typer.Option("--keep-duplicates", help="Keep CoTs that SOURCE stores twice.")
    ] = False,
    equality: Equality = None,
    tolerance: Tolerance = None,
    temperature: Annotated[float | None, typer.Option("--temperature", help="As recorded, where you know it.")] = None,
    max_tokens: Annotated[int | None, typer.Option("--max-tokens", help="As recorded, where you know it.")] = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Make a recording from an existing file.

    The formats are those of `feval ls formats`; quirks of the source that were handled are noted in the recording.

    Example: feval import esc T0.7.jsonl.gz --dataset last_letters --llm gpt-3.5-turbo --out my-recording
    """
    from feval.importers import import_recording

    show = _Out(as_json=as_json, quiet=quiet)
    with show.progress(f"importing {source.name}") as progress:
        import_recording(
            format_name,
            source,
            out,
            dataset=dataset,
            llm=llm,
            answer_kind=answer_kind,
            questions=questions,
            counter=counter,
            prices=prices,
            answers=answers,
            equality=_equality(equality, tolerance),
            keep_duplicates=keep_duplicates,
            temperature=temperature,
            max_tokens=max_tokens,
            progress=progress,
        )
    _show_made(show, out)


@app.command("info")
@_guarded
def _info(recording: RecordingFolder, as_json: JsonFlag = False, quiet: QuietFlag = False) -> None:
    """Show what a recording holds.

    Datasets, LLMs, pools, shares without an answer, prices, licences, parents, notes, hash.
    """
    from feval.hub import open_place
    from feval.report.tables.info import info_dict, info_tables

    opened = open_place(recording)
    _Out(as_json=as_json, quiet=quiet).result(info_dict(opened), *info_tables(opened))


@app.command("verify")
@_guarded
def _verify(
    recording: Annotated[
        Path | None,
        typer.Argument(
            metavar="RECORDING|RECEIPT",
            help="Folder of a recording or a report, or a receipt.json; on the Hub as well.",
            show_default=False,
        ),
    ] = None,
    last: Annotated[
        bool, typer.Option("--last", help="The receipt of the last command that was given no place for one.")
    ] = False,
    recordings: Annotated[
        list[Path] | None,
        typer.Option("--recording", metavar="DIR", help="For a receipt that has been moved away from its recording."),
    ] = None,
    methods: Annotated[
        list[str] | None,
        typer.Option("--method", metavar="FILE.py:FUNCTION", help="A user's method that a receipt may run."),
    ] = None,
    prices: Annotated[
        str | None, typer.Option("--prices", metavar="LIST", help="For a receipt with a price list of your own.")
    ] = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Check a recording, or the numbers of a receipt.

    Every byte and hash of a recording is checked; the numbers of a receipt are computed again.

    Exit code 0 if all agree, 1 if anything does not, 3 if what a receipt's numbers mean has changed since it was written.
    """
    from feval.cli.saving import last_receipt
    from feval.hub import is_address
    from feval.receipts.receipts import is_receipt
    from feval.recording import verify_recording

    show = _Out(as_json=as_json, quiet=quiet)
    if last == (recording is not None):
        raise UsageError(
            "Name the recording or the receipt to verify, or pass --last for the newest receipt that was kept."
        )
    recording = recording or last_receipt()
    if is_receipt(recording) and is_address(recording):
        _verify_receipt(show, recording, recordings, methods or [], prices)
        return
    recording = _local(show, recording)
    if not (recording / "manifest.json").is_file() and (recording / "receipt.json").is_file():
        recording = recording / "receipt.json"  # the folder that a report was written to
    if is_receipt(recording):
        _verify_receipt(show, recording, recordings, methods or [], prices)
        return
    if recordings or methods or prices:
        raise UsageError(f"--recording, --method and --prices belong to receipts; {recording} is no receipt.json.")
    with show.progress(f"verifying {recording.name}") as progress:
        found = verify_recording(recording, progress=progress)
    account = {
        "path": str(recording),
        "ok": found.ok,
        "recording_hash": found.recording_hash,
        "files": found.files,
        "leaves": found.leaves,
        "problems": list(found.problems),
        "remarks": list(found.remarks),
    }
    for remark in found.remarks:
        show.note(remark)
    leaves = "1 leaf" if found.leaves == 1 else f"{found.leaves:,} leaves"
    checked = f"{counted(found.files, 'file')} and {leaves} checked"
    show.result(account, *([f"{recording} is sound: {checked}, hash {found.recording_hash}"] if found.ok else []))
    if not found.ok:
        for problem in found.problems:
            _say(f"error: {recording}: {problem}")
        raise typer.Exit(1)


def _verify_receipt(
    show: _Out, place: Path, recordings: Sequence[Path] | None, methods: Sequence[str], prices: str | None
) -> None:
    from feval.receipts.receipts import local_receipt, verify_receipt
    from feval.receipts.semantics import VERSION

    path, local = _place_of(place), local_receipt(place)
    with show.progress(f"verifying {local.name}"):
        found = verify_receipt(local, recordings, methods=methods, prices=prices)
    for remark in found.notes:
        show.note(remark)
    account = {
        "path": str(path),
        "ok": found.equal,
        "kind": found.kind,
        "numbers": found.numbers,
        "semantics": {"receipt": found.semantics, "now": VERSION},
        "changes": list(found.changes),
        "differences": [{"where": d.where, "receipt": d.receipt, "now": d.now} for d in found.differences],
    }
    what = {"compare": "a comparison", "estimate": "an estimate"}.get(found.kind, f"a {found.kind}")
    shown = [f"{path} is right: {found.numbers} values of {what} computed again, all equal"] if found.equal else []
    if found.outdated:
        shown = [
            f"{path} is of an older feval: what its numbers mean has changed since, from version {found.semantics} to {VERSION}. "
            f"{len(found.differences):,} of {found.numbers:,} values of {what} come out otherwise now:"
            if found.differences
            else f"{path} is of an older feval, and its numbers cannot be computed as they were meant then.",
            *(f"  {line}" for line in _shown_differences(found)),
            "Changed since:",
            *(f"  {sentence}" for sentence in found.changes),
        ]
    show.result(account, *shown)
    if found.outdated:
        raise typer.Exit(_OUTDATED)
    if not found.equal:
        for line in _shown_differences(found):
            _say(f"error: {path}: {line}")
        raise typer.Exit(1)


def _shown_differences(found: ReceiptCheck) -> list[str]:
    """The first differences, and how many more there are."""
    more = len(found.differences) - _MOST_DIFFERENCES
    rest = [f"{more:,} more of {found.numbers:,} values differ; --json lists all."] if more > 0 else []
    return [*map(str, found.differences[:_MOST_DIFFERENCES]), *rest]


def _place_of(place: Path) -> str:
    """A place as it is written: an address with the slashes that a path lacks."""
    from feval.hub import is_address, parse_address

    return str(parse_address(place) if is_address(place) else place)


@app.command("merge")
@_guarded
def _merge(
    recordings: Annotated[list[Path], typer.Argument(metavar="RECORDING...", help="Two or more.", show_default=False)],
    out: NewFolder,
    equality: Equality = None,
    tolerance: Tolerance = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Join recordings into a new one.

    Other datasets, other LLMs or both; the old recordings stay as they are.

    Example: feval merge small large --out both
    """
    from feval.recording import merge

    show = _Out(as_json=as_json, quiet=quiet)
    folders = [_local(show, recording) for recording in recordings]
    with show.progress("merging"):
        merge(folders, out, equality=_equality(equality, tolerance))
    _show_made(show, out)


@app.command("select")
@_guarded
def _select(
    recording: RecordingFolder,
    out: NewFolder,
    dataset: Annotated[
        list[str] | None, typer.Option("--dataset", metavar="ID", help="Keep it; repeat for more.")
    ] = None,
    llm: Annotated[list[str] | None, typer.Option("--llm", metavar="NAME", help="Keep it; repeat for more.")] = None,
    questions_file: Annotated[
        Path | None, typer.Option("--questions-file", metavar="FILE", help="Keep these questions: an id per line.")
    ] = None,
    first: Annotated[int | None, typer.Option("--first", metavar="N", help="Keep the first N questions.")] = None,
    samples: Annotated[
        int | None, typer.Option("--samples", metavar="N", help="Keep the first N CoTs of each.")
    ] = None,
    min_cots: Annotated[
        int | None,
        typer.Option("--min-cots", metavar="N", help="Leave out questions on which a kept LLM has fewer CoTs."),
    ] = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Make a smaller recording from a recording.

    Keep some datasets, LLMs or questions, or the first CoTs of each pool; the old recording stays as it is.

    Example: feval select big --llm gpt-3.5-turbo --samples 20 --out small
    """
    from feval.recording import open_recording, select

    if questions_file is not None and first is not None:
        raise UsageError("--questions-file and --first both choose questions; give one of them.")
    show = _Out(as_json=as_json, quiet=quiet)
    recording = _local(show, recording)
    ids = None if questions_file is None else _question_ids(questions_file)
    if first is not None:
        ids = _first_questions(open_recording(recording), dataset, first)
    with show.progress("selecting"):
        select(
            recording,
            out,
            datasets=dataset or None,
            llms=llm or None,
            questions=ids,
            samples=samples,
            min_cots=min_cots,
        )
    _show_made(show, out)


@app.command("extract")
@_guarded
def _extract(
    recording: RecordingFolder,
    out: NewFolder,
    answer_kind: Annotated[
        str | None,
        typer.Option("--answer-kind", metavar="KIND", help="See `feval ls answer-kinds`; by default the recording's."),
    ] = None,
    answers: Annotated[
        str, typer.Option("--answers", metavar="FROM", help="text (extracted again) or stored (only their keys anew).")
    ] = "text",
    equality: Equality = None,
    tolerance: Tolerance = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Extract the answers of a recording again.

    Reads the stored texts with this feval's extraction, or as another kind of answer, into a new recording, and shows which
    answers and golds changed. Nothing is recorded again; the old recording stays as it is.

    Example: feval extract my-recording --answer-kind latex --out again
    """
    import dataclasses

    from feval.recording import extract, open_recording
    from feval.report.tables.changes import changes_tables
    from feval.report.tables.info import info_headline

    show = _Out(as_json=as_json, quiet=quiet)
    recording = _local(show, recording)
    with show.progress("extracting") as progress:
        named = _equality(equality, tolerance)
        found = extract(recording, out, answer_kind=answer_kind, source=answers, equality=named, progress=progress)
    for sentence in found.notes:
        show.note(sentence)
    account = dataclasses.asdict(found) | {"path": str(out)}
    show.result(account, info_headline(open_recording(out)), "", *changes_tables(found))


def _equality(equality: str | None, tolerance: str | None) -> str | None:
    """The equality of answers that was asked for, by its name; `None` leaves it to the answer kind."""
    from feval.answers import equality as equalities

    if tolerance is None:
        return equality
    if equality is not None:
        raise UsageError("--equality and --tolerance both say which answers are equal; give one of them.")
    return equalities.tolerance(tolerance)


def _show_made(show: _Out, out: Path, said: Collection[str] = ()) -> None:
    """Show the recording that was just made, with its notes but for those that were said already."""
    from feval.recording import open_recording
    from feval.report.tables.info import info_dict, info_headline

    made = open_recording(out)
    for sentence in made.manifest.raw.get("notes", ()):
        if sentence not in said:
            show.note(str(sentence))
    show.result(info_dict(made), info_headline(made))


def _question_ids(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_IDS_BYTES + 1)
        if len(data) > _MAX_IDS_BYTES:
            raise SourceError(
                f"{path} is larger than {_MAX_IDS_BYTES:,} bytes; it should hold one question id per line."
            )
        # Not splitlines(): an id may hold other line separators.
        lines = data.decode("utf-8-sig").split("\n")
    except OSError as error:
        raise SourceError(
            f"{path} should be a file with one question id per line; it cannot be read: {error.strerror or error}. "
            "Check --questions-file."
        ) from error
    except UnicodeDecodeError as error:
        raise SourceError(
            f"{path} should hold one question id per line as UTF-8 text; it does not ({error})."
        ) from error
    ids = [line.strip() for line in lines if line.strip()]
    if not ids:
        raise SourceError(f"{path} is empty; it should hold one question id per line.")
    return ids


def _first_questions(recording: Recording, datasets: Sequence[str] | None, first: int) -> list[str]:
    if first < 1:
        raise OutOfRangeError(f"--first keeps at least 1 question; {first} was asked for.")
    # Ids are unique within a dataset only: the first of one could be any of another.
    dataset = _only("dataset", datasets[0] if datasets and len(datasets) == 1 else None, recording.dataset_ids())
    questions = recording.questions(dataset)
    if first > len(questions):
        raise NotRecordedError(f"{dataset} has {counted(len(questions), 'question')}; --first {first} asks for more.")
    return [question.id for question in questions[:first]]


def _only(noun: str, given: str | None, held: Iterable[str]) -> str:
    """Return the name given, or the only one there is."""
    if given is not None:
        return given
    names = list(dict.fromkeys(held))
    if len(names) == 1:
        return names[0]
    if not names:
        raise NotRecordedError(f"No {noun} is recorded there; `feval info` shows what a recording holds.")
    raise UsageError(f"{len(names)} {noun}s are recorded; choose one with --{noun.lower()}: {', '.join(names)}.")


# --- curves -------------------------------------------------------------------------------------------------------------


def _local(show: _Out, place: Path) -> Path:
    """The folder of a recording; of one on the Hub, all of it is fetched into the cache."""
    from feval.hub import is_address

    if not is_address(place):
        return place
    from feval.hub import local_folder

    with show.progress(f"fetching {place}") as progress:
        return local_folder(place, progress)


def _folders(given: Sequence[Path] | None) -> list[Path]:
    from feval.hub import split_places

    folders = given or [Path(place) for place in split_places(os.environ.get("FEVAL_RECORDING", ""))]
    if not folders:
        raise UsageError("No recording was named; give --recording DIR, or set FEVAL_RECORDING to its folder.")
    return list(folders)


def _hush_matplotlib() -> None:
    """Keep matplotlib's remarks about its font cache off standard error: they are neither notes nor errors of a command."""
    import logging

    logging.getLogger("matplotlib").setLevel(logging.ERROR)


def _no_dollars(llm: LLM) -> str:
    """Say why the dollars are missing; accuracy does not need them."""
    if llm.prices is None:
        return "No dollars: the recording names no price list. Give one with --prices (`feval ls prices`, or a file)."
    if llm.price is None:
        return (
            f"No dollars: price list {llm.prices.id!r} has no LLM {llm.name!r}. "
            "Give one that has with --prices, or --prices none."
        )
    return f"No dollars: the recording does not say how many tokens the prompts of {llm.name!r} have."


def parse_counts(text: str, option: str = "--n", noun: str = "CoTs") -> list[int]:
    """Read numbers of CoTs: "20", "1,5,10", "1..40", "1..40..3" (every third), or several of these with commas.

    Args:
        text: what was given.
        option: for which option.
        noun: what is counted.

    Returns:
        The numbers, ascending, each once.

    Raises:
        UsageError: the text is something else.
        OutOfRangeError: a number below 1, a range that runs backwards, or more than 10,000 numbers.
    """
    ranges = [_count_range(piece.strip(), text, option, noun) for piece in text.split(",")]
    if sum(map(len, ranges)) > _MAX_COUNTS:
        raise OutOfRangeError(
            f"{option} {text!r} asks for {sum(map(len, ranges)):,} points; {_MAX_COUNTS:,} is the most."
        )
    return sorted({count for counts in ranges for count in counts})


def _count_range(piece: str, text: str, option: str, noun: str) -> range:
    numbers = piece.split("..")
    if len(numbers) > 3 or not all(re.fullmatch("[0-9]+", number) for number in numbers):
        raise UsageError(
            f"{option} takes numbers of {noun} such as 20, 1,5,10, 1..40 or 1..40..3; found {text!r:.100}."
        )
    if max(map(len, numbers)) > 9:  # no pool is larger, and Python refuses to read thousands of digits
        raise OutOfRangeError(f"{option} takes numbers of {noun} up to 999,999,999; found {text!r:.100}.")
    first, *rest = map(int, numbers)
    last, step = (*rest, 1)[:2] if rest else (first, 1)
    if first < 1 or step < 1 or last < first:
        one = noun.removesuffix("s")
        raise OutOfRangeError(f"{option} counts up from 1 {one} or more, by 1 or more; found {text!r}.")
    return range(first, last + 1, step)


# --- what feval knows: ls -----------------------------------------------------------------------------------------------


@app.command("ls")
@_guarded
def _ls(
    what: Annotated[
        str,
        typer.Argument(
            metavar="WHAT",
            help="datasets, llms, prices, methods, formats, answer-kinds, or a method: what can be set of it.",
            show_default=False,
        ),
    ],
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """List what feval knows by name.

    Datasets, LLMs and prices come from cards; FEVAL_CARDS names folders with cards of your own. Any other dataset or LLM
    works as well: what its recording says is enough.

    Example: feval ls early-stopping
    """
    from feval.methods import METHODS
    from feval.report.tables.known import KNOWN, known_fields, known_table

    if what not in (*KNOWN, *METHODS, "oracle"):
        raise UnknownNameError.of("list", what, (*KNOWN, *METHODS))
    rows = KNOWN[what]() if what in KNOWN else known_fields(what)
    if not rows and not as_json:
        _Out(as_json=as_json, quiet=quiet).result({}, f"{what} has no fields: nothing is set with --set.")
        return
    _Out(as_json=as_json, quiet=quiet).result({what: rows}, known_table(rows))


# --- the questions of a dataset ------------------------------------------------------------------------------------------


@app.command("questions")
@_guarded
def _questions(
    dataset: Annotated[str, typer.Argument(metavar="DATASET", help="See `feval ls datasets`.", show_default=False)],
    questions_file: Annotated[
        Path | None,
        typer.Option(
            "--questions", metavar="FILE", help="Read them from FILE. Default: from the cache, or else the Hub."
        ),
    ] = None,
    answer_kind: Annotated[
        str | None,
        typer.Option("--answer-kind", metavar="KIND", help="See `feval ls answer-kinds`. Default: the dataset card's."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write them there, as JSON Lines. Default: write nothing."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace another file at --out.")] = False,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Show or export the questions of a dataset.

    They are fetched from the Hugging Face Hub once, at the commit that the dataset's card pins, and compared with the card.

    Example: feval questions gsm8k --out gsm8k.jsonl
    """
    from feval.hub.datasets import questions, questions_jsonl, questions_sha256, remarks
    from feval.report.files import save_files
    from feval.report.tables.known import questions_table

    show = _Out(as_json=as_json, quiet=quiet)
    with show.progress(f"fetching the questions of {dataset}"):
        found = questions(dataset, source=questions_file, answer_kind=answer_kind)
    for sentence in remarks(found):
        show.note(sentence)
    written = [] if out is None else save_files(out.parent, {out.name: questions_jsonl(found)}, replace=force)
    account = {
        "dataset": dataset,
        "count": len(found),
        "sha256": questions_sha256(found),
        "file": None if out is None else str(out),
        "questions": [_question_dict(question) for question in found],
    }
    show.result(
        account,
        f"{dataset}: {counted(len(found), 'question')}, SHA-256 {account['sha256']}",
        questions_table(found[:_SHOWN_QUESTIONS]),
        *(f"wrote {path}" for path in written),
    )


_SHOWN_QUESTIONS = 5


def _question_dict(question: Question) -> dict[str, Any]:
    return {
        "id": question.id,
        "question": question.text,
        "answer": question.answer,
        "answer_key": question.answer_key,
        "choices": [{"label": label, "text": text} for label, text in question.choices],
    }


# --- the demo -----------------------------------------------------------------------------------------------------------

_DEMO_COUNTS = (1, 5, 10, 20, 40)


@app.command("demo")
@_guarded
def _demo(
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Folder to make; one that the demo made is used again.")
    ] = Path("feval-demo"),
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Show the main job on real samples, offline.

    Verifies the bundled recording of three small language models that come with feval, records some more of one of them live,
    votes, prices and draws the curves. Takes seconds.
    """
    from feval.report.tables.tables import curves_table
    from recorders.demo import only_at, run_demo

    _hush_matplotlib()
    show = _Out(as_json=as_json, quiet=quiet)
    with show.progress("running the demo") as progress:
        made = run_demo(out, progress)
    live = made.live
    account = {
        "recording": str(made.recording),
        "recording_hash": made.recording_hash,
        "live": {"recording": str(live.recording), "llm": live.llm, "cots": live.cots, "seconds": live.seconds},
        "files": [str(path) for path in made.files],
        "curves": {curve.llm: curve.to_dict() for curve in made.curves},
    }
    took = "before" if live.seconds is None else f"just now, in {live.seconds:.1f} s"
    show.result(
        account,
        "Three small language models that come with feval, asked 200 word problems 40 times each. They are real; their prices "
        "are made up.",
        f"{made.recording} is sound, hash {made.recording_hash}",
        f"{live.recording} holds {live.cots} more CoTs of {live.llm}, recorded {took}",
        "",
        curves_table([only_at(curve, _DEMO_COUNTS) for curve in made.curves]),
        "",
        *(f"wrote {path}" for path in made.files),
        "",
        "Try next:",
        *(f"  {command}" for command in _next_commands(made)),
    )


def _next_commands(made: Demo) -> list[str]:
    recording = shlex.quote(str(made.recording))
    curve = f"feval curve self-consistency --recording {recording} --llm feval/tiny-42k"
    return [
        f"feval info {recording}",
        f"{curve} --n 1..40 --out my-curve",
        f"{curve} --n 1,5,20 --order seeded --seed 1 --json",
        "feval record --dataset tiny_sums --llm feval/tiny-30k --first 10 --samples 5 --out my-recording",
        f"feval select {recording} --llm feval/tiny-160k --samples 10 --out smaller",
        "feval import --help",
    ]


# Each of these registers its command with `app`.
from feval.cli import compare as _compare_command  # noqa: E402, F401  registers itself
from feval.cli import couple as _couple_command  # noqa: E402, F401  registers itself
from feval.cli import curve as _curve_command  # noqa: E402, F401  registers itself
from feval.cli import forecast as _forecast_commands  # noqa: E402, F401  registers itself
from feval.cli import grade as _grade_command  # noqa: E402, F401  registers itself
from feval.cli import pull as _pull_command  # noqa: E402, F401  registers itself
from feval.cli import push as _push_command  # noqa: E402, F401  registers itself
from feval.cli import record as _record_command  # noqa: E402, F401  registers itself
from feval.cli import run as _run_command  # noqa: E402, F401  registers itself
from feval.cli import score as _score_command  # noqa: E402, F401  registers itself
from feval.cli import serve as _serve_command  # noqa: E402, F401  registers itself
from feval.cli import servers as _server_commands  # noqa: E402, F401  registers itself
