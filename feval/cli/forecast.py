"""`feval estimate`, `plan` and `couple`: what votes will buy, and LLMs that share noise."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from feval.cards.names import base_of
from feval.cli.commands import option
from feval.cli.evaluating import (
    ResultFiles,
    drop_field,
    open_request,
    request_options,
    result_options,
)
from feval.cli.options import (
    DatasetName,
    Drop,
    LLMName,
    Machines,
    RecordingFolders,
    machine_options,
    note_missing_dollars,
    parse_counts,
    read_text,
    recording_folders,
)
from feval.cli.output import Output
from feval.errors import SourceError, UsageError
from feval.evaluation.requests import BudgetPlanRequest, EstimateRequest
from feval.forecast import PlanBudget as Budget, estimate as forecast_votes, plan as plan_budget
from feval.forecast.coupled import couple as couple_llms
from feval.receipts import receipt
from feval.recording import open_recording
from feval.recording.arrays import verdicts_name
from feval.replay import load, only_dataset
from feval.report import pictures
from feval.report.files import encoded
from feval.report.tables.forecasts import (
    coupling_csv,
    coupling_tables,
    forecast_records,
    forecast_tables,
    plan_tables,
)
from feval.report.tables.tables import records_csv, text_of_cell
from feval.values import Record

if TYPE_CHECKING:
    from feval.replay import LLM, Dataset


@request_options(EstimateRequest, rare=("seed",))
@machine_options
@result_options("estimate.csv, .json, .png and receipt.json")
def estimate(
    *,
    recordings: RecordingFolders,
    dataset: DatasetName,
    llm: LLMName,
    g: Annotated[int, option("Calls per question to estimate from.", "CALLS")] = 5,
    m: Annotated[
        str, option("Numbers of votes: 1..100, 1..99..2, 1,5,10 or 20.", "VOTES")
    ] = "1..40",
    method: Annotated[
        str,
        option(
            "unbiased, plug-in, monte-carlo, gaussian, two-call, max-entropy, ldgp; separated"
            " by commas.",
            "NAMES",
        ),
    ] = "unbiased,plug-in,two-call,max-entropy,ldgp",
    machines: Machines,
    options: Record,
    saved: ResultFiles,
    show: Output,
) -> None:
    """Forecast the accuracy of M votes from a few calls.

    Estimates with their intervals and costs, beside the exact curve of the whole pool, so that
    their error is visible. Notes say what would mislead.

    Example: feval estimate --recording my-recording --llm gpt-4o-mini --g 5 --m 1..40 --out
    my-estimate
    """
    votes = tuple(parse_counts(m, "--m", "votes"))
    methods = tuple(name.strip() for name in method.split(","))
    with machines as executor:
        request, questions, replayed = open_request(
            EstimateRequest,
            recordings,
            dataset,
            [llm] if llm else None,
            g=g,
            m=votes,
            methods=methods,
            **options,
        )
        result = forecast_votes(questions, replayed[0], **request.arguments(), executor=executor)
    numbers = result.to_dict()
    try:
        saved.show(
            show,
            numbers,
            *forecast_tables(result),
            receipt=partial(receipt, request, numbers, questions, replayed),
            files=lambda: _files(
                "estimate",
                numbers,
                records_csv(forecast_records(result)),
                pictures.forecast(result),
            ),
        )
    finally:  # also where files could not be written: what misleads is said after the answer
        show.note(*result.warnings)
        if result.usd_per_question[0] is None:
            note_missing_dollars(show, request.prices, replayed)


@request_options(BudgetPlanRequest, rare=("seed", "questions"))
def plan(
    budget: str = option("Such as 20usd or 500000tokens.", "AMOUNT", show_default=False),
    *,
    recordings: RecordingFolders,
    dataset: DatasetName,
    llm: LLMName,
    options: Record,
    show: Output,
) -> None:
    """Say what a budget buys, before it is spent.

    From a pilot recording: which vote to buy, what accuracy to expect, which votes are certified to
    help, what it costs.

    Example: feval plan --budget 20usd --recording my-recording --llm gpt-4o-mini
    """
    amount = Budget.parse(budget)
    options[f"budget_{amount.unit}"] = amount.amount
    request, pilot, [replayed] = open_request(
        BudgetPlanRequest, recordings, dataset, [llm] if llm else None, **options
    )
    result = plan_budget(pilot, replayed, **request.arguments())
    show.result(result.to_dict(), *plan_tables(result))
    show.note(*result.warnings)


def _files(name: str, numbers: Record, rows: str, picture: Any) -> dict[str, bytes]:
    return {
        f"{name}.csv": rows.encode(),
        f"{name}.json": encoded(numbers),
        f"{name}.png": picture.png(),
    }


@result_options("couple.csv, .json and .png")
def couple(
    *,
    recordings: RecordingFolders,
    independent: list[Path] | None = option(
        "The same LLMs with noise of their own; repeat for several.", "DIR"
    ),
    dataset: DatasetName,
    llms: list[str] | None = option(
        "Repeat for several. Default: all that share noise.", "NAME", name="--llm"
    ),
    areas: Path | None = option(
        "CSV with a column area or subject, and ids or rows in the dataset's order.", "FILE"
    ),
    scorer: str | None = option(
        "Win-rates by its scores or pairwise verdicts (pairwise:MODEL), not correctness.", "NAME"
    ),
    drop: Drop,
    saved: ResultFiles,
    show: Output,
) -> None:
    """Compare LLMs that were recorded with shared noise.

    Prints covariance and variances of their differences, the calls that coupling saves, and
    win-rates and ranks with and without it.

    Example: feval couple --recording tiny-42k --recording tiny-90k --out coupled
    """
    opened = [open_recording(folder) for folder in recording_folders(recordings)]
    others = [open_recording(folder) for folder in independent or ()]
    dataset = only_dataset(dataset, opened)
    questions, together = load(dataset, list(llms) if llms else None, opened, prices="none")
    if not llms:
        together = [llm for llm in together if llm.noise is not None] or together
    apart: list[LLM] = []  # the independent ones in the same order
    if others:
        recorded = [name for recording in others for name in recording.llm_names(dataset)]
        names = [llm.name for llm in together]
        counterparts = [_counterpart(name, recorded) for name in names]
        if both := set(names) & set(counterparts):
            raise UsageError(
                f"{min(both)} has the same name in both recordings, so they cannot be loaded"
                " together; rename the independent one to a variant, such as NAME@independent"
                " (`feval record --llm`)."
            )
        hashes = {recording.hash for recording in opened}  # one recording may hold both
        opened += [recording for recording in others if recording.hash not in hashes]
        questions, every = load(dataset, [*names, *counterparts], opened, prices="none")
        together, apart = every[: len(names)], every[len(names) :]
    recorded = [name for llm in together for name in llm.pool.channels.scorers()]
    judged = scorer and any(name.startswith(verdicts_name(scorer, "")) for name in recorded)
    by_area = None if areas is None else _areas(areas, questions)
    result = couple_llms(
        questions,
        together,
        apart,
        areas=by_area,
        scorer=None if judged else scorer,
        judge=scorer if judged else None,
        unlabelled="drop" if "unlabelled" in map(drop_field, drop or ()) else "refuse",
    )
    numbers = result.to_dict()
    written = saved.save(
        lambda: _files("couple", numbers, coupling_csv(result), pictures.coupling(result))
    )
    show.note(*result.warnings)
    show.result(numbers, *coupling_tables(result), written=written)


def _counterpart(name: str, recorded: Sequence[str]) -> str:
    """Find the independent recording of an LLM: the only other one with the same base name."""
    base = base_of(name)
    variants = [other for other in dict.fromkeys(recorded) if base_of(other) == base]
    variants = [other for other in variants if other != name] or variants
    if len(variants) != 1:
        names = (
            ", ".join(variants) or f"none among {', '.join(dict.fromkeys(recorded)) or 'nothing'}"
        )
        raise UsageError(
            f"The independent recording of {name} should be one LLM named {base}; found {names}."
            " Name it so."
        )
    return variants[0]


def _areas(path: Path, questions: Dataset) -> dict[str, str]:
    """Question id -> area."""
    text = read_text(path, "a table of areas", "--areas")
    try:
        rows = list(csv.DictReader(io.StringIO(text, newline="")))
    except csv.Error as error:
        raise SourceError(f"{path} cannot be read as CSV: {error}.") from error
    columns = set(rows[0]) if rows else set()
    column = next((name for name in ("area", "subject") if name in columns), None)
    if column is None:
        raise SourceError(
            f"{path} has no column area or subject; its columns are"
            f" {', '.join(sorted(map(str, columns))) or 'none'}."
        )
    if "id" in columns:
        return {text_of_cell(row["id"] or ""): row[column] for row in rows}
    ids = list(questions.question_ids)
    if len(rows) != len(ids):
        raise SourceError(
            f"{path} has {len(rows)} rows and no column id, and {questions.id} has {len(ids)}"
            " questions; give each row the id of its question."
        )
    return {name: row[column] for name, row in zip(ids, rows, strict=True)}
