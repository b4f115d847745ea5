"""`feval record`: ask an LLM for chains of thought and seal them as a recording."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from feval.cli.options import Equality, JsonFlag, NewFolder, QuietFlag, Tolerance, equality_name
from feval.cli.output import Output, ProgressBar, quiet_matplotlib
from feval.cli.recordings import show_recording
from feval.errors import ConflictError, FevalError, UsageError
from feval.report.text import counted
from recorders.asking.budget import dollars
from recorders.asking.pace import Limits
from recorders.request import Decoding
from recorders.work.assemble import Ask, assemble, questions_of, usual_backend, usual_decoding, usual_prices
from recorders.work.assemble import backend as make_backend
from recorders.work.record import estimate_dataset, record_dataset
from recorders.work.topup import check_top_up, offer, recorded_folder, recording_there, top_up

if TYPE_CHECKING:
    from recorders.asking.budget import Estimate
    from recorders.asking.engine import Progress
    from recorders.request import Backend
    from recorders.work.assemble import Asked
    from recorders.work.record import Work
    from recorders.work.topup import There

__all__: list[str] = []


def record(
    out: NewFolder,
    dataset: Annotated[str, typer.Option("--dataset", metavar="ID", help="See `feval ls datasets`.")],
    llm: Annotated[
        str, typer.Option("--llm", metavar="NAME", help="Its name in the recording, such as gpt-4o-mini@t=0.8.")
    ],
    backend: Annotated[
        str | None,
        typer.Option("--backend", metavar="NAME", help="openai, tiny or transformers. Default: by the LLM's name."),
    ] = None,
    base_url: Annotated[
        str | None, typer.Option("--base-url", metavar="URL", help="Of the endpoint. Default: OPENAI_BASE_URL.")
    ] = None,
    api_key_env: Annotated[
        str | None,
        typer.Option("--api-key-env", metavar="VARIABLE", help="It holds the key. Default: OPENAI_API_KEY."),
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", metavar="NAME", help="As the provider calls it. Default: --llm before '@'.")
    ] = None,
    questions: Annotated[
        Path | None,
        typer.Option("--questions", metavar="FILE", help="JSON Lines. Default: the dataset's own, from the Hub."),
    ] = None,
    first: Annotated[int | None, typer.Option("--first", metavar="N", help="Only the first N questions.")] = None,
    samples: Annotated[
        int | None, typer.Option("--samples", metavar="N", help="CoTs per question. Default: 40; 3 if it reasons.")
    ] = None,
    prompt: Annotated[
        str | None,
        typer.Option("--prompt", metavar="CARD", help="Such as gsm8k@1, or none. Default: the dataset's latest."),
    ] = None,
    exemplars: Annotated[
        str, typer.Option("--exemplars", metavar="SOURCE", help="card, or train: from the dataset's train split.")
    ] = "card",
    train_rows: Annotated[
        Path | None, typer.Option("--train-rows", metavar="FILE", help="Of the train split. Default: from the Hub.")
    ] = None,
    exemplar_count: Annotated[
        int | None, typer.Option("--exemplar-count", metavar="N", help="Of the train split. Default: as the card has.")
    ] = None,
    reasoning: Annotated[
        bool | None, typer.Option("--reasoning/--no-reasoning", help="Zero-shot. Default: by the LLM's card.")
    ] = None,
    system_role: Annotated[
        bool, typer.Option("--system-role/--no-system-role", help="Whether the model takes system messages.")
    ] = True,
    answer_kind: Annotated[
        str | None, typer.Option("--answer-kind", metavar="KIND", help="Default: the dataset card's.")
    ] = None,
    equality: Equality = None,
    tolerance: Tolerance = None,
    temperature: Annotated[
        float | None,
        typer.Option("--temperature", min=0, help="Default: by the LLM's card, or 0.7. Not sent to one that reasons."),
    ] = None,
    top_p: Annotated[float | None, typer.Option("--top-p", min=0, max=1)] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option("--max-tokens", min=1, help="Per CoT. Default: by the LLM's card, or 2048; 32768 if it reasons."),
    ] = None,
    stop: Annotated[list[str] | None, typer.Option("--stop", metavar="TEXT", help="Repeat for several.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Sample i is asked for with seed + i.")] = None,
    coupled: Annotated[
        bool, typer.Option("--coupled", help="Draw with noise that other LLMs share (local models only).")
    ] = False,
    noise_seed: Annotated[
        int | None, typer.Option("--noise-seed", metavar="S", min=0, help="Of that noise. Default: 0.")
    ] = None,
    logprobs: Annotated[
        int | None, typer.Option("--logprobs", metavar="K", min=0, help="Keep log-probabilities, of the top K.")
    ] = None,
    extra_body: Annotated[
        str | None, typer.Option("--extra-body", metavar="JSON", help="More fields of the request, sent as they are.")
    ] = None,
    mode: Annotated[
        str, typer.Option("--mode", metavar="MODE", help="new_episodes (top up), once, all or none.")
    ] = "new_episodes",
    concurrency: Annotated[int, typer.Option("--concurrency", help="Most requests in flight.")] = 64,
    requests_per_minute: Annotated[float | None, typer.Option("--requests-per-minute")] = None,
    tokens_per_minute: Annotated[float | None, typer.Option("--tokens-per-minute")] = None,
    samples_per_request: Annotated[
        int | None, typer.Option("--samples-per-request", metavar="N", help="Default: as many as the server gives.")
    ] = None,
    retries: Annotated[int, typer.Option("--retries", help="Of a request that may work next time.")] = 8,
    timeout: Annotated[float, typer.Option("--timeout", metavar="SECONDS", help="Of one request.")] = 600.0,
    cost_limit: Annotated[
        float | None, typer.Option("--cost-limit", metavar="USD", help="Stop before it is passed.")
    ] = None,
    prices: Annotated[
        str | None, typer.Option("--prices", metavar="ID", help="Price list, or none. Default: 2025-06-02.")
    ] = None,
    counter: Annotated[
        str, typer.Option("--counter", metavar="NAME", help="usage (the provider's), words or tiktoken:ENCODING.")
    ] = "usage",
    partial: Annotated[
        bool, typer.Option("--partial", help="Seal what there is, if not everything can be had.")
    ] = False,
    keep_journal: Annotated[bool, typer.Option("--keep-journal", help="Leave it beside the recording.")] = False,
    start: Annotated[
        Path | None,
        typer.Option("--from", metavar="RECORDING", help="Begin with its CoTs; ask only for what it lacks."),
    ] = None,
    into: Annotated[
        str | None,
        typer.Option(
            "--into", metavar="ADDRESS", help="Top up hf://NAMESPACE/NAME: record what it lacks, offer it there."
        ),
    ] = None,
    refuse_drift: Annotated[
        bool, typer.Option("--refuse-drift", help="With --into: offer nothing if new CoTs differ from old ones.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say how many calls, tokens and dollars are to come; ask nothing.")
    ] = False,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Record an LLM on a dataset.

    Every reply is on the disk before it counts. Ctrl-C waits for what is in flight (twice: for nothing); the same command goes on
    where the last one stopped, and asks again only for what was in flight when it was killed. Keys are read from the environment
    and never written. With --into, a recording on the Hub grows: what it lacks is recorded, compared with what is there, and
    offered as a pull request.

    Example: feval record --dataset gsm8k --llm gpt-4o-mini --out my-recording --dry-run
    """
    show = Output(as_json=as_json, quiet=quiet)
    usual = usual_decoding(llm, reasoning=reasoning)
    temperature = usual.temperature if temperature is None else temperature
    max_tokens = usual.max_tokens if max_tokens is None else max_tokens
    shared = _noise_seed(noise_seed, coupled=coupled)
    extra = _extra_body(extra_body)
    decoding = Decoding(temperature, top_p, max_tokens, tuple(stop or ()), seed, logprobs, extra, shared)
    limits = Limits(concurrency, requests_per_minute, tokens_per_minute, samples_per_request, timeout, retries)
    worked = (exemplars, train_rows, exemplar_count)
    named = equality_name(equality, tolerance)
    ask = Ask(dataset, llm, model, samples, prompt, reasoning, system_role, answer_kind, decoding, *worked, named)
    asked = assemble(ask, questions_of(dataset, questions, first, answer_kind=answer_kind))
    prices = prices or usual_prices(llm)
    there = _there(show, asked.work, into, start, refuse_drift=refuse_drift)
    begin = start if there is None else there.start(asked.work)
    if dry_run:
        _notes(show, asked.remarks)
        place = out if there is None else _recorded(out)
        to_come = estimate_dataset(asked.work, place, mode=mode, limits=limits, prices=prices, start=begin)
        _estimate(show, asked, to_come, prices)
        return
    notes: list[str] = []
    kind = backend or usual_backend(llm)
    asks = make_backend(kind, base_url=base_url, key_variable=api_key_env, timeout_s=timeout, model=model, notes=notes)
    said = _notes(show, [*asked.remarks, *notes])
    options: dict[str, Any] = {
        "mode": mode, "limits": limits, "prices": prices, "cost_limit_usd": cost_limit, "counter": counter, "partial": partial,
        "keep_journal": keep_journal, "backend_notes": notes,
    }  # fmt: skip
    if there is not None:
        _top_up(show, there, asked.work, asks, out, options, refuse_drift=refuse_drift)
        return
    with show.progress(f"recording {llm} on {dataset}") as bar:
        shown = _Shown(bar, show, asked.work)
        record_dataset(asked.work, asks, out, start=start, progress=shown, **options)
    show_recording(show, out, said | shown.said)


