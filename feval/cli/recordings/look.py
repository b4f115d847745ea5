"""`feval show`: look at questions and CoTs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from feval.cli.options import OnlyDatasets, OnlyLLMs, RecordingFolder
from feval.cli.output import Output
from feval.errors import OutOfRangeError, UsageError
from feval.hub.places import open_place
from feval.recording import Recording
from feval.report.looking.overview import overview, overview_dict
from feval.report.looking.questions import find_question, recorded_questions
from feval.report.looking.terminal import overview_table, question_dict, question_pieces

_FIRST = 100


def show(
    recording: RecordingFolder,
    question: Annotated[
        str | None,
        typer.Argument(metavar="[QUESTION]", help="Id of a question. Default: list them.", show_default=False),
    ] = None,
    dataset: OnlyDatasets = None,
    llm: OnlyLLMs = None,
    sample: Annotated[
        list[int] | None, typer.Option(min=0, metavar="INDEX", help="Only this CoT, from 0; repeat for several.")
    ] = None,
    reasoning: Annotated[bool, typer.Option("--reasoning", help="Show thoughts, too.")] = False,
    first: Annotated[int, typer.Option(min=1, metavar="N", help="List the N hardest questions.")] = _FIRST,
    *,
    show: Output,
) -> None:
    """List the questions of a recording, the hardest first, or show one with its CoTs.

    A question is shown with its gold, how many CoTs of each LLM gave each answer, and the CoTs, in which the answer stands
    out; on a terminal in colour, through the pager that PAGER names.

    Example: feval show my-recording gsm8k/test/17 --llm gpt-4o-mini --sample 0
    """
    opened = open_place(recording)
    if question is not None:
        _show_question(show, opened, question, dataset, llm, sample, reasoning=reasoning)
        return
    if sample or reasoning:
        raise UsageError("--sample and --reasoning belong to one question; name it behind the recording.")
    listed, tables = [], []
    for name in chosen_datasets(opened, dataset):
        seen = overview(opened, name, chosen_llms(opened, name, llm))
        rows = seen.order[:first].tolist()
        wanted = dict.fromkeys(rows, "")
        if rows:
            for row, each in enumerate(opened.scan_questions(name, range(max(rows) + 1))):
                if row in wanted:
                    wanted[row] = each.text
        listed += overview_dict(seen, rows)
        tables.append(overview_table(seen, rows, list(wanted.values())))
    show.pages({"questions": listed}, *tables)


def _show_question(
    show: Output,
    recording: Recording,
    name: str,
    datasets: Sequence[str] | None,
    llms: Sequence[str] | None,
    samples: Sequence[int] | None,
    *,
    reasoning: bool,
) -> None:
    if datasets is not None and len(datasets) > 1:
        raise UsageError("One question is of one dataset; give --dataset once.")
    dataset, row = find_question(recording, name, datasets[0] if datasets else None)
    names = chosen_llms(recording, dataset, llms)
    (asked,) = recorded_questions(recording, dataset, names, range(row, row + 1))
    largest = max((len(on.codes) for on in asked.llms), default=0)
    if samples and max(samples) >= largest:
        found = f"indices 0 to {largest - 1} were" if largest else "no CoT was"
        raise OutOfRangeError(f"--sample {max(samples)} was asked for, and {found} recorded of question {name!r}.")
    show.pages(question_dict(asked, samples), *question_pieces(asked, samples=samples, reasoning=reasoning))


def chosen_datasets(recording: Recording, names: Sequence[str] | None) -> list[str]:
    """Return the datasets that the user chose, else all."""
    for name in names or ():
        recording.require(name)
    return list(dict.fromkeys(names)) if names else recording.dataset_ids()


def chosen_llms(recording: Recording, dataset: str, names: Sequence[str] | None) -> list[str]:
    """Return the LLMs that the user chose and the dataset has, else all of it."""
    known = recording.llm_names(dataset)
    if not names:
        return known
    chosen = [name for name in dict.fromkeys(names) if name in known]
    if not chosen:
        recording.require(dataset, names[0])
    return chosen
