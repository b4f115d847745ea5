"""`feval serve`, `proxy` and `tiny-server`: recordings and LLMs behind a port."""

from __future__ import annotations

import logging
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from feval import serving
from feval.answers import KINDS
from feval.answers.equality import named_equality
from feval.cards import find_dataset_card, token_counter
from feval.cli.options import AnswerKind, Equality, OnlyDatasets, OnlyLLMs, prices_option
from feval.cli.output import Output
from feval.errors import StorageError, UsageError, require_known
from feval.publish.secrets import known_secrets, refuse_secrets
from feval.report.tables.tables import Fields, Table, make_table
from feval.report.text import counted
from feval.serving.library import some
from feval.serving.prompts import prompt_remarks
from recorders import servers
from recorders.backends.openai_compatible import Endpoint
from recorders.journal import JOURNAL, Journal, journal_folder, never_empty
from recorders.work.settings import load_questions

if TYPE_CHECKING:
    from feval.serving.application import Application
    from feval.serving.server import Server


_RUN, _MOST_SHOWN = "my-run", 20

Port = Annotated[int, Option(min=0, max=65535, help="To listen on; 0 takes any free one.")]
Host = Annotated[
    str, Option(metavar="HOST", help="Address to listen on; others need FEVAL_SERVE_TOKEN.")
]


@prices_option
def serve(
    recordings: Annotated[
        list[Path] | None,
        Argument(
            metavar="RECORDING",
            help="Folders. Default: those in FEVAL_RECORDING.",
            show_default=False,
        ),
    ] = None,
    port: Annotated[int, Option(min=0, max=65535, help="0 takes any free one.")] = 8000,
    host: Host = "127.0.0.1",
    dataset: OnlyDatasets = None,
    llm: OnlyLLMs = None,
    seed: Annotated[int, Option(help="Random seed of the draws.")] = 0,
    order: Annotated[str, Option(metavar="ORDER", help="seeded or recorded.")] = "seeded",
    recycle: Annotated[
        bool, Option("--recycle", help="Reuse CoTs, marked as such, when they run out.")
    ] = False,
    strict: Annotated[
        bool, Option("--strict", help="Answer only requests that were recorded.")
    ] = False,
    few_shot: Annotated[
        str, Option(metavar="WHICH", help="last: the last question in a message is asked.")
    ] = "none",
    allow_mismatch: Annotated[
        bool,
        Option(
            "--allow-mismatch", help="Answer judges' prompts, JSON schemas and forced tools, too."
        ),
    ] = False,
    ledger: Annotated[
        Path | None, Option(metavar="FILE", help="Write every request to this file, for grading.")
    ] = None,
    resume: Annotated[bool, Option("--resume", help="Continue where that file ends.")] = False,
    *,
    prices: str | None,
    show: Output,
) -> None:
    """Serve a recording over HTTP, as OpenAI would.

    Runs until Ctrl-C. Point any client at the URL that is printed, with the name of your run as its
    API key. Asking again gives the next CoTs of the pool; every run has its own place in it and its
    own ledger. Needs feval[serve].

    Example: feval serve my-recording --port 8000
    """
    token = _token()
    server = serving.serve(
        list(recordings) if recordings else None, host=host, port=port, token=token,
        datasets=dataset or None,
        llms=llm or None, seed=seed, order=order, recycle=recycle, strict=strict, few_shot=few_shot,
        allow_mismatch=allow_mismatch, prices=prices, ledger=ledger, resume=resume,
    )  # fmt: skip
    try:
        _note_reach(show, server, "read the recording")
        llms = server.application.library.model_names()
        if begun := [run["run"] for run in server.application.ledger()["runs"]]:
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
    with show.live(lambda: runs_table(server.application)):
        server.run()
    runs = server.application.ledger()["runs"]
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


def runs_table(application: Application) -> Table:
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
        "refused": "refused",
    }
    return make_table("Runs", fields, records)


