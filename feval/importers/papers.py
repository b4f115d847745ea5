"""Samples published with papers, in formats that no layout says: what becomes rows here, and the
authors' own rules of reading answers.

MoT (LLM Cascades with Mixture of Thoughts, Yue et al., ICLR 2024, https://arxiv.org/abs/2310.03094)
leaves out the results of programs that failed, so a question may have fewer results than texts,
and nothing says which text each belongs to. Coupled MMLU (Benz et al., 2025,
https://arxiv.org/abs/2502.01754) is CSV with one column named 0: record q*10+s is question q,
sample s. LINC (EMNLP 2023, https://arxiv.org/abs/2310.15164) is a JSON array with a list of labels
per question, and golds, texts and the model in files beside it. Tree of Thoughts (2023,
https://arxiv.org/abs/2305.10601) logs naive samples on the Game of 24.

The archive of the FEval-TTC reference package (https://arxiv.org/abs/2511.01203) is a zip of JSON
texts. For a dataset D: `dataset_D.txt` (questions, golds, system prompt), `dataset_D_models.txt`
(the LLMs recorded) and `LLM_<id>_dataset_D.txt` for each (config, and per question the request and
its CoTs). D is the package's own name, which stands on our dataset's card; an id without a card is
looked up as it is. Nothing is unpacked to disk. Verbatim answers are the stored ones. The stored
token counts are the package's own, 1.365 per word.
"""

from __future__ import annotations

import ast
import hashlib
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from feval.answers import decimal_key
from feval.cards.cards import find_dataset_card, our_dataset_id
from feval.errors import SourceError, UsageError, require_known
from feval.importers.columns import (
    LARGEST,
    finish_reason,
    member,
    refuse,
    scalar_text,
    sentence_start,
    strings,
    whole,
    whole_number,
)
from feval.importers.files import opened_table
from feval.importers.reading import Archive, Reader, opened_archive, read_bytes
from feval.importers.rows import collected
from feval.importers.source import (
    ImportRequest,
    Row,
    SourceContent,
    SourceLLM,
    SourcePool,
    SourceQuestion,
    chat,
    counted_notes,
)
from feval.recording import LLMInfo
from feval.values import inside

# SHA-256 of the uncompressed file -> what its content alone does not show.
_KNOWN_FAULTS = {
    "b2ad006e68e5eacd611705f3c18a9e281b45f89ff35aeb99f592b85203745f27": (
        "This recording (date_cot1_40) is not independent of two others: on every question, samples"
        " 1 to 20 are those of date_cot1 and samples 21 to 40 those of date_cot1_t=0.4."
    )
}
_NO_LETTER = re.compile("[^a-z]+")
_LETTERS = frozenset("ABCD")
_PUNCTUATION = str.maketrans("", "", '.",);')
_MMLU_SAMPLES = 10
_SCHEME = "coupled-llm-evaluation"  # theirs: Gumbel noise from torch, seeded anew for every reply
_SEED = re.compile(r"_seed([0-9]{1,18})\b")
_LINC = "_generations_prc.json"
_TARGET = "24"
_EXPRESSION = re.compile(r"[-+*/() 0-9]{1,300}")  # a solution is shorter
_OPERATORS: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv
}  # fmt: skip
_LABEL = re.compile("answer: ", re.IGNORECASE)


def esc_answer(text: str) -> str:
    """Return the answer that the rule of Early-Stopping Self-Consistency reads: the letters behind
    the last "the answer is", of the whole text without it; "" where none is left, which votes.
    """
    return _NO_LETTER.sub("", text.lower().rpartition("the answer is")[2])


def mmlu_answer(text: str) -> str:
    """Return the letter that the rule of Coupled MMLU reads from a reply: its first word without
    punctuation, else what stands before the first line break in that; E where that is none of A to
    D, which votes and is wrong.
    """
    word = text.split(" ", 1)[0].translate(_PUNCTUATION).strip()
    if word in _LETTERS:
        return word
    first = word.split("\n", 1)[0]
    return first if first in _LETTERS else "E"


