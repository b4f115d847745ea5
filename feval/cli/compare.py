"""`feval compare`: the methods of a comparison file, on the same questions and draws."""

from __future__ import annotations

from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import Any, BinaryIO, cast

from feval.cli.commands import argument, option
from feval.cli.evaluating import ResultFiles, request_options, result_options
from feval.cli.options import (
    DatasetName,
    Machines,
    Sandbox,
    ShowAll,
    TimeLimit,
    UsersMethods,
    fold_prices,
    machine_options,
    note_missing_dollars,
    recording_folders,
)
from feval.cli.output import Output, announce_long_run
from feval.comparison.comparison import compare as compare_methods
from feval.comparison.listed import listed_plan
from feval.comparison.plan import Plan, path_from
from feval.comparison.runner import durations
from feval.errors import UsageError
from feval.evaluation import TIME_LIMIT, make_method
from feval.evaluation.requests import beside
from feval.hub import is_address, open_place, parse_address
from feval.receipts.document import comparison_receipt
from feval.report.files import save_files
from feval.report.page.page import IN_MEMORY, result_files
from feval.report.tables.comparisons import comparison_tables, headline
from feval.report.tables.tables import Table, columns
from feval.report.text import counted, duration


@request_options(Plan, rare=("train_fraction",), overriding=True)
@machine_options
@result_options("report.html, pictures, tables and receipt.json")
def compare(
    file: Path = argument("The comparison file; see docs/comparing.md.", "FILE"),
    *,
    init: bool = option("Write a comparison file for what a recording holds; compute nothing."),
    recordings: list[Path] | None = option(
        "For --init. Repeat for several.", "DIR", name="--recording"
    ),
    dataset: DatasetName,
    llms: list[str] | None = option(
        "For --init. Repeat for several, the cheap ones first. Default: all.", "NAME", name="--llm"
    ),
    methods: UsersMethods,
    sandbox: Sandbox,
    dry_run: bool = option("Print how long it will take; compute nothing else."),
    show_all: ShowAll,
    options: dict[str, Any],
    machines: Machines,
    time_limit: TimeLimit = 60.0,
    saved: ResultFiles,
    show: Output,
) -> None:
    """Compare methods on the same questions and draws.

    Prints the best method at three budgets, the frontier, significant differences and what failed;
    --all prints the rest. Options such as --replicates override the file.

    Example: feval compare plan.toml --init --recording my-recording && feval compare plan.toml
    --out comparison
    """
    if (prices := options.get("prices")) and Path(prices).is_file():
        options["prices"] = path_from(file.parent, Path(prices))
    if (init or dry_run) and saved.out is not None:
        raise UsageError(
            f"{'--init' if init else '--dry-run'} computes nothing; --out belongs to"
            " the comparison."
        )
    if init:
        fold_prices(options)
        folders = recording_folders(recordings)
        opened = [open_place(folder) for folder in folders]
        prices = options.get("prices")
        price_list = prices and beside(file.parent, prices)
        plan, _, absent = listed_plan(
            opened, (), dataset=dataset, llms=llms, price_list=price_list, **options
        )
        places = [
            str(parse_address(place)) if is_address(place) else path_from(file.parent, place)
            for place in folders
        ]
        plan = plan.changed(recordings=tuple(places))
        if file.is_dir():
            raise UsageError(
                f"{file} is a folder; name the comparison file to write, such as"
                f" {file / 'plan.toml'}."
            )
        save_files(
            file.parent, {file.name: plan.to_toml().encode()}, replace=saved.force, option="FILE"
        )
        show.note(*(one.reason for one in absent))
        show.result(
            {"file": str(file), "plan": plan.to_dict()},
            f"wrote {file}: {', '.join(entry.label for entry in plan.entries)}",
            f"Edit it as you like, then: feval compare {file}",
        )
        return
    if recordings or dataset or llms:
        raise UsageError(
            f"The comparison file {file} says which recording, dataset and LLMs are compared;"
            " change it there, or write another with --init."
        )
    plan = Plan.read(file)
    fold_prices(options, plan.prices)
    plan = plan.changed(**options)
    if sandbox and not methods:
        raise UsageError(
            "--sandbox is for methods of your own; name them with --method FILE.py:FUNCTION, or"
            " leave it out."
        )
    given = [make_method(name, sandbox=sandbox) for name in methods or () if ":" in name]
    if dry_run:
        with show.progress("measuring"), machines as executor:
            planned = durations(plan, time_limit=time_limit, methods=given)
            workers: int = getattr(executor, "workers", 1)
        rows = [
            (one.label, str(one.points), ", ".join(one.kinds), duration(one.seconds))
            for one in planned.methods
        ]
        heads = columns("method", "#points", "kind", "#time")
        show.result(
            planned.to_dict(workers),
            f"{plan.dataset}, {counted(planned.questions, 'question')}; seeded methods take"
            f" {counted(planned.plan.replicates or 1, 'draw')} of each",
            Table("Time in one process", heads, tuple(rows)),
            *(f"missing: {one.label}: {one.reason}" for one in planned.missing),
            f"About {duration(planned.seconds(workers))} with {counted(workers, 'worker')},"
            " measured on the first questions; statistics and files come on top.",
        )
        return
    show_comparison(
        plan, saved, show, machines, show_all=show_all, methods=given, time_limit=time_limit
    )


def show_comparison(
    plan: Plan,
    saved: ResultFiles,
    show: Output,
    machines: Machines,
    *,
    show_all: bool = False,
    **given: Any,
) -> None:
    """Compute a comparison, print it and write its files; the rest are arguments of `compare`."""
    count = counted(len(plan.entries), "method")
    with show.progress(f"comparing {count}") as progress, machines as executor:
        steps = announce_long_run(progress, lambda cots: f"{count}, {cots:,} CoTs per question,")
        comparison = compare_methods(plan, executor=executor, progress=steps, **given)
    if show.json:  # there are no tables
        for one in comparison.missing:
            show.note(f"Missing: {one.label}. {one.reason}")
    if plan.costs and len(comparison.curves) > 1 and not comparison.differences:
        show.note(
            "No two methods share any of the given costs, so no accuracies are compared; change"
            " `costs` in the file."
        )
    if comparison.loaded and any(mean.usd_per_question is None for mean in comparison.baselines):
        note_missing_dollars(show, plan.prices, list(comparison.loaded[1].values()))
    limit: float | None = given.get("time_limit", TIME_LIMIT)
    with SpooledTemporaryFile(IN_MEMORY) as questions:
        saved.show(
            show,
            comparison.to_dict(),
            *headline(comparison, None if show_all else "--all"),
            *(comparison_tables(comparison) if show_all else ()),
            receipt=lambda folder: comparison_receipt(comparison, comparison.base, folder),
            files=lambda: result_files(
                comparison, cast("Path", saved.out), cast("BinaryIO", questions), time_limit=limit
            ),
        )
