"""Exported tables: the same recording comes back from JSON Lines, and no row depends on the
workers.
"""

import contextlib
import csv
import json

import pyarrow.parquet as pq
import pytest
from command_line import said, told
from parcels import Parcels
from places import read_data
from small import content, import_rows, pool, write_rows, write_toy

from feval import import_recording
from feval.answers import EXTRACTOR_VERSION
from feval.errors import (
    DamagedRecordingError,
    FevalError,
    NotRecordedError,
    SourceError,
    UnknownNameError,
    UsageError,
)
from feval.exporters import FORMATS, export_recording
from feval.recording import DatasetInfo, ScorerInfo, ScoreRows, add_scores, merge, open_recording
from recorders.demo import bundled_recording

EXPORTED = read_data("exports.json")
REQUEST, LINES, TREE, TURNS = map(EXPORTED.get, ("request", "lines", "tree", "turns"))


def recorded(folder, lines, name="rec", dataset="toy", kind="number"):
    return import_rows(folder / name, lines, dataset=dataset, answer_kind=kind)


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    return recorded(tmp_path_factory.mktemp("export"), LINES)


@pytest.mark.parametrize("lines", [LINES, [TREE], TURNS], ids=["cots", "tree", "turns"])
def test_exported_json_lines_make_the_same_recording(tmp_path, lines):
    original = recorded(tmp_path, lines)
    done = export_recording(original, tmp_path / "out.jsonl", "jsonl")
    pairs = open_recording(original).manifest.pairs.values()
    assert done.rows == sum(pair["cots"] for pair in pairs)
    import_recording("jsonl", done.path, tmp_path / "again", dataset="toy", answer_kind="number")
    assert open_recording(tmp_path / "again").hash == open_recording(original).hash


@pytest.mark.parametrize("lines", [LINES, [TREE]], ids=["cots", "tree"])
def test_exported_parquet_makes_the_same_recording(tmp_path, lines):
    original = open_recording(recorded(tmp_path, lines))
    exported = export_recording(original.path, tmp_path / "out.parquet", "parquet").path
    import_recording("table", exported, tmp_path / "again")  # nothing else is needed
    assert open_recording(tmp_path / "again").hash == original.hash
    table = original.to_arrow()
    pq.write_table(table, tmp_path / "arrow.parquet")
    import_recording("table", tmp_path / "arrow.parquet", tmp_path / "third")
    assert open_recording(tmp_path / "third").hash == original.hash
    pq.write_table(table.take(list(range(table.num_rows))[::-1]), tmp_path / "sorted.parquet")
    # questions in the order of the rows
    import_recording("table", tmp_path / "sorted.parquet", tmp_path / "sorted")
    assert {q.id for q in open_recording(tmp_path / "sorted").questions("toy")} == {
        q.id for q in original.questions("toy")
    }


def test_exported_parquet_keeps_what_json_lines_lose(tmp_path):
    untold = [
        {**line, "samples": [{**cot, "tokens": None} for cot in line["samples"]]} for line in LINES
    ]
    toy = recorded(tmp_path, untold)  # tokens are counted as words
    other = recorded(tmp_path, [LINES[3] | {"question": "?", "llm": "c"}], "other", "other")
    scores = {
        ("toy", "a"): [ScoreRows("q1", [1], [0.5]), ScoreRows("q2", [0], [0.25], [[0.1, 0.2]])]
    }
    scored = add_scores(
        toy, tmp_path / "scored", ScorerInfo("judge", "judge", {"model": "m"}), scores
    )
    both = merge([scored, other], tmp_path / "both")
    exported = export_recording(both, tmp_path / "both.parquet", "parquet").path
    import_recording("table", exported, tmp_path / "again")
    assert open_recording(tmp_path / "again").hash == open_recording(both).hash
    import_recording("table", exported, tmp_path / "one", dataset="toy", llm="a")
    assert open_recording(tmp_path / "one").llm_names("toy") == ["a"]
    with pytest.raises(UnknownNameError, match="no dataset in the exported table 'x'"):
        import_recording("table", exported, tmp_path / "none", dataset="x")


def test_answers_of_an_earlier_extractor_stay_what_they_are(tmp_path):
    pools = {"m": [["1", None], ["2"]], "org/n": [["4", "1"], ["3"]]}
    # of the extractor "test-1"
    original = open_recording(write_toy(tmp_path / "toy", pools, ["1.", "2."]))
    exported = export_recording(original.path, tmp_path / "t.parquet", "parquet").path
    import_recording("table", exported, tmp_path / "again")
    again = open_recording(tmp_path / "again")
    assert again.dataset_info("toy").extractor == "test-1"
    assert again.to_arrow()["answer"] == original.to_arrow()["answer"]
    import_recording("table", exported, tmp_path / "text", answers="text", answer_kind="number")
    assert open_recording(tmp_path / "text").dataset_info("toy").extractor == EXTRACTOR_VERSION


