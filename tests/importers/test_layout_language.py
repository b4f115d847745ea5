"""What a layout can say of a table without code: names of files, lists of pairs, numbers and names
in the names of columns, JSON inside texts, nested rows, and who graded.
"""

import json
import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from command_line import failed, feval, said
from foreign_sources import lines
from importing import check, notes, rows
from places import read_data

from feval import SingleCall, evaluate, load
from feval.errors import ConflictError, SourceError, UnknownNameError, UsageError
from feval.importers import import_recording, understood
from feval.importers.layouts import Layout, layout_of
from feval.recording import merge, open_recording, verify_recording

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


def test_llms_that_files_name_are_chosen_by_a_repeated_option(save, tmp_path):
    for llm in ("a", "b_c", "d"):
        row = {"problem_num": 0, "gold_answer": "2", "all_answers": [["2", len(llm)]]}
        path = save(f"sets/analysis_toy_{llm}.jsonl", lines(row))
    asked = ("import table", path.parent, "--layout best-of-infinity --llm d --llm b_c")
    said(*asked, "--out", tmp_path / "two")
    recording = open_recording(tmp_path / "two")
    check(recording, llms=["d", "b_c"], dataset="toy", llm="b_c", output_tokens=[3])
    assert "no LLM named by a file" in failed(feval(*asked, "--llm e --out", tmp_path / "e"), 2)


def test_ids_are_of_the_dataset_as_it_is_recorded(imported, published, save):
    columns = {"gold": "gold", "answer": "all.0", "tokens": "all.1"}
    layout = PAIRS.model_copy(update={"number": "n", "columns": columns})
    options = {"layout": layout, "answer_kind": "number", "llm": None}
    one = published / "analysis_aime2025_small.jsonl"
    check(imported("table", one, **options | {"dataset": None}), ids=["aime25/0"])
    check(imported("table", one, **options | {"dataset": "mine"}), ids=["mine/0"])
    row = {"gold": "2", "all": [["2", 1]]}
    rows = [{"n": n, "set": name, **row} for name in layout.datasets for n in (1, 0)]
    update = {"file": "", "columns": {**columns, "dataset": "set"}}
    options |= {"layout": layout.model_copy(update=update), "dataset": None, "llm": "m"}
    both = imported("table", rows, **options)
    for dataset in ("aime24", "aime25"):
        check(both, dataset=dataset, ids=[f"{dataset}/0", f"{dataset}/1"])
    twice = "Line 5 of x.json has the 'n' of line 2 of x.json, 0: two entries for one question id"
    imported.refuses(twice, "table", [*rows, rows[1]], **options)


def test_an_example_is_the_entry_that_a_path_leads_to(published):
    table = understood(published / "analysis_aime2024_small.jsonl", PAIRS)
    assert [table.examples[name] for name in ("n", "all.0", "all.1")] == [0, "2", 4]


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
    recording = imported("table", [row, short], layout=layout)
    check(recording, text=["text 1", "text 2", "text 10", "text 1"], answer=["x", None, "y", "z"])
    assert graded(recording) == [1, 0.5, 0]
    imported.refuses(
        "Line 1 of x.json has lists of several lengths (2 in 'scores', 3 in 'response_{i}', 3",
        "table",
        [row | {"scores": [1, 0]}, short],
        layout=layout,
    )


def test_json_inside_text_leads_to_the_gold(imported):
    about = json.dumps({"answers": ["2", "two"]})
    row = {"prompt": "1 + 1?", "info": about, "m_responses": ["a", "b"], "n_responses": ["c"]}
    layout = Layout(
        columns={"gold": "info.answers.0", "text": "{llm}_responses"}, lists=("{llm}_responses",)
    )
    recording = imported("table", row, layout=layout, llm=None, answer_kind="number")
    check(recording, llms=["m", "n"], golds=["2"], text=["a", "b"], llm="m")
    assert "not read" not in notes(recording)


@pytest.mark.parametrize(
    ("cell", "sentence"),
    [
        ({"raw": ["a", "b"]}, "should be text, a number, true, false or null; found a list of 2"),
        ([{"raw": "a"}, {}], "should be inside an object; found a list of 2"),
        ("{'raw': nan}", "should be inside an object; found text of 12"),
    ],
)
def test_a_path_by_name_leads_to_one_value_or_is_refused(imported, cell, sentence):
    data = {"question": "1 + 1?", "text": "so", "out": cell}
    layout = Layout(columns={"prediction": "out.raw"})
    sentence = f"'out.raw' of line 1 of x.json {sentence}"
    imported.refuses(sentence, "table", data, layout=layout, answer_kind="number")


