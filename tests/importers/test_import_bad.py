"""What an attacker's verdicts, outcome tables and layouts do: a sentence with the row, a note, or
what was meant; never a silent loss.
"""

import json
import pickle

import numpy as np
import pandas as pd
import pytest
from foreign_sources import lines
from importing import notes
from small import parquet

import feval
from feval.errors import FevalError
from feval.importers.layouts import layout_of
from feval.recording.layout.manifest import manifest_bytes

COT = {"id": "a", "question": "1 + 1?", "text": "2"}
WIDE = "id,question,gold,weak,strong,price\n1,a,2,1,0,0.01\n2,b,2,0,1,0.02\n"
BOTH = {"outcome": ["weak", "strong"]}
PAID = {**BOTH, "usd": {"weak": 0.1, "strong": "price"}}
LISTS = [COT | {"id": name, "text": None, "samples": ["2", "3"]} for name in "ab"]


def two(**columns):
    """A file where NaN stays, which pandas would write as null."""
    return parquet({"id": ["a", "b"], "question": ["x", "y"], "text": ["t", "t"]} | columns)


NAN = np.array([1, np.nan])
UTF_16 = WIDE.encode("utf-16-le")
CASES = [
    ("'verdict' of row 2 .* nan", two(verdict=NAN), {}),
    ("'price' of row 2 .* nan", two(weak=[1, 0], price=NAN),
     {"outcome": ["weak"], "usd": {"weak": "price"}}),
    ("'verdict' of row 1 .* text of 4", two(verdict=["true", "1"]), {}),
    ("'verdict' of line 1 .* text of 3", COT | {"verdict": "0.3"}, {}),
    ("'weak' of row 2 .* nan", WIDE.replace("b,2,0", "b,2,NaN").encode(), BOTH),
    ("'weak' of row 2 .* inf", WIDE.replace("b,2,0", "b,2,1e999").encode(), BOTH),
    ("'weak' of row 2 .* from 0 to 1", WIDE.replace("b,2,0", "b,2,2").encode(), BOTH),
    ("'price' of row 2 .* nan", WIDE.replace("0.02", "nan").encode(), PAID),
    ("'price' of row 2 .* text of 5", WIDE.replace("0.02", "$0.02").encode(), PAID),
    ("Row 3 .* '1' a second time, after row 1", (WIDE + "1,a,2,0,0,0\n").encode(), BOTH),
    ("no column '\\$1'; it has 'id'", WIDE.encode(), BOTH | {"usd": {"weak": "$1"}}),
    ("'weak' nan USD", WIDE.encode(), BOTH | {"usd": {"weak": "nan"}}),
    ("says what the verdict of each", WIDE.encode(), BOTH | {"map": {"verdict": "weak"}}),
    ("columns are weak, strong", b"weak,strong\n1,0\n", BOTH),
    ("no column '{llm}_r'; it has 'id'", WIDE.encode(),
     {"map": {"text": "{llm}_r"}}),
    ("Line 2 .* lengths \\(2 in 'samples', 1 in 'verdicts'\\)",
     [LISTS[0] | {"verdicts": [1, 0]}, LISTS[1] | {"verdicts": [1]}], {}),
    ("Line 2 .* lengths \\(2 in 'samples', 0 in 'ok'\\)",
     [LISTS[0] | {"ok": [1, 0]}, LISTS[1] | {"ok": []}], {"map": {"verdict": "ok"}}),
    ("'r_1', 'r_01' have one number", COT | {"r_1": "x", "r_01": "y"},
     {"map": {"text": "r_{i}"}}),
    ("2 graders: 'verdict' \\(line 1 .*'a' \\(line 2",
     [COT | {"verdict": 1}, COT | {"verdict": 1, "grader": "a"}], {}),
    ("'grader' of line 1 .* name", COT | {"verdict": 1, "grader": "\0"}, {}),
    ("'c.a' of line 1 .* inside an object", COT | {"c": '{"a": 1'},
     {"map": {"verdict": "c.a"}}),
    ("is 0x00", UTF_16, {}),
    ("more than 4,300 digits", lines(COT).replace(b'"2"', b"1" * 5000), {}),
    ("to_parquet\\('x.json.parquet'\\)", pickle.dumps([COT]), {}),
]  # fmt: skip


