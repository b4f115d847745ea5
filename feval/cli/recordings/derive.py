"""`feval merge`, `select`, `extract`: make recordings from recordings."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from feval.cards.reading import read_regular
from feval.cli.options import (
    AnswerKind,
    Equality,
    Machines,
    NewFolder,
    OnlyDatasets,
    OnlyLLMs,
    RecordingFolder,
    machine_options,
    only_name,
)
from feval.cli.output import Output
from feval.cli.recordings.files import show_recording
from feval.errors import NotRecordedError, OutOfRangeError, SourceError, UsageError
from feval.hub.places import local_folder
from feval.recording import Recording, open_recording
from feval.recording import extract as extract_answers
from feval.recording import merge as merge_recordings
from feval.recording import select as select_from
from feval.report.tables.recordings import changes_tables, info_headline
from feval.report.text import counted

_MAX_IDS_BYTES = 64 << 20


def merge(
    recordings: Annotated[
        list[Path], typer.Argument(metavar="RECORDING...", help="Two or more.", show_default=False)
    ],
    out: NewFolder,
    equality: Equality = None,
    *,
    show: Output,
) -> None:
    """Join recordings into a new one.

    They may differ in datasets, in LLMs, in questions or in several of them. The old recordings
    stay as they are.

    Example: feval merge small large --out both
    """
    folders = [local_folder(recording) for recording in recordings]
    merge_recordings(folders, out, equality=equality)
    show_recording(show, out)


def select(
    recording: RecordingFolder,
    out: NewFolder,
    dataset: OnlyDatasets = None,
    llm: OnlyLLMs = None,
    questions_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Keep the questions with these ids, one per line."),
    ] = None,
    first: Annotated[
        int | None, typer.Option(metavar="N", help="Keep the first N questions.")
    ] = None,
    samples: Annotated[
        int | None, typer.Option(metavar="N", help="Keep the first N CoTs of each pool.")
    ] = None,
    min_cots: Annotated[
        int | None,
        typer.Option(metavar="N", help="Leave out questions with fewer CoTs of some LLM."),
    ] = None,
    rename: Annotated[
        list[str] | None,
        typer.Option(metavar="OLD=NEW", help="Give an LLM another name. Repeat for several."),
    ] = None,
    *,
    show: Output,
) -> None:
    """Make a smaller recording from a recording, or one with other names.

    Keep some datasets, LLMs or questions, or the first CoTs of each pool; the old recording stays
    as it is.

    Example: feval select big --llm gpt-3.5-turbo --samples 20 --out small
    """
    if questions_file is not None and first is not None:
        raise UsageError("--questions-file and --first both choose questions; give one of them.")
    recording = local_folder(recording)
    ids = None if questions_file is None else _question_ids(questions_file)
    if first is not None:
        ids = _first_questions(open_recording(recording), dataset, first)
    select_from(
        recording,
        out,
        datasets=dataset or None,
        llms=llm or None,
        questions=ids,
        samples=samples,
        min_cots=min_cots,
        rename=_renamed(rename or []),
    )
    show_recording(show, out)


@machine_options
def extract(
    recording: RecordingFolder,
    out: NewFolder,
    answer_kind: AnswerKind = None,
    answers: Annotated[
        str,
        typer.Option(
            metavar="FROM", help="text: extract again; stored: only normalize the stored answers."
        ),
    ] = "text",
    equality: Equality = None,
    *,
    machines: Machines,
    show: Output,
) -> None:
    """Extract the answers of a recording again.

    Reads the stored texts with this version's extraction, or as another kind of answer, writes a
    new recording, and shows which answers and golds changed. No LLM is asked; the old recording
    stays as it is.

    Example: feval extract my-recording --answer-kind latex --out again
    """
    recording = local_folder(recording)
    with machines.opened() as executor:
        extraction = extract_answers(
            recording,
            out,
            answer_kind=answer_kind,
            source=answers,
            equality=equality,
            executor=executor,
        )
    for sentence in extraction.notes:
        show.note(sentence)
    summary = dataclasses.asdict(extraction) | {"path": str(out)}
    show.result(summary, info_headline(open_recording(out)), "", *changes_tables(extraction))


def _question_ids(path: Path) -> list[str]:
    try:
        # Not splitlines(): an id may hold other line separators.
        lines = read_regular(path, _MAX_IDS_BYTES).decode("utf-8-sig").split("\n")
    except OSError as error:
        raise SourceError(
            f"{path} should be a file with one question id per line; it cannot be read:"
            f" {error.strerror or error}. Check --questions-file."
        ) from error
    except UnicodeDecodeError as error:
        raise SourceError(
            f"{path} should hold one question id per line as UTF-8 text; it does not ({error})."
        ) from error
    ids = [line.strip() for line in lines if line.strip()]
    if not ids:
        raise SourceError(f"{path} is empty; it should hold one question id per line.")
    return ids


def _first_questions(recording: Recording, datasets: Sequence[str] | None, first: int) -> list[str]:
    if first < 1:
        raise OutOfRangeError(f"--first takes 1 or more; {first} was given.")
    # Question ids are unique within a dataset only, so there must be one dataset.
    dataset = only_name(
        "dataset", datasets[0] if datasets and len(datasets) == 1 else None, recording.dataset_ids()
    )
    ids = recording.votes(dataset).question_ids
    if first > len(ids):
        raise NotRecordedError(
            f"{dataset} has {counted(len(ids), 'question')}; --first {first} asks for more."
        )
    return list(ids[:first])


def _renamed(pairs: Sequence[str]) -> dict[str, str]:
    """The new name of each LLM, from OLD=NEW."""
    names = dict(pair.partition("=")[::2] for pair in pairs)
    if len(names) < len(pairs) or not all(old and new for old, new in names.items()):
        raise UsageError(
            f"--rename takes OLD=NEW, once for each LLM; {', '.join(pairs)!r:.120} was given."
        )
    return names
