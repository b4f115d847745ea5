"""`feval record`: ask an LLM for chains of thought and seal them as a recording."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from feval.cli.options import Equality, NewFolder
from feval.cli.output import Output, quiet_matplotlib
from feval.cli.recordings import show_recording
from feval.errors import ConflictError, FevalError, UsageError
from feval.report.text import counted
from recorders.asking.budget import dollars
from recorders.asking.pace import Limits
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
from recorders.work.topup import check_top_up, hub_recording, offer, recorded_folder, top_up

if TYPE_CHECKING:
    from feval.cli.output import ProgressBar
    from recorders.asking.budget import CostEstimate
    from recorders.asking.progress import Progress
    from recorders.request import Backend
    from recorders.work.task import RecordingTask
    from recorders.work.topup import HubRecording


_who_option, _prompt_option, _decoding_option, _limits_option, _journal_option = (
    partial(typer.Option, rich_help_panel=panel)
    for panel in (
        "LLM and endpoint", "Questions and prompt", "Decoding", "Limits and cost", "Continuing and topping up",
    )
)  # fmt: skip


def record(
    out: NewFolder,
    dataset: Annotated[str, typer.Option("--dataset", metavar="ID", help="See `feval ls datasets`.")],
    llm: Annotated[
        str, typer.Option("--llm", metavar="NAME", help="Its name in the recording, such as gpt-4o-mini@t=0.8.")
    ],
    backend: Annotated[
        str | None, _who_option("--backend", metavar="NAME", help="openai, tiny or transformers. Default: by --llm.")
    ] = None,
    base_url: Annotated[
        str | None, _who_option("--base-url", metavar="URL", help="Endpoint. Default: OPENAI_BASE_URL, or OpenAI.")
    ] = None,
    api_key_env: Annotated[
        str | None,
        _who_option("--api-key-env", metavar="VARIABLE", help="Variable with the API key. Default: OPENAI_API_KEY."),
    ] = None,
    model: Annotated[
        str | None, _who_option("--model", metavar="NAME", help="The provider's name of it. Default: --llm before '@'.")
    ] = None,
    questions: Annotated[
        Path | None, _prompt_option("--questions", metavar="FILE", help="JSON Lines. Default: from the Hub.")
    ] = None,
    first: Annotated[int | None, _prompt_option("--first", metavar="N", help="Only the first N questions.")] = None,
    samples: Annotated[
        int | None, _prompt_option("--samples", metavar="N", help="CoTs per question. Default: 40; 3 if reasoning.")
    ] = None,
    prompt: Annotated[
        str | None,
        _prompt_option("--prompt", metavar="CARD", help="Such as gsm8k@1, or none. Default: the dataset's latest."),
    ] = None,
    exemplars: Annotated[str, _prompt_option("--exemplars", metavar="SOURCE", help="card, or train (split).")] = "card",
    train_rows: Annotated[
        Path | None,
        _prompt_option("--train-rows", metavar="FILE", help="Rows of the train split. Default: from the Hub."),
    ] = None,
    exemplar_count: Annotated[
        int | None,
        _prompt_option("--exemplar-count", metavar="N", help="Number of train exemplars. Default: as in the card."),
    ] = None,
    reasoning: Annotated[
        bool | None, _prompt_option("--reasoning/--no-reasoning", help="Zero-shot. Default: by the LLM's card.")
    ] = None,
    system_role: Annotated[
        bool, _prompt_option("--system-role/--no-system-role", help="Whether it takes system messages.")
    ] = True,
    answer_kind: Annotated[
        str | None, _prompt_option("--answer-kind", metavar="KIND", help="Default: the dataset card's.")
    ] = None,
    equality: Equality = None,
    temperature: Annotated[
        float | None,
        _decoding_option(
            "--temperature", metavar="T", min=0, help="Default: the card's, or 0.7; not sent if reasoning."
        ),
    ] = None,
    top_p: Annotated[
        float | None, _decoding_option("--top-p", metavar="P", min=0, max=1, help="Nucleus sampling.")
    ] = None,
    max_tokens: Annotated[
        int | None,
        _decoding_option("--max-tokens", metavar="N", min=1, help="Default: the card's, or 2048; 32768 if reasoning."),
    ] = None,
    stop: Annotated[
        list[str] | None, _decoding_option("--stop", metavar="TEXT", help="Ends a CoT; repeat for several.")
    ] = None,
    seed: Annotated[
        int | None, _decoding_option("--seed", metavar="S", help="Sample i is requested with seed S + i.")
    ] = None,
    coupled: Annotated[
        bool, _decoding_option("--coupled", help="Share noise with other LLMs (local models only).")
    ] = False,
    noise_seed: Annotated[
        int | None, _decoding_option("--noise-seed", metavar="S", min=0, help="Seed of that noise. Default: 0.")
    ] = None,
    logprobs: Annotated[
        int | None, _decoding_option("--logprobs", metavar="K", min=0, help="Keep log-probabilities of the top K.")
    ] = None,
    extra_body: Annotated[
        str | None,
        _decoding_option("--extra-body", metavar="JSON", help="More fields of the request, sent as they are."),
    ] = None,
    concurrency: Annotated[int, _limits_option("--concurrency", metavar="N", help="Most requests in flight.")] = 64,
    requests_per_minute: Annotated[float | None, _limits_option("--requests-per-minute", metavar="N")] = None,
    tokens_per_minute: Annotated[float | None, _limits_option("--tokens-per-minute", metavar="N")] = None,
    samples_per_request: Annotated[
        int | None, _limits_option("--samples-per-request", metavar="N", help="Default: as many as the server gives.")
    ] = None,
    retries: Annotated[int, _limits_option("--retries", metavar="N", help="Attempts after a temporary failure.")] = 8,
    timeout: Annotated[
        float, _limits_option("--timeout", metavar="SECONDS", help="Longest wait for one reply.")
    ] = 600.0,
    cost_limit: Annotated[
        float | None, _limits_option("--cost-limit", metavar="USD", help="Stop before spending more.")
    ] = None,
    prices: Annotated[
        str | None, _limits_option("--prices", metavar="ID", help="Price list, or none. Default: 2025-06-02.")
    ] = None,
    counter: Annotated[
        str, _limits_option("--counter", metavar="NAME", help="usage (the provider's), words, tiktoken:ENCODING.")
    ] = "usage",
    mode: Annotated[
        str, _journal_option("--mode", metavar="MODE", help="new_episodes (top up), once, all or none.")
    ] = "new_episodes",
    partial: Annotated[
        bool, _journal_option("--partial", help="Seal what there is if not everything can be had.")
    ] = False,
    keep_journal: Annotated[bool, _journal_option("--keep-journal", help="Keep it beside the recording.")] = False,
    start: Annotated[
        Path | None,
        _journal_option("--from", metavar="RECORDING", help="Start with its CoTs; ask only for what it lacks."),
    ] = None,
    into: Annotated[
        str | None, _journal_option("--into", metavar="ADDRESS", help="Top up hf://NAMESPACE/NAME by a pull request.")
    ] = None,
    refuse_drift: Annotated[
        bool, _journal_option("--refuse-drift", help="With --into: offer nothing if new CoTs differ.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print calls, tokens and dollars to come; ask nothing.")
    ] = False,
    *,
    show: Output,
) -> None:
    """Record an LLM on a dataset.

    Every reply is on disk before it counts. Ctrl-C waits for replies in flight (twice: for nothing). The same command continues,
    and asks again only for what was in flight when it was killed. API keys are read from the environment and never written. With
    --into, a recording on the Hub is topped up and tested for drift.

    Example: feval record --dataset gsm8k --llm gpt-4o-mini --out my-recording --dry-run
    """
    default = default_decoding(llm, reasoning=reasoning)
    decoding = Decoding(
        temperature=default.temperature if temperature is None else temperature,
        top_p=top_p,
        max_tokens=default.max_tokens if max_tokens is None else max_tokens,
        stop=tuple(stop or ()),
        seed=seed,
        logprobs=logprobs,
        extra_body=_extra_body(extra_body),
        noise_seed=_noise_seed(noise_seed, coupled=coupled),
    )
    limits = Limits(concurrency, requests_per_minute, tokens_per_minute, samples_per_request, timeout, retries)
    settings = RecordingSettings(
        dataset, llm, model, samples, prompt, reasoning, system_role, answer_kind, decoding, exemplars, train_rows,
        exemplar_count, equality,
    )  # fmt: skip
    task = make_task(settings, load_questions(dataset, questions, first, answer_kind=answer_kind))
    prices = prices or default_prices(llm)
    base = _hub_recording(show, task, into, start, refuse_drift=refuse_drift)
    source = start if base is None else base.start(task)
    if dry_run:
        _note(show, task.notes)
        place = out if base is None else _recorded(out)
        estimate = estimate_dataset(task, place, mode=mode, limits=limits, prices=prices, start=source)
        _show_estimate(show, estimate, prices, task.prompt_version)
        return
    notes: list[str] = []
    made = make_backend(
        backend or default_backend(llm), base_url=base_url, key_variable=api_key_env, timeout_s=timeout, model=model,
        notes=notes,
    )  # fmt: skip
    printed = _note(show, [*task.notes, *notes])
    options: dict[str, Any] = {
        "mode": mode, "limits": limits, "prices": prices, "cost_limit_usd": cost_limit, "counter": counter, "partial": partial,
        "keep_journal": keep_journal, "backend_notes": notes,
    }  # fmt: skip
    if base is not None:
        _top_up(show, base, task, made, out, options, refuse_drift=refuse_drift)
        return
    with show.progress(f"recording {llm} on {dataset}") as bar:
        display = RunDisplay(bar, show, f"{llm} on {dataset}")
        record_dataset(task, made, out, start=start, progress=display, **options)
    show_recording(show, out, printed | display.printed)


def _hub_recording(
    show: Output, task: RecordingTask, into: str | None, start: Path | None, *, refuse_drift: bool
) -> HubRecording | None:
    """Return the recording to top up, if one is named, checked before anything is asked."""
    if into is None:
        if refuse_drift:
            raise UsageError(
                "--refuse-drift compares with the recording that is topped up; add --into, or leave it out."
            )
        return None
    if start is not None:
        raise UsageError(
            f"--into starts with the CoTs of {into}, and --from with those of {start}; leave one of them out."
        )

    with show.progress(f"fetching what {into} holds of {task.llm_name} on {task.dataset}"):
        base = hub_recording(into)
        check_top_up(base, task)
    return base


def _recorded(out: Path) -> Path:

    return recorded_folder(out)


def _top_up(
    show: Output, base: HubRecording, task: RecordingTask, backend: Backend, out: Path, options: dict[str, Any], *,
    refuse_drift: bool,
) -> None:  # fmt: skip

    repo_id = base.seen.repo_id
    quiet_matplotlib()
    with show.progress(f"recording {task.llm_name} on {task.dataset}") as bar:
        display = RunDisplay(bar, show, f"{task.llm_name} on {task.dataset}")
        result = top_up(base, task, backend, out, progress=display, **options)
        for warning in result.warnings:
            show.note(warning)
        if result.warnings and refuse_drift:
            raise ConflictError(
                f"Nothing was offered to {repo_id}, since the new CoTs differ (--refuse-drift). They are in {out}; to offer them "
                f"all the same: feval push {out} {repo_id} --create-pr."
            )
        bar.describe(f"offering {counted(result.new, 'CoT')} to {repo_id}")
        try:
            pushed = offer(base, result)
        except FevalError:
            show.note(
                f"Nothing that was paid for is lost: {out} has old and new CoTs. The same command offers it again, as does "
                f"`feval push {out} {repo_id} --create-pr`, which has more options."
            )
            raise
    account: dict[str, Any] = {"recording": str(out), "new_cots": result.new, **dataclasses.asdict(pushed)}
    account |= {"drift": None if result.drift is None else _without_nan(dataclasses.asdict(result.drift))}
    show.result(
        account | {"warnings": list(result.warnings)},
        f"{pushed.pull_request or pushed.url}: {counted(result.new, 'new CoT')} of {task.llm_name} on {task.dataset} offered to "
        f"{repo_id}",
        f"The recording with old and new CoTs is {out}",
    )


def _without_nan(value: Any) -> Any:
    """Return numbers that are not known as `None`, since JSON has no NaN."""
    if isinstance(value, dict):
        return {name: _without_nan(own) for name, own in value.items()}
    return None if isinstance(value, float) and math.isnan(value) else value


def _note(show: Output, sentences: Iterable[str]) -> frozenset[str]:
    """Print what must be known before anything is paid for, and return it."""
    distinct = tuple(dict.fromkeys(sentences))
    for sentence in distinct:
        show.note(sentence)
    return frozenset(distinct)


def _noise_seed(seed: int | None, *, coupled: bool) -> int | None:
    if seed is not None and not coupled:
        raise UsageError(f"The noise seed {seed} is for coupled samples; add --coupled, or leave --noise-seed out.")
    return (seed or 0) if coupled else None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _extra_body(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except ValueError as error:
        raise UsageError(f"--extra-body takes a JSON object; {text!r:.80} is not JSON ({error}).") from error
    if not isinstance(value, dict):
        raise UsageError(f'--extra-body takes a JSON object, such as {{"top_k": 20}}; {text!r:.80} was given.')
    return value


def _show_estimate(show: Output, estimate: CostEstimate, prices: str, prompt: str) -> None:
    most = "at most " if estimate.at_most else "about "
    output = "an unknown number of" if estimate.output_tokens is None else f"{most}{estimate.output_tokens:,}"
    show.result(
        dataclasses.asdict(estimate) | {"prompt": prompt},
        f"To come: {counted(estimate.cots, 'CoT')} in {counted(estimate.calls, 'call')} (if the server gives several at once), "
        f"{counted(estimate.prompt_tokens or 0, 'prompt token')} and {output} output tokens; {estimated_usd(estimate, prices)}.",
        f"Lengths are from {estimate.basis}. Prompt: {prompt}. Nothing was asked.",
    )


class RunDisplay:
    """Shows progress in a bar, and prints the first failure, each warning and the first stop, which a bar alone would hide.

    Args:
        bar: shows the counts.
        show: prints the notes.
        name: what is recorded or scored.

    Attributes:
        printed: the warnings that were printed.
    """

    def __init__(self, bar: ProgressBar, show: Output, name: str) -> None:
        self._bar, self._show, self._name = bar, show, name
        self._is_stopping = self._has_trouble = False
        self.printed: set[str] = set()

    def __call__(self, state: Progress) -> None:
        """Show a state."""
        self._bar.describe(f"{self._name}: {_line(state)}")
        self._bar(state.done, state.total)
        if state.trouble is not None and not self._has_trouble:
            self._has_trouble = True
            self._show.note(f"A request failed and is sent again: {state.trouble.rstrip('.')}.")
        if state.warning is not None and state.warning not in self.printed:
            self.printed.add(state.warning)
            self._show.note(state.warning)
        if state.stopping and state.in_flight and not self._is_stopping:
            self._is_stopping = True
            requests = "1 request" if state.in_flight == 1 else f"{state.in_flight} requests"
            self._show.note(f"Stopping: waiting for {requests} in flight. Ctrl-C stops at once.")


def _line(state: Progress) -> str:
    """One line for the bar: counts, rate and dollars."""
    usd = "" if state.usd is None else f", ${state.usd:,.4f}"
    waiting = f", the server asks to wait {state.waiting_s:.0f} s" if state.waiting_s else ""
    return f"{state.done:,} of {state.total:,}, {state.per_second:,.0f}/s{usd}{waiting}"


def estimated_usd(estimate: CostEstimate, prices: str) -> str:
    """Return an estimate's dollars in words."""
    if estimate.usd is None:
        return "no price known"
    return f"{'at most' if estimate.at_most else 'about'} ${dollars(estimate.usd)} by price list {prices}"
