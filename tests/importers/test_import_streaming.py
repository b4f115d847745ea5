"""Sources that are larger than memory: read line by line, their rows sorted by question on disk."""

import csv
import gzip
import json
from collections import defaultdict

import numpy as np
import pytest
from foreign_sources import COT, QUESTION, lines
from importing import manifest, notes, rows
from small import full_disk

from benchmarks.measure import python
from feval.errors import SourceError, StorageError
from feval.importers import reading, stored_rows
from feval.importers.columns import RowReader, names_of
from feval.importers.reading import read_lines
from feval.importers.stored_rows import StoredRows
from feval.recording.layout import files


@pytest.fixture
def small_runs(monkeypatch):
    """A few rows fill the memory."""
    monkeypatch.setattr(files, "_IN_MEMORY_BYTES", 1500)


@pytest.mark.usefixtures("small_runs")
def test_rows_come_back_by_group_and_question_in_the_order_they_were_added(tmp_path):
    sorted_rows_ = StoredRows(tmp_path)
    expected = {group: defaultdict(list) for group in range(4)}
    for place, (group, question, size) in enumerate(
        np.random.default_rng(1).integers((3, 40, 200), size=(500, 3)).tolist()
    ):
        row = {"place": place, "text": "x" * size}
        sorted_rows_.add(group, question, row)
        expected[group][question].append(row)
    for group in range(4):
        assert list(sorted_rows_.questions(group)) == sorted(expected[group].items())
    one, other = sorted_rows_.questions(0), sorted_rows_.questions(1)  # read side by side
    for pair in zip(sorted(expected[0].items()), sorted(expected[1].items()), strict=False):
        assert (next(one), next(other)) == pair
    # the file has no name, so that a killed process leaves none
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("small_runs")
def test_rows_in_any_order_are_the_recording_that_ordered_rows_are(save, imported):
    cots = [
        COT
        | {
            "id": f"q{question}",
            "model": llm,
            "sample": sample,
            "text": f"{llm} {question} {sample}",
            "tokens": 9,
        }
        | {"prompt": f"P{question}", "answer": str(sample % 3)}
        | ({"scores": {"judge": sample / 8}, "reasoning": "hm"} if question % 2 else {})
        | (
            {"probes": [{"offset": place, "answer": place % 3} for place in range(1, 1 + sample)]}
            if question % 3
            else {}
        )
        for llm in "ab"
        for question in range(12)
        for sample in range(5 - question % 2)
    ]
    recording = imported("jsonl", cots, llm=None)
    # the order of the questions
    firsts = [cot for cot in cots if cot["model"] == "a" and cot["sample"] == 0]
    others = [cot for cot in cots if cot not in firsts]
    np.random.default_rng(2).shuffle(others)
    shuffled = imported("jsonl", [*firsts, *others], llm=None)
    assert manifest(shuffled)["recording_hash"] == manifest(recording)["recording_hash"]
    assert rows(shuffled, llm="b")["text"][:6] == [*(f"b 0 {n}" for n in range(5)), "b 1 0"]
    assert shuffled.scores("toy", "a", "judge").values[1, :4].tolist() == [0, 0.125, 0.25, 0.375]
    assert shuffled.probes("toy", "b").counts()[:3].tolist() == [
        [0] * 5,
        [0, 1, 2, 3, 0],
        [0, 1, 2, 3, 4],
    ]


@pytest.mark.usefixtures("small_runs")
def test_what_rows_on_disk_contradict_is_said_as_of_rows_in_memory(imported):
    others = [COT | {"id": n, "text": "x" * 200} for n in range(40)]
    for last, sentence in (
        (
            {"prompt": "Q"},
            r"Question 'a' has two prompts: 'P' before, and 'Q' on line 42 of x\.jsonl",
        ),
        (
            {"sample": 1},
            (
                r"Line 42 of x\.jsonl and line 1 of x\.jsonl number the CoTs of question 'a' in two"
                r" ways"
            ),
        ),
        (
            {"tokens": 1},
            r"1 of 42 samples in x\.jsonl have 'tokens', and line 1 of x\.jsonl has none",
        ),
    ):
        imported.refuses(sentence, "jsonl", [COT | {"prompt": "P"}, *others, COT | last])
    imported.refuses(
        r"Line 42 of x\.jsonl has the question id 'a' a second time",
        "jsonl",
        [QUESTION, *(QUESTION | {"id": n, "prompt": "x" * 200} for n in range(40)), QUESTION],
    )


@pytest.mark.usefixtures("small_runs")
def test_a_disk_that_is_full_while_rows_are_sorted_is_said(imported, monkeypatch):
    monkeypatch.setattr(stored_rows.Spill, "write", full_disk)
    imported.refuses(
        "could not be written: the disk is full",
        "jsonl",
        [COT | {"text": "x" * 200} for _ in range(20)],
        error=StorageError,
    )


