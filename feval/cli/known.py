"""`feval ls`: what feval knows by name, and the questions of a dataset."""

from __future__ import annotations

from pathlib import Path

from feval.cli.commands import argument, option
from feval.cli.options import AnswerKind
from feval.cli.output import Output
from feval.errors import UnknownNameError, UsageError
from feval.evaluation.method_names import method_fields
from feval.methods import METHODS
from feval.report.files import save_files
from feval.report.looking import question_values
from feval.report.tables.known import KNOWN, known_table, model_prices, questions_table, set_tables
from feval.report.text import counted

_SHOWN_QUESTIONS = 5


def ls(
    *,
    what: str = argument(
        "datasets, llms, prices, methods, formats, columns, sets, answer-kinds, the name of"
        " a method for its fields, or questions.",
        "WHAT",
    ),
    dataset: str | None = argument(
        "The dataset of questions, the LLM of prices, a word on sets.", "NAME"
    ),
    questions_file: Path | None = option(
        "Read them from FILE. Default: the cache, else the Hub.", "FILE", name="--questions"
    ),
    answer_kind: AnswerKind,
    out: Path | None = option("Write the questions to this file, as JSON Lines.", "FILE"),
    show: Output,
) -> None:
    """List what feval knows by name, or the questions of a dataset.

    Datasets, LLMs and prices come from cards; FEVAL_CARDS names folders with cards of your own. A
    dataset or LLM without a card works, too. Questions are fetched from the Hugging Face Hub once,
    at the commit that the dataset's card pins, and compared with the card.

    Example: feval ls questions gsm8k --out gsm8k.jsonl
    """
    if what == "questions":
        if dataset is None:
            raise UsageError(
                "Whose questions? Name a dataset behind `questions`, such as gsm8k; see `feval ls"
                " datasets`."
            )
        _questions(show, dataset, questions_file, answer_kind, out)
        return
    if what == "prices" and dataset is not None:
        show.result({what: (of_llm := model_prices(dataset))}, known_table(of_llm))
        return
    if what == "sets":
        word = (dataset or "").lower()
        sets = [row for row in KNOWN[what]() if word in " ".join(map(str, row.values())).lower()]
        if not sets:
            raise UsageError(f"No set speaks of {dataset!r:.80}. `feval ls sets` lists all.")
        show.result({what: sets}, *set_tables(sets, whole=bool(word)))
        return
    if what not in (*KNOWN, *METHODS, "oracle"):
        raise UnknownNameError.among("list", what, (*KNOWN, *METHODS, "questions"))
    if dataset or questions_file or answer_kind or out:
        raise UsageError(
            "DATASET, --questions, --answer-kind and --out belong to `feval ls questions DATASET`."
        )
    rows = KNOWN[what]() if what in KNOWN else method_fields(what)
    if not rows and not show.json:
        show.result({}, f"{what} has no fields: there is nothing to set.")
        return
    show.result({what: rows}, known_table(rows))


def _questions(
    show: Output, dataset: str, source: Path | None, answer_kind: str | None, out: Path | None
) -> None:
    from feval.hub import datasets  # loads pyarrow, which other lists can do without

    rows = datasets.questions(dataset, source=source, answer_kind=answer_kind)
    show.note(*datasets.remarks(rows))
    written = (
        [] if out is None else save_files(out.parent, {out.name: datasets.questions_jsonl(rows)})
    )
    summary = {
        "dataset": dataset,
        "count": len(rows),
        "sha256": datasets.questions_sha256(rows),
        "file": None if out is None else str(out),
        "questions": [question_values(question) for question in rows],
    }
    show.result(
        summary,
        f"{dataset}: {counted(len(rows), 'question')}, SHA-256 {summary['sha256']}",
        questions_table(rows[:_SHOWN_QUESTIONS]),
        written=written,
    )
