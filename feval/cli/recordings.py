"""`feval import`, `info`, `export`, `merge`, `select`, `extract`, `show` and `verify`."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from feval import hub
from feval.cli.commands import argument, completed_command, option
from feval.cli.evaluating import last_receipt
from feval.cli.options import (
    AnswerKind,
    Equality,
    Machines,
    NewFolder,
    OnlyDatasets,
    OnlyLLMs,
    RecordingFolder,
    Right,
    Sandbox,
    UsersMethods,
    machine_options,
    read_text,
)
from feval.cli.output import Output, say
from feval.errors import NotRecordedError, OutOfRangeError, SourceError, UsageError
from feval.evaluation import make_method
from feval.hub import is_address, local_folder, open_place, parse_address
from feval.importers.layouts import Layout, layout_of
from feval.receipts import verify_receipt
from feval.receipts.document import is_receipt, local_receipt
from feval.recording import (
    Recording,
    extract as extract_answers,
    merge as merge_recordings,
    open_recording,
    select as select_from,
    verify_recording,
)
from feval.recording.reader import pairs_of
from feval.replay import only_dataset
from feval.report.files import check_folder, save_files
from feval.report.looking import (
    find_question,
    overview,
    overview_dict,
    overview_table,
    question_dict,
    question_pieces,
    recorded_questions,
)
from feval.report.page.questions import view_page
from feval.report.tables.recordings import changes_tables, info_dict, info_headline, info_tables
from feval.report.tables.tables import Table, columns
from feval.report.text import counted

if TYPE_CHECKING:
    from feval.importers.tables import Meanings


@machine_options
def import_(
    *,
    format_name: str = argument("See `feval ls formats`.", "FORMAT"),
    source: Path = argument("File or folder to import.", "SOURCE"),
    dataset: str | None = option(
        "Id of the dataset; any id will do. Default: a table's own.", "ID"
    ),
    out: Path | None = option("The recording to make: a new folder.", "DIR"),
    llm: list[str] | None = option(
        "Name, such as gpt-3.5-turbo@t=0.8. Repeat to take several from SOURCE.", "NAME"
    ),
    answer_kind: AnswerKind,
    questions: Path | None = option("Question texts and gold answers, if SOURCE has none.", "FILE"),
    counter: str | None = option("Token counter: usage, words or tiktoken:ENCODING.", "NAME"),
    answers: Annotated[
        str, option("stored (as SOURCE has them) or text (extracted again).", "FROM")
    ] = "stored",
    equality: Equality,
    columns: list[str] | None = option(
        "Of a table: the column of this meaning (ignore: it is not read). Repeat for several.",
        "NAME=COLUMN",
        name="--map",
    ),
    score: list[str] | None = option(
        "Of a table: a column with scores. Repeat for several.", "[SCORER=]COLUMN"
    ),
    outcome: list[str] | None = option(
        "Of a table: a column with the verdicts on an LLM. Repeat for several.", "[LLM=]COLUMN"
    ),
    usd: list[str] | None = option(
        "What a call of an LLM of --outcome costs, or the column of it.", "LLM=USD"
    ),
    feature: list[str] | None = option(
        "Of a table: what is known of the question, to be kept. Repeat for several.", "COLUMN"
    ),
    duplicates: Annotated[
        str, option("Of questions with one text: note, refuse, or merge (of a table).", "WHAT")
    ] = "note",
    layout: str | None = option(
        "Of a table: a published layout, or a mapping file (TOML).", "NAME"
    ),
    trust_layout: bool = option("Take a published layout that never read a real file."),
    dry_run: bool = option("Of a table: show what its columns are read as, and write nothing."),
    machines: Machines,
    show: Output,
) -> None:
    """Make a recording from an existing file.

    `feval ls formats` lists the formats. Quirks of the source that were handled are noted in the
    recording.

    Example: feval import esc T0.7.jsonl.gz --dataset last_letters --llm gpt-3.5-turbo --out
    my-recording

    Example: feval import table samples.csv --dataset gsm8k --map question=prompt --score reward
    --out my-recording
    """
    from feval.importers import IMPORTERS, import_recording, understood  # loads every format

    options = layout_of(
        layout,
        columns or (),
        score or (),
        outcome=outcome or (),
        usd=usd or (),
        feature=feature or (),
        trusted=trust_layout or dry_run,
    )
    is_table = format_name in IMPORTERS and IMPORTERS[format_name].files is not None
    if not is_table and (dry_run or options != Layout()):
        raise UsageError(
            "--map, --score, --outcome, --usd, --layout and --dry-run are for tables: feval import"
            " table FILE."
        )
    if out is None and not is_table:
        raise typer.BadParameter("Name the recording to make.", param_hint="--out")
    address = None
    if is_table:
        if hub.is_address(source):
            with show.progress(f"fetching {source}"):
                source, address = hub.fetch_table(source)
        named = {"dataset": dataset or "", "llms": llm or (), "answer_kind": answer_kind}
        table = understood(source, options, questions, **named)
        _show_understood(show, table, options, final=dry_run)
        error = table.missing
        if out is None:
            error = error or UsageError("The recording to make has no name.")
            error.add += (("out", f"{table.name.split('.')[0]}-recording"),)
        if error is not None and not dry_run:
            raise error
        if error is not None:
            show.note(f"{error} To import it: {completed_command(error)}")
    if dry_run or out is None:
        return
    with machines as executor:
        import_recording(
            format_name,
            source,
            out,
            dataset=dataset,
            llm=llm,
            answer_kind=answer_kind,
            questions=questions,
            counter=counter,
            answers=answers,
            equality=equality,
            duplicates=duplicates,
            executor=executor,
            layout=options if is_table else None,
            address=None if address is None else str(address),
        )
    show_recording(show, out)


def _show_understood(show: Output, table: Meanings, layout: Layout, *, final: bool) -> None:
    """Show what the columns of a table are read as; `final`: there is no other result."""
    if show.json and not final:
        return
    facts = [
        (
            use.column,
            f"score of {use.scorer}" if use.scorer and use.name != "features" else use.target,
            use.about,
        )
        for use in table.uses
    ]
    facts += [(name, "", "not read") for name in table.unread]
    facts += [(name, "", "ignored") for name in table.ignored]
    rows = tuple((*each, _example(table, each[0])) for each in facts)
    names = ("column", "read_as", "meaning", "example")
    listed = [dict(zip(names, row, strict=True)) for row in rows]
    heads = columns(*(name.replace("_", " ") for name in names))
    notes = layout.notes() if final else []  # an import notes them
    shown = Table(f"{table.name}, as understood", heads, rows, notes=tuple(notes))
    show.result({"file": table.name, "columns": listed, "notes": notes}, shown)


def _example(table: Meanings, column: str) -> str:
    value = table.examples.get(column)
    text = " ".join(str(value).split())
    return "" if value is None else text if len(text) <= 40 else f"{text[:39]}…"


def info(recording: RecordingFolder, *, show: Output) -> None:
    """Show what a recording holds.

    Datasets, LLMs, pools, shares of CoTs without an answer, prices, licences, parent recordings,
    notes, hash.
    """
    opened = open_place(recording)
    show.result(info_dict(opened), *info_tables(opened))


@machine_options
def export(
    *,
    recording: RecordingFolder,
    to: str = option("jsonl, csv, parquet or every-eval-ever.", "FORMAT"),
    out: Path = option("The file to make; a folder for every-eval-ever.", "FILE"),
    dataset: OnlyDatasets,
    llm: OnlyLLMs,
    machines: Machines,
    show: Output,
) -> None:
    """Write the CoTs of a recording as a table, or for another tool.

    CSV and Parquet have a row per CoT; JSON Lines have a line per question and LLM, and `feval
    import jsonl` makes the same recording of them. every-eval-ever is a folder of records for the
    EvalEval coalition.

    Example: feval export my-recording --to csv --out cots.csv
    """
    from feval.exporters import export_recording  # loads pyarrow

    recording = local_folder(recording)
    with machines as executor:
        table = export_recording(recording, out, to, datasets=dataset, llms=llm, executor=executor)
    show.note(*table.left_out)
    summary = {
        "path": str(out),
        "rows": table.rows,
        "columns": table.columns,
        "left_out": table.left_out,
    }
    show.result(
        summary, f"{out} has {counted(table.rows, 'CoT')}, with {', '.join(table.columns)}."
    )


def show_recording(show: Output, out: Path, shown_notes: Collection[str] = ()) -> None:
    """Show a new recording, and its notes except those in `shown_notes`."""
    recording = open_recording(out)
    notes = recording.manifest.raw["notes"]
    show.note(*(sentence for sentence in notes if sentence not in shown_notes))
    show.result(info_dict(recording), info_headline(recording))


def merge(
    recordings: Annotated[list[Path], argument("Two or more.", "RECORDING...")],
    out: NewFolder,
    equality: Equality,
    *,
    show: Output,
) -> None:
    """Join recordings into a new one.

    They may differ in datasets, in LLMs, in questions or in several of them. The old recordings
    stay as they are.

    Example: feval merge small large --out both
    """
    folders = [local_folder(recording) for recording in recordings]
    merge_recordings(folders, out, equality=equality)
    show_recording(show, out)


def select(
    recording: RecordingFolder,
    out: NewFolder,
    dataset: OnlyDatasets,
    llm: OnlyLLMs,
    questions_file: Path | None = option(
        "Keep the questions with these ids, one per line.", "FILE"
    ),
    first: int | None = option("Keep the first N questions.", "N"),
    samples: int | None = option("Keep the first N CoTs of each pool.", "N"),
    min_cots: int | None = option("Leave out questions with fewer CoTs of some LLM.", "N"),
    rename: list[str] | None = option("Give an LLM another name. Repeat for several.", "OLD=NEW"),
    *,
    show: Output,
) -> None:
    """Make a smaller recording from a recording, or one with other names.

    Keep some datasets, LLMs or questions, or the first CoTs of each pool; the old recording stays
    as it is.

    Example: feval select big --llm gpt-3.5-turbo --samples 20 --out small
    """
    if questions_file is not None and first is not None:
        raise UsageError("--questions-file and --first both choose questions; give one of them.")
    names = dict(pair.partition("=")[::2] for pair in rename or ())
    if len(names) < len(rename or ()) or not all(old and new for old, new in names.items()):
        raise UsageError(
            "--rename takes OLD=NEW, once for each LLM;"
            f" {', '.join(rename or ())!r:.120} was given."
        )
    recording = local_folder(recording)
    ids = None if questions_file is None else _question_ids(questions_file)
    if first is not None:
        ids = _first_questions(open_recording(recording), dataset, first)
    select_from(
        recording,
        out,
        datasets=dataset or None,
        llms=llm or None,
        questions=ids,
        samples=samples,
        min_cots=min_cots,
        rename=names,
    )
    show_recording(show, out)


@machine_options
def extract(
    *,
    recording: RecordingFolder,
    out: NewFolder,
    answer_kind: AnswerKind,
    answers: Annotated[
        str, option("text: extract again; stored: only normalize the stored answers.", "FROM")
    ] = "text",
    equality: Equality,
    machines: Machines,
    show: Output,
) -> None:
    """Extract the answers of a recording again.

    Reads the stored texts with this version's extraction, or as another kind of answer, writes a
    new recording, and shows which answers and golds changed. No LLM is asked; the old recording
    stays as it is.

    Example: feval extract my-recording --answer-kind latex --out again
    """
    recording = local_folder(recording)
    with machines as executor:
        extraction = extract_answers(
            recording,
            out,
            answer_kind=answer_kind,
            source=answers,
            equality=equality,
            executor=executor,
        )
    show.note(*extraction.notes)
    summary = dataclasses.asdict(extraction) | {"path": str(out)}
    show.result(summary, info_headline(open_recording(out)), "", *changes_tables(extraction))


def _question_ids(path: Path) -> list[str]:
    # Not splitlines(): an id may hold other line separators.
    lines = read_text(path, "a file with one question id per line", "--questions-file").split("\n")
    ids = [line.strip() for line in lines if line.strip()]
    if not ids:
        raise SourceError(f"{path} is empty; it should hold one question id per line.")
    return ids


def _first_questions(recording: Recording, datasets: Sequence[str] | None, first: int) -> list[str]:
    if first < 1:
        raise OutOfRangeError(f"--first takes 1 or more; {first} was given.")
    # Question ids are unique within a dataset only, so there must be one dataset.
    dataset = only_dataset(datasets[0] if datasets and len(datasets) == 1 else None, [recording])
    ids = recording.votes(dataset).question_ids
    if first > len(ids):
        raise NotRecordedError(
            f"{dataset} has {counted(len(ids), 'question')}; --first {first} asks for more."
        )
    return list(ids[:first])


_FIRST = 100


def show(
    *,
    recording: RecordingFolder,
    question: str | None = argument(
        "Id of a question, or words of its text. Default: list.", "[QUESTION]"
    ),
    dataset: OnlyDatasets,
    llm: OnlyLLMs,
    sample: list[int] | None = option("Only this CoT, from 0; repeat for several.", "INDEX", min=0),
    reasoning: bool = option("Show thoughts, too."),
    first: int | None = option(
        "List the N hardest questions. Default: 100. On a page, the first N of each"
        " dataset; all that fit.",
        "N",
        min=1,
        show_default=False,
    ),
    right: Right,
    disagree: bool = option("List only questions on which gold and verdict disagree."),
    html: Path | None = option("Make a page to explore the recording in a browser.", "FILE"),
    force: bool = option("Replace the file at --html."),
    show: Output,
) -> None:
    """List the questions of a recording, the hardest first, or show one with its CoTs.

    A question is shown with its gold, how many CoTs of each LLM gave each answer, and the CoTs, in
    which the answer stands out; on a terminal in colour, through the pager that PAGER names. With
    --html, a page has all of it, offline: one file that fetches nothing. It holds about 40 MB of
    texts; what it leaves out it says.

    Example: feval show my-recording gsm8k/test/17 --llm gpt-4o-mini --sample 0
    """
    opened, row = open_place(recording), 0
    if html is not None:
        if question is not None or sample or reasoning or disagree:
            raise UsageError(
                "A page has all questions with their CoTs; leave QUESTION, --sample, --reasoning"
                " and --disagree out."
            )
        check_folder(html.parent)
    elif force:
        raise UsageError("--force replaces a page; name it with --html.")
    elif question is None and (sample or reasoning):
        raise UsageError(
            "--sample and --reasoning belong to one question; name it behind the recording."
        )
    elif question is not None:
        if len(dataset or ()) > 1:
            raise UsageError("One question is of one dataset; give --dataset once.")
        own, row = find_question(opened, question, dataset[0] if dataset else None)
        dataset = [own]
    pairs = pairs_of(opened, dataset, llm)
    chosen = {name: [own for of, own in pairs if of == name] for name, _ in pairs}
    if html is not None:
        page = view_page(opened, chosen, first=first, right=right)
        show.note(*page.left_out)
        save_files(html.parent, {html.name: page.html.encode()}, replace=force)
        summary = {"path": str(html), "questions": page.questions, "left_out": page.left_out}
        show.result(summary, f"wrote {html} with {counted(page.questions, 'question')}")
        return
    if question is not None:
        [(own, names)] = chosen.items()
        (asked,) = recorded_questions(opened, own, names, range(row, row + 1), right)
        largest = max((len(on.codes) for on in asked.llms), default=0)
        if sample and max(sample) >= largest:
            found = f"indices 0 to {largest - 1} were" if largest else "no CoT was"
            raise OutOfRangeError(
                f"--sample {max(sample)} was asked for, and {found} recorded of question"
                f" {asked.question.id!r}."
            )
        pieces = question_pieces(asked, samples=sample, reasoning=reasoning)
        show.pages(question_dict(asked, sample), *pieces)
        return
    listed, tables, recorded = [], [], {}
    for name, llms in chosen.items():
        seen = overview(opened, name, llms, right)
        if disagree:
            order = seen.order[seen.disagree[seen.order] > 0]
            seen = dataclasses.replace(seen, order=order)
        rows, recorded[name] = seen.order[: first or _FIRST].tolist(), len(seen.order)
        listed += overview_dict(seen, rows)
        tables.append(overview_table(seen, rows))
    show.pages({"questions": listed, "recorded": recorded}, *tables)


_MOST_DIFFERENCES = 20


@machine_options
def verify(
    *,
    recording: Path | None = argument(
        "Folder of a recording or a report, or a receipt.json; also on the Hub.",
        "RECORDING|RECEIPT",
    ),
    last: bool = option("The newest receipt in your state folder."),
    recordings: list[Path] | None = option(
        "Where a receipt's recording is, if it moved.", "DIR", name="--recording"
    ),
    methods: UsersMethods,
    sandbox: Sandbox,
    prices: str | None = option("A price list of your own that the receipt needs.", "LIST"),
    refit: bool = option("Let methods learn again what the receipt says they learnt."),
    machines: Machines,
    show: Output,
) -> None:
    """Check a recording, or the numbers of a receipt.

    Checks every byte and hash of a recording; computes the numbers of a receipt again.

    Exit code: 0 all agree; 1 something differs.
    """
    if last == (recording is not None):
        raise UsageError(
            "Name a recording or a receipt to verify, or give --last for the newest receipt in your"
            " state folder."
        )
    files = [make_method(name, sandbox=sandbox) for name in methods or []]
    recording = recording or last_receipt()
    if not (is_receipt(recording) and is_address(recording)):
        recording = local_folder(recording)
        if not (recording / "manifest.json").is_file() and (recording / "receipt.json").is_file():
            recording = recording / "receipt.json"  # the folder that a report was written to
    if is_receipt(recording):
        # `Path` drops a slash of an address
        path = str(parse_address(recording) if is_address(recording) else recording)
        local = local_receipt(recording)
        with machines as executor:
            check = verify_receipt(
                local, recordings, methods=files, prices=prices, refit=refit, executor=executor
            )
        show.note(*check.notes)
        summary = {
            "path": path,
            "ok": check.equal,
            "kind": check.kind,
            "numbers": check.numbers,
            "files": list(check.files),
            "differences": [dataclasses.asdict(each) for each in check.differences],
        }
        nouns = {"compare": "a comparison", "estimate": "an estimate"}
        what = nouns.get(check.kind, f"a {check.kind}")
        sound = f"right: {check.numbers} values of {what} computed again, all equal"
        problems = [*check.files, *map(str, check.differences[:_MOST_DIFFERENCES])]
        if (more := len(check.differences) - _MOST_DIFFERENCES) > 0:
            problems.append(f"{more:,} more of {check.numbers:,} values differ; --json lists all.")
    else:
        if recordings or methods or sandbox or prices or refit:
            raise UsageError(
                "--recording, --method, --sandbox, --prices and --refit belong to receipts;"
                f" {recording} is not a receipt."
            )
        path = str(recording)
        with machines as executor:
            verification = verify_recording(recording, executor=executor)
        show.note(*verification.remarks)
        summary = dataclasses.asdict(verification) | {"path": path, "ok": verification.ok}
        leaves = "1 leaf" if verification.leaves == 1 else f"{verification.leaves:,} leaves"
        checked = f"{counted(verification.files, 'file')} and {leaves} checked"
        sound = f"sound: {checked}, hash {verification.recording_hash}"
        problems = [*verification.problems]
    show.result(summary, *([f"{path} is {sound}"] if summary["ok"] else []))
    for problem in problems:
        say(f"error: {path}: {problem}")
    if not summary["ok"]:
        raise typer.Exit(1)
