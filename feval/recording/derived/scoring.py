"""Add scores to a recording, as a derived recording."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from feval.errors import ConflictError, UsageError
from feval.recording.content import ScorerInfo, ScoreRows
from feval.recording.derived.common import derived_writer
from feval.recording.layout.format import SCORES
from feval.recording.reader import Recording
from feval.recording.verify import open_sound


def add_scores(
    recording: str | Path,
    out: str | Path,
    scorer: ScorerInfo,
    rows: Mapping[tuple[str, str], Iterable[ScoreRows]],
    *,
    operation: Mapping[str, Any] | None = None,
    notes: Iterable[str] = (),
    replacing: bool = False,
    without_notes: Collection[str] = (),
) -> Path:
    """Make a recording with one scorer's scores added; everything else is linked, not written
    again.

    Args:
        recording: the folder that was scored; it stays as it is.
        out: the folder to make.
        scorer: who gave the scores.
        rows: (dataset id, LLM name) -> one entry per question with scores, in the order of the
            questions.
        operation: what made the scores (JSON values); the scorer's name is added.
        notes: sentences about what was unusual; they are read after the rows, which may count it.
        replacing: whether scores of the same name are left out of the new recording instead of
            being an error.
        without_notes: sentences of the recording that are not true of the new one.

    Raises:
        ConflictError: the recording holds scores of the same name, or scores for CoTs that are not
            there.
        NotRecordedError: the recording lacks a dataset or LLM.
        UsageError: no scores, or a value that cannot be stored.
        RecordingError, StorageError: as for `merge`.
    """
    if not rows:
        raise UsageError(
            f"Scores by {scorer.name} were to be added to {recording}, but there are none."
        )
    return add_scorers(
        recording,
        out,
        [(scorer, rows)],
        operation={**(operation or {}), "scorer": scorer.name},
        notes=notes,
        replacing=replacing,
        without_notes=without_notes,
    )


def add_scorers(
    recording: str | Path,
    out: str | Path,
    scores: Sequence[tuple[ScorerInfo, Mapping[tuple[str, str], Iterable[ScoreRows]]]],
    *,
    operation: Mapping[str, Any],
    notes: Iterable[str] = (),
    replacing: bool = False,
    without_notes: Collection[str] = (),
) -> Path:
    """Make a recording with the scores of several scorers, as `add_scores` does with those of
    one.
    """
    source = open_sound(recording)
    new = {(dataset, llm, scorer.name) for scorer, rows in scores for dataset, llm in rows}
    for dataset, llm, scorer_name in sorted(new):
        source.require(dataset, llm)
        if not replacing and scorer_name in source.scorers(dataset, llm):
            raise ConflictError(
                f"{source.path} already has scores of {llm} on {dataset} by {scorer_name!r}. Give"
                " the scorer another name."
            )
    old_notes = [note for note in source.manifest.raw["notes"] if note not in without_notes]
    with derived_writer([source], out, {"name": "score", **operation}, old_notes) as writer:
        for dataset in source.dataset_ids():
            without = {(llm, SCORES + name) for where, llm, name in new if where == dataset}
            writer.keep_dataset(source, dataset, without)
        for scorer, rows in scores:
            for pair, scored in rows.items():
                writer.add_rows(*pair, scorer, scored)
        for note in notes:
            writer.note(note)
    return Path(out)


def aggregate_scores(
    recording: Recording, dataset: str, llm: str, scorer: str, aggregate: str = "score"
) -> npt.NDArray[np.float64]:
    """Return one number per CoT of an LLM on a dataset, such as best-of-N ranks by.

    Returns:
        [Q, S] float64, questions and samples in recorded order, S the largest pool; NaN where a CoT
        has no such score.

    Raises:
        UnknownNameError: `aggregate` is not one of `AGGREGATES`.
        NotRecordedError: no such dataset, LLM or scorer; or the scorer gave only scores where step
            scores are asked for, or the other way round.
        DamagedRecordingError: as for `Recording.scores`.
    """
    return recording.scores(dataset, llm, scorer).of_cots(aggregate, f"{llm} on {dataset}")
