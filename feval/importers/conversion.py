"""From the columns of a source to a recording: answers normalised, tokens counted, everything
unusual noted.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from feval.answers import EXTRACTOR_VERSION, canonical_gold, extract, normal_forms
from feval.answers.equality import named_equality
from feval.answers.thoughts import reply_behind
from feval.arguments import checked, in_python
from feval.cards import find_dataset_card, price_list, thoughts_of
from feval.cards.tokens import NONE, token_counter
from feval.errors import (
    ConflictError,
    FevalError,
    OutOfRangeError,
    SourceError,
    TokenCounterError,
    UsageError,
    require_known,
)
from feval.executors import Progress, reports
from feval.importers import harnesses, jsonl, papers, tables
from feval.importers.columns import LARGEST
from feval.importers.exported import Facts, facts_of
from feval.importers.layouts import Layout, layout_of
from feval.importers.pools import Reading, pool_rows
from feval.importers.questions import completed, known_answer_kind, read_questions
from feval.importers.reading import Reader, file_state, fingerprint
from feval.importers.source import (
    Importer,
    ImportRequest,
    SourceContent,
    SourceLLM,
    SourcePool,
    SourceQuestion,
    counted_notes,
)
from feval.importers.stored_rows import StoredRows
from feval.recording import (
    DatasetInfo,
    ProbeRows,
    Question,
    RecordingWriter,
    ScorerInfo,
    ScoreRows,
    storage_errors,
)
from feval.recording.arrays import direction_question
from feval.recording.content import VERDICT
from feval.values import Record, RecordLike

_HINT_BYTES = 16 << 20
_MOST_IDS = 5  # that a note lists
_POSITIONS_TOO = (
    "golds are positions, stored answers are read as written: write labels, or read the replies,"
    " `--answers text`"
)
_FLOATS = (
    "pandas writes whole numbers beside missing ones so: write them without, or choose the kind"
    " `number`"
)

ANSWERS = ("stored", "text")
"""Where raw answers come from: the source where it stores them, else the texts; or always the
texts.
"""

DUPLICATES = ("note", "refuse", "merge")
"""What becomes of questions with one text."""


@in_python
@checked
@reports("importing")
def import_recording(
    format: str,  # noqa: A002 (the command's own word, and the first argument by position)
    source: str | Path,
    out: str | Path,
    *,
    dataset: str | None = None,
    llm: str | Sequence[str] | None = None,
    answer_kind: str | None = None,
    counter: str | None = None,
    questions: str | Path | None = None,
    prices: str = "2025-06-02",
    answers: str = "stored",
    equality: str | None = None,
    keep_duplicates: bool = False,
    duplicates: str = "note",
    temperature: float | None = None,
    max_tokens: int | None = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
    map: Mapping[str, str] | None = None,  # noqa: A002 (the option's name on the command line)
    scores: Mapping[str, str] | Iterable[str] | str = (),
    ignore: Iterable[str] | str = (),
    outcome: Mapping[str, str] | Iterable[str] = (),
    usd: RecordLike | Iterable[str] = (),
    feature: Iterable[str] = (),
    layout: Layout | str | Path | None = None,
    trust_layout: bool = False,
    address: str | None = None,
) -> Path:
    """Make a recording from a file that somebody else recorded, and return its folder.

    Args:
        format: a key of `IMPORTERS`.
        source: the file, which may be compressed by gzip.
        out: folder to create.
        dataset: id of the dataset. Question ids are `<dataset>/<row>` unless the source has ids.
            `None`: a table names its own.
        llm: name of the LLM (with a variant, such as "gpt-3.5-turbo@t=0.8"), or names of those to
            take from a source that has several; `None` takes all of them.
        answer_kind: a key of `feval.answers.KINDS`; `None`: the dataset card's.
        counter: a token counter (`feval.cards.tokens`); `None`: the source's counts where it has
            any, else "words".
        questions: file with texts, golds and options, joined by question id.
        prices: id of the price list that the recording names, or "none"; "recorded" where there
            are no tokens, and CoTs state their USD.
        answers: "stored": those that the source stores, else extracted from the texts; "text":
            always extracted.
        equality: of answers, see `feval.answers.equality.named_equality`; `None`: that of the
            answer kind.
        keep_duplicates: keep samples that the source is known to have stored twice.
        duplicates: where two questions have one text and the same options, "note" it, "refuse"
            the source, or "merge" them into the first of a table.
        temperature: of the decoding, where the source does not say; `None`: not known.
        max_tokens: limit on output tokens, where the source does not say; `None`: not known.
        progress: called with the pools done and the pools in all.
        executor: reads the answers in the CoTs, see `feval.executors`; `None` for this process.
            The recording is the same.
        map: of a table, as in `from_dataframe`: feval's column -> the table's.
        scores: columns with scores, likewise.
        ignore: columns that are not read, likewise.
        outcome: columns with the verdicts on an LLM of this name, or LLM -> column.
        usd: LLM of `outcome` -> USD per CoT, or the column with them.
        feature: columns with a feature of the question, which is kept with it.
        layout: a published layout, or a mapping file, likewise.
        trust_layout: whether the layout may be one that never read a real file.
        address: where the file was fetched from, such as "hf://us/answers@COMMIT/data/train", to be
            noted in the recording.

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
    require_known("import format", format, IMPORTERS)
    importer = IMPORTERS[format]
    named = [llm] if isinstance(llm, str) else llm or ()
    llms = tuple(str(each) for each in dict.fromkeys(named))
    source, out, questions = Path(source), Path(out), None if questions is None else Path(questions)
    scores, ignore = ([each] if isinstance(each, str) else each for each in (scores, ignore))
    layout = layout_of(
        layout,
        map or {},
        scores,
        ignore,
        outcome=outcome,
        usd=usd,
        feature=feature,
        trusted=trust_layout,
    )
    request = ImportRequest(
        str(dataset or ""),
        llms,
        None,
        keep_duplicates,
        temperature,
        max_tokens,
        layout=layout,
        merges=duplicates == "merge",
    )
    _check_options(request, answers, duplicates)
    is_table = importer.files is not None
    if request.merges and not is_table:
        raise UsageError("Only questions of a table are merged: feval import table FILE.")
    if not is_table and (layout != Layout() or not request.dataset):
        raise UsageError(
            f"A {importer.name} source is not a table: its columns have fixed names, and its"
            " dataset needs an id, --dataset ID."
        )
    if importer.facts is not None and layout == Layout():
        request = replace(request, facts=importer.facts(source))
    card = find_dataset_card(request.dataset)
    kinds = answer_kind, layout.answer_kind, request.facts
    known = (
        _dataset_info(request.dataset, equality, *kinds)
        # of a table, all that is missing is said at once
        if request.dataset and (any((*kinds, card)) or not is_table)
        else None
    )
    sources = list(importer.files(source, request)) if importer.files else [source]
    files = sources if questions is None else [*sources, questions]
    before = {path: file_state(path) for path in files}
    operation: Record = {
        "name": "import",
        "format": importer.name,
        "source": fingerprint(source)
        if sources == [source]
        else [fingerprint(file) for file in sources],
        "questions": questions and fingerprint(questions, "the questions file (--questions)"),
        "answers": answers,
        "keep_duplicates": keep_duplicates,
    }
    if importer.beside is not None:
        operation["beside"] = [fingerprint(file) for file in importer.beside(source)]
    if is_table:
        operation["layout"] = layout.about()
    if address is not None:
        operation["address"] = address
    listed = prices if prices == "none" else price_list(prices, llms)  # reports mistakes early
    licences, counters, names = set[str](), set[str](), list[str]()
    with RecordingWriter(out, operation=operation, prices=listed) as writer:
        reader = Reader()
        file = None if questions is None else read_questions(questions, request.dataset, reader)
        with storage_errors(out):  # temporary files
            kind = known.answer_kind if known else answer_kind
            given = replace(request, questions=file, scratch=writer.root, answer_kind=kind)
            imported = _read(importer, source, given)
        done, parts = 0, (imported, *imported.others)
        total = sum(part.llm_count * len(part.questions) for part in parts)

        def report(now: int) -> None:
            if progress is not None:
                progress(done + now, total)

        for part in parts:
            info = _dataset_info(part.dataset or request.dataset, equality, *kinds)
            card = find_dataset_card(info.id)
            licences.add(info.licence or "not stated")
            joined, gold_notes = completed(
                part.questions,
                file,
                info.answer_kind,
                (source.name, questions.name if questions else ""),
            )
            reading = Reading(
                importer,
                info.answer_kind,
                info.equality,
                always_text=answers == "text",
                compares=card is not None
                and answer_kind is request.facts is None
                and info.answer_kind != "verbatim",
                golds_are_positions=bool(gold_notes),
            )
            conversion = _Conversion(
                joined, reading, counter, writer.root, part.scorers, layout.grader
            )
            info = replace(info, extractor=EXTRACTOR_VERSION) if answers == "text" else info
            writer.add_dataset(
                replace(info, system_prompt=part.system_prompt), conversion.questions()
            )
            if duplicates == "refuse" and conversion.same_texts:
                raise ConflictError(
                    f"{next(iter(conversion.same_texts))}, are refused, as requested. Give them one"
                    " id, or merge them, --duplicates merge."
                )
            for one in part.llms:
                conversion.write(writer, info.id, one, executor, report)
                names.append(one.info.name)
                done += len(joined)
            counters |= conversion.counters
            # no price list is for tokens that nobody knows
            is_paid = counters == {NONE} and conversion.states_usd and prices != "none"
            if is_paid:
                writer.prices = "recorded"
            elif prices != "none":
                writer.prices = price_list(prices, names)
            expected = card.questions if card else None
            noted = [*layout.notes(), *part.notes, *reader.notes(), *gold_notes]
            for note in [*noted, *conversion.notes(expected)]:
                writer.note(note)
        stated = "; ".join(sorted(licences))
        writer.licences["questions"] = None if stated == "not stated" else stated
        for file_read, state in before.items():
            if file_state(file_read) != state:
                raise SourceError(
                    f"{file_read} changed while it was read; import it again when nothing writes"
                    " to it."
                )
    return out


