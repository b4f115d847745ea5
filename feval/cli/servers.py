"""`feval serve`, `proxy` and `tiny-server`: recordings and LLMs behind a port."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from feval import serving
from feval.answers import KINDS
from feval.answers.equality import named_equality
from feval.cards import find_dataset_card, token_counter
from feval.cards.reading import some
from feval.cli.commands import argument, option
from feval.cli.options import AnswerKind, Equality, OnlyDatasets, OnlyLLMs, prices_option
from feval.cli.output import Output
from feval.errors import StorageError, UsageError, require_known
from feval.publish.secrets import known_secrets, refuse_secrets
from feval.recording import Question
from feval.report.tables.tables import Fields, Table, make_table
from feval.report.text import counted
from feval.serving.prompts import prompt_remarks
from recorders import servers
from recorders.backends.openai_compatible import Endpoint
from recorders.journal import JOURNAL, Journal, journal_folder, never_empty
from recorders.work.settings import load_questions

if TYPE_CHECKING:
    from feval.serving.application import Application
    from feval.serving.server import Server


_RUN, _MOST_SHOWN = "my-run", 20
_MODES = {"record": "new_episodes", "once": "once"}  # of journals

Port = Annotated[int, option("To listen on; 0 takes any free one.", min=0, max=65535)]
Host = Annotated[str, option("Address to listen on; others need FEVAL_SERVE_TOKEN.", "HOST")]


KeyVariable = Annotated[str | None, option("The key in it replaces the clients' keys.", "VARIABLE")]
CostLimit = Annotated[float | None, option("Stop before spending more.", "USD")]


@prices_option
def serve(
    *,
    recordings: list[Path] | None = argument(
        "Folders. Default: those in FEVAL_RECORDING.", "RECORDING"
    ),
    port: Annotated[int, option("0 takes any free one.", min=0, max=65535)] = 8000,
    host: Host = "127.0.0.1",
    dataset: OnlyDatasets,
    llm: OnlyLLMs,
    seed: Annotated[int, option("Random seed of the draws.")] = 0,
    order: Annotated[str, option("seeded or recorded.", "ORDER")] = "seeded",
    recycle: bool = option("Reuse CoTs, marked as such, when they run out."),
    strict: bool = option("Answer only requests that were recorded."),
    few_shot: Annotated[
        str, option("last: the last question in a message is asked.", "WHICH")
    ] = "none",
    allow_mismatch: bool = option("Answer judges' prompts, JSON schemas and forced tools, too."),
    ledger: Path | None = option("Write every request to this file, for grading.", "FILE"),
    resume: bool = option("Continue where that file ends."),
    on_miss: Annotated[
        str, option("refuse; record: ask --upstream; once: if --record is new.", "WORD")
    ] = "refuse",
    upstream: str | None = option("Base URL of the server that is asked on a miss.", "URL"),
    record: Path | None = option("New recording of what was asked there.", "DIR"),
    api_key_env: KeyVariable,
    cost_limit: CostLimit,
    prices: str | None,
    show: Output,
) -> None:
    """Serve a recording over HTTP, as OpenAI would.

    Runs until Ctrl-C. Point any client at the URL that is printed, with the name of your run as its
    API key. Asking again gives the next CoTs of the pool; every run has its own place in it and its
    own ledger. What the recording does not hold is refused, or asked of a live server and recorded
    beside it. Needs feval[serve].

    Example: feval serve my-recording --port 8000
    """
    if on_miss not in ("refuse", *_MODES):
        raise UsageError(
            f"--on-miss is refuse, record or once; {on_miss!r} was given. Of vcrpy's other words,"
            " none is refuse here, new_episodes is record, and nothing is all: a recording is never"
            " changed."
        )
    asks = on_miss != "refuse"
    if asks != (upstream is not None) or asks != (record is not None):
        raise UsageError(
            "--on-miss record and --on-miss once take --upstream and --record, and without one of"
            " them nothing is asked or recorded."
        )
    token = _token()
    replay_server = serving.replay_server  # first, since it says how to install Starlette
    application = serving.Application.open(
        list(recordings) if recordings else None,
        datasets=dataset or None,
        llms=llm or None, seed=seed, order=order, recycle=recycle, strict=strict, few_shot=few_shot,
        allow_mismatch=allow_mismatch, prices=prices, ledger=ledger, resume=resume,
    )  # fmt: skip
    with ExitStack() as stack:
        stack.callback(application.close)
        server: Server[Any]
        if upstream is not None and record is not None:
            proxy = stack.enter_context(
                _recording(
                    show, _endpoint(upstream, api_key_env), record,
                    *_what_is_missed(application, record.name),
                    mode=_MODES[on_miss], served=application, cost_limit_usd=cost_limit,
                    prices=prices or _listed(application), key_variable=api_key_env,
                )
            )  # fmt: skip
            server = servers.proxy.proxy_server(proxy, host=host, port=port)
            if api_key_env is None:
                show.note(
                    f"The keys of clients name their runs, and go to {upstream} as they are;"
                    " --api-key-env names its own key."
                )
        else:
            server = replay_server(application, host=host, port=port, token=token)
        _serve(show, server, application, token)


def _serve(show: Output, server: Server[Any], application: Application, token: str | None) -> None:
    try:
        _note_reach(show, server, "read the recording")
        llms = application.library.model_names()
        if begun := [run["run"] for run in application.ledger()["runs"]]:
            show.note(
                f"The ledger holds {counted(len(begun), 'run')} ({some(begun)}). A run that asks"
                " again continues with its next CoTs; to start again, take a new name or POST"
                " /run/NAME/feval/reset."
            )
        # The token stays out of sight: it would end up in logs and on screens.
        base, key = (server.url_of(_RUN), "$FEVAL_SERVE_TOKEN") if token else (server.url, _RUN)
        _announce(
            show,
            server,
            f"Serving {some(llms)}",
            {"llms": llms, "token": token is not None},
            f"OPENAI_BASE_URL={base} OPENAI_API_KEY={key}",
        )
    except BaseException:
        server.close()
        raise
    refused = "refused" if server.application is application else "refused, or asked live"
    with show.live(lambda: runs_table(application, refused)):
        server.run()
    runs = application.ledger()["runs"]
    if runs and not show.json:
        cots, requests = (sum(run[name] for run in runs) for name in ("cots", "requests"))
        show.note(
            f"Served {counted(cots, 'CoT')} in {counted(requests, 'request')} of"
            f" {counted(len(runs), 'run')}."
        )
        for run in runs:
            if run["asked_again"]:
                show.note(
                    f"{run['run']} asked {counted(run['asked_again'], 'question')} again in a later"
                    " pass, for other CoTs and for more money. A program that is run again wants"
                    " another key."
                )
            for dataset in dict.fromkeys(use["dataset"] for use in run["prompts"]):
                uses = [use for use in run["prompts"] if use["dataset"] == dataset]
                remarks = prompt_remarks(uses)  # where a run used several prompts
                show.note(*(f"{run['run']} on {dataset}: {remark}" for remark in remarks))


def runs_table(application: Application, refusals: str = "refused") -> Table:
    """The runs so far, the newest first: requests, how they were found, costs and refusals."""
    refused = application.refusals()
    runs = {run["run"]: run for run in application.ledger()["runs"]}
    records = []
    others = [name for name in refused if name not in runs]
    for name in [*reversed(runs), *others][:_MOST_SHOWN]:
        run = runs.get(name, {"requests": 0, "cots": 0, "prompts": [], "usd": None})
        found = Counter[str]()
        for use in run["prompts"]:
            found.update(use["matches"])
        counts = {"run": name, "found": dict(found), "refused": refused.get(name)}
        records.append({**run, **counts, "prompts": len(run["prompts"])})
    fields: Fields = {
        "run": "run",
        "#requests": "requests",
        "#CoTs": "cots",
        "found by": "found",
        "#prompts": "prompts",
        "#USD": lambda record: "-" if record["usd"] is None else f"{record['usd']:.6g}",
        refusals: "refused",
    }
    return make_table("Runs", fields, records)


def tiny_server(
    models: list[str] | None = argument("Default: all four.", "MODEL..."),
    port: Port = 0,
    host: Host = "127.0.0.1",
    *,
    show: Output,
) -> None:
    """Serve the built-in models over HTTP, as OpenAI would.

    Runs until Ctrl-C. Takes n, seed, temperature, top_p, max_tokens, stop, logprobs and stream;
    needs no key. Needs feval[serve].

    Example: feval tiny-server --port 8123
    """
    server = servers.tiny_server.tiny_server(models or None, host=host, port=port, token=_token())
    names = server.application.names
    _note_reach(show, server, "ask")
    _announce(show, server, f"Serving {', '.join(names)}", {"models": list(names)})
    server.run()


@prices_option
def proxy(
    *,
    upstream: str = option("Base URL of the server, usually with /v1 at its end.", "URL"),
    record: Path = option("Folder of the recording; its journal is DIR.journal.", "DIR"),
    dataset: Annotated[str, option("Id of the recorded dataset.", "ID")] = "proxied",
    questions: Path | None = option(
        "JSON Lines or CSV; looked for in the last user message.", "FILE"
    ),
    answer_kind: AnswerKind,
    equality: Equality,
    api_key_env: KeyVariable,
    forward_unrecorded: bool = option("Pass on what cannot be recorded, too."),
    cost_limit: CostLimit,
    allow_field: list[str] | None = option(
        "Record requests with this field, named like a key's.", "NAME"
    ),
    counter: Annotated[
        str, option("usage (the provider's), words or tiktoken:ENCODING.", "NAME")
    ] = "usage",
    port: Port = 0,
    host: Host = "127.0.0.1",
    seal: bool = option("Only make the recording; serve nothing."),
    prices: str | None,
    show: Output,
) -> None:
    """Record existing code by forwarding its requests.

    Point code that asks a live server, in the dialect of OpenAI, Anthropic, Gemini or Ollama, at
    the URL that is printed. A request is answered from the journal while that has unused samples of
    it, else forwarded with the client's own key, which is never written. If FEVAL_SERVE_TOKEN is
    set, clients send that token as their key, and the upstream's comes from --api-key-env. Ctrl-C
    seals the recording; the journal stays for the next time. Needs feval[serve].

    Example: feval proxy --upstream https://api.openai.com/v1 --record my-run --port 8124
    """
    endpoint = _endpoint(upstream, api_key_env)
    card = find_dataset_card(dataset)
    kind = answer_kind or (card.answer_kind if card else "text")
    require_known("answer kind", kind, KINDS)
    if kind == "verbatim":
        raise UsageError(
            "Verbatim answers cannot be extracted from texts; choose another --answer-kind."
        )
    known = [] if questions is None else load_questions(dataset, questions, answer_kind=kind)
    folder = journal_folder(record)
    token_counter("words" if counter == "usage" else counter)
    if seal and not (folder / JOURNAL).exists():
        raise StorageError(
            f"There is no journal in {folder}, so there is nothing to seal. Record first, without"
            " --seal."
        )
    with _recording(
        show, endpoint, record, dataset, kind, named_equality(kind, equality), known,
        mode="none" if seal else "new_episodes", counter=counter, allowed_fields=allow_field or (),
        forward_unrecorded=forward_unrecorded, cost_limit_usd=cost_limit, prices=prices or "none",
        key_variable=api_key_env,
    ) as own:  # fmt: skip
        if not seal:
            server = servers.proxy.proxy_server(own, host=host, port=port)
            _note_reach(show, server, "use the upstream's key")
            _announce(show, server, f"Recording {endpoint.url}", {"upstream": endpoint.url})
            server.run()


def _endpoint(upstream: str, key_variable: str | None) -> Endpoint:
    if key_variable is None:
        return Endpoint(upstream)
    return Endpoint.from_environment(upstream, key_variable)


def _listed(application: Application) -> str:
    """The price list of the first LLM that is served."""
    own = application.library.llms[0].prices
    return "none" if own is None else own.id


def _what_is_missed(
    application: Application, name: str
) -> tuple[str, str, str | None, Sequence[Question]]:
    """The dataset of what a served recording lacks, its answer kind and equality, and questions
    that it may ask: of the one dataset that is served.
    """
    [served, *others] = application.library.served
    if others:
        return "proxied", "text", None, ()
    recording = served.llms[0].recording
    info = recording.dataset_info(served.dataset.id)
    kind = "text" if info.answer_kind == "verbatim" else info.answer_kind
    equality = info.equality if kind == info.answer_kind else None
    return f"{info.id}-{name}", kind, equality, recording.questions(info.id)


@contextmanager
def _recording(
    show: Output,
    endpoint: Endpoint,
    record: Path,
    dataset: str,
    kind: str,
    equality: str | None,
    known: Sequence[Question],
    *,
    mode: str,
    key_variable: str | None,
    prices: str,
    counter: str = "usage",
    **options: Any,
) -> Iterator[servers.proxy.Proxy]:
    """Open the journal of a proxy; at the end seal what it recorded, and say so."""
    asked = [(question.text, question.answer, question.choices) for question in known]
    stored = {"--upstream": endpoint.url, "--record": str(record), "--dataset": dataset}
    refuse_secrets(stored | {"--questions": asked}, known_secrets(key_variable))
    servers.proxy.check_place(record)
    identity = {"proxy": endpoint.url, "dataset": dataset}
    with Journal.open(journal_folder(record), identity, mode=mode) as journal, never_empty(journal):
        proxy = servers.proxy.Proxy(
            endpoint, journal, dataset, token=_token(), prices=prices, **options
        )
        if endpoint.warning:
            show.note(endpoint.warning)
        if proxy.token and not endpoint.headers and mode != "none":
            show.note(
                f"Clients send the token as their key, so {endpoint.host} gets none; --api-key-env"
                " names one."
            )
        yield proxy
        sealed = servers.proxy.seal_proxied(
            journal, record, dataset=dataset, answer_kind=kind, questions=known, counter=counter,
            equality=equality, prices=prices,
        )  # fmt: skip
    account: dict[str, Any] = {
        name: getattr(proxy, name) for name in ("recorded", "replayed", "unrecorded")
    }
    account["recording"] = sealed and str(sealed)
    where = f"The recording is {sealed}." if sealed else "Nothing was recorded, and nothing sealed."
    recorded = counted(proxy.recorded, "CoT")
    show.result(account, f"Recorded {recorded}, gave {proxy.replayed:,} again. {where}")
    if proxy.unrecorded:
        show.note(
            f"{counted(proxy.unrecorded, 'request')} could not be recorded and passed on as they"
            " are."
        )


def _token() -> str | None:
    """Return what every client has to send; an environment variable stays out of the list of
    processes.
    """
    return os.environ.get("FEVAL_SERVE_TOKEN") or None


def _note_reach(show: Output, server: Server[Any], power: str) -> None:
    if show.quiet:
        logging.getLogger("feval.serving").setLevel(logging.ERROR)
    if not server.only_loopback:
        show.note(
            f"{server.host} can be reached from other machines, unencrypted. Whoever has the token"
            f" can {power}."
        )


def _announce(
    show: Output, server: Server[Any], what: str, account: dict[str, object], *more: str
) -> None:
    """Print the URL at once: a script waits for this line."""
    show.result(
        {"url": server.url, "port": server.port} | account,
        f"{what} at {server.url} (Ctrl-C ends it).",
        *more,
    )
    print(end="", flush=True)
