"""`feval record`, `score` and `demo`: what asks LLMs, and what they have in common."""

from __future__ import annotations

import dataclasses
import inspect
import json
import shlex
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

from pydantic import AfterValidator, Field, PrivateAttr
from typer import Option

from feval.cards.reading import read_toml
from feval.cards.tokens import check_counter
from feval.cli.commands import Decorator, expanded, keyword
from feval.cli.evaluating import field_option
from feval.cli.options import DryRun, Machines, NewFolder, RecordingFolder, machine_options
from feval.cli.output import Output, quiet_matplotlib
from feval.cli.recordings import show_recording
from feval.errors import UsageError
from feval.evaluation.requests import Request, beside, checked_by, option
from feval.hub import is_address, local_folder
from feval.publish.secrets import check_variable, known_secrets, refuse_secrets, shown
from feval.recording import open_recording
from feval.report.tables.recordings import info_headline
from feval.report.tables.tables import curves_table
from feval.report.text import counted, duration, percent
from feval.values import Record
from recorders.asking.engine import Progress, RunBar
from recorders.asking.pace import Limits, dollars
from recorders.backends.openai_compatible import Endpoint
from recorders.demo import LIVE_LLM, LIVE_QUESTIONS, LIVE_SAMPLES, LLMS, run_demo
from recorders.request import Decoding
from recorders.scoring.pairwise import PairwiseComparison
from recorders.scoring.scorers import LOCAL, make_scorer
from recorders.scoring.scoring import CoTScoring, estimate_scoring, run_scoring
from recorders.work.record import estimate_dataset, record_dataset
from recorders.work.settings import (
    RecordingOptions,
    RecordingSettings,
    default_backend,
    default_decoding,
    default_prices,
    load_questions,
    make_backend,
    make_task,
)

if TYPE_CHECKING:
    from feval.executors.progress import ProgressBar
    from recorders.asking.pace import CostEstimate
    from recorders.scoring.scores import Scorer
    from recorders.scoring.scoring import ScoringTask
    from recorders.work.record import RecordingTask


_LONG_WAIT_S = 60.0
_SET_HELP = "A rarer setting, such as concurrency=8; see docs/recording.md. Repeat for several."
_SETTINGS_HELP = "TOML file with options and rarer settings, such as `retries = 3`."


def _usable_variable(name: str | None) -> str | None:
    return check_variable(name) if name else name


class AskingSettings(Request):
    """Settings that recording and scoring share: where an LLM is, how fast and for how much it may
    be asked.

    A field that `option` declares is an option of the command line; any field may be set by `--set
    KEY=VALUE`, or in a file, `--settings FILE`.
    """

    base_url: Annotated[str | None, checked_by(Endpoint)] = option(
        None, "Endpoint. Default: OPENAI_BASE_URL, or OpenAI.", "URL"
    )
    api_key_env: Annotated[str | None, AfterValidator(_usable_variable)] = None
    concurrency: int = 64
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    retries: int = 8
    timeout: float = 600.0
    cost_limit: float | None = option(None, "Stop before spending more.", "USD", gt=0)
    prices: str | None = None

    _in_file: Record = PrivateAttr(default_factory=dict)

    @property
    def in_file(self) -> Record:
        """What the file says and no option of the command line overrides."""
        return self._in_file

    def file_notes(self) -> list[str]:
        """Sentences on what the file says; none without a file."""
        values = ", ".join(f"{name} = {json.dumps(value)}" for name, value in self._in_file.items())
        return [f"From the settings file: {values}."] if values else []

    def limits(self, samples_per_request: int | None = None) -> Limits:
        """How much may be asked of a server."""
        return Limits(
            self.concurrency, self.requests_per_minute, self.tokens_per_minute,
            samples_per_request, self.timeout, self.retries,
        )  # fmt: skip


