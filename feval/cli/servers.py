"""`feval tiny-server`: a real HTTP endpoint on loopback."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from feval.cli import JsonFlag, QuietFlag, _guarded, _Out, app

if TYPE_CHECKING:
    from recorders.service import Service

__all__: list[str] = []

Port = Annotated[int, typer.Option("--port", min=0, max=65535, help="To listen on; 0 takes any that is free.")]
Host = Annotated[str, typer.Option("--host", metavar="HOST", help="To listen on; whoever reaches it may ask.")]


@app.command("tiny-server")
@_guarded
def _tiny_server(
    port: Port = 0,
    host: Host = "127.0.0.1",
    model: Annotated[
        list[str] | None, typer.Option("--model", metavar="NAME", help="Serve only this one; repeat for several.")
    ] = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Serve the built-in models as an OpenAI-compatible endpoint, until Ctrl-C.

    Takes n, seed, temperature, top_p, max_tokens, stop, logprobs and stream; needs no key and nothing but feval.

    Example: feval tiny-server --port 8123
    """
    from recorders.service import Service
    from recorders.tiny.server import TinyServer

    show = _Out(as_json=as_json, quiet=quiet)
    application = TinyServer(model or None)
    service = Service(application, host=host, port=port)
    _announce(show, service, f"Serving {', '.join(application.models)}", {"models": list(application.models)})
    _serve(service)


def _announce(show: _Out, service: Service, what: str, account: dict[str, object]) -> None:
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
