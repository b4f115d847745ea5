"""Search a release for what must not be published: secrets, paths of somebody's machine, e-mail
addresses.

Text in Parquet files is searched value by value, every other file as bytes: first by one regular
expression, which RE2 runs over everything, then, where that matches, by each rule. Keys are also
found backwards, in capitals, hex or base64, or split by characters that are not seen. A finding is
reported by file, row and column; its excerpt keeps the public beginning of a key and masks the
rest.

Chains of thought are about word problems, code and the like. So `km/h` and `/tmp/a.py` in the words
of an LLM are not findings, nor are addresses under the names that RFC 2606 reserves for examples
(example.com and others). For the rest there are named exceptions: see `scan`.
"""

from __future__ import annotations

import base64
import hashlib
import io
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from feval.cards.reading import open_regular
from feval.errors import DamagedRecordingError, ReleaseError, UsageError
from feval.executors import Progress
from feval.publish.secrets import KEYS, Rule, forms, in_base64, key_rules, known_secrets
from feval.report.text import counted, visible
from feval.values import frozen

ALLOWANCES = ("emails", "paths")
"""Kinds of findings that may be allowed as a whole; secrets are allowed one by one, by their
marks.
"""

_WORDS = {
    "text", "reasoning", "marks", "verdict", "answer", "answer_raw", "answer_key", "question",
    "prompt", "choices",
}  # fmt: skip
"""Columns with the words of LLMs, questions and prompts."""
_DISTINCT = {
    "question_id", "answer", "answer_raw", "finish_reason", "served_model", "system_fingerprint",
    "recorded_at",
}  # fmt: skip
"""Columns that repeat their values: each distinct value is searched once."""
_BATCH_ROWS = 8192
_BLOCK_BYTES, _OVERLAP_BYTES = 16 << 20, 64 << 10
"""What is searched at once of a file; no finding is longer than the overlap of two blocks."""
_MOST_KEPT = 1000
_MOST_SHOWN = 10
_MARK = re.compile(r"[0-9a-f]{12}")


@frozen
class Finding:
    """Something that must not be published.

    The `kind` is "secret", "path" or "email", `what` says it in words, `excerpt` is masked, and
    `mark` is twelve hex digits that are the same wherever the same text is found.
    """

    kind: str
    what: str
    file: str
    place: str
    excerpt: str
    mark: str

    def __str__(self) -> str:
        return f"{self.file}, {self.place}: {self.what}, {self.excerpt} (mark {self.mark})"


@frozen
class Scan:
    """The outcome of a search: findings refused and allowed, and how many there are beyond the
    first thousand (`more`).
    """

    refused: tuple[Finding, ...]
    allowed: tuple[Finding, ...]
    bytes_searched: int
    more: int = 0

    def require_clean(self) -> None:
        """Raise a `ReleaseError` that lists the first findings, if any was refused."""
        if not self.refused:
            return
        shown = [visible(str(finding)) for finding in self.refused[:_MOST_SHOWN]]
        rest = len(self.refused) + self.more - len(shown)
        more = f" And {rest:,} more." if rest else ""
        advice = (
            "A secret that was published must be revoked. Record or import again without it; for"
            " words that only look like one, --allow MARK (in Python: allow=[MARK]) excepts a"
            " finding, --allow emails (in Python: allow=['emails']) and --allow paths (in Python:"
            " allow=['paths']) a whole class"
        )
        count = counted(len(self.refused) + self.more, "finding")
        raise ReleaseError(f"The release is refused, {count}: {'; '.join(shown)}.{more} {advice}.")


def _path(what: str, pattern: bytes, keep: int, *, strict: bool = False) -> Rule:
    return Rule("path", what, re.compile(pattern), keep=keep, strict=strict)