def _entries(source: Path, reader: Reader) -> Iterator[tuple[int, Any, str]]:
    """Yield number, content and place of the entry of each question in a JSON array."""
    entries = reader.entries(read_bytes(source), source.name)
    for row, entry in enumerate(entries):
        yield row, entry, f"question {row} of {source.name}"


def read_mot(source: Path, request: ImportRequest) -> SourceContent:
    """Read MoT: `question`, `answer` (gold), `generated` (texts), `results` (the extracted answers,
    null where none).
    """
    reader, kinds = Reader(), Counter[type]()
    entries: list[Any] = []
    for row, entry, where in _entries(source, reader):
        about = {
            "id": request.question_id(row),
            "question": member(entry, "question", str, where),
            "gold": _gold(member(entry, "answer", object, where), where),
        }
        texts = strings(member(entry, "generated", list, where), where)
        results = member(entry, "results", list, where)
        if len(texts) < len(results):
            raise SourceError(
                f"{sentence_start(where)} has {len(texts)} texts in 'generated' and {len(results)}"
                " answers in 'results'; there should be at most one answer for each text."
            )
        kinds.update(map(type, [*results, {}] if isinstance(entry["answer"], dict) else results))
        entries.append((about, where, texts, results))
    notes = counted_notes(
        (
            "Gold answers that are an object {option: 0 or 1}, whose option marked 1 was taken",
            kinds.pop(dict, 0),
        )
    )
    if kinds[str] and kinds[int] + kinds[float]:
        notes.append(
            f"{kinds[str]} of {kinds.total()} stored answers are text among numbers; they were kept"
            " as they are."
        )
    digest = hashlib.sha256(read_bytes(source)).hexdigest()
    notes += [_KNOWN_FAULTS[digest]] if digest in _KNOWN_FAULTS else []
    stored_twice = all(
        _half(column) * 2 == column for *_, texts, results in entries for column in (texts, results)
    )
    # greedy decoding repeats itself anyway
    if stored_twice and any(len({*texts}) > 1 for _, _, texts, _ in entries):
        if not request.keep_duplicates:
            entries = [(*about, _half(texts), _half(results)) for *about, texts, results in entries]
        kept = "both halves were kept, as requested"
        notes.append(
            "On every question the second half of the samples repeats the first half;"
            f" {kept if request.keep_duplicates else 'only the first half was imported'}."
        )
    failed: list[str] = []
    unpaired: list[str] = []
    questions = []
    for about, where, texts, answers in entries:
        if len(answers) < len(texts):
            (unpaired if answers else failed).append(about["id"])
            texts, answers = ([], []) if answers else (texts, [None] * len(texts))
        questions.append((about, _cots(texts, answers), where))
    for what, ids, result in (
        ("with texts and no result", failed, "Their texts were imported without answers."),
        (
            "with fewer results than texts",
            unpaired,
            (
                "The source does not say which text each result belongs to, so their samples were"
                " not imported: their pools are empty. On the other questions no program failed, or"
                " every one, so results on them are not results on the whole dataset."
            ),
        ),
    ):
        if ids:
            shown = ", ".join(ids[:5]) + ", ..." * (len(ids) > 5)
            notes.append(f"Questions {what}: {len(ids):,} of {len(entries):,} ({shown}). {result}")
    return collected(source, request, questions, reader, notes)


def _cots(texts: Sequence[str], answers: Sequence[Any]) -> list[Row]:
    return [{"text": t, "answer": a} for t, a in zip(texts, answers, strict=True)]


