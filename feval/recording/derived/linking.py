"""The files of an LLM in recordings that hold it on questions behind each other: linked as the
files of one part.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from feval.errors import ConflictError, DamagedRecordingError
from feval.recording import parquet
from feval.recording.content import PAIR_PARTS, PairTally, PoolRows
from feval.recording.layout.format import SCORES, LeafHash, file_path, part_path
from feval.recording.leaves import ScoreTally, pool_lines
from feval.recording.reader import Recording

_COUNTS = (
    "no_answer",
    "unclosed_thoughts",
    "empty_replies",
    "depth",
    "branching",
    "turns",
    "served",
)


def linked_files(
    part: str, dataset: str, llm: str, parents: Sequence[Recording]
) -> Iterator[tuple[Recording, str, str]]:
    """Yield each file of a part in its order: the recording that has it, its path there, and in the
    recording that links it.
    """
    files = [(parent, path) for parent in parents for path in parent.files(part, dataset, llm)]
    for number, (parent, path) in enumerate(files):
        target = (
            file_path(part, dataset, llm)
            if len(files) == 1
            else part_path(part, dataset, llm, number)
        )
        yield parent, path, target


class LinkedPools:
    """The CoTs of an LLM on a dataset in one recording or several; the questions of each are behind
    those of the one before.

    `leaves` and `record` are known when `pools` was read to its end: once, where there are several
    recordings; of a single one, only what votes need is read.
    """

    def __init__(self, dataset: str, llm: str, parents: Sequence[Recording]) -> None:
        self.dataset, self.llm, self.parents = dataset, parents[0].llm_info(llm), parents
        self.counter = parents[0].counter(dataset, llm)
        self.parts = tuple(
            dict.fromkeys(
                part for parent in parents for part in (*PAIR_PARTS, *parent.channels(dataset, llm))
            )
        )
        self._leaves = {part: LeafHash() for part in self.parts}
        self._tally = PairTally(())

    def pools(self) -> Iterator[PoolRows]:
        """The pools, in order; those of a single recording without texts, raw answers and
        channels.
        """
        joined = len(self.parents) > 1
        for parent in self.parents:
            for pool in (parent.pools if joined else partial(_answers, parent))(
                self.dataset, self.llm.name
            ):
                _require_tree(parent, self.dataset, self.llm.name, pool)
                if joined:
                    for part, line in pool_lines(pool).items():
                        self._leaves[part].add(line)
                    self._tally.add(pool)
                yield pool

    def leaves(self) -> dict[str, str]:
        """Part -> leaf."""
        if len(self.parents) > 1:
            return {part: leaf.hexdigest() for part, leaf in self._leaves.items()}
        return {
            part: self.parents[0].manifest.leaves[self.dataset, self.llm.name, part]
            for part in self.parts
        }

    def record(self, sizes: npt.NDArray[np.uint32]) -> dict[str, Any]:
        """The counts in the manifest; `sizes` has the CoTs of each question."""
        pair = (
            self._tally.record()
            if len(self.parents) > 1
            else self.parents[0].manifest.pairs[self.dataset, self.llm.name]
        )
        return {
            "cots": int(sizes.sum()),
            "smallest_pool": int(sizes.min()) if len(sizes) else 0,
            "largest_pool": int(sizes.max(initial=0)),
            **{name: pair[name] for name in _COUNTS if name in pair},
        }


def linked_scores(
    dataset: str,
    llm: str,
    scorer: str,
    parents: Sequence[Recording],
    questions: Sequence[str],
    sizes: npt.NDArray[np.uint32],
) -> tuple[str, dict[str, Any]]:
    """Return the leaf and the manifest's record of a scorer's scores in recordings; those of
    several are read once.
    """
    if len(parents) == 1:
        [record] = [
            each for each in parents[0].score_records(dataset, llm) if each["scorer"] == scorer
        ]
        return parents[0].manifest.leaves[dataset, llm, SCORES + scorer], record
    tally = ScoreTally(
        parents[0].scorer_info(scorer), f"{scorer} of {llm} on {dataset}", questions, sizes
    )
    for parent in parents:
        for rows in parent.score_rows(dataset, llm, scorer):
            tally.add(rows)
    return tally.leaf(), tally.record(dataset, llm)


def common_cue(dataset: str, llm: str, parents: Sequence[Recording]) -> str | None:
    """Return the cue of an LLM's probes in some recordings; different ones are a
    `ConflictError`.
    """
    cues: dict[str | None, Recording] = {}
    for parent in parents:
        cues.setdefault(parent.probes_record(dataset, llm)["cue"], parent)
    if len(cues) > 1:
        one, other = ((cue, parent.path) for cue, parent in list(cues.items())[:2])
        raise ConflictError(
            f"{llm} on {dataset} was probed with the cue {one[0]!r:.80} in {one[1]} and with"
            f" {other[0]!r:.80} in {other[1]}; such answers do not compare. Keep the recordings"
            " apart, or give the LLM of one a variant name."
        )
    return next(iter(cues), None)


def require_trees(parent: Recording, dataset: str) -> list[str]:
    """Return the LLMs on a dataset after a check that steps make trees, whose files are linked
    without being read otherwise.

    Raises:
        DamagedRecordingError: steps that do not.
    """
    llms = parent.llm_names(dataset)
    for llm in llms:
        for pool in _answers(parent, dataset, llm) if parent.has_steps(dataset, llm) else ():
            _require_tree(parent, dataset, llm, pool)
    return llms


def _require_tree(parent: Recording, dataset: str, llm: str, pool: PoolRows) -> None:
    if problem := pool.tree_problem():
        raise DamagedRecordingError(
            f"{parent.path}: {llm} on {dataset}, question {pool.question_id!r}: {problem}; fetch or"
            " make the recording again."
        )


def _answers(parent: Recording, dataset: str, llm: str) -> Iterator[PoolRows]:
    """Yield the pools of an LLM with what votes need of them."""
    columns = ["question_id", "answer", "output_tokens", "finish_reason"]
    with parent.shape(parent.path / file_path("samples", dataset, llm)):
        samples = parquet.Aligned(parent.scan("samples", dataset, llm, columns))
        steps, turns = (
            parquet.Aligned(
                parent.scan(part, dataset, llm)
                if part in parent.channels(dataset, llm)
                else iter(())
            )
            for part in ("steps", "turns")
        )
        for question, request in parent.scan(
            "requests", dataset, llm, ["question_id", "prompt_tokens"]
        ):
            own = samples.take(question) or {name: [] for name in columns}
            nothing, tree, replies = (
                [None] * len(own["answer"]),
                steps.take(question),
                turns.take(question),
            )
            yield PoolRows(
                question,
                texts=nothing,
                raw_answers=nothing,
                answers=own["answer"],
                output_tokens=own["output_tokens"],
                finish_reasons=own["finish_reason"],
                prompt_tokens=request["prompt_tokens"][0],
                parents=tree.get("parent"),
                ends=tree.get("ends"),
                messages=replies.get("messages"),
                turn_prompt_tokens=replies.get("prompt_tokens"),
            )