def test_a_layout_may_say_the_kind_of_its_answers(imported):
    data = {"question": "1 + 1?", "text": "2", "answer": "2", "prediction": "2"}
    for options, kind in [
        ({}, "text"),
        ({"answer_kind": "date"}, "date"),
        ({"dataset": "gsm8k"}, "number"),
    ]:
        options = {"dataset": "toy", "answer_kind": None} | options
        recording = imported("table", data, layout=Layout(answer_kind="text"), **options)
        assert recording.dataset_info(options["dataset"]).answer_kind == kind
    options = {"layout": Layout(answer_kind="txt"), "answer_kind": None}
    imported.refuses("no answer kind 'txt'", "table", data, UnknownNameError, **options)


def test_facts_of_a_grader_and_verdicts_that_are_cut(imported):
    facts = {"name": "meteor", "metric": "METEOR", "version": 2, "threshold": 0.5}
    layout = Layout(columns={"verdict": "reward"}, grader=facts, clip=True)
    row = {"id": "q", "question": "?", "text": "t", "reward": -0.1}
    data = [row, {**row, "reward": 0.3}]
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


CASES = read_data("importers.json")["lists of CoTs"]


@pytest.mark.parametrize("case", CASES)
def test_lists_of_cots_are_recognised(save, case):
    cells, read = CASES[case]
    table = understood(
        save("x.jsonl", lines({"problem": "1 + 1?", "answer": "2", **cells})), Layout()
    )
    assert {use.column: use.target for use in table.uses} == {
        "problem": "question", "answer": "gold", **read
    }  # fmt: skip
    assert "entry per CoT" in str(table.uses) or case == "a text beside"


def test_lists_that_are_recognised_make_cots(imported):
    row = {"problem": "1 + 1?", "answer": "2", "samples": ["a", "b"], "scores": [[0.5], [1, 0]]}
    recording = imported("table", [row, {**row, "problem": "2?"}], answer_kind="number")
    check(recording, golds=["2", "2"], text=["a", "b", "a", "b"])
    [scores, _] = recording.score_rows("toy", "toy-llm", "score", range(2))
    assert [list(steps) for steps in scores.step_scores] == [[0.5], [1, 0]]
    imported.refuses(
        "Line 201 of x.json has lists of several lengths (2 in 'samples', 1 in 'scores')",
        "table",
        [*[row] * 200, {**row, "scores": [1]}],
        answer_kind="number",
    )


def test_scorers_in_the_names_of_columns(imported):
    row = {"problem": "?", "samples": ["a", "b"], "Big_scores": [1, 2], "prm_scores": [[1], [2]]}
    layout = Layout(scores={"{scorer}-rm": "{scorer}_scores"}, columns={"text": "samples"})
    recording = imported("table", row, layout=layout, answer_kind="number")
    assert recording.scorers("toy", "toy-llm") == ["Big-rm", "prm-rm"]


def test_numbered_columns_are_proposed_and_not_guessed(save):
    row = {"problem": "1 + 1?", "answer": "2", "response_1": "a", "response_2": "b"}
    table = understood(save("x.jsonl", lines(row)), Layout(), dataset="gsm8k", llms=("m",))
    assert table.missing.add == (("map", "text=response_{i}"),)
    assert table.unread == ("response_1", "response_2")


def test_outcomes_of_llms_make_a_row_for_each(save):
    path = save("x.csv", b"prompt,subject,weak,strong,price\n1 + 1?,sums,0,1,0.5\n")
    layout = layout_of(outcome=["weak", "large=strong"])
    assert layout.outcomes == {"weak": "weak", "large": "strong"}
    table = understood(path, layout, dataset="toy")
    assert (table.missing, table.unread) == (None, ("subject", "price"))
    assert {use.target for use in table.uses} == {"prompt", "question", "verdict", "llm"}
    with pytest.raises(
        SourceError, match="has no column 'strang'; it has 'prompt', 'subject', 'weak'"
    ):
        understood(path, layout_of(outcome=["strang"]))
    for options, sentence in [
        ({"usd": ["weak=1"]}, "usd. gives a cost of 'weak', and .outcome. names no verdicts of it"),
        ({"usd": ["weak"]}, "takes LLM=USD or LLM=COLUMN"),
        ({"outcome": ["weak="]}, "takes LLM=COLUMN or COLUMN"),
    ]:
        with pytest.raises(UsageError, match=sentence):
            layout_of(**options)