def _half(values: list[Any]) -> list[Any]:
    return values[: len(values) // 2]


def _gold(answer: Any, where: str) -> str | None:
    """Return the gold answer; from an object {option: 0 or 1}, the option marked 1."""
    if not isinstance(answer, dict):
        return scalar_text(answer, f"The gold answer of {where}")
    right = [option for option, mark in answer.items() if type(mark) is not bool and mark == 1]
    if len(right) != 1:
        raise SourceError(
            f"The gold answer of {where} is an object {{option: 0 or 1}} with {len(right)} options"
            " marked 1; it should be one."
        )
    return str(right[0])


def read_coupled_mmlu(source: Path, request: ImportRequest) -> SourceContent:
    """Read Coupled MMLU. The request has the questions, in the order of the recording; a seed in
    the file's name goes into the decoding.
    """
    reader, name = Reader(), source.name
    if request.questions is None:
        raise UsageError(
            f"{name} has replies only; pass the questions or an answer key, --questions FILE."
        )
    with opened_table(source, reader) as table:
        if table.columns != ["0"]:
            raise SourceError(
                f"{name} should be CSV with one column named 0; its columns are"
                f" {table.columns!r:.80}."
            )
        texts = [{"text": row.cells["0"] or ""} for row in table.rows]
    count, rest = divmod(len(texts), _MMLU_SAMPLES)
    if not count or rest:
        raise SourceError(
            f"{name} has {len(texts)} replies; it should be {_MMLU_SAMPLES} for each question. Is"
            " the file whole?"
        )
    known = {question.id: question for question in request.questions}
    ids = list(map(request.question_id, range(count)))
    if known.keys() != {*ids}:
        raise SourceError(
            f"{name} has the replies to {count} questions, {ids[0]!r} to {ids[-1]!r}; the questions"
            f" file has {len(known)}, from {next(iter(known), 'none')!r}. The two must have the"
            " same questions."
        )
    about: Row = {}
    notes = []
    if seeded := _SEED.search(name):
        seed = int(seeded[1])
        about["decoding"] = {"noise": {"scheme": _SCHEME, "seed": seed}}
        notes.append(
            f"The replies were drawn with noise seed {seed}. LLMs recorded with the same seed share"
            " their noise, reply by reply: their answers are correlated beyond the question."
        )
    if not all(question.text for question in known.values()):
        notes.append(
            "The questions file has no texts; requests and their tokens are not known, so nothing"
            " can be priced."
        )
    questions = (
        (
            about | {"id": each, "question": known[each].text, "gold": known[each].gold},
            texts[row * _MMLU_SAMPLES :][:_MMLU_SAMPLES],
            f"question {row} of {name}",
        )
        for row, each in enumerate(ids)
    )
    return collected(source, request, questions, reader, notes)


def beside_linc(source: Path) -> tuple[Path, ...]:
    """Gold labels, texts and results of the same run, where they lie beside the labels."""
    parts = ("references", "generations_raw", "results")
    return tuple(path for part in parts if (path := _sibling(source, part)) is not None)


def _sibling(source: Path, part: str) -> Path | None:
    run, suffix, _ = source.name.rpartition(_LINC)
    paths = [source.with_name(f"{run}_{part}.json{packed}") for packed in ("", ".gz")]
    return next((path for path in paths if path.is_file()), None) if suffix else None


def read_linc(source: Path, request: ImportRequest) -> SourceContent:
    """Read LINC: labels True, False, Uncertain, or Error, which its authors drop before they take
    the majority. The request names the LLM unless results do, and may have the questions.
    """
    reader, name = Reader(), source.name
    labels = [_listed(entry, where) for _, entry, where in _entries(source, reader)]
    for row, each in enumerate(labels):
        for position, label in enumerate(each):
            if label not in {"True", "False", "Uncertain", "Error"}:
                where = f"Sample {position} of question {row} of {name}"
                refuse(where, "True, False, Uncertain or Error", label)
    golds: Sequence[Any] = [None] * len(labels)
    texts = labels
    if path := _sibling(source, "references"):
        golds = strings(reader.entries(read_bytes(path), path.name), path.name)
        if len(golds) != len(labels):
            raise SourceError(
                f"{path.name} has {len(golds)} gold labels and {name} {len(labels)} questions; they"
                " should be of one run."
            )
    if path := _sibling(source, "generations_raw"):
        texts = [_listed(entry, where) for _, entry, where in _entries(path, reader)]
        if list(map(len, texts)) != list(map(len, labels)):
            raise SourceError(
                f"{path.name} and {name} have other numbers of questions or samples; they should be"
                " of one run."
            )
    notes = counted_notes(
        ("Labels 'Error', which were read as no answer", sum(row.count("Error") for row in labels))
    )
    if texts is labels:
        notes.append(
            "The texts are not beside the labels; each label stands for its text, so that output"
            " tokens and dollars are too low."
        )
    if request.questions is None:
        notes.append(
            "The source has no question texts; requests and their tokens are not known, so nothing"
            " can be priced."
        )
    # Only a questions file has the texts of questions.
    about = _linc_model(reader, source) | {"question": "" if request.questions is None else None}
    questions = (
        (
            about | {"id": request.question_id(row), "gold": gold},
            _cots(own, [None if label == "Error" else label for label in said]),
            f"question {row} of {name}",
        )
        for row, (own, said, gold) in enumerate(zip(texts, labels, golds, strict=True))
    )
    return collected(source, request, questions, reader, notes)


def _listed(values: Any, where: str) -> list[str]:
    if not isinstance(values, list):
        refuse(sentence_start(where), "a list of samples", values)
    return strings(values, where)


def _linc_model(reader: Reader, source: Path) -> dict[str, str]:
    """Return the model with the task as its variant, from the results: "gpt-4@folio-cot-8shot";
    nothing where they name none.
    """
    path = _sibling(source, "results")
    results = reader.json(read_bytes(path), path.name) if path is not None else {}
    model = inside(results, "config", "model")
    if not isinstance(model, str) or not model:
        return {}
    tasks = [name for name in results if name != "config"]
    return {"llm": f"{model}@{tasks[0]}" if len(tasks) == 1 else model}


def read_game24(source: Path, request: ImportRequest) -> SourceContent:
    """Read a log of naive samples: `idx` (row of 24.csv, the questions file), `ys` (texts) and the
    authors' verdicts in `accs` or `infos`. `usage_so_far` is of the whole log.

    No single expression is the gold. The answer of a sample is the value of its expression, if that
    uses each of the four numbers once; the gold is 24, so that different solutions vote together.
    """
    reader = Reader()
    if request.questions is None:
        raise UsageError(
            f"{source.name} names its puzzles by row only; pass 24.csv, --questions FILE."
        )
    puzzles = {question.id: question for question in request.questions}
    questions = []
    invalid = others = 0
    usage: Any = None
    for _, entry, where in _entries(source, reader):
        question = puzzles.get(name := request.question_id(member(entry, "idx", int, where)))
        if question is None:
            raise SourceError(
                f"The questions file has no puzzle {name!r}, the 'idx' of {where}; its ids look"
                f" like {next(iter(puzzles), 'none')!r}."
            )
        if entry.get("steps"):
            raise SourceError(
                f"{sentence_start(where)} is the log of a tree search: its outputs depend on each"
                " other and are no samples. Import a log of naive sampling."
            )
        texts = strings(member(entry, "ys", list, where), where)
        answers = [game24_answer(text, (question.text or "").split()) for text in texts]
        invalid += answers.count(None)
        others += sum(
            (answer == _TARGET) != verdict
            for answer, verdict in zip(answers, _verdicts(entry, where), strict=True)
        )
        about = {"id": name, "question": question.text, "gold": _TARGET}
        questions.append((about, _cots(texts, answers), where))
        usage = entry.get("usage_so_far")
    notes = counted_notes(
        (
            (
                "Samples without an answer, as they do not end in an expression that uses each"
                " number once"
            ),
            invalid,
        ),
        (
            "Samples on which the authors' verdict differs from exact arithmetic, which was taken",
            others,
        ),
    )
    counts = isinstance(usage, dict) and [whole(usage.get(f"{of}_tokens")) for of in _COUNTED]
    if counts and None not in counts:
        notes.append(
            f"The log states {counts[0]} completion and {counts[1]} prompt tokens up to its end,"
            " but not those of a sample."
        )
    return collected(source, request, questions, reader, notes)


_COUNTED = ("completion", "prompt")


def _verdicts(entry: Row, where: str) -> list[bool]:
    """Return the authors' verdict on each sample."""
    count = len(entry["ys"])
    if "accs" in entry:
        verdicts = member(entry, "accs", list, where)
    else:
        infos = member(entry, "infos", list, where)
        verdicts = [member(info, "r", int, f"an info of {where}") for info in infos]
    if len(verdicts) != count or any(verdict not in (0, 1) for verdict in verdicts):
        refuse(f"The verdicts of {where}", f"{count} times true or false, one per sample", verdicts)
    return verdicts


def game24_answer(text: str, numbers: Sequence[str]) -> str | None:
    """Return the value of the expression on the last line of a text, as a key of the answer kind
    `number`.

    That line is such as "Answer: (10 - 6) * (5 + 1) = 24". `None` where it holds no expression, or
    one that does not use each of the puzzle's numbers (as digits) exactly once.
    """
    line = _LABEL.sub("", text.strip().rpartition("\n")[2])
    expression = line.partition("=")[0].strip()
    if not _EXPRESSION.fullmatch(expression) or (
        Counter(re.findall("[0-9]+", expression)) != Counter(numbers)
    ):
        return None
    try:
        value = _value(ast.parse(expression, mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return None
    return decimal_key(value.numerator) if value.denominator == 1 else str(value)


def _value(node: ast.expr) -> Fraction:
    """Return what an expression comes to, exactly."""
    match node:
        case ast.Constant(value=int(number)):
            return Fraction(number)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _OPERATORS:
            return _OPERATORS[type(sign)](_value(left), _value(right))
    raise ValueError("it holds something else")


def read_feval_ttc(source: Path, request: ImportRequest) -> SourceContent:
    """Read one dataset of an archive, with all its LLMs or those that the request names, one at a
    time.
    """
    reader = Reader()
    with opened_archive(source) as archive:
        name = _reference_name(archive, request.dataset)
        recorded = _recorded(archive, name, reader)
        for llm in request.llms:
            require_known(f"LLM recorded on {name} in {source.name},", llm, recorded)
        questions, system_prompt = _archived_questions(archive, name, request, reader)
    llms = request.llms or recorded
    notes = ["The token counts are those stored in the archive; its package counts 1.365 per word."]

    def imported() -> Iterator[SourceLLM]:
        for llm in llms:
            with opened_archive(source) as archive:
                member_name = f"LLM_{llm}_dataset_{name}.txt"
                record, where = archive.json(member_name, reader), archive.where(member_name)
            responses = member(record, "responses", list, where)
            if len(responses) != len(questions):
                raise SourceError(
                    f"{where} has {len(responses)} responses to {len(questions)} questions; there"
                    " should be one for each."
                )
            info = _info(member(record, "config", dict, where), llm, request, where)
            yield SourceLLM(info, _pools(responses, where), True)
            del record, responses
        notes.extend(reader.notes())

    return SourceContent(questions, imported(), notes, system_prompt, len(llms))


def recorded_llms(source: Path, dataset: str) -> tuple[str, ...]:
    """Return names of the LLMs that an archive lists for a dataset."""
    with opened_archive(source) as archive:
        return _recorded(archive, _reference_name(archive, dataset), Reader())


def _info(config: Row, name: str, request: ImportRequest, where: str) -> LLMInfo:
    if member(config, "name", str, f"the config of {where}") != name:
        raise SourceError(f"{where} is named for {name!r}, and its config for {config['name']!r}.")
    stored = {key: config.get(key) for key in ("temperature", "max_tokens")}
    for key, value in stored.items():
        if value is not None and (type(value) not in (int, float) or not 0 <= value <= LARGEST):
            refuse(f"{key!r} of the config of {where}", f"a number from 0 to {LARGEST}", value)
    limit = stored["max_tokens"]
    info = LLMInfo(name, stored["temperature"], None if limit is None else int(limit))
    return replace(request, llms=()).llm_of(where, info)


def _pools(responses: list[Any], where: str) -> Iterator[SourcePool]:
    for row, response in enumerate(responses):
        yield _archived_pool(response, f"response {row} of {where}")
        responses[row] = None  # what is written need not stay in memory


def _archived_pool(response: Any, where: str) -> SourcePool:
    request = member(response, "request", dict, where)
    text = member(request, "raw_text", str, f"the request of {where}")
    tokens = whole_number(request.get("token_cost"), f"'token_cost' of the request of {where}")
    cots = member(response, "cots", list, where)
    columns = zip(
        *(_archived_cot(cot, place, where) for place, cot in enumerate(cots)), strict=True
    )
    texts, answers, counts, reasons = map(list, columns) if cots else ([], [], [], [])
    prompt = chat(text)
    return SourcePool(texts, answers, counts, reasons, prompt, tokens)


def _archived_cot(cot: Any, place: int, where: str) -> tuple[str, str | None, int, str]:
    """Return text, answer, tokens and finish reason."""
    here = f"CoT {place} of {where}"
    text = member(cot, "raw_text", str, here)
    if not isinstance(answer := cot.get("answer"), str | None):
        refuse(f"Answer {place} of {where}", "text or null", answer)
    metadata, about = member(cot, "metadata", dict, here), f"the metadata of {here}"
    tokens = member(metadata, "token_cost", object, about)
    reason = member(metadata, "finish_reason", str, about)
    return (
        text,
        answer,
        whole_number(tokens, f"The token count of sample {place} of {where}"),
        finish_reason(reason, f"The finish reason of {here}"),
    )


def _recorded(archive: Archive, dataset: str, reader: Reader) -> tuple[str, ...]:
    """Return the LLMs that the archive lists for a dataset."""
    name = f"dataset_{dataset}_models.txt"
    llms = strings(
        member(archive.json(name, reader), "llms", list, archive.where(name)), archive.where(name)
    )
    if not llms or len(set(llms)) != len(llms):
        raise SourceError(
            f"{archive.where(name)} should list each LLM once; it lists {llms!r:.200}."
        )
    return tuple(llms)


def _archived_questions(
    archive: Archive, dataset: str, request: ImportRequest, reader: Reader
) -> tuple[list[SourceQuestion], str | None]:
    """Return the questions and the system prompt."""
    name = f"dataset_{dataset}.txt"
    record, where = archive.json(name, reader), archive.where(name)
    system_prompt = inside(record, "system_prompt")
    if system_prompt is not None and not isinstance(system_prompt, str):
        refuse(f"'system_prompt' of {where}", "text or null", system_prompt)
    entries = member(record, "data", list, where)
    if not entries:
        raise SourceError(f"{where} has no questions; there is nothing to import.")
    questions = [
        SourceQuestion(
            request.question_id(row),
            member(entry, "question", str, f"entry {row} of {where}"),
            member(entry, "answer", str, f"entry {row} of {where}"),
        )
        for row, entry in enumerate(entries)
    ]
    return questions, system_prompt


def _reference_name(archive: Archive, dataset: str) -> str:
    """Return the archive's name of a dataset."""
    card = find_dataset_card(dataset)
    name = (card and card.reference_name) or dataset
    names = archive.zip.namelist()
    if f"dataset_{name}.txt" not in names:
        datasets = [
            entry[8:-11]
            for entry in names
            if entry.startswith("dataset_") and entry.endswith("_models.txt")
        ]
        raise SourceError(
            f"{archive.path.name} has no dataset {dataset!r} (as {name!r}); "
            f"it has {', '.join(map(our_dataset_id, datasets)) or 'none':.600}."
        )
    return name
