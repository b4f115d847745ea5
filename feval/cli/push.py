"""`feval push`: a recording onto the Hugging Face Hub."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from feval.cli import JsonFlag, QuietFlag, _guarded, _hush_matplotlib, _local, _Out, app
from feval.errors import SourceError, UsageError

if TYPE_CHECKING:
    from feval.publish.release import Changes, Release
    from feval.publish.scan import Finding
    from feval.report.tables.tables import Table

__all__: list[str] = []

_MOST_WORDS_BYTES = 1 << 20
_SHOWN_FINDINGS = 5


@app.command("push")
@_guarded
def _push(
    first: Annotated[
        str,
        typer.Argument(
            metavar="RECORDING",
            help="Its folder, or hf://NAMESPACE/NAME@COMMIT. Left out with results alone.",
            show_default=False,
        ),
    ],
    second: Annotated[
        str | None, typer.Argument(metavar="REPOSITORY", help="On the Hub, such as org/name.", show_default=False)
    ] = None,
    results: Annotated[
        list[Path] | None,
        typer.Option(
            "--results", metavar="DIR", help="What a command wrote with --out, to lie beside it; repeat for more."
        ),
    ] = None,
    public: Annotated[
        bool, typer.Option("--public", help="Let everybody see it. Default: a private repository.")
    ] = False,
    tag: Annotated[str | None, typer.Option("--tag", metavar="NAME", help="Name this version, such as v1.")] = None,
    message: Annotated[str | None, typer.Option("--message", metavar="TEXT", help="Of the commit.")] = None,
    create_pr: Annotated[
        bool, typer.Option("--create-pr", help="Offer it as a pull request, to somebody else's repository.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be sent, and send nothing.")] = False,
    title: Annotated[str | None, typer.Option("--title", metavar="TEXT", help="Of the page.")] = None,
    words: Annotated[
        Path | None,
        typer.Option("--words", metavar="FILE", help="Your section of the page. Default: the one it has."),
    ] = None,
    licence: Annotated[
        str | None,
        typer.Option(
            "--licence", metavar="ID", help="Of the collection, as the Hub spells it. Default: the page's, or odbl."
        ),
    ] = None,
    language: Annotated[
        list[str] | None, typer.Option("--language", metavar="CODE", help="Of the texts, such as en; repeat for more.")
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option("--allow", metavar="WHAT", help="emails, paths or the MARK of a finding; repeat for more."),
    ] = None,
    remove: Annotated[
        bool, typer.Option("--remove", help="Take away what the repository has and this recording lacks.")
    ] = False,
    page: Annotated[
        Path | None,
        typer.Option("--page", metavar="DIR", help="Write README.md and its picture there, to look at before."),
    ] = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Publish a recording on the Hugging Face Hub.

    Makes a page for people, refuses secrets, paths and e-mail addresses in any file, and sends what is new as one commit. With
    --results alone, results join a recording that is there.

    Example: feval push my-recording org/my-recording --tag v1 --dry-run
    """
    from feval.publish.release import changes, look, prepare, prepare_results, push

    _hush_matplotlib()
    show = _Out(as_json=as_json, quiet=quiet)
    recording, repository = _recording_and_repository(first, second, results)
    seen = look(repository)
    made: dict[str, Any] = {"tag": tag, "allow": allow or [], "results": results or []}
    if recording is None:
        _refuse_page_options(title, words, licence, language, page)
        source = f"results for {repository}"
    else:
        recording = _local(show, recording)
        source = recording.name
        made |= {"title": title, "licence": licence, "languages": language or []}
        made["words"] = None if words is None else _read_words(words)
    with show.progress(f"looking through {source}") as progress:
        release = (
            prepare_results(seen=seen, progress=progress, **made)
            if recording is None
            else prepare(recording, seen, progress=progress, **made)
        )
        written = [] if page is None else _save_page(page, release)
        for remark in (*release.notes, *_allowed(release.scan.allowed)):
            show.note(remark)
        release.scan.require_clean()
        todo = changes(release)
        account = _account(release, todo) | {"dry_run": dry_run, "page": [str(path) for path in written]}
        if not dry_run:
            progress.describe(f"sending {len(todo.sent):,} files to {repository}")
            pushed = push(release, message=message, public=public, create_pr=create_pr, remove=remove)
    if dry_run:
        told = f"Nothing was sent. A push to {repository} would send {len(todo.sent):,} files, {_bytes(release, todo)}."
        show.result(account, told, _table(release, todo), *(f"wrote {path}" for path in written))
        return
    address = f"hf://{repository}@{pushed.commit}"
    account |= dataclasses.asdict(pushed) | {"address": address}
    sent = f"{len(pushed.uploaded):,} files sent, {len(pushed.unchanged):,} were there"
    show.result(
        account,
        f"{pushed.pull_request or pushed.url}: {sent}",
        f"recording hash {release.recording_hash}" + (f", tag {tag}" if tag else ""),
        f"To load and to cite: {address}",
    )