def _there(show: Output, work: Work, into: str | None, start: Path | None, *, refuse_drift: bool) -> There | None:
    """The recording that is to grow, if one is named; what speaks against it is said before anything is asked."""
    if into is None:
        if refuse_drift:
            raise UsageError(
                "--refuse-drift compares with what is there; add --into hf://NAMESPACE/NAME, or leave it out."
            )
        return None
    if start is not None:
        raise UsageError(f"--into begins with what {into} holds, and --from with {start}; leave one of them out.")

    with show.progress(f"fetching what {into} holds of {work.llm_name} on {work.dataset}"):
        there = recording_there(into)
        check_top_up(there, work)
    return there


def _recorded(out: Path) -> Path:

    return recorded_folder(out)


def _top_up(
    show: Output, there: There, work: Work, asks: Backend, out: Path, options: dict[str, Any], *, refuse_drift: bool
) -> None:

    quiet_matplotlib()
    with show.progress(f"recording {work.llm_name} on {work.dataset}") as bar:
        told = top_up(there, work, asks, out, progress=_Shown(bar, show, work), **options)
        for warning in told.warnings:
            show.note(warning)
        if told.warnings and refuse_drift:
            raise ConflictError(
                f"Nothing was offered to {there.seen.repo_id}, since the new CoTs differ (--refuse-drift). They are in {out}; to "
                f"offer them all the same: feval push {out} {there.seen.repo_id} --create-pr."
            )
        bar.describe(f"offering {counted(told.new, 'CoT')} to {there.seen.repo_id}")
        try:
            pushed = offer(there, told)
        except FevalError:
            show.note(
                f"Nothing that was paid for is lost: {out} has old and new CoTs. The same command offers it again, as does "
                f"`feval push {out} {there.seen.repo_id} --create-pr`, which has more options."
            )
            raise
    account: dict[str, Any] = {"recording": str(out), "new_cots": told.new, **dataclasses.asdict(pushed)}
    account |= {"drift": None if told.drift is None else _finite(dataclasses.asdict(told.drift))}
    show.result(
        account | {"warnings": list(told.warnings)},
        f"{pushed.pull_request or pushed.url}: {counted(told.new, 'new CoT')} of {work.llm_name} on {work.dataset} offered to "
        f"{there.seen.repo_id}",
        f"The recording with old and new ones is {out}",
    )


