"""`feval record`: ask an LLM for chains of thought and seal them as a recording."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import AfterValidator, Field

from feval.cards.tokens import check_counter
from feval.cli.asking import AskingSettings, RunDisplay, estimated_usd, settings_options
from feval.cli.options import NewFolder
from feval.cli.output import Output
from feval.cli.recordings.files import show_recording
from feval.errors import UsageError
from feval.publish.secrets import known_secrets
from feval.report.text import counted
from recorders.asking.budget import dollars
from recorders.request import Decoding
from recorders.work.record import estimate_dataset, record_dataset
from recorders.work.settings import (
    RecordingSettings,
    default_backend,
    default_decoding,
    default_prices,
    load_questions,
    make_backend,
    make_task,
)

if TYPE_CHECKING:
    from recorders.asking.budget import CostEstimate, ProbeEstimate
    from recorders.work.task import RecordingTask


def _json_values(values: dict[str, Any]) -> dict[str, Any]:
    try:
        json.dumps(values, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"it cannot be sent as JSON: {error}") from error
    return values


class RecordSettings(AskingSettings):
    """The settings of `feval record`. A field without an option is set in a file only."""

    dataset: Annotated[
        str, typer.Option("--dataset", metavar="ID", help="Required. See `feval ls datasets`.")
    ]
    llm: Annotated[
        str,
        typer.Option(
            "--llm",
            metavar="NAME",
            help="Required. Its name in the recording, such as gpt-4o-mini@t=0.8.",
        ),
    ]
    backend: Annotated[
        str | None,
        typer.Option(
            "--backend", metavar="NAME", help="openai, tiny or transformers. Default: by --llm."
        ),
    ] = None
    model: Annotated[
        str | None,
        typer.Option(
            "--model", metavar="NAME", help="The provider's name for it. Default: --llm before '@'."
        ),
    ] = None
    questions: Annotated[
        Path | None,
        typer.Option(
            "--questions", metavar="FILE", help="JSON Lines or CSV. Default: from the Hub."
        ),
    ] = None
    first: Annotated[
        int | None, typer.Option("--first", metavar="N", help="Only the first N questions.")
    ] = None
    samples: Annotated[
        int | None,
        typer.Option(
            "--samples", metavar="N", help="CoTs per question. Default: 40; 3 if reasoning."
        ),
    ] = None
    prompt: str | None = None
    exemplars: str = "card"
    train_rows: Path | None = None
    exemplar_count: int | None = None
    reasoning: bool | None = None
    system_role: bool = True
    answer_kind: Annotated[
        str | None,
        typer.Option("--answer-kind", metavar="KIND", help="Default: the dataset card's."),
    ] = None
    equality: str | None = None
    temperature: Annotated[
        float | None,
        typer.Option(
            "--temperature",
            metavar="T",
            min=0,
            help="Default: the card's, or 0.7; not sent if reasoning.",
        ),
    ] = None
    top_p: float | None = None
    max_tokens: Annotated[
        int | None,
        typer.Option(
            "--max-tokens",
            metavar="N",
            min=1,
            help="Default: the card's, or 2048; 32768 if reasoning.",
        ),
    ] = None
    stop: list[str] | None = None
    seed: Annotated[
        int | None,
        typer.Option("--seed", metavar="S", help="Sample i is requested with seed S + i."),
    ] = None
    coupled: bool = False
    noise_seed: int | None = None
    logprobs: Annotated[
        int | None,
        typer.Option("--logprobs", metavar="K", min=0, help="Keep log-probabilities of the top K."),
    ] = None
    extra_body: Annotated[dict[str, Any], AfterValidator(_json_values)] | None = None
    allow_fields: list[str] | None = None
    probe_every: Annotated[
        int | None,
        typer.Option(
            "--probe-every", metavar="N", help="Probe each CoT after N, 2N, ... output tokens."
        ),
    ] = None
    probe_cue: str | None = None
    probe_tokens: int | None = None
    probe_template: str | None = None
    tree: Annotated[
        bool, typer.Option("--tree", help="Record trees of steps, for searches, as NAME@steps.")
    ] = False
    branch: int | None = None
    depth: int | None = None
    step_stop: str | None = None
    step_template: str | None = None
    protocol: Annotated[
        Path | None,
        typer.Option(
            "--protocol",
            metavar="FILE",
            help="Record turns, for revision: what is said after each reply.",
        ),
    ] = None
    turns: int | None = None
    turn_template: str | None = None
    samples_per_request: int | None = None
    counter: Annotated[str, AfterValidator(check_counter)] = "usage"
    mode: str = "new_episodes"
    partial: bool = False
    keep_journal: bool = False
    start: Annotated[
        Path | None,
        Field(alias="from"),
        typer.Option(
            "--from", metavar="RECORDING", help="Start with its CoTs; ask only for what it lacks."
        ),
    ] = None

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
        work = RecordingSettings(
            self.dataset, self.llm, self.model, self.samples, self.prompt, self.reasoning,
            self.system_role,
            self.answer_kind, self.decoding(), self.exemplars, self.train_rows, self.exemplar_count,
            self.equality, self.allow_fields or (),
            self.probe_every, self.probe_cue, self.probe_tokens, self.probe_template,
            self.tree, self.branch, self.depth, self.step_stop, self.step_template,
            self.protocol, self.turns, self.turn_template,
        )  # fmt: skip
        task = make_task(
            work,
            load_questions(self.dataset, self.questions, self.first, answer_kind=self.answer_kind),
        )
        task.refuse_secrets(known_secrets(self.api_key_env))
        return task


@settings_options(RecordSettings)
def record(
    out: NewFolder,
    *,
    settings: RecordSettings,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print expected calls, tokens and dollars; send nothing."),
    ] = False,
    show: Output,
) -> None:
    """Record an LLM on a dataset.

    Every reply is on disk before it counts. Ctrl-C waits for replies in flight (press it twice to
    stop at once). The same command continues, and asks again only for what was in flight when it
    was killed. API keys are read from the environment and never written. With --probe-every,
    complete CoTs are cut and made to answer there; with --tree, steps are recorded, for searches;
    with --protocol, every CoT is replied to, turn by turn.

    Example: feval record --dataset gsm8k --llm gpt-4o-mini --out my-recording --dry-run
    """
    task, limits = settings.task(), settings.limits(settings.samples_per_request)
    prices = settings.prices or default_prices(settings.llm)
    if dry_run:
        _note(show, [*settings.file_notes(), *task.notes])
        estimate = estimate_dataset(
            task, out, mode=settings.mode, limits=limits, prices=prices, start=settings.start
        )
        facts = {"prompt": task.prompt_version, "settings": settings.in_file}
        unit = {} if task.tree is None else {"unit": task.tree.unit.removesuffix("s")}
        lines = _expected(estimate, task, prices)
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
    )
    printed = _note(show, [*task.notes, *notes])
    options: dict[str, Any] = {
        "mode": settings.mode, "limits": limits, "prices": prices,
        "cost_limit_usd": settings.cost_limit,
        "counter": settings.counter, "partial": settings.partial,
        "keep_journal": settings.keep_journal, "backend_notes": notes,
    }  # fmt: skip
    with show.progress(f"recording {task.llm_name} on {task.dataset}") as bar:
        own = settings.backend is None and default_backend(settings.llm) == "tiny"
        where = (
            f"{settings.llm} is feval's own and computed on this machine: --backend tiny, chosen by"
            " its name."
        )
        display = RunDisplay(bar, show, [where] if own else [])
        record_dataset(
            task, backend, out, start=settings.start, progress=display,
            expected=lambda estimate: show.note(" ".join(_expected(estimate, task, prices))),
            **options,
        )  # fmt: skip
    show_recording(show, out, printed | display.printed)


def _note(show: Output, sentences: Iterable[str]) -> frozenset[str]:
    """Print what must be known before anything is paid for, and return it."""
    distinct = tuple(dict.fromkeys(sentences))
    for sentence in distinct:
        show.note(sentence)
    return frozenset(distinct)


def _expected(estimate: CostEstimate, task: RecordingTask, prices: str) -> list[str]:
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
    return [
        (
            f"To come: {counted(estimate.cots, unit)} in {calls}, {tokens};"
            f" {estimated_usd(estimate, prices)}{uncached}."
        ),
        *([_probe_line(estimate.probes)] if estimate.probes else []),
        f"Lengths are from {estimate.basis}.",
    ]


def _probe_line(probes: ProbeEstimate) -> str:
    whole, cached = (
        "" if usd is None else f" (${dollars(usd)})" for usd in (probes.usd, probes.usd_cached)
    )
    return (
        f"On top: {counted(probes.probes, 'probe')}, with"
        f" {counted(probes.prompt_tokens, 'prompt token')}{whole}, or"
        f" {probes.uncached_prompt_tokens:,}{cached} where the server caches prefixes, and at most"
        f" {probes.output_tokens:,} output tokens."
    )
