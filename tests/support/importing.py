"""Imports of small sources, each checked, for the tests of the importers; `conftest.py` there takes
the fixtures from here.
"""

import csv
import io
import json
import re
from collections import Counter

import pyarrow.parquet as pq
import pytest
from foreign_sources import dumped, lines
from small import stated

from feval.errors import ConflictError, FevalError, SourceError
from feval.importers import import_recording
from feval.recording import open_recording, verify_recording

WRONG = (SourceError, ConflictError)
# how sentences begin to tell of two things that contradict each other; all others tell of one
CONFLICT = (
    r"two (?!ways|m)|(er|'a') twice|second time|rows before|are the same, |different|has llm|"
    "in the source and|than a line"
)


@pytest.fixture
def save(tmp_path):
    """Write a source file."""

    def write(name, data):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    return write


NAMES = {
    "feval-ttc": "api.zip",
    "jsonl": "x.jsonl",
    "esc": "x.jsonl",
    "lm-eval": "x.jsonl",
    "coupled-mmlu": "x.csv",
    "lighteval": "x.parquet",
}


LINED = {"esc", "jsonl", "lm-eval", "table"}
OPTIONS = {
    "feval-ttc": {"dataset": "gsm8k", "llm": None},
    "lighteval": {"answer_kind": "number"},
    "game24": {"answer_kind": "number"},
}


def encoded(format_name, value):
    """A JSON value as a source: where a row is a line, one row or several."""
    if format_name not in LINED:
        return dumped(value)
    return lines(value) if isinstance(value, dict) else lines(*value)


class Import:
    """Imports into a new folder each time, with options that fit most sources here; bytes and JSON
    values become a file "x.*".
    """

    def __init__(self, folder):
        self._folder = folder
        self.count = 0

    def __call__(self, format_name, source, **options):
        self.count += 1
        if isinstance(source, dict | list | tuple):
            source = encoded(format_name, source)
        if isinstance(source, bytes):
            path = self._folder / NAMES.get(format_name, "x.json")
            path.write_bytes(source)
            source = path
        if isinstance(file := options.get("questions"), bytes):
            options["questions"] = self._folder / "q.jsonl"
            options["questions"].write_bytes(file)
        out = self._folder / f"recording-{self.count}"
        arguments = {"dataset": "toy", "llm": "toy-llm", "answer_kind": "verbatim"}
        arguments |= OPTIONS.get(format_name, {}) | options
        try:
            assert import_recording(format_name, source, out, **arguments) == out
        except FevalError as error:
            self._check(error, out)
            raise
        verify_recording(out)
        return open_recording(out)

    def refuses(self, sentence, format_name, source, error=WRONG, **options):
        """Check the message of what may not be imported: a text in it, or a pattern."""
        with pytest.raises(error) as raised:
            self(format_name, source, **options)
        message = str(raised.value)
        if error is WRONG:
            assert isinstance(raised.value, ConflictError) == bool(re.search(CONFLICT, message))
        assert sentence in message or re.search(sentence, message), message

    def _check(self, error, out):
        """The message is a sentence, and nothing was left."""
        assert str(error)[-1] in ".?"
        assert not out.exists()
        assert not list(self._folder.glob(".*partial*"))


@pytest.fixture
def imported(tmp_path):
    return Import(tmp_path)


def refusals(format_name, cases, make=None, error=WRONG, **options):
    """Return a test: what is made of the first of each case is refused with its sentence."""

    # numbers as ids, since archives have the time of day in their bytes
    @pytest.mark.parametrize(("case", "sentence"), cases, ids=range(len(cases)))
    def test(imported, case, sentence):
        imported.refuses(sentence, format_name, make(case) if make else case, error, **options)

    return test


def rows(recording, dataset=None, llm=None):
    """Every CoT of an LLM as columns, read from the Parquet files."""
    return {
        **_part(recording, "samples", dataset, llm),
        "text": _part(recording, "texts", dataset, llm)["text"],
    }


QUESTIONS = {
    "ids": "id",
    "questions": "text",
    "golds": "answer",
    "gold_keys": "answer_key",
    "choices": "choices",
}


def check(recording, *noted, dataset=None, llm=None, **expected):
    """Check what notes say, and columns: of an LLM's CoTs and requests, of questions; or `llms`."""
    for sentence in noted:
        assert sentence in notes(recording)
    dataset = dataset or recording.dataset_ids()[0]
    found = {"llms": recording.llm_names(dataset)}
    questions = list(recording.questions(dataset))
    found |= {name: [getattr(q, field) for q in questions] for name, field in QUESTIONS.items()}
    if expected.keys() - found.keys():
        found |= requests(recording, dataset, llm) | rows(recording, dataset, llm)
    assert {name: found[name] for name in expected} == expected


class Columns:
    """The answers and tokens of a recording's only LLM, question by question, read from Parquet."""

    def __init__(self, recording):
        (dataset,) = recording.dataset_ids()
        (llm,) = recording.llm_names(dataset)
        self.recording, self.manifest = recording, manifest(recording)
        self.gold = [question.answer_key for question in recording.questions(dataset)]
        table = _part(recording, "samples", dataset, llm)
        self.answers, self.tokens = [], []
        for index, answer, tokens in zip(
            table["sample_index"], table["answer"], table["output_tokens"], strict=True
        ):
            if index == 0:
                self.answers.append([])
                self.tokens.append([])
            self.answers[-1].append(answer)
            self.tokens[-1].append(tokens)

    @property
    def notes(self):
        return notes(self.recording)

    def mean_accuracy(self):
        right = map(list.count, self.answers, self.gold)
        return sum(right) / sum(map(len, self.answers))

    def prefix_votes(self, n):
        """Questions that a plurality of the first n samples gets right; the first seen wins
        ties.
        """
        right = 0
        for gold, row in zip(self.gold, self.answers, strict=True):
            votes = Counter(answer for answer in row[:n] if answer is not None)
            right += bool(votes) and gold is not None and votes.most_common(1)[0][0] == gold
        return right


def requests(recording, dataset=None, llm=None):
    return _part(recording, "requests", dataset, llm)


def probe_rows(recording, *columns, dataset=None, llm=None):
    """Every probe of an LLM, with its sample and offset and some other columns, read from the
    Parquet files.
    """
    table = _part(recording, "probes", dataset, llm)
    return list(zip(*(table[name] for name in ("sample_index", "offset", *columns)), strict=True))


def _part(recording, part, dataset, llm):
    """Columns of a part, of the first dataset and LLM where none is named."""
    dataset = dataset or recording.dataset_ids()[0]
    llm = llm or recording.llm_names(dataset)[0]
    return pq.read_table(
        recording.path / part / dataset / f"{llm.replace('/', '--')}.parquet"
    ).to_pydict()


def as_csv(rows, delimiter=","):
    """Rows as CSV, lists and objects as JSON."""
    stream = io.StringIO()
    names = dict.fromkeys(name for row in rows for name in row)
    writer = csv.DictWriter(stream, [*names], delimiter=delimiter)
    writer.writeheader()
    writer.writerows(
        {name: json.dumps(v) if isinstance(v, list | dict) else v for name, v in row.items()}
        for row in rows
    )
    return stream.getvalue().encode()


def notes(recording):
    return "\n".join(manifest(recording)["notes"])


def manifest(recording):
    return stated(recording.path)
