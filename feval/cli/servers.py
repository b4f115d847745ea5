"""`feval proxy` and `tiny-server`: LLMs behind a port."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from feval.answers import KINDS
from feval.answers.equality import named_equality
from feval.cards.cards import find_dataset_card
from feval.cards.tokens import token_counter
from feval.cli.options import AnswerKind, Equality
from feval.cli.output import Output
from feval.errors import StorageError, UnknownNameError, UsageError
from feval.report.text import counted
from recorders.backends.endpoint import Endpoint
from recorders.journal.journal import JOURNAL, Journal, journal_folder
from recorders.servers.proxied import check_place, seal_proxied
from recorders.servers.proxy import Proxy, proxy_server
from recorders.servers.tiny_server import tiny_server as open_tiny_server
from recorders.work.settings import load_questions

if TYPE_CHECKING:
    from feval.serving.server import Server


Port = Annotated[int, typer.Option("--port", min=0, max=65535, help="To listen on; 0 takes any free one.")]
Host = Annotated[str, typer.Option("--host", metavar="HOST", help="Address to listen on; whoever reaches it may ask.")]


def tiny_server(
    port: Port = 0,
    host: Host = "127.0.0.1",
    model: Annotated[
        list[str] | None, typer.Option("--model", metavar="NAME", help="Serve only this one; repeat for several.")
    ] = None,
    *,
    show: Output,
) -> None:
    """Serve the built-in models over HTTP, as OpenAI would.

    Until Ctrl-C. Takes n, seed, temperature, top_p, max_tokens, stop, logprobs and stream; needs no key. Needs feval[serve].

    Example: feval tiny-server --port 8123
    """
    server = open_tiny_server(model or None, host=host, port=port)
    names = server.application.names
    _announce(show, server, f"Serving {', '.join(names)}", {"models": list(names)})
    server.run()


def proxy(
    upstream: Annotated[
        str, typer.Option("--upstream", metavar="URL", help="Base URL of the server, usually with /v1 at its end.")
    ],
    record: Annotated[
        Path, typer.Option("--record", metavar="DIR", help="Folder of the recording; its journal is DIR.journal.")
    ],
    dataset: Annotated[str, typer.Option("--dataset", metavar="ID", help="Id of the recorded dataset.")] = "proxied",
    questions: Annotated[
        Path | None,
        typer.Option("--questions", metavar="FILE", help="JSON Lines; looked for in the last user message."),
    ] = None,
    answer_kind: AnswerKind = None,
    equality: Equality = None,
    api_key_env: Annotated[
        str | None, typer.Option("--api-key-env", metavar="VARIABLE", help="The key in it replaces the clients' keys.")
    ] = None,
    counter: Annotated[
        str, typer.Option("--counter", metavar="NAME", help="usage (the provider's), words or tiktoken:ENCODING.")
    ] = "usage",
    port: Port = 0,
    host: Host = "127.0.0.1",
    seal: Annotated[bool, typer.Option("--seal", help="Only make the recording; serve nothing.")] = False,
    *,
    show: Output,
) -> None:
    """Record existing code by forwarding its requests.

    Point code that asks an OpenAI-compatible server at the URL that is printed. A request is answered from the journal while that
    has unused samples of it, else forwarded with the client's own key, which is never written. Ctrl-C seals the recording; the
    journal stays for the next time. Needs feval[serve].

    Example: feval proxy --upstream https://api.openai.com/v1 --record my-run --port 8124
    """
    endpoint = Endpoint.from_environment(upstream, api_key_env) if api_key_env else Endpoint(upstream)
    kind = _kind(dataset, answer_kind)
    named = named_equality(kind, equality)
    known = [] if questions is None else load_questions(dataset, questions, answer_kind=kind)
    token_counter("words" if counter == "usage" else counter)
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
            server = proxy_server(proxy, host=host, port=port)
            if endpoint.warning:
                show.note(endpoint.warning)
            _announce(show, server, f"Recording {endpoint.url}", {"upstream": endpoint.url})
            server.run()
        sealed = seal_proxied(
            journal, record, dataset=dataset, answer_kind=kind, questions=known, counter=counter, equality=named
        )
        _account(show, proxy, sealed)


def _kind(dataset: str, answer_kind: str | None) -> str:
    card = find_dataset_card(dataset)
    kind = answer_kind or (card.answer_kind if card else "text")
    if kind not in KINDS:
        raise UnknownNameError.of("answer kind", kind, KINDS)
    if kind == "verbatim":
        raise UsageError("Verbatim answers cannot be extracted from texts; choose another --answer-kind.")
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


def _announce(show: Output, server: Server[Any], what: str, account: dict[str, object]) -> None:
    """Print the URL at once: a script waits for this line."""
    if not server.only_loopback:
        show.note(f"{server.host} can be reached from other machines. Whoever reaches port {server.port} may ask.")
    show.result({"url": server.url, "port": server.port} | account, f"{what} at {server.url} (Ctrl-C ends it).")
    print(end="", flush=True)