def _dataset_info(
    dataset: str, equality: str | None, answer_kind: str | None, default: str, facts: Facts | None
) -> DatasetInfo:
    """Return what identifies a dataset: what the source says of it, else its card's facts, where it
    has one, else the layout's `default`.
    """
    card, stated = find_dataset_card(dataset), None if facts is None else facts.of(dataset)
    extractor = EXTRACTOR_VERSION
    if stated is not None and answer_kind in (None, stated.answer_kind):
        answer_kind, equality, extractor = (
            stated.answer_kind,
            equality or stated.equality,
            stated.extractor,
        )
    kind = known_answer_kind(dataset, answer_kind, default)
    title, licence = (card.title, card.licence) if card else (dataset, None)
    return DatasetInfo(
        dataset, title, kind, extractor, None, licence, named_equality(kind, equality)
    )


def _read(importer: Importer, source: Path, request: ImportRequest) -> SourceContent:
    """Read a source; an error names the format that fits, where another one does."""
    try:
        return importer.read(source, request)
    except SourceError as error:
        error.with_traceback(None)  # its frames hold what was read of the source
        fitting = []
        for other in IMPORTERS.values():
            # a large source is not read again just for a hint
            with suppress(FevalError, OSError):
                # of a table whose columns were named, another format would not know them
                is_plain = request.layout in (None, Layout())
                if other is not importer and other.files is None and is_plain:
                    is_small = source.stat().st_size <= _HINT_BYTES
                    if is_small and other.read(source, request).questions:
                        fitting.append(other.name)
        if not fitting:
            raise
        raise SourceError(
            f"{error} It can be read as {' or '.join(map(repr, fitting))}: name that format."
        ) from error