def test_a_single_dataset_is_renamed_and_its_kind_can_be_another(toy, tmp_path):
    exported = export_recording(toy, tmp_path / "t.parquet", "parquet").path
    import_recording("table", exported, tmp_path / "again", dataset="mine", answer_kind="text")
    again = open_recording(tmp_path / "again")
    assert (again.dataset_ids(), again.dataset_info("mine").answer_kind) == (["mine"], "text")


LATER = {"version": 2, "datasets": {"d": {"answer_kind": "text", "equality": "normal-form",
    "extractor": "e",
         "system_prompt": None, "llms": {}}}, "scorers": {}, "without_rows": []}  # fmt: skip


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ("{}", "says that feval exported it, and its metadata lacks the field"),
        ("x", "is not valid JSON"),
        (json.dumps(LATER), "exported by a later feval"),
    ],
)
def test_metadata_of_others_is_refused(toy, tmp_path, facts, message):
    table = open_recording(toy).to_arrow().replace_schema_metadata({b"feval": facts})
    pq.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(SourceError, match=message):
        import_recording("table", tmp_path / "t.parquet", tmp_path / "again")
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize(
    "column",
    ["dataset", "llm", "question_id", "probes", "decoding", "score.length", "prompt", "choices"],
)
@pytest.mark.parametrize("value", [7, [7], {"a": 7}, "x"], ids=repr)
def test_rows_that_were_broken_are_sentences(toy, tmp_path, column, value):
    table = open_recording(toy).to_arrow()
    place = table.schema.get_field_index(column)
    pq.write_table(
        table.set_column(place, column, [[value] * table.num_rows]), tmp_path / "t.parquet"
    )
    with contextlib.suppress(FevalError):
        import_recording("table", tmp_path / "t.parquet", tmp_path / "again")


@pytest.mark.parametrize("to", FORMATS)
def test_the_file_does_not_depend_on_the_workers(toy, tmp_path, to, monkeypatch):
    monkeypatch.setattr("feval.exporters.arrow._BLOCK_BYTES", 1)  # a question each
    alone = export_recording(toy, tmp_path / "alone", to)
    together = export_recording(toy, tmp_path / "together", to, executor=Parcels())
    if alone.path.is_dir():
        assert content(alone.path) == content(together.path)
    else:
        assert alone.path.read_bytes() == together.path.read_bytes()
    assert alone.rows == (4 if to == "every-eval-ever" else 5)  # a question has no gold


@pytest.mark.slow
def test_workers_of_the_command_line_write_the_same_file(toy, tmp_path):
    for workers in "12":
        out = (tmp_path / workers, "--workers", workers)
        said("export", toy, "--to parquet --out", *out)
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()


def test_csv_has_a_row_for_each_cot(toy, tmp_path):
    export_recording(toy, tmp_path / "t.csv", "csv")
    with (tmp_path / "t.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["question_id"], row["llm"], row["sample"]) for row in rows] == [
        ("q1", "a", "0"), ("q1", "a", "1"), ("q2", "a", "0"), ("q1", "b", "0"), ("q3", "b", "0"),
    ]  # fmt: skip
    assert [row["correct"] for row in rows] == ["true", "false", "", "true", "false"]
    assert [row["answer"] for row in rows] == ["2", "", "1.5", "2", "6"]
    assert rows[1]["text"] == 'say "2",\nor =3'
    assert json.loads(rows[0]["prompt"]) == REQUEST["prompt"]
    assert json.loads(rows[0]["decoding"]) == REQUEST["decoding"]
    assert (rows[2]["question"], rows[2]["text"]) == ("'=1+1", "-1,5")  # no formula
    # only the second question has one
    assert [row["response_id"] for row in rows] == ["", "", "r", "", ""]
    assert (
        rows[0]["score.length"],
        rows[1]['score.a "good" judge'],
        rows[0]["step_scores.prm"],
    ) == ("8", "", "[0.5,0.25]")


def test_parquet_has_types(toy, tmp_path):
    export_recording(toy, tmp_path / "t.parquet", "parquet", llms=["a"])
    rows = pq.read_table(tmp_path / "t.parquet").to_pylist()
    assert [row["correct"] for row in rows] == [True, False, None]
    assert rows[0]["probes"] == [
        {"offset": 2, "answer": "3", "text": " 3", "tokens": 1, "confidence": pytest.approx(0.3)},
        {"offset": 5, "answer": None, "text": None, "tokens": None, "confidence": None},
    ]
    # all else comes back as it was, see above