@pytest.mark.parametrize("packed", [False, True])
def test_lines_are_those_of_the_whole_file(save, monkeypatch, packed):
    monkeypatch.setattr(reading, "_CHUNK", 64)
    whole = [b"\xef\xbb\xbf\n", b"a" * 1000 + b"\n", b" \r\n", b"\x0b\x1c\x85b\n", b"\n", b"last"]
    data = b"".join(whole)
    source = save("x", gzip.compress(data) if packed else data)
    assert list(read_lines(source)) == whole
    with pytest.raises(SourceError, match="is empty; there is nothing to read"):
        list(read_lines(save("y", gzip.compress(b" \n\n") if packed else b" \n\n")))


def test_a_line_is_bounded_and_a_compressed_file_as_well(save, imported, monkeypatch):
    source = lines(*[COT] * 10)
    monkeypatch.setattr(reading, "MAX_EXPANDED_BYTES", 100)
    assert len(rows(imported("jsonl", source))["text"]) == 10
    imported.refuses("expands to more than 100 bytes", "jsonl", gzip.compress(source))
    monkeypatch.undo()
    monkeypatch.setattr(reading, "MAX_LINE_BYTES", 100)
    for form in ("jsonl", "table"):
        imported.refuses(
            r"Line 11 of .*/x\.json.* has more than 100 bytes, the most that is read; write a line",
            form,
            source + lines(COT | {"text": "x" * 100}),
        )
    monkeypatch.undo()
    imported.refuses("expands to more than 200 times", "jsonl", gzip.compress(bytes(20 << 20)))


def test_notes_of_rows_and_reader_keep_their_order(imported):
    source = b"\xef\xbb\xbf" + lines(COT | {"sample": 1, "mood": 1}, COT | {"sample": 5})
    first, *_, gaps, mark, _, _ = notes(imported("jsonl", source)).splitlines()
    assert first.startswith("Unknown members")
    assert (
        gaps
        == "The sample numbers of 1 pools have gaps; the samples were renumbered in their order."
    )
    assert mark == "The source starts with a byte order mark; it was left out."


def test_rows_whose_members_are_all_different_do_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr(RowReader, "_MOST_PLANS", 3)
    reader = RowReader(names_of("cot"))
    for number in range(10):
        assert reader.read({"text": "t", f"m{number}": 1}, "here")[:2] == (
            {"text": "t"},
            {f"m{number}": 1},
        )
    assert len(reader._plans) <= 3


# Reads a file of generic rows, pool by pool, and prints by how many MB that made the process
# larger. Arrow holds eighty blocks of CSV: small ones here, so that anything else which grows is
# seen.
READING = """
import resource, sys
from pathlib import Path
from feval.importers.conversion import IMPORTERS
from feval.importers.source import ImportRequest
from feval.importers import files

files._BLOCK_BYTES = 1 << 18

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

before = peak()
imported = IMPORTERS[sys.argv[2]].read(Path(sys.argv[1]), ImportRequest("toy", ("m",), answer_kind="number", scratch=Path(sys.argv[1]).parent))
assert sum(len(pool.texts) for llm in imported.llms for pool in llm.pools) == 80_000
print(peak() - before)
"""  # noqa: E501


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "shuffled", "most_mb"),
    [("jsonl", False, 64), ("jsonl", True, 64), ("table", True, 96)],
)
def test_rows_take_memory_that_does_not_grow_with_the_file(tmp_path, form, shuffled, most_mb):
    places = list(range(80_000))
    if shuffled:
        np.random.default_rng(3).shuffle(places)
    source = tmp_path / "x"
    with source.open("w", newline="") as file:
        cells = csv.DictWriter(file, [*COT, "sample"])
        if form == "table":
            cells.writeheader()
        for place in places:
            question, sample = divmod(place, 40)
            row = COT | {"id": str(question), "sample": sample, "text": f"{place} " * 150}
            if form == "table":
                cells.writerow(row | {"text": f'"{place}"\n' * 100})
            else:
                file.write(json.dumps(row) + "\n")
    assert source.stat().st_size > 70 << 20
    assert float(python(["-c", READING, str(source), form])) < most_mb


def test_a_source_that_changes_while_it_is_read_is_refused(save, imported, tmp_path):
    data = lines(COT | {"id": "a"}, COT | {"id": "b"})

    def grow(*_):
        with (tmp_path / "x.jsonl").open("ab") as file:
            file.write(data)

    imported.refuses(r"x\.jsonl changed while it was read", "jsonl", data, progress=grow)
    assert [path.name for path in tmp_path.iterdir()] == ["x.jsonl"]
