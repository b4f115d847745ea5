"""`feval score`: add scores by judges, self-checks, reward models and functions to the CoTs of a
recording.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from feval.cli.asking import AskingSettings, RunDisplay, estimated_usd, settings_options
from feval.cli.options import Machines, NewFolder, RecordingFolder, machine_options
from feval.cli.output import Output
from feval.errors import UsageError
from feval.hub.places import local_folder
from feval.recording import open_recording
from feval.report.tables.recordings import info_headline
from feval.report.text import counted
from recorders.scoring.pairwise import PairwiseComparison
from recorders.scoring.scorers import LOCAL, make_scorer
from recorders.scoring.scoring import CoTScoring, ScoringResult, estimate_scoring, run_scoring
from recorders.work.settings import default_prices

if TYPE_CHECKING:
    from recorders.asking.budget import CostEstimate
    from recorders.scoring.pairwise import PairwiseResult
    from recorders.scoring.scores import Scorer
    from recorders.scoring.scoring import ScoringTask


class ScoreSettings(AskingSettings):
    """The settings of `feval score`. A field without an option is set in a file only."""

    scorer: Annotated[
        str | None,
        typer.Option(
            "--scorer",
            metavar="SPEC",
            help=(
                "python:MODULE:FUNCTION, judge:MODEL, verbal:MODEL, p-true:MODEL, http:URL,"
                " vllm-score:MODEL or transformers:FOLDER."
            ),
        ),
    ] = None
    scores: Annotated[
        Path | None,
        typer.Option(
            "--scores",
            metavar="FILE",
            help="Take scores from a table instead: CSV, JSON Lines or Parquet, a row per CoT.",
        ),
    ] = None
    score: Annotated[
        list[str] | None,
        typer.Option(
            "--score",
            metavar="COLUMN",
            help="Column of the table with scores, or NAME=COLUMN; repeat for more scorers.",
        ),
    ] = None
    name: str | None = None
    dataset: Annotated[
        list[str] | None,
        typer.Option("--dataset", metavar="ID", help="Score only this; repeat for more."),
    ] = None
    llm: Annotated[
        list[str] | None,
        typer.Option("--llm", metavar="NAME", help="Score only its CoTs; repeat for more."),
    ] = None
    retry_refused: Annotated[
        bool,
        typer.Option(
            "--retry-refused",
            help="Ask again about CoTs that the scorer refused; keep other scores.",
        ),
    ] = False
    pairwise: Annotated[
        bool, typer.Option("--pairwise", help="Have the judge compare CoTs of two LLMs.")
    ] = False
    calls: str = "both"
    orders: str = "both"

    def check_source(self, *, dry_run: bool) -> None:
        """Raise unless there is a scorer or a table, and options for it alone."""
        if (self.scorer is None) == (self.scores is None):
            raise UsageError(
                "Scores come from a scorer or from a table: give one of --scorer SPEC and --scores"
                " FILE."
            )
        if self.scores is None and self.score:
            raise UsageError(
                "--score names columns of a table, and none was given; give it with --scores FILE."
            )
        if self.scores is not None and (self.pairwise or self.retry_refused or dry_run):
            raise UsageError(
                "Scores of a table are read as they are: leave out --pairwise, --retry-refused and"
                " --dry-run."
            )

    def task(self, recording: Path, scorer: Scorer) -> ScoringTask[Any]:
        """What is to be scored, checked."""
        if not self.pairwise and (self.calls, self.orders) != ("both", "both"):
            raise UsageError("calls and orders are for --pairwise, which was not given.")
        which: dict[str, Any] = {"datasets": self.dataset, "llms": self.llm}
        which["retry_refused"] = self.retry_refused
        if self.pairwise:
            return PairwiseComparison.from_recording(
                recording, scorer, calls=self.calls, orders=self.orders, **which
            )
        return CoTScoring.from_recording(recording, scorer, **which)


@settings_options(ScoreSettings)
@machine_options
def score(
    recording: RecordingFolder,
    out: NewFolder,
    *,
    settings: ScoreSettings,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print expected calls, tokens and dollars; send nothing."),
    ] = False,
    machines: Machines,
    show: Output,
) -> None:
    """Add scores to the CoTs of a recording.

    A function, a judge, a self-check or a reward model scores every CoT, or its steps; or a table
    has the scores. They go into a new recording. If the run stops, the same command continues it.
    Functions run with your permissions: name only those you trust.

    Example: feval score my-recording --scorer judge:gpt-4o-mini --out judged
    """
    settings.check_source(dry_run=dry_run)
    recording = local_folder(recording)
    if settings.scores is not None:
        _import_scores(show, recording, settings.scores, out, settings)
        return
    with machines.opened() as executor:
        scorer = make_scorer(
            settings.scorer or "",
            name=settings.name,
            base_url=settings.base_url,
            key_variable=settings.api_key_env,
            timeout_s=settings.timeout,
            asks=not dry_run,
            pairwise=settings.pairwise,
            executor=executor,
        )
        prices = settings.prices or default_prices(
            scorer.request_cost.model if scorer.request_cost else ""
        )
        task = settings.task(recording, scorer)
        if dry_run:
            _show_estimate(
                show, estimate_scoring(task, out, prices), scorer, prices, task.unit, settings
            )
            return
        with show.progress(f"scoring {recording.name}") as bar:
            result = run_scoring(
                task, out, limits=settings.limits(), prices=prices,
                cost_limit_usd=settings.cost_limit,
                progress=RunDisplay(bar, show),
            )  # fmt: skip
    _show_result(show, result, out)


def _import_scores(
    show: Output, recording: Path, source: Path, out: Path, settings: ScoreSettings
) -> None:
    from feval.importers.scores import import_scores  # loads pyarrow

    imported = import_scores(
        recording,
        source,
        out,
        scores=settings.score or (),
        name=settings.name,
        datasets=settings.dataset,
        llms=settings.llm,
    )
    for sentence in imported.notes:
        show.note(sentence)
    scored = ", ".join(
        f"{counted(number, 'CoT')} by {scorer}" for scorer, number in imported.scored.items()
    )
    show.result(
        dataclasses.asdict(imported) | {"path": str(out)},
        info_headline(open_recording(out)),
        f"scored: {scored}",
    )


def _show_result(show: Output, result: ScoringResult | PairwiseResult, out: Path) -> None:
    for sentence in result.notes:
        show.note(sentence)
    if isinstance(result, ScoringResult):
        summary = f"{result.with_score:,} of {result.cots:,} CoTs have a score by {result.scorer}"
        if result.refused:
            summary += (
                f"; {result.refused:,} were refused: the same command on {out}, with"
                " --retry-refused and another --out, asks for them again"
            )
    else:
        summary = (
            f"{result.verdicts:,} of {result.comparisons:,} comparisons have a verdict by"
            f" {result.judge}, {result.ties:,} of them ties ({result.same_text:,} of equal texts,"
            " which were not asked)"
        )
    show.result(
        dataclasses.asdict(result) | {"path": str(out)}, info_headline(open_recording(out)), summary
    )


def _show_estimate(
    show: Output,
    estimate: CostEstimate,
    scorer: Scorer,
    prices: str,
    unit: str,
    settings: ScoreSettings,
) -> None:
    for note in settings.file_notes():
        show.note(note)
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
            f", about {prompt:,} prompt tokens and {most} {output:,} output tokens;"
            f" {estimated_usd(estimate, prices)}."
        )
    lengths = "" if prompt is None else f"Lengths are from {estimate.basis}. "
    account = {
        "scorer": name,
        "local": is_local,
        **dataclasses.asdict(estimate),
        "settings": settings.in_file,
    }
    show.result(account, sentence, f"{lengths}Nothing was asked.")