def test_a_recording_gives_the_exported_table_in_memory(toy, tmp_path):
    recording = open_recording(toy)
    exported = export_recording(toy, tmp_path / "t.parquet", "parquet", llms=["a"]).path
    assert recording.to_arrow(llms=["a"]).equals(pq.read_table(exported))
    facts = json.loads(pq.ParquetFile(exported).metadata.metadata[b"feval"])
    assert json.loads(recording.to_arrow(llms=["a"]).schema.metadata[b"feval"]) == facts
    assert [(row, line["question_id"], line["llm"]) for row, line in facts["without_rows"]] == [
        (2, "q3", "a")
    ]
    frame = recording.to_pandas()
    assert frame[frame["llm"] == "a"]["correct"].dropna().mean() == 0.5
    with pytest.raises(NotRecordedError, match="holds no dataset 'none'"):
        recording.to_pandas(datasets=["none"])


def test_a_frame_without_pandas_is_a_sentence(toy, monkeypatch):
    monkeypatch.setattr("feval.exporters.arrow.find_spec", lambda _: None)
    with pytest.raises(
        UsageError,
        match=r"needs pandas, which feval does not install\. Install it, or use to_arrow\(\)",
    ):
        open_recording(toy).to_pandas()


def test_what_cannot_be_exported_is_said(toy, tmp_path):
    (tmp_path / "there").write_text("mine")
    for out, to, options, message in (
        ("x", "xls", {}, "no format 'xls'"),
        ("x", "csv", {"llms": ["c"]}, r"no CoTs of 'c' there\. It holds a, b"),
        ("there", "csv", {}, "exists already; an export overwrites nothing"),
        (toy / "x", "csv", {}, "would lie inside the recording"),
        ("none/x", "csv", {}, "there is no folder"),
    ):
        with pytest.raises(FevalError, match=message):
            export_recording(toy, tmp_path / out, to, **options)
    merge([toy, recorded(tmp_path, LINES[:1], "other", "other")], tmp_path / "both")
    with pytest.raises(UsageError, match=r"one dataset in a file, .* Choose one of toy, other"):
        export_recording(tmp_path / "both", tmp_path / "x", "jsonl")
    assert export_recording(tmp_path / "both", tmp_path / "x", "csv").rows == 7
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []


@pytest.mark.parametrize("to", list(FORMATS))
def test_a_request_that_is_no_list_of_messages_is_damage(tmp_path, to):
    path = tmp_path / "r"
    write_rows(path, ["4"], ("m", [pool(0, ["4"], prompt="words")]))
    with pytest.raises(
        DamagedRecordingError,
        match=r"the request to m for 'toy/0' is damaged: 'words' is not a list",
    ):
        export_recording(path, tmp_path / "x", to)
    assert [each.name for each in tmp_path.iterdir()] == ["r"]


def test_a_failing_block_leaves_no_file(toy, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("feval.exporters.tables._lines", fail)
    with pytest.raises(OSError, match="No space left"):
        export_recording(toy, tmp_path / "x.jsonl", "jsonl")
    assert list(tmp_path.iterdir()) == []


def test_the_command_says_what_it_wrote(toy, tmp_path):
    summary = told("export", toy, "--to csv --llm b --out", tmp_path / "x.csv")
    assert (summary["rows"], summary["columns"][:2]) == (2, ["dataset", "question_id"])


@pytest.mark.parametrize(("to", "lost"), [
    ("jsonl",
    "Answer kind, equality, system prompt, the extraction of answers (old-1) and token counters were left out, which"),  # noqa: E501
    ("csv",
    "Answer kind, equality, system prompt, the extraction of answers (old-1), token counters and questions without CoTs"),  # noqa: E501
    ("parquet", "Title, licence, prices"),
])  # fmt: skip
def test_what_a_table_loses_is_listed(tmp_path, to, lost):
    info = DatasetInfo("toy", "Toy", "number", "old-1", "Be brief.")
    rec = write_rows(tmp_path / "rec", ["4", "5"], ("m", [pool(0, ["4"])]), info=info)
    assert export_recording(rec, tmp_path / "x", to).left_out[0].startswith(lost)


@pytest.mark.slow
def test_the_built_in_recording_comes_back_from_parquet(tmp_path):
    with bundled_recording() as bundled:
        original = open_recording(bundled)
        exported = export_recording(bundled, tmp_path / "t.parquet", "parquet").path
        import_recording("table", exported, tmp_path / "again")
        assert open_recording(tmp_path / "again").hash == original.hash
        frame = original.to_pandas(llms=["feval/tiny-42k"])
    assert len(frame) == 8000
    assert frame["correct"].mean() == pytest.approx(0.6112, abs=5e-5)  # as docs/exporting.md has it
