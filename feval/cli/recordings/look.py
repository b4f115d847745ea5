"""`feval show`: look at questions and CoTs, in the terminal or as a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from feval.cli.options import OnlyDatasets, OnlyLLMs, RecordingFolder
from feval.cli.output import Output
from feval.errors import NotRecordedError, OutOfRangeError, UsageError
from feval.hub.places import open_place
from feval.recording import Recording
from feval.report.files import check_folder, save_files
from feval.report.looking import (
    find_question,
    overview,
    overview_dict,
    overview_table,
    question_dict,
    question_pieces,
    recorded_questions,
)
from feval.report.page.questions import view_page
from feval.report.text import counted

_FIRST = 100


def show(
    recording: RecordingFolder,
    question: Annotated[
        str | None,
        typer.Argument(
            metavar="[QUESTION]",
            help="Id of a question, or words of its text. Default: list.",
            show_default=False,
        ),
    ] = None,
    dataset: OnlyDatasets = None,
    llm: OnlyLLMs = None,
    sample: Annotated[
        list[int] | None,
        typer.Option(min=0, metavar="INDEX", help="Only this CoT, from 0; repeat for several."),
    ] = None,
    reasoning: Annotated[bool, typer.Option("--reasoning", help="Show thoughts, too.")] = False,
    first: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help=(
                "List the N hardest questions. Default: 100. On a page, the first N of each"
                " dataset; all that fit."
            ),
            show_default=False,
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html", metavar="FILE", help="Make a page to explore the recording in a browser."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file at --html.")] = False,
    *,
    show: Output,
) -> None:
    """List the questions of a recording, the hardest first, or show one with its CoTs.

    A question is shown with its gold, how many CoTs of each LLM gave each answer, and the CoTs, in
    which the answer stands out; on a terminal in colour, through the pager that PAGER names. With
    --html, a page has all of it, offline: one file that fetches nothing. It holds about 40 MB of
    texts; what it leaves out it says.

    Example: feval show my-recording gsm8k/test/17 --llm gpt-4o-mini --sample 0
    """
    opened = open_place(recording)
    if html is not None:
        if question is not None or sample or reasoning:
            raise UsageError(
                "A page has all questions with their CoTs; leave QUESTION, --sample and --reasoning"
                " out."
            )
        _make_page(show, opened, _chosen(opened, dataset, llm), html, first, force=force)
        return
    if force:
        raise UsageError("--force replaces a page; name it with --html.")
    if question is not None:
        _show_question(show, opened, question, dataset, llm, sample, reasoning=reasoning)
        return
    if sample or reasoning:
        raise UsageError(
            "--sample and --reasoning belong to one question; name it behind the recording."
        )
    listed, tables, recorded = [], [], {}
    for name, llms in _chosen(opened, dataset, llm).items():
        seen = overview(opened, name, llms)
        rows, recorded[name] = seen.order[: first or _FIRST].tolist(), len(seen.order)
        wanted = dict.fromkeys(rows, "")
        if rows:
            for row, each in enumerate(opened.scan_questions(name, range(max(rows) + 1))):
                if row in wanted:
                    wanted[row] = each.text
        listed += overview_dict(seen, rows)
        tables.append(overview_table(seen, rows, list(wanted.values())))
    show.pages({"questions": listed, "recorded": recorded}, *tables)


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
    names = _chosen(recording, [dataset], llms)[dataset]
    (asked,) = recorded_questions(recording, dataset, names, range(row, row + 1))
    largest = max((len(on.codes) for on in asked.llms), default=0)
    if samples and max(samples) >= largest:
        found = f"indices 0 to {largest - 1} were" if largest else "no CoT was"
        raise OutOfRangeError(
            f"--sample {max(samples)} was asked for, and {found} recorded of question"
            f" {asked.question.id!r}."
        )
    show.pages(
        question_dict(asked, samples), *question_pieces(asked, samples=samples, reasoning=reasoning)
    )


def _make_page(
    show: Output,
    recording: Recording,
    pairs: Mapping[str, Sequence[str]],
    path: Path,
    first: int | None,
    *,
    force: bool,
) -> None:
    check_folder(path.parent)
    page = view_page(recording, pairs, first=first)
    for sentence in page.left_out:
        show.note(sentence)
    save_files(path.parent, {path.name: page.html.encode()}, replace=force)
    summary = {"path": str(path), "questions": page.questions, "left_out": page.left_out}
    show.result(summary, f"wrote {path} with {counted(page.questions, 'question')}")


def _chosen(
    recording: Recording, datasets: Sequence[str] | None, llms: Sequence[str] | None
) -> dict[str, list[str]]:
    """Return dataset -> LLMs that the user chose, all for `None`; what nothing was recorded of is
    an error.
    """
    for dataset in datasets or ():
        recording.require(dataset)
    names = list(dict.fromkeys(datasets or recording.dataset_ids()))
    known = {name: recording.llm_names(name) for name in names}
    for llm in llms or ():
        if not any(llm in own for own in known.values()):
            recording.require(names[0], llm)
    chosen = {
        name: [llm for llm in dict.fromkeys(llms or own) if llm in own]
        for name, own in known.items()
    }
    if not any(chosen.values()):
        raise NotRecordedError(
            f"{recording.path} holds questions and no CoTs, so there is nothing to look at."
        )
    return {name: own for name, own in chosen.items() if own}