_START = rb"(?:(?<![A-Za-z0-9_.~:/)\]-])|(?<=file://))"
_NAME = rb"[A-Za-z0-9_][A-Za-z0-9_.-]*"
_MACHINE_ROOTS = (
    "root", "tmp", "var", "mnt", "scratch", "data", "gpfs", "lustre", "nfs", "opt", "private",
    "srv", "work", "workspace",
    "Volumes", "media", "projects", "storage", "content", "kaggle", "usr",
)  # fmt: skip
_PATHS = (
    _path("a path of somebody's machine", _START + rb"/(?:home|Users)/" + _NAME, 6),
    _path(
        "a path of somebody's machine",
        rb"[A-Za-z]:\\{1,2}(?:Users|Documents and Settings)\\{1,2}[A-Za-z0-9_. -]+",
        3,
    ),
    _path(
        "a path of a machine",
        _START + b"/(?:%s)/" % "|".join(_MACHINE_ROOTS).encode() + _NAME,
        4,
        strict=True,
    ),
)
_EMAIL = Rule(
    "email",
    "an e-mail address",
    re.compile(
        rb"[A-Za-z0-9_%+](?:[A-Za-z0-9._%+-]{0,62}[A-Za-z0-9_%+])?"
        rb"@(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,62})\.)+[A-Za-z]{2,24}(?![A-Za-z0-9])"
    ),
)
_RESERVED = re.compile(
    rb"(?:@|\.)(?:example\.(?:com|net|org)|[a-z0-9-]+\.(?:example|test|invalid|localhost))\Z|\Agit@",
    re.IGNORECASE,
)
"""Addresses under the names of RFC 2606, and the user in git's own addresses
(git@github.com:...).
"""

_RULES = (*key_rules(), *_PATHS, _EMAIL)


def _any(texts: Iterable[str]) -> str:
    return "|".join(
        "".join(f"\\x{byte:02x}" for byte in text.encode()) for text in dict.fromkeys(texts)
    )


# Characters that are not seen, of which the first is U+200B and the last a soft hyphen, as they are
# and as JSON writes them.
_UNSEEN = r"(?:\xe2\x80[\x8b-\x8f]|\xe2\x81\xa0|\xef\xbb\xbf|\xc2\xad|\\u(?:200[b-fB-F]|2060|[fF][eE][fF][fF]|00[aA][dD]))+"  # noqa: E501  a pattern is read as one line
_GAPS, _HEX, _BASE64 = map(
    re.compile, (_UNSEEN.encode(), rb"[0-9A-Fa-f]{32,}", rb"[A-Za-z0-9+/_-]{22,}")
)
_Hidden = Iterator[tuple[bytes, Callable[[re.Match[bytes]], int]]]
"""Texts that another one hides, each with a function from a finding in it to the beginning in the
other.
"""


def _backwards(value: bytes) -> _Hidden:
    yield value[::-1], lambda hit: len(value) - hit.end()


def _without_gaps(value: bytes) -> _Hidden:
    gaps = [gap.span() for gap in _GAPS.finditer(value)]

    def place(hit: re.Match[bytes]) -> int:
        at = hit.start()
        for start, end in gaps:
            if start > at:
                break
            at += end - start
        return at

    yield _GAPS.sub(b"", value), place


def _place(first: int, digits_per_byte: float, hit: re.Match[bytes]) -> int:
    return first + int(hit.start() * digits_per_byte)


def _in_hex(value: bytes) -> _Hidden:
    for run in _HEX.finditer(value):
        for first in (run.start(), run.start() + 1):
            digits = value[first : run.end() - (run.end() - first) % 2]
            yield bytes.fromhex(digits.decode()), partial(_place, first, 2)


def _in_base64(value: bytes) -> _Hidden:
    for run in _BASE64.finditer(value):
        for first in range(run.start(), run.start() + 4):
            digits = value[first : run.end() - ((run.end() - first) % 4 == 1)]
            text = base64.urlsafe_b64decode(digits + b"=" * (-len(digits) % 4))
            yield text, partial(_place, first, 4 / 3)