def _recording_and_repository(first: str, second: str | None, results: list[Path] | None) -> tuple[Path | None, str]:
    """Return what is pushed, `None` for results alone, and the repository."""
    if second is not None:
        return Path(first), second
    if results:
        return None, first
    raise UsageError(
        f"A push takes a recording and a repository (feval push RECORDING org/name), or a repository and --results DIR; only "
        f"{first!r:.120} was named."
    )


def _refuse_page_options(*options: object) -> None:
    if any(options):
        raise UsageError(
            "Results alone change no page: --title, --words, --licence, --language and --page belong to a push of a recording."
        )


def _read_words(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_WORDS_BYTES + 1)
        if len(data) > _MOST_WORDS_BYTES:
            raise SourceError(f"{path} is larger than {_MOST_WORDS_BYTES:,} bytes; a section of a page is shorter.")
        return data.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"{path} cannot be read as Markdown in UTF-8 ({error}). Check --words.") from error


def _save_page(folder: Path, release: Release) -> list[Path]:
    """Write the page and its picture as files to look at; earlier ones are replaced."""
    from feval.publish.card import PICTURE
    from feval.report.files import save_files

    own = {path: content for path, content in release.files.items() if path in {"README.md", PICTURE}}
    saved = []
    for path, content in own.items():
        if isinstance(content, bytes):
            place = folder / path
            saved += save_files(place.parent, {place.name: content}, replace=True)
    return saved


def _allowed(findings: tuple[Finding, ...]) -> list[str]:
    """Return notes on findings that an exception let through."""
    told = [f"allowed: {finding}" for finding in findings[:_SHOWN_FINDINGS]]
    more = len(findings) - len(told)
    return [*told, f"allowed: {more:,} more findings; --json lists them"] if more > 0 else told


def _account(release: Release, todo: Changes) -> dict[str, Any]:
    return {
        "repo_id": release.seen.repo_id,
        "title": release.title,
        "recording_hash": release.recording_hash,
        **dataclasses.asdict(todo),
        "bytes": {path: _size(release, path) for path in todo.sent},
        "searched_bytes": release.scan.bytes_searched,
        "allowed": [dataclasses.asdict(finding) for finding in release.scan.allowed],
    }


def _size(release: Release, path: str) -> int:
    content = release.files[path]
    return len(content) if isinstance(content, bytes) else content.stat().st_size


def _bytes(release: Release, todo: Changes) -> str:
    from feval.publish.markdown import size

    return size(sum(_size(release, path) for path in todo.sent))


def _table(release: Release, todo: Changes) -> Table:
    """Files by folder and by what becomes of them."""
    from feval.publish.markdown import size
    from feval.report.tables.tables import Column, Table

    folders: dict[str, list[int]] = {}
    for place, paths in enumerate((todo.new, todo.changed, todo.unchanged, todo.removed)):
        for path in paths:
            name = path if path.count("/") == 0 else f"{path.split('/')[0]}/"
            counts = folders.setdefault(name, [0] * 5)
            counts[place] += 1
            counts[4] += _size(release, path) if place < 2 else 0
    columns = [Column(name, number=True) for name in ("new", "changed", "unchanged", "removed", "to send")]
    rows = [(name, *(f"{count:,}" for count in counts[:4]), size(counts[4])) for name, counts in folders.items()]
    return Table("", (Column("files"), *columns), tuple(rows))