def settings_options(model: type[AskingSettings]) -> Decorator:
    """Give a command --set, --settings and the options of a model, its own fields first; it gets an
    instance as `settings`.
    """
    names = [name for kind in model.__mro__ for name in inspect.get_annotations(kind)]
    fields = {name: model.model_fields[name] for name in names if name in model.model_fields}
    parameters = [
        keyword(name, field_option(field.alias or name, field, optional=True), None)
        for name, field in fields.items()
        if field.description
    ]
    pair = Option("--set", metavar="KEY=VALUE", help=_SET_HELP)
    file = Option("--settings", metavar="FILE", help=_SETTINGS_HELP)
    parameters += keyword("pairs", list[str] | None, pair), keyword("settings", Path | None, file)

    def build(options: Record) -> AskingSettings:
        """Settings of a file and of the command line, which comes first. Paths in the file start
        from its folder.
        """
        path, pairs = options.pop("settings"), options.pop("pairs")
        noun, in_file = "The command", {}
        if path is not None:
            noun = f"The settings file {path}"
            in_file = read_toml(path, "The settings file", "Write lines such as `retries = 3`.")
        given = dict(_key_value(model, pair) for pair in pairs or ()) | {
            fields[name].alias or name: value
            for name, value in options.items()
            if value is not None
        }
        in_file = {name: value for name, value in in_file.items() if name not in given}
        values = in_file | given
        for name, field in model.model_fields.items():
            key = field.alias or name
            if field.is_required() and key not in values:
                raise UsageError(
                    f"--{key} is missing; give it, or `{key} = ...` in a file for --settings."
                )
            value = values.get(key)
            folder = path.parent if path is not None and key in in_file else Path()
            if not isinstance(value, str):
                continue
            if Path in get_args(field.annotation):
                values[key] = Path(value) if is_address(value) else folder / value
            elif key == "prices" and key in in_file:
                values[key] = beside(folder, value)
        settings = model.parse(noun, values)
        settings.in_file.update(
            {
                name: shown(value) if isinstance(value, str) else value
                for name, value in in_file.items()
            }
        )
        stored = {
            f"the setting {name}": value
            for name, value in settings.model_dump(mode="json", by_alias=True).items()
        }
        refuse_secrets(stored, known_secrets(settings.api_key_env))
        return settings

    return expanded("settings", parameters, build)


def _key_value(model: type[AskingSettings], pair: str) -> tuple[str, Any]:
    """Read KEY=VALUE; the value is TOML, or else, and for a setting that is text, as it stands."""
    key, equals, value = pair.partition("=")
    if not equals:
        raise UsageError(f"--set takes KEY=VALUE, such as concurrency=8; {pair!r} was given.")
    if key in model.model_fields and str in get_args(model.model_fields[key].annotation):
        return key, value
    try:
        return key, tomllib.loads(f"value = {value}")["value"]
    except ValueError:
        return key, value


class RunDisplay(RunBar):
    """Shows progress in a bar, and prints what it would hide: what was there before, the first
    failure and stop, warnings.

    Args:
        bar: shows the counts.
        show: prints the notes.
        first: notes for when it begins.

    Attributes:
        printed: the warnings that were printed, and which other notes were.
    """

    def __init__(self, bar: ProgressBar, show: Output, first: Sequence[str] = ()) -> None:
        super().__init__(bar)
        self._show, self._first = show, first
        self.printed: set[str] = set()

    def __call__(self, state: Progress) -> None:
        """Show a state."""
        super().__call__(state)
        kept = state.done - state.new
        before = (
            f"{kept:,} of {state.total:,} were there before and are kept; only the others are asked"
            " for."
        )
        self._once("begun", *self._first, *[before] * bool(kept))
        if state.trouble is not None:
            trouble = state.trouble.rstrip(".")
            self._once("trouble", f"A request failed and is sent again: {trouble}.")
        if state.waiting_s < _LONG_WAIT_S:
            self.printed.discard("waiting")
        else:
            wait = duration(state.waiting_s)
            self._once("waiting", f"The server asks to wait {wait}; nothing is sent until then.")
        if state.warning is not None:
            self._once(state.warning, state.warning)
        if state.stopping and state.in_flight:
            requests = f"{state.in_flight} request{'s' * (state.in_flight > 1)}"
            self._once(
                "stopping", f"Stopping: waiting for {requests} in flight. Ctrl-C stops at once."
            )

    def _once(self, what: str, *sentences: str) -> None:
        if what not in self.printed:
            self.printed.add(what)
            self._show.note(*sentences)


def estimated_usd(estimate: CostEstimate, prices: str) -> str:
    """Return an estimate's dollars in words."""
    if estimate.usd is None:
        return "no price known"
    return (
        f"{'at most' if estimate.at_most else 'about'} ${dollars(estimate.usd)} by price list"
        f" {prices}"
    )


def _json_values(values: Record) -> Record:
    try:
        json.dumps(values, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"it cannot be sent as JSON: {error}") from error
    return values