_DISGUISES: Mapping[str, tuple[str, Callable[[bytes], _Hidden]]] = {
    "backwards": (
        f"[A-Za-z0-9_-](?:{_any(prefix[::-1] for prefix in KEYS)})(?:$|[^A-Za-z0-9_-])",
        _backwards,
    ),
    "in hex": (f"(?i:{_any(prefix.encode().hex() for prefix in KEYS)})[0-9A-Fa-f]{{16}}", _in_hex),
    "in base64": (
        f"(?:{_any(code for prefix in KEYS for code in in_base64(prefix))})[A-Za-z0-9+/_-]{{16}}",
        _in_base64,
    ),
    "split by characters that are not seen": (
        f"[A-Za-z0-9_-]{_UNSEEN}[A-Za-z0-9_-]",
        _without_gaps,
    ),
}
"""How a key may be written that no rule would find -> what matches wherever that may be, and what
it hides.
"""


def _sieve(secrets: Collection[str], *, strict: bool) -> str:
    """Return one expression that matches wherever a rule may: RE2 runs it over gigabytes, Python
    the rules over what is left.
    """
    beginnings = [prefix for prefix in KEYS if prefix != "sk-"]
    pieces = [
        "(?:^|[^A-Za-z0-9_-])(?:sk|SK)-[A-Za-z0-9_-]{8}",
        f"(?:{_any([*beginnings, *map(str.upper, beginnings)])})[A-Za-z0-9_-]{{8}}",
        r"(?i:bearer)[ \t]+[A-Za-z0-9._~+/-]{8}",
        "-----BEGIN ",
        r"://[^\s/:@]+:[^\s/@]+@",
        "(?i:api[_-]?key|access[_-]?token|secret[_-]?key)[^A-Za-z0-9]",
        "/(?:home|Users)/[A-Za-z0-9_]",
        r":\\{1,2}(?:Users|Documents)",
        r"@[A-Za-z0-9][A-Za-z0-9.-]*\.[A-Za-z]",
        *(
            [f"(?i:{_any(form for secret in secrets for form in forms(secret))})"]
            if secrets
            else []
        ),
        *(sieve for sieve, _ in _DISGUISES.values()),
    ]
    if strict:
        pieces.append(f"/(?:{'|'.join(_MACHINE_ROOTS)})/")
    return "|".join(pieces)


def scan(
    files: Mapping[str, Path | bytes],
    *,
    allow: Collection[str] = (),
    names: Collection[str] = (),
    progress: Progress | None = None,
) -> Scan:
    """Search every file of a release.

    Values of environment variables that are named like secrets (`OPENAI_API_KEY`, `HF_TOKEN`, ...)
    are searched for as well.

    Args:
        files: path in the release -> a file, or bytes. Files that end in `.parquet` are searched
            value by value.
        allow: exceptions: "emails", "paths", or marks of findings.
        names: of LLMs and datasets, which may look like addresses ("gpt-4o@v1.beta").
        progress: called with (files done, files in all).

    Raises:
        UsageError: an exception that is neither a class nor a mark.
        DamagedRecordingError: a Parquet file cannot be read.
    """
    for allowance in allow:
        if allowance not in ALLOWANCES and not _MARK.fullmatch(allowance):
            raise UsageError(
                f"{allowance!r:.60} cannot be allowed; {', '.join(ALLOWANCES)} can, or a finding by"
                " its mark of twelve digits."
            )
    search = _Search(
        frozenset(name.encode(errors="surrogatepass") for name in names), frozenset(allow)
    )
    for done, (path, content) in enumerate(files.items(), 1):
        if path.endswith(".parquet"):
            search.parquet(path, content)
        else:
            search.plain(path, content)
        if progress is not None:
            progress(done, len(files))
    return Scan(tuple(search.refused), tuple(search.allowed), search.bytes_searched, search.more)


