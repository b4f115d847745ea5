"""`feval serve`: a recording behind a port."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from feval import serving
from feval.cli.options import OnlyDatasets, OnlyLLMs, Prices
from feval.cli.output import Output
from feval.errors import UsageError
from feval.report.text import counted
from feval.serving.matching.templates import prompt_remarks

if TYPE_CHECKING:
    from feval.serving.application import Application
    from feval.serving.server import Server


_RUN = "my-run"
_MOST_NAMED = 8


def serve(
    recordings: Annotated[
        list[Path] | None,
        typer.Argument(metavar="RECORDING", help="Folders. Default: those in FEVAL_RECORDING.", show_default=False),
    ] = None,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0 takes any free one.")] = 8000,
    host: Annotated[
        str, typer.Option("--host", metavar="HOST", help="Address to listen on; others need a --token.")
    ] = "127.0.0.1",
    token: Annotated[
        str | None,
        typer.Option(
            "--token", metavar="TEXT", envvar="FEVAL_SERVE_TOKEN", help="Clients must send it; 16 characters or more."
        ),
    ] = None,
    dataset: OnlyDatasets = None,
    llm: OnlyLLMs = None,
    seed: Annotated[int, typer.Option("--seed", help="Random seed of the draws.")] = 0,
    order: Annotated[str, typer.Option("--order", metavar="ORDER", help="seeded or recorded.")] = "seeded",
    recycle: Annotated[bool, typer.Option("--recycle", help="Start over, with a mark, when CoTs run out.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Answer only requests that were recorded.")] = False,
    few_shot: Annotated[
        str, typer.Option("--few-shot", metavar="WHICH", help="last: the last question in a message is asked.")
    ] = "none",
    allow_mismatch: Annotated[
        bool, typer.Option("--allow-mismatch", help="Answer judges' prompts, JSON schemas and forced tools, too.")
    ] = False,
    prices: Prices = None,
    ledger: Annotated[
        Path | None, typer.Option("--ledger", metavar="FILE", help="Write every request to this file, for grading.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue where that file ends.")] = False,
    *,
    show: Output,
) -> None:
    """Serve a recording over HTTP, as OpenAI would.

    Until Ctrl-C. Point any client at the URL that is printed, with the name of your run as its API key. Asking again gives the
    next CoTs of the pool; every run has its own place in it and its own ledger. Needs feval[serve].

    Example: feval serve my-recording --port 8000
    """
    if order not in {"seeded", "recorded"}:
        raise UsageError(f"--order is seeded or recorded; {order!r} was given.")
    if few_shot not in {"last", "none"}:
        raise UsageError(f"--few-shot is last or none; {few_shot!r} was given.")
    if resume and ledger is None:
        raise UsageError("--resume continues where a ledger file ends; name it with --ledger FILE.")
    server = serving.serve(
        list(recordings) if recordings else None, host=host, port=port, token=token, datasets=dataset or None,
        llms=llm or None, seed=seed, order=order, recycle=recycle, strict=strict, few_shot=few_shot,
        allow_mismatch=allow_mismatch, prices=prices, ledger=ledger, resume=resume,
    )  # fmt: skip
    if show.quiet:
        logging.getLogger("feval.serving").setLevel(logging.ERROR)
    try:
        _announce(show, server, protected=token is not None)
    except BaseException:
        server.close()
        raise
    server.run()
    _account(show, server.application)


def _announce(show: Output, server: Server[Application], *, protected: bool) -> None:
    """Print the URL at once: a script waits for this line."""
    if not server.only_loopback:
        show.note(
            f"{server.host} can be reached from other machines, unencrypted. Whoever has the token can read the recording."
        )
    llms = server.application.library.model_names()
    named = ", ".join(llms[:_MOST_NAMED]) + (f" and {len(llms) - _MOST_NAMED} more" if len(llms) > _MOST_NAMED else "")
    if begun := [run["run"] for run in server.application.ledger()["runs"]]:
        shown = ", ".join(begun[:_MOST_NAMED]) + ", ..." * (len(begun) > _MOST_NAMED)
        show.note(
            f"The ledger holds {counted(len(begun), 'run')} ({shown}). A run that asks again continues with its next "
            "CoTs; to start again, take a new name or POST /run/NAME/feval/reset."
        )
    # The token stays out of sight: it would end up in logs and on screens.
    base, key = (server.url_of(_RUN), "$FEVAL_SERVE_TOKEN") if protected else (server.url, _RUN)
    show.result(
        {"url": server.url, "port": server.port, "llms": llms, "token": protected},
        f"Serving {named} at {server.url} (Ctrl-C ends it).",
        f"OPENAI_BASE_URL={base} OPENAI_API_KEY={key}",
    )
    print(end="", flush=True)


def _account(show: Output, application: Application) -> None:
    """Print what was handed out, if anything."""
    runs = application.ledger()["runs"]
    if runs and not show.json:
        cots, requests = (sum(run[name] for run in runs) for name in ("cots", "requests"))
        show.note(f"Served {counted(cots, 'CoT')} in {counted(requests, 'request')} of {counted(len(runs), 'run')}.")
        for run in runs:
            _account_prompts(show, run)


def _account_prompts(show: Output, run: Mapping[str, Any]) -> None:
    """Print a note if a run used several prompts."""
    for dataset in dict.fromkeys(use["dataset"] for use in run["prompts"]):
        for sentence in prompt_remarks([use for use in run["prompts"] if use["dataset"] == dataset]):
            show.note(f"{run['run']} on {dataset}: {sentence}")
