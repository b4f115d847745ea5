"""`feval curve`: one method over a budget."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from feval.cli import (
    _DEFAULT_COUNTS,
    Billing,
    DatasetName,
    JsonFlag,
    LLMNames,
    NoReceipt,
    Prices,
    QuietFlag,
    ReceiptFile,
    RecordingFolders,
    Replicates,
    Settings,
    ShortPools,
    SplitSeed,
    TrainFraction,
    Unlabelled,
    _folders,
    _guarded,
    _hush_matplotlib,
    _no_dollars,
    _only,
    _Out,
    app,
    parse_counts,
)
from feval.cli.saving import Saved, encoded
from feval.errors import OutOfRangeError, UsageError

if TYPE_CHECKING:
    from feval.evaluation.curves import Curve
    from feval.replay.loading import LLM, Dataset

__all__: list[str] = []


@app.command("curve")
@_guarded
def _curve(
    method: Annotated[str, typer.Argument(metavar="METHOD", help="See `feval ls methods`.", show_default=False)],
    recordings: RecordingFolders = None,
    dataset: DatasetName = None,
    llms: LLMNames = None,
    n: Annotated[
        str | None,
        typer.Option(
            "--n",
            metavar="COUNTS",
            help="CoTs per question: 1..40, 1..40..3, 1,5,10 or 20. Default: 1 to what every question has, 40 at most.",
        ),
    ] = None,
    sweep: Annotated[
        str | None,
        typer.Option(
            "--sweep", metavar="FIELD=VALUES", help="Another field to vary: budget=5,10,20 or threshold=0.5,0.7."
        ),
    ] = None,
    settings: Settings = None,
    billing: Billing = "once",
    prices: Prices = None,
    seed: Annotated[int, typer.Option("--seed", help="Of the draws, for --order seeded.")] = 0,
    order: Annotated[
        str | None,
        typer.Option(
            "--order", metavar="KIND", help="exact, recorded or seeded. Default: exact where there is such a form."
        ),
    ] = None,
    replicates: Replicates = 100,
    unlabelled: Unlabelled = "refuse",
    short_pools: ShortPools = "refuse",
    train_fraction: TrainFraction = None,
    split_seed: SplitSeed = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="DIR", help="Write curve.csv, .parquet, .json, .png, .svg and receipt.json there."
        ),
    ] = None,
    receipt: ReceiptFile = None,
    no_receipt: NoReceipt = False,
    force: Annotated[bool, typer.Option("--force", help="Replace other curve files in --out and --receipt.")] = False,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Show accuracy against cost for a method.

    One point for each number of CoTs per question, or each value of another field, with a 95 % interval over questions and the
    ceiling pass@n.

    Example: feval curve self-consistency --recording my-recording --n 1..40 --out my-curve
    """
    from feval.evaluation.curves import budget_field, method_curve, self_consistency_curve
    from feval.evaluation.specs import parse_settings
    from feval.hub import open_place
    from feval.replay.loading import load
    from feval.report.tables.tables import curve_table

    budget, given = budget_field(method), parse_settings(settings or [])
    field, values = _swept(method, budget, n, sweep)
    if field in given:
        raise UsageError(
            f"{field} is what varies, so it cannot be set as well; leave --set {field}={given[field]} out."
        )
    learns = {"train_fraction": train_fraction, "split_seed": split_seed}
    choices: dict[str, Any] = {"unlabelled": unlabelled, "short_pools": short_pools}
    if short_pools == "drop" and not values:
        raise UsageError(
            f"--short-pools drop leaves out the questions with fewer CoTs than the largest {field}; say which with "
            f"{'--n' if sweep is None else '--sweep'}, such as --n 1..20."
        )
    plain = method == "self-consistency" and field == "n" and not given and train_fraction is None
    show, saved = _Out(as_json=as_json, quiet=quiet), Saved(out, receipt, no_receipt, force)
    with show.progress(f"{method} curve"):
        opened = [open_place(folder) for folder in _folders(recordings)]
        dataset = _only("dataset", dataset, (held for recording in opened for held in recording.dataset_ids()))
        held = [name for recording in opened for name in recording.llm_names(dataset)]
        names = llms or ([_only("LLM", None, held)] if held else None)  # if nobody is held, `load` says what is
        questions, replayed = load(dataset, names, opened, seed=seed, prices=prices, billing=billing)
        values = values or _usual(
            method, field, given, max(1, min(*(llm.pool.smallest for llm in replayed), _DEFAULT_COUNTS))
        )
        curve = (
            self_consistency_curve(
                questions, replayed[0], values, order=order or "exact", replicates=replicates, **choices
            )
            if plain and len(replayed) == 1
            else method_curve(
                questions,
                replayed,
                method,
                field,
                values,
                settings=given,
                order=order,
                replicates=replicates,
                **choices,
                train_fraction=train_fraction,
                split_seed=split_seed,
            )
        )
    if prices != "none" and any(point.usd_per_question is None for point in curve.points):
        show.note(_no_dollars(next((llm for llm in replayed if llm.price is None), replayed[0])))
    saved.show(
        show,
        curve.to_dict(),
        curve_table(curve),
        receipt=lambda folder: _receipt(curve, questions, replayed, folder, choices | learns, plain=plain),
        files=lambda _: _files(curve),
    )


