"""`feval score`: what judges, self-checks, reward models and functions say of the CoTs of a recording."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from feval.cli.options import JsonFlag, NewFolder, QuietFlag, RecordingFolder, whole_folder
from feval.cli.output import Output
from feval.errors import UsageError
from feval.recording import open_recording
from feval.report.tables.info import info_headline
from recorders.asking.pace import Limits
from recorders.scoring.pairwise import compare_pairs, estimate_pairs
from recorders.scoring.scorers import make_scorer
from recorders.scoring.scoring import Scoring, estimate_scoring
from recorders.scoring.scoring import score as score_recording
from recorders.work.assemble import usual_prices

if TYPE_CHECKING:
    from recorders.scoring.cost import ScoringEstimate
    from recorders.scoring.pairwise import Judging

__all__: list[str] = []


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
        str | None, typer.Option("--name", metavar="NAME", help="Of the scores in the recording. Default: SPEC.")
    ] = None,
    dataset: Annotated[
        list[str] | None, typer.Option("--dataset", metavar="ID", help="Score it only; repeat for more.")
    ] = None,
    llm: Annotated[
        list[str] | None, typer.Option("--llm", metavar="NAME", help="Score its CoTs only; repeat for more.")
    ] = None,
    base_url: Annotated[
        str | None,
        typer.Option(
            "--base-url", metavar="URL", help="OpenAI-compatible endpoint. Default: OPENAI_BASE_URL, or OpenAI."
        ),
    ] = None,
    key_variable: Annotated[
        str | None,
        typer.Option("--api-key-env", metavar="VARIABLE", help="Variable that holds the key. Default: OPENAI_API_KEY."),
    ] = None,
    concurrency: Annotated[int, typer.Option("--concurrency", metavar="N", help="Most requests in flight.")] = 64,
    timeout: Annotated[float, typer.Option("--timeout", metavar="SECONDS", help="Longest wait for a reply.")] = 600.0,
    cost_limit: Annotated[
        float | None, typer.Option("--cost-limit", metavar="USD", help="Stop before it is passed.")
    ] = None,
    prices: Annotated[
        str | None, typer.Option("--prices", metavar="ID", help="Price list, or none. Default: 2025-06-02.")
    ] = None,
    retry_refused: Annotated[
        bool,
        typer.Option("--retry-refused", help="Ask again for the CoTs that the scorer refused; keep its other scores."),
    ] = False,
    pairwise: Annotated[
        bool,
        typer.Option("--pairwise", help="The judge is shown CoTs of two LLMs on a question, and prefers one."),
    ] = False,
    calls: Annotated[
        str,
        typer.Option("--calls", metavar="WHICH", help="With --pairwise, of LLMs that share noise: same, next or both."),
    ] = "both",
    orders: Annotated[
        str, typer.Option("--orders", metavar="WHICH", help="With --pairwise: both, or random (one order, by a hash).")
    ] = "both",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say how many calls, tokens and dollars are to come; ask nothing.")
    ] = False,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Add scores to the CoTs of a recording.

    A function of yours, a judge, a self-check or a reward model gives every CoT a score, or a score per step, in a new recording.
    Running the same command again goes on where it stopped. Functions are run as they are: name only those you trust.

    Example: feval score my-recording --scorer judge:gpt-4o-mini --out judged
    """
    show = Output(as_json=as_json, quiet=quiet)
    recording = whole_folder(show, recording)
    made = make_scorer(
        scorer, name=name, base_url=base_url, key_variable=key_variable, timeout_s=timeout, asks=not dry_run,
        pairwise=pairwise,
    )  # fmt: skip
    prices = prices or usual_prices(made.asking.model if made.asking else "")
    what: dict[str, Any] = {
        "datasets": dataset or None,
        "llms": llm or None,
        "prices": prices,
        "retry_refused": retry_refused,
    }
    if pairwise:
        what |= {"calls": calls, "orders": orders}
    elif (calls, orders) != ("both", "both"):
        raise UsageError("--calls and --orders are for --pairwise, which was not given.")
    if dry_run:
        told = (estimate_pairs if pairwise else estimate_scoring)(recording, out, made, **what)
        _show_scoring_to_come(show, told, prices, "requests" if pairwise else "CoTs")
        return
    limits = Limits(concurrency=concurrency, timeout_s=timeout)
    with show.progress(f"scoring {recording.name}") as progress:
        what |= {"limits": limits, "cost_limit_usd": cost_limit, "progress": progress}
        done = (
            compare_pairs(recording, out, made, **what) if pairwise else score_recording(recording, out, made, **what)
        )
    _show_done(show, done, out)


def _show_done(show: Output, done: Scoring | Judging, out: Path) -> None:

    for sentence in done.notes:
        show.note(sentence)
    account = dataclasses.asdict(done) | {"path": str(out)}
    if isinstance(done, Scoring):
        told = f"{done.with_score:,} of {done.cots:,} CoTs have a score by {done.scorer}"
        if done.refused:
            told += (
                f"; {done.refused:,} were refused: the same command on {out}, with --retry-refused and another --out, asks for "
                "them again"
            )
    else:
        told = (
            f"{done.verdicts:,} of {done.comparisons:,} comparisons have a verdict by {done.judge}, {done.ties:,} of them ties "
            f"({done.same_text:,} of equal texts, which were not asked)"
        )
    show.result(account, info_headline(open_recording(out)), told)


def _show_scoring_to_come(show: Output, to_come: ScoringEstimate, prices: str, unit: str) -> None:
    most = "at most " if to_come.at_most else "about "
    prompt, output = to_come.prompt_tokens, to_come.output_tokens
    told = f"To come: {to_come.cots:,} {unit} in {to_come.calls:,} calls of {to_come.scorer}"
    if to_come.local:
        told += ", on this machine: no tokens, no dollars."
    elif prompt is None or output is None:
        told += "; tokens and price are not known."
    else:
        usd = "no price known" if to_come.usd is None else f"{most}${to_come.usd:,.4f} by price list {prices}"
        told += f", about {prompt:,} prompt tokens and {most}{output:,} output tokens; {usd}."
    lengths = "" if prompt is None else f"Lengths are from {to_come.basis}. "
    show.result(dataclasses.asdict(to_come), told, f"{lengths}Nothing was asked.")
