"""`feval compare`: the methods of a comparison file, on the same questions and draws."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, cast

import typer

from feval.cli.evaluating import ResultFiles, encoded, request_options, result_options
from feval.cli.options import (
    DatasetName,
    Machines,
    Sandbox,
    TimeLimit,
    UsersMethods,
    machine_options,
    only_name,
    recording_folders,
)
from feval.cli.output import Output, quiet_matplotlib
from feval.comparison.comparison import compare as compare_methods
from feval.comparison.durations import durations
from feval.comparison.plan import Plan, path_from, suggested_plan
from feval.errors import ConflictError, ShortPoolError, UsageError
from feval.evaluation.method_names import make_method
from feval.hub.addresses import is_address, parse_address
from feval.hub.places import open_place
from feval.receipts.writing import comparison_receipt
from feval.replay.loading import load
from feval.report import tables
from feval.report.files import Content, save_files
from feval.report.page.comparison_files import comparison_files
from feval.report.tables.comparisons import comparison_tables, results_csv
from feval.report.tables.headline import headline
from feval.report.tables.tables import Table, columns
from feval.report.text import counted, duration

if TYPE_CHECKING:
    from feval.comparison.comparison import Comparison
    from feval.comparison.durations import Durations
    from feval.replay import LLM

_IN_MEMORY = 1 << 26  # bytes of questions.parquet; a larger one waits in the temporary folder


@request_options(Plan, overriding=True)
@machine_options
@result_options("report.html, pictures, tables and receipt.json")
def compare(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The comparison file; see docs/comparing.md.", show_default=False)
    ],
    *,
    init: Annotated[
        bool, typer.Option("--init", help="Write a comparison file for what a recording holds; compute nothing.")
    ] = False,
    recordings: Annotated[
        list[Path] | None, typer.Option("--recording", metavar="DIR", help="For --init. Repeat for several.")
    ] = None,
    dataset: DatasetName = None,
    llms: Annotated[
        list[str] | None,
        typer.Option(
            "--llm", metavar="NAME", help="For --init. Repeat for several, the cheap ones first. Default: all."
        ),
    ] = None,
    methods: UsersMethods = None,
    sandbox: Sandbox = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print how long it will take; compute nothing else.")
    ] = False,
    show_all: Annotated[bool, typer.Option("--all", help="Print every table, after the headline.")] = False,
    options: dict[str, Any],
    machines: Machines,
    time_limit: TimeLimit = 60.0,
    saved: ResultFiles,
    show: Output,
) -> None:
    """Compare methods on the same questions and draws.

    Prints the best method at three budgets, the frontier, significant differences and what failed; --all prints the rest.
    Options such as --replicates override the file.

    Example: feval compare plan.toml --init --recording my-recording && feval compare plan.toml --out comparison
    """
    if (prices := options.get("prices")) and Path(prices).is_file():
        options["prices"] = path_from(file.parent, Path(prices))
    if (init or dry_run) and (saved.out is not None or saved.receipt is not None):
        raise UsageError(
            f"{'--init' if init else '--dry-run'} computes nothing; --out and receipts belong to the comparison."
        )
    if init:
        _init(show, file, recordings, dataset, llms, options, overwrite=saved.force)
        return
    if recordings or dataset or llms:
        raise UsageError(
            f"The comparison file {file} says which recording, dataset and LLMs are compared; change it there, or write another "
            "with --init."
        )
    plan, base = Plan.read(file).changed(**options), file.parent
    if sandbox and not methods:
        raise UsageError(
            "--sandbox is for methods of your own; name them with --method FILE.py:FUNCTION, or leave it out."
        )
    given = [make_method(name, sandbox=sandbox) for name in methods or () if ":" in name]
    if dry_run:
        with show.progress("measuring"), machines.opened() as executor:
            planned = durations(plan, base=base, time_limit=time_limit, methods=given)
            workers: int = getattr(executor, "workers", 1)
        _show_durations(show, planned, workers)
        return
    with show.progress(f"comparing {len(plan.entries)} methods") as progress, machines.opened() as executor:
        comparison = compare_methods(
            plan,
            executor=executor,
            base=base,
            time_limit=time_limit,
            methods=given,
            progress=progress.foretell(
                lambda cots: f"{counted(len(plan.entries), 'method')}, {cots:,} CoTs per question,"
            ),
        )
    if show.json:  # there are no tables
        for one in comparison.missing:
            show.note(f"Missing: {one.label}. {one.reason}")
    if plan.costs and len(comparison.curves) > 1 and not comparison.differences:
        show.note(
            "No two methods share any of the given costs, so no accuracies are compared; change `costs` in the file."
        )
    with SpooledTemporaryFile(_IN_MEMORY) as questions:
        saved.show(
            show,
            comparison.to_dict(),
            *headline(comparison, complete=show_all),
            *(comparison_tables(comparison) if show_all else ()),
            receipt=lambda folder: comparison_receipt(comparison, base, folder),
            files=lambda folder: _files(comparison, base, folder, time_limit, cast("BinaryIO", questions)),
        )


def _show_durations(show: Output, planned: Durations, workers: int) -> None:
    rows = [(one.label, str(one.points), ", ".join(one.kinds), duration(one.seconds)) for one in planned.methods]
    draws = counted(planned.plan.replicates or 1, "draw")
    show.result(
        planned.to_dict(workers),
        f"{planned.plan.dataset}, {counted(planned.questions, 'question')}; seeded methods take {draws} of each",
        Table("Time in one process", columns("method", "#points", "kind", "#time"), tuple(rows)),
        *(f"missing: {one.label}: {one.reason}" for one in planned.missing),
        f"About {duration(planned.seconds(workers))} with {counted(workers, 'worker')}, measured on the first questions; "
        "statistics and files come on top.",
    )


def _files(comparison: Comparison, base: Path, out: Path, time_limit: float, questions: BinaryIO) -> dict[str, Content]:
    quiet_matplotlib()
    tables.questions_parquet(comparison, questions)
    return {
        "comparison.json": encoded(comparison.to_dict()),
        "comparison.toml": comparison.plan.moved(base, out).to_toml().encode(),
        "results.csv": results_csv(comparison).encode(),
        "results.parquet": tables.results_parquet(comparison),
        "questions.parquet": questions,
        **comparison_files(comparison, base=base, receipt="receipt.json", time_limit=time_limit),
    }


def _init(
    show: Output,
    file: Path,
    recordings: list[Path] | None,
    dataset: str | None,
    llms: list[str] | None,
    options: dict[str, Any],
    *,
    overwrite: bool,
) -> None:
    folders = recording_folders(recordings)
    opened = [open_place(folder) for folder in folders]
    dataset = only_name("dataset", dataset, (name for recording in opened for name in recording.dataset_ids()))
    _, replayed = load(dataset, llms, opened, prices=options.get("prices"))
    drop = options.get("short_pools") == "drop"
    most = {llm.name: llm.pool.usual if drop else llm.pool.smallest for llm in replayed}
    if empty := next((name for name, cots in most.items() if not cots), None):
        raise ShortPoolError(
            f"{empty} has no recorded CoT on some question of {dataset}, so no budget fits. Leave such questions out with "
            "--short-pools drop, or name other LLMs with --llm."
        )
    places = [str(parse_address(place)) if is_address(place) else path_from(file.parent, place) for place in folders]
    plan = suggested_plan(dataset, places, most, cost=_usual_cost(replayed)).changed(**options)
    content = plan.to_toml().encode()
    if file.is_dir():
        raise UsageError(f"{file} is a folder; name the comparison file to write, such as {file / 'plan.toml'}.")
    if file.is_file() and not overwrite and file.read_bytes() != content:
        raise ConflictError(f"{file} exists, with other content. Name another file, or pass --force to replace it.")
    save_files(file.parent, {file.name: content}, replace=overwrite, option="FILE")
    show.result(
        {"file": str(file), "plan": plan.to_dict()},
        f"wrote {file}: {', '.join(entry.label for entry in plan.entries)}",
        f"Edit it as you like, then: feval compare {file}",
    )


def _usual_cost(llms: Sequence[LLM]) -> str:
    """What budgets are counted in: dollars, or the nearest to them that every LLM has."""
    if any(int(llm.pool.prompt_tokens.min()) < 0 for llm in llms):
        return "output-tokens"
    return "usd" if all(llm.price is not None for llm in llms) else "tokens"
