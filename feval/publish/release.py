"""A release: a recording with its page, picture, licence and results, searched for secrets,
compared with the Hub, and pushed.

    seen = look("org/name")
    release = prepare("my-recording", seen)
    changes(release)                                            # what a push would do
    push(release)                                               # one commit

The manifest of a release leaves README.md out, since people edit the page on the Hub and nothing
that feval computes rests on it. Content, leaves and recording hash are the same.

Results that travel with a recording are receipts, tables and pictures, under `results/<name>/` of
its repository.

    results/gsm8k-curve/receipt.json      recordings: [{"hash": ..., "path": "../.."}]

A receipt in a repository names the recording beside it as `../..`, which is right in every copy of
the repository and at every commit. A receipt has to rest on a recording that everybody can get: the
one of the repository, or one with an address and commit on the Hub. Results are not content of a
recording; its hash does not cover them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from feval.cards import PriceList
from feval.cards.reading import parse_json, some
from feval.comparison import Plan
from feval.errors import CardError, ConflictError, FevalError, HubError, ReleaseError
from feval.evaluation.cautions import mixed_counters
from feval.executors import Progress, reports
from feval.hub import is_address, open_place, parse_address
from feval.hub.commits import Files, PushResult, RepoState, push_files, read_page, state
from feval.publish.card import PICTURE, SURFACES, Page, card, default_title
from feval.publish.figures import figures_of, page_prices, picture, surface_pictures
from feval.publish.front_matter import (
    MOST_SPLITS,
    EarlierMatter,
    Licence,
    check_licence,
    configs_of,
    earlier_matter,
    front_matter_end,
    notice,
    stated_licence,
)
from feval.publish.markdown import END, check_words, code, own_words, plain
from feval.publish.scan import Scan, scan
from feval.receipts.document import read_receipt
from feval.recording import Recording, open_recording
from feval.recording.layout.format import MANIFEST, README, is_beside
from feval.recording.layout.manifest import manifest_bytes
from feval.recording.parts import PARTS
from feval.recording.verify import open_sound
from feval.report.files import encoded
from feval.report.text import counted
from feval.values import RecordLike, frozen, inside

FOLDER = "results"
"""The folder of a repository that holds the results."""

_RECEIPT = "receipt.json"
_TOP = "../.."  # from results/<name>/ to the recording
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@=+-]{0,99}")
_KINDS = frozenset((".json", ".csv", ".parquet", ".png", ".svg", ".html", ".toml", ".md"))
_MOST_FILES = 1000


def result_files(places: Sequence[Path], recording_hash: str) -> dict[str, Path | bytes]:
    """Return results to push beside a recording: path in the repository -> the file, or its bytes
    if they were changed.

    Places are folders that a command wrote with --out, or single files of them. The folder's name
    is the name of the result.

    Raises:
        ReleaseError: no such place, a file that is not a result, or a name that an address cannot
            contain.
        ConflictError: a receipt rests on a recording that others cannot get, or two results have
            one name.
        UsageError: a receipt that cannot be read.
    """
    files: dict[str, Path | bytes] = {}
    sources: dict[str, Path] = {}
    for place in places:
        folder = place if place.is_dir() else place.parent
        name = folder.resolve().name
        if not _NAME.fullmatch(name):
            raise ReleaseError(
                f"The results in {folder} would be called {name!r:.80}; a name on the Hub has"
                " letters, digits and . _ @ = + - only. Rename the folder."
            )
        if sources.setdefault(name, folder.resolve()) != folder.resolve():
            raise ConflictError(
                f"{sources[name]} and {folder} would both be {FOLDER}/{name}. Rename one of them."
            )
        for path in _files_in(place):
            files[f"{FOLDER}/{name}/{path.relative_to(folder).as_posix()}"] = path
    for name in sources:
        files |= _portable(f"{FOLDER}/{name}/", files, recording_hash)
    return files


def _files_in(place: Path) -> list[Path]:
    """Return the files of a place, in order."""
    paths = sorted(place.rglob("*")) if place.is_dir() else [place]
    files = [path for path in paths if path.is_symlink() or not path.is_dir()]
    if not place.exists() or not files:
        raise ReleaseError(
            f"There are no results in {place}. Name a folder that feval wrote results to, or a file"
            " of one, with --results (in Python: results=[...])."
        )
    if place.is_dir() and place / _RECEIPT not in files:
        raise ReleaseError(
            f"{place} has no {_RECEIPT}, so nobody could recompute its numbers. Name a folder that"
            " `feval run`, `curve`, `surface`, `compare`, `estimate` or `grade` wrote."
        )
    if len(files) > _MOST_FILES:
        raise ReleaseError(
            f"{place} has {len(files):,} files; results have at most {_MOST_FILES:,}. Name a"
            " smaller folder."
        )
    for path in files:
        if (
            path.is_symlink()
            or not path.is_file()
            or path.suffix not in _KINDS
            or path.name.startswith(".")
        ):
            raise ReleaseError(
                f"{path} is not a file that feval writes as a result ({', '.join(sorted(_KINDS))})."
                " Remove it, or name the files one by one."
            )
    return files


def _portable(start: str, files: Files, recording_hash: str) -> dict[str, bytes]:
    """Return the files of a result that name recordings, with places that everybody can reach."""
    path = files.get(start + _RECEIPT)
    if not isinstance(path, Path):
        return {}
    read_receipt(path)  # refuses what is not a receipt
    receipt = json.loads(path.read_bytes())
    places = {entry["path"]: _place(path, entry, recording_hash) for entry in receipt["recordings"]}
    receipt["recordings"] = [
        entry | {"path": places[entry["path"]]} for entry in receipt["recordings"]
    ]
    _move(receipt["request"], places)
    portable: dict[str, bytes] = {}
    comparison, plan = files.get(f"{start}comparison.json"), files.get(f"{start}comparison.toml")
    if isinstance(comparison, Path):
        try:
            read_comparison = parse_json(comparison.read_bytes())
        except (OSError, ValueError) as error:
            raise ReleaseError(
                f"{comparison} cannot be read as JSON ({error}). Write the results again."
            ) from error
        _move(read_comparison, places)
        portable[f"{start}comparison.json"] = encoded(read_comparison)
    if isinstance(plan, Path):
        read = Plan.read(plan)
        moved = read.changed(
            recordings=tuple(places.get(place, place) for place in read.recordings)
        )
        portable[f"{start}comparison.toml"] = moved.to_toml().encode()
    # The receipt pins the portable form of a file where it pinned the file.
    hashes = receipt.get("files", {})
    for each, data in portable.items():
        own = path.with_name(each.removeprefix(start))
        if hashes.get(own.name) == hashlib.sha256(own.read_bytes()).hexdigest():
            hashes[own.name] = hashlib.sha256(data).hexdigest()
    return {**portable, start + _RECEIPT: encoded(receipt)}


def _place(path: Path, entry: RecordLike, recording_hash: str) -> str:
    """Return where everybody finds a recording that a receipt rests on."""
    if entry["hash"] == recording_hash:
        return _TOP
    where = str(entry["path"])
    try:
        if is_address(where) and parse_address(where).is_pinned:
            return where
    except FevalError:
        pass  # not an address: refused below
    raise ConflictError(
        f"{path} rests on the recording {entry['hash'][:16]} (found in {where!r:.120}), and the"
        f" repository has {recording_hash[:16]}. Push that recording, or compute the results from"
        " hf://NAMESPACE/NAME@COMMIT."
    )


def _move(holder: Any, places: Mapping[str, str]) -> None:
    """Replace the recordings of a plan in place, if there is one."""
    plan = inside(holder, "plan")
    if isinstance(plan, dict) and isinstance(plan.get("recordings"), list):
        plan["recordings"] = [places.get(str(place), place) for place in plan["recordings"]]


def described(files: Files) -> str:
    """Return the results among some files, in words, as a title."""
    names = sorted({path.split("/")[1] for path in files if path.startswith(f"{FOLDER}/")})
    return f"{counted(len(names), 'result').capitalize()}: {some(names, 3)}"


_BEGIN = "<!-- feval:results-begin (feval push writes this) -->"
_END = "<!-- feval:results-end -->"
_SECTION = re.compile(
    rf"\n+{re.escape(_BEGIN)}\n(.*?)^{re.escape(_END)}(?:\n|\Z)", re.DOTALL | re.MULTILINE
)
_WORDS_END = re.compile(rf"^{re.escape(END)}(?=\r?\n)", re.MULTILINE)
"""The mark behind the owner's words, which pages have that feval wrote."""
_BLOCK = re.compile(r"^<!-- feval:result (\S+) -->$", re.MULTILINE)


