"""Import recordings that others made: one module per format, and `import_recording`, which they share.

The module of a format only reads a file into the columns of `feval.importers.source`. The shared part normalises answers,
counts tokens and writes. `docs/importing.md` is the user's guide, with a section on adding an importer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from feval.errors import UnknownNameError
from feval.importers import jsonl
from feval.importers.conversion import convert
from feval.importers.harnesses import inspect_ai, lighteval, lm_eval
from feval.importers.papers import coupled_mmlu, esc, feval_ttc, game24, linc, modelswitch, mot_cascade
from feval.importers.source import Importer, ImportRequest

__all__ = ["IMPORTERS", "Importer", "import_recording"]

IMPORTERS: Mapping[str, Importer] = {
    importer.name: importer
    for importer in (
        Importer("feval-ttc", "the zip archive of the FEval-TTC reference package", feval_ttc.read),
        Importer("mot-cascade", "LLM Cascades with Mixture of Thoughts, JSON", mot_cascade.read),
        Importer("esc", "Early-Stopping Self-Consistency, JSON Lines", esc.read, esc.upstream_answer),
        Importer(
            "coupled-mmlu", "Coupled Token Generation on MMLU, CSV", coupled_mmlu.read, coupled_mmlu.upstream_answer
        ),
        Importer("modelswitch", "ModelSwitch, JSON", modelswitch.read),
        Importer("linc", "LINC, labels with references and texts beside them, JSON", linc.read, beside=linc.beside),
        Importer("game24", "Tree of Thoughts' naive samples on the Game of 24, JSON", game24.read),
        Importer(
            "lm-eval",
            "lm-evaluation-harness, samples_*.jsonl with results_*.json beside it",
            lm_eval.read,
            beside=lm_eval.beside,
        ),
        Importer("inspect-ai", "inspect-ai logs, .eval or .json; epochs are CoTs", inspect_ai.read),
        Importer(
            "lighteval",
            "lighteval details, Parquet with results_*.json beside it",
            lighteval.read,
            beside=lighteval.beside,
        ),
        Importer("jsonl", "feval's generic JSON Lines, described in docs/importing.md", jsonl.read),
    )
}
"""The formats `feval import` reads, by name."""


def import_recording(
    format: str,  # noqa: A002 (the command's own word, and the first argument by position)
    source: str | Path,
    out: str | Path,
    *,
    dataset: str,
    llm: str | Sequence[str] | None = None,
    answer_kind: str | None = None,
    counter: str | None = None,
    questions: str | Path | None = None,
    prices: str = "2025-06-02",
    answers: str = "stored",
    equality: str | None = None,
    keep_duplicates: bool = False,
    temperature: float | None = None,
    max_tokens: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Make a recording from a file that somebody else recorded, and return its folder.

    Args:
        format: a key of `IMPORTERS`.
        source: the file, which may be compressed by gzip.
        out: folder to create.
        dataset: id of the dataset. Question ids are `<dataset>/<row>` unless the source has ids.
        llm: name of the LLM (with a variant, such as "gpt-3.5-turbo@t=0.8"), or names of those to take from a source that has
            several; `None` takes all of them.
        answer_kind: a key of `feval.answers.KINDS`; `None`: the dataset card's.
        counter: a token counter (`feval.cards.tokens`); `None`: the source's counts where it has any, else "words".
        questions: file with texts, golds and options, joined by question id.
        prices: id of the price list that the recording names, or "none".
        answers: "stored": those that the source stores, else extracted from the texts; "text": always extracted.
        equality: of answers, see `feval.answers.equality.named_equality`; `None`: that of the answer kind.
        keep_duplicates: keep samples that the source is known to have stored twice.
        temperature: of the decoding, where the source does not say; `None`: not known.
        max_tokens: limit on output tokens, where the source does not say; `None`: not known.
        progress: called with the pools done and the pools in all.

    What was unusual about the source is in the manifest's notes.

    Raises:
        UnknownNameError: an unknown format, LLM, answer kind, token counter or price list.
        UsageError: the LLM's name, the answer kind or the questions are missing.
        SourceError: the source is broken, empty, hostile, or not of this format.
        ConflictError: the source, or source and questions file, contradict themselves.
        AnswerError: math-verify should compare answers and is not installed.
        TokenCounterError: the counter is not available.
        StorageError: `out` exists or cannot be written.
    """
    importer = IMPORTERS.get(format)
    if importer is None:
        raise UnknownNameError.of("import format", format, IMPORTERS)
    llms = (str(llm),) if isinstance(llm, str) else tuple(map(str, dict.fromkeys(llm or ())))
    return convert(
        importer,
        Path(source),
        Path(out),
        ImportRequest(str(dataset), llms, None, keep_duplicates, temperature, max_tokens),
        formats=IMPORTERS.values(),
        answer_kind=answer_kind,
        counter=counter,
        questions=None if questions is None else Path(questions),
        prices=prices,
        answers=answers,
        equality=equality,
        progress=progress,
    )