@dataclass
class _Search:
    names: frozenset[bytes]
    allow: frozenset[str]
    refused: list[Finding] = field(default_factory=list)
    allowed: list[Finding] = field(default_factory=list)
    bytes_searched: int = 0
    more: int = 0

    def __post_init__(self) -> None:
        secrets = known_secrets()
        self._rules = [*_RULES]
        for name, value in secrets.items():
            what = f"the value of the environment variable {name}"
            spelled = b"|".join(re.escape(form.encode()) for form in dict.fromkeys(forms(value)))
            self._rules.append(Rule("secret", what, re.compile(b"(?i:%b)" % spelled)))
        self._sieves = {strict: _sieve(secrets.values(), strict=strict) for strict in (True, False)}

    def plain(self, path: str, content: Path | bytes) -> None:
        """Search a file that is not Parquet, block by block; places are lines, or bytes where it is
        not text.
        """
        with open_regular(content) if isinstance(content, Path) else io.BytesIO(content) as file:
            if path.endswith(".png"):
                file = io.BytesIO(_png_text(file.read()))
            binary, first, lines = b"\0" in file.read(4096), 0, 1
            while True:
                start = max(0, first - _OVERLAP_BYTES)  # so that no finding is cut
                file.seek(start)
                block = file.read(first - start + _BLOCK_BYTES + _OVERLAP_BYTES)
                own = range(first - start, first - start + _BLOCK_BYTES)
                lines_before = lines - block.count(10, 0, own.start)

                def place(
                    _: int,
                    at: int,
                    block: bytes = block,
                    start: int = start,
                    before: int = lines_before,
                ) -> str:
                    return (
                        f"byte {start + at:,}"
                        if binary
                        else f"line {before + block.count(10, 0, at):,}"
                    )

                # its examples and its owner's section are words
                words = binary or path == "README.md"
                self._search(
                    path, pa.array([block], pa.large_binary()), place, words=words, own=own
                )
                if len(block) <= own.stop:
                    return
                lines += block.count(10, own.start, own.stop)
                first += _BLOCK_BYTES

    def parquet(self, path: str, content: Path | bytes) -> None:
        """Search the text columns of a Parquet file, and its metadata."""
        try:
            with (
                pa.BufferReader(content) if isinstance(content, bytes) else open_regular(content)
            ) as source:
                repeating = sorted(_DISTINCT.intersection(pq.read_schema(source).names))
                file = pq.ParquetFile(source, read_dictionary=repeating)
                metadata = {**(file.metadata.metadata or {}), **(file.schema_arrow.metadata or {})}
                metadata.pop(b"ARROW:schema", None)  # pyarrow has read it
                self._search(
                    path,
                    pa.array([*metadata.values()], pa.large_binary()),
                    lambda *_: "its metadata",
                    words=False,
                )
                first = 0
                size = sum(
                    file.metadata.row_group(i).total_byte_size for i in range(file.num_row_groups)
                )
                rows = _BLOCK_BYTES * file.metadata.num_rows // max(size, 1)
                for batch in file.iter_batches(min(max(rows, 1), _BATCH_ROWS), use_threads=False):
                    for name, column in zip(batch.schema.names, batch.columns, strict=True):
                        self._column(path, name, column, first)
                    first += batch.num_rows
        except (pa.ArrowException, OSError) as error:
            raise DamagedRecordingError(
                f"{path} cannot be read ({error}); run `feval verify`."
            ) from error

    def _column(self, path: str, name: str, column: Any, first: int) -> None:
        for array, row_of in _text_arrays(column):

            def place(at: int, _: int, row_of: Callable[[int], int] = row_of) -> str:
                return f"row {first + row_of(at):,}, column {name}"

            self._search(path, array, place, words=name in _WORDS)

    def _search(
        self,
        path: str,
        values: Any,
        place: Callable[[int, int], str],
        *,
        words: bool,
        own: range | None = None,
    ) -> None:
        """Search an array of texts; `place` names a value from its number and the start of the
        finding in it.

        Findings that do not start in `own` are left to the block that has them.
        """
        self.bytes_searched += values.nbytes
        values = values.cast(pa.large_binary())  # RE2 then reads bytes, as the rules do
        suspects = pc.indices_nonzero(pc.match_substring_regex(values, self._sieves[not words]))
        if not len(suspects):
            return
        values = values.take(suspects)
        hidden = [
            pc.match_substring_regex(values, sieve).to_pylist() for sieve, _ in _DISGUISES.values()
        ]
        for at, value, *hiding in zip(
            suspects.to_pylist(), values.to_pylist(), *hidden, strict=True
        ):
            for rule, start, text in (
                *self._hits(value, words=words),
                *self._hidden(value, hiding),
            ):
                if own is None or start in own:
                    self._note(rule, path, place(at, start), text)

    def _hits(self, value: bytes, *, words: bool) -> Iterator[tuple[Rule, int, bytes]]:
        """Yield what the rules find in one value; where two overlap, the first rule's."""
        spans: list[tuple[int, int]] = []
        for rule in self._rules:
            earlier = tuple(spans)
            for hit in rule.hits(value) if not (rule.strict and words) else ():
                apart = all(hit.end() <= start or hit.start() >= end for start, end in earlier)
                if apart and self._counts(rule, hit.group()):
                    spans.append(hit.span())
                    yield rule, hit.start(), hit.group()

    def _hidden(self, value: bytes, hiding: Sequence[bool]) -> Iterator[tuple[Rule, int, bytes]]:
        """Yield the secrets that one value disguises in those ways."""
        for (what, (_, texts)), may_hide in zip(_DISGUISES.items(), hiding, strict=True):
            for text, place in texts(value) if may_hide else ():
                for rule in self._rules:
                    for hit in rule.hits(text) if rule.kind == "secret" else ():
                        if self._counts(rule, hit.group()):
                            yield (
                                rule._replace(what=f"{rule.what}, {what}"),
                                place(hit),
                                hit.group(),
                            )

    def _counts(self, rule: Rule, text: bytes) -> bool:
        return (
            rule.counts(text)
            and text not in self.names
            and not (rule is _EMAIL and _RESERVED.search(text))
        )

    def _note(self, rule: Rule, path: str, place: str, text: bytes) -> None:
        if len(self.refused) + len(self.allowed) >= _MOST_KEPT:
            self.more += 1
            return
        mark = hashlib.sha256(rule.kind.encode() + b"\n" + text).hexdigest()[:12]
        finding = Finding(rule.kind, rule.what, path, place, _masked(rule, text), mark)
        excepted = mark in self.allow or (rule.kind != "secret" and f"{rule.kind}s" in self.allow)
        (self.allowed if excepted else self.refused).append(finding)