class RecordSettings(AskingSettings, RecordingOptions):  # type: ignore[misc]  # its configuration freezes it
    """The settings of `feval record`: those of a recording, some of them options of the command
    line, and how it is made. A field without an option is set in a file only.
    """

    dataset: str = option(..., "Required. See `feval ls datasets`.", "ID")
    llm: str = option(
        ..., "Required. Its name in the recording, such as gpt-4o-mini@t=0.8.", "NAME"
    )
    backend: str | None = option(None, "openai, tiny or transformers. Default: by --llm.", "NAME")
    model: str | None = option(
        None, "The provider's name for it. Default: --llm before '@'.", "NAME"
    )
    questions: Path | None = option(None, "JSON Lines or CSV. Default: from the Hub.", "FILE")
    first: int | None = option(None, "Only the first N questions.", "N")
    samples: int | None = option(None, "CoTs per question. Default: 40; 3 if reasoning.", "N")
    answer_kind: str | None = option(None, "Default: the dataset card's.", "KIND")
    temperature: float | None = option(
        None, "Default: the card's, or 0.7; not sent if reasoning.", "T", ge=0
    )
    top_p: float | None = None
    max_tokens: int | None = option(
        None, "Default: the card's, or 2048; 32768 if reasoning.", "N", ge=1
    )
    stop: list[str] | None = None
    seed: int | None = option(None, "Sample i is requested with seed S + i.", "S")
    coupled: bool = False
    noise_seed: int | None = None
    logprobs: int | None = option(None, "Keep log-probabilities of the top K.", "K", ge=0)
    extra_body: Annotated[Record, AfterValidator(_json_values)] | None = None
    probe_every: int | None = option(None, "Probe each CoT after N, 2N, ... output tokens.", "N")
    tree: bool = option(False, "Record trees of steps, for searches, as NAME@steps.")
    protocol: Path | None = option(
        None, "Record turns, for revision: what is said after each reply.", "FILE"
    )
    batch: bool = option(False, "Ask in batches, which are cheaper, and take up to a day.")
    resubmit: bool = option(
        False, "Ask again for batches that the server does not list or has no more."
    )
    batch_poll_seconds: Annotated[float, Field(gt=0)] = 60.0
    samples_per_request: int | None = None
    counter: Annotated[str, AfterValidator(check_counter)] = "usage"
    mode: str = "new_episodes"
    partial: bool = False
    keep_journal: bool = False
    start: Path | None = option(
        None, "Start with its CoTs; ask only for what it lacks.", "RECORDING", alias="from"
    )

    def decoding(self) -> Decoding:
        """The decoding, with the defaults of the LLM."""
        default = default_decoding(self.llm, reasoning=self.reasoning)
        if self.noise_seed is not None and not self.coupled:
            raise UsageError(
                f"The noise seed {self.noise_seed} is for coupled samples; add --coupled, or leave"
                " noise_seed out."
            )
        return Decoding(
            temperature=default.temperature if self.temperature is None else self.temperature,
            top_p=self.top_p,
            max_tokens=default.max_tokens if self.max_tokens is None else self.max_tokens,
            stop=tuple(self.stop or ()),
            seed=self.seed,
            logprobs=self.logprobs,
            extra_body=self.extra_body or {},
            noise_seed=(self.noise_seed or 0) if self.coupled else None,
        )

    def task(self) -> RecordingTask:
        """What is to be recorded, checked."""
        given = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        questions = load_questions(
            self.dataset, self.questions, self.first, answer_kind=self.answer_kind
        )
        task = make_task(RecordingSettings(**given, decoding=self.decoding()), questions)
        task.refuse_secrets(known_secrets(self.api_key_env))
        return task