def _finite(value: Any) -> Any:
    """Numbers that are not known as `None`, which JSON has a word for."""
    if isinstance(value, dict):
        return {name: _finite(own) for name, own in value.items()}
    return None if isinstance(value, float) and math.isnan(value) else value


def _notes(show: Output, sentences: Iterable[str]) -> frozenset[str]:
    """Say at once what must be known before anything is paid for; gives what was said."""
    said = tuple(dict.fromkeys(sentences))
    for sentence in said:
        show.note(sentence)
    return frozenset(said)


class _Shown:
    """Shows where a run is; the first failure, the first warning and the first stop are said, which a bar alone would hide.

    Attributes:
        said: the warnings that were said.
    """

    def __init__(self, bar: ProgressBar, show: Output, work: Work) -> None:
        self._bar, self._show, self._name = bar, show, f"{work.llm_name} on {work.dataset}"
        self._stopping = self._troubled = False
        self.said: set[str] = set()

    def __call__(self, state: Progress) -> None:
        self._bar.describe(f"{self._name}: {_state(state)}")
        self._bar(state.done, state.total)
        if state.trouble is not None and not self._troubled:
            self._troubled = True
            self._show.note(f"A request failed and is sent again: {state.trouble.rstrip('.')}.")
        if state.warning is not None and state.warning not in self.said:
            self.said.add(state.warning)
            self._show.note(state.warning)
        if state.stopping and state.in_flight and not self._stopping:
            self._stopping = True
            requests = "1 request" if state.in_flight == 1 else f"{state.in_flight} requests"
            self._show.note(f"Stopping: waiting for {requests} in flight. Ctrl-C stops at once.")


