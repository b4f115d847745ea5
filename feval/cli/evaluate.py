"""`feval run`, `curve`, `surface` and `grade`: one method, at one setting or over budgets; the
answers of another program.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from feval import receipts, serving
from feval.cli.commands import argument, option
from feval.cli.evaluating import (
    ResultFiles,
    last_receipt,
    open_request,
    request_options,
    result_options,
)
from feval.cli.options import (
    DEFAULT_COUNTS,
    DatasetName,
    LLMName,
    LLMNames,
    Machines,
    RecordingFolders,
    Right,
    Sandbox,
    Settings,
    ShowAll,
    TimeLimit,
    machine_options,
    note_missing_dollars,
    parse_counts,
    recording_folders,
)
from feval.cli.output import Output, announce_long_run
from feval.errors import UsageError
from feval.evaluation import MethodFile, evaluate
from feval.evaluation.curves import budget_field, swept_cascade
from feval.evaluation.method_names import (
    field_names,
    is_in_range,
    make_method,
    parse_settings,
    takes_several,
)
from feval.evaluation.requests import CurveRequest, EvaluationOptions, RunRequest, SurfaceRequest
from feval.evaluation.surfaces import surface as width_depth_surface
from feval.hub import open_place
from feval.methods import METHODS
from feval.receipts.repricing import PRICED
from feval.recording import open_recording
from feval.report import page, pictures, tables
from feval.report.files import encoded
from feval.report.page.document import verification
from feval.report.tables.tables import (
    curve_records,
    curves_table,
    evaluation_tables,
    grade_table,
    records_csv,
    repricing_table,
    surface_records,
    surface_table,
)
from feval.report.text import counted
from feval.values import Record, without_none


@request_options(EvaluationOptions)
@machine_options
@result_options("result.json and receipt.json")
def run(
    method: str = argument("See `feval ls methods`; FILE.py:FUNCTION; or oracle.", "METHOD"),
    *,
    settings: Settings,
    recordings: RecordingFolders,
    dataset: DatasetName,
    llms: LLMNames,
    machines: Machines,
    time_limit: TimeLimit = 60.0,
    sandbox: Sandbox,
    options: Record,
    saved: ResultFiles,
    show: Output,
) -> None:
    """Run one method on a dataset.

    Shows accuracy with its interval, CoTs, requests, tokens and dollars, and how wrong answers came
    about.

    Example: feval run early-stopping --set window=5 --recording my-recording --llm gpt-4o-mini
    """
    fields = parse_settings(settings or [])
    chosen = make_method(method, fields, sandbox=sandbox)
    with show.progress(method) as progress, machines as executor:
        request, questions, replayed = open_request(
            RunRequest, recordings, dataset, llms, method=method, settings=fields, **options
        )

        def draws(total: int) -> str:
            replicates = (
                1 if request.order == "recorded" else request.with_replicates(total).replicates
            )
            return f"{counted(total, 'question')} x {counted(replicates or 1, 'draw')}"

        result = evaluate(
            chosen,
            questions,
            replayed,
            **request.arguments(),
            executor=executor,
            progress=announce_long_run(progress, draws),
            time_limit=time_limit,
        )
    if result.usd is None:
        note_missing_dollars(show, request.prices, replayed)
    source = chosen.source_sha256 if isinstance(chosen, MethodFile) else None
    request = request.changed(method=result.method, order=result.kind, source_sha256=source)
    request, numbers = request.with_replicates(result.questions), result.to_dict()
    saved.show(
        show,
        numbers,
        *evaluation_tables([result]),
        receipt=partial(
            receipts.receipt, request, numbers, questions, replayed, learnt=result.learnt
        ),
    )


@request_options(EvaluationOptions)
@machine_options
@result_options(
    "curve.csv, .parquet, .json, .png, .svg and receipt.json (of several what `feval compare`"
    " writes)"
)
def curve(
    methods: list[str] = argument("See `feval ls methods`.", "METHOD..."),
    *,
    recordings: RecordingFolders,
    dataset: DatasetName,
    llms: LLMNames,
    n: str | None = option(
        "CoTs per question: 1..40, 1..40..3, 1,5,10 or 20. Default: 1 to what every"
        " question has, 40 at most.",
        "COUNTS",
    ),
    sweep: str | None = option(
        "Another field to vary: budget=5,10,20 or threshold=0.5,0.7.", "FIELD=VALUES"
    ),
    measure: str | None = option(
        "What k calls reach, --n being k: accuracy, pass@k, pass^k, g-pass@k:0.5,"
        " mg-pass@k. Of single-call.",
        "NAMES",
    ),
    settings: Settings,
    show_all: ShowAll,
    machines: Machines,
    options: Record,
    saved: ResultFiles,
    show: Output,
) -> None:
    """Show accuracy against cost for a method.

    One point for each number of CoTs per question, or each value of another field, with a 95 %
    interval over questions and the ceiling pass@n. Several methods, or one method on several LLMs,
    are compared, in one picture. With --measure, what k calls of one LLM reach.

    Example: feval curve self-consistency --recording my-recording --n 1..40 --out my-curve
    """
    fields, method = parse_settings(settings or []), methods[0]
    measures = () if measure is None else tuple(measure.replace(" ", "").split(","))
    if measures and (len(methods) > 1 or len(llms or ()) > 1):
        raise UsageError(
            "--measure says what k calls of one LLM reach; give one method, single-call, and one"
            " --llm."
        )
    if len(methods) > 1 or (len(llms or ()) > 1 and not takes_several(METHODS.get(method))):
        # one curve does without the modules of comparisons
        from feval.cli.compare import show_comparison
        from feval.comparison.listed import listed_plan

        for name, value in fields.items():
            if not any(":" not in method and name in field_names(method) for method in methods):
                make_method(method, {name: value})  # raises, and names the nearest
        budgets: Any = None if n is None else parse_counts(n)
        if sweep is not None:
            budgets = dict([_swept(method, None, n, sweep)])
        opened = [open_place(folder) for folder in recording_folders(recordings)]
        plan, users, absent = listed_plan(
            opened,
            methods,
            dataset=dataset,
            llms=llms,
            budgets=budgets,
            fields=fields,
            price_list=options.get("prices"),
            **without_none(options),
        )
        show.note(*(one.reason for one in absent))
        show_comparison(
            plan, saved, show, machines, show_all=show_all, recordings=opened, methods=users
        )
        return
    budget = "k" if measures else "price" if method == "router" else budget_field(method)
    field, values = _swept(method, budget, n, sweep)
    if field in fields:
        raise UsageError(
            f"{field} varies, so it cannot be set as well; leave --set {field}={fields[field]} out."
        )
    cascade = method == "cascade" and not (values or fields or options.get("train_fraction"))
    if options.get("short_pools") == "drop" and not (values or cascade):
        raise UsageError(
            f"--drop short-pools leaves out the questions with fewer CoTs than the largest {field};"
            f" say which with {'--n' if sweep is None else '--sweep'}, such as --n 1..20."
        )
    with machines as executor:
        request, questions, replayed = open_request(
            CurveRequest,
            recordings,
            dataset,
            llms,
            method=method,
            settings=fields,
            field=field,
            values=tuple(values),
            measures=measures,
            **options,
        )
        request = request.simplest()
        if cascade:
            own = swept_cascade(questions, replayed, split_seed=request.split_seed)
            replayed = [llm for name in own["llms"] for llm in replayed if llm.name == name]
            request = request.changed(
                field="budget",
                values=tuple(own["budgets"]["budget"]),
                settings=own["fields"],
                llms=tuple(own["llms"]),
                train_fraction=None if request.folds else own["train_fraction"],
            )
        elif (method, field) == ("router", "price"):
            if request.train_fraction is None and request.folds is None:
                request = request.changed(folds=_ROUTER_FOLDS)
        elif not values:
            most = max(1, min(*(llm.pool.smallest for llm in replayed), DEFAULT_COUNTS))
            counts = range(1, most + 1)  # some methods need more than one
            usual = [n for n in counts if measures or is_in_range(method, {**fields, field: n})]
            request = request.changed(values=tuple(usual or [most]))
        result = request.compute(questions, replayed, executor=executor)
    if any(point.usd_per_question is None for point in result.points):
        note_missing_dollars(show, request.prices, replayed)
    request = request.changed(
        values=tuple(point.n for point in result.points),
        order=result.points[0].kind,
        replicates=result.replicates or 1,
    )
    numbers = result.to_dict()
    saved.show(
        show,
        numbers,
        curves_table([result]),
        receipt=partial(
            receipts.receipt, request, numbers, questions, replayed, learnt=result.learnt
        ),
        files=lambda: _files("curve", numbers, curve_records(result), pictures.curves([result])),
    )


_ROUTER_FOLDS = 5  # where nobody says how a router learns


def _swept(
    method: str, budget: str | None, n: str | None, sweep: str | None
) -> tuple[str, Sequence[int | float]]:
    """The field that varies, and its values where they are given."""
    if n is not None and sweep is not None:
        raise UsageError("--n and --sweep both say what varies; give one of them.")
    if sweep is None:
        if budget is None:
            advice = (
                "count calls with --measure pass@k --n 1..K"
                if method == "single-call"
                else f"say what varies, such as --sweep threshold=0.5,0.7. `feval ls {method}`"
                " shows its fields"
            )
            raise UsageError(f"{method} has no field that counts CoTs; {advice}.")
        return budget, () if n is None else parse_counts(n)
    field, equals, values = sweep.partition("=")
    if not equals or not values:
        raise UsageError(
            f"--sweep takes FIELD=VALUES, such as threshold=0.5,0.7; {sweep!r} was given."
        )
    if ".." in values:
        return field, parse_counts(values)
    try:
        return field, [_number(value) for value in values.split(",")]
    except ValueError as error:
        raise UsageError(
            "The values of --sweep are finite numbers such as 0.5,0.7 or a range such as 1..10;"
            f" {values!r} was given. Compare words with one `feval run` each."
        ) from error


def _number(text: str) -> int | float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


@request_options(SurfaceRequest, without=("seed",))
@result_options("surface.csv, .parquet, .json, .png, .svg, .html and receipt.json")
def surface(
    recordings: RecordingFolders,
    dataset: DatasetName,
    llm: LLMName,
    n: str | None = option(
        "Traces per question: 1..64 or 1,2,3,128. Default: all numbers.", "COUNTS"
    ),
    tokens: str | None = option(
        "Tokens after which a trace is cut: 500,1000,none. Default: wherever there are probes.",
        "LIMITS",
    ),
    *,
    options: Record,
    saved: ResultFiles,
    show: Output,
) -> None:
    """Show accuracy and cost of votes over n traces that are cut after t tokens, for all n and t.

    Exact, from the probes of a recording. Shows the Pareto frontier; --json has every point, --out
    a heat map with lines of equal cost, too.

    Example: feval surface --recording my-recording --n 1..64 --tokens 500..16000..500,none --out
    my-surface
    """
    options["n"] = None if n is None else tuple(parse_counts(n, noun="traces"))
    options["tokens"] = None if tokens is None else _limits(tokens)
    request, questions, replayed = open_request(
        SurfaceRequest, recordings, dataset, [llm] if llm else None, **options
    )
    result = width_depth_surface(questions, replayed[0], **request.arguments())
    if result.points[0].usd_per_question is None:
        note_missing_dollars(show, request.prices, replayed)
    request = request.changed(n=tuple(result.widths), tokens=tuple(result.depths))
    numbers, seal = result.to_dict(), verification("receipt.json")
    saved.show(
        show,
        numbers,
        surface_table(result),
        receipt=partial(receipts.receipt, request, numbers, questions, replayed),
        files=lambda: (
            _files("surface", numbers, surface_records(result), pictures.surface(result))
            | {"surface.html": page.page.surface_page(result, seal).encode()}
        ),
    )


def _limits(text: str) -> tuple[int | None, ...]:
    """The limits of tokens that --tokens names, `None` for "none"."""
    pieces = [piece.strip() for piece in text.split(",")]
    numbers = ",".join(piece for piece in pieces if piece != "none")
    limits = parse_counts(numbers, "--tokens", "tokens") if numbers else []
    return (*limits, *([None] if "none" in pieces else []))


def _files(name: str, numbers: Record, records: Any, picture: Any) -> dict[str, bytes]:
    return {
        f"{name}.csv": records_csv(records).encode(),
        f"{name}.parquet": tables.records_parquet(records),
        f"{name}.json": encoded(numbers),
        f"{name}.png": picture.png(),
        f"{name}.svg": picture.svg(),
    }


@result_options("reprice.csv, .parquet, .json, .png and .svg")
def reprice(
    result: Path | None = argument(
        "A receipt of run, curve or compare, or the folder it is in. Default: the newest.", "RESULT"
    ),
    *,
    prices: list[str] = option(
        "Id or file of a price list, 'LIST with LLM=IN,OUT', 'LIST in batch'. Repeat.", "LIST"
    ),
    show_all: ShowAll,
    saved: ResultFiles,
    show: Output,
) -> None:
    """Show what a result costs at other prices, without evaluating again.

    The answers stay, and so do decisions that were made at the prices of their day.

    Example: feval reprice comparison --prices 2025-06-02 --prices genai-prices@2026-11-01
    """
    lists = receipts.reprice(result or last_receipt(*PRICED), prices)
    points = [
        {"prices": curve.prices, "method": curve.method, "llms": curve.llm}
        | {name: value for name, value in point.items() if name != "n"}
        for curves in lists
        for curve in curves
        for point in curve.points
    ]
    said = dict.fromkeys(each for curves in lists for curve in curves for each in curve.cautions)
    numbers = {"points": points, "warnings": [*said]}
    shown = [repricing_table(curves, whole=show_all) for curves in lists]
    written = saved.save(lambda: _files("reprice", numbers, points, pictures.curve_panels(lists)))
    show.result(numbers, *shown, written=written)


@result_options("result.json and receipt.json")
def grade(
    ledger: Path = option("What `feval serve --ledger` wrote, or a saved /feval/ledger.", "FILE"),
    answers: Path = option("Questions (ids or texts) and answers: .json, .jsonl or .csv.", "FILE"),
    *,
    run: str | None = option("Needed where there are several.", "NAME"),
    recordings: RecordingFolders,
    dataset: DatasetName,
    prices: str | None = option("File of a price list that is not among the cards.", "LIST"),
    right: Right,
    saved: ResultFiles,
    show: Output,
) -> None:
    """Grade the answers of a program that asked feval serve.

    The ledger says what the program was handed. Shows accuracy with its interval, CoTs, requests,
    tokens and dollars.

    Example: feval grade --ledger ledger.jsonl --answers answers.json --run mine --recording
    my-recording
    """
    served = serving.grading.read_ledger(ledger)
    opened = [open_recording(folder) for folder in recording_folders(recordings)]
    graded = serving.grading.grade_saved(
        served,
        run,
        serving.grading.read_answers(answers),
        opened,
        dataset=dataset,
        prices=prices,
        right=right,
    )
    show.note(*graded.remarks())
    saved.show(show, graded.result(), grade_table(graded.grade), receipt=graded.receipt)
