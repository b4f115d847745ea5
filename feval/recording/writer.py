"""Write a recording: everything goes to a hidden folder beside the target, which is renamed in one step at the end.

An interruption at any moment leaves either no recording or a whole one. The manifest is the last file written.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from feval.errors import ConflictError, FevalError, StorageError, UsageError
from feval.recording.content import DatasetInfo, LLMInfo, PoolRows, Question
from feval.recording.files import HashedFile, PairFiles, ParquetFile
from feval.recording.format import (
    FORMAT,
    FORMAT_VERSION,
    MANIFEST,
    README,
    LeafHash,
    check_name,
    file_path,
    recording_hash,
)
from feval.recording.readme import readme_text
from feval.recording.votes import VotesBuilder

__all__ = ["RecordingWriter", "dataset_leaf", "llm_leaf", "question_line"]


def dataset_leaf(info: DatasetInfo) -> str:
    """Leaf of what identifies a dataset: id, answer kind, extractor, system prompt."""
    leaf = LeafHash()
    leaf.add([info.id, info.answer_kind, info.extractor, info.system_prompt])
    return leaf.hexdigest()


def llm_leaf(llm: LLMInfo, counter: str) -> str:
    """Leaf of what identifies an LLM on a dataset: name, decoding, token counter."""
    leaf = LeafHash()
    leaf.add([llm.name, llm.temperature, llm.max_tokens, dict(llm.decoding), counter])
    return leaf.hexdigest()


def _storable_leaf(llm: LLMInfo, counter: str) -> str:
    try:
        return llm_leaf(llm, counter)
    except TypeError as error:
        raise UsageError(
            f"The decoding of {llm.name} cannot be stored as JSON ({error}): use text, numbers of 64 bits, lists and mappings."
        ) from error


def question_line(question: Question) -> list[Any]:
    """A question's line in the leaf `questions`."""
    return [question.id, question.text, question.answer, question.answer_key, [list(c) for c in question.choices]]


@contextmanager
def _storage_errors(out: Path) -> Any:
    """Turn what the disk says while writing into one sentence."""
    try:
        yield
    except OSError as error:
        full = error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
        what = (
            "the disk is full"
            if full
            else "the folder is read-only"
            if error.errno in {errno.EROFS, errno.EACCES, errno.EPERM}
            else str(error)
        )
        raise StorageError(f"The recording {out} could not be written: {what}. Nothing was left behind.") from error