def _noise_seed(seed: int | None, *, coupled: bool) -> int | None:
    if seed is not None and not coupled:
        raise UsageError(f"The noise seed {seed} is of coupled samples; add --coupled, or leave --noise-seed out.")
    return (seed or 0) if coupled else None


def _extra_body(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    import orjson

    try:
        value = orjson.loads(text)
    except ValueError as error:
        raise UsageError(f"--extra-body takes a JSON object; {text!r:.80} is not JSON ({error}).") from error
    if not isinstance(value, dict):
        raise UsageError(f'--extra-body takes a JSON object, such as {{"top_k": 20}}; {text!r:.80} was given.')
    return value


def _estimate(show: Output, asked: Asked, to_come: Estimate, prices: str) -> None:

    account = {
        "cots": to_come.cots,
        "calls": to_come.calls,
        "prompt_tokens": to_come.prompt_tokens,
        "output_tokens": to_come.output_tokens,
        "usd": to_come.usd,
        "basis": to_come.basis,
        "at_most": to_come.at_most,
        "prompt": asked.prompt_version,
    }
    most = "at most " if to_come.at_most else "about "
    output = "an unknown number of" if to_come.output_tokens is None else f"{most}{to_come.output_tokens:,}"
    usd = "no price known" if to_come.usd is None else f"{most}${dollars(to_come.usd)} by price list {prices}"
    show.result(
        account,
        f"To come: {counted(to_come.cots, 'CoT')} in {counted(to_come.calls, 'call')} (if the server gives several at once), "
        f"{counted(to_come.prompt_tokens, 'prompt token')} and {output} output tokens; {usd}.",
        f"Lengths are from {to_come.basis}. Prompt: {asked.prompt_version}. Nothing was asked.",
    )


def _state(state: Progress) -> str:
    """One line for the progress bar: rate and dollars beside the counts it shows itself."""
    usd = "" if state.usd is None else f", ${state.usd:,.4f}"
    waiting = f", the server asks to wait {state.waiting_s:.0f} s" if state.waiting_s else ""
    return f"{state.done:,} of {state.total:,}, {state.per_second:,.0f}/s{usd}{waiting}"
