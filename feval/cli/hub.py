"""`feval push` and `feval pull`: recordings on the Hugging Face Hub."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path

import typer
from pydantic import Field

from feval import hub, publish
from feval.cards.front_matter import read_body, read_front_matter
from feval.cli.commands import argument, option
from feval.cli.options import OnlyDatasets, OnlyLLMs, read_text
from feval.cli.output import Output, quiet_matplotlib, say
from feval.errors import HubError, UsageError
from feval.evaluation.requests import Request
from feval.hub import local_folder
from feval.publish.front_matter import (
    OTHER,
    USUAL,
    Licence,
    check_licence,
    is_licence,
    is_link,
    is_name,
)
from feval.report.files import save_files
from feval.report.tables.tables import Table, columns
from feval.report.text import counted, size
from feval.values import Record

_SHOWN_FINDINGS = 5


class _FrontMatter(Request):
    """What a file of --words may say about the page besides the words."""

    title: str | None = None
    license: str | None = None
    license_name: str | None = None
    license_link: str | None = None
    language: str | list[str] = Field(default_factory=list)


def push(
    first: str = argument(
        "Its folder, or hf://NAMESPACE/NAME@COMMIT. Leave it out to push results alone.",
        "RECORDING",
    ),
    second: str | None = argument("On the Hub, such as org/name.", "REPOSITORY"),
    results: list[Path] | None = option(
        "Results to publish with it: what a command wrote with --out; repeat for more.", "DIR"
    ),
    public: bool = option("Make a new repository public. Default: private."),
    tag: str | None = option("Name this version, such as v1.", "NAME"),
    create_pr: bool = option("Open a pull request instead, for somebody else's repository."),
    dry_run: bool = option("Show what would be sent; send nothing."),
    words: Path | None = option(
        "Your own section of the page; its front matter may set title, license and language.",
        "FILE",
    ),
    allow: list[str] | None = option(
        "Allow findings: emails, paths, or the MARK of one; repeat for more.", "WHAT"
    ),
    prices: str | None = option(
        "Id or file of a price list: of the page's dollars. Default: the recording's.", "LIST"
    ),
    remove: bool = option("Delete files that the repository has and this recording lacks."),
    page: Path | None = option(
        "Also write README.md and its picture here, to look at them first.", "DIR"
    ),
    *,
    show: Output,
) -> None:
    """Publish a recording on the Hugging Face Hub.

    Makes the page, refuses secrets, paths and e-mail addresses in any file, and sends what is new
    as one commit. With --results alone, results are added to a recording that is already there.

    Example: feval push my-recording org/my-recording --tag v1 --dry-run
    """
    quiet_matplotlib()
    recording, repository = (None, first) if second is None else (Path(first), second)
    if recording is None and not results:
        raise UsageError(
            "A push takes a recording and a repository (feval push RECORDING org/name), or a"
            f" repository and --results DIR; only {first!r:.120} was given."
        )
    try:
        seen = publish.look(repository)
    except HubError as error:
        # where only the page is looked at, a repository that cannot be reached counts as new
        if page is None or not dry_run or recording is None:
            raise
        show.note(f"The page is that of a new repository, since the Hub does not answer: {error}")
        seen = publish.RepositorySnapshot(repository)
    options: Record = {"tag": tag, "allow": allow or [], "results": results or []}
    if recording is None:
        if words or page or prices:
            raise UsageError(
                "Results alone do not change the page: --words, --page and --prices need a"
                " recording."
            )
        source = f"results for {repository}"
    else:
        recording = local_folder(recording)
        source = recording.name
        if words is not None:
            options |= _read_words(words)
        options["prices"] = prices
        options["licence"] = _complete(
            options.get("licence") or publish.known_licence(recording, seen)
        )
    with show.progress(f"looking through {source}") as progress:
        release = (
            publish.prepare_results(seen=seen, progress=progress, **options)
            if recording is None
            else publish.prepare(recording, seen, progress=progress, **options)
        )
        written = [] if page is None else _save_page(page, release)
        show.note(*release.notes, *_allowed(release.scan.allowed))
        release.scan.require_clean()
        todo = publish.changes(release)
        account = {
            "repo_id": release.seen.repo_id,
            "title": release.title,
            "recording_hash": release.recording_hash,
            **dataclasses.asdict(todo),
            "bytes": {path: _size(release, path) for path in todo.sent},
            "searched_bytes": release.scan.bytes_searched,
            "allowed": [dataclasses.asdict(finding) for finding in release.scan.allowed],
            "dry_run": dry_run,
            "page": [str(path) for path in written],
        }
        if not dry_run:
            progress.describe(f"sending {len(todo.sent):,} files to {repository}")
            pushed = publish.push(release, public=public, create_pr=create_pr, remove=remove)
    if dry_run:
        total = size(sum(_size(release, path) for path in todo.sent))
        headline = (
            f"Nothing was sent. A push to {repository} would send {len(todo.sent):,} files,"
            f" {total}."
        )
        show.result(account, headline, _table(release, todo), written=written)
        return
    address = f"hf://{repository}@{pushed.commit}"
    account |= dataclasses.asdict(pushed) | {"address": address}
    sent = f"{len(pushed.uploaded):,} files sent, {len(pushed.unchanged):,} unchanged"
    show.result(
        account,
        f"{pushed.pull_request or pushed.url}: {sent}",
        f"recording hash {release.recording_hash}" + (f", tag {tag}" if tag else ""),
        f"To load and to cite: {address}",
    )


def _read_words(path: Path) -> Record:
    """Return the arguments of `publish.prepare` in a file: the section, and what its front matter
    says.
    """
    text = read_text(path, "Markdown", "--words").replace("\r\n", "\n")
    if not text.startswith("---\n"):
        return {"words": text}
    front = _FrontMatter.parse(f"The front matter of {path}", read_front_matter(path))
    languages = [front.language] if isinstance(front.language, str) else front.language
    stated = front.license or (OTHER if front.license_name or front.license_link else None)
    licence = None if stated is None else Licence(stated, front.license_name, front.license_link)
    words = read_body(path).strip() or None
    return {"title": front.title, "licence": licence, "languages": languages, "words": words}


def _complete(licence: Licence | None) -> Licence:
    """Return a licence; what it lacks is asked for at a terminal, and a `UsageError` where nobody
    is there.
    """
    if sys.stdin is None or not sys.stdin.isatty():
        return check_licence(licence)
    if licence is None:
        say(
            "Under which licence do you publish the collection? Neither the recording nor an"
            " earlier page states one."
        )
        for usual, (name, _, meaning) in USUAL.items():
            say(f"  {usual:<13} {name}: {meaning}")
        say(f"  {OTHER:<13} another one; you are asked for its name and text")
        licence = Licence(
            _asked("Licence, as the Hub spells it", is_licence, "cc-by-4.0, mit or other")
        )
    if licence.id == OTHER:
        name = licence.name or _asked("Name of the licence", is_name, "my-licence-1.0")
        link = licence.link or _asked(
            f"Address of the text of {name}", is_link, "https://example.com/licence or LICENSE.md"
        )
        licence = Licence(OTHER, name, link)
    return check_licence(licence)


def _asked(question: str, suits: Callable[[str], object], example: str) -> str:
    """Return an answer that suits; licences of the Hub are spelled small."""
    while not suits(answer := typer.prompt(question, err=True).strip()) and not suits(
        answer := answer.lower()
    ):
        say(f"The Hub spells it as in {example}; {answer!r:.60} does not look like one.")
    return str(answer)


def _save_page(folder: Path, release: publish.Release) -> list[Path]:
    """Write the page and its pictures as files to look at; earlier ones are replaced."""
    saved = []
    for path, content in release.files.items():
        if path.startswith(("README.md", "figures/")) and isinstance(content, bytes):
            place = folder / path
            saved += save_files(place.parent, {place.name: content}, replace=True)
    return saved


def _allowed(findings: tuple[publish.Finding, ...]) -> list[str]:
    """Return notes on findings that an exception let through."""
    notes = [f"allowed: {finding}" for finding in findings[:_SHOWN_FINDINGS]]
    more = len(findings) - len(notes)
    return [*notes, f"allowed: {more:,} more findings; --json lists them"] if more > 0 else notes


def _size(release: publish.Release, path: str) -> int:
    content = release.files[path]
    return len(content) if isinstance(content, bytes) else content.stat().st_size


def _table(release: publish.Release, todo: publish.Changes) -> Table:
    """Return the numbers of new, changed, unchanged and removed files by folder."""
    folders: dict[str, list[int]] = {}
    for place, paths in enumerate((todo.new, todo.changed, todo.unchanged, todo.removed)):
        for path in paths:
            counts = folders.setdefault("".join(path.partition("/")[:2]), [0] * 5)
            counts[place] += 1
            counts[4] += _size(release, path) if place < 2 else 0
    rows = [
        (name, *(f"{count:,}" for count in counts[:4]), size(counts[4]))
        for name, counts in folders.items()
    ]
    names = "files", "#new", "#changed", "#unchanged", "#removed", "#to send"
    return Table("", columns(*names), tuple(rows))


def pull(
    *,
    address: str = argument(
        "Repository on the Hub; the revision is a commit, tag or branch.",
        "NAMESPACE/NAME[@REVISION]",
    ),
    dataset: OnlyDatasets,
    llm: OnlyLLMs,
    no_texts: bool = option("Leave out the texts of the LLMs, which are most of the bytes."),
    out: Path | None = option("New folder for it. Default: the Hub's cache alone.", "DIR"),
    show: Output,
) -> None:
    """Fetch a recording from the Hugging Face Hub.

    Every byte is checked against the manifest of the commit, and the content against the recording
    hash. Afterwards the same address works offline: --recording hf://NAMESPACE/NAME@COMMIT.

    Example: feval pull somebody/my-recording@v1.0 --dataset gsm8k --llm gpt-4o-mini --no-texts
    """
    place = address if address.startswith("hf:/") else f"hf://{address}"
    pulled = hub.pull(place, out, datasets=dataset, llms=llm, texts=not no_texts)
    account = dataclasses.asdict(pulled) | {"folder": str(pulled.folder)}
    new = sum(pulled.fetched.values())
    download = f"{new:,} bytes fetched" if pulled.fetched else "nothing had to be fetched"
    left = f"; {counted(pulled.left_out, 'file')} left out" if pulled.left_out else ""
    where = pulled.address if out is None else str(out)
    show.result(
        account,
        f"{pulled.address}: {counted(pulled.files, 'file')} of {pulled.size:,} bytes are here and"
        f" checked, {download}{left}",
        f"Recording hash {pulled.recording_hash}",
        f"Open it with --recording {where}, or feval.load(..., recording={where!r})",
    )
