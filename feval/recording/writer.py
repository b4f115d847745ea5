"""Write a recording, into a hidden folder that gets its name at the end. The manifest is the last
file written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from feval import __version__
from feval.answers import NORMAL_FORM
from feval.answers.equivalence import ComparisonBudget
from feval.errors import ConflictError, DamagedRecordingError, FevalError, UsageError
from feval.recording.content import (
    MOST_SERVED,
    DatasetInfo,
    LLMInfo,
    PoolRows,
    Question,
    QuestionTable,
    ScorerInfo,
    counts_of_sizes,
    rows_of_keys,
)
from feval.recording.layout.files import NewFolder, link_file, storage_errors, write_file
from feval.recording.layout.flat import UInt32
from feval.recording.layout.format import (
    FORMAT,
    FORMAT_VERSION,
    MANIFEST,
    PROBE_VOTES,
    README,
    Part,
    Record,
    check_name,
    leaf_hash,
    recording_hash,
)
from feval.recording.layout.manifest import Manifest, features, manifest_bytes
from feval.recording.layout.readme import readme_text
from feval.recording.parquet.writing import PairFiles, PartFiles, with_correct
from feval.recording.parts import POOL_PARTS, RowsTally, Verdicts, dataset_leaf, llm_leaf, spec_of
from feval.recording.reader import Recording
from feval.recording.verify import check_votes
from feval.recording.votes_building import Scratch, VotesBuilder, merge_equal_answers

if TYPE_CHECKING:
    from feval.cards import PriceList

_WITHOUT_VERDICT = {
    "undecided": "could not be compared in time",
    "not_asked": "were beyond the budget of comparisons",
}


class RecordingWriter:
    """Writes one recording; use it as a context manager.

    Leaving the block normally seals the recording; leaving it by an exception leaves nothing at
    all. Every method raises `StorageError` where the disk is full or read-only.

    Args:
        out: folder to create. It must not exist, or be empty.
        operation: what made the recording, such as {"name": "import", "format": "esc"} (JSON
            values).
        prices: the price list that `load` uses by default, or its id; "none" for none. Of a list
            that is no card of feval's own, the manifest holds the numbers.
        parents: for derived recordings, {"hash", "operation"} of each recording it was made from.
        notes: sentences about what was unusual.
        licences: {"questions": ..., "outputs": ...}, `None` where not known; an attribute that may
            change until all is written.

    Raises:
        StorageError: `out` exists, or cannot be written.
    """

    def __init__(
        self,
        out: str | Path,
        *,
        operation: Mapping[str, Any],
        prices: str | PriceList = "2025-06-02",
        parents: Sequence[Record] = (),
        notes: Sequence[str] = (),
        licences: Mapping[str, str | None] | None = None,
    ) -> None:
        self.out = Path(out)
        self._notes = list(notes)
        self.licences = {"questions": None, "outputs": None, **(licences or {})}
        self.prices = prices
        self._record = {
            "operation": dict(operation),
            "parents": [dict(parent) for parent in parents],
            "licences": self.licences,
            "notes": self._notes,
        }
        self._datasets: dict[str, Record] = {}
        self._tables: dict[str, QuestionTable] = {}
        self._sources: dict[str, tuple[Recording | None, Verdicts, int | None]] = {}
        self._budget = ComparisonBudget()
        self._llms: dict[str, LLMInfo] = {}
        self._scorers: dict[str, ScorerInfo] = {}
        self._pairs: dict[tuple[str, str], Record] = {}
        self._pools: dict[tuple[str, str], tuple[Sequence[str], UInt32]] = {}
        self._records: dict[str, list[Record]] = {"scores": [], "probes": []}
        self._leaves: dict[Part, str] = {}
        self._files: dict[str, Record] = {}
        self._claimed: dict[str, str] = {}
        self._linked: dict[str, None] = {}
        self._folder: NewFolder | None = None

    def __enter__(self) -> Self:
        self._folder = NewFolder(self.out)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                with storage_errors(self.out):
                    self._seal()
        finally:
            if self._folder is not None:
                self._folder.remove()

    @property
    def root(self) -> Path:
        """The hidden folder that is written into, also for temporary files."""
        if self._folder is None:
            raise FevalError("A RecordingWriter is used inside a `with` block.")
        return self._folder.path

    def note(self, sentence: str) -> None:
        """Add a sentence about what was unusual."""
        if sentence not in self._notes:
            self._notes.append(sentence)

    def add_dataset(
        self,
        info: DatasetInfo,
        questions: Iterable[Question],
        *,
        parent: Recording | None = None,
        verdicts: Verdicts | None = None,
        not_asked: int | None = None,
    ) -> None:
        """Add a dataset with its questions, in their order.

        Args:
            info: what identifies it.
            questions: with their golds; a generator is read once, and its questions are not kept.
            parent: a recording with the same questions; its files are linked where they would be
                written alike.
            verdicts: on pairs of answers that were compared before, under the same equality.
            not_asked: where no answer is new, how many pairs those verdicts leave out; `None`
                compares the answers when the recording is sealed.

        Raises:
            ConflictError: the dataset was added already, or a question id comes twice.
            UsageError: a name that cannot be stored.
        """
        self._new_dataset(info)
        part, table, spec = Part("questions", info.id), QuestionTable(info.id), spec_of("questions")
        with storage_errors(self.out), self._part_files(part) as files:
            for question in questions:
                check_name("question", question.id)
                columns = spec.columns_of(question)
                files.leaf.add(spec.line(question.id, columns))
                table.add(question)
                files.add(question.id, columns)
            self._files |= (written := files.close())
            if (repeated := table.repeated_id()) is not None:
                raise ConflictError(f"Dataset {info.id} has the question id {repeated!r} twice.")
            self._link_if_same(parent, written)
        self._datasets[info.id] |= {"questions": len(table), "with_gold": table.with_gold}
        self._tables[info.id] = table
        self._sources[info.id] = parent, verdicts or {}, not_asked
        self._leaves[part] = files.leaf.hexdigest()

    def add_pools(
        self,
        dataset: str,
        llm: LLMInfo,
        counter: str,
        pools: Iterable[PoolRows] | None,
        progress: Callable[[int], None] | None = None,
        *,
        parents: Sequence[Recording] = (),
        rewritten: Collection[str] = (),
    ) -> None:
        """Add the CoTs of one LLM on one dataset.

        Args:
            dataset: id of a dataset added before.
            llm: the LLM.
            counter: name of the token counter behind every token number.
            pools: one per question, in the order of the questions; a question left out has an empty
                pool. `None` where all are linked.
            progress: called with the number of questions done.
            parents: recordings with the same CoTs, those of each on questions behind the ones of
                the recording before. All that they have of the LLM is linked.
            rewritten: the parts that may differ from those of the parents, and are not linked. Of
                the pools these are written; scores and probes are to be added.

        Raises:
            ConflictError: this pair was added before, or the same LLM under another decoding, or
                the pools are out of order.
            UsageError: a name, finish reason, token count or column that cannot be stored.
        """
        name = llm.name
        self._new_pair(dataset, llm, counter)
        table = self._tables[dataset]
        with storage_errors(self.out):
            if pools is not None:
                only = set(rewritten) if parents else {spec.name for spec in POOL_PARTS}
                pair = PairFiles(self._claim, self.root, name, table, only=only)
                try:
                    for done, pool in enumerate(pools, 1):
                        pair.add(pool)
                        if progress is not None:
                            progress(done)
                    files, leaves = pair.close()
                finally:
                    pair.abandon()
                self._files |= files
                self._leaves |= leaves
                for parent in parents:
                    self._link_if_same(parent, files)
                counts, sizes = pair.tally.record(), pair.tally.sizes
            else:
                records = [parent.manifest.pairs[dataset, name] for parent in parents]
                counts, sizes = _joined(records), np.zeros(len(table), np.uint32)
                for parent in parents:
                    votes = parent.votes(dataset)
                    sizes[rows_of_keys(table.keys, votes.question_keys)] += votes.llms[name].sizes
            self._pools[dataset, name] = table.ids, sizes
            self._pairs[dataset, name] = counts | {
                "dataset": dataset,
                "llm": name,
                "counter": counter,
            }
            for part in dict.fromkeys(
                part
                for parent in parents
                for part in parent.manifest.leaves
                if part[1:] == (dataset, name) and part.name not in {"llm", *rewritten}
            ):
                self.link_part(part, parents)

    def add_rows(
        self,
        dataset: str,
        llm: str,
        given_by: ScorerInfo | str | None,
        rows: Iterable[Any],
        parent: Recording | None = None,
    ) -> None:
        """Add scores, or probes, of an LLM's CoTs on a dataset, both added before.

        Args:
            dataset: id of the dataset.
            llm: name of the LLM.
            given_by: the scorer of scores; of probes the text that was put behind each prefix to
                make the LLM answer, `None` where it is not known.
            rows: `ScoreRows` or `ProbeRows`, in the order of the questions.
            parent: files are linked to its own where they are equal.

        Raises:
            ConflictError: they were added before, the scorer has other parameters, or rows are for
                CoTs that are missing, twice or out of order.
            UsageError: a value that cannot be stored, or CoTs that were not added.
        """
        tally = self._tally(dataset, llm, given_by)
        with storage_errors(self.out), self._part_files(tally.part) as files:
            for block in rows:
                files.add(block.question_id, tally.add(block))
            self._files |= (written := files.close())
            self._link_if_same(parent, written)
        self._end_rows(tally.part, tally.leaf.hexdigest(), tally.record())

    def link_part(self, part: Part, parents: Sequence[Recording]) -> None:
        """Link the files of a part as those of one; the leaf of several is made from their rows."""
        holders = [parent for parent in parents if part in parent.manifest.leaves]
        files = [(each, path) for each in holders for path in each.files(*part)]
        for number, (parent, path) in enumerate(files):
            self._link(parent, path, part.path if len(files) == 1 else part.numbered_path(number))
        first, is_one = holders[0].manifest, len(holders) == 1
        if spec_of(part.name).joins == "keyed":
            tally = self._tally(part.dataset, str(part.llm), common_giver(part, holders))
            for parent in () if is_one else holders:
                for rows in parent.part_rows(part):
                    tally.add(rows)
            made = (
                (first.leaves[part], first.keyed[part])
                if is_one
                else (tally.leaf.hexdigest(), tally.record())
            )
            self._end_rows(part, *made)
        elif is_one:
            self._leaves[part] = first.leaves[part]
        else:
            lines = (parent.lines(part) for parent in holders)
            self._leaves[part] = leaf_hash(chain.from_iterable(lines))

    def keep_dataset(self, parent: Recording, dataset: str, without: Collection[Part] = ()) -> None:
        """Take a dataset and everything on it from another recording, linked, but for some parts.

        Raises:
            ConflictError: the dataset was added already, or an LLM under another decoding, or a
                scorer under other parameters.
            DamagedRecordingError: a file is not what its manifest says.
        """
        self._new_dataset(parent.dataset_info(dataset))
        votes, record = parent.votes(dataset), parent.manifest.datasets[dataset]
        names = ("questions", "with_gold", "equality")
        self._datasets[dataset] |= {name: record[name] for name in names}
        with storage_errors(self.out):
            for path in parent.votes_paths(dataset):
                self._link(parent, path)
            for llm in parent.llm_names(dataset):
                self._new_pair(dataset, parent.llm_info(llm), parent.counter(dataset, llm))
                self._pairs[dataset, llm] = parent.manifest.pairs[dataset, llm]
                self._pools[dataset, llm] = votes.question_ids, votes.llms[llm].sizes
                if parent.has_steps(dataset, llm):
                    check_votes(parent, dataset, [llm])  # forged trees are not linked
                if parent.has_probes(dataset, llm):
                    self._link(parent, Part(PROBE_VOTES, dataset, llm).path)
            for part in parent.manifest.leaves:
                if (
                    part.dataset == dataset
                    and part.name not in {"dataset", "llm"}
                    and part not in without
                ):
                    self.link_part(part, [parent])

    def _new_dataset(self, info: DatasetInfo) -> None:
        check_name("dataset", info.id)
        if info.id in self._datasets:
            raise ConflictError(f"Dataset {info.id} was added twice.")
        self._datasets[info.id] = asdict(info)
        self._leaves[Part("dataset", info.id)] = dataset_leaf(info)

    def _new_pair(self, dataset: str, llm: LLMInfo, counter: str) -> None:
        check_name("LLM", llm.name)
        if not llm.base.strip():
            raise UsageError(
                f"The LLM {llm.name!r} has a variant but no name; put the name before the '@'."
            )
        if self._llms.setdefault(llm.name, llm) != llm:
            raise ConflictError(
                f"LLM {llm.name} was added with two decodings; give each variant its own name."
            )
        if (dataset, llm.name) in self._pairs:
            raise ConflictError(f"{llm.name} on {dataset} was added twice.")
        if dataset not in self._datasets:
            raise UsageError(
                f"{llm.name} has CoTs for dataset {dataset!r}, which was not added; add it first."
            )
        self._leaves[Part("llm", dataset, llm.name)] = llm_leaf(llm, counter)

    def _tally(self, dataset: str, llm: str, given_by: ScorerInfo | str | None) -> RowsTally:
        """Return what checks the scores by a scorer, or the probes with a cue."""
        pools = self._pools.get((dataset, llm), ((), np.empty(0)))
        tally = RowsTally(dataset, llm, given_by, *pools)
        if (dataset, llm) not in self._pools:
            raise UsageError(
                f"There are {tally.part.name} of {llm!r} on {dataset!r}, whose CoTs were not added;"
                " add them first."
            )
        if tally.part in self._leaves:
            raise ConflictError(f"The {tally.part.name} of {llm} on {dataset} were added twice.")
        if isinstance(given_by, ScorerInfo):
            check_name("scorer", given_by.name)
            if self._scorers.setdefault(given_by.name, given_by) != given_by:
                raise ConflictError(
                    f"Scorer {given_by.name} was added with two kinds or parameters; give each"
                    " scorer its own name."
                )
        return tally

    def _end_rows(self, part: Part, leaf: str, record: Record) -> None:
        self._leaves[part] = leaf
        self._records[spec_of(part.name).name].append(record)

    def _claim(self, path: str) -> str:
        """Register a path; refuse two that differ only in case, which some disks cannot tell
        apart.
        """
        if self._claimed.setdefault(path.casefold(), path) != path or path in self._files:
            raise ConflictError(
                f"{path} and {self._claimed[path.casefold()]} cannot be in one recording: some"
                " disks cannot tell such names apart. Rename the dataset or LLM, or make two"
                " recordings."
            )
        return path

    def _part_files(self, part: Part) -> PartFiles:
        return PartFiles(self._claim, self.root, part)

    def _link(self, parent: Recording, path: str, target: str | None = None) -> None:
        """Link a file of a parent under a new path, or under its own."""
        record, target = parent.file_record(path), self._claim(target or path)
        link_file(parent.path / path, self.root / target, record)
        self._linked[str(parent.path)] = None
        self._files[target] = record

    def _link_if_same(self, parent: Recording | None, paths: Iterable[str]) -> None:
        """Replace written files by links to those of a parent, if there is one, where their bytes
        are equal.
        """
        for path in paths:
            record = None if parent is None else parent.manifest.files.get(path)
            if parent and record and record["sha256"] == self._files[path]["sha256"]:
                (self.root / path).unlink()
                link_file(parent.path / path, self.root / path, record)

    def _seal(self) -> None:
        if not self._datasets:
            raise UsageError(f"{self.out}: a recording without a dataset is not written.")
        written = Recording(self.root, Manifest(self._manifest()))
        for dataset, table in self._tables.items():
            try:
                with Scratch(self.root) as scratch:
                    self._write_votes(dataset, VotesBuilder(written, table, scratch))
            except DamagedRecordingError as error:  # in a file that was linked
                owners = " or ".join(self._linked) or str(self.out)
                raise DamagedRecordingError(str(error).replace(str(self.root), owners)) from error
        manifest = self._manifest()
        self._files[README] = write_file(self.root / README, [readme_text(manifest).encode()], 0)
        manifest["files"] = dict(sorted(self._files.items()))
        write_file(self.root / MANIFEST, [manifest_bytes(manifest)], 0)
        if self._folder is not None:
            self._folder.publish()

    def _write_votes(self, dataset: str, votes: VotesBuilder) -> None:
        """Write the votes of a dataset, and what was waiting for them: verdicts, the column
        `correct`, the sizes of pools.
        """
        record, (source, known, not_asked) = self._datasets[dataset], self._sources[dataset]
        if (name := record["equality"]) == NORMAL_FORM:
            votes.build()
            record["equality"] = None
        else:
            part = Part("equality", dataset)
            with self._part_files(part) as files:
                leaf, counts = merge_equal_answers(
                    votes, files.add, name, known, self._budget, not_asked
                )
                self._files |= files.close()
            self._leaves[part] = leaf
            record["equality"] = {"name": name, **counts}
            self._notes += [
                f"{dataset}: {counts[outcome]} pairs of answers {what} ({name}); they count as"
                " different."
                for outcome, what in _WITHOUT_VERDICT.items()
                if counts[outcome]
            ]
        for llm, pools in votes.llms.items():
            if pools.is_stale:
                samples = Part("samples", dataset, llm).paths(self._files)
                correct = votes.correct(llm)
                for path in samples:
                    self._files[path] = with_correct(self.root / path, correct) or self._files[path]
                self._link_if_same(source, samples)
            self._pairs[dataset, llm] |= counts_of_sizes(pools.sizes)
        flat, probes = votes.files()
        new = [(Part(name, dataset), blocks, record["questions"]) for name, blocks in flat.items()]
        new += [
            (Part(PROBE_VOTES, dataset, llm), blocks, votes.probes[llm].count)
            for llm, blocks in probes.items()
        ]
        for part, blocks, rows in new:
            path = self._claim(part.path)
            self._files[path] = write_file(self.root / path, blocks, rows)
            self._link_if_same(source, [path])

    def _manifest(self) -> Record:
        return {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "features": features((part.name for part in self._leaves), self._files),
            "created": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
            "feval_version": __version__,
            "recording_hash": recording_hash(self._leaves),
            "prices": getattr(self.prices, "id", self.prices),
            **(
                {}
                if isinstance(self.prices, str) or self.prices.is_shipped
                else {"price_list": self.prices.to_json()}
            ),
            **self._record,
            "datasets": list(self._datasets.values()),
            "llms": [asdict(llm) | {"base": llm.base} for llm in self._llms.values()],
            "pairs": list(self._pairs.values()),
            "scorers": [asdict(scorer) for scorer in self._scorers.values()],
            **self._records,
            "leaves": [
                {"dataset": part.dataset, "llm": part.llm, "part": part.name, "sha256": leaf}
                for part, leaf in self._leaves.items()
            ],
            "files": self._files,
        }


def _joined(pairs: Sequence[Record]) -> Record:
    """Return the counts of an LLM's CoTs in several recordings together."""
    joined: Record = dict(pairs[0])
    for pair in pairs[1:]:
        for name, value in pair.items():
            own = joined.get(name, 0)
            if name == "served":
                served = Counter(own or {}) + Counter(value)
                joined[name] = dict(served.most_common(MOST_SERVED))
            elif name in {"largest_pool", "depth", "branching"}:
                joined[name] = max(own, value)
            elif isinstance(value, int):
                joined[name] = own + value
    return joined


def common_giver(part: Part, parents: Sequence[Recording]) -> ScorerInfo | str | None:
    """Return the scorer of some scores, or the cue of probes; different ones in some recordings are
    a `ConflictError`.
    """
    first, *others = [(parent, parent.given_by(part)) for parent in parents]
    for parent, other in others:
        if other != first[1]:
            raise ConflictError(
                f"The {part.name} of {part.llm} on {part.dataset} were made with"
                f" {first[1]!r:.160} in {first[0].path} and with {other!r:.160} in {parent.path},"
                " so they do not compare. Keep the recordings apart, or give the LLM or the scorer"
                " of one a name of its own."
            )
    return first[1]