def shown_results(page: str) -> dict[str, str]:
    """Return the blocks of a page by the names of their results."""
    found = _SECTION.match(_after_words(page)[1])
    pieces = _BLOCK.split(found[1])[1:] if found else []
    return {name: block.strip() for name, block in zip(pieces[::2], pieces[1::2], strict=True)}


def with_results(page: str, blocks: Mapping[str, str]) -> str:
    """Return a page with these blocks in place of those it had; one that feval did not write has
    them at its end.
    """
    before, after = _after_words(page)
    found = _SECTION.match(after)
    if not blocks and not found:
        return page
    shown = "".join(
        f"<!-- feval:result {name} -->\n\n{block}\n\n" for name, block in sorted(blocks.items())
    )
    section = f"\n\n{_BEGIN}\n\n## Results\n\n{shown}{_END}\n" if blocks else "\n"
    rest = after[found.end() if found else 0 :].lstrip("\n")
    return f"{before}{section}" + (f"\n{rest}" if rest else "")


def _after_words(page: str) -> tuple[str, str]:
    """Return a page up to where its results are, and the rest."""
    page = page.replace("\r\n", "\n")
    words = _WORDS_END.search(page)
    if words:
        return page[: words.end()], page[words.end() :]
    end = f"{page}\n".rfind(f"\n{_END}\n")
    # a mark without its other one is the page's own words
    begin = page[: max(end, 0)].rfind(f"\n{_BEGIN}\n")
    place = len(page) if begin < 0 else begin
    return page[:place].rstrip("\n"), page[place:]