def tiny_server(
    models: Annotated[
        list[str] | None,
        Argument(metavar="MODEL...", help="Default: all four.", show_default=False),
    ] = None,
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


def proxy(
    upstream: Annotated[
        str, Option(metavar="URL", help="Base URL of the server, usually with /v1 at its end.")
    ],
    record: Annotated[
        Path, Option(metavar="DIR", help="Folder of the recording; its journal is DIR.journal.")
    ],
    dataset: Annotated[str, Option(metavar="ID", help="Id of the recorded dataset.")] = "proxied",
    questions: Annotated[
        Path | None,
        Option(metavar="FILE", help="JSON Lines or CSV; looked for in the last user message."),
    ] = None,
    answer_kind: AnswerKind = None,
    equality: Equality = None,
    api_key_env: Annotated[
        str | None, Option(metavar="VARIABLE", help="The key in it replaces the clients' keys.")
    ] = None,
    allow_field: Annotated[
        list[str] | None,
        Option(metavar="NAME", help="Record requests with this field, named like a key's."),
    ] = None,
    counter: Annotated[
        str, Option(metavar="NAME", help="usage (the provider's), words or tiktoken:ENCODING.")
    ] = "usage",
    port: Port = 0,
    host: Host = "127.0.0.1",
    seal: Annotated[bool, Option("--seal", help="Only make the recording; serve nothing.")] = False,
    *,
    show: Output,
) -> None:
    """Record existing code by forwarding its requests.

    Point code that asks an OpenAI-compatible server at the URL that is printed. A request is
    answered from the journal while that has unused samples of it, else forwarded with the client's
    own key, which is never written. If FEVAL_SERVE_TOKEN is set, clients send that token as their
    key, and the upstream's comes from --api-key-env. Ctrl-C seals the recording; the journal stays
    for the next time. Needs feval[serve].

    Example: feval proxy --upstream https://api.openai.com/v1 --record my-run --port 8124
    """
    endpoint = (
        Endpoint.from_environment(upstream, api_key_env) if api_key_env else Endpoint(upstream)
    )
    card = find_dataset_card(dataset)
    kind = answer_kind or (card.answer_kind if card else "text")
    require_known("answer kind", kind, KINDS)
    if kind == "verbatim":
        raise UsageError(
            "Verbatim answers cannot be extracted from texts; choose another --answer-kind."
        )
    named = named_equality(kind, equality)
    known = [] if questions is None else load_questions(dataset, questions, answer_kind=kind)
    asked = [(question.text, question.answer, question.choices) for question in known]
    stored = {"--upstream": upstream, "--record": str(record), "--dataset": dataset}
    refuse_secrets(stored | {"--questions": asked}, known_secrets(api_key_env))
    token_counter("words" if counter == "usage" else counter)
    identity = {"proxy": endpoint.url, "dataset": dataset}
    servers.proxy.check_place(record)
    folder = journal_folder(record)
    if seal and not (folder / JOURNAL).exists():
        raise StorageError(
            f"There is no journal in {folder}, so there is nothing to seal. Record first, without"
            " --seal."
        )
    with (
        Journal.open(folder, identity, mode="none" if seal else "new_episodes") as journal,
        never_empty(journal),
    ):
        proxy = servers.proxy.Proxy(
            endpoint, journal, dataset, token=_token(), allowed_fields=allow_field or ()
        )
        if not seal:
            server = servers.proxy.proxy_server(proxy, host=host, port=port)
            if endpoint.warning:
                show.note(endpoint.warning)
            if proxy.token and not endpoint.headers:
                show.note(
                    f"Clients send the token as their key, so {endpoint.host} gets none;"
                    " --api-key-env names one."
                )
            _note_reach(show, server, "use the upstream's key")
            _announce(show, server, f"Recording {endpoint.url}", {"upstream": endpoint.url})
            server.run()
        sealed = servers.proxy.seal_proxied(
            journal,
            record,
            dataset=dataset,
            answer_kind=kind,
            questions=known,
            counter=counter,
            equality=named,
        )
    account: dict[str, Any] = {
        name: getattr(proxy, name) for name in ("recorded", "replayed", "unrecorded")
    }
    account["recording"] = sealed and str(sealed)
    where = f"The recording is {sealed}." if sealed else "Nothing was recorded, and nothing sealed."
    recorded = counted(proxy.recorded, "CoT")
    show.result(account, f"Recorded {recorded}, gave {proxy.replayed:,} again. {where}")
    if proxy.unrecorded:
        show.note(
            f"{proxy.unrecorded:,} chat completions could not be recorded and were passed on as"
            " they are."
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
