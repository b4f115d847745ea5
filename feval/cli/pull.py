"""`feval pull`: fetch a recording from the Hugging Face Hub, or a part of one."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from feval import hub
from feval.cli.options import JsonFlag, QuietFlag
from feval.cli.output import Output
from feval.report.text import counted


def pull(
    address: Annotated[
        str,
        typer.Argument(
            metavar="NAMESPACE/NAME[@REVISION]",
            help="Repository on the Hub; the revision is a commit, tag or branch.",
            show_default=False,
        ),
    ],
    dataset: Annotated[
        list[str] | None, typer.Option("--dataset", metavar="ID", help="Fetch this dataset only; repeat for more.")
    ] = None,
    llm: Annotated[
        list[str] | None, typer.Option("--llm", metavar="NAME", help="Fetch this LLM only; repeat for more.")
    ] = None,
    no_texts: Annotated[
        bool, typer.Option("--no-texts", help="Leave out the texts of the LLMs, which are most of the bytes.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="New folder for it. Default: the Hub's cache alone.")
    ] = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Fetch a recording from the Hugging Face Hub.

    Every byte is checked against the manifest of the commit, and the content against the recording hash. Afterwards the same
    address works offline: --recording hf://NAMESPACE/NAME@COMMIT.

    Example: feval pull somebody/my-recording@v1.0 --dataset gsm8k --llm gpt-4o-mini --no-texts
    """
    show = Output(as_json=as_json, quiet=quiet)
    place = address if address.startswith("hf:/") else f"hf://{address}"
    with show.progress(f"fetching {address}") as progress:
        pulled = hub.pull(place, out, datasets=dataset, llms=llm, texts=not no_texts, progress=progress)
    account = dataclasses.asdict(pulled) | {"folder": str(pulled.folder)}
    show.result(account, *_sentences(pulled, out))


def _sentences(pulled: hub.Pulled, out: Path | None) -> list[str]:
    new = sum(pulled.fetched.values())
    download = f"{new:,} bytes fetched" if pulled.fetched else "nothing had to be fetched"
    left = f"; {counted(pulled.left_out, 'file')} left out" if pulled.left_out else ""
    where = pulled.address if out is None else str(out)
    return [
        f"{pulled.address}: {counted(pulled.files, 'file')} of {pulled.size:,} bytes are here and checked, {download}{left}",
        f"Recording hash {pulled.recording_hash}",
        f"Open it with --recording {where}, or feval.load(..., recording={where!r})",
    ]