def result_block(name: str, files: Files, repo_id: str, shown: PriceList | None) -> str | None:
    """Return what the page shows of a result; `None` where its receipt is not among the files.

    `shown` is the price list that the page has; one of the same name with other prices is a
    `ConflictError`.
    """
    start = f"{FOLDER}/{name}/"
    content = files.get(f"{start}receipt.json")
    if content is None:
        return None
    receipt = json.loads(content if isinstance(content, bytes) else content.read_bytes())
    kind, prices = str(receipt["kind"]), receipt["prices"]
    try:
        subject = _subject(kind, receipt["numbers"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ReleaseError(
            f"The numbers of the results {name} cannot be shown ({error!r:.80}). Write the results"
            " again."
        ) from error
    if (
        prices is not None
        and shown is not None
        and prices["id"] == shown.id
        and prices["digest"] != shown.digest
        # of the same list, a recording and a receipt may hold the prices of other LLMs
        and not shown.to_json()["prices"].items() >= (prices.get("prices") or {"": ()}).items()
    ):
        raise ConflictError(
            f"The results {name} were priced by another version of the list {shown.id!r} (digest"
            f" {prices['digest'][:12]}, here {shown.digest[:12]}). Give that one with --prices, or"
            " write the results again."
        )
    alt = f"{_DRAWN[kind]}: {subject}"
    pieces = [f"### {plain(name)}", f"`feval {kind}`: {subject}."]
    pieces += [
        f"![{alt}]({path})" for path in files if path.startswith(start) and path.endswith(".png")
    ]
    pieces += map(plain, mixed_counters(receipt.get("counters", {}).values()))
    pieces += [] if prices is None else [f"Priced by {code(str(prices['id']))}."]
    receipt_path = f"{start}receipt.json"
    pieces.append(
        f"Numbers: [receipt]({receipt_path}). `feval verify hf://{repo_id}/{receipt_path}` computes"
        " them again."
    )
    return "\n\n".join(pieces)


def _subject(kind: str, numbers: RecordLike) -> str:
    """Return what was computed, in words that are safe on a page."""
    if kind == "compare":
        what = ", ".join(dict.fromkeys(plain(str(curve["label"])) for curve in numbers["curves"]))
    else:
        llms = (
            numbers.get("llms") or [numbers["llm"]] if kind != "grade" else list(numbers["by_llm"])
        )
        method = f"{plain(str(numbers['method']))} with " if "method" in numbers else ""
        what = method + ", ".join(plain(str(llm)) for llm in llms)
    return (
        f"{what} on {plain(str(numbers['dataset']))},"
        f" {counted(int(numbers['questions']), 'question')}"
    )


_DRAWN = {
    "run": "Accuracy and cost",
    "grade": "Accuracy and cost",
    "curve": "Lines of accuracy against mean cost per question",
    "compare": "Lines of accuracy against mean cost per question, one for each method",
    "surface": "A map of accuracy over traces per question and tokens after which each is cut",
    "estimate": "Estimated accuracy of votes against their number of calls",
}


_LICENCE = "LICENSE"
_PARTS = (*(f"{part}/" for part in PARTS), "votes/")
"""Folders of a repository that belong to a recording alone."""


@frozen
class RepositorySnapshot:
    """A repository as it was before a release; `state` is `None` where there is none or it is
    hidden, `page` is its README.md.
    """

    repo_id: str
    state: RepoState | None = None
    page: str | None = None

    @property
    def files(self) -> RecordLike:
        """Its files, by path."""
        return {} if self.state is None else self.state.files


@frozen
class Release:
    """What is pushed, with the search for secrets and `notes` for the user.

    Attributes:
        seen: the repository as it was before.
        title: for people.
        recording_hash: of the content.
        files: path in the repository -> a file, or bytes.
        owns: beginnings of paths that belong to the release alone; files there that it lacks are
            from an earlier one.
    """

    seen: RepositorySnapshot
    title: str
    recording_hash: str
    files: Files = field(repr=False)
    scan: Scan = field(repr=False)
    tag: str | None = None
    notes: tuple[str, ...] = ()
    owns: tuple[str, ...] = ()


@frozen
class Changes:
    """What a push would do to a repository, by paths; `removed` are files of an earlier release
    that this one lacks.
    """

    new: tuple[str, ...]
    changed: tuple[str, ...]
    unchanged: tuple[str, ...]
    removed: tuple[str, ...]

    @property
    def sent(self) -> tuple[str, ...]:
        """New and changed files."""
        return (*self.new, *self.changed)


def look(repo_id: str) -> RepositorySnapshot:
    """Return a repository's state and page.

    Raises:
        UsageError: no repository can have that name.
        HubError: the Hub does not answer.
    """
    now = state(repo_id)
    return RepositorySnapshot(repo_id, now, None if now is None else read_page(now))


@reports("looking through files")
def prepare(
    folder: str | Path,
    seen: RepositorySnapshot,
    *,
    title: str | None = None,
    licence: str | Licence | None = None,
    languages: Sequence[str] = (),
    words: str | None = None,
    tag: str | None = None,
    allow: Collection[str] = (),
    results: Sequence[Path] = (),
    prices: str | PriceList | None = None,
    progress: Progress | None = None,
) -> Release:
    """Return a release of a recording; nothing is sent, and the recording is not changed.

    Args:
        folder: of the recording.
        seen: the repository it goes to, from `look`.
        title: for people; `None` keeps that of the earlier page, or makes one of datasets and LLMs.
        licence: of the collection, as the Hub spells it; `other` needs a name and a link. `None`
            takes that of `known_licence`.
        languages: codes such as "en"; empty keeps those of the earlier page.
        words: the owner's section; `None` keeps what the page in the repository has, or that in the
            folder.
        tag: of the release, named by the examples on the page.
        allow: exceptions for the search, see `feval.publish.scan.scan`.
        results: folders or files to put beside the recording, see
            `feval.publish.release.result_files`.
        prices: the price list of the page's dollars; `None` for the one that the recording names.
        progress: called with (files searched, files in all).

    Raises:
        DamagedRecordingError: the recording is damaged.
        ConflictError, UsageError: results that do not belong to it, see `result_files`.
        UsageError: no licence is stated anywhere, or `other` without name and link.
        CardError: an earlier page would be lost.
        ReleaseError: see `result_files`. Findings raise only when pushed.
    """
    if licence is not None:
        licence = check_licence(Licence(licence) if isinstance(licence, str) else licence)
    recording = open_sound(folder)
    pages = _pages(recording, seen)
    earlier = _earlier(pages)
    licence = check_licence(licence or earlier.licence or stated_licence(recording))
    beside = result_files(results, recording.hash)
    configs = configs_of(recording)
    shown = page_prices(recording, prices)
    drawn = picture(recording, shown)
    surfaces = {
        f"{SURFACES}-{number}.png": each
        for number, each in enumerate(surface_pictures(recording, shown), 1)
    }
    page = Page(
        recording,
        seen.repo_id,
        title or earlier.title or default_title(recording),
        figures_of(recording),
        configs,
        licence,
        tag,
        _words(pages) if words is None else check_words(words),
        languages,
        earlier.kept,
        None if drawn is None else drawn[0],
        {path: subject for path, (subject, _) in surfaces.items()},
        shown,
    )
    files: Files = {
        README: with_results(card(page), _blocks(beside, seen, shown)).encode(),
        _LICENCE: notice(page.title, licence).encode(),
        MANIFEST: _manifest(recording),
        **({} if drawn is None else {PICTURE: drawn[1]}),
        **{path: png for path, (_, png) in surfaces.items()},
        **{path: recording.path / path for path in recording.manifest.files if not is_beside(path)},
        **beside,
    }
    names = {*recording.manifest.llms, *recording.manifest.datasets}
    findings = scan(files, allow=allow, names=names, progress=progress)
    remarks = [
        f"The Hub's viewer shows at most {MOST_SPLITS} splits; {config.name} has more, and loads"
        " all the same."
        for config in configs
        if len(config.splits) > MOST_SPLITS
    ][:1]
    if (
        prices is not None
        and shown is not None
        and (unlisted := [name for name in recording.manifest.llms if shown.find(name) is None])
    ):
        remarks.append(
            f"The price list {shown.id!r} has no {', '.join(unlisted)}: the page has no dollars"
            " there."
        )
    return Release(
        seen,
        page.title,
        recording.hash,
        files,
        findings,
        tag,
        tuple(remarks),
        (*_PARTS, PICTURE, SURFACES, *_folders(results)),
    )


def known_licence(folder: str | Path, seen: RepositorySnapshot) -> Licence | None:
    """Return the licence that an earlier page states, or the recording for its outputs; `None`
    where nobody did.

    That of the recording lacks the link that `other` needs, and an earlier page may.
    """
    recording = open_recording(folder)
    return _earlier(_pages(recording, seen)).licence or stated_licence(recording)


@reports("looking through files")
def prepare_results(
    results: Sequence[Path],
    seen: RepositorySnapshot,
    *,
    tag: str | None = None,
    allow: Collection[str] = (),
    progress: Progress | None = None,
) -> Release:
    """Return a release of results alone, for a repository that has their recording; arguments are
    those of `prepare`.

    Raises:
        HubError: there is no such repository, or no recording in it.
        ReleaseError, ConflictError, UsageError: see `result_files`.
    """
    if seen.state is None:
        raise HubError(
            f"The Hub shows no dataset repository {seen.repo_id}, or not to you, so there is no"
            f" recording to add results to. Push both at once: feval push RECORDING {seen.repo_id}"
            " --results DIR."
        )
    recording = open_place(f"hf://{seen.repo_id}@{seen.state.commit}")
    files = result_files(results, recording.hash)
    title = described(files)
    blocks = _blocks(files, seen, page_prices(recording, None))
    remarks: tuple[str, ...] = ()
    if blocks and (seen.page is None or not _WORDS_END.search(seen.page)):
        shown = (
            "at the end of its README.md"
            if seen.page
            else "nowhere on it; a push of the recording writes a page"
        )
        remarks = (f"{seen.repo_id} has no page that feval wrote: the results are shown {shown}.",)
    if seen.page is not None and (page := with_results(seen.page, blocks)) != seen.page:
        files = {README: page.encode(), **files}
    names = {*recording.manifest.llms, *recording.manifest.datasets}
    findings = scan(files, allow=allow, names=names, progress=progress)
    return Release(seen, title, recording.hash, files, findings, tag, remarks, _folders(results))


def _blocks(files: Files, seen: RepositorySnapshot, shown: PriceList | None) -> dict[str, str]:
    """Return what the page shows of each result, earlier ones that the repository still has
    included.

    `shown` is the price list that the page has.
    """
    blocks = {
        name: block
        for name, block in shown_results(seen.page or "").items()
        if any(path.startswith(f"{FOLDER}/{name}/") for path in seen.files)
    }
    for name in dict.fromkeys(path.split("/")[1] for path in files):
        if (block := result_block(name, files, seen.repo_id, shown)) is not None:
            blocks[name] = block
    return blocks


def _folders(results: Sequence[Path]) -> tuple[str, ...]:
    """Return the folders of a repository that results replace as a whole; a single file replaces no
    other.
    """
    return tuple(f"{FOLDER}/{place.resolve().name}/" for place in results if place.is_dir())


def changes(release: Release) -> Changes:
    """Compare a release with the repository as it was seen; raise a `ConflictError` if its tag
    names another release.
    """
    state, existing = release.seen.state, release.seen.files
    unchanged = () if state is None else state.unchanged(release.files)
    same = set(unchanged)
    rest = [path for path in release.files if path not in same]
    comparison = Changes(
        tuple(path for path in rest if path not in existing),
        tuple(path for path in rest if path in existing),
        unchanged,
        _removed(release),
    )
    if state is not None and comparison.sent:
        state.require_free(release.tag)
    return comparison


def _removed(release: Release) -> tuple[str, ...]:
    return tuple(
        path
        for path in release.seen.files
        if path.startswith(release.owns) and path not in release.files
    )


@reports("sending")
def push(
    release: Release,
    *,
    message: str | None = None,
    public: bool = False,
    create_pr: bool = False,
    remove: bool = False,
) -> PushResult:
    """Push a release to its repository as one commit, on top of the one that was seen.

    Args:
        release: from `prepare`.
        message: of the commit; `None` makes one.
        public: as for `feval.hub.push_files`.
        create_pr: as for `feval.hub.push_files`.
        remove: delete files of an earlier recording in the repository that this one lacks.

    Raises:
        ReleaseError: the search found something.
        ConflictError: the repository has more than the release, or has changed since it was seen.
        HubError: the Hub refuses it.
    """
    release.scan.require_clean()
    removed = _removed(release)
    if removed and not remove:
        raise ConflictError(
            f"{release.seen.repo_id} has {counted(len(removed), 'file')} that this recording lacks:"
            f" {some(removed)}. Pull and merge them, or delete them with --remove."
        )
    return push_files(
        release.seen.repo_id,
        release.files,
        message=message or f"{release.title} (recording hash {release.recording_hash[:12]})",
        parent=None if release.seen.state is None else release.seen.state.commit,
        delete=removed,
        tag=release.tag,
        public=public,
        create_pr=create_pr,
    )


def _pages(recording: Recording, seen: RepositorySnapshot) -> dict[str, str]:
    """Return earlier pages, by where they are, that somebody may have edited: the repository's
    first.
    """
    pages = {} if seen.page is None else {f"README.md of {seen.repo_id}": seen.page}
    page_file = recording.path / README
    # a listed one was written with the recording
    if README not in recording.manifest.files and page_file.is_file():
        try:
            pages[str(page_file)] = page_file.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CardError(
                f"{page_file} cannot be read as UTF-8 text ({error}), and would be lost."
                " Correct it."
            ) from error
    return pages


def _earlier(pages: Mapping[str, str]) -> EarlierMatter:
    """Return the front matter of the first of the earlier pages that has any."""
    return next(
        (matter for where, text in pages.items() if (matter := earlier_matter(text, where))),
        EarlierMatter(),
    )


def _words(pages: Mapping[str, str]) -> str:
    """Return the owner's section of the earlier pages; raise where a page has none and would be
    lost, or two pages differ.
    """
    sections = {where: own_words(page, where) for where, page in pages.items()}
    for where, words in sections.items():
        lines = pages[where].replace("\r\n", "\n").split("\n")
        end = front_matter_end(lines)
        if words is None and "".join(lines[end + 1 if end else 0 :]).strip():
            raise CardError(
                f"{where} was not written by feval, and a push would replace it. Put what you want"
                " to keep into a file, and push with --words FILE (in Python:"
                " words=TEXT)."
            )
    written = {words: where for where, words in sections.items() if words}
    if len(written) > 1:
        raise CardError(
            f"Your own section differs between {' and '.join(written.values())}. Say what to keep,"
            " with --words FILE (in Python: words=TEXT)."
        )
    return next(iter(written), "")


def _manifest(recording: Recording) -> bytes:
    raw = dict(recording.manifest.raw)
    raw["files"] = {path: record for path, record in raw["files"].items() if not is_beside(path)}
    return manifest_bytes(raw)
