"""Published layouts of tables, each on a small file written by hand in its format; and mapping
files of one's own.
"""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from importing import check, notes
from places import ROOT

from feval.errors import FevalError
from feval.importers.layouts import layout_names, layout_of

SEARCH_AND_LEARN = {
    "problem": "What is 1 + 1?", "solution": "So 2.", "answer": "2", "subject": "Algebra",
    "level": 1, "unique_id": "test/1.json",
    "completions": ["1 and 1.\n\nSo \\boxed{2}", "\\boxed{3}"], "scores": [[0.5, 0.25], [0.125]],
    "pred": "\\boxed{3}",
    "completion_tokens": [9, 4], "agg_scores": [0.25, 0.125], "pred_maj@2": "\\boxed{2}",
}  # fmt: skip
QWEN_MATH = {
    "idx": 0, "question": "What is 1 + 1?", "gt_cot": "So 2.", "gt": "2", "level": "Level 1",
    "type": "Algebra", "answer": "two",
    "solution": "So 2.", "code": ["So \\boxed{2}", "\\boxed{3}", "?"], "pred": ["2", "3", ""],
    "report": [None] * 3,
    "score": [True, False, False],
}  # fmt: skip
MATH_ARENA = {
    "problem_idx": "1", "problem": "What is 1 + 1?", "model_name": "o3",
    "model_config": "openai/o3-high", "idx_answer": 1,
    "all_messages": [{"role": "user", "content": "What is 1 + 1? Box it."}],
    "user_message": "What is 1 + 1? Box it.",
    "answer": "So \\boxed{2}", "input_tokens": 12, "output_tokens": 40, "cost": 0.1,
    "input_cost_per_tokens": 2.0,
    "output_cost_per_tokens": 8.0, "gold_answer": "2", "parsed_answer": "2", "correct": True,
}  # fmt: skip
MONKEYS = {
    "prompt": "Q: What is 1 + 1?\nA:", "question": "What is 1 + 1?", "samples": ["It is 2.",
    "It is 3."],
    "gt_answer": "So 2.\n#### 2", "orig_dset_split": "test", "orig_dset_idx": 17,
    "is_corrects": [True, False],
}  # fmt: skip
ROUTER_BENCH = {
    "performance": 0.5, "time_taken": 1.0, "prompt_tokens": 40, "completion_tokens": 60,
    "cost": 0.2, "counts": 2,
    "model_name": "qwen3-8b", "dataset_name": "math500", "split": "test", "demo": False,
    "extra_metrics": {},
    "records": [
        {"index": place, "origin_query": f"What is 1 + {place}?", "prompt": f"1 + {place}?",
        "prompt_tokens": 20, "cost": 0.1,
         "completion_tokens": 30, "score": 1.0, "prediction": "2", "ground_truth": "2",
         "raw_output": "So 2.", "extra_fields": {}}
        for place in (1, 2)
    ],
}  # fmt: skip


def table_of(imported, name, data, **options):
    return imported("table", data, layout=layout_of(name), **{"answer_kind": "number", **options})


def lines(*values):
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def gold_and_id(recording, dataset="toy"):
    return [(question.id, question.answer) for question in recording.questions(dataset)]


def test_search_and_learn(imported):
    recording = table_of(imported, "search-and-learn", lines(SEARCH_AND_LEARN))
    assert gold_and_id(recording) == [("test/1.json", "2")]
    check(recording, answer=["2", "3"], output_tokens=[9, 4], correct=[True, False])
    [scores] = recording.score_rows("toy", "toy-llm", "prm", range(1))
    assert [list(steps) for steps in scores.step_scores or ()] == [[0.5, 0.25], [0.125]]


def test_qwen_math(imported):
    recording = table_of(
        imported, "qwen2.5-math", lines(QWEN_MATH, QWEN_MATH | {"idx": 1, "gt": "3"})
    )
    assert gold_and_id(recording) == [("0", "2"), ("1", "3")]
    check(
        recording,
        answer=["2", "3", None] * 2,
        correct=[True, False, False, False, True, False],
        text=["So \\boxed{2}", "\\boxed{3}", "?"] * 2,
    )


def test_matharena(save, imported):
    answers = [
        MATH_ARENA | {"idx_answer": place, "model_name": llm}
        for llm in ("o3", "r1")
        for place in (1, 0)
    ]
    # as `str` writes a missing one
    answers[1] |= {"parsed_answer": "None", "answer": "?", "correct": False}
    path = save("train.parquet", b"")
    pq.write_table(pa.Table.from_pylist(answers), path)
    recording = imported(
        "table", path, layout=layout_of("matharena"), llm=None, answer_kind="verbatim"
    )
    check(
        recording,
        llm="r1",
        llms=["o3", "r1"],
        answer=["2", "2"],
        output_tokens=[40, 40],
        text=["So \\boxed{2}"] * 2,
    )
    check(recording, llm="o3", correct=[False, True], answer=[None, "2"])
    assert gold_and_id(recording) == [("1", "2")]


def test_large_language_monkeys(imported):
    recording = table_of(imported, "large-language-monkeys", json.dumps([MONKEYS]).encode())
    assert gold_and_id(recording) == [("17", MONKEYS["gt_answer"])]
    check(
        recording,
        correct=MONKEYS["is_corrects"],
        text=MONKEYS["samples"],
        answer=["2", "3"],
        output_tokens=[4, 4],
    )
    assert "not read" not in notes(recording)


def test_llmrouterbench(imported):
    recording = table_of(
        imported,
        "llmrouterbench",
        json.dumps(ROUTER_BENCH, indent=2).encode(),
        dataset=None,
        llm=None,
    )
    assert gold_and_id(recording, "math500") == [("1", "2"), ("2", "2")]
    check(recording, output_tokens=[30, 30], answer=["2", "2"])


def test_every_published_layout_is_tested_and_states_its_source():
    tested = Path(__file__).read_text("utf-8")
    for name in layout_names():
        assert f'"{name}"' in tested
        assert layout_of(name).title
        assert "\nsource = " in (ROOT / "feval/importers/published" / f"{name}.toml").read_text(
            "utf-8"
        )


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


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"layout": "matharen"}, "no layout 'matharen'. Did you mean 'matharena'"),
        ({"layout": "missing.toml"}, "missing.toml cannot be read: No such file"),
        ({"columns": ["question"]}, "`map` takes NAME=COLUMN"),
        ({"columns": ["question=a", "question=b"]}, "two columns, 'a' and 'b'"),
        ({"scores": ["=x"]}, "scores takes SCORER=COLUMN or COLUMN"),
        (
            {"scores": ["x"], "ignored": ["x"]},
            "The column 'x' is named by map or scores, and by ignore='x'",
        ),
    ],
)
def test_refuses_other_words(options, sentence):
    with pytest.raises(FevalError, match=sentence):
        layout_of(**options)
