"""`feval score`: add scores by judges, self-checks, reward models and functions to the CoTs of a recording."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from feval.cli.options import NewFolder, OnlyDatasets, OnlyLLMs, RecordingFolder, whole_folder
from feval.cli.output import Output
from feval.cli.record import RunDisplay, estimated_usd
from feval.errors import UsageError
from feval.recording import open_recording
from feval.report.tables.info import info_headline
from recorders.asking.pace import Limits
from recorders.scoring.missing_scores import estimate_scoring, run_scoring
from recorders.scoring.pairwise import PairwiseComparison
from recorders.scoring.scorers import LOCAL, make_scorer
from recorders.scoring.scoring import CoTScoring, ScoringResult
from recorders.work.settings import default_prices

if TYPE_CHECKING:
    from recorders.asking.budget import CostEstimate
    from recorders.scoring.missing_scores import ScoringTask
    from recorders.scoring.pairwise import PairwiseResult
    from recorders.scoring.scorer import Scorer


def score(
    recording: RecordingFolder,
    scorer: Annotated[
        str,
        typer.Option(
            "--scorer",
            metavar="SPEC",
            help="python:MODULE:FUNCTION, judge:MODEL, verbal:MODEL, p-true:MODEL, http:URL, vllm-score:MODEL or "
            "transformers:FOLDER.",
        ),
    ],
    out: NewFolder,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="Name of the scores in the recording. Default: SPEC.")
    ] = None,
    dataset: OnlyDatasets = None,
    llm: OnlyLLMs = None,
    base_url: Annotated[
        str | None, typer.Option("--base-url", metavar="URL", help="Endpoint. Default: OPENAI_BASE_URL, or OpenAI.")
    ] = None,
    key_variable: Annotated[
        str | None,
        typer.Option("--api-key-env", metavar="VARIABLE", help="Variable with the API key. Default: OPENAI_API_KEY."),
    ] = None,
    concurrency: Annotated[int, typer.Option("--concurrency", metavar="N", help="Most requests in flight.")] = 64,
    timeout: Annotated[float, typer.Option("--timeout", metavar="SECONDS", help="Longest wait for one reply.")] = 600.0,
    cost_limit: Annotated[
        float | None, typer.Option("--cost-limit", metavar="USD", help="Stop before spending more.")
    ] = None,
    prices: Annotated[
        str | None, typer.Option("--prices", metavar="ID", help="Price list, or none. Default: 2025-06-02.")
    ] = None,
    retry_refused: Annotated[
        bool, typer.Option("--retry-refused", help="Ask again about CoTs that the scorer refused; keep other scores.")
    ] = False,
    pairwise: Annotated[bool, typer.Option("--pairwise", help="Have the judge compare CoTs of two LLMs.")] = False,
    calls: Annotated[
        str, typer.Option("--calls", metavar="WHICH", help="Calls of LLMs that share noise: same, next or both.")
    ] = "both",
    orders: Annotated[
        str, typer.Option("--orders", metavar="WHICH", help="Ask in both orders, or in a random one.")
    ] = "both",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print calls, tokens and dollars to come; ask nothing.")
    ] = False,
    *,
    show: Output,
) -> None:
    """Add scores to the CoTs of a recording.

    A function, a judge, a self-check or a reward model scores every CoT, or its steps; the scores go into a new recording. If the
    run stops, the same command continues it. Functions run with your permissions: name only those you trust.

    Example: feval score my-recording --scorer judge:gpt-4o-mini --out judged
    """
    recording = whole_folder(show, recording)
    made = make_scorer(
        scorer, name=name, base_url=base_url, key_variable=key_variable, timeout_s=timeout, asks=not dry_run,
        pairwise=pairwise,
    )  # fmt: skip
    prices = prices or default_prices(made.request_cost.model if made.request_cost else "")
    if not pairwise and (calls, orders) != ("both", "both"):
        raise UsageError("--calls and --orders are for --pairwise, which was not given.")
    which: dict[str, Any] = {"datasets": dataset or None, "llms": llm or None, "retry_refused": retry_refused}
    task: ScoringTask[Any] = (
        PairwiseComparison.of(recording, made, calls=calls, orders=orders, **which)
        if pairwise
        else CoTScoring.of(recording, made, **which)
    )
    if dry_run:
        _show_estimate(show, estimate_scoring(task, out, prices), made, prices, task.unit)
        return
    limits = Limits(concurrency=concurrency, timeout_s=timeout)
    with show.progress(f"scoring {recording.name}") as bar:
        display = RunDisplay(bar, show, recording.name)
        result = run_scoring(task, out, limits=limits, prices=prices, cost_limit_usd=cost_limit, progress=display)
    _show_result(show, result, out)


def _show_result(show: Output, result: ScoringResult | PairwiseResult, out: Path) -> None:
    for sentence in result.notes:
        show.note(sentence)
    if isinstance(result, ScoringResult):
        summary = f"{result.with_score:,} of {result.cots:,} CoTs have a score by {result.scorer}"
        if result.refused:
            summary += (
                f"; {result.refused:,} were refused: the same command on {out}, with --retry-refused and another --out, asks "
                "for them again"
            )
    else:
        summary = (
            f"{result.verdicts:,} of {result.comparisons:,} comparisons have a verdict by {result.judge}, {result.ties:,} of "
            f"them ties ({result.same_text:,} of equal texts, which were not asked)"
        )
    show.result(dataclasses.asdict(result) | {"path": str(out)}, info_headline(open_recording(out)), summary)


def _show_estimate(show: Output, estimate: CostEstimate, scorer: Scorer, prices: str, unit: str) -> None:
    name, is_local = scorer.info.name, scorer.info.kind in LOCAL
    prompt, output = estimate.prompt_tokens, estimate.output_tokens
    sentence = f"To come: {estimate.cots:,} {unit} in {estimate.calls:,} calls of {name}"
    if is_local:
        sentence += ", on this machine: no tokens, no dollars."
    elif prompt is None or output is None:
        sentence += "; tokens and price are not known."
    else:
        most = "at most" if estimate.at_most else "about"
        sentence += (
            f", about {prompt:,} prompt tokens and {most} {output:,} output tokens; {estimated_usd(estimate, prices)}."
        )
    lengths = "" if prompt is None else f"Lengths are from {estimate.basis}. "
    account = {"scorer": name, "local": is_local, **dataclasses.asdict(estimate)}
    show.result(account, sentence, f"{lengths}Nothing was asked.")