def test_outcomes_cost_what_was_said(save, imported):
    path = save("x.csv", b"id,weak,strong,price\na,0,1,0.5\nb,0.5,1,0.25\n")
    recording = imported(
        "table",
        path,
        llm=None,
        answer_kind=None,
        outcome=["weak", "strong"],
        usd={"weak": 0.125, "strong": "price"},
    )
    check(recording, llms=["weak", "strong"], ids=["a", "b"], questions=["a", "b"])
    assert (graded(recording, "weak"), graded(recording, "strong")) == ([0, 0.5], [1, 1])
    assert rows(recording, llm="weak")["usd"] == [0.125, 0.125]
    assert rows(recording, llm="strong")["usd"] == [0.5, 0.25]
    dataset, llms = load("toy", ["weak", "strong"], recording, prices="recorded")
    costs = [evaluate(SingleCall(), dataset, llm).usd for llm in llms]
    assert [cost.mean() for cost in costs] == [0.125, 0.375]


def test_an_llm_without_an_outcome_has_no_cot_there(save, imported):
    path = save("x.csv", b"id,weak,strong\na,0,1\nb,,1\nc,1,\n")
    recording = imported("table", path, llm=None, answer_kind=None, outcome=["weak", "strong"])
    dataset, llms = load("toy", ["weak", "strong"], recording)
    assert [llm.pool.sizes.tolist() for llm in llms] == [[1, 0, 1], [1, 1, 0]]
    result = evaluate(SingleCall(), dataset, llms[0], short_pools="drop")
    assert (result.accuracy, result.left_out.short_pools) == (0.5, ("b",))


def test_columns_named_by_an_llm_that_others_show(imported):
    row = {"prompt": "?", "m": 0.5, "m|reply": "a", "m|usd": 2, "n": 1, "n|reply": "b", "n|usd": 3}
    columns = {"question": "prompt", "text": "{llm}|reply", "usd": "{llm}|usd", "verdict": "{llm}"}
    recording = imported("table", row, layout=Layout(columns=columns, ignored=("*",)),
    llm=None, answer_kind="text")  # fmt: skip
    for llm, text, usd, verdict in [("m", "a", 2, 0.5), ("n", "b", 3, 1)]:
        assert rows(recording, llm=llm)["text"] == [text]
        assert rows(recording, llm=llm)["usd"] == [usd]
        assert graded(recording, llm) == [verdict]


def test_features_are_kept_with_the_question(save, imported, tmp_path):
    text = "question,topic,level,text\n1 + 1?,sums,3,\\boxed{2}\n2 + 2?,sums,,\\boxed{4}\n"
    options = {"feature": ["topic", "level"], "answer_kind": "number"}
    recording = imported("table", save("x.csv", text.encode()), **options)
    kept = [question.features for question in recording.questions("toy")]
    assert kept == [(("topic", "sums"), ("level", "3")), (("topic", "sums"),)]
    dataset, _ = load("toy", ["toy-llm"], recording)
    assert dataset[0].features == {"topic": "sums", "level": "3"}
    few = import_recording("table", tmp_path / "x.csv", tmp_path / "few", dataset="toy",
    llm="other", answer_kind="number", feature=["topic"])  # fmt: skip
    with pytest.raises(ConflictError, match="two sets of features"):
        merge([recording.path, few], tmp_path / "both")
    plain = imported("table", tmp_path / "x.csv", answer_kind="number", llm="other")
    merge([plain.path, recording.path], tmp_path / "both")
    verify_recording(tmp_path / "both")
    both = [question.features for question in open_recording(tmp_path / "both").questions("toy")]
    assert both == kept
    row = {"id": "q", "question": "?", "features": {"topic": "sums", "hard": True, "x": None}}
    lined = imported("jsonl", {**row, "samples": ["a"]}, answer_kind="number")
    assert next(iter(lined.questions("toy"))).features == (("topic", "sums"), ("hard", "yes"))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickles_are_refused_with_what_converts_them(save, imported, protocol):
    row = {"question": "1 + 1?", "text": "2"}
    for value in (row, [row], pd.DataFrame([row]), np.array([1]), Path("x")):
        path = save("wide.pkl", pickle.dumps(value, protocol))
        imported.refuses("read_pickle\\('.*wide.pkl'\\).to_parquet", "table", path, SourceError)


def test_a_table_that_begins_as_a_pickle_of_text_is_one(save):
    for text in ("category,question\n[x],1 + 1?\n", "cot\nqed\nquestion\n"):
        assert understood(save("x.csv", text.encode()), Layout()).name == "x.csv"