def _text_arrays(array: Any) -> Iterator[tuple[Any, Callable[[int], int]]]:
    """Yield the arrays of text in a column, each with a function from its values to the rows of the
    column.
    """
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        yield array, int
    elif pa.types.is_dictionary(kind):
        indices = array.indices
        for values, value_of in _text_arrays(array.dictionary):
            yield (
                values,
                lambda at: int(pc.index(indices, pa.scalar(value_of(at), indices.type)).as_py()),  # noqa: B023  called before the next turn
            )
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        parents = pc.list_parent_indices(array)
        for values, row_of in _text_arrays(array.flatten()):
            yield values, lambda at: int(parents[row_of(at)].as_py())  # noqa: B023  called before the next turn
    elif pa.types.is_struct(kind):
        for part in array.flatten():
            yield from _text_arrays(part)


def _masked(rule: Rule, text: bytes) -> str:
    """Return what may be shown: a key's public prefix or an address's ending, and the length."""
    if rule.kind == "email":
        return f"***@***.{text.rpartition(b'.')[2].decode()}"
    return f"{text[: rule.keep].decode(errors='replace')}*** ({len(text)} characters)"


def _png_text(data: bytes) -> bytes:
    """Return the chunks of a PNG without its pixels, whose compressed bytes could look like
    anything.
    """
    chunks, at = b"", 8
    while at + 12 <= len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        if data[at + 4 : at + 8] != b"IDAT":
            chunks += data[at + 4 : at + 8 + size]
        at += size + 12
    return chunks