@settings_options(RecordSettings)
def record(out: NewFolder, *, settings: RecordSettings, dry_run: DryRun, show: Output) -> None:
    """Record an LLM on a dataset.

    Every reply is on disk before it counts. Ctrl-C waits for replies in flight (press it twice to
    stop at once). The same command continues, and asks again only for what was in flight when it
    was killed; with --batch, what was submitted goes on at the server, and is collected then. API
    keys are read from the environment and never written. With --probe-every,
    complete CoTs are cut and made to answer there; with --tree, steps are recorded, for searches;
    with --protocol, every CoT is replied to, turn by turn.

    Example: feval record --dataset gsm8k --llm gpt-4o-mini --out my-recording --dry-run
    """
    task, limits = settings.task(), settings.limits(settings.samples_per_request)
    prices = settings.prices or default_prices(settings.llm)
    if dry_run:
        show.note(*settings.file_notes(), *task.notes)
        estimate = estimate_dataset(
            task, out, mode=settings.mode, limits=limits, prices=prices, start=settings.start
        )
        facts = {"prompt": task.prompt_version, "settings": settings.in_file}
        unit = {} if task.tree is None else {"unit": task.tree.unit.removesuffix("s")}
        lines = _expected(estimate, task, prices, batch=settings.batch)
        show.result(
            estimate.account() | facts | unit,
            *lines[:-1],
            f"{lines[-1]} Prompt: {task.prompt_version}. Nothing was asked.",
        )
        return
    notes: list[str] = []
    backend = make_backend(
        settings.backend or default_backend(settings.llm),
        base_url=settings.base_url,
        key_variable=settings.api_key_env,
        timeout_s=settings.timeout,
        model=settings.model,
        notes=notes,
        batch_poll_s=(settings.batch_poll_seconds if settings.batch or settings.resubmit else None),
        resubmit=settings.resubmit,
    )
    printed = dict.fromkeys((*task.notes, *notes))
    show.note(*printed)  # before anything is paid for
    with show.progress(f"recording {task.llm_name} on {task.dataset}") as bar:
        first = []
        if settings.backend is None and default_backend(settings.llm) == "tiny":
            first.append(
                f"{settings.llm} is feval's own and computed on this machine: --backend tiny,"
                " chosen by its name."
            )
        if settings.batch:
            first.append(
                "Batches may take a day. Ctrl-C leaves them at the server, and the same command"
                " collects them."
            )
        display = RunDisplay(bar, show, first)
        record_dataset(
            task, backend, out, start=settings.start, progress=display,
            expected=lambda estimate: show.note(" ".join(_expected(estimate, task, prices))),
            mode=settings.mode, limits=limits, prices=prices, cost_limit_usd=settings.cost_limit,
            counter=settings.counter, partial=settings.partial,
            keep_journal=settings.keep_journal, backend_notes=notes,
        )  # fmt: skip
    show_recording(show, out, {*printed, *display.printed})


def _expected(
    estimate: CostEstimate, task: RecordingTask, prices: str, *, batch: bool = False
) -> list[str]:
    """Return what is to come, in sentences."""
    most = "at most " if estimate.at_most else "about "
    output = (
        "an unknown number of"
        if estimate.output_tokens is None
        else f"{most}{estimate.output_tokens:,}"
    )
    unit = "CoT" if task.tree is None else task.tree.unit.removesuffix("s")
    uncached = ""
    if estimate.uncached_prompt_tokens is not None:
        usd = "" if estimate.usd_cached is None else f" (${dollars(estimate.usd_cached)})"
        uncached = (
            f"; {estimate.uncached_prompt_tokens:,} prompt tokens{usd} where the server caches the"
            " conversation"
        )
    calls = f"{counted(estimate.calls, 'call')} (if the server gives several at once)"
    tokens = f"{counted(estimate.prompt_tokens or 0, 'prompt token')} and {output} output tokens"
    price = f"{estimated_usd(estimate, prices)}{uncached}"
    if batch:
        cheaper, none = estimate.usd_batch, "; no price in a batch is published there"
        price += none if cheaper is None else f", ${dollars(cheaper)} in a batch"
    lines = [f"To come: {counted(estimate.cots, unit)} in {calls}, {tokens}; {price}."]
    if (probes := estimate.probes) is not None:
        whole, cached = (
            "" if usd is None else f" (${dollars(usd)})" for usd in (probes.usd, probes.usd_cached)
        )
        lines.append(
            f"On top: {counted(probes.probes, 'probe')}, with"
            f" {counted(probes.prompt_tokens, 'prompt token')}{whole}, or"
            f" {probes.uncached_prompt_tokens:,}{cached} where the server caches prefixes, and at"
            f" most {probes.output_tokens:,} output tokens."
        )
    return [*lines, f"Lengths are from {estimate.basis}."]