class RecordingWriter:
    """Writes one recording; use it as a context manager.

    Leaving the block normally seals the recording; leaving it by an exception leaves nothing at all.

    Args:
        out: folder to create. It must not exist, or be empty.
        operation: what made the recording, such as {"name": "import", "format": "esc"} (JSON values).
        prices: id of the price list that `load` uses unless told otherwise, or "none".
        parents: for derived recordings, {"hash", "operation"} of each recording it was made from.
        notes: sentences about what was unusual.
        licences: {"questions": ..., "outputs": ...}, `None` where not known.

    Raises:
        StorageError: `out` is there already, or cannot be written.
    """

    def __init__(
        self,
        out: str | Path,
        *,
        operation: Mapping[str, Any],
        prices: str = "2025-06-02",
        parents: Sequence[Mapping[str, Any]] = (),
        notes: Sequence[str] = (),
        licences: Mapping[str, str | None] | None = None,
    ) -> None:
        self.out = Path(out)
        self._operation = dict(operation)
        self._prices = prices
        self._parents = [dict(parent) for parent in parents]
        self._notes = list(notes)
        self._licences = {"questions": None, "outputs": None, **(licences or {})}
        self._datasets: dict[str, tuple[DatasetInfo, list[Question]]] = {}
        self._llms: dict[str, LLMInfo] = {}
        self._pairs: list[dict[str, Any]] = []
        self._votes: dict[str, VotesBuilder] = {}
        self._leaves: list[tuple[str, str | None, str, str]] = []
        self._files: dict[str, dict[str, Any]] = {}
        self._taken: dict[str, str] = {}
        self._folder: Path | None = None

    def __enter__(self) -> Self:
        if self.out.exists() and not (self.out.is_dir() and not any(self.out.iterdir())):
            raise StorageError(f"{self.out} is there already; a recording is never overwritten. Name another folder.")
        parent = self.out.absolute().parent
        with _storage_errors(self.out):
            parent.mkdir(parents=True, exist_ok=True)
            self._folder = parent / f".{self.out.name}.partial-{secrets.token_hex(4)}"
            self._folder.mkdir()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                with _storage_errors(self.out):
                    self._seal()
        finally:
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)

    def note(self, sentence: str) -> None:
        """Add a sentence about what was unusual."""
        if sentence not in self._notes:
            self._notes.append(sentence)

    def add_dataset(self, info: DatasetInfo, questions: Sequence[Question]) -> None:
        """Add a dataset with its questions, in their order.

        Raises:
            ConflictError: the dataset was added already, or a question id comes twice.
            UsageError: a name that cannot be stored.
            StorageError: the disk said no.
        """
        check_name("dataset", info.id)
        if info.id in self._datasets:
            raise ConflictError(f"Dataset {info.id} was added twice.")
        seen: set[str] = set()
        leaf = LeafHash()
        for question in questions:
            check_name("question", question.id)
            if question.id in seen:
                raise ConflictError(f"Dataset {info.id} has the question id {question.id!r} twice.")
            seen.add(question.id)
            leaf.add(question_line(question))
        self._datasets[info.id] = (info, list(questions))
        self._votes[info.id] = VotesBuilder(info.id, questions)
        self._leaves += [(info.id, None, "dataset", dataset_leaf(info)), (info.id, None, "questions", leaf.hexdigest())]
        with _storage_errors(self.out):
            self._write_questions(info.id, questions)

    def add_pools(
        self,
        dataset: str,
        llm: LLMInfo,
        counter: str,
        pools: Iterable[PoolRows],
        progress: Callable[[int], None] | None = None,
    ) -> None:
        """Add the CoTs of one LLM on one dataset.

        Args:
            dataset: id of a dataset added before.
            llm: the LLM.
            counter: name of the token counter behind every token number.
            pools: one per question, in the order of the questions; a question left out has an empty pool.
            progress: called with the number of questions done.

        Raises:
            ConflictError: this pair was added before, or the same LLM under another decoding, or the pools are out of order.
            UsageError: a name, finish reason, token count or column that cannot be stored.
            StorageError: the disk said no.
        """
        check_name("LLM", llm.name)
        leaf = _storable_leaf(llm, counter)
        if self._llms.setdefault(llm.name, llm) != llm:
            raise ConflictError(f"LLM {llm.name} was added with two decodings; give each variant its own name.")
        if any(pair["dataset"] == dataset and pair["llm"] == llm.name for pair in self._pairs):
            raise ConflictError(f"{llm.name} on {dataset} was added twice.")
        pair = PairFiles(self._claim, self._root, dataset, llm.name)
        self._votes[dataset].add_llm(llm.name)
        try:
            with _storage_errors(self.out):
                for done, pool in enumerate(self._in_order(dataset, llm.name, pools), 1):
                    self._votes[dataset].add(llm.name, pool, pair.add(pool))
                    if progress is not None:
                        progress(done)
                files, leaves, summary = pair.close()
        finally:
            pair.abandon()
        questions = self._datasets[dataset][1]
        if summary.pop("pools") < len(questions):
            summary["smallest_pool"] = 0
        self._files |= files
        self._leaves.append((dataset, llm.name, "llm", leaf))
        self._leaves += [(dataset, llm.name, part, digest) for part, digest in leaves.items()]
        self._pairs.append({"dataset": dataset, "llm": llm.name, "counter": counter, **summary})

    @property
    def _root(self) -> Path:
        if self._folder is None:
            raise FevalError("A RecordingWriter is used inside a `with` block.")
        return self._folder

    def _claim(self, path: str) -> str:
        """Refuse two files whose names differ only in case: some disks could not tell them apart."""
        if self._taken.setdefault(path.casefold(), path) != path or path in self._files:
            raise ConflictError(
                f"{path} and {self._taken[path.casefold()]} cannot lie in one recording; rename one of them."
            )
        return path

    def _in_order(self, dataset: str, llm: str, pools: Iterable[PoolRows]) -> Iterable[PoolRows]:
        if dataset not in self._datasets:
            raise UsageError(f"{llm} has CoTs for dataset {dataset!r}, which was not added; add it first.")
        rows = {question.id: row for row, question in enumerate(self._datasets[dataset][1])}
        last = -1
        for pool in pools:
            row = rows.get(pool.question_id)
            if row is None:
                raise ConflictError(f"{llm} has CoTs for {pool.question_id!r}, which is no question of {dataset}.")
            if row <= last:
                raise ConflictError(f"{llm}: the CoTs of {pool.question_id!r} come twice or out of order.")
            last = row
            yield pool

    def _write_questions(self, dataset: str, questions: Sequence[Question]) -> None:
        import pyarrow as pa

        choice = pa.struct([("label", pa.string()), ("text", pa.string())])
        schema = pa.schema(
            [
                ("id", pa.string()),
                ("question", pa.string()),
                ("answer", pa.string()),
                ("answer_key", pa.string()),
                ("choices", pa.list_(choice)),
            ]
        )
        path = self._claim(file_path("questions", dataset))
        table = ParquetFile(self._root / path, schema, dictionary=False)
        try:
            for start in range(0, len(questions), 4096):
                block = questions[start : start + 4096]
                table.extend(
                    id=[q.id for q in block],
                    question=[q.text for q in block],
                    answer=[q.answer for q in block],
                    answer_key=[q.answer_key for q in block],
                    choices=[[{"label": label, "text": text} for label, text in q.choices] for q in block],
                )
                table.flush()
            self._files[path] = table.close()
        finally:
            table.abandon()

    def _write_bytes(self, path: str, data: bytes, rows: int) -> None:
        file = HashedFile(self._root / path)
        try:
            file.write(data)
            file.close()
        finally:
            file.abandon()
        self._files[path] = {"sha256": file.hexdigest(), "bytes": file.size, "rows": rows}

    def _seal(self) -> None:
        if not self._datasets:
            raise UsageError(f"{self.out}: a recording without a dataset is not written.")
        for dataset, votes in self._votes.items():
            path = self._claim(file_path("votes", dataset))
            self._write_bytes(path, votes.to_bytes(), len(self._datasets[dataset][1]))
        manifest = self._manifest()
        self._write_bytes(README, readme_text(manifest).encode(), 0)
        manifest["files"] = dict(sorted(self._files.items()))
        self._check(manifest)
        file = HashedFile(self._root / MANIFEST)
        file.write(json.dumps(manifest, ensure_ascii=False, indent=1).encode())
        file.close()
        for folder in [self._root, *(p for p in self._root.rglob("*") if p.is_dir())]:
            _fsync_folder(folder)
        self._root.rename(self.out)
        _fsync_folder(self.out.absolute().parent)
        self._folder = None

    @staticmethod
    def _check(manifest: dict[str, Any]) -> None:
        from feval.schema import Manifest

        Manifest.model_validate_json(json.dumps(manifest))

    def _manifest(self) -> dict[str, Any]:
        from feval import __version__

        return {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "created": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
            "feval_version": __version__,
            "recording_hash": recording_hash(self._leaves),
            "prices": self._prices,
            "operation": self._operation,
            "parents": self._parents,
            "licences": self._licences,
            "notes": self._notes,
            "datasets": [self._dataset_record(info, questions) for info, questions in self._datasets.values()],
            "llms": [
                {
                    "name": llm.name,
                    "base": llm.base,
                    "temperature": llm.temperature,
                    "max_tokens": llm.max_tokens,
                    "decoding": dict(llm.decoding),
                }
                for llm in self._llms.values()
            ],
            "pairs": self._pairs,
            "leaves": [
                {"dataset": dataset, "llm": llm, "part": part, "sha256": digest}
                for dataset, llm, part, digest in self._leaves
            ],
            "files": {},
        }

    @staticmethod
    def _dataset_record(info: DatasetInfo, questions: Sequence[Question]) -> dict[str, Any]:
        return {
            "id": info.id,
            "title": info.title,
            "answer_kind": info.answer_kind,
            "extractor": info.extractor,
            "questions": len(questions),
            "with_gold": sum(question.answer_key is not None for question in questions),
            "system_prompt": info.system_prompt,
            "licence": info.licence,
        }


def _fsync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