def _swept(method: str, budget: str | None, n: str | None, sweep: str | None) -> tuple[str, Sequence[Any]]:
    """The field that varies, and its values where they are given."""
    if n is not None and sweep is not None:
        raise UsageError("--n and --sweep both say what varies; give one of them.")
    if sweep is None:
        if budget is None:
            raise UsageError(
                f"{method} has no field that counts CoTs; say what varies, such as --sweep threshold=0.5,0.7. "
                f"`feval ls {method}` shows its fields."
            )
        return budget, () if n is None else parse_counts(n)
    field, equals, values = sweep.partition("=")
    if not equals or not values:
        raise UsageError(f"--sweep takes FIELD=VALUES, such as threshold=0.5,0.7; {sweep!r} was given.")
    if ".." in values:
        return field, parse_counts(values)
    try:
        return field, [_value(value) for value in values.split(",")]
    except ValueError as error:
        raise UsageError(
            f"The values of --sweep are finite numbers such as 0.5,0.7 or a range such as 1..10; {values!r} was given. "
            "Compare words with one `feval run` each."
        ) from error


def _value(text: str) -> int | float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def _usual(method: str, field: str, given: dict[str, str], most: int) -> list[int]:
    """The budgets that a method takes, up to the most CoTs there are: some have a least one."""
    from feval.evaluation.specs import make_method

    taken = []
    for value in range(1, most + 1):
        try:
            make_method(method, given | {field: value})
        except OutOfRangeError:
            continue
        taken.append(value)
    return taken or [most]


def _receipt(
    curve: Curve, dataset: Dataset, llms: Sequence[LLM], folder: Path, chosen: dict[str, Any], *, plain: bool
) -> dict[str, Any]:
    from feval.receipts.receipts import curve_receipt, pins

    request = {
        "method": curve.method,
        "dataset": curve.dataset,
        "llms": [llm.name for llm in llms],
        "field": None if plain else curve.field,
        "values": [point.n for point in curve.points],
        "settings": dict(curve.settings),
        "order": curve.points[0].kind,
        "replicates": curve.replicates or 1,
        **chosen,
        "seed": curve.seed,
        "billing": curve.billing,
        "confidence": curve.confidence,
    }

    return curve_receipt(request, curve.to_dict(), pins(dataset, llms, folder))


def _files(curve: Curve) -> dict[str, bytes]:
    from feval.report.pictures.curve import curves_png, curves_svg
    from feval.report.tables.csv import curve_csv
    from feval.report.tables.parquet import curve_parquet

    _hush_matplotlib()
    return {
        "curve.csv": curve_csv(curve).encode(),
        "curve.parquet": curve_parquet(curve),
        "curve.json": encoded(curve.to_dict()),
        "curve.png": curves_png([curve]),
        "curve.svg": curves_svg([curve]),
    }