def _check_options(request: ImportRequest, answers: str, duplicates: str) -> None:
    require_known("treatment of duplicates", duplicates, DUPLICATES)
    require_known("place to take answers from", answers, ANSWERS)
    if request.temperature is not None and not (
        math.isfinite(request.temperature) and request.temperature >= 0
    ):
        raise OutOfRangeError(f"A temperature is a number from 0; {request.temperature} was given.")
    if request.max_tokens is not None and not 1 <= request.max_tokens <= LARGEST:
        raise OutOfRangeError(
            f"The limit on output tokens is 1 to {LARGEST}; {request.max_tokens} was given."
        )


class _Conversion:
    """Makes the rows of one import, question by question, and counts what is unusual."""

    def __init__(
        self,
        questions: Sequence[SourceQuestion],
        reading: Reading,
        counter: str | None,
        scratch: Path,
        scorers: Mapping[str, ScorerInfo],
        grader: RecordLike,
    ) -> None:
        self._importer, self._kind, self._reading = reading.importer, reading.kind, reading
        self._questions, self._counter, self._scratch = questions, counter, scratch
        self._known_scorers, self._grader = scorers, {**grader}
        self._seen: dict[str, Counter[str]] = {}
        self._scorers: dict[str, int] = {}  # and their numbers among what is set apart
        self._graders = set[str]()
        self.counters = set[str]()
        self.states_usd = False
        self._cots = Counter[str]()
        # CoTs of an LLM with a score or a verdict by a scorer, or USD
        self._having = Counter[tuple[str, str]]()
        self._counted = Counter[str]()
        self.same_texts = Counter[str]()
        self._notes: list[str] = []
        if (
            self._kind == "verbatim"
            and reading.always_text
            and self._importer.upstream_answer is None
        ):
            raise UsageError(
                f"Verbatim answers are the stored ones of a {self._importer.name} source, and"
                " answers from the texts were asked for; choose another answer kind, or the stored"
                " answers."
            )

    def questions(self) -> Iterator[Question]:
        """Yield the questions with their canonical golds."""
        first: dict[int, str] = {}
        for q in self._questions:
            one = first.setdefault(hash((q.text or q.id, q.choices)), q.id)
            if one != q.id:
                said = f"Questions with the text of another, such as {one!r}"
                self.same_texts[next(iter(self.same_texts), said)] += 1
            yield Question(
                q.id,
                q.text or "",
                q.gold,
                canonical_gold(self._kind, q.gold, q.choices),
                q.choices,
                q.features,
            )

    def write(
        self,
        writer: RecordingWriter,
        dataset: str,
        llm: SourceLLM,
        executor: Executor | None,
        report: Callable[[int], None],
    ) -> None:
        """Write the CoTs of an LLM, their scores and probes. Tokens are counted by the counter that
        was asked for, else by the source, else in words.
        """
        name = llm.info.name
        if self._counter == "usage" and not llm.counted:
            raise TokenCounterError(
                "The token counter 'usage' stands for counts in the source, and this"
                f" {self._importer.name} source has none for {name}; take 'words' or"
                " 'tiktoken:ENCODING'."
            )
        counter = self._counter or llm.counter or ("usage" if llm.counted else "words")
        self.counters.add(counter)
        self._scorers, self._apart, self._has_probes = {}, StoredRows(self._scratch), False
        self._graders.clear()
        reading = replace(
            self._reading,
            count=None if counter in ("usage", llm.counter) else token_counter(counter),
            counted=llm.counted,
            thoughts=thoughts_of(name),
            seen=self._seen.setdefault(name, Counter()),
        )
        pairs = self._cots_alone(name, llm.pools)
        rows = pool_rows(reading, pairs, executor, self._scratch)
        writer.add_pools(dataset, llm.info, counter, rows, report)
        for scorer, group in self._scorers.items():
            scored = (
                ScoreRows(self._questions[number].id, *columns)
                for number, (columns,) in self._apart.questions(group)
            )
            # the same columns have one origin, so that exports of either come back equal
            origin = "jsonl" if self._importer.name == "table" else self._importer.name
            kind = VERDICT if scorer in self._graders else "imported"
            facts = self._grader if kind == VERDICT else {}
            own = ScorerInfo(scorer, kind, {"format": origin} | facts)
            info = self._known_scorers.get(scorer, own)
            writer.add_rows(dataset, name, info, scored)
        if self._has_probes:
            writer.add_rows(dataset, name, llm.probe_cue, self._probe_rows(llm))

    def _scores_of(
        self, question: SourceQuestion, pool: SourcePool
    ) -> Iterator[tuple[str, ScoreRows]]:
        """Yield scorers with their scores of a question; the grader with its verdicts, too."""
        yield from pool.scores.items()
        before = self._graders - {pool.grader} if pool.grader else set()
        if before or pool.graded.keys() & pool.scores:
            others = ", ".join(sorted(before)) or "a scorer of that name"
            raise ConflictError(
                f"Question {question.id!r:.80} has verdicts of {' and '.join(pool.graded)!r:.80},"
                f" and there are others of {others:.200}. One grader says how right the CoTs of an"
                " LLM are: import the verdicts of one."
            )
        self._graders.update(pool.graded)
        yield from pool.graded.items()

    def _cots_alone(
        self, llm: str, pools: Iterable[SourcePool]
    ) -> Iterator[tuple[SourceQuestion, SourcePool]]:
        """Yield questions and pools; scores and probes wait until all pools were written."""
        sizes = Counter[int]()
        empty: list[str] = []
        several = varied = False
        for number, (question, pool) in enumerate(zip(self._questions, pools, strict=True)):
            size = len(pool.texts)
            if usd := pool.extra.get("usd"):
                self.states_usd = True
                self._having["USD", llm] += size - list(usd).count(None)
            self._cots[llm] += size
            if pool.ends is None:
                sizes[size] += 1
                if not size and len(empty) < _MOST_IDS:
                    empty.append(question.id)
                several |= size > 1 and bool(pool.texts[0])
                # of agents with one text, verdicts and tokens say whether they did the same
                columns = (pool.texts, pool.tokens, *(own.scores for own in pool.graded.values()))
                varied = varied or any(len({*each}) > 1 for each in columns if each)
            for scorer, rows in self._scores_of(question, pool):
                what = VERDICT if scorer in self._graders else "score"
                self._having[f"a {what} by {scorer}", llm] += len(rows.sample_indices)
                group = self._scorers.setdefault(scorer, len(self._scorers) + 1)
                self._apart.add(group, number, (rows.sample_indices, rows.scores, rows.step_scores))
            if pool.probes:
                self._has_probes = True
                self._apart.add(0, number, pool.probes)
                if pool.tokens is not None:
                    beyond = sum(probe[1] > pool.tokens[probe[0]] for probe in pool.probes)
                    self._counted["Probes at offsets beyond the end of their CoT"] += beyond
            yield (
                question,
                (
                    replace(pool, scores={}, probes=(), graded={})
                    if pool.scores or pool.probes or pool.graded
                    else pool
                ),
            )
        if several and not varied:
            self._notes.append(
                f"On every question all samples of {llm} are the same text: the decoding was"
                " greedy, or one seed was sent with each of them. They are one sample stored"
                " several times, which tell no more than one."
            )
        if len(sizes) > 1:
            ((usual, most),) = sizes.most_common(1)
            self._notes.append(
                f"The pools of {llm} are ragged: {min(sizes)} to {max(sizes)} samples;"
                f" {sizes.total() - most:,} of {sizes.total():,} do not have {usual}."
            )
        if sizes[0]:
            ids = ", ".join(empty) + (", ..." if sizes[0] > len(empty) else "")
            self._notes.append(
                f"Questions without samples of {llm}: {sizes[0]:,} of {sizes.total():,} ({ids})."
            )

    def _probe_rows(self, llm: SourceLLM) -> Iterator[ProbeRows]:
        """Yield the probes of the LLM whose pools came last, with their answers normalised.

        A probe sees a prefix of its CoT only: its answer is stored or read in its own text, and
        never that of the CoT or another probe.
        """
        unreadable = (
            f"Raw answers of probes of {llm.info.name} that cannot be read as {self._kind} and"
            " count as no answer"
        )
        for number, (probes,) in self._apart.questions(0):
            question = self._questions[number]
            samples, offsets, stored, texts, tokens, confidences = zip(*probes, strict=True)
            raw: Sequence[str | None] = stored
            if not llm.probes_answered or self._reading.always_text:
                raw = self._answers_of_probes(question, texts, llm.probe_cue)
            answers = normal_forms(self._kind, raw, question.choices)
            self._counted[unreadable] += answers.count(None) - list(raw).count(None)
            given = (None if set(each) == {None} else each for each in (texts, tokens, confidences))
            yield ProbeRows(question.id, samples, offsets, raw, answers, *given)

    def _answers_of_probes(
        self, question: SourceQuestion, texts: Sequence[str | None], cue: str | None
    ) -> Sequence[str | None]:
        """Return the answers that are read in texts as the ends of replies that begin with the
        cue.
        """
        if self._reading.always_text and None in texts:
            raise UsageError(
                "Answers from the texts were asked for (--answers text), and probes of question"
                f" {question.id!r} have no text; take the stored answers."
            )
        if self._kind == "verbatim" and any(texts):
            raise UsageError(
                f"Verbatim answers are the stored ones, and the probes of question {question.id!r}"
                " have texts alone; choose an answer kind that can be extracted from them,"
                " --answer-kind KIND."
            )
        answer_of: dict[str | None, str | None] = {None: None}
        for text in {*texts} - {None}:
            reply = reply_behind(cue, text or "")
            answer_of[text] = (
                None if reply is None else extract(self._kind, reply, question.choices)
            )
        return [answer_of[text] for text in texts]

    def notes(self, expected_questions: int | None) -> list[str]:
        """Return what was unusual, in sentences."""
        seen, kind = sum(self._seen.values(), Counter[str]()), self._kind
        stored = seen["stored"] > 0
        where, without = "answers are read in the replies alone", "which is no answer"
        if stored:
            where = (
                "stored answers may come from a thought; `--answers text` reads the replies alone"
            )
            without += ", whatever the source stores"
            if kind == "verbatim":
                without = "whose stored answers stay"
        golds = [
            canonical_gold(kind, q.gold, q.choices) for q in self._questions if q.gold is not None
        ]
        seen["gold"], seen["unreadable gold"] = len(self._questions) - len(golds), golds.count(None)
        need = "accuracies need one or verdicts, or --drop unlabelled"
        said = {
            "question as request": (
                "Requests missing from the source, replaced by the question's text"
            ),
            "uncounted": (
                "Requests without a token count, so that nothing can be priced on their questions"
            ),
            "unreadable": f"Raw answers that cannot be read as {kind} and count as no answer",
            "numbers": (
                f"Stored whole numbers that name no option and are never right ({_POSITIONS_TOO})"
            ),
            "as floats": (
                "Stored answers that differ from the gold in '.0' alone and are never right"
                f" ({_FLOATS})"
            ),
            "with thoughts": f"Texts with thoughts, which were split off ({where})",
            "without reply": f"CoTs that end in their thoughts, without a reply, {without}",
            "gold": f"Questions without a gold answer ({need})",
            "unreadable gold": f"Gold answers that cannot be read as {kind} ({need})",
        }
        notes = counted_notes(*((sentence, seen[name]) for name, sentence in said.items()))
        if seen["request counted by source"]:
            counter = self._counter or "words"
            notes.append(
                "Requests with the source's own token count:"
                f" {seen['request counted by source']:,}. It does not count output tokens; those,"
                f" and any other requests, were counted by {counter!r}."
            )
        counted = (*self._counted.items(), *self.same_texts.items())
        notes += [*counted_notes(*counted), *self._notes]
        for (what, llm), having in self._having.items():
            notes += counted_notes((f"CoTs of {llm} without {what}", self._cots[llm] - having))
        # the dataset's answer kind and the source's authors may judge answers differently
        shares = [
            f"{name}: {seen['right'] / seen['compared']:.1%} and"
            f" {seen['right as stored'] / seen['compared']:.1%}"
            for name, seen in self._seen.items()
            if seen["right"] != seen["right as stored"] and seen["compared as stored"]
        ]
        if shares:
            listed = "; ".join(shares[:20]).replace("%", " %")
            notes.append(
                f"Right CoTs, read as {kind} (the kind on the dataset's card) and compared as the"
                f" source's authors have the answers, text for text: {listed}. For the second"
                " figure, import with --answer-kind verbatim."
            )
        notes += filter(None, map(direction_question, self._scorers))
        if not stored and seen["texts"]:
            how = "the authors' rule" if kind == "verbatim" else EXTRACTOR_VERSION
            notes.append(f"Answers were extracted from the texts by {how}.")
        if expected_questions not in (None, len(self._questions)):
            notes.append(
                f"The source has {len(self._questions)} questions; the dataset's card says"
                f" {expected_questions}."
            )
        return notes