class ScoreSettings(AskingSettings):
    """The settings of `feval score`. A field without an option is set in a file only."""

    scorer: str | None = option(
        None,
        "python:MODULE:FUNCTION, judge:MODEL, verbal:MODEL, p-true:MODEL, http:URL,"
        " vllm-score:MODEL or transformers:FOLDER.",
        "SPEC",
    )
    scores: Path | None = option(
        None, "Take scores from a table instead: CSV, JSON Lines or Parquet, a row per CoT.", "FILE"
    )
    score: list[str] | None = option(
        None, "Column of the table with scores, or NAME=COLUMN; repeat for more scorers.", "COLUMN"
    )
    name: str | None = None
    dataset: list[str] | None = option(None, "Score only this; repeat for more.", "ID")
    llm: list[str] | None = option(None, "Score only its CoTs; repeat for more.", "NAME")
    retry_refused: bool = option(
        False, "Ask again about CoTs that the scorer refused; keep other scores."
    )
    pairwise: bool = option(False, "Have the judge compare CoTs of two LLMs.")
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

    def task(self, recording: Path, scorer: Scorer) -> ScoringTask:
        """What is to be scored, checked."""
        if not self.pairwise and (self.calls, self.orders) != ("both", "both"):
            raise UsageError("calls and orders are for --pairwise, which was not given.")
        which: Record = {
            "datasets": self.dataset,
            "llms": self.llm,
            "retry_refused": self.retry_refused,
        }
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
    dry_run: DryRun,
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
        from feval.importers.scores import import_scores  # loads pyarrow

        imported = import_scores(
            recording,
            settings.scores,
            out,
            scores=settings.score or (),
            name=settings.name,
            datasets=settings.dataset,
            llms=settings.llm,
        )
        scored = (f"{counted(count, 'CoT')} by {name}" for name, count in imported.scored.items())
        _show_scored(show, imported, out, f"scored: {', '.join(scored)}")
        return
    with machines as executor:
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
            estimate = estimate_scoring(task, out, prices)
            _show_estimate(show, estimate, scorer, prices, task.unit, settings)
            return
        with show.progress(f"scoring {recording.name}") as bar:
            result = run_scoring(
                task, out, limits=settings.limits(), prices=prices,
                cost_limit_usd=settings.cost_limit,
                progress=RunDisplay(bar, show),
            )  # fmt: skip
    counts = result.counts
    if settings.pairwise:
        summary = (
            f"{counts['verdicts']:,} of {counts['comparisons']:,} comparisons have a verdict by"
            f" {result.scorer}, {counts['ties']:,} of them ties ({counts['same_text']:,} of equal"
            " texts, which were not asked)"
        )
    else:
        summary = (
            f"{counts['with_score']:,} of {counts['cots']:,} CoTs have a score by {result.scorer}"
        )
        if refused := counts["refused"]:
            summary += (
                f"; {refused:,} were refused: the same command on {out}, with --retry-refused and"
                " another --out, asks for them again"
            )
    _show_scored(show, result, out, summary)


def _show_scored(show: Output, result: Any, out: Path, summary: str) -> None:
    show.note(*result.notes)
    account = dataclasses.asdict(result) | {"path": str(out)}
    account |= account.pop("counts", {})
    show.result(account, info_headline(open_recording(out)), summary)


def _show_estimate(
    show: Output,
    estimate: CostEstimate,
    scorer: Scorer,
    prices: str,
    unit: str,
    settings: ScoreSettings,
) -> None:
    show.note(*settings.file_notes())
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


_DEMO_COUNTS = (1, 5, 10, 20, 40)


def demo(
    out: Annotated[
        Path, Option(metavar="DIR", help="Folder to make, or an earlier demo's to use again.")
    ] = Path("feval-demo"),
    *,
    show: Output,
) -> None:
    """See it work on real samples, offline, in seconds.

    Verifies the bundled recording of three small language models that come with feval, records some
    more of one of them live, votes, prices the votes and draws the curves, and writes what votes
    over chains that are cut short are worth.
    """
    quiet_matplotlib()
    result = run_demo(out)
    live = {
        "recording": str(result.live),
        "llm": LIVE_LLM,
        "cots": LIVE_QUESTIONS * LIVE_SAMPLES,
        "seconds": result.live_seconds,
    }
    few = [
        dataclasses.replace(
            curve, points=tuple(point for point in curve.points if point.n in _DEMO_COUNTS)
        )
        for curve in result.curves
    ]
    summary = {
        "recording": str(result.recording),
        "recording_hash": result.recording_hash,
        "live": live,
        "files": [str(path) for path in result.files],
        "depth": {
            "recording": str(result.depth),
            "frontier": [dict(point) for point in result.surface.frontier],
        },
        "curves": {curve.llm: curve.to_dict() for curve in result.curves},
    }
    recording = shlex.quote(str(result.recording))
    one, *_, most = result.curves[LLMS.index(LIVE_LLM)].points
    show.result(
        summary,
        curves_table(few),
        "",
        "Three small language models that come with feval (real; their prices are made up) answered"
        f" 200 word problems: {most.n} votes lift {LIVE_LLM} from {percent(one.accuracy)} to"
        f" {percent(most.accuracy)} % right (recordings, tables and pictures: {result.folder}).",
        "",
        "Try next:",
        f"  feval show {recording} --html recording.html",
        f"  feval curve self-consistency --recording {recording} --llm {LIVE_LLM} --n 1..40 --out"
        " my-curve",
        "  feval import --help",
    )
