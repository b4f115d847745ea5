"""Published layouts of tables, each on a small file written by hand in its format; and mapping
files of one's own.
"""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from foreign_sources import lines
from importing import check, notes
from places import ROOT, read_data

import feval
from feval.errors import FevalError
from feval.exporters import export_recording
from feval.importers.layouts import layout_names, layout_of
from feval.recording import select

READ = read_data("importers.json")

FIXTURES = ROOT / "tests/data/layouts"
# of those that name their dataset, what they call it
DATASETS = {"best-of-infinity": "aime2025", "evalchemy": "AIME24", "llmrouterbench": "math500",
            "routerbench": "mmlu", "tau-bench": "airline"}  # fmt: skip
PARTS = {"answer", "duration_s", "finish_reason", "golds", "ids", "llms", "output_tokens",
         "prompt_tokens", "questions", "seed", "text", "usd"}  # fmt: skip


def graded(recording, dataset, scorer):
    """The scores of each CoT by a scorer, step by step where they are such."""
    llm = recording.llm_names(dataset)[0]
    if scorer == "verdict":
        [scorer] = recording.graders(dataset, llm)
    count = len(list(recording.questions(dataset)))
    rows = [*recording.score_rows(dataset, llm, scorer, range(count))]
    if rows[0].step_scores is not None:
        return [list(steps) for row in rows for steps in row.step_scores]
    return [score for row in rows for score in row.scores]


@pytest.mark.parametrize("name", layout_names())
def test_published_layout(imported, tmp_path, name):
    """Each reads a small file in the shape of its set, and what it makes of it comes back from an
    export.
    """
    [source] = FIXTURES.glob(f"{name}*")
    expected, dataset = READ["published layouts"][name], DATASETS.get(name, "toy")
    if ".parquet" in source.suffixes:
        rows = [json.loads(line) for line in source.read_text().splitlines()]
        source = tmp_path / "rows.parquet"
        pq.write_table(pa.Table.from_pylist(rows), source)
    options = {"dataset": dataset, "answer_kind": "number"}
    options |= {"llm": None} if "llms" in expected else {}
    recording = imported("table", source, layout=name, trust_layout=True, **options)
    parts = expected.keys() & PARTS
    check(recording, dataset=dataset, **{part: expected[part] for part in parts})
    for scorer in expected.keys() - parts:
        assert graded(recording, dataset, scorer) == expected[scorer]
    layout = layout_of(name)
    assert f"{layout.title}; verified: {layout.verified}; licence: " in notes(recording)
    assert layout.source.startswith("https://")
    export_recording(recording.path, tmp_path / "again.parquet", "parquet")
    again = imported("table", tmp_path / "again.parquet", dataset=None, llm=None, answer_kind=None)
    assert again.hash == recording.hash


def test_a_mapping_file_of_ones_own(save, imported):
    own = save(
        "own.toml",
        b'lists = ["outs", "rs"]\n[columns]\nquestion = "q.text"\ngold = "g"\ntext ='
        b' "outs"\n[scores]\nr = "rs"\n',
    )
    data = lines(
        {"q": {"text": "1 + 1?"}, "g": 2, "outs": ["2", "3"], "rs": "[0.5, 0.25]", "more": 1}
    )
    recording = imported("table", data, layout=layout_of(own), answer_kind="number")
    check(recording, correct=[True, False])
    [scores] = recording.score_rows("toy", "toy-llm", "r", range(1))
    assert list(scores.scores) == [0.5, 0.25]
    assert "were not read: more (such as 1)." in notes(recording)
    imported.refuses(
        r"Line 1 of .* has lists of several lengths \(1 in 'outs', 2 in 'rs'\)",
        "table",
        data.replace(b'"2", "3"', b'"2"'),
        error=FevalError,
        layout=layout_of(own),
        answer_kind="number",
    )


def test_every_result_says_how_samples_were_selected(save, imported):
    own = save("own.toml", b'caution = "Only right ones are there."\n')
    rows = [{"question": f"{n}?", "gold": "2", "text": "2"} for n in range(40)]
    recording = imported("table", rows, layout=own, answer_kind="number")
    chosen = select(recording.path, own.with_name("chosen"), samples=1)
    for each in (recording.path, chosen):
        result = feval.evaluate(feval.SingleCall(), *feval.load("toy", None, each))
        assert "Caution: Only right ones are there." in result.warnings


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("colums = 1", "has an unknown field 'colums'. Its keys are .*columns"),
        ("columns = 1", "has 1 in the field 'columns' .input should be a valid mapping"),
        ("lists = [1]", "has 1 in the field 'lists.0' .input should be text"),
        ("columns", "cannot be read: .* It should be TOML"),
        ("named = ['x']", "'named' .which is no key of a mapping file.*Its keys are title"),
        ("title = " + "[" * 5000, "cannot be read: .* It should be TOML"),
        (
            "[" + ".".join(["columns"] * 2000) + "]",
            "cannot be read: it nests deeper than 100 levels",
        ),
        (f"title = '{'x' * 300_000}'", "cannot be read: it is larger than"),
    ],
)
def test_refuses_other_mapping_files(save, text, sentence):
    with pytest.raises(FevalError, match=sentence):
        layout_of(save("own.toml", text.encode()))


@pytest.mark.parametrize(("options", "sentence"), READ["unknown layouts"])
def test_refuses_other_words(options, sentence):
    with pytest.raises(FevalError, match=sentence):
        layout_of(**options)