@pytest.mark.parametrize(("sentence", "source", "options"), CASES, ids=range(len(CASES)))
def test_bad_tables_are_refused_with_their_row(imported, sentence, source, options):
    options = {"llm": None if "outcome" in options else "m"} | options
    imported.refuses(sentence, "table", source, FevalError, answer_kind="text", **options)


LAYOUTS = [
    ("'threshold'.* finite", "[grader]\nthreshold = nan"),
    ("'name'.* 1 to 200 characters", "[grader]\nname = 3"),
    ("leads out of the folder", 'file = "../{llm}.jsonl"'),
    ("leads out of the folder", 'file = "/etc/{llm}"'),
    ("lists' \\(input should be a list", "lists = 1"),
    ("'x' True USD per CoT", '[outcomes]\nx = "A"\n[usd]\nx = true'),
    ("'zzz', and `outcome` names no verdicts", '[outcomes]\nx = "A"\n[usd]\nzzz = 1.0'),
]


@pytest.mark.parametrize(("sentence", "text"), LAYOUTS, ids=range(len(LAYOUTS)))
def test_bad_layouts_are_refused_by_name(tmp_path, sentence, text):
    (tmp_path / "l.toml").write_text(text)
    with pytest.raises(FevalError, match=sentence):
        layout_of(tmp_path / "l.toml")


SAME = "CoTs that are alike in all to one of another file (leave files that overlap out): 1."
NOTES = [
    ("CoTs of strong without USD: 1.", {"x.csv": WIDE.replace("0.02", "")}, PAID),
    ("'passed' may be the verdict", {"x.csv": "id,question,text,passed\n1,a,t,1\n"}, {}),
    ("numbers of columns 'r_{i}': 1.", {"x.csv": "id,question,r_1,r_3\n1,a,t,t\n"},
     {"map": {"text": "r_{i}"}}),
    ("No CoT of m has a verdict", {"x.csv": "id,question,text,verdict\n1,a,t,\n"}, {}),
    ("No CoT of m has a verdict", {"x.jsonl": json.dumps(COT | {"grader": "a"})}, {}),
    (SAME, {"a.jsonl": json.dumps(COT), "b.jsonl": json.dumps(COT)}, {}),
    ("were not read: b.csv.", {"a.jsonl": json.dumps(COT), "b.csv": WIDE}, {}),
]  # fmt: skip


@pytest.mark.parametrize(("note", "files", "options"), NOTES, ids=range(len(NOTES)))
def test_what_is_odd_about_a_folder_is_noted(imported, tmp_path, note, files, options):
    folder = tmp_path / "folder"
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    options = {"llm": None if "outcome" in options else "m", "answer_kind": "text"} | options
    noted = notes(imported("table", folder, **options))
    assert note in noted
    assert ("extracted from the texts" in noted) == (options["llm"] == "m")


def test_golds_decide_nothing_where_no_answer_was_recorded(imported):
    recording = imported("table", WIDE.encode(), llm=None, answer_kind="text", **BOTH)
    dataset, *_ = feval.load("toy", ["weak", "strong"], recording)
    assert dataset.rightness.of_llm["weak"].tolist() == [[1], [0]]
    assert "verdict" in str(dataset.judges([0, 1]))


def test_a_manifest_holds_no_nan():
    with pytest.raises(ValueError, match="not JSON compliant"):
        manifest_bytes({"threshold": float("nan")})


def test_json_lines_say_why_a_list_of_verdicts_is_not_read(imported):
    source = COT | {"samples": ["2"], "verdicts": [1]}
    imported.refuses("Line 1 .* list of verdicts; give each sample", "jsonl", source)
    imported.refuses("read_pickle", "jsonl", pickle.dumps([COT], 0))


def test_a_data_frame_says_by_nan_what_is_missing(tmp_path):
    table = pd.DataFrame([COT | {"verdict": 1.0}, COT | {"text": "3", "verdict": None}])
    options = {"dataset": "d", "llm": "m", "answer_kind": "text"}
    assert table["verdict"].isna().sum() == 1
    with pytest.warns(feval.errors.SourceWarning, match="CoTs of m without a verdict by"):
        feval.from_dataframe(table, **options)
    with pytest.raises(FevalError, match="as layout; 5"):
        feval.from_dataframe(table, **options, layout=5)
