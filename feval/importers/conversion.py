"""From the columns of a source to a recording: answers normalised, tokens counted, everything unusual noted."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from feval.answers import EXTRACTOR_VERSION, canonical_gold, extract, keys, normal_forms
from feval.answers.equality import named_equality
from feval.answers.parties import NORMAL_FORM
from feval.answers.thoughts import SplitColumns, split_columns
from feval.cards.cards import find_dataset_card, thoughts_of
from feval.cards.prices import price_list
from feval.cards.tokens import token_counter
from feval.errors import FevalError, OutOfRangeError, SourceError, TokenCounterError, UnknownNameError, UsageError
from feval.importers.catalogue import IMPORTERS
from feval.importers.depth.probes import WaitingProbes
from feval.importers.questions import completed, known_answer_kind, read_questions
from feval.importers.reading import Reader, fingerprint
from feval.importers.shapes import LARGEST
from feval.importers.sorted_rows import SortedRows
from feval.importers.source import (
    Imported,
    Importer,
    ImportRequest,
    Prompt,
    SourceLLM,
    SourcePool,
    SourceQuestion,
    counted_notes,
)
from feval.recording import DatasetInfo, PoolRows, ProbeRows, Question, RecordingWriter, ScorerInfo, ScoreRows
from feval.recording.layout.destination import storage_errors

_HINT_BYTES = 16 << 20
_POSITIONS_TOO = (
    "golds are positions, stored answers are read as written: write labels, or read the replies, `--answers text`"
)

ANSWERS = ("stored", "text")
"""Where raw answers come from: the source where it stores them, else the texts; or always the texts."""


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
    source, out, questions = Path(source), Path(out), None if questions is None else Path(questions)
    request = ImportRequest(str(dataset), llms, None, keep_duplicates, temperature, max_tokens)
    _check_options(request, answers)
    card = find_dataset_card(request.dataset)
    kind = known_answer_kind(request.dataset, answer_kind or (card.answer_kind if card else None))
    licence = card.licence if card else None
    info = DatasetInfo(
        request.dataset,
        card.title if card else request.dataset,
        kind,
        EXTRACTOR_VERSION,
        None,
        licence,
        named_equality(kind, equality),
    )
    operation: dict[str, Any] = {
        "name": "import",
        "format": importer.name,
        "source": fingerprint(source),
        "questions": None if questions is None else fingerprint(questions, "the questions file (--questions)"),
        "answers": answers,
        "keep_duplicates": keep_duplicates,
    }
    if importer.beside is not None:
        operation["beside"] = [fingerprint(file) for file in importer.beside(source)]
    prices = prices if prices == "none" else price_list(prices).id
    with RecordingWriter(out, operation=operation, prices=prices, licences={"questions": licence}) as writer:
        reader = Reader()
        file = None if questions is None else read_questions(questions, request.dataset, reader)
        with storage_errors(out):  # temporary files
            given = replace(request, questions=file, scratch=writer.root, answer_kind=kind)
            imported = _read(importer, source, given)
        origins = source.name, questions.name if questions else ""
        joined, gold_notes = completed(imported.questions, file, kind, origins)
        conversion = _Conversion(
            importer,
            joined,
            info,
            counter,
            writer.root,
            always_text=answers == "text",
            default_kind=answer_kind is None,
            golds_are_positions=bool(gold_notes),
        )
        writer.add_dataset(replace(info, system_prompt=imported.system_prompt), conversion.questions())
        total = imported.llm_count * len(joined)
        for number, one in enumerate(imported.llms):
            report = None if progress is None else _offset(progress, number * len(joined), total)
            writer.add_pools(request.dataset, one.info, conversion.counter(one), conversion.pools(one), report)
            for scorer, rows in conversion.scores():
                writer.add_scores(request.dataset, one.info.name, scorer, rows)
            if probes := conversion.probes(one):
                writer.add_probes(request.dataset, one.info.name, probes, cue=one.probe_cue)
        expected = card.questions if card else None
        for note in [*imported.notes, *reader.notes(), *gold_notes, *conversion.notes(expected)]:
            writer.note(note)
    return out


def _read(importer: Importer, source: Path, request: ImportRequest) -> Imported:
    """Read a source; an error names the format that fits, where another one does."""
    try:
        return importer.read(source, request)
    except SourceError as error:
        error.with_traceback(None)  # its frames hold what was read of the source
        fitting = [
            other.name for other in IMPORTERS.values() if other is not importer and _fits(other, source, request)
        ]
        if not fitting:
            raise
        raise SourceError(f"{error} It can be read as {' or '.join(map(repr, fitting))}: name that format.") from error


def _fits(importer: Importer, source: Path, request: ImportRequest) -> bool:
    """Return whether a small source has the shape of a format; a large one is not read again just for a hint."""
    try:
        return source.stat().st_size <= _HINT_BYTES and bool(importer.read(source, request).questions)
    except (FevalError, OSError):
        return False


def _check_options(request: ImportRequest, answers: str) -> None:
    if answers not in ANSWERS:
        raise UnknownNameError.of("place to take answers from", answers, ANSWERS)
    if request.temperature is not None and not (math.isfinite(request.temperature) and request.temperature >= 0):
        raise OutOfRangeError(f"A temperature is a number from 0; {request.temperature} was given.")
    if request.max_tokens is not None and not 1 <= request.max_tokens <= LARGEST:
        raise OutOfRangeError(f"The limit on output tokens is 1 to {LARGEST}; {request.max_tokens} was given.")


def _offset(progress: Callable[[int, int], None], start: int, total: int) -> Callable[[int], None]:
    return lambda done: progress(start + done, total)


class _Conversion:
    """Makes the rows of one import, question by question, and counts what is unusual."""

    def __init__(
        self,
        importer: Importer,
        questions: Sequence[SourceQuestion],
        info: DatasetInfo,
        counter: str | None,
        scratch: Path,
        *,
        always_text: bool,
        default_kind: bool,
        golds_are_positions: bool,
    ) -> None:
        kind = info.answer_kind
        self._importer = importer
        self._questions = questions
        self._kind = kind
        self._equality = info.equality
        self._counter = counter
        self._always_text = always_text
        self._compares = default_kind and kind != "verbatim"
        self._golds_are_positions = golds_are_positions
        self._seen: Counter[str] = Counter()
        self._scorers: dict[str, int] = {}
        self._scratch, self._scores = scratch, SortedRows(scratch)
        self._probes: dict[str, WaitingProbes] = {}
        self._right: dict[str, _RightCots] = {}
        if kind == "verbatim" and always_text and importer.upstream_answer is None:
            raise UsageError(
                f"Verbatim answers are the stored ones of a {importer.name} source, and answers from the texts were asked "
                "for; choose another answer kind, or the stored answers."
            )

    def questions(self) -> Iterator[Question]:
        """Yield the questions with their canonical golds."""
        for q in self._questions:
            yield Question(q.id, q.text or "", q.gold, canonical_gold(self._kind, q.gold, q.choices), q.choices)

    def counter(self, llm: SourceLLM) -> str:
        """Return the token counter for an LLM: the one asked for, else the source's counts, else words."""
        if self._counter == "usage" and not llm.counted:
            raise TokenCounterError(
                f"The token counter 'usage' stands for counts in the source, and this {self._importer.name} source has none "
                f"for {llm.info.name}; take 'words' or 'tiktoken:ENCODING'."
            )
        return self._counter or ("usage" if llm.counted else "words")

    def pools(self, llm: SourceLLM) -> Iterator[PoolRows]:
        """Yield the rows of one LLM, one pool per question."""
        name = self.counter(llm)
        count = None if name == "usage" else token_counter(name)
        self._scorers, self._scores = {}, SortedRows(self._scratch)
        probes = self._probes[llm.info.name] = WaitingProbes(self._kind, self._scratch, always_text=self._always_text)
        thoughts = thoughts_of(llm.info.name)
        for number, (question, pool) in enumerate(zip(self._questions, llm.pools, strict=True)):
            reasons = pool.finish_reasons or ["unknown"] * len(pool.texts)
            columns = split_columns(pool.texts, pool.reasoning, reasons, thoughts)
            self._seen["with thoughts"] += sum(bool(marks) for marks in columns.marks or ())
            self._seen["without reply"] += columns.readable.count(False)
            raw = self._raw_answers(question, pool, columns)
            canonical = normal_forms(self._kind, raw, question.choices)
            if self._compares and question.gold is not None:
                stored = self._stored_answers(pool)
                right = self._right.setdefault(llm.info.name, _RightCots())
                right.add(
                    self._right_by_kind(question, raw, canonical), stored.count(question.gold), len(raw), len(stored)
                )
            if self._golds_are_positions and pool.answers is not None and not self._always_text:
                labels = dict(question.choices)
                self._seen["numbers"] += sum(form.isdecimal() and form not in labels for form in canonical if form)
            self._seen["cots"] += len(raw)
            self._seen["without answer"] += raw.count(None)
            self._seen["unreadable"] += canonical.count(None) - raw.count(None)
            prompt, prompt_tokens = self._request(question, pool, count, counted=llm.counted)
            for scorer, rows in pool.scores.items():
                group = self._scorers.setdefault(scorer, len(self._scorers))
                self._scores.add(group, number, (rows.sample_indices, rows.scores, rows.step_scores))
            probes.add(number, pool.probes)
            yield PoolRows(
                question.id,
                columns.texts,
                raw,
                canonical,
                _output_tokens(question, pool, count),
                columns.finish_reasons,
                prompt,
                prompt_tokens,
                pool.extra,
                reasoning=columns.reasoning,
                reasoning_marks=columns.marks,
                sequence_logprobs=pool.sequence_logprobs,
                token_logprobs=pool.token_logprobs,
                token_confidences=pool.token_confidences,
            )

    def scores(self) -> Iterator[tuple[ScorerInfo, Iterator[ScoreRows]]]:
        """Yield the scores of the LLM whose pools came last, by scorer."""
        for name, group in self._scorers.items():
            blocks = self._scores.questions(group)
            rows = (ScoreRows(self._questions[number].id, *columns) for number, (columns,) in blocks)
            yield ScorerInfo(name, "imported", {"format": self._importer.name}), rows

    def probes(self, llm: SourceLLM) -> Iterator[ProbeRows] | None:
        """Return the probes of an LLM whose pools were read; `None` where it has none."""
        probes = self._probes[llm.info.name]
        return probes.rows(self._questions, llm.probe_cue) if len(probes) else None

    def _stored_answers(self, pool: SourcePool) -> Sequence[str | None]:
        """Return the answers of the source's authors, stored or by their published rule; empty where there is neither."""
        rule = self._importer.upstream_answer
        if pool.answers is not None or rule is None:
            return pool.answers or []
        answers = {text: None if text is None else rule(text) for text in set(pool.texts)}
        return [answers[text] for text in pool.texts]

    def _right_by_kind(self, question: SourceQuestion, raw: Sequence[str | None], forms: Sequence[str | None]) -> int:
        """Return the number of CoTs that vote with the gold."""
        if self._equality == NORMAL_FORM:
            gold = canonical_gold(self._kind, question.gold, question.choices)
            return 0 if gold is None else list(forms).count(gold)
        votes = keys(self._kind, raw, question.gold, question.choices, equality=self._equality)
        return 0 if votes.gold is None else votes.answers.count(votes.gold)

    def _raw_answers(self, question: SourceQuestion, pool: SourcePool, columns: SplitColumns) -> Sequence[str | None]:
        """Return the stored answers, or those read in the replies; verbatim answers are read as the authors do."""
        verbatim = self._kind == "verbatim"
        if pool.answers is not None and not self._always_text:
            self._seen["stored"] += len(pool.answers)
            answers = pool.answers
        else:
            texts = pool.texts if verbatim else columns.texts
            # Equal texts are common where replies are short.
            extracted = {text: self._extracted(text, question) for text in set(texts)}
            answers = [extracted[text] for text in texts]
        if verbatim:
            return answers
        return [answer if readable else None for answer, readable in zip(answers, columns.readable, strict=True)]

    def _extracted(self, text: str | None, question: SourceQuestion) -> str | None:
        if text is None:
            return None
        if self._kind != "verbatim":
            return extract(self._kind, text, question.choices)
        if self._importer.upstream_answer is None:
            raise UsageError(
                f"Verbatim answers are the stored ones of a {self._importer.name} source, and question {question.id!r} has "
                "none; choose an answer kind that can be extracted from the texts, --answer-kind KIND."
            )
        return self._importer.upstream_answer(text)

    def _request(
        self, question: SourceQuestion, pool: SourcePool, count: Callable[[str], int] | None, *, counted: bool
    ) -> tuple[str | None, int | None]:
        """Return the request and its tokens. Where the source has neither, the question's text stands in for the request.

        A count of the source is taken, unless the source has counts of everything and another counter was asked for.
        """
        prompt = pool.prompt
        if prompt is None and pool.prompt_tokens is None and question.text:
            prompt = Prompt.of(question.text)
            self._seen["question as request"] += 1
        tokens = pool.prompt_tokens
        if count is not None and (counted or tokens is None):
            tokens = count(prompt.text) if prompt else None
        elif count is not None:
            self._seen["request counted by source"] += 1
        self._seen["uncounted"] += tokens is None
        return (prompt.messages if prompt else None), tokens

    def notes(self, expected_questions: int | None) -> list[str]:
        """Return what was unusual, in sentences."""
        seen, kind = self._seen, self._kind
        notes = counted_notes(
            ("Requests missing from the source, replaced by the question's text", seen["question as request"]),
            ("Requests without a token count, so that nothing can be priced on their questions", seen["uncounted"]),
            (f"Raw answers that cannot be read as {kind} and count as no answer", seen["unreadable"]),
            (f"Stored whole numbers that name no option and are never right ({_POSITIONS_TOO})", seen["numbers"]),
            (f"Texts with thoughts, which were split off ({self._read_where()})", seen["with thoughts"]),
            (f"CoTs that end in their thoughts, without a reply, {self._without_reply()}", seen["without reply"]),
            *self._gold_facts(),
        )
        if seen["request counted by source"]:
            counter = self._counter or "words"
            notes.append(
                f"Requests with the source's own token count: {seen['request counted by source']:,}. It does not count output "
                f"tokens; those, and any other requests, were counted by {counter!r}."
            )
        for llm, probes in self._probes.items():
            notes += probes.notes(llm)
        notes += self._kind_notes()
        if not seen["stored"]:
            how = "the authors' rule" if kind == "verbatim" else EXTRACTOR_VERSION
            notes.append(f"Answers were extracted from the texts by {how}.")
        if expected_questions not in (None, len(self._questions)):
            notes.append(
                f"The source has {len(self._questions)} questions; the dataset's card says {expected_questions}."
            )
        return notes

    def _read_where(self) -> str:
        if self._seen["stored"]:
            return "stored answers may come from a thought; `--answers text` reads the replies alone"
        return "answers are read in the replies alone"

    def _without_reply(self) -> str:
        """Return what becomes of an answer that is stored for a CoT without a reply."""
        if self._kind == "verbatim" and self._seen["stored"]:
            return "whose stored answers stay"
        return "which is no answer" + ", whatever the source stores" * bool(self._seen["stored"])

    def _gold_facts(self) -> list[tuple[str, int]]:
        golds = [canonical_gold(self._kind, q.gold, q.choices) for q in self._questions if q.gold is not None]
        need = "accuracies need one, or --unlabelled drop"
        return [
            (f"Questions without a gold answer ({need})", len(self._questions) - len(golds)),
            (f"Gold answers that cannot be read as {self._kind} ({need})", golds.count(None)),
        ]

    def _kind_notes(self) -> list[str]:
        """Return a note where the dataset's answer kind and the source's authors judge answers differently."""
        differ = {
            name: right for name, right in self._right.items() if right.by_kind != right.as_stored and right.stored
        }
        if not differ:
            return []
        shares = "; ".join(f"{name}: {right.shares()}" for name, right in list(differ.items())[:20])
        note = (
            f"Right CoTs, read as {self._kind} (the kind on the dataset's card) and compared as the source's authors have the "
            f"answers, text for text: {shares}. For the second figure, import with --answer-kind verbatim."
        )
        return [note]


@dataclass(slots=True)
class _RightCots:
    """How many CoTs of an LLM are right, by the dataset's answer kind and as the source stores the answers."""

    by_kind: int = 0
    as_stored: int = 0
    cots: int = 0
    stored: int = 0

    def add(self, by_kind: int, as_stored: int, cots: int, stored: int) -> None:
        self.by_kind += by_kind
        self.as_stored += as_stored
        self.cots += cots
        self.stored += stored

    def shares(self) -> str:
        return f"{self.by_kind / self.cots:.1%} and {self.as_stored / self.cots:.1%}".replace("%", " %")


def _output_tokens(question: SourceQuestion, pool: SourcePool, count: Callable[[str], int] | None) -> Sequence[int]:
    if count is None:
        return pool.tokens or []
    if None in pool.texts:
        raise SourceError(
            f"A CoT of question {question.id!r} has neither text nor a usable token count, so its cost is not known. "
            "Give the source 'text' or 'tokens' for each CoT."
        )
    # Reasoning apart from the text was sampled and paid for, too.
    apart = pool.reasoning or [None] * len(pool.texts)
    columns = zip(pool.texts, apart, strict=True)
    return [count(text) + count(thoughts or "") for text, thoughts in columns if text is not None]
