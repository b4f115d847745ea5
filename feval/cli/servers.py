"""`feval tiny-server` and `feval proxy`: HTTP services on loopback."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from feval.answers import KINDS
from feval.answers.equality import named_equality
from feval.cards.cards import find_dataset_card
from feval.cards.prices import price_list
from feval.cards.tokens import token_counter
from feval.cli.options import Equality, JsonFlag, QuietFlag, Tolerance, equality_name
from feval.cli.output import Output
from feval.errors import StorageError, UnknownNameError, UsageError
from feval.report.text import counted
from recorders.backends.endpoint import Endpoint
from recorders.journal.journal import JOURNAL, Journal, journal_folder
from recorders.servers.proxied import check_place, seal_proxied
from recorders.servers.proxy import Proxy
from recorders.servers.service import Service
from recorders.servers.tiny_server import TinyServer
from recorders.work.settings import load_questions

__all__: list[str] = []

_PROXIED_BYTES = 64 << 20

Port = Annotated[int, typer.Option("--port", min=0, max=65535, help="To listen on; 0 takes any that is free.")]
Host = Annotated[str, typer.Option("--host", metavar="HOST", help="To listen on; whoever reaches it may ask.")]


def tiny_server(
    port: Port = 0,
    host: Host = "127.0.0.1",
    model: Annotated[
        list[str] | None, typer.Option("--model", metavar="NAME", help="Serve only this one; repeat for several.")
    ] = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Serve the built-in models over HTTP, as OpenAI would.

    Until Ctrl-C. Takes n, seed, temperature, top_p, max_tokens, stop, logprobs and stream; needs no key and nothing but feval.

    Example: feval tiny-server --port 8123
    """
    show = Output(as_json=as_json, quiet=quiet)
    application = TinyServer(model or None)
    service = Service(application, host=host, port=port)
    _announce(show, service, f"Serving {', '.join(application.models)}", {"models": list(application.models)})
    _serve(service)


def proxy(
    upstream: Annotated[
        str, typer.Option("--upstream", metavar="URL", help="Base URL of the server, usually with /v1 at its end.")
    ],
    record: Annotated[Path, typer.Option("--record", metavar="DIR", help="The recording; its journal is DIR.journal.")],
    dataset: Annotated[str, typer.Option("--dataset", metavar="ID", help="Of the recording.")] = "proxied",
    questions: Annotated[
        Path | None,
        typer.Option("--questions", metavar="FILE", help="JSON Lines; found again in the last user message."),
    ] = None,
    answer_kind: Annotated[
        str | None, typer.Option("--answer-kind", metavar="KIND", help="Default: the dataset card's, or else text.")
    ] = None,
    equality: Equality = None,
    tolerance: Tolerance = None,
    api_key_env: Annotated[
        str | None, typer.Option("--api-key-env", metavar="VARIABLE", help="Its key replaces that of the clients.")
    ] = None,
    prices: Annotated[str, typer.Option("--prices", metavar="ID", help="Price list, or none.")] = "none",
    counter: Annotated[
        str, typer.Option("--counter", metavar="NAME", help="usage (the provider's), words or tiktoken:ENCODING.")
    ] = "usage",
    port: Port = 0,
    host: Host = "127.0.0.1",
    seal: Annotated[bool, typer.Option("--seal", help="Only seal what was recorded; serve nothing.")] = False,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Record existing code by forwarding its requests.

    Point code that asks an OpenAI-compatible server at the URL that is printed. A request that the journal holds unused samples
    of is answered from it, else forwarded with the client's own key, which is never written. Ctrl-C seals the recording; the
    journal stays for the next time.

    Example: feval proxy --upstream https://api.openai.com/v1 --record my-run --port 8124
    """
    show = Output(as_json=as_json, quiet=quiet)
    endpoint = Endpoint.from_environment(upstream, api_key_env) if api_key_env else Endpoint(upstream)
    kind = _kind(dataset, answer_kind)
    named = named_equality(kind, equality_name(equality, tolerance))
    asked = [] if questions is None else load_questions(dataset, questions, answer_kind=kind)
    token_counter("words" if counter == "usage" else counter)
    prices = prices if prices == "none" else price_list(prices).id
    identity = {"proxy": endpoint.url, "dataset": dataset}
    check_place(record)
    folder = journal_folder(record)
    if seal and not (folder / JOURNAL).exists():
        raise StorageError(
            f"There is no journal in {folder}, so there is nothing to seal. Record first, without --seal."
        )
    with Journal.open(folder, identity, mode="none" if seal else "new_episodes") as journal:
        proxy = Proxy(endpoint, journal, dataset)
        if not seal:
            service = Service(proxy, host=host, port=port, max_body=_PROXIED_BYTES)
            if endpoint.warning:
                show.note(endpoint.warning)
            _announce(show, service, f"Recording {endpoint.url}", {"upstream": endpoint.url})
            _serve(service)
        sealed = seal_proxied(
            journal,
            record,
            dataset=dataset,
            answer_kind=kind,
            questions=asked,
            prices=prices,
            counter=counter,
            equality=named,
        )
        _account(show, proxy, sealed)


def _kind(dataset: str, answer_kind: str | None) -> str:

    card = find_dataset_card(dataset)
    kind = answer_kind or (card.answer_kind if card else "text")
    if kind not in KINDS:
        raise UnknownNameError.of("answer kind", kind, KINDS)
    if kind == "verbatim":
        raise UsageError("Verbatim answers are not extracted from texts; choose another --answer-kind for a recording.")
    return kind


def _account(show: Output, proxy: Proxy, sealed: Path | None) -> None:
    account = {
        "recording": None if sealed is None else str(sealed),
        "recorded": proxy.recorded,
        "replayed": proxy.replayed,
        "unrecorded": proxy.unrecorded,
    }
    where = "Nothing was recorded, and nothing sealed." if sealed is None else f"The recording is {sealed}."
    recorded = f"{counted(proxy.recorded, 'CoT')} {'was' if proxy.recorded == 1 else 'were'} recorded"
    show.result(account, f"{recorded}, {proxy.replayed:,} given again. {where}")
    if proxy.unrecorded:
        show.note(f"{proxy.unrecorded:,} chat completions could not be recorded and were passed on as they are.")


def _announce(show: Output, service: Service, what: str, account: dict[str, object]) -> None:
    """Say where the service is, at once: a script waits for this line."""
    if not service.only_loopback:
        show.note(f"{service.host} can be reached from other machines. Whoever reaches port {service.port} may ask.")
    show.result(
        {"url": service.url, "port": service.port} | account,
        f"{what} at {service.url} (Ctrl-C ends it).",
    )
    print(end="", flush=True)


def _serve(service: Service) -> None:
    """Serve until Ctrl-C, then wait for what is being answered; a second Ctrl-C waits for nothing."""
    try:
        service.run()
    except KeyboardInterrupt:
        service.close()
