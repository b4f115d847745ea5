"""Write a recording, into a hidden folder that gets its name at the end. The manifest is the last
file written.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from feval import __version__
from feval.answers.parties import NORMAL_FORM, PairBudget
from feval.errors import ConflictError, FevalError, UsageError
from feval.recording.content import (
    DatasetInfo,
    LLMInfo,
    PoolRows,
    ProbeRows,
    Question,
    ScorerInfo,
    ScoreRows,
)
from feval.recording.derived.linking import (
    LinkedPools,
    common_cue,
    linked_files,
    linked_scores,
    require_trees,
)
from feval.recording.layout.destination import NewFolder, storage_errors
from feval.recording.layout.format import (
    FORMAT,
    FORMAT_VERSION,
    MANIFEST,
    PROBE_VOTES,
    PROBES,
    README,
    SCORES,
    LeafHash,
    check_name,
    file_path,
    file_paths,
    recording_hash,
)
from feval.recording.layout.hashed import write_file
from feval.recording.layout.manifest import (
    dataset_record,
    features,
    llm_record,
    manifest_bytes,
    scorer_record,
)
from feval.recording.layout.readme import readme_text
from feval.recording.leaves import (
    ProbeTally,
    ScoreTally,
    Verdicts,
    dataset_leaf,
    described,
    llm_leaf,
)
from feval.recording.parquet.pairs import PairFiles
from feval.recording.parquet.part_files import PartFiles
from feval.recording.parquet.writing import PROBES_SCHEMA, SCORES_SCHEMA, write_questions
from feval.recording.reader import Recording
from feval.recording.sealing.new_files import NewFiles
from feval.recording.sealing.question_table import QuestionTable
from feval.recording.sealing.settling import settle, without_verdict, write_correct
from feval.recording.sealing.votes_builder import VotesBuilder


class RecordingWriter:
    """Writes one recording; use it as a context manager.

    Leaving the block normally seals the recording; leaving it by an exception leaves nothing at
    all. Every method raises `StorageError` where the disk is full or read-only.

    Args:
        out: folder to create. It must not exist, or be empty.
        operation: what made the recording, such as {"name": "import", "format": "esc"} (JSON
            values).
        prices: id of the price list that `load` uses by default, or "none".
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
        self.licences = {"questions": None, "outputs": None, **(licences or {})}
        self._datasets: dict[str, DatasetInfo] = {}
        self._questions: dict[str, dict[str, int]] = {}
        self._verdicts: dict[str, Verdicts] = {}
        self._settled: dict[str, int] = {}
        self._equality: dict[str, dict[str, Any]] = {}
        self._budget = PairBudget()
        self._llms: dict[str, LLMInfo] = {}
        self._pairs: list[dict[str, Any]] = []
        self._votes: dict[str, VotesBuilder] = {}
        self._leaves: list[tuple[str, str | None, str, str]] = []
        self._files = NewFiles()
        self._sources: dict[str, Recording] = {}
        self._linked: set[tuple[str, str]] = set()
        self._pools: dict[tuple[str, str], tuple[Sequence[str], npt.NDArray[np.uint32]]] = {}
        self._scorers: dict[str, ScorerInfo] = {}
        self._scores: list[dict[str, Any]] = []
        self._probes: dict[tuple[str, str], dict[str, Any]] = {}
        self._folder: NewFolder | None = None

    def __enter__(self) -> Self:
        self._folder = NewFolder(self.out)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                with storage_errors(self.out):
                    self._seal()
        finally:
            for votes in self._votes.values():
                votes.close()
            if self._folder is not None:
                self._folder.remove()

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
        check_name("dataset", info.id)
        if info.id in self._datasets:
            raise ConflictError(f"Dataset {info.id} was added twice.")
        leaf, table = LeafHash(), QuestionTable(info.id)
        with storage_errors(self.out):
            path = self._files.claim(file_path("questions", info.id))
            self._files[path] = write_questions(self.root / path, described(questions, leaf, table))
            if (repeated := table.repeated_id()) is not None:
                raise ConflictError(f"Dataset {info.id} has the question id {repeated!r} twice.")
        self._datasets[info.id] = info
        self._questions[info.id] = {"questions": len(table), "with_gold": table.with_gold}
        self._verdicts[info.id] = verdicts or {}
        if not_asked is not None:
            self._settled[info.id] = not_asked
        self._votes[info.id] = VotesBuilder(table, self.root)
        self._leaves += [
            (info.id, None, "dataset", dataset_leaf(info)),
            (info.id, None, "questions", leaf.hexdigest()),
        ]
        if parent is not None:
            self._sources[info.id] = parent
            with storage_errors(self.out):
                self._keep(parent, info.id, None, {"questions": leaf.hexdigest()})

    def add_pools(
        self,
        dataset: str,
        llm: LLMInfo,
        counter: str,
        pools: Iterable[PoolRows],
        progress: Callable[[int], None] | None = None,
        *,
        parent: Recording | None = None,
        rewritten: Collection[str] = ("samples",),
    ) -> None:
        """Add the CoTs of one LLM on one dataset.

        Args:
            dataset: id of a dataset added before.
            llm: the LLM.
            counter: name of the token counter behind every token number.
            pools: one per question, in the order of the questions; a question left out has an empty
                pool.
            progress: called with the number of questions done.
            parent: a recording with the same CoTs; its files are linked where they would be written
                alike.
            rewritten: the parts that may differ from those of `parent`; the others are linked.
                Probes named here are to be added.

        Raises:
            ConflictError: this pair was added before, or the same LLM under another decoding, or
                the pools are out of order.
            UsageError: a name, finish reason, token count or column that cannot be stored.
        """
        votes, only = self._begin_pair(dataset, llm, counter), None if parent is None else rewritten
        pair = PairFiles(self._files.claim, self.root, llm.name, votes.questions, only=only)
        try:
            with storage_errors(self.out):
                for done, pool in enumerate(pools, 1):
                    pair.add(pool)
                    votes.add(llm.name, pool)
                    if progress is not None:
                        progress(done)
                files, leaves, summary = pair.close()
        finally:
            pair.abandon()
        self._files |= files
        self._end_pair(dataset, llm, counter, leaves, summary)
        if parent is not None:
            with storage_errors(self.out):
                self._keep(parent, dataset, llm.name, dict.fromkeys(rewritten, "") | leaves)
            if parent.has_probes(dataset, llm.name) and PROBES not in rewritten:
                self.link_probes(dataset, llm.name, [parent])

    def link_pools(self, linked: LinkedPools) -> None:
        """Add the CoTs of one LLM on one dataset by links to the files that hold them; errors are
        those of `add_pools`.
        """
        dataset, llm = linked.dataset, linked.llm
        votes = self._begin_pair(dataset, llm, linked.counter)
        with storage_errors(self.out):
            for pool in linked.pools():
                votes.add(llm.name, pool)
        for part in linked.parts:
            self._link_part(part, dataset, llm.name, linked.parents)
        self._linked.add((dataset, llm.name))
        self._end_pair(
            dataset, llm, linked.counter, linked.leaves(), linked.record(votes.sizes(llm.name))
        )

    def link_scores(
        self, dataset: str, llm: str, scorer: str, parents: Sequence[Recording]
    ) -> None:
        """Add one scorer's scores of an LLM on a dataset by links, as `link_pools` does; errors are
        those of `add_scores`.
        """
        for parent in parents:
            self._add_scorer(parent.scorer_info(scorer))
        leaf, record = linked_scores(dataset, llm, scorer, parents, *self._pools[dataset, llm])
        self._link_part(SCORES + scorer, dataset, llm, parents)
        self._leaves.append((dataset, llm, SCORES + scorer, leaf))
        self._scores.append(record)

    def _link_part(self, part: str, dataset: str, llm: str, parents: Sequence[Recording]) -> None:
        with storage_errors(self.out):
            for parent, path, target in linked_files(part, dataset, llm, parents):
                self._files.link(self.root, parent, path, target)

    def _begin_pair(self, dataset: str, llm: LLMInfo, counter: str) -> VotesBuilder:
        check_name("LLM", llm.name)
        if not llm.base.strip():
            raise UsageError(
                f"The LLM {llm.name!r} has a variant but no name; put the name before the '@'."
            )
        llm_leaf(llm, counter)  # before anything is written
        self._add_llm(llm)
        if any(pair["dataset"] == dataset and pair["llm"] == llm.name for pair in self._pairs):
            raise ConflictError(f"{llm.name} on {dataset} was added twice.")
        if dataset not in self._datasets:
            raise UsageError(
                f"{llm.name} has CoTs for dataset {dataset!r}, which was not added; add it first."
            )
        self._votes[dataset].add_llm(llm.name)
        return self._votes[dataset]

    def _end_pair(
        self,
        dataset: str,
        llm: LLMInfo,
        counter: str,
        leaves: Mapping[str, str],
        summary: Mapping[str, int],
    ) -> None:
        votes = self._votes[dataset]
        self._pools[dataset, llm.name] = votes.questions.ids, votes.sizes(llm.name)
        self._leaves.append((dataset, llm.name, "llm", llm_leaf(llm, counter)))
        self._leaves += [(dataset, llm.name, part, digest) for part, digest in leaves.items()]
        self._pairs.append({"dataset": dataset, "llm": llm.name, "counter": counter, **summary})

    def keep_dataset(
        self, parent: Recording, dataset: str, without: Collection[tuple[str, str]] = ()
    ) -> None:
        """Take a dataset and everything on it from another recording, linked, but for the scores of
        some (LLM, scorer).

        Raises:
            ConflictError: the dataset was added already, or an LLM under another decoding, or a
                scorer under other parameters.
            DamagedRecordingError: a file is not what its manifest says.
        """
        info = parent.dataset_info(dataset)
        if dataset in self._datasets:
            raise ConflictError(f"Dataset {dataset} was added twice.")
        votes = parent.votes(dataset)
        self._datasets[dataset] = info
        self._questions[dataset] = {
            "questions": len(votes),
            "with_gold": int((votes.gold >= 0).sum()),
        }
        if equality := parent.manifest.datasets[dataset]["equality"]:
            self._equality[dataset] = equality
        self._leaves.append((dataset, None, "dataset", dataset_leaf(info)))
        with storage_errors(self.out):
            self._keep(parent, dataset, None, {})
            for path in parent.votes_paths(dataset):
                self._files.link(self.root, parent, path)
            for llm in require_trees(parent, dataset):
                pair = parent.manifest.pairs[dataset, llm]
                self._add_llm(parent.llm_info(llm))
                self._leaves.append(
                    (dataset, llm, "llm", llm_leaf(parent.llm_info(llm), pair["counter"]))
                )
                self._keep(parent, dataset, llm, {}, without)
                self._pairs.append(pair)
                self._pools[dataset, llm] = votes.question_ids, votes.llms[llm].sizes

    def add_scores(
        self, dataset: str, llm: str, scorer: ScorerInfo, rows: Iterable[ScoreRows]
    ) -> None:
        """Add one scorer's scores of an LLM on a dataset, both added before; `rows` come in the
        order of the questions.

        Raises:
            ConflictError: the scores were added before, the scorer has other parameters, or rows
                are for CoTs that are missing, twice or out of order.
            UsageError: a value that cannot be stored, or CoTs that were not added.
        """
        if (dataset, llm) not in self._pools:
            raise UsageError(
                f"{scorer.name} has scores of {llm!r} on {dataset!r}, which was not added; add it"
                " first."
            )
        self._add_scorer(scorer)
        part = SCORES + scorer.name
        tally = ScoreTally(
            scorer, f"{scorer.name} of {llm} on {dataset}", *self._pools[dataset, llm]
        )
        with (
            storage_errors(self.out),
            PartFiles(self._files.claim, self.root, (part, dataset, llm), SCORES_SCHEMA) as files,
        ):
            for block in rows:
                files.add(block.question_id, tally.add(block))
            self._files |= files.close()
        self._leaves.append((dataset, llm, part, tally.leaf()))
        self._scores.append(tally.record(dataset, llm))

    def add_probes(
        self,
        dataset: str,
        llm: str,
        pools: Iterable[ProbeRows],
        *,
        cue: str | None = None,
        parent: Recording | None = None,
    ) -> None:
        """Add the probes of an LLM's CoTs on a dataset, both added before; `pools` come in the
        order of the questions.

        `cue` is the text that was put behind each prefix to make the LLM answer; `None` where it is
        not known. Files are linked to those of `parent` where they are equal.

        Raises:
            ConflictError: the probes were added before, or are of CoTs that are missing, or come
                twice or out of order.
            UsageError: a value that cannot be stored, or CoTs that were not added.
        """
        (votes, tally), key = self._begin_probes(dataset, llm, cue), (PROBES, dataset, llm)
        with (
            storage_errors(self.out),
            PartFiles(self._files.claim, self.root, key, PROBES_SCHEMA) as files,
        ):
            for rows in pools:
                stored = tally.add(rows)
                files.add(stored.question_id, stored.columns())
                votes.add_probes(llm, stored)
            self._files |= (written := files.close())
            self._files.link_if_same(self.root, parent, *written)
        self._end_probes(tally)

    def link_probes(self, dataset: str, llm: str, parents: Sequence[Recording]) -> None:
        """Add the probes of an LLM on a dataset by links, as `link_pools` does; errors are those of
        `add_probes`.
        """
        votes, tally = self._begin_probes(dataset, llm, common_cue(dataset, llm, parents))
        with storage_errors(self.out):
            for parent in parents:
                for rows in parent.probe_rows(dataset, llm):
                    votes.add_probes(llm, tally.add(rows))
        self._link_part(PROBES, dataset, llm, parents)
        self._end_probes(tally)

    def _begin_probes(
        self, dataset: str, llm: str, cue: str | None
    ) -> tuple[VotesBuilder, ProbeTally]:
        if (dataset, llm) not in self._pools or dataset not in self._votes:
            raise UsageError(
                f"There are probes of {llm!r} on {dataset!r}, whose CoTs were not added; add them"
                " first."
            )
        if (dataset, llm) in self._probes:
            raise ConflictError(f"The probes of {llm} on {dataset} were added twice.")
        self._votes[dataset].add_llm_probes(llm)
        return self._votes[dataset], ProbeTally(dataset, llm, cue, *self._pools[dataset, llm])

    def _end_probes(self, tally: ProbeTally) -> None:
        record = tally.record()
        self._leaves.append((record["dataset"], record["llm"], PROBES, tally.leaf()))
        self._probes[record["dataset"], record["llm"]] = record

    def _add_llm(self, llm: LLMInfo) -> None:
        if self._llms.setdefault(llm.name, llm) != llm:
            raise ConflictError(
                f"LLM {llm.name} was added with two decodings; give each variant its own name."
            )

    def _add_scorer(self, scorer: ScorerInfo) -> None:
        check_name("scorer", scorer.name)
        if self._scorers.setdefault(scorer.name, scorer) != scorer:
            raise ConflictError(
                f"Scorer {scorer.name} was added with two kinds or parameters; give each scorer its"
                " own name."
            )

    @property
    def root(self) -> Path:
        """The hidden folder that is written into, also for temporary files."""
        if self._folder is None:
            raise FevalError("A RecordingWriter is used inside a `with` block.")
        return self._folder.path

    def _keep(
        self,
        parent: Recording,
        dataset: str,
        llm: str | None,
        written: Mapping[str, str],
        without: Collection[tuple[str, str]] = (),
    ) -> None:
        """Link what was not written (`written`: part -> leaf) from the parent, and replace what was
        written alike by links.
        """
        # settled when it is sealed; `link_probes`
        later = {"equality", PROBES} if dataset in self._votes else {}
        for (*pair, part), digest in parent.manifest.leaves.items():
            if pair != [dataset, llm] or part in {"dataset", "llm", *later}:
                continue
            if part.startswith(SCORES) and (llm, part.removeprefix(SCORES)) in without:
                continue
            if part not in written:
                self._leaves.append((dataset, llm, part, digest))
            for path in parent.files(part, dataset, llm):
                if part not in written:
                    self._files.link(self.root, parent, path)
                elif written[part] == digest:
                    self._files.link_if_same(self.root, parent, path)
        if llm is not None and parent.has_probes(dataset, llm) and dataset not in self._votes:
            self._files.link(self.root, parent, file_path(PROBE_VOTES, dataset, llm))
            self._probes[dataset, llm] = parent.probes_record(dataset, llm)
        for record in [] if llm is None else parent.score_records(dataset, llm):
            if (llm, record["scorer"]) not in without:
                self._add_scorer(parent.scorer_info(record["scorer"]))
                self._scores.append(record)

    def _seal(self) -> None:
        if not self._datasets:
            raise UsageError(f"{self.out}: a recording without a dataset is not written.")
        for dataset, votes in self._votes.items():
            if self._datasets[dataset].equality != NORMAL_FORM:
                self._settle_equality(dataset, votes)
            for llm in votes.llm_names():
                is_linked = (dataset, llm) in self._linked
                if is_linked or self._datasets[dataset].equality != NORMAL_FORM:
                    samples = {
                        path: self._files[path]
                        for path in file_paths(self._files, "samples", dataset, llm)
                    }
                    self._files |= write_correct(
                        votes, llm, self.root, samples, keep_same=is_linked
                    )
                    self._files.link_if_same(self.root, self._sources.get(dataset), *samples)
            rows = self._questions[dataset]["questions"]
            flat = [
                (file_path(part, dataset), blocks, rows) for part, blocks in votes.files().items()
            ]
            for llm, blocks in votes.probe_files():
                flat.append(
                    (
                        file_path(PROBE_VOTES, dataset, llm),
                        blocks,
                        self._probes[dataset, llm]["probes"],
                    )
                )
            for path, blocks, rows in flat:
                self._files[self._files.claim(path)] = write_file(self.root / path, blocks, rows)
                self._files.link_if_same(self.root, self._sources.get(dataset), path)
        manifest = self._manifest()
        self._files[README] = write_file(self.root / README, [readme_text(manifest).encode()], 0)
        manifest["files"] = dict(sorted(self._files.items()))
        write_file(self.root / MANIFEST, [manifest_bytes(manifest)], 0)
        if self._folder is not None:
            self._folder.publish()

    def _settle_equality(self, dataset: str, votes: VotesBuilder) -> None:
        """Compare the answers of a dataset, so that equal ones vote together."""
        name, path = (
            self._datasets[dataset].equality,
            self._files.claim(file_path("equality", dataset)),
        )
        known, not_asked = self._verdicts[dataset], self._settled.get(dataset)
        self._files[path], leaf, counts = settle(
            votes, self.root / path, name, known, self._budget, not_asked
        )
        self._leaves.append((dataset, None, "equality", leaf))
        self._equality[dataset] = {"name": name, **counts}
        self._notes += without_verdict(dataset, name, counts)

    def _manifest(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "features": features((part for _, _, part, _ in self._leaves), self._files),
            "created": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
            "feval_version": __version__,
            "recording_hash": recording_hash(self._leaves),
            "prices": self._prices,
            "operation": self._operation,
            "parents": self._parents,
            "licences": self.licences,
            "notes": self._notes,
            "datasets": [
                dataset_record(info, self._questions[info.id], self._equality.get(info.id))
                for info in self._datasets.values()
            ],
            "llms": [llm_record(llm) for llm in self._llms.values()],
            "pairs": self._pairs,
            "scorers": [scorer_record(scorer) for scorer in self._scorers.values()],
            "scores": self._scores,
            "probes": list(self._probes.values()),
            "leaves": [
                dict(zip(("dataset", "llm", "part", "sha256"), leaf, strict=True))
                for leaf in self._leaves
            ],
            "files": {},
        }
