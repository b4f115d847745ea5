"""Results that travel with a recording: receipts, tables and pictures, under `results/<name>/` of
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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from feval.cards import PriceList
from feval.cards.reading import parse_json
from feval.comparison import Plan
from feval.errors import ConflictError, FevalError, ReleaseError
from feval.evaluation.cautions import mixed_counters
from feval.hub import is_address, parse_address
from feval.hub.commits import Files
from feval.publish.markdown import END, code, plain
from feval.receipts.document import read_receipt
from feval.report.files import encoded
from feval.report.text import counted
from feval.values import RecordLike

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
    plan = holder.get("plan") if isinstance(holder, dict) else None
    if isinstance(plan, dict) and isinstance(plan.get("recordings"), list):
        plan["recordings"] = [places.get(str(place), place) for place in plan["recordings"]]


def described(files: Files) -> str:
    """Return the results among some files, in words, as a title."""
    names = sorted({path.split("/")[1] for path in files if path.startswith(f"{FOLDER}/")})
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return f"{counted(len(names), 'result').capitalize()}: {shown}"


_BEGIN = "<!-- feval:results-begin (feval push writes this) -->"
_END = "<!-- feval:results-end -->"
_SECTION = re.compile(
    rf"\n+{re.escape(_BEGIN)}\n(.*?)^{re.escape(_END)}(?:\n|\Z)", re.DOTALL | re.MULTILINE
)
_WORDS_END = re.compile(rf"^{re.escape(END)}(?=\r?\n)", re.MULTILINE)
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


def has_words(page: str) -> bool:
    """Return whether a page has the mark behind the owner's words, as those have that feval
    wrote.
    """
    return bool(_WORDS_END.search(page))


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
