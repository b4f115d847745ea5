"""What a layout can say of a table without code: names of files, lists of pairs, numbers and names
in the names of columns, JSON inside texts, nested rows, and who graded.
"""

import json

import pytest
from importing import check, notes

from feval.errors import SourceError, UnknownNameError, UsageError
from feval.importers.layouts import Layout

PAIRS = Layout(
    file="analysis_{dataset}_{llm}.jsonl",
    datasets={"aime2024": "aime24", "aime2025": "aime25"},
    lists=("all",),
    columns={"id": "n", "gold": "gold", "answer": "all.0", "tokens": "all.1"},
)


def graded(recording, llm="toy-llm", grader="verdict"):
    """Every verdict of an LLM in the order of questions."""
    sizes = range(len(list(recording.questions("toy"))))
    rows = recording.score_rows("toy", llm, grader, sizes)
    return [verdict for each in rows for verdict in each.scores]


def lines(*values):
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


@pytest.fixture
def published(save):
    """A folder of lists of pairs, by dataset and LLM."""
    for dataset in ("aime2024", "aime2025"):
        for llm, tokens in (("some_big-llm", 9), ("small", 4)):
            row = {"n": 0, "gold": "2", "all": [["2", tokens], [None, tokens]]}
            path = save(f"sets/analysis_{dataset}_{llm}.jsonl", lines(row))
    save("sets/other.jsonl", b"nothing to read")
    return path.parent


def test_files_of_a_folder_by_the_datasets_and_llms_in_their_names(imported, published):
    options = {"layout": PAIRS, "dataset": None, "answer_kind": "number"}
    recording = imported("table", published, **options, llm=None)
    assert recording.dataset_ids() == ["aime24", "aime25"]
    for llm, tokens in (("some_big-llm", [9, 9]), ("small", [4, 4])):
        check(recording, dataset="aime25", llm=llm, answer=["2", None], output_tokens=tokens)
    one = imported("table", published, **options | {"dataset": "aime24"}, llm=["small"])
    check(one, llms=["small"], dataset="aime24", output_tokens=[4, 4])
    assert len(one.manifest.raw["operation"]["source"]) == 1  # no other file was read
    for change, sentence in [
        ({"dataset": "aime26"}, "no dataset named by a file .* Known: aime24, aime25"),
        ({"llm": ["large"]}, "no LLM named by a file .* Known: small, some_big-llm"),
    ]:
        imported.refuses(sentence, "table", published, UnknownNameError, **options | change)
    other = PAIRS.model_copy(update={"file": "{llm}.csv"})
    imported.refuses(
        "no file that is named like", "table", published, **options | {"layout": other}
    )
    twice = PAIRS.model_copy(update={"file": "{llm}_{llm}.csv"})
    imported.refuses("stand there once", "table", published, UsageError, layout=twice)


def test_a_file_for_each_sample(imported, save):
    for seed in (0, 10, 2):
        row = {"problem": "1 + 1?", "expected_answer": "2", "generation": f"seed {seed}"}
        path = save(f"runs/output-rs{seed}.jsonl", lines(row))
    recording = imported(
        "table", path.parent, layout=Layout(file="output-rs{sample}.jsonl"), answer_kind="number"
    )
    check(recording, text=["seed 0", "seed 2", "seed 10"])


def test_rows_in_nested_members(imported):
    example = {"problem": "1 + 1?", "expected_answer": "2", "model_outputs": ["a", "b"]}
    document = {"run": 7, "results": {"toy": {"examples": [example]}, "more": {"examples": []}}}
    layout = Layout(rows="results.*.examples", columns={"dataset": "*", "text": "model_outputs"})
    layout = layout.model_copy(update={"lists": ("model_outputs",)})
    check(
        imported("table", json.dumps(document).encode(), layout=layout, answer_kind="number"),
        text=["a", "b"],
        golds=["2"],
    )
    document["results"]["more"] = 3
    imported.refuses(
        "in x.json should be an object", "table", json.dumps(document).encode(), layout=layout
    )


def test_numbered_columns_beside_lists(imported):
    layout = Layout(
        columns={"text": "response_{i}", "verdict": "scores", "answer": "a{i}"}, lists=("scores",)
    )
    texts = {f"response_{i}": f"text {i}" for i in (10, 1, 2)}
    row = {"prompt": "p", "scores": [True, 0.5, None], "a1": "x", "a10": "y", **texts}
    short = {"prompt": "q", "scores": [0], "response_1": "text 1", "response_2": None, "a1": "z"}
    recording = imported("table", lines(row, short), layout=layout)
    check(recording, text=["text 1", "text 2", "text 10", "text 1"], answer=["x", None, "y", "z"])
    assert graded(recording) == [1, 0.5, 0]
    imported.refuses(
        "Line 1 of x.json has lists of several lengths (2 in 'scores', 3 in 'response_{i}', 3",
        "table",
        lines(row | {"scores": [1, 0]}, short),
        layout=layout,
    )


def test_json_inside_text_leads_to_the_gold(imported):
    about = json.dumps({"answers": ["2", "two"]})
    row = {"prompt": "1 + 1?", "info": about, "m_responses": ["a", "b"], "n_responses": ["c"]}
    layout = Layout(
        columns={"gold": "info.answers.0", "text": "{llm}_responses"}, lists=("{llm}_responses",)
    )
    recording = imported("table", lines(row), layout=layout, llm=None, answer_kind="number")
    check(recording, llms=["m", "n"], golds=["2"], text=["a", "b"], llm="m")
    assert "not read" not in notes(recording)


def test_facts_of_a_grader_and_verdicts_that_are_cut(imported):
    facts = {"name": "meteor", "metric": "METEOR", "version": 2, "threshold": 0.5}
    layout = Layout(columns={"verdict": "reward"}, grader=facts, clip=True)
    row = {"id": "q", "question": "?", "text": "t", "reward": -0.1}
    data = lines(row, {**row, "reward": 0.3})
    recording = imported("table", data, layout=layout)
    check(recording, "Verdicts outside [0, 1], which were cut to it: 1.")
    assert graded(recording, grader="meteor") == [0, 0.3]
    [grader] = recording.graders("toy", "toy-llm")
    assert {"metric": "METEOR", "version": 2}.items() <= recording.scorer_info(
        grader
    ).parameters.items()
    imported.refuses(
        "'reward' of line 1 of x.json should be a verdict, from 0 to 1; found a number -0.1",
        "table",
        data,
        layout=layout.model_copy(update={"clip": False}),
    )


def test_pickles_are_refused_with_what_converts_them(save, imported):
    path = save("wide.pkl", b"\x80\x04N.")
    imported.refuses("read_pickle\\('.*wide.pkl'\\).to_parquet", "table", path, SourceError)