_FORMATS = (
    Importer(
        "feval-ttc", "the zip archive of the FEval-TTC reference package", papers.read_feval_ttc
    ),
    Importer("mot-cascade", "LLM Cascades with Mixture of Thoughts, JSON", papers.read_mot),
    Importer(
        "esc",
        "Early-Stopping Self-Consistency, JSON Lines",
        partial(tables.read_as, "esc"),
        papers.esc_answer,
    ),
    Importer(
        "coupled-mmlu",
        "Coupled Token Generation on MMLU, CSV",
        papers.read_coupled_mmlu,
        papers.mmlu_answer,
    ),
    Importer("modelswitch", "ModelSwitch, JSON", partial(tables.read_as, "modelswitch")),
    Importer(
        "linc",
        "LINC, labels with references and texts beside them, JSON",
        papers.read_linc,
        beside=papers.beside_linc,
    ),
    Importer(
        "game24", "Tree of Thoughts' naive samples on the Game of 24, JSON", papers.read_game24
    ),
    Importer(
        "probed-traces",
        "AutoTTS and Parallel-Probe, traces with probes, JSON",
        partial(tables.read_as, "probed-traces"),
    ),
    Importer(
        "lm-eval",
        "lm-evaluation-harness, samples_*.jsonl with results_*.json beside it",
        harnesses.read_lm_eval,
        beside=harnesses.beside_lm_eval,
    ),
    Importer(
        "inspect-ai", "inspect-ai logs, .eval or .json; epochs are CoTs", harnesses.read_inspect_ai
    ),
    Importer(
        "lighteval",
        "lighteval details, Parquet with results_*.json beside it",
        harnesses.read_lighteval,
        beside=harnesses.beside_lighteval,
    ),
    Importer("jsonl", "feval's generic JSON Lines, described in docs/import-rows.md", jsonl.read),
    Importer(
        "table",
        "a table with a row for each CoT: CSV, Parquet, Arrow, JSON",
        tables.read,
        files=tables.named_files,
        facts=facts_of,
    ),
)
IMPORTERS: Mapping[str, Importer] = {importer.name: importer for importer in _FORMATS}
"""The formats `feval import` reads, by name."""
