"""`feval compare`: the methods of a plan, on the same questions and draws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from feval.cli import (
    DatasetName,
    JsonFlag,
    NoReceipt,
    QuietFlag,
    ReceiptFile,
    _folders,
    _guarded,
    _hush_matplotlib,
    _only,
    _Out,
    app,
)
from feval.cli.saving import Saved, encoded
from feval.errors import ConflictError, ShortPoolError, UsageError

if TYPE_CHECKING:
    from feval.comparison.comparison import Comparison
    from feval.comparison.plan import Plan
    from feval.replay.loading import LLM

__all__: list[str] = []


@app.command("compare")
@_guarded
def _compare(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="TOML file with the plan; see docs/comparing.md.", show_default=False),
    ],
    unlabelled: Annotated[
        str | None,
        typer.Option("--unlabelled", metavar="refuse|drop", help="In place of what the plan says of missing golds."),
    ] = None,
    short_pools: Annotated[
        str | None,
        typer.Option("--short-pools", metavar="refuse|drop", help="In place of what the plan says of short pools."),
    ] = None,
    init: Annotated[
        bool, typer.Option("--init", help="Write a plan for what a recording holds, to start from; compute nothing.")
    ] = False,
    recordings: Annotated[
        list[Path] | None,
        typer.Option("--recording", metavar="DIR", help="For --init. Repeat for several."),
    ] = None,
    dataset: DatasetName = None,
    llms: Annotated[
        list[str] | None,
        typer.Option(
            "--llm", metavar="NAME", help="For --init. Repeat for several, the cheap ones first. Default: all."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Write report.html, pictures, tables and receipt.json there."),
    ] = None,
    receipt: ReceiptFile = None,
    no_receipt: NoReceipt = False,
    order: Annotated[
        str | None,
        typer.Option(
            "--order", metavar="KIND", help="exact, seeded, recorded or mixed, for all methods. Default: the plan's."
        ),
    ] = None,
    workers: Annotated[int, typer.Option("--workers", min=1, help="Processes; the numbers do not depend on it.")] = 1,
    time_limit: Annotated[
        float, typer.Option("--time-limit", min=0.001, metavar="SECONDS", help="For a user's method, per question.")
    ] = 60.0,
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there with other content.")] = False,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Compare methods on the same questions and draws.

    Differences at equal cost, savings at equal accuracy, the frontier and a ranking, every number with an interval.

    Example: feval compare plan.toml --init --recording my-recording && feval compare plan.toml --out comparison
    """
    show = _Out(as_json=as_json, quiet=quiet)
    given = {"unlabelled": unlabelled, "short_pools": short_pools}
    choices = {name: choice for name, choice in given.items() if choice is not None}
    if init:
        if out is not None or receipt is not None or no_receipt or order is not None:
            raise UsageError(
                "--init writes a plan and computes nothing; --order, --out and receipts belong to the comparison itself."
            )
        _init(show, file, recordings, dataset, llms, choices, overwrite=force)
        return
    if recordings or dataset or llms:
        raise UsageError(
            f"The plan {file} says which recording, dataset and LLMs are compared; change it there, or make another with --init."
        )
    if order is not None:
        choices["order"] = order
    _run(show, file, choices, Saved(out, receipt, no_receipt, force), workers, time_limit)


def _run(show: _Out, file: Path, choices: dict[str, Any], saved: Saved, workers: int, time_limit: float) -> None:
    from feval.comparison.comparison import compare
    from feval.comparison.plan import Plan
    from feval.receipts.receipts import compare_receipt
    from feval.report.tables.comparisons import comparison_tables

    plan = replace(Plan.read(file), **choices)
    with show.progress(f"comparing {len(plan.entries)} methods"):
        told = compare(plan, workers=workers, base=file.parent, time_limit=time_limit)
    if told.missing and show.json:  # there is no table of them
        for one in told.missing:
            show.note(f"Missing: {one.label}. {one.reason}")
    elif told.missing:
        show.note(f"Missing: {', '.join(one.label for one in told.missing)}. The last table gives the reasons.")
    if plan.costs and len(told.curves) > 1 and not told.differences:
        show.note(
            "The plan's costs lie outside of what any two methods share, so no accuracies are compared; change costs."
        )
    saved.show(
        show,
        told.to_dict(),
        *comparison_tables(told),
        receipt=lambda folder: compare_receipt(told, file.parent, folder),
        files=lambda folder: _files(told, file.parent, folder, time_limit),
    )


def _files(told: Comparison, base: Path, out: Path, time_limit: float) -> dict[str, bytes]:
    from feval.report.comparison_files import comparison_files
    from feval.report.tables.comparisons import questions_parquet, results_csv, results_parquet

    _hush_matplotlib()
    return {
        "comparison.json": encoded(told.to_dict()),
        "comparison.toml": told.plan.moved(base, out).to_toml().encode(),
        "results.csv": results_csv(told).encode(),
        "results.parquet": results_parquet(told),
        "questions.parquet": questions_parquet(told),
        **comparison_files(told, base=base, receipt="receipt.json", time_limit=time_limit),
    }


def _usual_axis(llms: Sequence[LLM]) -> str:
    """What budgets are counted in: dollars, or what every LLM has that is nearest to them."""
    if any(int(llm.pool.prompt_tokens.min()) < 0 for llm in llms):
        return "samples"
    return "usd" if all(llm.price is not None for llm in llms) else "tokens"


def _init(
    show: _Out,
    file: Path,
    recordings: list[Path] | None,
    dataset: str | None,
    llms: list[str] | None,
    choices: dict[str, Any],
    *,
    overwrite: bool,
) -> None:
    from feval.comparison.plan import suggested_plan
    from feval.hub import open_place
    from feval.replay.loading import load
    from feval.report.files import save_files

    folders = _folders(recordings)
    opened = [open_place(folder) for folder in folders]
    dataset = _only("dataset", dataset, (held for recording in opened for held in recording.dataset_ids()))
    _, replayed = load(dataset, llms, opened)
    usual = choices.get("short_pools") == "drop"
    most = {llm.name: llm.pool.usual if usual else llm.pool.smallest for llm in replayed}
    if empty := next((name for name, cots in most.items() if not cots), None):
        raise ShortPoolError(
            f"{empty} has no recorded CoT on some question of {dataset}, so no budget fits. Leave such questions out with "
            "--short-pools drop, or name other LLMs with --llm."
        )
    suggested = suggested_plan(
        dataset,
        [_place_from(file.parent, folder) for folder in folders],
        most,
        axis=_usual_axis(replayed),
    )
    plan: Plan = replace(suggested, **choices)
    written = plan.to_toml().encode()
    if file.is_dir():
        raise UsageError(
            f"{file} is a folder; name the file that the plan is written to, such as {file / 'plan.toml'}."
        )
    if file.is_file() and not overwrite and file.read_bytes() != written:
        raise ConflictError(
            f"{file} is there already, with another plan. Name another file, or pass --force to replace it."
        )
    save_files(file.parent, {file.name: written}, replace=overwrite, option="FILE")
    entries = ", ".join(entry.label for entry in plan.entries)
    show.result(
        {"file": str(file), "plan": plan.to_dict()},
        f"wrote {file}: {entries}",
        f"Edit it as you like, then: feval compare {file}",
    )


def _place_from(folder: Path, place: Path) -> str:
    from feval.comparison.plan import path_from
    from feval.hub import is_address, parse_address

    return str(parse_address(place)) if is_address(place) else path_from(folder, place)
